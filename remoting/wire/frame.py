"""Splits a byte stream into frames.

    u32 length | u32 encoding << 24 | header length | header | body

`length` counts everything but itself. Memory is never allocated from a claimed length: the buffer
of an incomplete frame grows with the bytes that came. Each check runs as soon as its bytes are
there. Source: remoting §1.3.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from aerobee.remoting.errors import FrameError

Frame: TypeAlias = tuple[int, memoryview | bytes, memoryview | bytes]
"""Encoding of the header (0 JSON, 1 ROCKETMQ, 2 MSGPACK), header, body."""

HEAD = Struct(">II")
MAX_FRAME_BYTES = 16_777_216
"""The largest frame that Java accepts, on either side, the four bytes of the length included."""
MAX_HEADER_BYTES = 262_144
"""32 KiB of properties can grow sixfold by JSON escapes."""
ENCODINGS: Final = 3
HEADER_LENGTH_BITS: Final = 24
HEADER_LENGTH_MASK: Final = (1 << HEADER_LENGTH_BITS) - 1
MARK_LIMIT: Final = ENCODINGS << HEADER_LENGTH_BITS
NOTHING = memoryview(b"")


class FrameDecoder:
    """The receiving half of one connection; its errors name the limits as a broker's settings.

    Invariant: `_tail` is the beginning of one incomplete frame, or empty; never a whole frame.
    """

    __slots__ = ("_max_header", "_max_length", "_tail")

    def __init__(
        self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_HEADER_BYTES
    ) -> None:
        self._max_length = max_frame_bytes - 4
        self._max_header = max_header_bytes
        self._tail = bytearray()

    @property
    def pending_bytes(self) -> int:
        """The buffered bytes of an incomplete frame."""
        return len(self._tail)

    def give_back(self) -> bytes | bytearray:
        """The bytes of the incomplete frame, which are forgotten here and will be fed again."""
        tail = self._tail
        if tail:
            self._tail = bytearray()
        return tail

    def feed(self, data: memoryview | bytes) -> list[Frame]:
        """The frames that `data` completes, in order.

        The views are valid until the next feed; a frame that lies whole in `data` is not copied.
        Raises: FrameError, with the good frames before the bad one; feed nothing after it.
        """
        view = data if isinstance(data, memoryview) else memoryview(data)
        frames: list[Frame] = []
        at = self._finish(view, frames) if self._tail else 0
        end = len(view)
        max_length = self._max_length
        max_header = self._max_header
        unpack = HEAD.unpack_from
        try:
            while end - at >= 8:
                length, mark = unpack(view, at)
                header_length = mark & HEADER_LENGTH_MASK
                if (
                    length > max_length
                    or header_length > length - 4
                    or mark >= MARK_LIMIT
                    or header_length > max_header
                ):
                    self._reject(length, mark)
                stop = at + 4 + length
                if stop > end:
                    break
                body_at = at + 8 + header_length
                frames.append((mark >> 24, view[at + 8 : body_at], view[body_at:stop]))
                at = stop
            if at < end:
                self._keep(view[at:])
        except FrameError as error:
            error.frames = frames
            raise
        return frames

    def _finish(self, view: memoryview, frames: list[Frame]) -> int:
        """Complete the incomplete frame, as far as `view` has it; returns how much of `view` that
        took.
        """
        tail = self._tail
        at = 0
        if len(tail) < 8:
            at = 8 - len(tail)
            self._keep(view[:at])
            if len(tail) < 8:
                return len(view)
        length, mark = HEAD.unpack_from(tail)
        missing: int = 4 + length - len(tail)
        tail += view[at : at + missing]
        if len(tail) < 4 + length:
            return len(view)
        # A bytearray with views cannot be resized, so the next tail is a new one.
        self._tail = bytearray()
        whole = memoryview(tail)
        body_at = 8 + (mark & HEADER_LENGTH_MASK)
        frames.append((mark >> 24, whole[8:body_at], whole[body_at:]))
        return at + missing

    def _keep(self, rest: memoryview) -> None:
        """Add to the incomplete frame and check its length and header as far as they are known."""
        tail = self._tail
        tail += rest
        if len(tail) >= 8:
            self._check(*HEAD.unpack_from(tail))
        elif len(tail) >= 4:
            self._check(int.from_bytes(tail[:4], "big"), 0)

    def _check(self, length: int, mark: int) -> None:
        header_length = mark & HEADER_LENGTH_MASK
        if (
            length > self._max_length
            or header_length > min(length - 4, self._max_header)
            or mark >= MARK_LIMIT
        ):
            self._reject(length, mark)

    def _reject(self, length: int, mark: int) -> None:
        """Say what is wrong with a frame. Raises: FrameError, always."""
        header_length = mark & HEADER_LENGTH_MASK
        if length > self._max_length:
            reason = (
                f"frame of {length} bytes, at most {self._max_length} are taken (maxFrameBytes)"
            )
        elif length < 4:
            reason = f"frame of {length} bytes has no room for a header length"
        elif mark >= MARK_LIMIT:
            reason = f"unknown header type {mark >> HEADER_LENGTH_BITS}"
        elif header_length > length - 4:
            reason = f"header of {header_length} bytes in a frame of {length}"
        else:
            most = self._max_header
            reason = f"header of {header_length} bytes, at most {most} are taken (maxHeaderBytes)"
        raise FrameError(reason)
