"""A disk that counts, fails, shortens and delays system calls, and forgets what was never synced.

It works on a real directory, so mappings, page cache and locks are real. Beside it stands a durable
image: per file the bytes of its last sync, per directory the names of its last sync. `kill` is the
end of a process, `power_cut` writes what a machine would find afterwards into another directory.
A sync is of the image only: whoever runs the test loses no power, and need not wait for a disk.
Not modelled: a device that lies about a sync, and tears below `granule` bytes.
"""

from __future__ import annotations

import contextlib
import errno as codes
import os
import threading
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, ParamSpec, TypeVar

import trio

from aerobee.store.files.disk import Disk
from tests.kit.virtual_time import Opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

P = ParamSpec("P")
R = TypeVar("R")
CHANGES = frozenset({"open", "pwrite", "ftruncate", "posix_fallocate", "fsync", "fdatasync"}) | {
    *("replace", "link", "unlink", "mkdir", "rmdir")
}
"""Calls that may change what a later start finds: these are numbered, from 1."""
OTHERS = ("isdir", "lockf", "flock")
"""Calls that are not of the module `os`."""
_SYNCS = ("fsync", "fdatasync")


_boots = count()


class PowerCut(BaseException):
    """The machine is gone; raised by the call it died in and by every later one."""


class Call(NamedTuple):
    """One system call as it was asked for."""

    number: int
    """Of the calls in CHANGES so far, this one included."""
    name: str
    path: Path | None


@dataclass
class Fault:
    """What goes wrong: the `number`-th change, or each call of this name and path part.

    `times` counts down; `error` 0 with `short` writes fewer bytes, `cut` ends the machine.
    """

    made: ClassVar[list[Fault]] = []
    """Those of the test that runs."""

    number: int | None = None
    name: str | None = None
    path: str = ""
    error: int = codes.EIO
    times: int = 1
    short: bool = False
    cut: bool = False
    met: int = field(default=0, init=False)
    """How many calls it has hit."""

    def __post_init__(self) -> None:
        # A fault in a call that nobody makes would let any test pass.
        assert self.name is None or hasattr(os, self.name) or self.name in OTHERS, self.name
        self.made.append(self)

    def hits(self, call: Call) -> bool:
        """Whether this call is meant; uses the fault up."""
        if self.times <= 0 or (self.number is not None and call.number < self.number):
            return False
        if self.number is not None and call.name not in CHANGES:
            return False
        if self.name is not None and call.name != self.name:
            return False
        if self.path and self.path not in str(call.path):
            return False
        self.times -= 1
        self.met += 1
        return True


def unmet(faults: Iterable[Fault]) -> list[Fault]:
    """Those that no call has met, though a test was made of them.

    A numbered change may lie behind the end, as in a row of tests that has it come ever later.
    """
    return [fault for fault in faults if fault.number is None and not fault.met]


@dataclass
class _Inode:
    """A file: what is surely on disk, and which pages a failed sync has lost."""

    path: Path
    durable: bytes = b""
    lost: dict[int, bytes] = field(default_factory=dict)


