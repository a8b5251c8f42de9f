"""Offset reset: by the broker, heard of with the next pull; and by the clients, as in 4.9."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.answers import refusal
from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.consumers.clients import Client
from aerobee.broker.errors import GroupNotExist, Refusal, TopicNotExist
from aerobee.remoting.server import turns
from aerobee.remoting.server.turns import TURN_S
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.offset import (
    QueryConsumerOffset,
    ResetOffset,
    ResetOffsetInClient,
    UpdateConsumerOffset,
)
from tests.broker.desk import Desk, body_of, open_desk, said
from tests.broker.peers import Peer
from tests.kit.cold_disk import ColdDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer

pytestmark = pytest.mark.trio


def reset_header(timestamp: int = 0, **fields: Any) -> ResetOffset:
    return ResetOffset(topic="t", group="g", timestamp=timestamp, is_force=True, **fields)


def commit(queue_id: int, at: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=queue_id, commit_offset=at)


def query(queue_id: int) -> QueryConsumerOffset:
    return QueryConsumerOffset(consumer_group="g", topic="t", queue_id=queue_id)


async def filled(desk: Desk, messages: int = 5) -> None:
    """A topic of two queues with messages, and a group that has read all of them."""
    desk.topic(read_queue_nums=2, write_queue_nums=2)
    for queue_id in (0, 1):
        for _ in range(messages):
            await desk.send(queue_id=queue_id)
        await desk.pull(queue_id=queue_id)
        await desk.ask(commit(queue_id, messages))


def row(queue_id: int, at: int) -> bytes:
    return b'{"brokerName":"desk","queueId":%d,"topic":"t"}:%d' % (queue_id, at)


async def test_the_next_pull_of_each_queue_hears_where_to_go_on(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        answer = await desk.ask(reset_header())
        assert answer.code == Code.SUCCESS
        assert body_of(answer) == b'{"offsetTable":{' + row(0, 0) + b"," + row(1, 0) + b"}}"
        for queue_id in (0, 1):
            moved = await desk.pull(queue_offset=5, queue_id=queue_id)
            assert (moved.code, moved.remark) == (Code.PULL_OFFSET_MOVED, "OFFSET_RESET")
            fields = said(moved)
            assert (fields["nextBeginOffset"], fields["maxOffset"]) == ("0", "5")
            assert (await desk.pull(queue_offset=0, queue_id=queue_id)).code == Code.SUCCESS


@pytest.mark.parametrize("fields", [{}, {"queue_id": 1, "offset": 2}], ids=["all", "one"])
async def test_a_kill_behind_the_answer_does_not_take_the_reset_back(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        await desk.ask(reset_header(**fields))
        saved = json.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())
        wanted = {"0": 5, "1": 2} if fields else {"0": 0, "1": 0}
        assert saved["offsetTable"] == {"t@g": wanted}
        assert "t@g@1" in saved["resets"]


async def test_commits_are_left_aside_until_the_consumer_has_heard(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        await desk.ask(reset_header(queue_id=0, offset=2))
        ignored = await desk.ask(commit(0, 5))
        assert (ignored.code, ignored.remark) == (0, "Offset has been previously reset")
        await desk.ask(commit(1, 4))
        assert [said(await desk.ask(query(n)))["offset"] for n in (0, 1)] == ["2", "4"]
        await desk.pull(queue_offset=5)
        await desk.ask(commit(0, 5))
        assert said(await desk.ask(query(0)))["offset"] == "5"


async def test_a_commit_inside_the_pull_does_not_undo_the_reset(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        await desk.ask(reset_header(queue_id=0, offset=2))
        moved = await desk.pull(queue_offset=5, sys_flag=4 | 1, commit_offset=5)
        assert said(moved)["nextBeginOffset"] == "2"
        assert desk.offsets.query("g", "t", 0) == 2


async def test_a_second_reset_replaces_the_first(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        await desk.ask(reset_header(queue_id=0, offset=2))
        await desk.ask(reset_header(queue_id=0, offset=3))
        assert said(await desk.pull(queue_offset=5))["nextBeginOffset"] == "3"


@pytest.mark.parametrize(
    ("fields", "at"),
    [({"timestamp": -1}, 5), ({"timestamp": 1 << 60}, 5), ({"timestamp": 0, "offset": -1}, 0)],
    ids=str,
)
async def test_time_decides_where_no_offset_is_given(
    tmp_path: Path, fields: dict[str, int], at: int
) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        answer = await desk.ask(reset_header(queue_id=0, **fields))
        assert body_of(answer) == b'{"offsetTable":{' + row(0, at) + b"}}"


@pytest.mark.parametrize("offset", [-2, 7, 1 << 40])
async def test_an_offset_outside_of_the_queue_is_refused_and_nothing_changes(
    tmp_path: Path, offset: int
) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        with pytest.raises(Refusal, match="holds 0 to 5") as refused:
            await desk.ask(reset_header(queue_id=0, offset=offset))
        assert refused.value.code == Code.SYSTEM_ERROR
        assert desk.offsets.query("g", "t", 0) == 5
        assert not desk.offsets.resets


async def test_topic_and_group_must_be_known(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert (await desk.ask(reset_header())).code == Code.TOPIC_NOT_EXIST
        desk.topic()
        assert (await desk.ask(reset_header())).code == Code.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_deleted_group_forgets_its_resets(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)
        await desk.ask(reset_header())
        desk.offsets.delete_group("g")
        assert not desk.offsets.resets


# ── many queues ──

MANY = 2_000


class Searches:
    """Counts the searches by time; each takes a quarter of a turn."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.then: Callable[[], None] = lambda: None
        self._now = 100.0
        self._search = desk.store.offset_by_time
        monkeypatch.setattr(desk.store, "offset_by_time", self)
        monkeypatch.setattr(turns, "monotonic", lambda: self._now)

    def __call__(self, *of: Any) -> int:
        self.count += 1
        self._now += TURN_S / 4
        self.then()
        return self._search(*of)


