"""The errors of a store or a message, as a tree.

StoreError
├─ MessageIllegal          the message cannot be stored as it is; nothing was written
│  └─ PropertiesTooLong      its property string exceeds the 32,767 bytes of the format
├─ RecordDamaged           the bytes at that offset are no whole record
├─ NotInMemory             an answer needs pieces that must be read from disk first
├─ NotRepeatable           a call that has put something wants to be made again for a read
├─ SegmentLate             the next segment of the log is still being made; nothing was written
├─ ReplicationRefused      what a master sends cannot be the continuation of this log
│  ├─ FrameIllegal           a frame has numbers that no frame can have
│  ├─ FrameMisplaced         its bytes belong elsewhere than to the end of this log
│  ├─ ReplicaBytesWrong      its bytes are not the record that belongs there
│  └─ LogsUnrelated          the two logs have nothing in common that this one could go on from
├─ SlaveRefused            a slave may not have the log: no member, or this is no master
└─ StoreRefused            the start is refused: file and remedy in the text, nothing changed
   ├─ StoreLocked            another process, or another store of this one, holds the lock file
   ├─ StoreForeign           the directory carries data of a kind that is not served here
   ├─ StoreUnusable          the directory cannot be made, read or written
   └─ StoreDamaged           files contradict each other; recovery must not choose
OSError
├─ SyncFailed              a sync failed: what it was to make durable may be lost
└─ Unreadable              the disk cannot read some bytes, as of a bad sector; the rest it can
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class StoreError(Exception):
    """Base of everything the store raises on purpose."""


class SyncFailed(OSError):
    """fsync or fdatasync failed: the kernel takes for clean what the disk may lack, for good.

    Other calls that fail, for want of descriptors, memory or room, leave everything as it was.
    """


class Unreadable(OSError):
    """The disk cannot read bytes of a file (EIO), as of a bad sector.

    It says nothing about the bytes beside them: a reader goes on in front of them, and behind.
    """


class MessageIllegal(StoreError):
    """The message breaks a rule of the format or a limit; it is not in the log."""


class PropertiesTooLong(MessageIllegal):
    """The encoded property string does not fit its length field."""


class RecordDamaged(StoreError):
    """The bytes at that offset are not a whole record."""


class Piece(NamedTuple):
    """Bytes of one file, to be read in one call."""

    path: Path
    position: int
    size: int


class NotInMemory(StoreError):
    """The call would have to wait for the disk; `MessageStore.complete` does, outside the loop."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(f"{sum(piece.size for piece in pieces)} bytes must be read from disk")
        self.pieces = pieces


class NotRepeatable(StoreError):
    """A call that only reads may be made again; this one had an effect, or has no end."""


class SegmentLate(StoreError):
    """The log must roll, and its next segment is still being allocated; nothing has changed."""


class ReplicationRefused(StoreError):
    """Bytes of a master are not taken; all in front of them is in the log, nothing behind."""


class FrameIllegal(ReplicationRefused):
    """The head of a frame has a size or an offset that no frame can have."""


class FrameMisplaced(ReplicationRefused):
    """A frame is not for the end of this log, or for no begin of a segment where it is empty."""


class ReplicaBytesWrong(ReplicationRefused):
    """The bytes are neither the record that belongs there nor the blank that ends a segment."""


class LogsUnrelated(ReplicationRefused):
    """By their epochs the logs have nothing in common, or this one cannot end where that ends."""


class SlaveRefused(StoreError):
    """A slave is not sent the log: it is no member of the group, or this is not the master."""


class StoreRefused(StoreError):
    """The store does not start; the message names the file and the remedy."""


class StoreLocked(StoreRefused):
    """Another store holds the lock file of this directory."""


class StoreForeign(StoreRefused):
    """The directory holds data of a kind that is not served here."""


class StoreUnusable(StoreRefused):
    """The directory cannot be made, read or written."""


OPEN_FILES_REMEDY: Final = "raise the limit on open files (ulimit -n, LimitNOFILE)"
_REMEDIES: Final = {
    errno.EMFILE: OPEN_FILES_REMEDY,
    errno.ENFILE: OPEN_FILES_REMEDY,
    errno.ENOENT: (
        "mount or make what is to be there, or choose another directory with storePathRootDir"
    ),
    errno.EROFS: (
        "its file system is mounted read-only: mount it for writing, or choose another directory "
        "with storePathRootDir"
    ),
    errno.ESTALE: "the server of its file system has another one there now: mount it again",
    errno.ELOOP: "a symbolic link is not followed there, put the file itself in its place",
    errno.EIO: (
        "its disk cannot read or write it, and the log of the system says more (dmesg); restore it "
        "from a copy on a disk that works"
    ),
}


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def no_room(path: object, error: OSError) -> OSError:
    """The error of a start on a full disk: no refusal, as the same start works later."""
    return OSError(
        error.errno,
        f"{error.filename or path} cannot be written ({error.strerror}): make room on its disk "
        "(df, df -i), or raise the quota; what is stored is safe, and the next start continues",
    )


def remedy_for(error: OSError) -> str:
    """The remedy for a start that an error of its directory has ended."""
    right = "give this user the directory, or choose another one with storePathRootDir"
    return _REMEDIES.get(error.errno or 0, right)


class StoreDamaged(StoreRefused):
    """Files contradict each other in a way that recovery must not decide alone."""


CONTENT_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MessageIllegal,
    RecordDamaged,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    struct.error,
)
"""Errors that the content of a stored message can cause in a service. Errors of the disk, of memory
and of our own asserts are not among them."""
