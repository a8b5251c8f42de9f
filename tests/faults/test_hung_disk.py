"""A disk that hangs holds up who waits for it, and never the loop.

A disk double notes the thread of each of its calls, and keeps syncs in threads waiting. A call of
the loop's own thread cannot be kept waiting here, since the test runs in it: so there must be
none but those that are listed with their reason.
"""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import trio

from aerobee.remoting.wire.headers.admin import GetBrokerRuntimeInfo, UpdateBrokerConfig
from aerobee.remoting.wire.headers.offset import SearchOffset
from aerobee.remoting.wire.headers.query import QueryMessage
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.config import FlushDiskType
from tests.broker.pops import Pops, open_pops
from tests.broker.transactions.test_check_service import COMMIT, Bank
from tests.kit.faulty_disk import Call, FaultyDisk
from tests.kit.virtual_time import Opening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.broker.timers.timers import Timers

pytestmark = [pytest.mark.faults, pytest.mark.trio]

SYNCS: Final = frozenset({"fsync", "fdatasync"})
ALLOWED: Final = {
    ("close", "commitlog"): "gives a descriptor back",
    ("close", "index"): "gives a descriptor back",
    ("mmap", "commitlog"): "reserves addresses, and reads nothing",
    (
        "replace",
        "commitlog",
    ): "takes a prepared segment into use: one change of a name for each roll",
    (
        "statvfs",
        "consumequeue",
    ): "reads counters that a local file system has in memory, for administrators",
    ("statvfs", "commitlog"): "the same",
}
"""Disk calls that the loop's thread makes while the broker serves, and why they are few or quick.

The change of a name waits for a file system whose journal takes nothing more.
"""


