"""Faults of the log, where no whole record is: one vocabulary for all readers.

`record.parse` returns a `NoRecord`, `walk.fault_at` the same in words. Recovery, dispatch, the
index, the tools and Spark's readers decide by `kind`; reports of `aerobee store` and Spark show it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

BAD_MAGIC: Final = "badMagic"
"""Neither a record nor the blank begins like this."""
BAD_SIZE: Final = "badSize"
"""Less than a record has, or more than is left."""
WRONG_OFFSET: Final = "wrongOffset"
"""A record with another physical offset, from elsewhere."""
BAD_LENGTHS: Final = "badLengths"
"""The parts do not add up to the size, or the topic is invalid."""
CRC: Final = "crc"
"""A whole record whose body does not match its CRC."""
TIME_BACKWARDS: Final = "timeBackwards"
"""A record that was stored before the one in front of it."""
QUEUE_GAP: Final = "queueGap"
"""A record whose queue offset is not the next one, and no damage explains it."""
CQ_MISSING: Final = "cqMissing"
"""A message without a unit in its consume queue."""
CQ_MISMATCH: Final = "cqMismatch"
"""A unit that leads elsewhere than to its message, or nowhere."""
CQ_TAG_MISMATCH: Final = "cqTagMismatch"
"""A unit with another tags code than its message."""
BEGIN: Final = "begin"
"""The oldest segments of the log are gone, though nobody could have deleted them."""
HOLE: Final = "hole"
"""A segment of the log, or a file of a queue, that is missing."""
TAIL: Final = "tail"
"""Bytes behind the end of the log."""
ZEROS: Final = "zeros"
"""Nothing was written here: no damage at the end of the log."""
BLANK: Final = "blank"
"""The segment ends here; the log continues in the next one."""
MORE: Final = "more"
"""The buffer ends too early to tell."""
END: Final = ""
"""As far as was asked for."""


IN_THE_LOG: Final = frozenset({BAD_MAGIC, BAD_SIZE, WRONG_OFFSET, BAD_LENGTHS, CRC})
"""Damage of the log itself."""
IN_THE_QUEUES: Final = frozenset({QUEUE_GAP, CQ_MISSING, CQ_MISMATCH, CQ_TAG_MISMATCH})
"""Contradictions between consume queues and log."""


class NoRecord(msgspec.Struct, frozen=True, gc=False):
    """Why there is no whole record."""

    kind: str
    size: int = 0
    """The size that the record claims, where only its parts do not add up; else 0."""


class Fault(NamedTuple):
    """The fault at a physical offset; `detail` in words."""

    kind: str
    physical_offset: int
    detail: str


class Stop(NamedTuple):
    """Why a walk ended at a physical offset: END, MORE, BLANK, or the kind of a fault.

    `size` is how many bytes from there on it takes to go on with MORE, and as in `NoRecord` else.
    """

    kind: str
    physical_offset: int
    size: int = 0
