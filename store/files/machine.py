"""Facts about the system and its file systems: limits, memory, free space.

Part of `Disk`: its calls pass through `Disk._call` like all others, so that tests replace them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_LIMITS = (_CGROUP / "memory.max", _CGROUP / "memory/memory.limit_in_bytes")


class Space(NamedTuple):
    """Space of a file system, in bytes; `available_bytes`: free for unprivileged users."""

    total_bytes: int
    free_bytes: int
    available_bytes: int


class Machine:
    """The questions to the system. Every method may raise OSError."""

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        raise NotImplementedError

    def read(self, path: Path) -> bytes:
        """All bytes of a (small) file."""
        raise NotImplementedError

    def descriptor_limit(self) -> int:
        """How many files and sockets this process may have open."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft

    def process_id(self) -> int:
        """Ours."""
        return os.getpid()

    def boot(self) -> str:
        """An id of the time since the system was started; "" when it does not say."""
        with contextlib.suppress(OSError):
            return self.read(_BOOT_ID).decode("ascii", "replace").strip()
        return ""

    def free_space(self, path: Path) -> Space:
        """Room on the file system of an existing path."""
        status = self._call(os.statvfs, path)
        block = status.f_frsize
        return Space(status.f_blocks * block, status.f_bfree * block, status.f_bavail * block)

    def device(self, path: Path) -> int:
        """The number of the file system of an existing path."""
        return self._call(os.stat, path).st_dev

    def file_system(self, path: Path) -> str:
        """Type of the file system an existing path lies on (`ext4`, `tmpfs`, …), or "?"."""
        device = self.device(path)
        number = f"{os.major(device)}:{os.minor(device)}"
        try:
            mounts = self.read(Path("/proc/self/mountinfo")).decode("utf-8", "replace")
        except OSError:
            return "?"
        for line in reversed(mounts.splitlines()):
            before, _, after = line.partition(" - ")
            if before.split()[2:3] == [number]:
                return after.split()[0]
        return "?"

    def total_memory(self) -> int:
        """Memory of the machine in bytes, or of the container if that has less."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for limit in _MEMORY_LIMITS:
            with contextlib.suppress(OSError, ValueError):
                total = min(total, int(self.read(limit)))
        return total
