"""Checks index files against the log.

Only files are checked that the next start will use: all of them after a clean stop, else those that
are full and covered by the checkpoint. Slots and chains are rebuilt from the entries and compared;
entries are compared with the messages that they point to. A key without an entry is no damage:
other brokers lose some entries in a crash. Nor are files that overlap: a Java broker that was
killed while it created a file, and starts, fills it from the beginning of a log segment.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.store.format.faults import NoRecord
from aerobee.store.format.index import (
    INDEX_ENTRY,
    INDEX_HEAD,
    INDEX_SLOT,
    TIME_DIFF_MAX,
    IndexEntry,
    IndexHead,
    IndexShape,
    KeyHasher,
    index_key,
    key_hash,
)
from aerobee.store.format.names import INDEX, is_index_name
from aerobee.store.format.properties import value_of
from aerobee.store.format.record import parse
from aerobee.store.format.sparse import used_end
from aerobee.store.index.index_file import IndexFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.files.disk import Handle
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.tools.directory import Directory
    from aerobee.store.tools.findings import Findings

DEFAULT_SHAPE: Final = IndexShape(5_000_000, 20_000_000)
"""The shape that is tried first; the real one is read from the file."""
READ_BYTES: Final = 1 << 20
"""Bytes of one read: a whole number of slots, but not of entries."""
READ_ENTRIES: Final = READ_BYTES // INDEX_ENTRY.size
TAGS: Final = "T#"
"""The prefix of the tags of a message, which 5.4 indexes beside the keys."""
_read_entries = INDEX_ENTRY.iter_unpack


class Message(NamedTuple):
    """The message that an entry points to."""

    stored: int
    hashes: frozenset[int]


class IndexCheck:
    """Checks all index files of a directory, oldest first."""

    def __init__(
        self,
        directory: Directory,
        findings: Findings,
        *,
        begin: int,
        end: int,
        unreadable: Callable[[int], bool],
    ) -> None:
        """The log is readable from `begin` to `end`, except the `unreadable` regions."""
        self._directory = directory
        self._findings = findings
        self._begin = begin
        self._end = end
        self._unreadable = unreadable
        self._hasher = KeyHasher()
        self._segment: MappedFile | None = None
        """The segment that was read last beside a running broker: it cannot free one that is open
        here."""
        self.before: IndexHead | None = None
        """The head that the previous file implies; None before the first file."""
        self.files = 0
        self.entries = 0

    def run(self) -> None:
        """Check every file. Raises: OSError."""
        directory = self._directory
        path = directory.root / INDEX
        for name in directory.disk.listdir(path):
            if not is_index_name(name) or directory.disk.is_directory(path / name):
                self._findings.noted("foreign", path / name, "is no index file, and left alone")
                continue
            try:
                handle = directory.disk.open(path / name, writable=False)
            except FileNotFoundError:
                # A running broker has deleted it since the listing.
                continue
            with handle:
                self._look(handle)
        self.close()

    def close(self) -> None:
        """Close that segment."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _look(self, handle: Handle) -> None:
        file = IndexFile(self._directory.disk, handle.path, DEFAULT_SHAPE)
        file.take(handle)
        if not self._believed(file):
            self.pending(handle, "is not finished: built again")
            return
        if file.empty and not file.head.hash_slot_count:
            self._findings.noted("skipped", handle.path, "has no entries")
            return
        self.files += 1
        if not file.sound:
            why = "the head cannot be" if file.fits else "no number of slots fits its entries"
            self.damaged(handle, f"{why}: {_shown(file.head)}")
            return
        _FileCheck(self, handle, file).run()

    def _believed(self, file: IndexFile) -> bool:
        if self._directory.clean:
            return True
        return file.full and file.head.end_timestamp <= (
            self._directory.checkpoint.index_msg_timestamp
        )

    def message(self, physical_offset: int) -> Message | str | None:
        """The message at the offset; or the reason why there is none; None if it is unknown."""
        if physical_offset < self._begin or self._unreadable(physical_offset):
            return None
        file = self._directory.log.queue.find(physical_offset)
        if physical_offset >= self._end or file is None:
            return "behind the end of the log"
        if self._directory.live and file is not self._segment:
            self.close()
            self._segment = file
        try:
            pages = file.readable()
        except FileNotFoundError:
            # A running broker has deleted it since the listing.
            return None
        header = parse(pages, physical_offset - file.start, physical_offset)
        if isinstance(header, NoRecord):
            return "to no message"
        return Message(header.store_timestamp, self._hashes(header))

    def _hashes(self, header: RecordHeader) -> frozenset[int]:
        topic, properties = header.topic, header.properties
        hashes = self._hasher.hashes(topic, properties)
        tags = value_of(properties, b"TAGS")
        if tags:
            hashes.append(key_hash(index_key(topic, TAGS + tags)))
        return frozenset(hashes)

    def pending(self, handle: Handle, text: str) -> None:
        """Note what the next start does to the file."""
        self._findings.noted("pending", handle.path, f"{text} at a start")

    def damaged(self, handle: Handle, text: str) -> None:
        """Report damage of the file."""
        self._findings.damaged("index", handle.path, text)