class Watch:
    """Notes calls of the loop's thread; while `hangs`, syncs in other threads wait."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.loop = threading.get_ident()
        self.root = disk.root
        self.of_loop: set[tuple[str, str]] = set()
        self.goes_on = Opening()
        self.goes_on.set()
        self.began = threading.Event()
        disk.before = self.before

    def before(self, call: Call) -> None:
        if threading.get_ident() == self.loop:
            self.of_loop.add((call.name, self._part(call)))
        elif call.name in SYNCS and not self.goes_on.is_set():
            self.began.set()
            assert self.goes_on.wait(60)

    def _part(self, call: Call) -> str:
        """The folder that the file is, or will be, in."""
        if call.path is None or not call.path.is_relative_to(self.root):
            return ""
        parts = call.path.relative_to(self.root).parts
        return parts[0].partition(".")[0] if parts else ""

    @property
    def syncs_of_loop(self) -> set[tuple[str, str]]:
        return {call for call in self.of_loop if call[0] in SYNCS}

    @asynccontextmanager
    async def hung(self) -> AsyncIterator[None]:
        """Syncs hang inside; by the end, one must have begun, and then they go on."""
        self.of_loop.clear()
        self.began.clear()
        self.goes_on.clear()
        try:
            yield
        finally:
            self.goes_on.set()

    async def wait_until_one_hangs(self) -> None:
        assert await trio.to_thread.run_sync(self.began.wait, 30), "nobody waits for the disk"


class Waiter(NamedTuple):
    """Background work that waits for the disk."""

    prepare: Callable[[Pops], Awaitable[object]]
    work: Callable[[Pops], Awaitable[object]]


async def settle(pops: Pops) -> None:
    """The first segment and its name are on disk: the next sync of the log is a short one."""
    await pops.send(b"first", topic="settled")
    await pops.desk.puts.durable()


def wheel(pops: Pops) -> Timers:
    assert pops.desk.timers is not None
    return pops.desk.timers


async def a_message(pops: Pops) -> None:
    await pops.send(b"a")


async def a_timer(pops: Pops) -> None:
    properties = "TIMER_DELAY_MS\x0160000\x02UNIQ_KEY\x01T\x02"
    answer = await pops.desk.send(properties=properties)
    assert answer.code == 0
    await pops.desk.pass_s(0.5)


async def a_delay(pops: Pops) -> None:
    answer = await pops.desk.send(properties="DELAY\x011\x02")
    assert answer.code == 0
    pops.desk.delays.move(1, 1)


async def a_pop(pops: Pops) -> None:
    await pops.send(b"a")
    assert b"a" in await pops.bodies()


async def a_transaction(pops: Pops) -> None:
    bank = Bank(pops.desk)
    half = await bank.half()
    await bank.end_oneway(half, COMMIT)


async def a_topic(pops: Pops) -> None:
    pops.desk.topic("another")
    pops.desk.topic_file.request()


async def stop(pops: Pops) -> None:
    assert await pops.desk.broker.close()
    assert await pops.desk.store.close()


WAITERS: Final = {
    "what puts wait for": Waiter(a_message, lambda pops: pops.desk.puts.durable()),
    "timers": Waiter(a_timer, lambda pops: wheel(pops).save()),
    "delay levels": Waiter(a_delay, lambda pops: pops.desk.delay_file.catch_up()),
    "offsets of pops": Waiter(a_pop, lambda pops: pops.desk.offset_file.catch_up()),
    "ends of transactions": Waiter(a_transaction, lambda pops: pops.desk.puts.durable()),
    "tables": Waiter(a_topic, lambda pops: pops.desk.topic_file.catch_up()),
    "queues and checkpoint": Waiter(a_message, lambda pops: pops.desk.store.flush_queues()),
    "a stop": Waiter(a_message, stop),
}


@pytest.mark.parametrize("flush", list(FlushDiskType))
@pytest.mark.parametrize("name", WAITERS)
async def test_the_loop_goes_on_while_background_work_waits_for_a_hung_disk(
    name: str, flush: FlushDiskType, tmp_path: Path, mock_clock: MockClock
) -> None:
    waiter = WAITERS[name]
    mock_clock.rate = 1.0
    disk = FaultyDisk(tmp_path)
    async with open_pops(tmp_path, disk, flush_disk_type=flush) as pops:
        watch = Watch(disk)
        await settle(pops)
        await waiter.prepare(pops)
        async with watch.hung(), trio.open_nursery() as nursery:
            nursery.start_soon(waiter.work, pops)
            await watch.wait_until_one_hangs()
            for _ in range(20):
                await trio.sleep(0.001)
            assert watch.syncs_of_loop == set()
            watch.goes_on.set()
        assert watch.syncs_of_loop == set()


async def test_no_disk_call_of_the_loop_can_hang_while_the_broker_serves(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    mock_clock.rate = 1.0
    disk = FaultyDisk(tmp_path)
    async with (
        open_pops(tmp_path, disk, prepares=True) as pops,
        trio.open_nursery() as nursery,
    ):
        desk = pops.desk
        (queries,) = desk.broker.query.services
        await nursery.start(queries.run)
        await in_time(pops, b"first", "settled")
        await desk.puts.durable()
        watch = Watch(disk)
        await everything(pops)
        for file in (desk.topic_file, desk.group_file, desk.offset_file, desk.delay_file):
            await file.catch_up()
        await desk.store.flush_queues()
        await wheel(pops).save()
        for _ in range(5):
            await pops.desk.pass_s(1.0)
        assert watch.of_loop == set(ALLOWED)
        nursery.cancel_scope.cancel()


async def in_time(pops: Pops, body: bytes, topic: str) -> None:
    """Send, and again as long as the next segment of the log is being made."""
    while (answer := await pops.desk.send(topic, body, properties="KEYS\x01k\x02")).code == 14:
        told = trio.Event()
        pops.desk.store.after_wait.add(told.set)
        await told.wait()
        pops.desk.store.after_wait.remove(told.set)
    assert answer.code == 0


async def everything(pops: Pops) -> None:
    """One of each kind of traffic, and enough of it to roll segments of log and queues."""
    desk = pops.desk
    for prepare in (a_message, a_timer, a_delay, a_pop, a_transaction, a_topic):
        await prepare(pops)
    for number in range(40):
        await in_time(pops, b"x" * 65_536, "big")
        await desk.pull("big", number)
    await desk.ask(QueryMessage("big", "k", 32, 0, 1 << 62))
    await desk.ask(SearchOffset("big", 0, desk.clock.now_ms()))
    await desk.ask(UpdateBrokerConfig(), b"maxMessageSize=65537")
    await desk.ask(GetBrokerRuntimeInfo())
    for popped in await pops.pop(topic="big"):
        await pops.ack(popped, topic="big")
    await desk.ask(DeleteTopicInBroker("settled"))