class FaultyDisk(Disk):
    """Watches everything below `root`; what lies there now counts as durable."""

    def __init__(self, root: Path, *faults: Fault, granule: int = 4_096) -> None:
        super().__init__()
        self.root = root
        self.faults = list(faults)
        self.granule = granule
        self.calls: list[Call] = []
        self.changes = 0
        self.dead = False
        self.copying = False
        """Whether it copies on write: a mapping has no promise of room then."""
        self.before: Callable[[Call], None] | None = None
        """Called ahead of each call; a test may wait or look around in it."""
        self._boot = f"boot {next(_boots)}"
        # Queue files are written and synced by several threads side by side.
        self._writing_down = threading.Lock()
        self._open: dict[int, Path] = {}
        self._inodes: dict[int, _Inode] = {}
        self._names: dict[Path, int | None] = {}
        """Durable names below the root: inode of a file, None for a directory."""
        self._pending: list[tuple[str, Path, Path | None, int | None]] = []
        if root.exists():
            self._take_in(root)

    def _take_in(self, root: Path) -> None:
        for path in [root, *sorted(root.rglob("*"))]:
            if path.is_dir():
                self._names[path] = None
            else:
                inode = path.stat().st_ino
                self._names[path] = inode
                self._inodes[inode] = _Inode(path, path.read_bytes())

    # ── Calls ──

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self.dead:
            raise PowerCut
        name = function.__name__
        call = self._note(name, args)
        for fault in self.faults:
            if fault.hits(call):
                if fault.cut:
                    self.dead = True
                    raise PowerCut
                if fault.short and name == "pwrite":
                    fd, data, position = args
                    return os.pwrite(fd, data[: max(1, len(data) // 2)], position)  # type: ignore[arg-type,index,return-value]  # as pwrite was called
                if name in _SYNCS:
                    with self._writing_down:
                        self._lose_dirty_pages(args[0])
                raise OSError(fault.error, os.strerror(fault.error), str(call.path or ""))
        if name in ("close", "dup2"):
            # Before the call: another thread may get the same number right behind it.
            self._open.pop(args[-1], None)  # type: ignore[call-overload]  # as close was called
        result = None if name in _SYNCS else function(*args, **kwargs)
        with self._writing_down:
            self._after(name, args, result)
        return result  # type: ignore[return-value]  # syncs answer None

    def _note(self, name: str, args: tuple[Any, ...]) -> Call:
        if name in CHANGES:
            self.changes += 1
        where = args[0] if args else None
        path = self._open.get(where) if isinstance(where, int) else where
        call = Call(self.changes, name, path if isinstance(path, Path) else None)
        self.calls.append(call)
        if self.before is not None:
            self.before(call)
        return call

    def _after(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name in ("dup", "dup2"):
            self._open[result] = self._open[args[0]]
        elif name == "open":
            self._opened(args[0], args[1], result)
        elif name in _SYNCS:
            self._synced(args[0])
        elif name == "pwrite":
            self._rewritten(args[0], args[2], result)
        elif name == "replace" and args[1].is_dir():
            self._pending.append(("move", args[0], args[1], None))
        elif name in ("replace", "link"):
            self._pending.append((name, args[0], args[1], os.stat(args[1]).st_ino))
        elif name in ("unlink", "rmdir", "mkdir"):
            self._pending.append((name, args[0], None, None))

    def _opened(self, path: Path, flags: int, fd: int) -> None:
        self._open[fd] = path
        inode = os.fstat(fd).st_ino
        if flags & os.O_CREAT and (inode not in self._inodes or not self._is_known(path, inode)):
            self._inodes[inode] = _Inode(path)
            self._pending.append(("create", path, None, inode))

    def _is_known(self, path: Path, inode: int) -> bool:
        """Whether the inode's number was not given to another file since."""
        current: int | None = self._names.get(path)
        for name, source, target, number in self._pending:
            if (name == "create" and source == path) or target == path:
                current = number
            elif source == path and name in ("unlink", "replace"):
                current = None
        return current == inode

    # ── The durable image ──

    def _volatile(self, fd: int) -> bytes:
        size = os.fstat(fd).st_size
        return os.pread(fd, size, 0) if size else b""

    def _synced(self, fd: int) -> None:
        path = self._open[fd]
        if path.is_dir():
            for change in list(self._pending):
                if path in (change[1].parent, change[2].parent if change[2] else None):
                    self._apply(self._names, change)
                    self._pending.remove(change)
            return
        inode = self._inodes.get(os.fstat(fd).st_ino)
        if inode is not None:
            content = bytearray(self._volatile(fd))
            for page, was in inode.lost.items():
                end = page + self.granule
                if content[page:end] == was:
                    # The kernel took the page for clean when the sync failed.
                    content[page:end] = inode.durable[page:end].ljust(len(was), b"\0")
            inode.durable = bytes(content)

    def _lose_dirty_pages(self, fd: Any) -> None:
        inode = self._inodes.get(os.fstat(fd).st_ino)
        if inode is None:
            return
        content = self._volatile(fd)
        for page in range(0, len(content), self.granule):
            now = content[page : page + self.granule]
            if now != inode.durable[page : page + self.granule]:
                inode.lost[page] = now

    def _rewritten(self, fd: int, position: int, size: int) -> None:
        inode = self._inodes.get(os.fstat(fd).st_ino)
        if inode is not None and inode.lost:
            for page in range(position - position % self.granule, position + size, self.granule):
                inode.lost.pop(page, None)

    @staticmethod
    def _apply(
        names: dict[Path, int | None], change: tuple[str, Path, Path | None, int | None]
    ) -> None:
        name, source, target, inode = change
        if name == "create":
            names[source] = inode
        elif name == "mkdir":
            names[source] = None
        elif name in ("unlink", "rmdir"):
            names.pop(source, None)
        elif name == "move" and target is not None:
            for path in [path for path in names if path.is_relative_to(source)]:
                names[target / path.relative_to(source)] = names.pop(path)
        elif target is not None:
            names[target] = inode
            if name == "replace":
                names.pop(source, None)

    def copies_on_write(self, path: Path) -> bool:
        """As the test says, whatever lies below."""
        return self.copying

    def boot(self) -> str:
        """A disk is one machine from its start to its power cut."""
        return self._boot

    # ── Ends ──

    def kill(self) -> None:
        """The process is gone: descriptors and locks with it, the page cache stays."""
        for fd in list(self._open):
            with contextlib.suppress(OSError):
                status = os.fstat(fd)
                self._held.discard((status.st_dev, status.st_ino))
                os.close(fd)
        self._open.clear()
        self.descriptors.forget()
        self.dead = False

    def power_cut(self, target: Path, random: Random, *, keep: float = 0.5) -> Path:
        """Write what the disk has into `target`; then the process is gone too.

        Of what was not synced, each page survives with probability `keep`, and of the changes of
        names a random beginning; `keep` 0 loses all of it, 1 nothing.
        """
        names = dict(self._names)
        if keep >= 1:
            survive = len(self._pending)
        else:
            survive = random.randint(0, len(self._pending)) if keep else 0
        for change in self._pending[:survive]:
            self._apply(names, change)
        contents = self._contents()
        self.kill()
        target.mkdir(parents=True, exist_ok=True)
        for path, inode in sorted(names.items()):
            if not path.is_relative_to(self.root):
                continue
            place = target / path.relative_to(self.root)
            if inode is None:
                place.mkdir(parents=True, exist_ok=True)
            elif place.parent.is_dir():
                place.write_bytes(self._survivor(inode, contents.get(inode), random, keep))
        return target

    def _contents(self) -> dict[int, bytes]:
        """What the page cache holds, by inode."""
        return {
            path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*") if path.is_file()
        }

    def _survivor(self, number: int, volatile: bytes | None, random: Random, keep: float) -> bytes:
        inode = self._inodes[number]
        if volatile is None or keep <= 0:
            return inode.durable
        size = len(volatile) if random.random() < keep or keep >= 1 else len(inode.durable)
        content = bytearray(inode.durable[:size].ljust(size, b"\0"))
        for page in range(0, size, self.granule):
            now = volatile[page : page + self.granule]
            changed = now and content[page : page + len(now)] != now
            if changed and random.random() < keep and inode.lost.get(page) != now:
                content[page : page + len(now)] = now
        return bytes(content)


class RoleSteps:
    """Counts the changes of the disk that save a role in `directory`, and fails one of them."""

    def __init__(self, directory: Path, failing: int = 0) -> None:
        self.directory = directory
        self.failing = failing
        self.steps = 0

    def __call__(self, call: Call) -> None:
        of_role = call.path == self.directory or "role.json" in str(call.path)
        if call.name in CHANGES and of_role:
            self.steps += 1
            if self.steps == self.failing:
                raise OSError(codes.EIO, "the disk fails", str(call.path))


class Gate:
    """Holds every call of this name on such a file until the test lets it go."""

    def __init__(self, disk: FaultyDisk, name: str, part: str) -> None:
        self.name = name
        self.part = part
        self.opened = Opening()
        self.begun = threading.Semaphore(0)
        disk.before = self.hold

    def hold(self, call: Call) -> None:
        if call.name == self.name and self.part in str(call.path) and not self.opened.is_set():
            self.begun.release()
            self.opened.wait(20)

    def let_go(self) -> None:
        self.opened.set()

    async def wait_for_a_call(self) -> None:
        assert await trio.to_thread.run_sync(lambda: self.begun.acquire(timeout=10))
