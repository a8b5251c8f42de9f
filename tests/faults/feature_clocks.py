"""A wall clock that jumps under a whole broker: delays, timers, retries, POP, transactions, keys.

In virtual time, on real requests and a real store, over clean stops. The clock jumps both ways, by
seconds to years; each jump counts at once, as one that has lasted a minute. Laws: nothing that was
acknowledged is lost or comes twice; a delay or a timer is not over before the clock has shown its
time, or as much time has passed, and not later than that; what a pop got and acknowledged does not
come again, and the rest does; an open transaction that is committed is delivered, and one that is
rolled back is not; a key that is sent again at once is stored once; nothing is deleted for its age.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock

from aerobee.remoting.wire.headers.transaction import EndTransaction
from tests.broker.desk import open_desk, said
from tests.broker.pops import Pops
from tests.kit.campaign import Campaign
from tests.kit.records import bodies_of
from tests.kit.running_store import TrioClock

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.kit.campaign import Cycle, Run

TOPICS = ("t", "%RETRY%members")
LEVELS_S = {"1": 1, "2": 5, "3": 10}
DELAYS_S = (2, 20, 3_600, 20 * 86_400)
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000
JUMPS_MS = (20 * SECOND_MS, HOUR_MS, 5 * DAY_MS, 20 * DAY_MS, 10 * 365 * DAY_MS)
LIVES, STEPS = 3, 25
ROOM_S = 4.0
"""A step of the wheel, polls of the timers' topic, and a look at the levels."""
INVISIBLE_MS = 5_000
BACK_WITHIN_S = 20
SETTINGS: dict[str, Any] = {
    "dedupe": "d=KEYS@600s",
    "timer_max_delay_s": 3_153_600_000,
    "file_reserved_time_h": 24,
}


@dataclass(slots=True)
class Waiting:
    """A message that is to come later."""

    topic: str
    sent_s: float
    """When it was sent, by the clock that does not jump."""
    delay_s: float
    """How long it waits at most by that clock; 0: as long as the other one says."""
    due_ms: int
    since_s: float
    """When it was sent, or the broker started since."""
    shown_ms: int = 0
    """The latest time that the clock has shown since."""


