"""What a master has delivered is not delivered again by the slave that takes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.timers.timers_done import TimersDone
from aerobee.store.format.timer import TimerCheck
from tests.broker.timers.test_timers import START_MS, open_bench

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


def test_it_covers_what_was_read_and_has_an_earlier_slot() -> None:
    done = TimersDone()
    assert not done.covers(0, 0)
    check = TimerCheck(last_read_time_ms=5_000, queue_offset=3)
    done.take(check)
    done.take(check)
    assert done.changes == 1
    assert done.covers(2, 4_999)
    assert not done.covers(3, 4_999)
    assert not done.covers(2, 5_000)


def test_a_master_that_has_only_begun_to_read_takes_nothing_back() -> None:
    """Else two failovers in a row would deliver all timers again that the log still has."""
    done = TimersDone()
    done.take(TimerCheck(last_read_time_ms=5_000, queue_offset=300))
    done.take(TimerCheck(last_read_time_ms=6_000, queue_offset=0))
    done.take(TimerCheck(last_read_time_ms=4_000, queue_offset=300))
    assert done.covers(299, 4_999)
    done.take(TimerCheck(last_read_time_ms=6_000, queue_offset=301))
    assert done.covers(300, 5_999)


def test_it_comes_back_from_its_file() -> None:
    done, again = TimersDone(), TimersDone()
    done.take(TimerCheck(last_read_time_ms=7, queue_offset=1))
    again.load({**done.document(), "other": 1})
    assert again.covers(0, 6)
    assert again.document() == {"queueOffset": 1, "readTime": 7, "other": 1}


@pytest.mark.parametrize("document", [{}, {"queueOffset": 1}, {"queueOffset": "1", "readTime": 2}])
def test_a_file_that_says_something_else_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not two numbers"):
        TimersDone().load(document)


@pytest.mark.trio
async def test_timers_that_are_done_are_passed_over_late_and_in_their_slots(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_bench(tmp_path) as bench:
        for body, delay_s in ((b"done", 10), (b"early", 30), (b"late", 10)):
            await bench.send(body, TIMER_DELAY_SEC=delay_s)
        await bench.desk.pass_s(2)
        # As if a master had read two of them, and delivered what was due by then.
        feature = bench.desk.broker.timers
        assert feature is not None
        feature.done.take(TimerCheck(last_read_time_ms=START_MS + 20_000, queue_offset=2))
        await bench.desk.pass_s(60)
        assert sorted(bench.desk.bodies()) == [b"early", b"late"]
        # The wheel topic read again from its begin: the slots are late by now.
        bench.timers.timers.queue_offset = 0
        await bench.desk.pass_s(5)
        assert sorted(bench.desk.bodies()) == [b"early", b"early", b"late", b"late"]
