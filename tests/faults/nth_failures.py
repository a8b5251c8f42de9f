"""The k-th change of the disk fails, for every k, in a whole life of a broker without its sockets.

Start, topic, sends over several segments and index files, pull, deletion of a segment, stop. Then
the process is gone, or the machine, and a sound disk is started on. What was acknowledged is there,
unaltered; the start serves, after a second failure in a recovery too; the directory is sound.
"""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING, NamedTuple

import trio
from trio.testing import MockClock

from aerobee.broker.broker import Broker
from aerobee.broker.errors import PutPostponed, TableDamaged
from aerobee.remoting.errors import RequestPostponed
from aerobee.store.config import FlushDiskType
from aerobee.store.errors import StoreRefused
from aerobee.store.files.machine import Space
from aerobee.store.format import properties
from aerobee.store.format.record import read
from aerobee.store.tools.verify import verify
from tests.broker.desk import Desk, body_of, broker_config, said, send_header
from tests.kit.campaign import Campaign
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.running_store import TrioClock
from tests.kit.store_model import check_directory, log_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from random import Random

    from aerobee.remoting.wire.answer import Answer
    from tests.kit.campaign import Cycle, Run

SENDS = 20
TOPIC = "T"
FOR_GOOD = 1 << 30
STEP = 7_919
"""Prime, so that steps of it come by every place before they come by one again."""
TRIES = 20
"""Of a send that is refused because the next segment is late, at most."""
COMPOUND_EVERY = 3
COPYING = 0.3
"""The share of disks that copy on write, where the log is written by calls that may fail."""
GONE = (StoreRefused, TableDamaged, OSError)
"""What a start or a broker may end with when its disk fails."""


class Mode(NamedTuple):
    """How the disk fails, and what was promised."""

    name: str
    error: int
    short: bool
    times: int
    flush: FlushDiskType

    def fault(self, number: int) -> Fault:
        """This failure at that change; a short write hits the next write."""
        name = "pwrite" if self.short else None
        return Fault(number, name, error=self.error, times=self.times, short=self.short)


MODES = tuple(
    Mode(f"{kind} {often}, {flush.name}", error, kind == "short write", times, flush)
    for flush in (FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH)
    for kind, error in (("EIO", errno.EIO), ("ENOSPC", errno.ENOSPC), ("short write", errno.EIO))
    for often, times in (("once", 1), ("for good", FOR_GOOD))
)


class CrowdedDisk(FaultyDisk):
    """As full as the test says."""

    used_percent = 10

    def free_space(self, path: Path) -> Space:
        total = 1 << 30
        free = total * (100 - self.used_percent) // 100
        return Space(total, free, free)


class Life:
    """One broker from start to stop; `acked` are the bodies that it took."""

    def __init__(self, root: Path, disk: CrowdedDisk, flush: FlushDiskType) -> None:
        self.root = root
        self.disk = disk
        self.flush = flush
        self.acked: dict[tuple[int, int], bytes] = {}
        """By queue id and queue offset."""
        self.clean = False
        """Whether it stopped, and said that all is on disk."""

    def live(self) -> None:
        """All of it; what the disk breaks off is no failure."""
        try:
            trio.run(self._run, clock=MockClock(autojump_threshold=0.0))
        except* GONE:
            pass

    async def start_and_stop(self) -> None:
        """No work in between."""
        await self._run(work=False)

    async def _run(self, *, work: bool = True) -> None:
        config = broker_config(self.root, flush_disk_type=self.flush, **SMALL)
        desk = Desk(Broker(config, disk=self.disk, clock=TrioClock()), prepares=True)
        desk.load()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(desk.store.run)
                await nursery.start(desk.saver.run)
                if work:
                    await self._work(desk)
                else:
                    await desk.saver.save_all()  # as a stop does
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                self.clean = await desk.store.close()

    async def _work(self, desk: Desk) -> None:
        desk.topic(TOPIC, read_queue_nums=2, write_queue_nums=2)
        await desk.saver.save_all()
        for number in range(SENDS):
            await self._send(desk, number)
        for queue_id in range(2):
            answer = await desk.pull(TOPIC, 0, queue_id=queue_id)
            if answer.code == 0 and (data := body_of(answer)):
                read(data)
        await desk.store.flush_queues()
        await self._delete(desk)
        await self._send(desk, SENDS)

    async def _send(self, desk: Desk, number: int) -> None:
        named = {"UNIQ_KEY": f"7F00{number:028d}", "KEYS": f"k{number}", "TAGS": "t"}
        body = b"message %d " % number * 60
        header = send_header(TOPIC, queue_id=number % 2, properties=properties.encode(named))
        answer = await in_time(lambda: desk.ask(header, body))
        for _ in range(TRIES):  # as clients do, where the next segment is late
            if answer.remark != PutPostponed.REMARK:
                break
            await trio.sleep(0.1)
            answer = await in_time(lambda: desk.ask(header, body))
        if answer.code == 0:
            stored = said(answer)
            self.acked[int(stored["queueId"]), int(stored["queueOffset"])] = body

    async def _delete(self, desk: Desk) -> None:
        cleanup = desk.store.space.cleanup
        self.disk.used_percent = 88
        await cleanup.look()
        await cleanup.clean()
        self.disk.used_percent = 10
        await cleanup.look()


