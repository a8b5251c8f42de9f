"""Queries by key take turns, have their own threads, and end with their client or the broker."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from aerobee.broker.errors import Refusal
from aerobee.broker.query import key_queries
from aerobee.broker.query.key_queries import QUERIES_OF_CONNECTION, KeyQueries
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers import query as headers
from aerobee.store.files.disk import Disk
from aerobee.store.index import key_search
from aerobee.store.index.key_search import KeySearch
from tests.broker.peers import Peer, request
from tests.kit.running_store import running_store
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.store.message_store import MessageStore

FOR_EVER = 1 << 62


class Desk:
    """Key queries over a store in which 300 messages have one key, and one has another."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.queries = KeyQueries(store, lambda: None)
        # The hashes of "Aa" and "BB" are the same, so a query for "Aa" looks at all of them.
        for number in range(300):
            self.put("BB", number)
        self.put("rare", 300)

    def put(self, key: str, number: int) -> None:
        self.store.put(draft("T", body=b"%d" % number, properties=f"KEYS\x01{key}\x02".encode()))
        self.store.dispatch()

    async def ask(self, peer: Any, key: str, end_ms: int = FOR_EVER, most: int = 10) -> None:
        header = headers.QueryMessage(
            topic="T", key=key, max_num=most, begin_timestamp=0, end_timestamp=end_ms
        )
        command = request(RequestCode.QUERY_MESSAGE)
        assert await self.queries.by_key(header, command, peer) is HELD


async def answers(peer: Peer, count: int) -> None:
    while len(peer.answers) < count:
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def desk_at(root: Path, **changes: Any) -> AsyncIterator[Desk]:
    async with running_store(root, Disk(), **changes) as store:
        desk = Desk(store)
        while store.index.behind_bytes:
            await store.index.fresh()
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.queries.run)
            yield desk
            nursery.cancel_scope.cancel()


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_search, "STEP_RECORDS", 2)
    monkeypatch.setattr(key_queries, "REST_S", 0)


@pytest.mark.trio
@pytest.mark.usefixtures("short_steps")
async def test_an_ordinary_query_is_answered_before_long_ones_of_other_connections(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path) as desk:
        greedy, honest = [Peer() for _ in range(5)], Peer()
        for peer in greedy:
            for _ in range(6):
                await desk.ask(peer, "Aa")
        await desk.ask(honest, "rare")
        await answers(honest, 1)
        assert not any(peer.answers for peer in greedy)
        assert honest.answers[0].code == ResponseCode.SUCCESS
        for peer in greedy:
            await answers(peer, 6)
            assert {answer.code for answer in peer.answers} == {ResponseCode.QUERY_NOT_FOUND}


@pytest.mark.trio
async def test_a_connection_may_have_so_many_queries_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk_at(tmp_path) as desk:
        go_on = threading.Event()
        monkeypatch.setattr(KeySearch, "step", lambda search: go_on.wait())
        peer = Peer()
        for _ in range(QUERIES_OF_CONNECTION):
            await desk.ask(peer, "BB")
        with pytest.raises(Refusal, match="64 queries by key of this connection") as refused:
            await desk.ask(peer, "BB")
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        await desk.ask(Peer(), "BB")
        go_on.set()


@pytest.mark.trio
async def test_queries_that_hang_keep_no_thread_that_the_store_needs_and_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk_at(tmp_path) as desk:
        go_on = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(KeySearch, "step", lambda search: go_on.wait())
            peers = [Peer() for _ in range(20)]
            for peer in peers:
                await desk.ask(peer, "BB")
            await trio.testing.wait_all_tasks_blocked()
            assert await desk.store.flush_queues()
        desk.queries.stop()
        told = [peer.answers[0].code for peer in peers if peer.answers]
        assert told == [ResponseCode.SERVICE_NOT_AVAILABLE] * 18, "but for the two at work"
        with pytest.raises(Refusal, match="stopping"):
            await desk.ask(Peer(), "BB")
        # And the nursery of the queries ends although their threads hang.
    go_on.set()


@pytest.mark.trio
@pytest.mark.usefixtures("short_steps")
async def test_the_queries_of_a_client_that_has_gone_are_given_up(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        peers = [Peer() for _ in range(5)]
        for peer in peers:
            for _ in range(3):
                await desk.ask(peer, "Aa")
        for peer in peers:
            peer.closed = "gone"
            desk.queries.closed(peer)  # type: ignore[arg-type]  # a peer without a socket
        for peer in peers:
            await answers(peer, 3)  # which a closed connection drops
            codes = {answer.code for answer in peer.answers}
            assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}


@pytest.mark.trio
async def test_nothing_is_searched_for_a_peer_that_does_not_read(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        deaf, other = Peer(), Peer()
        deaf.paused = True
        await desk.ask(deaf, "BB")
        await desk.ask(other, "BB")
        await answers(other, 1)
        assert not deaf.answers
        deaf.paused = False
        await answers(deaf, 1)


@pytest.mark.trio
async def test_a_query_that_may_look_no_further_says_where_to_ask_on(tmp_path: Path) -> None:
    # A file of this index has 20 entries, and counts as one itself.
    limits = {"max_index_entries_of_query": 100, "max_msgs_num_batch": 400}
    async with desk_at(tmp_path, **limits) as desk:
        for key, most, code, found in (
            ("BB", 60, ResponseCode.SUCCESS, 60),
            ("BB", 400, ResponseCode.SUCCESS, 95),
            ("Aa", 10, ResponseCode.SYSTEM_ERROR, 0),
        ):
            peer = Peer()
            await desk.ask(peer, key, most=most)
            await answers(peer, 1)
            answer = peer.answers[0]
            assert (answer.code, len(answer.body)) == (code, found)
            assert ("maxIndexEntriesOfQuery" in (answer.remark or "")) == (most != 60)


@pytest.mark.trio
async def test_damage_in_the_index_ends_a_query_and_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(search: KeySearch) -> None:
        raise OSError(5, "Input/output error")

    async with desk_at(tmp_path) as desk:
        peer = Peer()
        with monkeypatch.context() as patch:
            patch.setattr(KeySearch, "step", fail)
            await desk.ask(peer, "BB")
            await answers(peer, 1)
        assert peer.answers[0].code == ResponseCode.SYSTEM_ERROR
        await desk.ask(peer, "BB")
        await answers(peer, 2)
        assert peer.answers[1].code == ResponseCode.SUCCESS
