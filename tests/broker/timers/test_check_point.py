"""What slaves are told of the timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee.remoting.wire.headers.admin import GetTimerCheckPoint, GetTimerMetrics
from aerobee.store.format.timer import TIMER_CHECK, TimerCheck
from tests.broker.desk import body_of, open_desk
from tests.broker.timers.test_timers import START_MS, Bench, open_bench

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.trio


async def told(bench: Bench) -> TimerCheck:
    body = body_of(await bench.desk.ask(GetTimerCheckPoint()))
    assert len(body) == 56
    return TIMER_CHECK.read(body)


async def test_it_says_what_is_on_disk_and_never_more(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.desk.pass_s(5)
        began = await told(bench)
        # Slots without timers pass without a save.
        assert START_MS + 3_000 <= began.last_read_time_ms <= START_MS + 5_000
        assert (began.queue_offset, began.master_queue_offset) == (0, 0)
        async with bench.timers.saving:
            await bench.send(b"waits", TIMER_DELAY_SEC=30)
            mock_clock.jump(0.2)
            while not bench.timers.timers.queue_offset:
                await bench.desk.puts.durable()
            # It is in the wheel, and no save was possible.
            assert (await told(bench)).queue_offset == 0
        await bench.desk.pass_s(2)
        assert (await told(bench)).master_queue_offset == 1
        await bench.desk.pass_s(40)
        assert bench.desk.bodies() == [b"waits"]
        assert (await told(bench)).last_read_time_ms > bench.desk.records()[-1].store_timestamp


async def test_the_waiting_timers_are_told_by_topic(tmp_path: Path, mock_clock: MockClock) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.send(b"waits", TIMER_DELAY_SEC=30)
        await bench.desk.pass_s(2)
        found = msgspec.json.decode(body_of(await bench.desk.ask(GetTimerMetrics())))
        assert found["timingCount"]["t"]["count"] == 1
        assert set(found["dataVersion"]) == {"counter", "stateVersion", "timestamp"}


async def test_without_a_wheel_it_answers_as_java_does(tmp_path: Path) -> None:
    async with open_desk(tmp_path, timer_wheel_enable=False) as desk:
        check_point = await desk.ask(GetTimerCheckPoint())
        assert (check_point.code, check_point.remark) == (1, "The checkpoint is null")
        metrics = await desk.ask(GetTimerMetrics())
        assert (metrics.code, metrics.remark) == (1, "The timer message store is null")


async def test_a_new_master_tells_what_the_one_before_had_done_until_it_has_done_more(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        feature = bench.desk.broker.timers
        assert feature is not None
        feature.done.take(TimerCheck(last_read_time_ms=START_MS + 60_000, queue_offset=1))
        await bench.desk.pass_s(2)
        first = await told(bench)
        assert (first.queue_offset, first.master_queue_offset) == (1, 1)
        assert first.last_read_time_ms == START_MS + 60_000
        for delay_s in (90, 91):
            await bench.send(b"waits", TIMER_DELAY_SEC=delay_s)
        await bench.desk.pass_s(2)
        assert (await told(bench)).queue_offset == 2
        assert (await told(bench)).last_read_time_ms < START_MS + 60_000
