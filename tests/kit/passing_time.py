"""Hours of virtual time for a store whose disk works in real threads, and files of any age."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import wait_all_tasks_blocked

from aerobee.store.files.machine import Space
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.store_model import LOG_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

TOTAL = 1_000 * LOG_BYTES
HOUR_S = 3_600


class SmallDisk(FaultyDisk):
    """As full as the test says, and with files as old as it says."""

    def __init__(self, root: Path, *faults: Fault) -> None:
        super().__init__(root, *faults)
        self.used_percent = 10.0
        self.mtimes: dict[str, int] = {}

    def free_space(self, path: Path) -> Space:
        free = TOTAL - round(TOTAL * self.used_percent / 100)
        return Space(TOTAL, free, free)

    def mtime_ms(self, path: Path) -> int:
        return self.mtimes.get(path.name, 1_700_000_000_000)


async def pass_s(clock: MockClock, seconds: float, step: float = 1.0) -> None:
    """Virtual time, in steps; what each step wakes has run before the next."""
    for _ in range(round(seconds / step)):
        await wait_all_tasks_blocked()
        clock.jump(step)
    await wait_all_tasks_blocked()
