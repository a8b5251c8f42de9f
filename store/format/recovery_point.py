"""The recovery point: the bytes of a small file that says how far log and queues are on disk.

The file has two slots, written in turn, each with a CRC: a write that a power cut tears damages the
older slot, not both.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

SLOT_BYTES = 512
"""No more than the smallest sector."""
SLOTS_AT = (0, 4_096)
"""In pages of their own."""
FILE_BYTES = SLOTS_AT[-1] + SLOT_BYTES


class RecoveryPoint(msgspec.Struct, frozen=True):
    """The state of log and queues when the point was written. Valid only for its `owner`."""

    number: int
    """The slot with the larger number is valid."""
    owner: str
    """The owner in the lock file, while no other broker was here since."""
    boot: str
    """The boot of the system: within it the page cache survives a kill."""
    log_end: int
    """The log before this byte is on disk, and each message of it has its unit in a queue file."""
    queues_end: int
    """Of the messages before this byte, no later than `log_end`, the units are on disk as well."""
    queues_units: int
    """The sum of the ends of all queues there: none is shorter while their sum is not."""
    units: int
    """The sum of the ends of all queues at `log_end`."""
    last: int
    """Where the last record before `log_end` begins; −1 without one."""
    last_crc: int
    """The CRC of its head."""
    extents: int = 0
    """The checksum of the file of queue extents; 0 without a valid one."""


class _Document(msgspec.Struct):
    """A slot: JSON, and its CRC."""

    crc: int
    point: msgspec.Raw


def newest_point(data: bytes) -> RecoveryPoint | None:
    """The newest point of a file with these bytes; None without a valid one."""
    slots = [_slot(data[at : at + SLOT_BYTES]) for at in SLOTS_AT]
    return max(filter(None, slots), key=lambda point: point.number, default=None)


def slot_of(point: RecoveryPoint) -> bytes:
    """The bytes of the slot of a point."""
    body = msgspec.json.encode(point)
    data = msgspec.json.encode(_Document(crc32(body), msgspec.Raw(body)))
    assert len(data) <= SLOT_BYTES, point
    return data.ljust(SLOT_BYTES)


def _slot(data: bytes) -> RecoveryPoint | None:
    try:
        document = msgspec.json.decode(data, type=_Document)
        if crc32(document.point) != document.crc:
            return None
        return msgspec.json.decode(document.point, type=RecoveryPoint)
    except msgspec.DecodeError:
        return None
