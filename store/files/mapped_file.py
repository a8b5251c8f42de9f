"""One log segment: appended and read through its mapping, made durable through its handle.

Invariant: `flushed` ≤ `wrote` ≤ `size`. Only `flushed` is a promise. Every byte up to `wrote` is
readable and never changes again; views handed out keep the mapping alive, and nothing unmaps under
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from weakref import ref

from aerobee.store.files.written_pages import WrittenPages
from aerobee.store.format.record import BLANK_BYTES, START, blank

if TYPE_CHECKING:
    from collections.abc import Iterable
    from mmap import mmap
    from pathlib import Path

    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.format.layout import Buffer

_NOTHING = memoryview(bytearray())
PIECE_BYTES = 32 << 20
BEGIN_BYTES: Final = START.size
"""So many bytes are copied by a single instruction: all of them or none."""


class MappedFile:
    """A file of fixed size that begins at byte `start` of its queue. Source: store format §1.1.

    Opened and mapped on first use. `pages` is the writable view; `readable` what readers slice.
    """

    __slots__ = (
        "_disk",
        "_given_up",
        "_mapping",
        "_readable",
        "_tried",
        "end",
        "flushed",
        "handle",
        "named",
        "pages",
        "path",
        "size",
        "start",
        "store_timestamp",
        "wrote",
    )

    def __init__(
        self,
        disk: Disk,
        path: Path,
        start: int,
        size: int,
        *,
        used: int = 0,
        handle: Handle | None = None,
    ) -> None:
        assert 0 <= used <= size, (path, used, size)
        self._disk = disk
        self._given_up: list[ref[mmap]] = []
        """Mappings that go with their last reader."""
        self._mapping: mmap | None = None
        self._readable: memoryview | None = None
        self._tried = 0
        """Where bytes may end that were written behind `wrote` and do not count, as of an append
        that failed; else 0."""
        self.pages = _NOTHING
        self.handle = handle
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size
        self.wrote = used
        self.flushed = used
        self.store_timestamp = 0
        """Store time of the last record appended in this run, in ms; 0 before the first."""
        self.named = True
        """Whether the directory entry is durable."""

    def __repr__(self) -> str:
        return f"<MappedFile {self.path.name} wrote={self.wrote} flushed={self.flushed}>"

    @property
    def max_offset(self) -> int:
        """The offset of the queue behind the last byte written."""
        return self.start + self.wrote

    @property
    def full(self) -> bool:
        """Whether nothing more fits, not even a blank."""
        return self.wrote == self.size

    def open(self) -> Handle:
        """The handle, opened when needed. Raises: OSError."""
        if self.handle is None:
            self.handle = self._disk.open(self.path)
        return self.handle

    def prepare_writes(self) -> None:
        """Reserve every block, then map for writing: a hole in a mapping is fatal on a full disk,
        and so is any page where the file system copies on write.

        Raises: OSError.
        """
        if self.pages is _NOTHING:
            self._disk.fill(self.open(), self.size)
            self.map_for_writes()

    def map_for_writes(self) -> None:
        """Map a file that has all its blocks. Raises: OSError."""
        if self._disk.maps_writes(self.path):
            pages = memoryview(self._disk.map(self.open(), self.size, writable=True))
            self.pages, self._readable = pages, pages.toreadonly()
        else:
            self.readable()
            # Writers only assign slices of it.
            self.pages = cast("memoryview", WrittenPages(self.open()))

    def in_use(self) -> bool:
        """Whether the file has data; one allocated ahead is all zeros."""
        return any(self.open().pread(BLANK_BYTES, 0))

    def read_through(self) -> None:
        """Read all that was written once: what the disk cannot read is an error here, and would be
        the end of the process in the mapping. Raises: OSError.
        """
        for position in range(0, self.wrote, PIECE_BYTES):
            self.open().pread(min(PIECE_BYTES, self.wrote - position), position)

    def readable(self) -> memoryview:
        """The whole file, read-only; only bytes below `wrote` are valid. Raises: OSError."""
        if self._readable is None:
            self._readable = memoryview(
                self._disk.map(self.open(), self.size, writable=False)
            ).toreadonly()
        return self._readable

    def append(self, data: Buffer) -> None:
        """Append the records of one batch, or a single one; the caller has checked that they fit.

        A copy of libc goes in any order, also from the end. So the begin of the first record is
        copied last: what a kill leaves of a batch has none, by which recovery knows it. Raises:
        OSError where the mapping is not written to (`Disk.maps_writes`); nothing counts then. Hot.
        """
        begin = self.wrote
        end = begin + len(data)
        assert end <= self.size, (self, len(data))
        if self._tried:
            self.zero_tried()
        first, rest = data[:BEGIN_BYTES], memoryview(data)[BEGIN_BYTES:]
        try:
            self.pages[end - len(rest) : end] = rest
            self.pages[begin : begin + len(first)] = first
        except OSError:
            self._tried = end
            raise
        self.wrote = end

    def append_each(self, records: Iterable[Buffer]) -> None:
        """Append records of any queues; the caller has checked that they fit.

        They are copied one by one, since a kill may leave the last part of a copy without the
        first: so nothing whole lies behind a record that is not. Raises: as `append`. Hot.
        """
        if self._tried:
            self.zero_tried()
        pages, end = self.pages, self.wrote
        try:
            for record in records:
                begin, end = end, end + len(record)
                pages[begin:end] = record
        except OSError:
            self._tried = end
            raise
        self.wrote = end

    def fill(self, position: int, data: Buffer) -> None:
        """Write bytes behind `wrote` that do not count yet. Raises: as `append`."""
        assert self.wrote <= position, (self, position)
        self._tried = max(self._tried, position + len(data))
        self.pages[position : position + len(data)] = data

    def zero_tried(self) -> bool:
        """Zero what lies behind the end and does not count, ahead of the next append at the latest:
        an old record there could line up with new ones. Returns whether there may have been any.
        Raises: OSError; then it is to do still.
        """
        tried = self._tried > self.wrote
        if tried:
            self.pages[self.wrote : self._tried] = bytes(self._tried - self.wrote)
        self._tried = 0
        return tried

    def close_with_blank(self) -> None:
        """Write the blank and count the rest of the file as used. Raises: as `append`.

        Source: store format §1.2.1.
        """
        remaining = self.size - self.wrote
        assert remaining >= BLANK_BYTES, self
        self.pages[self.wrote : self.wrote + BLANK_BYTES] = blank(remaining)
        self.wrote, self._tried = self.size, 0

    def view(self, position: int, size: int) -> memoryview | None:
        """`size` bytes from `position`; None when they are not all there."""
        if position < 0 or position + size > self.wrote:
            return None
        return self.readable()[position : position + size]

    def sync(self) -> None:
        """Block until everything written so far is on disk. For a thread; moves no position.

        Raises: OSError.
        """
        self._disk.sync(self.open())

    def mark_flushed(self, position: int) -> None:
        """Record that a sync which began with `wrote` = `position` has ended."""
        assert position <= self.wrote, (self, position)
        self.flushed = max(self.flushed, position)

    def truncate(self, position: int) -> None:
        """Set the positions back; the bytes behind stay (see `zero_from`)."""
        assert 0 <= position <= self.size, (self, position)
        self.wrote = position
        self.flushed = min(self.flushed, position)

    def rewrite(self, position: int, end: int) -> None:
        """Write the bytes from `position` to `end` again and sync: the page cache may show what the
        disk lacks. Raises: OSError.
        """
        self._disk.rewrite(self.open(), position, end)

    def zero_from(self, position: int) -> int:
        """Zero what is behind `position` and sync; returns the end of the old bytes.

        Otherwise an old record behind the end could line up with new ones and become valid again.
        Raises: OSError.
        """
        return self._disk.zero(self.open(), position, self.size)

    def close(self) -> None:
        """Close the file; views stay readable."""
        self.pages = _NOTHING
        self._readable = None
        self.close_handle()

    def close_handle(self) -> None:
        """Close the descriptor; the mapping stays."""
        if self.handle is not None:
            self.handle.close()
            self.handle = None

    def give_up(self) -> mmap | None:
        """As `close`, but it can be opened again; returns its mapping. Not while a thread uses
        it.
        """
        readable = self._readable
        self.close()
        if readable is None:
            return None
        mapping = cast("mmap", readable.obj)
        self._given_up = [*self._still_read(), ref(mapping)]
        return mapping

    def _still_read(self) -> list[ref[mmap]]:
        """The mappings given up that still have readers."""
        return [view for view in self._given_up if view() is not None]

    def release(self) -> bool:
        """Unmap and close a deleted file; False while views of it exist, here or in a tool that
        reads beside this process: try again.

        For a thread: freeing the blocks takes time that grows with the file. It is done in pieces,
        so that others do not wait long for the file system. Raises: OSError.
        """
        if self._readable is not None:
            self._mapping = cast("mmap", self._readable.obj)
            self.pages = _NOTHING
            self._readable = None
        if self._mapping is not None:
            self._disk.forget_pages(self._mapping)
            try:
                self._mapping.close()
            except BufferError:
                return False
            self._mapping = None
        if self._still_read():
            # Without its blocks their next access would be a SIGBUS.
            return False
        if self.handle is not None:
            if self._disk.is_kept_whole(self.handle):
                return False
            for size in range(self.size - PIECE_BYTES, 0, -PIECE_BYTES):
                self.handle.truncate(size)
        self.close()
        return True