@pytest.mark.parametrize("by_the_broker", [True, False])
async def test_thousands_of_queues_are_reset_in_turns_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_the_broker: bool
) -> None:
    changes: dict[str, Any] = {
        "use_server_side_reset_offset": by_the_broker,
        "max_queues_of_topic": MANY,
    }
    async with open_desk(tmp_path, **changes) as desk:
        await filled(desk, messages=1)
        desk.topic(read_queue_nums=MANY, write_queue_nums=MANY)
        for queue_id in range(MANY):
            desk.offsets.commit("g", "t", queue_id, 1, 0)
        join(desk)
        searches, seen = Searches(desk, monkeypatch), [0]

        async def look() -> None:
            while True:
                seen.append(searches.count)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            answer = await pushed(desk)
            nursery.cancel_scope.cancel()
        assert answer.code == Code.SUCCESS
        assert body_of(answer).count(b"queueId") == searches.count == MANY
        assert max(after - before for before, after in pairwise(seen)) <= 2 * 5, (
            "two turns, as tasks run in any order"
        )


async def test_where_each_read_waits_a_queue_is_searched_anew_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, disk = 60, ColdDisk(cold=False)
    changes: dict[str, Any] = {"access_message_in_memory_max_ratio_percent": 0}
    async with open_desk(tmp_path, disk, **changes) as desk:
        await filled(desk, messages=1)
        desk.topic(read_queue_nums=queues, write_queue_nums=queues)
        for queue_id in range(queues):
            await desk.send(queue_id=queue_id)
        disk.cold = True
        desk.store.commit_log.mapped_from = desk.store.commit_log.max_offset
        searches = Searches(desk, monkeypatch)
        answer = await pushed(desk)
        disk.cold = False
        assert answer.code == Code.SUCCESS
        assert disk.waited
        assert searches.count <= 8 * queues, "it grows with the queues, not with their square"


@pytest.mark.parametrize("queue_id", [-1, 0])
@pytest.mark.parametrize("what", ["topic", "group"])
async def test_what_is_deleted_during_a_reset_keeps_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, queue_id: int
) -> None:
    async with open_desk(tmp_path) as desk:
        await filled(desk)

        def delete() -> None:
            if what == "topic":
                desk.topics.delete("t", 0, 0)
            else:
                desk.groups.delete("g", 0)
            desk.offsets.delete_group("g")

        Searches(desk, monkeypatch).then = delete
        with pytest.raises(TopicNotExist if what == "topic" else GroupNotExist):
            await desk.ask(reset_header(queue_id=queue_id))
        assert not desk.offsets.resets
        assert not desk.offsets.queues("g", "t")


# ── by the clients ──


def join(desk: Desk, *, version: int = 479, language: str = "JAVA") -> Peer:
    peer = Peer()
    desk.clients.register_consumer(
        "g",
        Client(peer, f"c{peer.id}", language, version, 0),
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=None,
    )
    return peer


async def pushed(desk: Desk, **fields: Any) -> Answer:
    try:
        return await desk.ask(reset_header(**fields))
    except Refusal as error:
        answer = refusal(error)
        assert answer is not None
        return answer


async def test_with_the_switch_off_every_client_is_told(tmp_path: Path) -> None:
    async with open_desk(tmp_path, use_server_side_reset_offset=False) as desk:
        await filled(desk)
        members = [join(desk), join(desk, language="CPP")]
        answer = await pushed(desk)
        assert answer.code == Code.SUCCESS
        assert body_of(answer).startswith(b'{"offsetTable":{' + row(0, 0))
        for member in members:
            ((code, told),) = member.told
            assert code == int(ResetOffsetInClient.code)
            assert (told.topic, told.group) == ("t", "g")
        assert desk.offsets.query("g", "t", 0) == 5


async def test_with_the_switch_off_nobody_online_is_an_error(tmp_path: Path) -> None:
    async with open_desk(tmp_path, use_server_side_reset_offset=False) as desk:
        await filled(desk)
        assert (await pushed(desk)).code == Code.CONSUMER_NOT_ONLINE


async def test_with_the_switch_off_a_group_must_have_consumed(tmp_path: Path) -> None:
    async with open_desk(tmp_path, use_server_side_reset_offset=False) as desk:
        desk.topic()
        answer = await pushed(desk)
        assert (answer.code, answer.remark) == (
            Code.SYSTEM_ERROR,
            "THe consumer group <g> not exist",
        )


async def test_with_the_switch_off_an_old_client_is_named(tmp_path: Path) -> None:
    async with open_desk(tmp_path, use_server_side_reset_offset=False) as desk:
        await filled(desk)
        member = join(desk, version=27)
        answer = await pushed(desk)
        assert answer.code == Code.SYSTEM_ERROR
        assert f"c{member.id}" in (answer.remark or "")
        assert member.told == []


async def test_a_reset_outlives_a_start_but_not_one_as_a_slave(tmp_path: Path) -> None:
    """A slave may be the master much later, when its own open resets are long over."""
    async with open_desk(tmp_path) as desk:
        desk.topic()
        await desk.send()
        desk.offsets.commit("g", "t", 0, 1, 0)
        desk.offsets.reset("g", "t", 0, 0, 0)
        assert await desk.saver.save_all()
    async with open_desk(tmp_path) as desk:
        assert desk.offsets.resets == {("g", "t", 0): 0}
        assert await desk.saver.save_all()
    async with open_desk(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1) as desk:
        assert not desk.offsets.resets
