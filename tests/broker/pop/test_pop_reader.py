"""In which order a pop reads: topics whose queues are priorities, and all others."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.pop import pop_reader
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.headers import pop as headers
from aerobee.remoting.wire.headers.admin import UpdateBrokerConfig
from aerobee.store.format.properties import encode
from tests.broker.desk import body_of
from tests.broker.pops import open_pops
from tests.kit.records import bodies_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.pops import Pops

pytestmark = pytest.mark.trio

QUEUES = 5
TYPED = {"message.type": "PRIORITY"}
EACH = [b"0", b"1", b"2", b"3", b"4"]


def priority_topic(pops: Pops, **fields: Any) -> None:
    queues = {"read_queue_nums": QUEUES, "write_queue_nums": QUEUES, "attributes": TYPED}
    pops.desk.topic("t", **queues | fields)


def group(pops: Pops, factor: str | None) -> None:
    attributes = {} if factor is None else {"priority.factor": factor}
    config = SubscriptionGroupConfig(group_name="g", attributes=attributes)
    pops.desk.groups.update(config, pops.desk.now_ms())


async def send_each(pops: Pops, times: int = 1) -> None:
    """A message of each priority, the lowest first; its body says it."""
    for priority in [*range(QUEUES)] * times:
        properties = encode({"_SYS_MSG_PRIORITY_": f"{priority}"})
        await pops.desk.send("t", b"%d" % priority, properties=properties)


async def popped(pops: Pops, count: int = QUEUES, **fields: Any) -> list[bytes]:
    """The bodies of so many pops of one message each, in the order in which they came."""
    found = []
    for _ in range(count):
        (one,) = await pops.pop(max_msg_nums=1, **fields)
        found.append(one.body)
    return found


async def set_live(pops: Pops, line: bytes) -> None:
    answer = await pops.desk.ask(UpdateBrokerConfig(), line)
    assert answer.code == 0, answer


async def test_the_highest_priority_comes_first_in_one_pop_and_in_many(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        await send_each(pops, times=2)
        assert [one.body for one in await pops.pop(max_msg_nums=3)] == [b"4", b"4", b"3"]
        assert await popped(pops, 7) == [b"3", b"2", b"2", b"1", b"1", b"0", b"0"]


async def test_one_that_comes_later_overtakes_all_that_wait(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        await send_each(pops, times=3)
        assert await popped(pops, 3) == [b"4"] * 3
        await send_each(pops)
        assert await popped(pops, 2) == [b"4", b"3"]


async def test_a_peek_sees_what_a_pop_would_bring(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        await send_each(pops)
        answer = await pops.desk.ask(headers.PeekMessage("g", "t", -1, 1))
        assert bodies_of([body_of(answer)]) == [b"4"]
        assert await popped(pops, 1) == [b"4"], "a peek takes nothing"


async def test_the_order_is_turned_and_turned_back_while_the_broker_runs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path, priority_order_asc=False) as pops:
        priority_topic(pops)
        await send_each(pops, times=2)
        assert await popped(pops, 3) == [b"0", b"0", b"1"]
        await set_live(pops, b"priorityOrderAsc=true")
        assert await popped(pops, 3) == [b"4", b"4", b"3"]


@pytest.mark.parametrize("factor", [None, "100", "101", "often", "9" * 30])
async def test_a_group_pops_by_priority_unless_its_factor_says_otherwise(
    tmp_path: Path, mock_clock: MockClock, factor: str | None
) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        group(pops, factor)
        await send_each(pops)
        assert await popped(pops) == [*reversed(EACH)]


@pytest.mark.parametrize("factor", ["0", "-5"])
@pytest.mark.parametrize("kind", ["PRIORITY", "NORMAL", None])
async def test_otherwise_each_pop_begins_anywhere(
    tmp_path: Path, mock_clock: MockClock, factor: str, kind: str | None
) -> None:
    random.seed(7)
    async with open_pops(tmp_path) as pops:
        priority_topic(pops, attributes={} if kind is None else {"message.type": kind})
        group(pops, factor if kind == "PRIORITY" else None)
        await send_each(pops, times=20)
        first = await popped(pops, 60)
        assert set(first) == set(EACH), "a chance of 5 × (4/5)^60: less than 10⁻⁵"


async def test_a_factor_is_the_share_of_pops_in_order(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    random.seed(7)
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        group(pops, "50")
        await send_each(pops, times=150)
        highest = (await popped(pops, 100)).count(b"4")
        # 50 by priority and a fifth of the rest; six standard deviations around it.
        assert 30 <= highest <= 90, highest


async def test_a_pop_in_order_or_of_one_queue_knows_no_priority(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    random.seed(7)
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        await send_each(pops, times=20)
        assert await popped(pops, 3, queue_id=1) == [b"1"] * 3
        fields = {"order": True, "consumer_group": "in_order", "invisible_time": 1}
        first = []
        for _ in range(60):
            (one,) = await pops.pop(max_msg_nums=1, **fields)
            first.append(one.body)
            await pops.desk.pass_s(0.01)
        assert set(first) == set(EACH)


@pytest.mark.parametrize("percent", [0, 100])
async def test_what_comes_again_is_the_lowest_or_the_highest(
    tmp_path: Path, mock_clock: MockClock, percent: int
) -> None:
    async with open_pops(tmp_path, pop_from_retry_probability_percent=100) as pops:
        priority_topic(pops)
        await send_each(pops)
        (one,) = await pops.pop(max_msg_nums=1, invisible_time=1_000)
        assert one.body == b"4"
        await pops.desk.pass_s(10)
        assert pops.desk.store.max_offset("%RETRY%g_t", 0) == 1
        await set_live(pops, b"popFromRetryProbabilityForPriority=%d" % percent)
        rest = [b"3", b"2", b"1", b"0"]
        assert await popped(pops) == ([b"4", *rest] if percent else [*rest, b"4"])


async def test_what_is_out_of_reach_comes_when_there_are_queues_to_read_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops)
        await send_each(pops)
        priority_topic(pops, read_queue_nums=2, write_queue_nums=2)
        await send_each(pops)
        assert await pops.bodies() == [b"0", b"0", b"1", b"1", b"2", b"3", b"4"]
        priority_topic(pops, read_queue_nums=9, write_queue_nums=9)
        await send_each(pops)
        assert await popped(pops, 8) == [b"4", b"4", b"3", b"3", b"2", b"2", b"1", b"0"]


async def test_a_topic_that_becomes_one_of_priorities_is_popped_so_at_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_pops(tmp_path) as pops:
        priority_topic(pops, attributes={})
        await send_each(pops)
        priority_topic(pops)
        assert await popped(pops) == [*reversed(EACH)]


async def test_more_queues_than_a_pass_reads_are_read_from_anywhere(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lowest priorities would wait for ever behind a clock that has run out."""
    monkeypatch.setattr(pop_reader, "LOOKS", QUEUES)
    monkeypatch.setattr(pop_reader, "PASS_S", -1.0)
    async with open_pops(tmp_path) as pops:
        priority_topic(pops, read_queue_nums=QUEUES + 1, write_queue_nums=QUEUES + 1)
        await pops.desk.send("t", b"low", queue_id=0)
        tries = 0
        while not await pops.pop():
            tries += 1
            assert tries < 1_000
