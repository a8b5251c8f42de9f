"""Facts about the system and its file systems: limits, memory, free space.

Part of `Disk`: its calls pass through `Disk._call` like all others, so that tests replace them.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
R = TypeVar("R")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_LIMITS = (_CGROUP / "memory.max", _CGROUP / "memory/memory.limit_in_bytes")
COPYING = frozenset({"bcachefs", "btrfs", "zfs"})
"""File systems that write a changed block to another place."""


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
        """Type of the file system an existing path lies on (`ext4`, `tmpfs`, …), or "?".

        A subvolume of btrfs has another device number than its mount.
        """
        device = self.device(path)
        number = f"{os.major(device)}:{os.minor(device)}"
        try:
            mounts = self.read(Path("/proc/self/mountinfo")).decode("utf-8", "replace")
        except OSError:
            return "?"
        places = {path.absolute(), *path.absolute().parents}
        above: list[tuple[int, str]] = []
        for device_number, point, kind in _mounts(mounts):
            if device_number == number:
                return kind
            if point in places:
                above.append((len(point.parts), kind))
        return max(above, key=itemgetter(0), default=(0, "?"))[1]

    def copies_on_write(self, path: Path) -> bool:
        """Whether a change of a file there needs new blocks, though it has all of its own."""
        return self.file_system(path) in COPYING

    def total_memory(self) -> int:
        """Memory of the machine in bytes, or of the container if that has less."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for limit in _MEMORY_LIMITS:
            with contextlib.suppress(OSError, ValueError):
                total = min(total, int(self.read(limit)))
        return total


def _mounts(table: str) -> Iterator[tuple[str, Path, str]]:
    """Device number, mount point and type of the file systems of a table, the last one first."""
    for line in reversed(table.splitlines()):
        before, _, after = line.partition(" - ")
        match [before.split(), after.split()]:
            case [[_, _, number, _, point, *_], [kind, *_]]:
                yield number, Path(_plain(point)), kind


def _plain(name: str) -> str:
    """A name in a table of mounts, where the digits of a byte stand for blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)
