"""The manifest of an archive, segment by segment, and the marks for the broker.

An entry is written when its rows were read back, counted and synced; the mark in the store root
follows. So there is no mark without its entry, and an entry without a mark means that the broker
does not know yet. Each entry is a file of its own: earlier ones are not written again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import AerobeeError
from aerobee.spark.jobs.places import sync
from aerobee.store.format.names import ARCHIVE, mark_name, segment_start, temporary_name

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.spark.jobs.places import Place

MANIFEST = "_manifest"
"""The directory below the archive; readers of its rows skip names with this prefix."""
SUFFIX = ".json"
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


class Mark(msgspec.Struct, frozen=True):
    """The mark of a segment: name, size and CRC-32 of its file, number of records, job."""

    segment: str
    bytes: int
    records: int
    crc32: int
    job: str


class Entry(Mark, frozen=True):
    """A mark, with the further fields of the archive. Times in ms since 1970.

    An entry that is not `sealed` has the growing end of the log: a beginning of the segment, which
    will be archived again.
    """

    sealed: bool = True
    min_store_timestamp: int = 0
    max_store_timestamp: int = 0
    log: str = ""
    """Id of the log, as `same_log` keeps it in the store root; empty without one."""
    first_crc32: int = 0
    """CRC-32 of the first record of the segment, over all its bytes."""
    last_offset: int = 0
    """The physical offset of the last archived record."""
    last_crc32: int = 0

    @property
    def start(self) -> int:
        """The physical offset of the segment's first byte."""
        return int(self.segment)


class Manifest:
    """The entries of one archive."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def load(self) -> dict[int, Entry]:
        """All entries by the starts of their segments. Raises: AerobeeError for an invalid one."""
        entries = {}
        for name in self.place.names():
            start = segment_start(name.removesuffix(SUFFIX))
            if name.endswith(SUFFIX) and start is not None:
                entries[start] = self._read(name)
        return dict(sorted(entries.items()))

    def put(self, entry: Entry) -> None:
        """Add or replace an entry, durably."""
        self.place.write(entry.segment + SUFFIX, msgspec.json.encode(entry) + b"\n")

    def _read(self, name: str) -> Entry:
        try:
            return msgspec.json.decode(self.place.read(name), type=Entry)
        except msgspec.DecodeError as error:
            raise AerobeeError(
                f"{self.place.path}/{name} is no entry of an archive: {error}; "
                "remove it to have its segment archived again"
            ) from error


def make_marks(store: Path) -> Path:
    """The directory of marks below a store root; creates it with the broker as its owner."""
    directory = store / ARCHIVE
    if not directory.is_dir():
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        give(directory, store)
    return directory


def marked(store: Path, entry: Entry) -> bool:
    """Whether the mark of an entry exists."""
    return (store / ARCHIVE / mark_name(entry.start)).exists()


def mark(store: Path, entry: Entry) -> None:
    """Write a mark, so that the broker may delete the segment; atomic in a crash."""
    directory = make_marks(store)
    path = directory / mark_name(entry.start)
    draft = path.with_name(temporary_name(path.name))
    mark = Mark(entry.segment, entry.bytes, entry.records, entry.crc32, entry.job)
    draft.write_bytes(msgspec.json.encode(mark) + b"\n")
    sync(draft)
    draft.chmod(FILE_MODE)
    give(draft, store)
    draft.replace(path)
    sync(directory)


def give(path: Path, store: Path) -> None:
    """Give a file that root created to the broker's user, who has to delete it."""
    owner = store.stat()
    if os.geteuid() == 0 and owner.st_uid:
        os.chown(path, owner.st_uid, owner.st_gid)
