"""Reads of data that may not be in memory, without blocking the loop.

Reading a mapped page that is on disk blocks every thread of the process until it is there. So data
that is probably not in memory is read from the page cache with RWF_NOWAIT and copied. When a byte
of it is missing, NotInMemory names the missing pieces; `complete` has one of a few threads read
them and calls again. Every call starts anew: it sees the store as it is then, not as it was before.
So a call is one read, and its effects come after it: a call that has put a message is not repeated,
nor is any for ever.
Calls that were waited for take turns: however many have their data at the same moment, others run
between them as soon as they have taken a millisecond together.
Until the loop serves (`waits`), nobody can be blocked, and a read simply waits.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import trio

from aerobee.store.errors import NotInMemory, NotRepeatable, Piece, Unreadable
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk, Handle
    from aerobee.store.files.mapped_file import MappedFile
    from aerobee.store.files.open_files import OpenFiles
    from aerobee.store.stats import StoreStats

COLD_READ_THREADS = 4
"""Reads that may wait for the disk at the same time; more wait for a thread."""
REPEATS_MAX = 10_000
"""How often one call is made again. A search by time takes some 80 times, a long walk more."""
GAP_BYTES = 16 << 10
"""Records nearer to each other than this are read in one piece: copying is cheaper than a call."""

TURN_S = 0.001
"""How long calls that were waited for may take together, until others run."""

T = TypeVar("T")


class PieceRead(NamedTuple):
    """Bytes of a file that a thread has read, or why it could not."""

    position: int
    size: int
    content: bytes | Unreadable


PiecesRead = dict["Path", list[PieceRead]]
_NONE: PiecesRead = {}


class ByteRange(NamedTuple):
    """Bytes [begin, end) of one segment."""

    file: MappedFile
    begin: int
    end: int


class ColdReads:
    """Reads data that may be on disk. For the loop; only `complete` waits."""

    __slots__ = ("_clock", "_disk", "_known", "_spent_s", "_stats", "_turn", "limiter", "waits")

    def __init__(self, disk: Disk, stats: StoreStats, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._spent_s = 0.0
        """The time of the calls of this turn."""
        self._turn: trio.Event | None = None
        """When others run: set as soon as they have."""
        self._stats = stats
        self.limiter = trio.CapacityLimiter(COLD_READ_THREADS)
        """Bounds the threads that read at a time."""
        self._known = _NONE
        """The pieces that the threads have read for the present call."""
        self.waits = True
        """Whether a read may block: the loop does not serve yet."""

    def reading(self, call: Callable[[], T]) -> T | Awaitable[T]:
        """The result of a call that reads, or an awaitable for it when part of the data is on
        disk.
        """
        try:
            return self._call(call)
        except NotInMemory:
            return self.complete(call)

    def _call(self, call: Callable[[], T]) -> T:
        """Call. Raises: NotRepeatable instead of NotInMemory when the call has put something."""
        puts = self._stats.messages_put
        try:
            return call()
        except NotInMemory as miss:
            if self._stats.messages_put == puts:
                raise
            raise NotRepeatable(f"the call has put something: {miss}") from miss

    async def complete(self, call: Callable[[], T]) -> T:
        """Call in the loop, again each time that missing pieces have been read; returns its result.

        The call itself meets a piece that the disk cannot read. Raises: the errors of `call`,
        NotRepeatable, OSError.
        """
        known: PiecesRead = {}
        lost: tuple[Piece, ...] = ()
        for _ in range(REPEATS_MAX):
            try:
                return await self._in_turn(call, known)
            except NotInMemory as miss:
                pieces = miss.pieces
            self._stats.cold_reads += len(pieces)
            try:
                contents = await in_thread(self._fetch, pieces, limiter=self.limiter)
            except FileNotFoundError:
                # Deleted since the call: the next one sees that, or the file is lost.
                if pieces == lost:
                    raise
                lost = pieces
                continue
            for piece, content in zip(pieces, contents, strict=True):
                read = PieceRead(piece.position, piece.size, content)
                known.setdefault(piece.path, []).append(read)
        raise NotRepeatable(f"the call was made {REPEATS_MAX} times and still reads from the disk")

    async def complete_some(self, call: Callable[[int], T], most: int, *, alone: int = 1) -> T:
        """As `complete`, of a call that reads at most so many messages.

        Where the disk cannot read one of them, half as many are tried, so that those in front of it
        are read; then it stands alone, and is tried so often. Raises: Unreadable for that one,
        the errors of `call`, NotRepeatable, OSError.
        """
        while True:
            try:
                return await self.complete(partial(call, most))
            except Unreadable:
                alone -= most <= 1
                if not alone:
                    raise
            most = max(1, most // 2)

    async def _in_turn(self, call: Callable[[], T], known: PiecesRead) -> T:
        """Call once, with what is known; others run first if such calls have taken their time.

        Raises: the errors of `call`, NotInMemory.
        """
        while self._spent_s > TURN_S:
            if self._turn is not None:
                await self._turn.wait()
                continue
            self._turn = turn = trio.Event()
            try:
                await trio.lowlevel.checkpoint()
            finally:
                self._spent_s, self._turn = 0.0, None
                turn.set()
        began = self._clock.monotonic()
        self._known = known
        try:
            return self._call(call)
        finally:
            self._known = _NONE
            self._spent_s += self._clock.monotonic() - began

    def _fetch(self, pieces: Iterable[Piece]) -> list[bytes | Unreadable]:
        """Read pieces through handles of its own, which nobody closes under the thread."""
        contents: list[bytes | Unreadable] = []
        for path, position, size in pieces:
            content: bytes | Unreadable
            try:
                with self._disk.open(path, writable=False) as handle:
                    content = handle.pread(size, position)
            except Unreadable as error:
                content = error
            else:
                if len(content) < size:
                    end = f"ends before byte {position + size}"
                    content = Unreadable(errno.EIO, end, str(path))
            contents.append(content)
        return contents

    # ── Consume queues ──

    def units(self, files: OpenFiles, path: Path, position: int, size: int) -> bytes:
        """`size` bytes of a queue's file. Raises: NotInMemory, OSError."""
        data = self._piece(files, path, position, size)
        if data is None:
            raise NotInMemory((Piece(path, position, size),))
        return data

    # ── The log ──

    def log(self, files: OpenFiles, file: MappedFile, position: int, size: int) -> memoryview:
        """`size` bytes of a segment. Raises: NotInMemory, OSError."""
        return self.ranges(files, [ByteRange(file, position, position + size)])

    def ranges(self, files: OpenFiles, ranges: list[ByteRange]) -> memoryview:
        """Byte ranges, joined in their order. Raises: NotInMemory with all pieces, OSError."""
        parts: list[memoryview] = []
        missing: list[Piece] = []
        for group in _neighbours(ranges):
            file, begin, end = group[0].file, group[0].begin, group[-1].end
            data = self._piece(files, file.path, begin, end - begin, file.handle)
            if data is None:
                missing.append(Piece(file.path, begin, end - begin))
            else:
                view = memoryview(data)
                parts += [view[part.begin - begin : part.end - begin] for part in group]
        if missing:
            raise NotInMemory(tuple(missing))
        # Copied, so that an answer does not keep the gaps between its records in memory.
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    # ── Both ──

    def _piece(
        self, files: OpenFiles, path: Path, position: int, size: int, handle: Handle | None = None
    ) -> bytes | None:
        """The piece; None when part of it is on disk, or the file is not open yet. Raises: OSError.

        `handle` is the file's own, which the last segment has.
        """
        data = self._known_part(path, position, size)
        if handle is not None:
            return self._cached(handle, position, size) if data is None else data
        if data is not None:
            # For the next call: this one has its data, whatever happens.
            with suppress(OSError):
                files.get(path)
        elif path in files or self.waits:
            # The first read of a file may have to read its block map from the disk.
            data = self._cached(files.get(path), position, size)
        return data

    def _known_part(self, path: Path, position: int, size: int) -> bytes | None:
        for begin, length, content in self._known.get(path, ()):
            at = position - begin
            if isinstance(content, Unreadable):
                if not at and size == length:
                    raise content.with_traceback(None)
            elif at >= 0 and at + size <= length:
                return content if size == length else content[at : at + size]
        return None

    def _cached(self, handle: Handle, position: int, size: int) -> bytes | None:
        if self.waits:
            return handle.pread(size, position)
        data = handle.pread_if_cached(size, position)
        return data if data is not None and len(data) == size else None


def _neighbours(ranges: Iterable[ByteRange]) -> list[list[ByteRange]]:
    """Groups that are worth one read each."""
    groups: list[list[ByteRange]] = []
    for piece in ranges:
        last = groups[-1][-1] if groups else None
        if last and last.file is piece.file and 0 <= piece.begin - last.end <= GAP_BYTES:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups
