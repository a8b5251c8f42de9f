"""Descriptors or memory run out at the k-th call that may say so, for a while, for every k.

A whole life of a broker without its sockets, as in `nth_failures`. While they are out sends may be
refused and rounds put off; when it is over the broker goes on by itself: it takes sends, answers
queries, and stops clean. Nothing of that is a failed sync.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
from trio.testing import MockClock

from aerobee.store.config import FlushDiskType
from tests.faults.nth_failures import STEP, TOPIC, CrowdedDisk, Life, check_after
from tests.kit.campaign import Campaign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.broker.desk import Desk
    from tests.kit.campaign import Run

DESCRIPTOR_CALLS = frozenset({"open", "mmap", "listdir"})
PATH_CALLS = frozenset({"stat", "lstat", "statvfs", "unlink", "replace", "mkdir"})
OVER_WITHIN_S = 60


class Want(NamedTuple):
    """What runs out, and for how many calls."""

    error: int
    times: int
    flush: FlushDiskType

    @property
    def calls(self) -> frozenset[str]:
        """System calls that can say so."""
        return DESCRIPTOR_CALLS | (PATH_CALLS if self.error == errno.ENOMEM else frozenset())

    def __str__(self) -> str:
        return f"{errno.errorcode[self.error]}, {self.times} times, {self.flush.name}"


WANTS = tuple(
    Want(error, times, flush)
    for flush in FlushDiskType
    for error in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
    for times in (1, 12, 200)
)


class ScarceDisk(CrowdedDisk):
    """From the `first` such call on, after `begin`, `want.times` of them fail."""

    first = 0
    asked = 0
    want: Want | None = None
    done = True

    def begin(self) -> None:
        self.asked = 0
        self.done = False

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        name, want = function.__name__, self.want
        if want is not None and not self.done and name in want.calls:
            self.asked += 1
            if self.first <= self.asked < self.first + want.times:
                raise OSError(want.error, os.strerror(want.error), str(args[0]))
        return super()._call(function, *args, **kwargs)


class ScarceLife(Life):
    """One broker that runs short, and then does not any more."""

    disk: ScarceDisk

    def live(self) -> None:
        """All of it; nothing may end it."""
        trio.run(self._run, clock=MockClock(autojump_threshold=0.0))

    async def _work(self, desk: Desk) -> None:
        self.disk.begin()
        with contextlib.suppress(OSError):
            # What an administrator asked for and could not have gets an error: an answer, too.
            await super()._work(desk)
        self.disk.done = True
        store = desk.store
        before = len(self.acked)
        with trio.fail_after(OVER_WITHIN_S):
            while len(self.acked) == before:
                await trio.sleep(1)
                await self._send(desk, 10_000 + int(trio.current_time()))
            while not await store.flush_queues():  # noqa: ASYNC110 - nobody tells
                await trio.sleep(1)
            while store.index.behind_bytes:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(1)
        assert not store.flags.refusing, store.flags
        assert store.index.service.failure is None
        assert store.max_offset(TOPIC, 0) + store.max_offset(TOPIC, 1) == len(self.acked)


def calls_of(root: Path, want: Want) -> int:
    """Calls that may say so in a life that nothing disturbs."""
    disk = ScarceDisk(root)
    disk.want, disk.first = want, 1 << 60
    life = ScarceLife(root, disk, want.flush)
    life.live()
    assert life.clean
    shutil.rmtree(root)
    return disk.asked


def one_shortage(number: int, want: Want, folder: Path) -> ScarceLife:
    """A life with that shortage, and the start after it."""
    root = folder / "d"
    disk = ScarceDisk(root)
    disk.want, disk.first = want, number
    life = ScarceLife(root, disk, want.flush)
    life.live()
    assert life.clean
    assert not (left := still_open(root)), left
    check_after(root, life.acked)
    return life


def still_open(root: Path) -> list[str]:
    """Files below that this process has open; not those that readers of a deleted segment hold."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [name for name in found if name.startswith(f"{root}/") and "(deleted)" not in name]


def shortages(run: Run) -> None:
    """Every call, every want; few cycles are spread over all of them."""
    calls = calls_of(run.directory / "untouched", WANTS[-1])
    total = calls * len(WANTS)
    begin = run.rng.randrange(total)
    run.counts["calls in a life"] = calls
    for cycle in run.cycles():
        place = (begin + cycle.number * STEP) % total
        number, want = 1 + place // len(WANTS), WANTS[place % len(WANTS)]
        folder = run.directory / f"{cycle.number}"
        try:
            life = one_shortage(number, want, folder)
        except Exception as error:
            error.add_note(f"call {number}, {want}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        run.counts["acknowledged"] += len(life.acked)


R5B = Campaign(
    key="R5B",
    title="descriptors or memory run out at the k-th call, for a while: EMFILE, ENFILE, ENOMEM",
    unit="shortages",
    t1=6,
    t2=3_000,
    run=shortages,
)
