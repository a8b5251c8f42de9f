"""Timers under a wall clock that jumps, compared with what was asked for.

In virtual time, on a wheel of four minutes, so that the timers of a clock that was wrong stand in
the way of others. Laws: a timer comes once; not before the clock has shown its time; and at most a
step after that, whatever the clock did before.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.timers.timers import Timers
from tests.broker.desk import said
from tests.broker.timers.test_timers import START_MS, copy_if_there, open_bench
from tests.kit.records import bodies_of
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.timers.test_timers import Bench

SLOTS = 256
"""Of a second each: two blocks of the wheel."""
SETTINGS: dict[str, Any] = {"timer_roll_window_slot": 100, "timer_max_delay_s": 3_153_600_000}
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000
JUMPS_MS = (20 * SECOND_MS, 200 * SECOND_MS, HOUR_MS, 15 * DAY_MS, 10 * 365 * DAY_MS)
DELAYS_S = (3, 30, 90, 150, 400)
STEPS = 25
ROOM_MS = 2_500
"""A step of the wheel, and two polls of the wheel topic."""


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = Timers.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "slots", SLOTS)


@dataclass(slots=True)
class Model:
    """What was sent, and what the clock has shown since."""

    clock: TrioClock
    due_ms: dict[bytes, int] = field(default_factory=dict)
    shown_ms: dict[bytes, int] = field(default_factory=dict)
    """The latest time since the send."""
    twice: bool = False
    """Whether a timer may come again, since a kill."""

    def look(self) -> None:
        """The clock shows this."""
        now_ms = self.clock.now_ms()
        for body, before in self.shown_ms.items():
            self.shown_ms[body] = max(before, now_ms)

    async def check(self, bench: Bench) -> None:
        """The laws, behind some seconds without a jump."""
        self.look()
        now_ms = self.clock.now_ms()
        came = Counter(await bodies(bench))
        for body, times in came.items():
            assert times == 1 or self.twice, f"{body!r} came {times} times"
            early_ms = self.due_ms[body] - self.shown_ms[body]
            assert early_ms <= 0, f"{body!r} came {early_ms} ms early"
        late = {b: now_ms - d for b, d in self.due_ms.items() if d <= now_ms - ROOM_MS}
        missing = {body: ms for body, ms in late.items() if body not in came}
        assert not missing, f"late by ms: {missing}"


async def bodies(bench: Bench) -> list[bytes]:
    """What came; it may have to be read from the disk."""
    store, found = bench.desk.store, list[bytes]()
    while len(found) < store.max_offset("t", 0):
        result = await store.complete(partial(store.get, "t", 0, len(found), 1_000))
        found += bodies_of(result.views)
    return found


class Life:
    """One life of the broker."""

    def __init__(self, bench: Bench, rng: random.Random, model: Model) -> None:
        self.bench, self.rng, self.model = bench, rng, model

    async def send(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            due_ms = self.model.clock.now_ms() + self.rng.choice(DELAYS_S) * SECOND_MS
            due_ms += self.rng.randrange(20 * SECOND_MS)
            body = b"m%d" % len(self.model.due_ms)
            assert (await self.bench.send(body, TIMER_DELIVER_MS=due_ms)).code == 0
            self.model.due_ms[body], self.model.shown_ms[body] = due_ms, 0

    async def jump(self) -> None:
        self.model.look()
        self.model.clock.start_ms += self.rng.choice((-1, 1)) * self.rng.choice(JUMPS_MS)
        await self.pass_s(4)

    async def pass_time(self) -> None:
        await self.pass_s(self.rng.choice((4, 4, 20, 60)))

    async def pass_s(self, seconds: float) -> None:
        await self.bench.desk.pass_s(seconds, step_s=1)
        await self.model.check(self.bench)


async def live(life: Life) -> None:
    """Some steps of a life."""
    steps = (life.send, life.jump, life.pass_time)
    for step in life.rng.choices(steps, (4, 2, 3), k=STEPS):
        await step()


async def to_the_end(life: Life) -> None:
    """Until the last timer was due."""
    model = life.model
    last_ms = max(model.due_ms.values(), default=0)
    model.clock.start_ms += max(0, last_ms - model.clock.now_ms())
    await life.pass_s(8)
    assert life.bench.timers.timers.waiting == 0
    assert life.bench.timers.unread == 0


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_timers_come_once_and_in_time_whatever_the_clock_does(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    rng = random.Random(seed)
    model = Model(TrioClock(START_MS))
    for _ in range(3):
        async with open_bench(tmp_path, clock=model.clock, **SETTINGS) as bench:
            life = Life(bench, rng, model)
            await life.pass_s(4)
            await live(life)
        if rng.random() < 0.5:
            model.clock.start_ms += rng.choice((-1, 1)) * rng.choice(JUMPS_MS)
    async with open_bench(tmp_path, clock=model.clock, **SETTINGS) as bench:
        await to_the_end(Life(bench, rng, model))


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(2))
async def test_no_timer_is_lost_by_jumps_of_the_clock_and_kills(
    tmp_path: Path, mock_clock: MockClock, seed: int
) -> None:
    rng = random.Random(seed)
    model = Model(TrioClock(START_MS), twice=True)
    root = tmp_path / "0"
    for number in range(1, 4):
        async with open_bench(root, clock=model.clock, **SETTINGS) as bench:
            life = Life(bench, rng, model)
            await life.pass_s(4)
            await live(life)
            await life.send()
            async with bench.timers.saving:
                killed = tmp_path / str(number)
                shutil.copytree(root, killed, copy_function=copy_if_there)
        root = killed
    async with open_bench(root, clock=model.clock, **SETTINGS) as bench:
        await to_the_end(Life(bench, rng, model))


@pytest.mark.trio
async def test_timers_go_on_when_a_clock_that_was_ahead_is_right_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    clock = TrioClock(START_MS)
    async with open_bench(tmp_path, clock=clock, **SETTINGS) as bench:
        clock.start_ms += SLOTS * SECOND_MS
        far_ms = clock.now_ms() + 60_000
        await bench.send(b"far", TIMER_DELIVER_MS=far_ms)
        await bench.desk.pass_s(2)
        clock.start_ms -= SLOTS * SECOND_MS
        # The same slot of the wheel, one turn earlier.
        await bench.send(b"near", TIMER_DELIVER_MS=far_ms - SLOTS * SECOND_MS)
        await bench.send(b"behind", TIMER_DELAY_SEC=5)
        await bench.desk.pass_s(8)
        assert bench.desk.bodies() == [b"behind"]
        assert bench.timers.unread == 0
        await bench.desk.pass_s(55)
        assert bench.desk.bodies() == [b"behind", b"near"]
        await bench.desk.pass_s(SLOTS)
        assert bench.desk.bodies() == [b"behind", b"near", b"far"]


@pytest.mark.trio
async def test_a_timer_of_a_clock_that_was_ahead_can_be_recalled_when_it_is_right_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    clock = TrioClock(START_MS)
    async with open_bench(tmp_path, clock=clock, recall_message_enable=True, **SETTINGS) as bench:
        clock.start_ms += 15 * DAY_MS
        handles = [
            said(await bench.send(body, TIMER_DELAY_SEC=60))["recallHandle"]
            for body in (b"recalled ahead", b"recalled behind", b"kept")
        ]
        assert (await bench.recall(handles[0])).code == 0
        await bench.desk.pass_s(2)
        clock.start_ms -= 15 * DAY_MS
        await bench.desk.pass_s(4)
        assert (await bench.recall(handles[1])).code == 0
        await bench.desk.pass_s(4)
        clock.start_ms += 15 * DAY_MS - 20_000
        await bench.desk.pass_s(90)
        assert bench.desk.bodies() == [b"kept"]