class _FileCheck:
    """Checks one file that the next start will use."""

    def __init__(self, check: IndexCheck, handle: Handle, file: IndexFile) -> None:
        self._check = check
        self._handle = handle
        self._shape = file.shape
        self._head = file.head
        self._slots = array("i", bytes(file.shape.slots * INDEX_SLOT.size))
        self._problems: dict[str, list[int]] = {}
        """Problem of entries → the number of the first one, and their count."""

    def run(self) -> None:
        """Check entries, the head that they imply, slots, and the unused rest, which is zeros."""
        first = last = None
        begin_stored = end_stored = None
        physical_offset = -1
        message: Message | str | None = None
        for number, entry in self._entries():
            if entry.physical_offset != physical_offset:
                if entry.physical_offset < physical_offset:
                    self._wrong("out of the order of the log", number)
                physical_offset = entry.physical_offset
                message = self._check.message(physical_offset)
            self._link(number, entry)
            stored = self._compare(number, entry, message)
            if first is None:
                first, begin_stored = entry, stored
            last, end_stored = entry, stored
        self._check.entries += self._head.index_count - 1
        for text, (number, count) in self._problems.items():
            which = f"entry {number} is" if count == 1 else f"{count} entries from {number} on are"
            self._report(f"{which} {text}")
        self._compare_head(first, last, begin_stored, end_stored)
        self._compare_slots()
        self._compare_rest()

    def _entries(self) -> Iterator[tuple[int, IndexEntry]]:
        count = self._head.index_count
        for begin in range(1, count, READ_ENTRIES):
            wanted = min(READ_ENTRIES, count - begin) * INDEX_ENTRY.size
            data = self._handle.pread(wanted, self._shape.entry_position(begin))
            for number, values in enumerate(_read_entries(data), begin):
                yield number, IndexEntry(*values)

    def _link(self, number: int, entry: IndexEntry) -> None:
        """Put the entry at the head of its chain."""
        slot = entry.key_hash % self._shape.slots
        if entry.key_hash < 0 or entry.previous != self._slots[slot]:
            self._wrong("in no chain, or in a wrong one", number)
        self._slots[slot] = number

    def _compare(self, number: int, entry: IndexEntry, message: Message | str | None) -> int | None:
        """Compare an entry with its message; returns the message's store time."""
        if not isinstance(message, Message):
            if message is not None:
                self._wrong(f"leading {message}", number)
            return None
        if entry.key_hash not in message.hashes:
            self._wrong("with a hash that no key of their message has", number)
        if not self._in_time(number, entry.time_diff_s, message.stored):
            self._wrong("with another time than their message", number)
        return message.stored

    def _in_time(self, number: int, seconds: int, stored: int) -> bool:
        if number > 1:
            return seconds == _seconds(self._head.begin_timestamp, stored)
        # The time of a file's first entry is relative to the previous file, which may be deleted.
        before = self._check.before
        if before is None:
            return seconds >= 0
        return seconds in (0, _seconds(before.end_timestamp, stored))

    def _wrong(self, text: str, number: int) -> None:
        self._problems.setdefault(text, [number, 0])[1] += 1

    def _compare_head(
        self,
        first: IndexEntry | None,
        last: IndexEntry | None,
        begin_stored: int | None,
        end_stored: int | None,
    ) -> None:
        head, before = self._head, self._check.before
        expected = head._replace(hash_slot_count=self._shape.slots - self._slots.count(0))
        if first is not None and last is not None:
            expected = expected._replace(
                begin_physical_offset=first.physical_offset,
                end_physical_offset=last.physical_offset,
                begin_timestamp=head.begin_timestamp if begin_stored is None else begin_stored,
                end_timestamp=head.end_timestamp if end_stored is None else end_stored,
            )
        if head != expected:
            self._report(f"the head says {_shown(head)}, its entries {_shown(expected)}")
        elif before is not None and head.begin_physical_offset < before.end_physical_offset:
            self._check.pending(
                self._handle, "begins in front of the end of the file before it: built again"
            )
        self._check.before = expected

    def _compare_slots(self) -> None:
        slots = self._slots
        if sys.byteorder == "little":
            slots.byteswap()
        wanted = memoryview(slots).cast("B")
        wrong = 0
        for at in range(0, len(wanted), READ_BYTES):
            piece = wanted[at : at + READ_BYTES]
            there = self._handle.pread(len(piece), INDEX_HEAD.size + at)
            if piece != there:
                wrong += sum(
                    piece[i : i + INDEX_SLOT.size] != there[i : i + INDEX_SLOT.size]
                    for i in range(0, len(piece), INDEX_SLOT.size)
                )
        if wrong:
            self._report(f"{wrong} slots do not lead to the newest entry of their chain")

    def _compare_rest(self) -> None:
        """Check that entry 0 and the unused entries are zeros."""
        shape = self._shape
        unused = self._handle.pread(INDEX_ENTRY.size, shape.entry_position(0))
        behind = shape.entry_position(self._head.index_count)
        if any(unused) or used_end(self._handle, behind, shape.size) > behind:
            self._report("holds bytes where no entry is")

    def _report(self, text: str) -> None:
        self._check.damaged(self._handle, text)


def _seconds(begin: int, stored: int) -> int:
    """The time of an entry, in seconds since the begin time of its file."""
    return min((stored - begin) // 1_000, TIME_DIFF_MAX) if 0 < begin < stored else 0


def _shown(head: IndexHead) -> str:
    return (
        f"{head.index_count} entries in {head.hash_slot_count} slots, physical offsets "
        f"{head.begin_physical_offset} to {head.end_physical_offset}, store times "
        f"{head.begin_timestamp} to {head.end_timestamp}"
    )
