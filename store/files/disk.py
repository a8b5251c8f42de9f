"""Every system call of the store. Nothing else may touch files.

Paths and bytes in, bytes and handles out; no logic of the store is here. All calls go through
`Disk._call`, so a test's disk can count, delay, fail or lose any of them. Invariant: a name appears
in its directory only when the file behind it has its final size, and what is called durable was
synced, the directory included. Longer than other files: it has all system calls.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
from struct import Struct
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import trio

from aerobee.store.errors import Unreadable
from aerobee.store.files.descriptors import UNTRACKED, Descriptors
from aerobee.store.files.places import Places
from aerobee.store.files.syncs import Syncs
from aerobee.store.format.names import (
    LOST_FOUND,
    backup_name,
    inner_path,
    spare_path,
    temporary_name,
)
from aerobee.store.format.sparse import NOT_SUPPORTED, data_ranges
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

P = ParamSpec("P")
R = TypeVar("R")

LINK = -1
"""In place of the length of a file: its name is a symbolic link."""
_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_COPY_BYTES = 1 << 20
_ZEROS = bytes(_COPY_BYTES)
_UNMAP_BYTES = 32 << 20
_THREADS = 8
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}
_FLOCK = Struct("hh4xqqi4x")


class Handle:
    """An open file. Reads and writes name their position; there is no current position."""

    __slots__ = ("_disk", "fd", "path")

    def __init__(self, disk: Disk, fd: int, path: Path) -> None:
        self._disk = disk
        self.fd = fd
        self.path = path

    def __repr__(self) -> str:
        return f"<Handle {self.path} fd={self.fd}>"

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file. Raises: Unreadable, OSError."""
        try:
            return self._named(os.pread, size, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            raise Unreadable(error.errno, error.strerror, error.filename) from error

    def _named(self, function: Callable[..., R], *args: Any) -> R:
        """A call with the descriptor; an error of it names the file. Raises: OSError."""
        try:
            return self._disk._call(function, self.fd, *args)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise

    def pread_if_cached(self, size: int, position: int) -> bytes | None:
        """As `pread`, but None instead of waiting for the disk. Raises: OSError."""
        buffer = bytearray(size)
        try:
            got = self._disk._call(os.preadv, self.fd, [buffer], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno == errno.EAGAIN or error.errno in NOT_SUPPORTED:
                return None
            raise
        return bytes(buffer[:got])

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of it. Raises: OSError; then any prefix may be in the file."""
        view = memoryview(data)
        while view:
            wrote = self._named(os.pwrite, view, position)
            position += wrote
            view = view[wrote:]

    def truncate(self, size: int) -> None:
        """Set the length; new bytes are a hole. Raises: OSError."""
        self._named(os.ftruncate, size)

    def fill(self, size: int) -> None:
        """Reserve every block up to `size`; changes no byte. Raises: OSError (ENOSPC)."""
        self._named(os.posix_fallocate, 0, size)

    def size(self) -> int:
        """Length in bytes. Raises: OSError."""
        return self._named(os.fstat).st_size

    def data_ranges(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [begin, end) that may hold other bytes than zeros. Raises: OSError."""
        call, fd = self._disk._call, self.fd
        return data_ranges(
            lambda at: call(os.lseek, fd, at, os.SEEK_DATA),
            lambda at: call(os.lseek, fd, at, os.SEEK_HOLE),
            begin,
            end,
        )

    def close(self) -> None:
        """Close the descriptor; mappings made from it stay valid. A second call does nothing."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            self._disk.descriptors.give_back(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Disk(Places):
    """The one access to the file system. Every method may raise OSError."""

    _held: set[tuple[int, int]] = set()  # noqa: RUF012 - one per process, as POSIX locks are
    """Device and inode of the lock files this process holds: POSIX would let it lock them twice."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = trio.CapacityLimiter(_THREADS)
        self.descriptors = Descriptors(self._call)
        self.syncs = Syncs()
        self._copying: dict[Path, bool] = {}

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Every system call passes here; a test's disk overrides this one method."""
        return function(*args, **kwargs)

    # ── Names ──

    def exists(self, path: Path) -> bool:
        """Whether the name is there, whatever it is."""
        try:
            self._call(os.lstat, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: Path) -> bool:
        """Whether the name is a directory, or a link to one."""
        return self._call(os.path.isdir, path)

    def is_file(self, path: Path) -> bool:
        """Whether the name is that of a file itself, and of no link to one. Raises: OSError."""
        return stat.S_ISREG(self._call(os.lstat, path).st_mode)

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; none when the directory does not exist.

        The `lost+found` of a file system, which only root may read, is not among them.
        """
        try:
            return sorted(name for name in self._call(os.listdir, path) if name != LOST_FOUND)
        except FileNotFoundError:
            return []

    def entries(self, path: Path) -> dict[str, int | None]:
        """Names in a directory, sorted, with lengths of files and None for directories; LINK for
        a symbolic link to a file, which nothing opens.
        """
        if not self.exists(path):
            return {}
        with self._call(os.scandir, path) as listing:
            sizes = {entry.name: _length(entry) for entry in listing if entry.name != LOST_FOUND}
            return dict(sorted(sizes.items()))

    def folders(self, path: Path) -> list[str]:
        """Names of the directories in a directory, sorted; none when it does not exist."""
        try:
            with self._call(os.scandir, path) as listing:
                return sorted(
                    entry.name for entry in listing if entry.is_dir() and entry.name != LOST_FOUND
                )
        except (FileNotFoundError, NotADirectoryError):
            return []

    def readable(self, path: Path) -> list[str]:
        """Names in a directory, sorted; none where it may not be read, or is not there."""
        try:
            return self.listdir(path)
        except (PermissionError, NotADirectoryError):
            return []

    def mkdir(self, path: Path, *, sync: bool = True) -> None:
        """Create the directory and its parents, with `sync` durably; a no-op when it exists."""
        missing = [path]
        while not self.exists(missing[-1].parent):
            missing.append(missing[-1].parent)
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self._call(os.mkdir, directory, _DIRECTORY_MODE)
                if sync:
                    self.sync_directory(directory.parent)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        """Unlink a file; the directory is not synced."""
        try:
            self._call(os.unlink, path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self._call(os.rmdir, path)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, replacing an existing one; the directory is not synced."""
        self._call(os.replace, old, new)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        kept = self.descriptors.directories.get(path)
        if kept is not None:
            self._sync(os.fsync, kept, path)
            return
        fd = self.descriptors.take(os.open, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._sync(os.fsync, fd, path)
        finally:
            self.descriptors.give_back(fd)

    # ── Whole files ──

    def size(self, path: Path) -> int:
        """Length in bytes."""
        return self._call(os.stat, path).st_size

    def mode(self, path: Path) -> int:
        """The permission bits; of a symbolic link its own."""
        return stat.S_IMODE(self._call(os.lstat, path).st_mode)

    def identity(self, path: Path) -> tuple[int, int, int]:
        """Length in bytes, inode, and when the file changed last, in ns; (−1, 0, 0) without one."""
        try:
            status = self._call(os.lstat, path)
        except (FileNotFoundError, NotADirectoryError):
            return -1, 0, 0
        return status.st_size, status.st_ino, status.st_ctime_ns

    def mtime_ms(self, path: Path) -> int:
        """Time of the last modification, in ms."""
        return self._call(os.stat, path).st_mtime_ns // 1_000_000

    def read(self, path: Path) -> bytes:
        """All bytes of a (small) file."""
        with self.open(path, writable=False) as handle:
            pieces = []
            position = 0
            while piece := handle.pread(_COPY_BYTES, position):
                pieces.append(piece)
                position += len(piece)
            return b"".join(pieces)

    def write(self, path: Path, data: bytes) -> None:
        """Create or overwrite a small file in place, durably; not atomic."""
        with self.open(path, create=True) as handle:
            handle.truncate(len(data))
            handle.pwrite(data, 0)
            self._sync(os.fsync, handle.fd, path)
        self.sync_directory(path.parent)

    def write_atomically(self, path: Path, data: bytes, *, backup: bool = True) -> None:
        """Replace a file: after a crash it has the old or the new content, never a mixture.

        With `backup` the old content stays reachable as `<name>.bak`.
        """
        temporary = path.with_name(temporary_name(path.name))
        with self.open(temporary, create=True) as handle:
            handle.truncate(0)
            handle.pwrite(data, 0)
            self._sync(os.fsync, handle.fd, temporary)
        if backup and self.exists(path):
            self._keep_backup(path)
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def remove_durably(self, path: Path) -> None:
        """Remove a file, if it is there: no crash brings it back. Raises: OSError."""
        self.remove(path, missing_ok=True)
        self.sync_directory(path.parent)

    def _keep_backup(self, path: Path) -> None:
        backup = path.with_name(backup_name(path.name))
        self.remove(backup, missing_ok=True)
        try:
            self._call(os.link, path, backup)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # No hard links here: for a moment only the backup has the content, as readers know.
            self.rename(path, backup)

    # ── Files of fixed size ──

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
        """Open a file; a symbolic link in its place is refused."""
        flags = os.O_NOFOLLOW | (os.O_RDWR if writable or create else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        return Handle(self, self.descriptors.take(os.open, path, flags, _FILE_MODE), path)

    def allocate(self, path: Path, size: int, data: bytes = b"") -> Handle:
        """Create a file of `data` and zeros with every block reserved, durably, with its name."""
        handle = self._make(path, size, data, fill=True, sync=True)
        try:
            self.sync_directory(path.parent)
        except BaseException:
            handle.close()
            raise
        return handle

    def create(
        self, path: Path, size: int, data: bytes = b"", position: int = 0, *, sync: bool = False
    ) -> Handle:
        """Create a sparse file of `size` bytes that holds `data` when its name appears; with `sync`
        after a power cut as well.

        The name is durable with the next sync of its directory.
        """
        return self._make(path, size, data, position, fill=False, sync=sync)

    def move_in_and_out(self, spare: Path, inner: Path, size: int) -> None:
        """Whether a file of zeros made there can be moved, tried. Raises: OSError."""
        try:
            with self.open(spare, create=True) as handle:
                handle.truncate(0)
                handle.truncate(size)
            self.rename(spare, inner)
            self.rename(inner, spare)
        except OSError:
            self._discard(spare)
            raise

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self.remove(path, missing_ok=True)

    def _make(
        self, path: Path, size: int, data: bytes, position: int = 0, *, fill: bool, sync: bool
    ) -> Handle:
        # Other brokers refuse to start over a file of the wrong length, so it grows elsewhere.
        place = self.place_of(path, size) if fill else spare_path(path)
        if path.parent not in self._apart:
            try:
                return self._make_at(place, path, size, data, position, fill=fill, sync=sync)
            except OSError as error:
                if not self._is_apart(path.parent, error):
                    raise
                self._apart.add(path.parent)
        place = inner_path(path)
        return self._make_at(place, path, size, data, position, fill=fill, sync=sync)

    def _make_at(
        self,
        place: Path,
        path: Path,
        size: int,
        data: bytes,
        position: int,
        *,
        fill: bool,
        sync: bool,
    ) -> Handle:
        handle = self.open(place, create=True)
        try:
            handle.truncate(0)
            handle.truncate(size)
            if fill:
                self.fill(handle, size)
            handle.pwrite(data, position)
            if sync:
                self._sync(os.fsync, handle.fd, path)
            if place != path:
                self.rename(place, path)
        except BaseException:
            handle.close()
            self._discard(place)
            raise
        handle.path = path
        return handle

    def fill(self, handle: Handle, size: int) -> None:
        """Reserve every block up to `size`; changes no byte. Raises: OSError (ENOSPC)."""
        handle.fill(size)

    def map(self, handle: Handle, size: int, *, writable: bool) -> mmap.mmap:
        """Map the first `size` bytes, shared. The mapping outlives the handle."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return self.descriptors.take(mmap.mmap, handle.fd, size, access=access, **UNTRACKED)

    def maps_writes(self, path: Path) -> bool:
        """Whether a mapping of a file in this directory, with all its blocks, takes any write."""
        copying = self._copying.get(path.parent)
        if copying is None:
            copying = self._copying[path.parent] = self.copies_on_write(path.parent)
        return not copying

    def forget_pages(self, mapping: mmap.mmap) -> None:
        """Empty the page table of a mapping; its readers fault the pages in again.

        Unmapping a whole GiB in one call would hold the GIL for 20 ms.
        """
        size = len(mapping)
        for at in range(0, size, _UNMAP_BYTES):
            mapping.madvise(mmap.MADV_DONTNEED, at, min(_UNMAP_BYTES, size - at))

    def memory(self, size: int) -> mmap.mmap:
        """Anonymous memory of zeros: only written pages cost memory."""
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def zero(self, handle: Handle, begin: int, end: int, *, sync: bool = True) -> int:
        """Overwrite [begin, end) with zeros; returns the end of the other bytes that were there.

        Synced when anything was written, unless the caller does. Holes and reserved blocks stay.
        """
        reach = begin
        for first, last in list(handle.data_ranges(begin, end)):
            for at in range(first, last, _COPY_BYTES):
                piece = handle.pread(min(_COPY_BYTES, last - at), at)
                # Comparing is ten times as fast as searching for the last byte that is not zero.
                if piece != _ZEROS[: len(piece)]:
                    used = len(piece.rstrip(b"\0"))
                    handle.pwrite(bytes(used), at)
                    reach = at + used
        if sync and reach > begin:
            self.sync(handle)
        return reach - begin

    def rewrite(self, handle: Handle, begin: int, end: int) -> None:
        """Write [begin, end) again with the same bytes, and sync.

        After a failed sync the page cache may show, as clean, what the disk lacks.
        """
        for at in range(begin, end, _COPY_BYTES):
            handle.pwrite(handle.pread(min(_COPY_BYTES, end - at), at), at)
        self.sync(handle)

    # ── Durability ──

    def sync(self, handle: Handle) -> None:
        """Block until the file's bytes are on disk, those written through mappings included.

        Raises: SyncFailed.
        """
        self._sync(os.fdatasync, handle.fd, handle.path)

    def _sync(self, function: Callable[[int], None], fd: int, path: Path) -> None:
        with self.syncs.one(path):
            self._call(function, fd)

    async def in_thread(self, function: Callable[..., R], *args: Any) -> R:
        """Run a blocking call of this disk in one of a few threads."""
        return await in_thread(function, *args, limiter=self._limiter)

    # ── Locks ──

    def lock(self, path: Path) -> Handle:
        """Hold byte 0 of a file exclusively, as Java's brokers do, until the handle is unlocked.

        Raises: BlockingIOError naming the holder's pid, which may be our own, where it is seen.
        """
        # Closing any descriptor of a locked file drops the lock, so no second one is opened.
        if self.exists(path) and _identity(self._call(os.stat, path)) in self._held:
            raise BlockingIOError(
                errno.EAGAIN, f"held by this process, pid {os.getpid()}", str(path)
            )
        handle = self.open(path, create=True)
        try:
            self._call(fcntl.lockf, handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
        except OSError as error:
            holder = _holder(handle.fd) if error.errno in (errno.EAGAIN, errno.EACCES) else ""
            handle.close()
            if holder or error.errno == errno.EAGAIN:
                held = f"held by {holder or 'a process of another container or machine'}"
                raise BlockingIOError(errno.EAGAIN, held, str(path)) from error
            raise
        self._held.add(_identity(self._call(os.fstat, handle.fd)))
        return handle

    def lock_directory(self, path: Path) -> Handle:
        """Hold a directory exclusively until the handle is closed, where its file system knows such
        locks. Nothing is made in it. Raises: BlockingIOError; OSError when it cannot be opened.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY
        handle = Handle(self, self.descriptors.take(os.open, path, flags), path)
        try:
            self._call(fcntl.flock, handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise
        except OSError:
            pass  # Network file systems may know none; the lock file keeps others out there.
        return handle

    def keep_whole(self, handle: Handle) -> None:
        """Have no other process shorten the file until the handle is closed, where its file system
        knows such locks: what is mapped of it would be the end of this one.
        """
        with contextlib.suppress(OSError):
            self._call(fcntl.flock, handle.fd, fcntl.LOCK_SH)

    def is_kept_whole(self, handle: Handle) -> bool:
        """Whether another process keeps the file whole; if not, none can until the handle is
        closed.
        """
        try:
            self._call(fcntl.flock, handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass  # As above.
        return False

    def unlock(self, handle: Handle) -> None:
        """Release a lock."""
        self._held.discard(_identity(self._call(os.fstat, handle.fd)))
        handle.close()


def _length(entry: os.DirEntry[str]) -> int | None:
    if entry.is_dir():
        return None
    return LINK if entry.is_symlink() else entry.stat().st_size


def _identity(status: os.stat_result) -> tuple[int, int]:
    """Device and inode, which identify a file whatever its names are."""
    return status.st_dev, status.st_ino


def _holder(fd: int) -> str:
    """The process that holds the lock; empty when the system does not say."""
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        pid = int(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))[4])
    except (OSError, ValueError):
        return ""
    # Of a lock taken over NFS it is negative, and a number of that machine.
    return f"pid {pid}" if pid > 0 else ""