@dataclass(slots=True)
class Book:
    """What is known over all lives."""

    stored: dict[str, list[str]] = field(default_factory=dict)
    """Topic → bodies that have to be there at once."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)
    """Bodies of messages that were rolled back, or sent again."""
    acked: set[str] = field(default_factory=set)
    popped: set[str] = field(default_factory=set)
    numbers: int = 0

    def body(self) -> str:
        self.numbers += 1
        return f"m{self.numbers}"


@dataclass(slots=True)
class Life:
    """One life of the broker."""

    pops: Pops
    wall: TrioClock
    rng: random.Random
    run: Run
    book: Book

    # ── What happens ──

    async def send(self) -> None:
        body = self.book.body()
        answer = await self.pops.desk.send("t", body.encode())
        assert answer.code == 0, answer
        self.book.stored.setdefault("t", []).append(body)

    async def delay(self) -> None:
        """By a level: a message, or a retry."""
        level, delay_s = self.rng.choice([*LEVELS_S.items()])
        await self.wait(self.rng.choice(TOPICS), f"DELAY\x01{level}\x02", delay_s, delay_s)

    async def timer(self) -> None:
        delay_s = self.rng.choice(DELAYS_S)
        due_ms = self.wall.now_ms() + delay_s * SECOND_MS
        await self.wait("t", f"TIMER_DELIVER_MS\x01{due_ms}\x02", delay_s, 0)

    async def wait(self, topic: str, properties: str, delay_s: int, most_s: int) -> None:
        body, now_ms = self.book.body(), self.wall.now_ms()
        answer = await self.pops.desk.send(topic, body.encode(), properties=properties)
        assert answer.code == 0, answer
        now_s = trio.current_time()
        due_ms = now_ms + delay_s * SECOND_MS
        self.book.waiting[body] = Waiting(topic, now_s, most_s, due_ms, now_s)
        self.run.counts["delayed"] += 1

    async def transact(self) -> None:
        body = self.book.body()
        properties = f"UNIQ_KEY\x01{body}\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02"
        half = said(await self.pops.desk.send("t", body.encode(), properties=properties))
        commit = self.rng.random() < 0.5
        end = EndTransaction(
            producer_group="g",
            tran_state_table_offset=int(half["queueOffset"]),
            commit_log_offset=int(half["msgId"][16:], 16),
            commit_or_rollback=8 if commit else 12,
            msg_id=half["msgId"],
        )
        assert (await self.pops.desk.ask(end)).code == 0
        if commit:
            self.book.stored.setdefault("t", []).append(body)
        else:
            self.book.never.add(body)
        self.run.counts["transactions"] += 1

    async def repeat(self) -> None:
        body, again = self.book.body(), self.book.body()
        offsets = [
            said(await self.pops.desk.send("d", one.encode(), properties=f"KEYS\x01{body}\x02"))
            for one in (body, again)
        ]
        assert offsets[0]["queueOffset"] == offsets[1]["queueOffset"]
        self.book.stored.setdefault("d", []).append(body)
        self.book.never.add(again)

    async def pop(self) -> None:
        for _ in range(self.rng.randint(0, 2)):
            body = self.book.body()
            assert (await self.pops.desk.send("p", body.encode())).code == 0
            self.book.stored.setdefault("p", []).append(body)
        await self.take(ack=0.5)

    async def take(self, *, ack: float) -> None:
        """Pop, and acknowledge so many."""
        for one in await self.pops.pop(topic="p", invisible_time=INVISIBLE_MS):
            body = one.body.decode()
            assert body not in self.book.acked, f"{body} was acknowledged, and comes again"
            self.book.popped.add(body)
            if self.rng.random() < ack:
                assert (await self.pops.ack(one, topic="p")).code == 0
                self.book.acked.add(body)
                self.run.counts["acknowledged pops"] += 1

    async def jump(self) -> None:
        self.look()
        self.wall.start_ms += self.rng.choice((-1, 1)) * self.rng.choice(JUMPS_MS)
        self.run.counts["jumps"] += 1
        await self.pass_s(ROOM_S)

    async def pass_time(self) -> None:
        await self.pass_s(self.rng.choice((ROOM_S, 10, 20)))

    # ── The laws ──

    def look(self) -> None:
        """The clock shows this."""
        now_ms = self.wall.now_ms()
        for one in self.book.waiting.values():
            one.shown_ms = max(one.shown_ms, now_ms)

    async def pass_s(self, seconds: float) -> None:
        end = trio.current_time() + seconds
        since_ms = self.wall.now_ms()
        while trio.current_time() < end:
            await self.pops.desk.pass_s(1, step_s=0.5)
            self.look()
            await self.check(since_ms)

    async def check(self, since_ms: int) -> None:
        """`since_ms`: what the clock showed when it jumped last, or earlier."""
        book, now_s, now_ms = self.book, trio.current_time(), self.wall.now_ms()
        for topic in (*TOPICS, "d", "p"):
            came = Counter(await self.bodies(topic))
            twice = {body: times for body, times in came.items() if times > 1}
            assert not twice, f"more than once in {topic}: {twice}"
            lost = set(book.stored.get(topic, ())) - came.keys()
            assert not lost, f"lost in {topic}: {lost}"
            assert not book.never & came.keys()
            for body, one in book.waiting.items():
                if one.topic != topic:
                    continue
                if body in came:
                    over = one.delay_s and now_s - one.sent_s >= one.delay_s
                    assert over or one.shown_ms >= one.due_ms, f"{body} came early: {one}"
                else:
                    late = now_s - one.since_s > one.delay_s + ROOM_S
                    shown = max(one.due_ms, since_ms) < now_ms - ROOM_S * SECOND_MS
                    assert not (late if one.delay_s else shown), f"{body} is late: {one}"

    async def bodies(self, topic: str) -> list[str]:
        store, found = self.pops.desk.store, list[str]()
        assert store.min_offset(topic, 0) == 0, "messages were deleted for their age"
        while len(found) < store.max_offset(topic, 0):
            result = await store.complete(partial(store.get, topic, 0, len(found), 1_000))
            found += [body.decode() for body in bodies_of(result.views)]
        return found

    async def end(self) -> None:
        """Until everything was due."""
        last_ms = max((one.due_ms for one in self.book.waiting.values()), default=0)
        self.wall.start_ms += max(0, last_ms - self.wall.now_ms()) + 30 * DAY_MS
        for _ in range(3):
            await self.pass_s(BACK_WITHIN_S)
            await self.take(ack=1)
        left = set(self.book.stored.get("p", ())) - self.book.acked
        assert not left, f"popped, not acknowledged, and never given again: {left}"


@asynccontextmanager
async def running(root: Path, wall: TrioClock) -> AsyncIterator[Pops]:
    """A broker of which everything runs that waits."""
    async with open_desk(root, clock=wall, **SETTINGS) as desk, trio.open_nursery() as nursery:
        await desk.dedupe.run()
        for name in (*TOPICS, "d", "p"):
            if desk.topics.get(name) is None:
                desk.topic(name, read_queue_nums=1, write_queue_nums=1)
        await desk.saver.save_all()
        broker = desk.broker
        for feature in (broker.timers, broker.delay, broker.transactions, broker.pop):
            assert feature is not None
            for service in (*feature.services, *feature.master_services):
                await nursery.start(service.run)
        pops = Pops(desk)
        yield pops
        await pops.stop()
        nursery.cancel_scope.cancel()


STEPS_OF = (
    (3, Life.send),
    (4, Life.delay),
    (4, Life.timer),
    (2, Life.transact),
    (2, Life.repeat),
    (4, Life.pop),
    (4, Life.jump),
    (4, Life.pass_time),
)


async def lives(run: Run, cycle: Cycle) -> None:
    """Some lives of one directory."""
    root, rng, wall, book = run.directory / str(cycle.number), cycle.rng, TrioClock(), Book()
    for number in range(LIVES + 1):
        async with running(root, wall) as pops:
            life = Life(pops, wall, rng, run, book)
            for one in book.waiting.values():
                # The delay of a level counts from a start on.
                one.since_s = trio.current_time()
            await life.pass_s(ROOM_S)
            if number == LIVES:
                await life.end()
                break
            weights, steps = zip(*STEPS_OF, strict=True)
            for step in rng.choices(steps, weights, k=STEPS):
                await step(life)
        if rng.random() < 0.5:
            life.look()
            wall.start_ms += rng.choice((-1, 1)) * rng.choice(JUMPS_MS)
        run.counts["lives"] += 1


def feature_clocks(run: Run) -> None:
    """Each cycle is one directory."""
    for cycle in run.cycles():
        trio.run(lives, run, cycle, clock=MockClock())


R14B = Campaign(
    key="R14B",
    title="wall clock by seconds to years, both ways, under every feature that waits",
    unit="directories",
    t1=2,
    t2=500,
    run=feature_clocks,
)
