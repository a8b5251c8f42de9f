"""The results of the store: statuses are values, not exceptions."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003  (read at run time by msgspec)
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from aerobee.store.format.record import Record


class PutStatus(Enum):
    """How an append ended. Source: store format §2.5 (PutMessageStatus)."""

    # That of Enum is a Python function over the name.
    __hash__ = object.__hash__

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    """In the log, but not known to be on disk within the timeout."""
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    SERVICE_NOT_AVAILABLE = auto()
    """Not stored: shut down, disk full, or a sync of the store failed."""
    SEGMENT_LATE = auto()
    """Ours. Not stored: the next segment is still being allocated, `MessageStore.after_wait` tells
    when to put again."""


class PutOutcome(Enum):
    """Where a message is that was put, when its sender has waited; only DURABLE is true."""

    __hash__ = object.__hash__

    DURABLE = auto()
    """Everywhere where it should be."""
    DISK_LATE = auto()
    """In the log, but not known to be on disk within the timeout."""
    SLAVE_LATE = auto()
    """In the log, but no slave has said so within the timeout, or not enough of them."""
    NO_SLAVE = auto()
    """In the log, and there are not enough slaves to wait for."""
    NO_LEASE = auto()
    """In the log, and this broker may not say so: it may be the master of its group no more."""

    def __bool__(self) -> bool:
        return self is PutOutcome.DURABLE


UNSTORABLE: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""The message itself is the reason: no later put of it succeeds."""


class Location(NamedTuple):
    """The position of a message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def location_of(record: Record) -> Location:
    """The location of a record."""
    return Location(record.topic, record.queue_id, record.queue_offset, record.physical_offset)


class PutResult(msgspec.Struct, gc=False):
    """The positions of the messages of one put.

    `physical_offset` and `queue_offset` are those of the first of `count` messages, `size` is the
    sum of their records in bytes. A sync must reach `end_offset`.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    size: int = 0
    count: int = 0
    store_timestamp: int = 0
    offsets: Sequence[int] = ()
    """Of a batch: the physical offset of each message."""
    between: int = 0
    """Bytes of others between the parts of a long batch."""

    @property
    def end_offset(self) -> int:
        """The offset behind the last byte."""
        return self.physical_offset + self.size + self.between


class GetStatus(Enum):
    """How a read of a queue ended. Source: store format §7.1 (GetMessageStatus)."""

    __hash__ = object.__hash__

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MESSAGE_IN_QUEUE = auto()
    OFFSET_RESET = auto()


class GetResult(msgspec.Struct):
    """Messages of one queue, as stored.

    `views` are read-only windows into log segments, in queue order; adjacent records share one.
    They stay readable as long as they are referenced. `size` is their sum in bytes.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    views: list[memoryview] = []
    size: int = 0
    count: int = 0
    suggest_slave: bool = False
    """The reader lags by more than what is probably in memory."""


class QueryResult(msgspec.Struct):
    """Messages with a key, as stored, in the order of the log."""

    records: list[bytes]
    index_timestamp: int
    """Store time of the last message in the index, in ms; 0 when there is none."""
    index_physical_offset: int


class UnitStatus(Enum):
    """The result of adding a unit to a consume queue."""

    ADDED = auto()
    REPEATED = auto()
    GAP = auto()
    """Units before it are missing: nothing was added, the queue must be rebuilt."""


class Recovery(msgspec.Struct, frozen=True):
    """The result of a recovery."""

    clean: bool
    """No abort file was found."""
    may_lack: bool = False
    """The last run crashed, and its page cache is gone: what it had not synced may be lost."""
    cut_bytes: int = 0
    """Bytes after the last whole record that were cut off and zeroed."""
    elapsed_ms: int = 0
    start_offset: int = 0
    """Where the walk through the log began."""
    end_offset: int = 0
    """End of the log."""
    records: int = 0
    """Records of the walk."""
    last_store_timestamp: int = 0
    """Store time of the log's last record, in ms; 0 for an empty log."""
    rebuilt_queues: int = 0
    """Consume queues that were rebuilt from the whole log."""
    last_position: int = -1
    """Where the log's last record begins; −1 for an empty log."""
    queues_end: int = 0
    """Every message before this byte of the log has its unit on disk."""


class RecoveryProgress(msgspec.Struct):
    """The progress of a start."""

    step: str = "open"
    """`open`, `queues` (finding their ends), `log` (the walk), `rebuild` (of queues, from all of
    the log) or `sync`."""
    physical_offset: int = 0
    """How far the walk has come; 0 before it."""
    end_offset: int = 0
    """How far it can come at most."""
