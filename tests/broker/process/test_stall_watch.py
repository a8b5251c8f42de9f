"""The watch over the loop: the place of a stall is logged while it lasts, and its end after it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.counters.server_stats import LoopStats
from aerobee.broker.process import stall_watch
from aerobee.broker.process.loop_ticker import LoopTicker
from aerobee.broker.process.stall_watch import StallWatch, stack_of
from aerobee.store.files.system_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


WITHIN_S = 20.0


def stand_still(lines: Sequence[MutableMapping[str, Any]]) -> None:
    """A stall longer than the watch has seen: a busy machine makes its thread wait."""
    ends = time.monotonic() + WITHIN_S
    while not seen_here(lines) and time.monotonic() < ends:
        pass
    ends = time.monotonic() + 0.1
    while time.monotonic() < ends:
        pass


def seen_here(lines: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    stalls = [line for line in lines if line["event"] == "loop.stalled"]
    return [line for line in stalls if " stand_still" in line["stack"]]


@pytest.mark.trio
async def test_a_loop_that_stands_still_is_logged_with_the_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stall_watch, "LOOK_S", 0.02)
    stats, clock = LoopStats(), SystemClock()
    stats.stall_s = 0.1
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            await nursery.start(LoopTicker(stats, clock).run)
            StallWatch(stats, clock).start()
            stand_still(lines)
            (stalled,) = seen_here(lines)
            began = lines.index(stalled)
            with trio.fail_after(WITHIN_S):
                while lines[-1]["event"] != "loop.stall_ended":  # noqa: ASYNC110  (from a thread)
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        ended = next(line for line in lines[began:] if line["event"] == "loop.stall_ended")
    assert stalled["elapsed_ms"] >= 100
    assert ended["elapsed_ms"] >= stalled["elapsed_ms"]
    assert stats.stalls
    assert not stats.turning, "what comes after its last turn is no stall"


def test_a_stall_is_told_once_and_one_that_nobody_saw_when_it_is_over() -> None:
    stats, clock = LoopStats(), Now()
    stats.stall_s, stats.turning, stats.last_turn = 1.0, True, clock.monotonic()
    watch = StallWatch(stats, clock)

    def looked(after_s: float) -> list[str]:
        clock.now += after_s
        with capture_logs() as lines:
            watch.look()
        return [line["event"] for line in lines]

    assert looked(0.9) == []
    assert looked(0.2) == ["loop.stalled"]
    assert looked(5) == []
    LoopTicker(stats, clock).note(clock.monotonic() - 6)
    assert looked(0) == ["loop.stall_ended"]
    LoopTicker(stats, clock).note(clock.monotonic() - 3)
    assert looked(0) == ["loop.stall_ended"], "the interpreter was held"
    stats.turning = False
    assert looked(100) == [], "the ticker has ended with the broker"


def test_a_stack_has_the_innermost_calls_last_and_few_of_many() -> None:
    def deep(count: int) -> Any:
        return deep(count - 1) if count else sys._getframe()

    lines = stack_of(deep(50)).splitlines()
    assert len(lines) == stall_watch.FRAMES_MAX
    assert lines[-1].startswith(f"{__file__}:")
    assert stack_of(None) == ""
