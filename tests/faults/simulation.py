"""R22: what the broker's decisions cost at a size that no test machine has.

10⁵ queues, 10⁴ connections that hold nine pulls each, 10 TiB of log: on virtual time, and on a disk
whose files have their full length and no blocks behind it. Start, dispatch, holds, retention,
placement and replication decide as they do in a broker; the parts are its own. Each cost is in
calls, of Python and C, as the interpreter counts them, so nobody's load is in it; CPU is shown
beside. A cost is for a unit: one message, one held pull, one deleted segment. At ten times the size
it may be no more than `GROWTH` times what it was.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from aerobee.broker.assignment.assignment import STRATEGIES, alone
from aerobee.broker.holds.quota import HoldLimits
from aerobee.broker.pull.hold import HeldPull, Hold
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.machine import Space
from aerobee.store.format.ha import encode_report
from aerobee.store.format.names import COMMIT_LOG, segment_name
from aerobee.store.format.record import blank, encode
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutStatus
from tests.kit.campaign import Campaign
from tests.kit.store_model import ManualClock, draft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Handle
    from tests.kit.campaign import Run

SEGMENT_BYTES = 1 << 30
QUEUES, CONNECTIONS, SEGMENTS = 100, 10, 10
"""Of each thousandth of the full size."""
HELD = 9
"""Pulls of each connection: so all of the full size are within the limit of what is held."""
QUEUES_OF_TOPIC = 8
TENTH = 10
"""The smaller of two sizes that are compared is this part of the larger one."""
GROWTH, SLACK = 1.25, 3.0
"""Heaps and trees of ten times as much are a little deeper; and some calls are more by chance."""
GROUPS = 8
SAMPLE = 50
EXPIRED = 4
"""Segments that are older than the retention; half of them go in a pass."""
HOUR_MS = 3_600_000


class SparseDisk(Disk):
    """Files have their length at once, and blocks where something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def _call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return super()._call(function, *args, **kwargs)

    def fill(self, handle: Handle, size: int) -> None:
        handle.truncate(max(size, handle.size()))

    def free_space(self, path: Path) -> Space:
        return Space(1 << 45, 1 << 44, 1 << 44)


class Cost(NamedTuple):
    """What one unit takes."""

    calls: float
    cpu_us: float
    disk: float
    """System calls for files."""


class Meter:
    """Costs by name; each is taken of work that is done twice, counted and timed."""

    def __init__(self, disk: SparseDisk) -> None:
        self.costs: dict[str, Cost] = {}
        self._disk = disk

    def take(self, name: str, units: int, work: Callable[[], object]) -> None:
        """Of work that does not wait."""
        began, disk = time.thread_time_ns(), self._disk.calls
        work()
        cpu_ns, disk = time.thread_time_ns() - began, self._disk.calls - disk
        with Calls() as calls:
            work()
        self._keep(name, units, calls, cpu_ns, disk)

    async def take_async(
        self, name: str, units: int, work: Callable[[], Awaitable[object]]
    ) -> None:
        """The same; calls of other threads, and CPU of those, are not in it."""
        began, disk = time.thread_time_ns(), self._disk.calls
        await work()
        cpu_ns, disk = time.thread_time_ns() - began, self._disk.calls - disk
        with Calls() as calls:
            await work()
        self._keep(name, units, calls, cpu_ns, disk)

    def _keep(self, name: str, units: int, calls: Calls, cpu_ns: int, disk: int) -> None:
        self.costs[name] = Cost(calls.count / units, cpu_ns / units / 1_000, disk / units)


class Calls:
    """Counts the calls of this thread, of Python and of C, from `with` to its end."""

    def __enter__(self) -> Calls:
        self.count = 0
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, _frame: object, event: str, _what: object) -> None:
        self.count += event in ("call", "c_call")


class Connection:
    """All that a hold asks of one."""

    closed = False

    def __init__(self, number: int) -> None:
        self.held = 0
        self.group = f"group-{number % GROUPS}"

    @property
    def lane(self) -> Connection:
        """It shares with nobody."""
        return self


