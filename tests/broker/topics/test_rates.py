"""How fast clients may send to each topic, and each group may receive, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.errors import PutPostponed
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import SendBatchMessage
from aerobee.store.messages.writer import Writer
from aerobee.store.results import PutResult, PutStatus
from tests.broker.desk import Desk, body_of, open_desk
from tests.broker.pops import open_pops
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.trio


async def sent(desk: Desk, tries: int, topic: str = "t", body: bytes = b"hello") -> int:
    """How many of so many sends are taken; the others are refused as busy."""
    codes = [(await desk.send(topic, body)).code for _ in range(tries)]
    assert set(codes) <= {Code.SUCCESS, Code.SYSTEM_BUSY}
    return codes.count(Code.SUCCESS)


async def test_so_many_messages_in_a_second(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "10"})
        desk.topic("free")
        assert await sent(desk, 15) == 10
        assert await sent(desk, 15, "free") == 15
        refused = await desk.send("t")
        assert refused.remark is not None
        assert "topic [t] takes 10 messages per second (aerobee.max.rate)" in refused.remark
        assert refused.header is not None, "trace clients read region and switch in every answer"
        assert desk.stats.topics_too_fast == {"t": 6}
        mock_clock.jump(0.5)
        assert await sent(desk, 15) == 5
        mock_clock.jump(60)
        assert await sent(desk, 15) == 10, "what is not used is not kept"


async def test_a_long_body_is_taken_and_paid_for_afterwards(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.bytes": "1000"})
        assert await sent(desk, 2, body=bytes(3_000)) == 1
        mock_clock.jump(1.9)
        assert await sent(desk, 1) == 0
        mock_clock.jump(0.2)
        assert await sent(desk, 1) == 1


async def test_a_batch_counts_all_its_messages(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "2"})
        body = batch_body([Sent(b"x", b"")] * 5)

        async def batch() -> int:
            return (await desk.send("t", body, cls=SendBatchMessage, batch=True)).code

        assert await batch() == Code.SUCCESS
        assert await batch() == Code.SYSTEM_BUSY
        mock_clock.jump(1.4)
        assert await batch() == Code.SYSTEM_BUSY
        mock_clock.jump(0.7)
        assert await batch() == Code.SUCCESS


async def test_what_is_refused_for_another_reason_does_not_count(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "1"})
        assert (await desk.send("t", properties="DELAY\x01soon\x02")).code == Code.SYSTEM_ERROR
        assert await sent(desk, 2) == 1


@pytest.mark.parametrize("batch", [False, True])
async def test_a_send_that_waits_for_a_segment_counts_once(tmp_path: Path, batch: bool) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "1", "aerobee.max.bytes": "9"})
        late = PutResult(PutStatus.SEGMENT_LATE)
        body = batch_body([Sent(b"x", b"")]) if batch else b"hello"
        kind: dict[str, Any] = {"cls": SendBatchMessage, "batch": True} if batch else {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(desk.store, "put", lambda *how: late)
            patch.setattr(Writer, "put_batch_in_steps", lambda *how: given(late))
            assert (await desk.send("t", body, **kind)).remark == PutPostponed.REMARK
        assert (await desk.send("t", body, **kind)).code == Code.SUCCESS
        assert (await desk.send("t", body, **kind)).code == Code.SYSTEM_BUSY


def given(result: PutResult) -> Generator[None, None, PutResult]:
    return result
    yield


async def test_a_changed_limit_begins_with_a_full_bucket_and_none_is_none(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "2"})
        assert await sent(desk, 5) == 2
        desk.topic("t", attributes={"aerobee.max.rate": "3"})
        assert await sent(desk, 5) == 3
        desk.topic("t", attributes={"message.type": "NORMAL"})
        assert await sent(desk, 5) == 5


@pytest.mark.parametrize("text", ["", "-1", "1.5", "fast", "9" * 20])
async def test_a_limit_in_a_file_that_is_no_number_is_none(tmp_path: Path, text: str) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": text})
        assert await sent(desk, 5) == 5


async def test_a_delayed_message_counts_when_it_is_sent(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", attributes={"aerobee.max.rate": "1"})
        late = await desk.send("t", properties="TIMER_DELAY_SEC\x013\x02")
        assert late.code == Code.SUCCESS
        assert await sent(desk, 1) == 0
        await trio.sleep(1)
        assert await sent(desk, 1) == 1


# ── Groups ──


def limit(desk: Desk, group: str = "g", **attributes: str) -> None:
    named = {f"aerobee.max.{key}": value for key, value in attributes.items()}
    desk.groups.update(SubscriptionGroupConfig(group_name=group, attributes=named), 0)


async def pulled(desk: Desk, group: str = "g") -> int:
    """How many of five pulls of one message each are let in."""
    pulls = [await desk.pull("t", n, consumer_group=group, max_msg_nums=1) for n in range(5)]
    codes = [pull.code for pull in pulls]
    assert set(codes) <= {Code.SUCCESS, Code.FLOW_CONTROL}
    return codes.count(Code.SUCCESS)


async def test_a_group_gets_so_many_messages_in_a_second(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        assert await sent(desk, 10) == 10
        limit(desk, rate="2")
        limit(desk, "free")
        assert await pulled(desk) == 2
        assert await pulled(desk, "free") == 5
        refused = await desk.pull("t")
        assert refused.remark == (
            "group [g] gets 2 messages per second (aerobee.max.rate), and they are used up: wait"
        )
        assert desk.stats.groups_too_fast == {"g": 4}
        mock_clock.jump(0.5)
        assert await pulled(desk) == 1
        limit(desk)
        assert await pulled(desk) == 5


async def test_what_a_group_gets_at_once_is_paid_for_afterwards(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        assert await sent(desk, 10) == 10
        limit(desk, bytes="1000")
        first = await desk.pull("t", max_msg_nums=10)
        size = len(body_of(first))
        assert size > 1_000
        mock_clock.jump((size - 1_000) / 1_000 - 0.1)
        assert (await desk.pull("t")).code == Code.FLOW_CONTROL
        mock_clock.jump(0.2)
        assert (await desk.pull("t")).code == Code.SUCCESS


async def test_pops_of_a_group_count_as_its_pulls(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        for _ in range(3):
            await pops.send(b"x")
        limit(pops.desk, rate="2")
        assert len(await pops.pop(max_msg_nums=2)) == 2
        answer = await pops.desk.ask(pops.header())
        assert answer.code == Code.FLOW_CONTROL
        await pops.desk.pass_s(0.5)
        assert len(await pops.pop()) == 1
