"""The way of one query through the index, newest entries first, in steps of bounded work.

A walk follows the chain of its hash through each file. Where very many entries of the chain are
later than the range, it goes on from the newest entry that is not, which it finds by time, and
looks from there for the next one with the hash. A step may be the last one, so nothing stays open
between two. Source: store format §1.4 (IndexFile.selectPhyOffset).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from struct import pack
from typing import TYPE_CHECKING, Final

from aerobee.store.format.index import INDEX_ENTRY, INDEX_HEAD, INDEX_SLOT
from aerobee.store.index.index_file import whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.files.disk import Handle
    from aerobee.store.index.index_file import IndexFile, RecentChain

BLOCK: Final = 128
"""Entries that are read together: those of a frequent key lie side by side."""
LATER_MAX: Final = 2_000
"""Entries of one file later than the range, after which its end is searched by time."""
SCANNED: Final = 3_276
"""Entries that are scanned for a hash at a time: 64 KiB."""
SCAN_COST: Final = 50
"""For how many entries such a scan counts: about as long as to follow so many."""
SEARCH_COST: Final = 50
"""For how many entries a search by time counts."""
FOUND_MAX: Final = 64
"""Candidates that wait to be taken; a step ends with them."""

_ENTRY: Final = INDEX_ENTRY.size
_unpack = INDEX_ENTRY.unpack_from


class IndexWalk:
    """Finds the physical offsets of messages that may have a key and a time. For a thread.

    Times are known to the second, so a message up to a second outside may be among them.
    """

    __slots__ = (
        "_began_ms",
        "_begin_ms",
        "_count",
        "_end_ms",
        "_file",
        "_files",
        "_key_hash",
        "_later",
        "_number",
        "_recent",
        "_scanning",
        "ended",
        "found",
        "looked",
        "reached_ms",
    )

    def __init__(
        self,
        files: Iterable[IndexFile],
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        recent: RecentChain | None = None,
    ) -> None:
        """`files`: newest first. Of the file that is being built only what was written is seen
        without `recent`.
        """
        self._files = deque(files)
        self._key_hash = key_hash
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._recent = recent
        self._file: IndexFile | None = None
        self._number = -1  # the entry to look at next; -1: its chain is not begun
        self._count = 0  # of the entries that the file had when its chain was begun
        self._began_ms = 0
        self._later = 0
        self._scanning = False
        self.found: deque[int] = deque()
        """Candidates that nobody has taken yet, newest first."""
        self.looked = 0
        """Entries that were looked at, and what else is counted like them."""
        self.reached_ms = 0
        """The time of the last of them."""
        self.ended = False

    def step(self, most: int) -> None:
        """Look at about `most` entries more, until there is something to take. Raises: OSError."""
        until = self.looked + most
        while not self.ended and self.looked < until and len(self.found) < FOUND_MAX:
            file = self._file or self._next_file()
            if file is None:
                self.ended = True
                return
            try:
                with file.disk.open(file.path, writable=False) as handle:
                    if self._number < 0:
                        self._begin(file, handle)
                    if self._scanning:
                        self._scan(file, handle, until)
                    else:
                        self._follow(file, handle, until)
            except FileNotFoundError:
                # Expired meanwhile, and so are those before it.
                self.ended = True

    def _next_file(self) -> IndexFile | None:
        """The next file that may have messages of the range."""
        while self._files:
            self.looked += 1
            file = self._files.popleft()
            head = self._recent.head if self._is_recent(file) and self._recent else file.head
            if (
                head.index_count > 1
                and head.end_timestamp >= self._begin_ms
                and head.begin_timestamp <= self._end_ms
            ):
                self._file, self._number, self._later = file, -1, 0
                self._began_ms = head.begin_timestamp
                return file
        return None

    def _is_recent(self, file: IndexFile) -> bool:
        return self._recent is not None and self._recent.file is file

    def _begin(self, file: IndexFile, handle: Handle) -> None:
        recent, shape = self._recent, file.shape
        if recent is not None and self._is_recent(file):
            number, head = recent.newest, recent.head
        else:
            # Read the slot before the head: the head is written first.
            at = shape.slot_position(self._key_hash % shape.slots)
            number = INDEX_SLOT.read(whole(handle, INDEX_SLOT.size, at)).newest
            head = INDEX_HEAD.read(whole(handle, INDEX_HEAD.size, 0))
        self._number, self._began_ms = max(0, number), head.begin_timestamp
        self._count = min(head.index_count, shape.entries)

    def _follow(self, file: IndexFile, handle: Handle, until: int) -> None:
        """Follow the chain, up to so many entries. Hot."""
        recent, shape, count = self._recent, file.shape, self._count
        # Entries from `first` on are in memory.
        first, unwritten = count, bytearray()
        if recent is not None and self._is_recent(file):
            first, unwritten = recent.first, recent.entries
        begin_ms, end_ms, began_ms, key_hash = (
            self._begin_ms,
            self._end_ms,
            self._began_ms,
            self._key_hash,
        )
        block = b""
        low = high = 0  # the entries that the block has
        number = self._number
        while 0 < number < count:
            if self.looked >= until or len(self.found) >= FOUND_MAX:
                self._number = number
                return
            self.looked += 1
            if number >= first:
                entry = _unpack(unwritten, (number - first) * _ENTRY)
            else:
                if not low <= number < high:
                    low, high = max(1, number - BLOCK + 1), number + 1
                    block = whole(handle, (high - low) * _ENTRY, shape.entry_position(low))
                entry = _unpack(block, (number - low) * _ENTRY)
            found_hash, physical_offset, seconds, previous = entry
            # The time of a file's first entry is relative to the file before.
            time_ms = began_ms if number == 1 else began_ms + 1_000 * seconds
            if seconds < 0 or time_ms + 999 < begin_ms:
                break
            self.reached_ms = time_ms
            if time_ms > end_ms:
                self._later += 1
                if self._later >= LATER_MAX and number < first:
                    self._search(file, handle, number)
                    return
            elif found_hash == key_hash:
                self.found.append(physical_offset)
            if previous >= number:
                break
            number = previous
        self._end_file()

    def _end_file(self) -> None:
        self._file = None
        self._scanning = False
        if self._began_ms < self._begin_ms:
            self.ended = True

    def _search(self, file: IndexFile, handle: Handle, number: int) -> None:
        """Find the newest entry before that one that is not later than the range.

        Entries are in the order of their times, unless the clock was set back in between.
        """

        def time_of(position: int) -> int:
            entry = INDEX_ENTRY.read(whole(handle, _ENTRY, file.shape.entry_position(position)))
            return self._began_ms + (1_000 * entry.time_diff_s if position > 1 else 0)

        self.looked += SEARCH_COST
        self._number = bisect_right(range(1, number), self._end_ms, key=time_of)
        self._later = 0
        self._scanning = True

    def _scan(self, file: IndexFile, handle: Handle, until: int) -> None:
        """Look for the newest entry with the hash, up to the one at hand; then follow its chain."""
        wanted = pack(">i", self._key_hash)
        while self._number > 0:
            if self.looked >= until:
                return
            self.looked += SCAN_COST
            low = max(1, self._number - SCANNED + 1)
            size = (self._number + 1 - low) * _ENTRY
            data = whole(handle, size, file.shape.entry_position(low))
            at = data.rfind(wanted)
            while at % _ENTRY and at > 0:
                at = data.rfind(wanted, 0, at + len(wanted) - 1)
            if at >= 0:
                self._number = low + at // _ENTRY
                self._scanning = False
                return
            self._number = low - 1
        self._end_file()
