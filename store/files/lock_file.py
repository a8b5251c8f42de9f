"""The locks of a store: one broker at a time, ours or Java's.

Invariant: taken before anything in the directory is changed, kept until the last file is closed.
One descriptor per process, since closing any would drop the lock. A log directory has a lock of its
own, since two data directories may name the same one. Source: store format §1.6.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from aerobee.store.errors import NO_ROOM, StoreLocked, StoreUnusable, no_room, remedy_for

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle

_CONTENT = b"lock"
_OURS = b"aerobee "
_CONTENT_BYTES = 64


class LockFile:
    """Held from `acquire` to `release`."""

    __slots__ = ("_disk", "_handle", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._handle: Handle | None = None
        self.path = path

    @property
    def held(self) -> bool:
        """Whether this store holds the lock."""
        return self._handle is not None

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises: StoreLocked when another store has it, StoreUnusable when it cannot be created,
        OSError where the disk has no room for it.
        """
        assert self._handle is None, self
        try:
            handle = self._disk.lock(self.path)
        except BlockingIOError as error:
            raise StoreLocked(
                f"{self.path} is {error.strerror}: stop that broker, or choose another directory "
                "with storePathRootDir"
            ) from error
        except OSError as error:
            raise _unusable(self.path, error) from error
        self._handle = handle
        if handle.size() == 0:
            handle.pwrite(_CONTENT, 0)

    def owner(self) -> str:
        """The last run of this broker on the directory; "" when another broker was here since.

        Other brokers write `lock` to the start of the file at each start. Raises: OSError.
        """
        assert self._handle is not None, self
        content = self._handle.pread(_CONTENT_BYTES, 0)
        return content.decode("ascii", "replace") if content.startswith(_OURS) else ""

    def claim(self, name: str) -> str:
        """Record durably that this run uses the directory; returns the new `owner`. Raises:
        OSError.
        """
        assert self._handle is not None, self
        content = _OURS + name.encode()
        assert len(content) <= _CONTENT_BYTES, content
        self._handle.truncate(len(content))
        self._handle.pwrite(content, 0)
        self._disk.sync(self._handle)
        return content.decode()

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._disk.unlock(handle)


class LogLock:
    """The lock of a log directory, from `acquire` to `release`."""

    __slots__ = ("_disk", "_handle", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._handle: Handle | None = None
        self.path = path

    def acquire(self) -> None:
        """Take the lock, unless it is held, or the directory is not there yet.

        Raises: StoreLocked, OSError.
        """
        if self._handle is not None or not self._disk.is_directory(self.path):
            return
        try:
            self._handle = self._disk.lock_directory(self.path)
        except BlockingIOError as error:
            raise StoreLocked(
                f"{self.path} is the log of another broker that runs: stop that broker, or give "
                "this one a storePathCommitLog of its own"
            ) from error

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()


def _unusable(path: Path, error: OSError) -> StoreUnusable | OSError:
    if error.errno in NO_ROOM:
        return no_room(path, error)
    reason = f"cannot be opened for writing ({error.strerror}): {remedy_for(error)}"
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
        reason = f"cannot be locked ({error.strerror}): this file system knows no locks"
    return StoreUnusable(f"{path} {reason}")