class World:
    """A store of so many thousandths of the full size, and who waits for it."""

    def __init__(self, root: Path, thousandths: int, seed: str) -> None:
        self.rng = random.Random(seed)
        self.disk = SparseDisk()
        self.clock = ManualClock()
        self.queues = [
            (f"topic-{number // QUEUES_OF_TOPIC}", number % QUEUES_OF_TOPIC)
            for number in range(QUEUES * thousandths)
        ]
        self.connections = [Connection(number) for number in range(CONNECTIONS * thousandths)]
        self.segments = SEGMENTS * thousandths
        self.meter = Meter(self.disk)
        config = StoreConfig(
            store_path_root_dir=str(root),
            delete_when="",
            delete_file_batch_max=EXPIRED // 2,
            max_hash_slot_num=1_000,
        )
        self.write_log(root / COMMIT_LOG)
        self.store = MessageStore(config, disk=self.disk, clock=self.clock)
        self.answered = 0
        self.hold = Hold(self.store.max_offset, HoldLimits())

    def write_log(self, directory: Path) -> None:
        """Full segments of one message each, an hour apart; the oldest are expired."""
        directory.mkdir(parents=True)
        now_ms, message = self.clock.now_ms(), draft("old")
        for number in range(self.segments):
            # One is as old as the first message of the one behind it.
            aged = number <= EXPIRED
            age_h = 72 * aged + (self.segments - number) / self.segments
            stored_ms = now_ms - round(age_h * HOUR_MS)
            start = number * SEGMENT_BYTES
            path = directory / segment_name(start)
            with path.open("wb") as file:
                file.truncate(SEGMENT_BYTES)
                size = file.write(encode(message, number, start, stored_ms))
                if number < self.segments - 1:
                    file.write(blank(SEGMENT_BYTES - size))
            os.utime(path, (stored_ms / 1_000, stored_ms / 1_000))

    # ── What is measured ──

    def start(self) -> None:
        """The directory is opened; done once, so calls are counted in the same pass as CPU."""
        began, disk = time.thread_time_ns(), self.disk.calls
        with Calls() as calls:
            self.store.load()
            while self.store.dispatch_behind_bytes:
                self.store.dispatch()
        cpu_us = (time.thread_time_ns() - began) / 1_000
        units = self.segments
        disk = self.disk.calls - disk
        self.meter.costs["a start, for a segment"] = Cost(
            calls.count / units, cpu_us / units, disk / units
        )

    def put(self, queue: tuple[str, int]) -> None:
        """One message, dispatched."""
        result = self.store.put(draft(*queue))
        assert result.status is PutStatus.PUT_OK, result
        self.store.dispatch()

    def put_some(self) -> None:
        """Into queues all over the store."""
        for queue in self.rng.sample(self.queues, SAMPLE):
            self.put(queue)

    def park(self, connections: Sequence[Connection]) -> None:
        """Each of them asks for what comes to nine queues."""
        for connection in connections:
            for queue in self.rng.sample(self.queues, HELD):
                self.ask(connection, queue)

    def ask(self, connection: Connection, queue: tuple[str, int]) -> None:
        """A pull at the end of a queue."""
        held = HeldPull(
            connection=connection,
            group=connection.group,
            queue=queue,
            queue_offset=self.store.max_offset(*queue),
            matches=None,
            deadline=15.0,
            resume=self.resumed,
        )
        assert self.hold.park(held)

    def resumed(self) -> None:
        """A held pull is answered."""
        self.answered += 1

    def wake(self, queues: Sequence[tuple[str, int]]) -> None:
        """One asks for each queue, and a message comes for it."""
        before = self.answered
        for queue in queues:
            self.ask(self.connections[0], queue)
            self.put(queue)
            self.hold.wake()
        assert self.answered == before + len(queues)

    def expire(self) -> None:
        """The deadlines of what is held pass."""
        while self.hold.expire(100.0):
            pass
        while self.hold.waking:
            self.hold.wake()

    async def decide(self) -> None:
        """Everything that is measured, one after the other."""
        meter, store = self.meter, self.store
        self.start()
        store.arrivals.add(self.hold.arrived)
        for queue in self.queues:
            self.put(queue)
        meter.take("a message, stored and dispatched", SAMPLE, self.put_some)
        self.hold_and_wake()
        self.place()
        await self.replicate()
        await self.clean()
        assert await store.close()

    def hold_and_wake(self) -> None:
        """Half of the connections ask while costs are not taken; then some more, and so on."""
        meter, hold = self.meter, self.hold
        quarter = len(self.connections) // 4
        self.park(self.connections[: 2 * quarter])
        halves = iter(
            (self.connections[2 * quarter : 3 * quarter], self.connections[3 * quarter :])
        )
        meter.take("a pull is held", HELD * quarter, lambda: self.park(next(halves)))
        meter.take("a sweep, for a queue", len(hold.queues), lambda: list(hold.sweep()))
        free = [queue for queue in self.queues if queue not in hold.queues]
        some = min(SAMPLE, len(free) // 2)
        parts = iter((free[:some], free[some : 2 * some]))
        meter.take("a pull is held and a message wakes it", some, lambda: self.wake(next(parts)))
        self.expire()
        self.park(self.connections)
        left = hold.parked
        with Calls() as calls:
            began = time.thread_time_ns()
            self.expire()
            cpu_us = (time.thread_time_ns() - began) / 1_000
        assert not hold.parked
        meter.costs["a pull is answered at its deadline"] = Cost(
            calls.count / left, cpu_us / left, 0.0
        )

    def place(self) -> None:
        """Members of a group over all queues are asked for their own."""
        queues = [
            MessageQueue(broker_name="broker", queue_id=queue_id, topic=topic)
            for topic, queue_id in sorted(self.queues)
        ]
        members = sorted(f"member-{number}" for number in range(len(self.connections)))
        some = self.rng.sample(members, min(SAMPLE, len(members)))
        each = len(queues) // len(members)

        def ask() -> None:
            for member in some:
                assert len(alone(STRATEGIES["AVG"], queues, members, member)) == each

        self.meter.take("placement of a member", len(some), ask)

    async def replicate(self) -> None:
        """Senders wait for two slaves, which report."""
        store, count = self.store, len(self.connections)
        store.wait_for_slaves(2, 60.0)
        store.log_out.opened()
        async with trio.open_nursery() as nursery:
            slaves = []
            for host in ("one", "two"):
                ours, theirs = memory_stream_pair()
                nursery.start_soon(store.log_out.serve, ours, host, host)
                await theirs.send_all(encode_report(store.commit_log.max_offset))
                slaves.append(theirs)
            await wait_all_tasks_blocked()
            answers: list[object] = []

            halfway = 0

            def wait() -> None:
                nonlocal halfway
                halfway = store.commit_log.max_offset
                for _ in range(count):
                    end = store.put(draft(*self.queues[0])).end_offset
                    store.replicas.when_held(end, answers.append)
                store.dispatch()

            self.meter.take("a sender waits for slaves", count, wait)
            assert not answers
            half = (store.replicas.senders) // 2
            ends = iter((halfway, store.commit_log.max_offset))

            async def report() -> None:
                end = next(ends)
                for slave in slaves:
                    await slave.send_all(encode_report(end))
                await wait_all_tasks_blocked()
                answered = -1
                while answered < len(answers):
                    answered = len(answers)
                    store.replicas.answer()

            await self.meter.take_async("a sender is answered by slaves", half, report)
            assert len(answers) == 2 * half, len(answers)
            nursery.cancel_scope.cancel()

    async def clean(self) -> None:
        """A pass that finds nothing to do, then two that delete what is expired.

        Either looks at the name of each segment for its mark, and one that has deleted at the begin
        of each queue: what they take grows with these, a unit of it does not.
        """
        cleanup, log = self.store.space.cleanup, self.store.commit_log
        await cleanup.look()
        await self.meter.take_async(
            "a pass of the clean-up, for a segment", self.segments, cleanup.clean
        )
        first = log.min_offset
        cleanup.request()
        name = "a pass that deletes, for a queue and its share of segments"
        await self.meter.take_async(name, len(self.queues) + self.segments, cleanup.clean)
        assert (log.min_offset - first) // SEGMENT_BYTES == EXPIRED


def simulated(root: Path, thousandths: int, seed: str) -> dict[str, Cost]:
    """The costs at a size."""
    world = World(root, thousandths, seed)
    trio.run(world.decide, clock=MockClock(autojump_threshold=0.01))
    return world.meter.costs


def grown(small: dict[str, Cost], large: dict[str, Cost]) -> list[str]:
    """What costs more calls at the larger size, in words."""
    return [
        f"{name}: {small[name].calls:.1f} calls at a tenth of the size, {cost.calls:.1f} here"
        for name, cost in large.items()
        if cost.calls > GROWTH * small[name].calls + SLACK
    ]


def sizes(run: Run) -> None:
    """The costs at a tenth of the size, and at the size."""
    size = max(TENTH, run.wanted)
    small, large = (
        simulated(run.directory / f"{part}", part, f"{run.key} {run.seed}")
        for part in (size // TENTH, size)
    )
    for name, cost in large.items():
        run.counts[f"{name}: calls"] = round(cost.calls)
        run.counts[f"{name}: ns"] = round(cost.cpu_us * 1_000)
    wrong = grown(small, large)
    assert not wrong, "\n".join(wrong)
    run.done(size)


R22 = Campaign(
    key="R22",
    title="what decisions cost: queues, connections and TiB of log as in a large cluster",
    unit="thousandths of 100,000 queues, 10,000 connections and 10 TiB",
    t1=TENTH,
    t2=1_000,
    run=sizes,
)
