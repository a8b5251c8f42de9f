"""The messages of a stream ↔ its bytes: a flag, a length of four bytes, the message.

Source: grpc §4.3.
"""

from __future__ import annotations

import struct
from typing import Final

from aerobee.remoting.grpc.status import CallRefused, StatusCode

_PREFIX: Final = struct.Struct(">BI")
PREFIX_BYTES: Final = _PREFIX.size


def framed(message: bytes) -> bytes:
    """A message with its prefix, not compressed."""
    return _PREFIX.pack(0, len(message)) + message


class MessageDecoder:
    """The beginning of a message that has not come whole."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, message_bytes_max: int) -> None:
        self._buffer: bytes | bytearray = b""
        self._limit = message_bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete.

        Raises: CallRefused with RESOURCE_EXHAUSTED as soon as the length of a message is beyond the
        limit, INTERNAL for one that is compressed, although its head has named no compression.
        """
        size = len(data)
        if not self._buffer and size >= PREFIX_BYTES and self._size(data, 0) == size:
            return [data[PREFIX_BYTES:]]  # nearly always: one frame with one whole message
        buffer = self._buffer
        if isinstance(buffer, bytes):
            buffer = self._buffer = bytearray()
        buffer += data
        start = 0
        messages = []
        while len(buffer) - start >= PREFIX_BYTES:
            end = start + self._size(buffer, start)
            if end > len(buffer):
                break
            messages.append(bytes(memoryview(buffer)[start + PREFIX_BYTES : end]))
            start = end
        if start:
            self._buffer = buffer[start:] or b""
        return messages

    @property
    def pending_bytes(self) -> int:
        """How much has come of a message that is not whole."""
        return len(self._buffer)

    def _size(self, data: bytes | bytearray, start: int) -> int:
        flag, length = _PREFIX.unpack_from(data, start)
        if flag:
            raise CallRefused(StatusCode.INTERNAL, "a message is compressed, which is not offered")
        if length > self._limit:
            text = f"a message has {length} bytes, and {self._limit} are allowed"
            raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        return PREFIX_BYTES + int(length)
