"""Names of files and directories in a store directory. Pure: names in, names out."""

from __future__ import annotations

from pathlib import PurePath
from typing import TypeVar

_SPARE = ".new"
_MARK = ".done"
AnyPath = TypeVar("AnyPath", bound=PurePath)

ABORT = "abort"
"""Exists while a broker runs on the directory."""
LOCK = "lock"
CHECKPOINT = "checkpoint"
COMMIT_LOG = "commitlog"
CONSUME_QUEUE = "consumequeue"
INDEX = "index"
CONFIG = "config"
TIMER_WHEEL = "timerwheel"
TIMER_LOG = "timerlog"
TIMER_CHECK = "timercheck"
"""Within `config`, as Java's brokers have it."""
TIMERS_DONE = "timersDone.json"
"""Ours, within `config`: which timers the master has delivered into this log."""
LAST_STOP = "laststop.json"
"""Ours: how far every queue went when the store was closed."""
QUEUE_EXTENTS = "queueextents.json"
"""Ours: what consume queues reached, and when their files changed last."""
RECOVERY_POINT = "recoverypoint.json"
"""Ours: how far log and queues were on disk a second ago."""
CUT_MARK = "cut.json"
"""Ours: the log is being cut there; the next start ends that."""
CUT = "cut"
"""Ours: what was cut off the log, a directory for each cut."""
EMPTIED = "emptied"
"""Ours: this member of a group has lost its log, and not yet copied all of it."""
OLD_TABLES = "oldtables"
"""Ours: the log of this member was cut, and its tables may know of what was behind; or they were
gone."""
UNSYNCED = "unsynced"
"""Ours: a power cut may have taken the last bytes of this member of a group, and it has not got all
of a master's log since."""
MEMBER = "member"
"""Ours: the number of the member of a group with etcd whose directory this is."""
SAVED_TOPICS = "savedtopics"
"""Ours: topics that clients made were saved in `config/topics.json`: it is not begun anew."""
ARCHIVE = "archive"
"""Ours: one mark for each log segment that has been archived."""
RESERVE = "reserve"
"""Blocks set aside so that a stop on a full disk still has room."""
LOST_FOUND = "lost+found"
"""The directory at the root of a file system of its own; nobody's, and read by root only."""
SEGMENT_DIGITS = 20
INDEX_DIGITS = 17


def segment_name(start: int) -> str:
    """The file that starts at this byte of its queue: 20 decimal digits."""
    assert start >= 0, start
    return f"{start:020d}"


def segment_start(name: str) -> int | None:
    """The first byte a segment file holds, or None for a name that is not one."""
    if len(name) == SEGMENT_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


def is_queue_name(name: str) -> bool:
    """Whether the directory of that name, in that of a topic, is a queue's: its plain number, of 31
    bits.
    """
    number = int(name) if name.isascii() and name.isdigit() else -1
    return name == str(number) and number < 1 << 31


def mark_name(start: int) -> str:
    """The file that says that the segment starting there has been archived."""
    return segment_name(start) + _MARK


def marked_segment(name: str) -> int | None:
    """Where the segment of a mark starts, or None for a name that is not a mark's."""
    return segment_start(name.removesuffix(_MARK)) if name.endswith(_MARK) else None


def file_start(offset: int, file_size: int) -> int:
    """Start of the file that holds this byte."""
    return offset - offset % file_size


def index_name(stamp: int) -> str:
    """The index file made at this local time, year to millisecond."""
    return f"{stamp:0{INDEX_DIGITS}d}"


def is_index_name(name: str) -> bool:
    """Whether other brokers, too, take a file of that name for an index: a number."""
    return name.isascii() and name.isdigit()


def spare_path(path: AnyPath) -> AnyPath:
    """Where a file is made before it gets its name: beside its directory, never in it.

    Brokers stop at foreign files in a directory of segments.
    """
    return path.parent.with_name(f"{path.parent.name}.{path.name}{_SPARE}")


def inner_path(path: AnyPath) -> AnyPath:
    """Where a file is made before it is complete if it cannot be made beside its directory.

    A segment has its own name from the beginning, as with other brokers: they stop at any other
    name there. In the directory of the index they pass over names that are no numbers.
    """
    if segment_start(path.name) is not None:
        return path
    return path.with_name(f"{path.name}{_SPARE}")


def is_spare_of(directory: str, name: str) -> bool:
    """Whether this is a file that was to become a segment of the directory of that name."""
    folder, _, start = name.removesuffix(_SPARE).rpartition(".")
    return name.endswith(_SPARE) and folder == directory and segment_start(start) is not None


def is_spare(name: str) -> bool:
    """Whether this is a file that a crash kept from getting its name; it may go."""
    folder, _, start = name.removesuffix(_SPARE).rpartition(".")
    if not name.endswith(_SPARE):
        return False
    in_index = folder in (INDEX, "") and is_index_name(start)
    return segment_start(start) is not None or in_index


def temporary_name(name: str) -> str:
    """The file that is written before it takes this name."""
    return name + ".tmp"


def backup_name(name: str) -> str:
    """The file that keeps the content before the last change."""
    return name + ".bak"