async def in_time(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask again while the log segment that a send needs is late, as a worker does."""
    while True:
        try:
            return await ask()
        except RequestPostponed:
            await trio.sleep(0.1)


SMALL = {
    "mapped_file_size_commit_log_bytes": 4_096,
    "mapped_file_size_consume_queue_bytes": 200,
    "delete_commit_log_files_interval_ms": 0,
}


# ── What is left ──


def check_after(root: Path, acked: dict[tuple[int, int], bytes]) -> None:
    """A start on a sound disk serves and stops; the directory is sound and holds what it must."""
    again = Life(root, CrowdedDisk(root), FlushDiskType.SYNC_FLUSH)
    trio.run(again.start_and_stop, clock=MockClock(autojump_threshold=0.0))
    assert again.clean
    check_directory(root)
    found = verify(root)
    assert found.sound, found.damage
    records = [read(data) for _, data in log_records(root)]
    there = {(record.queue_id, record.queue_offset): bytes(record.body) for record in records}
    for (queue_id, queue_offset), body in acked.items():
        stored = there.get((queue_id, queue_offset))
        if stored is None:
            assert found.min_offset > 0, f"{queue_id} {queue_offset} is lost"
            later = [offset for queue, offset in there if queue == queue_id]
            assert queue_offset < min(later, default=SENDS), f"{queue_id} {queue_offset} is lost"
        else:
            assert stored == body, f"{queue_id} {queue_offset} is altered"


def recover_badly(root: Path, random: Random) -> None:
    """A start whose disk fails, too, and the end of that process."""
    disk = CrowdedDisk(root)
    # A start makes some twenty changes.
    disk.faults = [random.choice(MODES).fault(random.randint(1, 30))]
    life = Life(root, disk, FlushDiskType.ASYNC_FLUSH)
    try:
        trio.run(life.start_and_stop, clock=MockClock(autojump_threshold=0.0))
    except* GONE:
        pass
    disk.kill()


# ── Campaign ──


def untouched(root: Path) -> int:
    """Changes of the disk in a life that nothing disturbs."""
    disk = CrowdedDisk(root)
    life = Life(root, disk, FlushDiskType.SYNC_FLUSH)
    life.live()
    assert life.clean
    assert len(life.acked) == SENDS + 1
    changes = disk.changes
    check_after(root, life.acked)
    shutil.rmtree(root)
    return changes


def one_failure(cycle: Cycle, number: int, mode: Mode, folder: Path) -> Life:
    """A life with that failure, its end by kill or power cut, and the start after it."""
    root = folder / "d"
    disk = CrowdedDisk(root, mode.fault(number))
    disk.copying = cycle.rng.random() < COPYING
    life = Life(root, disk, mode.flush)
    life.live()
    disk.faults = []
    if mode.flush is FlushDiskType.SYNC_FLUSH:
        root = disk.power_cut(folder / "after", cycle.rng, keep=cycle.rng.choice((0.0, 0.5, 1.0)))
    else:
        disk.kill()
    if not cycle.number % COMPOUND_EVERY:
        recover_badly(root, cycle.rng)
    check_after(root, life.acked)
    return life


def failures(run: Run) -> None:
    """Every change of the disk, every mode; few cycles are spread over all of them."""
    changes = untouched(run.directory / "untouched")
    total = changes * len(MODES)
    begin = run.rng.randrange(total)
    run.counts["changes of the disk in a life"] = changes
    run.counts["places and modes"] = total
    for cycle in run.cycles():
        place = (begin + cycle.number * STEP) % total
        number, mode = 1 + place // len(MODES), MODES[place % len(MODES)]
        folder = run.directory / f"{cycle.number}"
        try:
            life = one_failure(cycle, number, mode, folder)
        except Exception as error:
            error.add_note(f"change {number}, {mode.name}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        run.counts["acknowledged"] += len(life.acked)
        run.counts["stopped clean all the same"] += life.clean
        run.counts["failed in a recovery, too"] += not cycle.number % COMPOUND_EVERY


R5 = Campaign(
    key="R5",
    title="the k-th change of the disk fails: EIO, ENOSPC, short write; once, for good",
    unit="failures",
    t1=40,
    t2=5_000,
    run=failures,
)
