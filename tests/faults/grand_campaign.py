"""Everything that is asked of a broker at once, over lives that end in every way.

Sends of all kinds, delays, timers, transactions, pops, commits, resets, topics and groups that come
and go, settings that change while it serves and between its lives, a disk that is full for a while,
a directory that an earlier version of ours began; kills -9, clean stops, stops under load. The
books are those of R1 and R1f: nothing acknowledged is lost, altered, doubled or out of order, keys
are found, and each clean stop leaves a directory in which `store verify` finds nothing. In a life
no step of the loop takes `STEP_MS` of CPU, and at its end sockets and memory are back.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.store.tools.verify import verify
from tests.faults import feature_kills
from tests.faults.grand_clients import Administrator
from tests.faults.kills import INDEXED_WITHIN_S, judge, make_topics
from tests.kit import older
from tests.kit.campaign import Campaign
from tests.kit.health import events, open_descriptors, rss_anon, slowness
from tests.kit.history import History
from tests.kit.load import Load, Reader, Shape
from tests.kit.mounts import small_file_system
from tests.kit.raw_client import RawConnection
from tests.kit.reading import find_by_key
from tests.kit.step_watch import SteppedBroker, StolenTime, steps_in
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.kit.campaign import Cycle, Run

MiB = 1 << 20
ROOT = Path(__file__).parents[2]
SHAPE = Shape(topics=("grand-a", "grand-b"), queues=2, connections=3, window=4, rest_s=0.05)
CYCLES_PER_DIRECTORY = 8
WORK_S = (0.3, 1.5)
DISK_BYTES = 256 * MiB
LEFT_BYTES = MiB // 4
"""What a full disk has left."""
FULL_S = (0.2, 1.5)
TAKES_AGAIN_WITHIN_S = 30.0
"""Ten are promised; a busy machine may take longer."""
KEYS_LOOKED_UP = 3
STEP_MS = 50.0
SOCKETS = 15
GROWS_BYTES = 48 * MiB
"""Memory that a life of some seconds may keep: caches, and what the allocator keeps of its peak."""
OLDER = (40, 80, 120)
"""Without tags: versions that lie so many commits back."""
OLD_EVERY = 2
"""An older version begins every other directory."""
CHANGED: dict[str, tuple[object, ...]] = {
    "accessMessageInMemoryMaxRatio": (0, 40),
    "flushDiskType": ("SYNC_FLUSH", "ASYNC_FLUSH"),
    "mappedFileSizeCommitLog": (MiB, 2 * MiB),
    "maxHashSlotNum": (1_000, 3_000),
    "serverSelectorThreads": (1, 3),
    "syncFlushInline": ("true", "false"),
    "timerPrecisionMs": (500, 1_000),
    "warmMapedFileEnable": ("true", "false"),
}
"""What is drawn anew for each life."""
KEEPS = {"cleanFileForciblyEnable": "false"}
"""A full disk is to refuse sends here, and no reason to delete what the books have."""


class Grand(feature_kills.Life):
    """One directory, from its first life to its last."""

    def __init__(self, run: Run, rng: random.Random, data: Path) -> None:
        super().__init__(run, rng)
        self.first = run.number
        self.base = dict(self.broker.settings) | KEEPS
        self.watched = SteppedBroker(
            data=data, settings=self.base, log_path=run.directory / f"log-{run.number}"
        )
        self.broker = self.watched
        self.admin = Administrator()
        self.clients.append(self.admin)
        self.history = History()
        self.reader = Reader(SHAPE)
        self.stolen = StolenTime()
        self.stolen.start()
        self.old = False
        """An older version serves."""
        self._began = 0.0
        self._rss = 0
        self._log_end = 0

    # ── The begin and the end of a life ──

    def begin(self, rng: random.Random) -> None:
        """Start with other settings."""
        changed = {key: rng.choice(values) for key, values in CHANGED.items()}
        self.broker.settings = self.base | changed
        self.broker.start()
        self.begun()

    def begun(self) -> None:
        """What the end of this life is compared with."""
        self._began = time.monotonic()
        self._rss = rss_anon(self.broker.child.pid)

    def end_by_kill(self) -> None:
        """In the middle of whatever it does."""
        self.broker.kill()
        self.waits.life += 1
        self.run.counts["kills"] += 1

    def end_by_stop(self) -> None:
        """A clean one; what it did since its start is judged, and what it leaves."""
        self.look_at_resources()
        assert self.broker.stop() == 0, self.broker.child.errors()[-3_000:]
        self.after_stop()

    def after_stop(self) -> None:
        """Nothing failed, no step of the loop was long, and the files are sound."""
        found = verify(self.broker.data)
        assert found.sound, found.damage[:5]
        self.run.counts["clean stops"] += 1
        text = self.broker.log.read_text(encoding="utf-8", errors="replace")
        new, self._log_end = text[self._log_end :], len(text)
        if self.old:
            return
        for event in events(new):
            assert event["event"] != "request.failed", str(event)[:3_000]
        self.stolen.look()
        steps = [one for one in steps_in(self.watched.steps_path) if one.at_s >= self._began]
        longest = max(
            (one for one in steps if not self.stolen.within(one)),
            key=lambda one: one.cpu_ms,
            default=None,
        )
        if longest is not None:
            self.run.worst("longest step us", round(1_000 * longest.cpu_ms))
            assert longest.cpu_ms <= STEP_MS or longest.cpu_ms <= STEP_MS * slowness(), longest

    def look_at_resources(self) -> None:
        """With its clients gone it has the sockets and about the memory that it began with."""
        pid = self.broker.child.pid
        eventually(
            lambda: open_descriptors(pid)["socket"] <= SOCKETS,
            within_s=30,
            what="the sockets of clients are gone",
        )
        more = rss_anon(pid) - self._rss
        self.run.worst("KiB of memory more", more >> 10)
        assert more <= GROWS_BYTES, f"{more >> 20} MiB more than at its start"

    # ── Work ──

    def cycle(self, cycle: Cycle) -> None:
        """A life: work, some event, and an end."""
        rng = cycle.rng
        ends: Callable[[], None] = rng.choice(
            (self.end_by_kill, self.end_by_kill, self.end_by_stop)
        )
        load = Load(self.broker.address, self.history, seed=f"grand{cycle.number}", shape=SHAPE)
        try:
            with self.load(rng):
                self.broker.let_run(rng.uniform(*WORK_S))
                self.broker.child.signal(signal.SIGHUP)
                self.broker.let_run(rng.uniform(*WORK_S) / 2)
                self.lives()
                if ends == self.end_by_kill:
                    ends()
            if ends == self.end_by_stop and rng.random() < 0.5:
                # Under load, of the clients that may be refused.
                assert self.broker.stop() == 0, self.broker.child.errors()[-3_000:]
        finally:
            load.join()
        if ends == self.end_by_stop:
            if self.broker.child.running:
                self.fill(rng, cycle)
                ends()
            else:
                self.after_stop()
                self.run.counts["stops under load"] += 1
        self.next_life(rng, clean=ends == self.end_by_stop)

    def lives(self) -> None:
        """The process is there."""
        assert self.broker.child.running, self.broker.child.errors()[-3_000:]

    def fill(self, rng: random.Random, cycle: Cycle) -> None:
        """The disk is full for a while; sends are taken again when it is not."""
        disk = self.broker.data.parent
        if not os.path.ismount(disk):
            self.run.counts["disks not filled"] += 1
            return
        free = os.statvfs(disk)
        filler = disk / "filler"
        load = Load(self.broker.address, self.history, seed=f"full{cycle.number}", shape=SHAPE)
        try:
            # Senders are faster now and then: then the disk is full by them.
            with filler.open("wb") as file, full_is_fine():
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - LEFT_BYTES)
            self.broker.let_run(rng.uniform(*FULL_S))
            self.lives()
        finally:
            filler.unlink()
            load.join()
        self.run.counts["refused on a full disk"] += len(load.refused)
        after = Load(self.broker.address, self.history, seed=f"room{cycle.number}", shape=SHAPE)
        try:
            after.wait_for_acks(SHAPE.batch, within_s=TAKES_AGAIN_WITHIN_S)
        finally:
            after.join()
        self.run.counts["disks filled"] += 1

    def next_life(self, rng: random.Random, *, clean: bool) -> None:
        """Start again, the newest version, and look whether everything is there."""
        # What a clean stop was told is saved, however long before.
        saved_by = time.monotonic() + (self.consumer.old_max_s if clean else 0.0)
        if self.old:
            # What it did wrong is not this version's.
            self.waits.life += not clean
            self.old = False
            older.give(self.watched, None)
        self.begin(rng)
        for client in self.clients:
            client.killed_at = saved_by
            client.begin_life(self.waits.life)
        self.check(rng)

    def check(self, rng: random.Random) -> None:
        """Every book that can be closed now."""
        judge(self.run, self.history, self.reader.read_on(self.broker.address))
        with RawConnection(self.broker.address) as connection:
            wrong = [*self.wrong(), *self.admin.verdict(connection)]
            assert not wrong, "\n".join(wrong[:5])
            acked = self.history.acknowledged
            for attempt in rng.sample(acked, min(KEYS_LOOKED_UP, len(acked))):
                found = eventually(
                    partial(find_by_key, connection, attempt.topic, attempt.uid),
                    within_s=INDEXED_WITHIN_S,
                    what=f"{attempt.uid} found by its key",
                )
                assert [one.body for one in found] == [attempt.body], attempt.uid
                self.run.counts["found by key"] += 1

    def end(self) -> None:
        """Everybody finishes, and the books are closed."""
        super().end()
        self.after_stop()
        self.stolen.over.set()
        self.run.counts["acknowledged"] += len(self.history.acknowledged)


def grand(run: Run) -> None:
    """GC1: lives of directories, one directory after the other."""
    commits = older_commits()
    while run.more:
        number = run.number
        with ExitStack() as stack:
            life = Grand(run, run.cycle().rng, disk_of(run, stack) / "data")
            turn, odd = divmod(number // CYCLES_PER_DIRECTORY, OLD_EVERY)
            if commits and odd:
                commit = commits[turn % len(commits)]
                life.old = True
                older.give(life.watched, commit)
                run.counts[f"begun by {commit}"] += 1
            stack.enter_context(life.broker)
            life.begun()
            life.make_topics()
            make_topics(life.broker.address, SHAPE)
            for _ in range(CYCLES_PER_DIRECTORY):
                life.cycle(run.cycle())
                run.done()
                if not run.more:
                    break
            life.end()


@contextmanager
def full_is_fine() -> Iterator[None]:
    """Raises: every OSError but that the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def disk_of(run: Run, stack: ExitStack) -> Path:
    """A small file system that can be filled; a directory, saying why, where none can be made."""
    at = run.directory / f"disk-{run.number}"
    try:
        return stack.enter_context(small_file_system(at, size_bytes=DISK_BYTES))
    except pytest.skip.Exception as skipped:
        print(f"GC1: no disk is filled: {skipped}")
        return at


def older_commits() -> list[str]:
    """Three earlier versions: the last tags, else commits some way back; none without a
    repository that has them.
    """
    tags = git("tag", "--sort=-creatordate").decode().split()[: len(OLDER)]
    named = [git("rev-parse", "--verify", "--short", f"HEAD~{back}") for back in OLDER]
    return tags or [name.decode().strip() for name in named if name]


def git(*arguments: str) -> bytes:
    """What git prints; nothing where it cannot."""
    done = subprocess.run(["git", *arguments], capture_output=True, check=False, cwd=ROOT)
    return done.stdout


GC1 = Campaign(
    key="GC1",
    title="the grand campaign: everything at once, settings, full disks, versions, kills and stops",
    unit="lives",
    t1=2,
    t2=400,
    run=grand,
)
