"""How fast clients may send to each topic, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.remoting.wire.headers.send import SendBatchMessage
from tests.broker.desk import Desk, open_desk
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
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
