"""Starts that believe what queues reached, from files that are not what the broker left.

Load, a pause in which the extents of the queues are saved, a few messages more, then a kill or a
stop. Before the next start something happens to `queueextents.json`, to the recovery point or to a
queue file: damage, an older copy, other times, a copy in its place. Whatever it is, all that was
acknowledged is there, and nothing else but what was sent.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from aerobee.store.files.disk import Disk
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.names import (
    CONSUME_QUEUE,
    QUEUE_EXTENTS,
    RECOVERY_POINT,
    segment_name,
)
from aerobee.store.queues.queue_extents import QueueExtentsFile
from tests.faults.kills import SHAPE, Life, Sender, make_topics
from tests.kit.campaign import Campaign
from tests.kit.odd_broker import SAVES
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.kit.campaign import Cycle, Run

CYCLES_PER_DIRECTORY = 20
ACKS_MAX = 300
MORE_MAX = 5
SETTINGS: dict[str, object] = {
    "flushConsumeQueueThoroughInterval": 1_000,
    "flushIntervalConsumeQueue": 50,
    "mappedFileSizeConsumeQueue": 20 * 20_000,
}


class Changed:
    """A directory between two runs, and copies of its files as they were one cycle before."""

    def __init__(self, data: Path, older: Path, rng: random.Random) -> None:
        self.data = data
        self.older = older
        self.rng = rng

    @property
    def extents(self) -> Path:
        """The file of extents."""
        return self.data / QUEUE_EXTENTS

    def queue_file(self) -> Path:
        """One of the queue files that hold messages."""
        return self.rng.choice(sorted((self.data / CONSUME_QUEUE).glob("load-*/*/*")))

    def nothing(self) -> None:
        """All as the broker left it."""

    def damaged(self) -> None:
        """One bit is another one."""
        content = bytearray(self.extents.read_bytes())
        content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        self.extents.write_bytes(content)

    def cut(self) -> None:
        """The end is missing."""
        os.truncate(self.extents, self.rng.randrange(self.extents.stat().st_size))

    def older_extents(self) -> None:
        """Those of the cycle before."""
        self.restore(QUEUE_EXTENTS)

    def older_pair(self) -> None:
        """Those of the cycle before, and the recovery point that names them."""
        self.restore(QUEUE_EXTENTS, RECOVERY_POINT)

    def dated(self) -> None:
        """The clock was set."""
        at = self.rng.choice([1, 1 << 32])
        os.utime(self.extents, (at, at))

    def queue_copied(self) -> None:
        """`cp -p` of a queue file, then `mv` to its name."""
        path = self.queue_file()
        copy = self.data / "copy"
        shutil.copy2(path, copy)
        copy.replace(path)

    def queue_anew(self) -> None:
        """A queue file of the same name, size and times, with nothing in it."""
        path = self.queue_file()
        times, size = path.stat(), path.stat().st_size
        path.unlink()
        path.touch()
        os.truncate(path, size)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def restore(self, *names: str) -> None:
        """Files as they were, with their times."""
        for name in names:
            if (self.older / name).exists():
                shutil.copy2(self.older / name, self.data / name)

    def keep(self) -> None:
        """Copies for the next cycle."""
        self.older.mkdir(exist_ok=True)
        for name in (QUEUE_EXTENTS, RECOVERY_POINT):
            shutil.copy2(self.data / name, self.older / name)


CHANGES = (
    Changed.nothing,
    Changed.damaged,
    Changed.cut,
    Changed.older_extents,
    Changed.older_pair,
    Changed.dated,
    Changed.queue_copied,
    Changed.queue_anew,
)


def believed(data: Path) -> int:
    """How many queue files the next start does not look into."""
    disk = Disk()
    point = RecoveryPointFile(disk, data / RECOVERY_POINT).load()
    assert point is not None
    extents = QueueExtentsFile(disk, data / QUEUE_EXTENTS).load(point.extents)
    return sum(
        disk.identity(data / CONSUME_QUEUE / topic / str(one.queue_id) / segment_name(one.start))
        == (extents.file_size, one.inode, one.changed_ns)
        for topic, queues in extents.topics.items()
        for one in queues
    )


def one_cycle(life: Life, cycle: Cycle) -> None:
    """Load, a save, more messages, the end, a change, and the next start."""
    rng, run, data = cycle.rng, life.run, life.broker.data
    load = life.load(cycle)
    try:
        load.wait_for_acks(rng.randint(1, ACKS_MAX), within_s=60)
    finally:
        load.join()
    loaded = time.time()
    eventually(lambda: saved_behind(data, loaded), within_s=20, what="a save of the extents")
    sender = Sender(life, cycle)
    with RawConnection(life.broker.address) as connection:
        for _ in range(rng.randint(0, MORE_MAX)):
            sender.send(connection, 100)
        life.broker.let_run(rng.choice([0, 0.3]))
        if rng.random() < 0.7:
            life.broker.kill()
            run.counts["kills"] += 1
        else:
            assert life.broker.stop() == 0
            run.counts["stops"] += 1
    changed = Changed(data, data.with_name(f"{data.name}-older"), rng)
    change = rng.choice(CHANGES)
    change(changed)
    run.counts["queues believed"] += believed(data)
    run.counts["files changed"] += change is not Changed.nothing
    life.broker.start()
    life.check(life.reader)
    changed.keep()


def saved_behind(data: Path, since: float) -> bool:
    """Whether the extents were written since that time."""
    path = data / QUEUE_EXTENTS
    return path.exists() and path.stat().st_mtime > since


def kills_with_extents(run: Run) -> None:
    """R1e."""
    while run.more:
        life = Life(run, run.directory / f"from-{run.number}", "ASYNC_FLUSH")
        life.broker.module = SAVES
        life.broker.settings = {**life.broker.settings, **SETTINGS}
        with life.broker:
            make_topics(life.broker.address, SHAPE)
            for _ in range(CYCLES_PER_DIRECTORY):
                one_cycle(life, run.cycle())
                life.count()
                run.done()
                if not run.more:
                    break
            life.end()


R1E = Campaign(
    key="R1e",
    title="kills and stops behind a save of queue extents, then files changed by somebody",
    unit="cycles",
    t1=3,
    t2=200,
    run=kills_with_extents,
)
