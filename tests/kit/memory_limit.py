"""A limit on the memory of a process, page cache included, as a container has it: cgroup v1.

Needs root and that controller; a test is skipped, saying why, where one is missing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.waiting import eventually

ROOT = Path("/sys/fs/cgroup/memory")


class MemoryLimit:
    """A group of processes that share a limit."""

    def __init__(self, group: Path) -> None:
        self._group = group

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Processes that are started meanwhile are in the group from their first byte on."""
        before = ROOT / own_group().lstrip("/")
        _enter(self._group)
        try:
            yield
        finally:
            _enter(before)

    @property
    def most_bytes(self) -> int:
        """The most that was in use at a time."""
        return int((self._group / "memory.max_usage_in_bytes").read_text())

    @property
    def times_reached(self) -> int:
        """How often memory had to be taken back because the limit was reached."""
        return int((self._group / "memory.failcnt").read_text())

    @property
    def kills(self) -> int:
        """Processes that were killed for want of memory."""
        lines = (self._group / "memory.oom_control").read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[MemoryLimit]:
    """A group with this limit; whoever is in it must have ended when the block does."""
    if os.geteuid() != 0:
        pytest.skip("faults: a limit on memory needs root, for a control group")
    if not (ROOT / "memory.limit_in_bytes").exists():
        pytest.skip(f"faults: a limit on memory needs cgroup v1 at {ROOT}")
    group = ROOT / f"aerobee-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield MemoryLimit(group)
    finally:
        empty = group / "cgroup.procs"
        eventually(lambda: not empty.read_text(), within_s=30, what="an empty group")
        group.rmdir()


def own_group() -> str:
    """The group of this process, below the controller."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return path
    return "/"


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
