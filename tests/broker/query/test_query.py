"""Messages by key and by place, over a real store of small files."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.errors import Refusal
from aerobee.broker.query.key_queries import KeyQueries
from aerobee.broker.query.query import QueryProcessor
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers import query as headers
from aerobee.store.files.disk import Disk
from aerobee.store.index import key_search
from tests.broker.peers import Peer, request
from tests.kit.running_store import running_store
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import PutResult

FOR_EVER = 1 << 62


class Desk:
    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.processor = QueryProcessor(store=store)
        self.queries = KeyQueries(store, lambda: None)
        self.peer: Any = Peer()

    def put(
        self, key: str, topic: str = "T", unique: str = "", body: bytes = b"hello"
    ) -> PutResult:
        properties = f"KEYS\x01{key}\x02" + (f"UNIQ_KEY\x01{unique}\x02" if unique else "")
        put = self.store.put(draft(topic, body=body, properties=properties.encode()))
        self.store.dispatch()
        return put

    def bytes_of(self, *puts: PutResult) -> list[bytes]:
        found = [self.store.read(put.physical_offset) for put in puts]
        return [bytes(record) for record in found if record is not None]

    async def by_key(
        self, key: str, topic: str = "T", max_num: int = 10, unique: bool | None = None
    ) -> Answer:
        header = headers.QueryMessage(
            topic=topic,
            key=key,
            max_num=max_num,
            begin_timestamp=0,
            end_timestamp=FOR_EVER,
            unique_key=unique,
        )
        command = request(RequestCode.QUERY_MESSAGE)
        assert await self.queries.by_key(header, command, self.peer) is HELD
        while not self.peer.answers:
            await trio.lowlevel.checkpoint()
        answer: Answer = self.peer.answers.pop()
        return answer

    def by_id(self, offset: int) -> Answer:
        header = headers.ViewMessageById(offset=offset)
        command = request(RequestCode.VIEW_MESSAGE_BY_ID)
        answer = self.processor.by_id(header, command, self.peer)
        assert isinstance(answer, Answer)
        return answer


@asynccontextmanager
async def desk_at(root: Path, **changes: Any) -> AsyncIterator[Desk]:
    async with running_store(root, Disk(), **changes) as store:
        desk = Desk(store)
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.queries.run)
            yield desk
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_message_is_found_as_soon_as_it_is_stored(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        first, other, second = desk.put("k a"), desk.put("b"), desk.put("k")
        answer = await desk.by_key("k")
        assert (answer.code, answer.body) == (0, desk.bytes_of(first, second))
        header = answer.header
        assert isinstance(header, headers.QueryMessageResponse)
        assert header.index_last_update_phyoffset == second.physical_offset
        assert header.index_last_update_timestamp == second.store_timestamp
        assert (await desk.by_key("b")).body == desk.bytes_of(other)


@pytest.mark.trio
async def test_what_nobody_sent_is_not_found(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        desk.put("k")
        for topic, key in (("T", "x"), ("U", "k"), ("T", "")):
            answer = await desk.by_key(key, topic)
            assert answer.code == ResponseCode.QUERY_NOT_FOUND
            assert answer.remark == "can not find message, maybe time range not correct"
            assert answer.header is not None


@pytest.mark.trio
async def test_the_newest_come_and_no_more_than_asked_for(tmp_path: Path) -> None:
    async with desk_at(tmp_path, max_msgs_num_batch=6, default_query_max_num=4) as desk:
        puts = [desk.put("k", unique="u") for _ in range(9)]
        for asked, unique, given in ((3, None, 3), (100, False, 6), (1, True, 4), (0, None, 0)):
            answer = await desk.by_key("k", max_num=asked, unique=unique)
            assert list(answer.body) == desk.bytes_of(*puts[9 - given :])
        assert (await desk.by_key("u", unique=True)).body == desk.bytes_of(*puts[5:])


@pytest.mark.trio
async def test_a_key_of_very_many_messages_is_looked_up_as_far_as_a_query_may_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with desk_at(tmp_path) as desk:
        old = desk.put("Aa")
        puts = [desk.put("BB", body=bytes(1_000)) for _ in range(6)]
        monkeypatch.setattr(key_search, "EXAMINED_MAX", 6)
        answer = await desk.by_key("Aa")
        assert answer.code == ResponseCode.SYSTEM_ERROR, "nobody knows whether there is one"
        assert "ask on with that as endTimestamp" in str(answer.remark)
        monkeypatch.setattr(key_search, "EXAMINED_MAX", 7)
        assert (await desk.by_key("Aa")).body == desk.bytes_of(old)
        monkeypatch.setattr(key_search, "QUERY_BYTES_MAX", 2_500)
        assert (await desk.by_key("BB")).body == desk.bytes_of(*puts[4:])
        monkeypatch.setattr(key_search, "QUERY_BYTES_MAX", 10)
        assert (await desk.by_key("BB")).body == desk.bytes_of(puts[5]), "one in any case"


@pytest.mark.trio
async def test_messages_whose_keys_share_a_hash_are_told_apart(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        # In Java's hash these are one: 65·31 + 97 = 66·31 + 66.
        first, second = desk.put("Aa"), desk.put("BB")
        assert (await desk.by_key("Aa")).body == desk.bytes_of(first)
        assert (await desk.by_key("BB")).body == desk.bytes_of(second)


@pytest.mark.trio
async def test_a_record_inside_a_body_is_no_message(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        inside = desk.bytes_of(desk.put("a"))[0]
        carrier = desk.put("b", body=inside)
        place = desk.bytes_of(carrier)[0].index(inside) + carrier.physical_offset
        with pytest.raises(Refusal, match=f"by the offset, {place}"):
            desk.by_id(place)


@pytest.mark.trio
async def test_a_message_is_read_by_its_place_in_the_log_and_from_no_other(tmp_path: Path) -> None:
    async with desk_at(tmp_path) as desk:
        desk.put("a")
        put = desk.put("b")
        assert list(desk.by_id(put.physical_offset).body) == desk.bytes_of(put)
        for place in (put.physical_offset + 1, put.end_offset, -1, 1 << 40):
            with pytest.raises(Refusal, match=f"by the offset, {place}") as refused:
                desk.by_id(place)
            assert refused.value.code == ResponseCode.SYSTEM_ERROR
