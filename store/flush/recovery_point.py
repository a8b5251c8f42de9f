"""The recovery point: where recovery may begin after a crash, about a second old.

The checkpoint is written once a minute and has times, because other brokers read it; this file has
physical offsets and is ours alone. It has two slots, written in turn, each with a CRC: a write that
a power cut tears damages the older slot, not both. Bytes that the point calls synced were synced
before it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.files.disk import Disk

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


class RecoveryPointFile:
    """Read at a start after a crash, written about once a second while there is news. Blocking."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def load(self) -> RecoveryPoint | None:
        """The newest point; None without a valid one. Raises: OSError."""
        if not self._disk.exists(self.path):
            return None
        data = self._disk.read(self.path)
        slots = [_slot(data[at : at + SLOT_BYTES]) for at in SLOTS_AT]
        return max(filter(None, slots), key=lambda point: point.number, default=None)

    def write(self, point: RecoveryPoint, *, sync: bool) -> None:
        """Write it over the older slot; with `sync` it survives a power cut.

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
