"""The recovery point: how far a start after a crash need not look back, about a second old.

The checkpoint moves once a minute and holds times, because other brokers read it; this file holds
physical offsets and is ours alone. It has two slots, written in turn, each with a CRC: a write that
a power cut tears damages the older slot, not both. What it says was synced before it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

__all__ = ["RecoveryPoint", "RecoveryPointFile"]

SLOT_BYTES = 512
"""No more than the smallest sector."""
SLOTS_AT = (0, 4_096)
"""In pages of their own."""
FILE_BYTES = SLOTS_AT[-1] + SLOT_BYTES


class RecoveryPoint(msgspec.Struct, frozen=True):
    """What was true when it was written. It says nothing to anybody but its `owner`."""

    number: int
    """The larger one counts."""
    owner: str
    """What the lock file says while no other broker was here since."""
    boot: str
    """The time between two starts of the system: within it the page cache outlives a kill."""
    log_end: int
    """The log before this byte is on disk, and each message of it has its unit in a queue file."""
    queues_end: int
    """Of the messages before this byte, no later than `log_end`, the units are on disk as well."""
    queues_units: int
    """The ends of all queues there, added up: none is shorter while their sum is not."""
    units: int
    """The same sum at `log_end`."""
    last: int
    """Where the last record before `log_end` begins; −1 without one."""
    last_crc: int
    """Of its head."""
    extents: int = 0
    """The checksum of the file of queue extents; 0 without one that counts."""


class _Document(msgspec.Struct):
    """A slot: JSON, and what it must amount to."""

    crc: int
    point: msgspec.Raw


class RecoveryPointFile:
    """Read at a start after a crash, written about once a second while there is news. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> RecoveryPoint | None:
        """The newest one; None without one that can be trusted. Raises: OSError."""
        if not self._disk.exists(self.path):
            return None
        data = self._disk.read(self.path)
        found = [_slot(data[at : at + SLOT_BYTES]) for at in SLOTS_AT]
        return max(filter(None, found), key=lambda point: point.number, default=None)

    def write(self, point: RecoveryPoint, *, sync: bool) -> None:
        """Put it in the slot of the last but one; with `sync` it outlives a power cut.

        Raises: OSError.
        """
        body = msgspec.json.encode(point)
        data = msgspec.json.encode(_Document(crc32(body), msgspec.Raw(body)))
        assert len(data) <= SLOT_BYTES, point
        fresh = not self._disk.exists(self.path)
        with self._disk.open(self.path, create=True) as handle:
            if handle.size() != FILE_BYTES:
                handle.truncate(FILE_BYTES)
            handle.pwrite(data.ljust(SLOT_BYTES), SLOTS_AT[point.number % len(SLOTS_AT)])
            if sync:
                self._disk.sync(handle)
        if fresh:
            self._disk.sync_directory(self.path.parent)


def _slot(data: bytes) -> RecoveryPoint | None:
    try:
        document = msgspec.json.decode(data, type=_Document)
        if crc32(document.point) != document.crc:
            return None
        return msgspec.json.decode(document.point, type=RecoveryPoint)
    except msgspec.DecodeError:
        return None
