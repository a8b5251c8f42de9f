"""Iterates over every intact record of a log, past damaged regions too.

It yields (physical offset, record header) and reports damage. The end of the log is the first
offset in the last used segment after which there is no intact record: bytes after it that a crash
left, or that a running broker is writing, are no damage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.faults import BAD_SIZE, BLANK, CRC, ZEROS, NoRecord
from aerobee.store.format.record import START, RecordHeader, parse
from aerobee.store.format.sparse import used_end
from aerobee.store.format.walk import Walk, candidates_in, fault_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.tools.directory import Directory
    from aerobee.store.tools.fields import FieldCheck
    from aerobee.store.tools.findings import Findings

MAGIC_END = 8
"""The end of the magic code in a record: a search from there does not find that record again."""
SLICE_BYTES = 16 << 20
"""Bytes between two calls of `progress`."""


class Region(NamedTuple):
    """A region of the log without readable records."""

    begin: int
    end: int


def _ignored(_offset: int) -> None:
    """The default of `progress`, which does nothing."""


class Passage:
    """Iterates the records; afterwards `end` is the log's end, `regions` the unreadable regions."""

    def __init__(
        self,
        directory: Directory,
        findings: Findings,
        *,
        crc: bool = True,
        closer: FieldCheck | None = None,
        progress: Callable[[int], None] = _ignored,
    ) -> None:
        self._directory = directory
        self._log = directory.log
        self._findings = findings
        self._crc = crc
        self._closer = closer
        self._progress = progress
        self._stored = 0
        self.regions: list[Region] = []
        self.files = self._in_use()
        self.begin = self.end = self.files[0].start if self.files else 0
        self.remains = 0
        """Bytes after the end, up to the last one that is not zero."""

    def _in_use(self) -> list[MappedFile]:
        """The segments without preallocated or empty ones at the end."""
        files = list(self._log.queue.files)
        while len(files) > 1 and not files[-1].in_use() and self._next(files[-1], 0) is None:
            files.pop()
        return files

    def __iter__(self) -> Iterator[tuple[int, RecordHeader]]:
        for number, file in enumerate(self.files):
            following = self.files[number + 1] if number + 1 < len(self.files) else None
            try:
                yield from self._through(file, last=following is None)
            except FileNotFoundError:
                self._findings.noted("deleted", file.path, "was deleted while we looked")
            if following is not None:
                if file.end < following.start:
                    self.regions.append(Region(file.end, following.start))
                file.close()

    def data(self, position: int, size: int) -> memoryview:
        """The bytes of the record that was yielded last, or of an earlier one of its segment."""
        file = self._log.queue.find(position)
        assert file is not None, position
        return file.readable()[position - file.start :][:size]

    def _through(self, file: MappedFile, *, last: bool) -> Iterator[tuple[int, RecordHeader]]:
        at = file.start
        while at < file.end:
            bound = min(at + SLICE_BYTES, file.end)
            data = file.readable()[: file.wrote]
            walk = Walk(data, file.start, at, bound, crc=self._crc)
            header: RecordHeader | None = None
            for at, header in walk:
                if self._closer is not None:
                    self._closer.look(data, at - file.start, at, header)
                yield at, header
            if header is not None:
                at += header.size
                self._stored = header.store_timestamp
            self._progress(at)
            if at >= bound:
                continue
            self.end = at
            if walk.stop.kind == BLANK:
                return self._see_blank(file, at)
            kept = self._kept_in_spite_of_crc(file, at, last)
            if kept is not None:
                yield at, kept
                at += kept.size
                continue
            following = self._behind(file, at, last)
            if following is None:
                return None
            at = following
        self.end = at
        return None

    def _see_blank(self, file: MappedFile, at: int) -> None:
        left = file.end - at
        size = START.read(file.readable(), at - file.start).size
        if size != left:
            self._damaged(file, at, f"the blank says {size} bytes, {left} are left", BAD_SIZE)

    def _kept_in_spite_of_crc(self, file: MappedFile, at: int, last: bool) -> RecordHeader | None:
        """A record where only the body is damaged: it is reported, and yielded nevertheless."""
        header = parse(file.readable(), at - file.start, at)
        if isinstance(header, NoRecord):
            return None
        tail = last and self._next(file, at + header.size) is None
        if tail and not self._directory.clean and not self._promised(header.store_timestamp):
            return None
        self._damaged(file, at, f"body CRC of a message of {header.topic}-{header.queue_id}", CRC)
        return header

    def _promised(self, stored: int) -> bool:
        """Whether the checkpoint guarantees that messages of this store time are on disk."""
        return not self._directory.live and stored < self._directory.checkpoint.physic_msg_timestamp

    def _behind(self, file: MappedFile, at: int, last: bool) -> int | None:
        """The offset to continue at after bytes that are no record; None: not in this segment."""
        following = self._next(file, at + MAGIC_END)
        if following is None and last:
            self.remains = self._used_behind(file, at)
            return None
        if following is not None and last:
            if self._directory.live and isinstance(
                parse(file.readable(), at - file.start, at), RecordHeader
            ):
                # The record was appended after the first read.
                return at
            if self._time_at(file, following) < self._stored:
                # An older record: a Java broker truncates the log without erasing the bytes.
                self.remains = self._used_behind(file, at)
                return None
        kind, _, reason = fault_at(file.readable(), at - file.start, at)
        if kind == ZEROS:
            # Zeros before written bytes are damage.
            kind, reason = BAD_SIZE, "a hole: zeros where messages were"
        end = file.end if following is None else following
        self._damaged(file, at, f"{reason}; {end - at} bytes cannot be read", kind)
        self.regions.append(Region(at, end))
        return following

    def _next(self, file: MappedFile, at: int) -> int | None:
        """The next intact record of the segment, from `at` on."""
        begin = max(at - file.start, 0)
        for physical_offset in candidates_in(file.open(), begin, file.size, file.start):
            if self._time_at(file, physical_offset):
                return physical_offset
        return None

    def _time_at(self, file: MappedFile, physical_offset: int) -> int:
        header = parse(file.readable(), physical_offset - file.start, physical_offset)
        return 0 if isinstance(header, NoRecord) else header.store_timestamp

    def _used_behind(self, file: MappedFile, at: int) -> int:
        begin = at - file.start
        return used_end(file.open(), begin, file.size) - begin

    def _damaged(self, file: MappedFile, at: int, text: str, kind: str) -> None:
        self._findings.damaged(kind, file.path, text, at)
