"""A wall clock that jumps by an hour or by days, forth and back, under a store that lives for days.

In virtual time, on a real store with small segments that is sent to, read, searched and cleaned.
Whatever the wall clock shows: no message younger than the retention is deleted, by the time that
really passed; what is kept is whole and in place; store times never descend along the log; and a
search by time finds what a look at every message finds.
"""

import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import trio
from trio.testing import MockClock

from aerobee.store.format.names import segment_name
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutStatus
from tests.kit.campaign import Campaign, Cycle, Run
from tests.kit.passing_time import HOUR_S, SmallDisk, pass_s
from tests.kit.running_store import TrioClock, running_store
from tests.kit.store_model import LOG_BYTES, draft, read_queue

TOPIC = "T"
QUEUES = 2
STEPS = 40
RESERVED_H = 24
HOUR_MS = HOUR_S * 1_000
JUMPS_MS = tuple(sign * hours * HOUR_MS for sign in (1, -1) for hours in (1, 24 * 5))
JUMP_CHANCE = 0.3
PASS_MAX_H = 6
ROOM_S = 30
"""For a pass of the clean-up after each step: it deletes up to ten segments, one in a second."""
BODY_MAX_BYTES = 3_000
SETTINGS: dict[str, Any] = {
    "file_reserved_time_h": RESERVED_H,
    "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
}


class Sent(NamedTuple):
    """A message as it was put; its place in the list of its queue is its offset."""

    body: bytes
    really_s: float
    """When, by a clock that does not jump."""
    shown_ms: int
    """When, by the one that does."""
    stored_ms: int


@dataclass(slots=True)
class Life:
    """One store, its clocks, and all that was sent to it."""

    store: MessageStore
    disk: SmallDisk
    wall: TrioClock
    rng: random.Random
    run: Run
    sent: dict[int, list[Sent]] = field(default_factory=lambda: defaultdict(list))

    def send(self) -> None:
        """A few messages, of any size."""
        for _ in range(self.rng.randint(1, 3)):
            queue_id = self.rng.randrange(QUEUES)
            body = self.rng.randbytes(self.rng.randint(1, BODY_MAX_BYTES))
            shown_ms = self.wall.now_ms()
            result = self.store.put(draft(TOPIC, queue_id, body))
            assert result.status is PutStatus.PUT_OK, result
            assert result.queue_offset == len(self.sent[queue_id])
            now_s = trio.current_time()
            self.sent[queue_id].append(Sent(body, now_s, shown_ms, result.store_timestamp))
            start = result.physical_offset // LOG_BYTES * LOG_BYTES
            self.disk.mtimes[segment_name(start)] = shown_ms
        self.store.dispatch()

    def jump(self) -> None:
        """The wall clock shows another time."""
        self.wall.start_ms += self.rng.choice(JUMPS_MS)
        self.run.counts["jumps"] += 1

    def check(self) -> None:
        """The laws, for every queue."""
        for queue_id, sent in self.sent.items():
            self._check_queue(queue_id, sent)

    def _check_queue(self, queue_id: int, sent: list[Sent]) -> None:
        store = self.store
        first = store.min_offset(TOPIC, queue_id)
        now_s = trio.current_time()
        young = [one for one in sent[:first] if now_s - one.really_s < RESERVED_H * HOUR_S]
        assert not young, f"{len(young)} messages deleted before their time: {young[0].really_s}"
        self.run.worst("deleted in a life", first)
        kept = read_queue(store, TOPIC, queue_id)
        assert [one.body for one in kept] == [one.body for one in sent[first:]]
        times = [store.store_time(TOPIC, queue_id, at) for at in range(first, len(sent))]
        assert times == [one.stored_ms for one in sent[first:]]
        assert all(before <= after for before, after in pairwise(times)), "store times descend"
        assert all(one.stored_ms >= one.shown_ms for one in sent)
        self._check_searches(queue_id, first, times)

    def _check_searches(self, queue_id: int, first: int, times: list[int]) -> None:
        moments = {self.wall.now_ms(), *self.rng.sample(times, min(5, len(times)))}
        search = partial(self.store.offset_by_time, TOPIC, queue_id)
        for moment in [near for exact in moments for near in (exact - 1, exact, exact + 1)]:
            assert search(moment) == first + bisect_left(times, moment)
            at_or_before = first + bisect_right(times, moment) - 1
            assert search(moment, upper=True) == max(first, at_or_before)
            self.run.counts["searches"] += 1


async def live(run: Run, cycle: Cycle, clock: MockClock) -> None:
    """Days of one store."""
    rng = cycle.rng
    root = run.directory / str(cycle.number)
    disk, wall = SmallDisk(root), TrioClock()
    async with running_store(root, disk, clock=wall, **SETTINGS) as store:
        life = Life(store, disk, wall, rng, run)
        for _ in range(STEPS):
            life.send()
            if rng.random() < JUMP_CHANCE:
                life.jump()
            assert await store.flush_queues()
            await pass_s(clock, rng.randint(0, PASS_MAX_H) * HOUR_S, step=HOUR_S)
            await pass_s(clock, ROOM_S)
            store.reader.cold.waits = True
            life.check()
        run.counts["sent"] += sum(len(sent) for sent in life.sent.values())
        run.counts["segments deleted"] += store.stats.segments_deleted


def jumps(run: Run) -> None:
    """R14: one life for each cycle."""
    for cycle in run.cycles():
        clock = MockClock()
        trio.run(live, run, cycle, clock, clock=clock)
    # Lives of one or two cycles may see too many steps back for anything to become old.
    assert run.counts["segments deleted"] or run.executed < 3, "nothing was ever deleted"


R14 = Campaign(
    key="R14",
    title=f"wall clock ±1 h and ±5 days, in days of a store that keeps {RESERVED_H} h",
    unit="lives",
    t1=3,
    t2=500,
    run=jumps,
)
