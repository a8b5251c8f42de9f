"""Frames of the replication between two brokers: pieces of the log one way, reports the other way.

Pure: bytes in any cut ↔ frames and reports. The connection has no handshake, no version and no
checksum, so all that can be checked here are numbers; the log itself is checked by who appends it.
Source: store format §8 (DefaultHAConnection, DefaultHAClient).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from aerobee.store.errors import FrameIllegal
from aerobee.store.format.layout import Layout, i32, i64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.store.format.layout import Buffer

FRAME_HEAD_BYTES: Final = 12
REPORT_BYTES: Final = 8
FRAME_DATA_BYTES_MAX: Final = (4 << 20) - FRAME_HEAD_BYTES
"""The most bytes of the log in a frame: a Java slave reads into 4 MiB, and a frame must fit."""
OFFSET_MAX: Final = (1 << 63) - 1
Piece = TypeVar("Piece")


NEVER_COUNTS = -(1 << 40)
"""The offset that a shadow reports once it gets the log: no master takes it for an acknowledgement,
and by the difference to the end of the log it is never in sync.
"""


class FrameHead(NamedTuple):
    """The head of a frame: where its bytes belong, and how many there are."""

    physical_offset: i64
    size: i32


class Report(NamedTuple):
    """The report of a slave, and all that it ever sends: the end of its log."""

    max_offset: i64


FRAME_HEAD = Layout(FrameHead, size=FRAME_HEAD_BYTES)
REPORT = Layout(Report, size=REPORT_BYTES)


class Frame(NamedTuple):
    """Bytes of the log and their physical offset; without bytes it is a heartbeat."""

    physical_offset: int
    data: bytes | memoryview


def encode_frame(physical_offset: int, data: Buffer = b"") -> bytes:
    """A frame with its bytes; a heartbeat without them names the offset that is sent next."""
    size = len(data)
    assert size <= FRAME_DATA_BYTES_MAX, size
    return b"".join((FRAME_HEAD.pack(physical_offset, size), data))


def encode_frames(physical_offset: int, data: memoryview, most: int) -> bytes:
    """Frames of `most` bytes of one segment, but for the last, side by side. Hot."""
    assert 0 < most <= FRAME_DATA_BYTES_MAX, most
    parts: list[Buffer] = []
    for at in range(0, len(data), most):
        piece = data[at : at + most]
        parts += (FRAME_HEAD.pack(physical_offset + at, len(piece)), piece)
    return b"".join(parts)


def encode_report(max_offset: int) -> bytes:
    """A slave's report of the end of its log."""
    return REPORT.pack(max_offset)


class Pieces(Generic[Piece]):
    """Cuts what comes into pieces, such as frames, wherever the network has cut it.

    Of the bytes of a piece none is copied, but for one that comes in several parts.
    """

    __slots__ = ("_begun", "_needed")

    def __init__(self) -> None:
        self._begun = bytearray()
        """The beginning of a piece that has not come whole."""
        self._needed = 0
        """So many bytes it takes to go on."""

    def feed(self, data: Buffer) -> Iterator[Piece]:
        """The pieces that are whole with these bytes, in order; the iterator must be exhausted.

        Numbers that no piece can have are found with the head, before any of its bytes are waited
        for; the pieces in front of it have been given then. Raises: FrameIllegal.
        """
        view = memoryview(data)
        while self._begun:
            missing = self._needed - len(self._begun)
            self._begun += view[:missing]
            view = view[missing:]
            if len(self._begun) < self._needed:
                return
            yield from self._cut(memoryview(self._begun))
        yield from self._cut(view)

    def _cut(self, view: memoryview) -> Iterator[Piece]:
        """The whole pieces; `_keep` is told of the rest, and called in any case."""
        raise NotImplementedError

    def _keep(self, rest: memoryview, needed: int) -> None:
        self._begun, self._needed = bytearray(rest), needed


class FrameReader(Pieces[Frame]):
    """Cuts what a master sends into frames."""

    __slots__ = ("data_bytes", "frames")

    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        """How many were given."""
        self.data_bytes = 0
        """How many bytes of the log are in them."""

    def _cut(self, view: memoryview) -> Iterator[Frame]:
        at, needed = 0, FRAME_HEAD_BYTES
        while len(view) - at >= FRAME_HEAD_BYTES:
            physical_offset, size = FRAME_HEAD.unpack_from(view, at)
            if physical_offset < 0 or not 0 <= size <= FRAME_DATA_BYTES_MAX:
                raise FrameIllegal(f"a frame of {size} bytes for offset {physical_offset}")
            if physical_offset > OFFSET_MAX - size:
                raise FrameIllegal(f"{size} bytes at {physical_offset} are beyond every log")
            begin = at + FRAME_HEAD_BYTES
            if len(view) < begin + size:
                needed += size
                break
            at = begin + size
            self.frames += 1
            self.data_bytes += size
            yield Frame(physical_offset, view[begin:at])
        self._keep(view[at:], needed)


class ReportReader:
    """Takes a slave's reports from what it sends; only the last whole one means anything."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> int | None:
        """The last whole report with these bytes; None while there is none. It may be any i64."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        if not whole:
            return None
        return REPORT.read(data, whole - REPORT_BYTES).max_offset
