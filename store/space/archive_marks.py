"""The marks of archived log segments: `archive/<segment>.done`, written by the archiving job.

A mark is one line of JSON that names the segment and its size (`segment`, `bytes`; other members
are for its writer). It counts for a full segment that exists and is as large as the mark says.
Invariant: a mark is about bytes that the log has. A mark beyond the end of the log is of another
log, or of data lost in a crash; it is removed before other bytes are stored there, or as soon as
the marks can be read again: the archiving job writes it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from aerobee.store.format.names import mark_name, marked_segment, segment_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aerobee.store.files.disk import Disk

log = structlog.get_logger(__name__)


class _Mark(msgspec.Struct):
    """The members of a mark that the broker reads."""

    segment: str
    bytes: int


class ArchiveMarks:
    """The directory of marks. Blocking: for a thread, one call at a time."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.directory = directory
        self._disk = disk
        self._marked: set[int] = set()
        """Starts of the segments with a mark, at the last check."""
        self._good: dict[int, int] = {}
        """The sizes in the marks that were read and are well-formed."""
        self._void: set[int] = set()
        """Marks that should be removed and could not be."""
        self._warned: set[tuple[int, str]] = set()
        """Warnings about marks that were logged; each is logged once."""
        self._silent = False
        self._unseen_from: int | None = None
        """The smallest end of the log at failed checks: marks beyond it may be of lost bytes."""

    def look(self, segments: Mapping[int, int], end: int, *, make: bool) -> frozenset[int]:
        """The starts of the segments that are archived.

        `segments` are those of the log, sizes by start; the log ends at byte `end`. Marks that
        belong to none of them are removed. With `make` the directory is created, so that the log's
        owner can remove its marks. Unreadable marks count as not archived.
        """
        try:
            self._marked = self._list(make=make)
        except OSError as error:
            if not self._silent:
                log.warning("cleanup.marks_unreadable", error=str(error))
            self._silent = True
            self._unseen_from = end if self._unseen_from is None else min(end, self._unseen_from)
            return frozenset()
        self._silent = False
        if self._unseen_from is not None:
            end, self._unseen_from = min(end, self._unseen_from), None
        self._good = {start: size for start, size in self._good.items() if start in self._marked}
        self._void &= self._marked
        self._warned = {(start, cause) for start, cause in self._warned if start in self._marked}
        first = min(segments, default=end)
        for start in sorted(self._marked):
            if start < first:
                self._forget(start, "deleted")
            elif start + segments.get(start, 1) > end:
                self._forget(start, "rewritten")
        present = segments.keys() & (self._marked - self._void)
        return frozenset(start for start in present if self._counts(start, segments[start]))

    def remove(self, start: int) -> None:
        """Remove the mark of a segment, if it has one."""
        if start in self._marked:
            self._forget(start, "deleted")

    def _list(self, *, make: bool) -> set[int]:
        if make:
            self._disk.mkdir(self.directory)
        names = self._disk.listdir(self.directory)
        return {start for name in names if (start := marked_segment(name)) is not None}

    def _counts(self, start: int, size: int) -> bool:
        if start not in self._good:
            try:
                self._good[start] = self._read(start)
            except (OSError, msgspec.MsgspecError, ValueError) as error:
                self._warn_once(start, str(error))
                return False
        marked = self._good[start]
        if marked != size:
            self._warn_once(start, f"it says {marked} bytes, the segment has {size}")
        return marked == size

    def _read(self, start: int) -> int:
        mark = msgspec.json.decode(self._disk.read(self._path(start)), type=_Mark)
        if mark.segment != segment_name(start):
            raise ValueError(f"it names the segment {mark.segment}")
        return mark.bytes

    def _warn_once(self, start: int, cause: str) -> None:
        if (start, cause) not in self._warned:
            self._warned.add((start, cause))
            log.warning("cleanup.mark_refused", path=str(self._path(start)), cause=cause)

    def _forget(self, start: int, reason: str) -> None:
        path = self._path(start)
        try:
            self._disk.remove(path, missing_ok=True)
        except OSError as error:
            self._void.add(start)
            self._warn_once(start, f"it cannot be removed: {error}")
            return
        self._marked.discard(start)
        self._good.pop(start, None)
        log.info("cleanup.mark_removed", path=str(path), reason=reason)

    def _path(self, start: int) -> Path:
        return self.directory / mark_name(start)
