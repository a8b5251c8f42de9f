"""The headers of a request → what is called, for how long, with which metadata.

Source: grpc §4.3.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aerobee.remoting.grpc.status import CallRefused, StatusCode

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTENT_TYPE: Final = b"application/grpc"
CONTENT_TYPES: Final = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?", re.IGNORECASE)
TIMEOUT: Final = re.compile(rb"(\d{1,8})([HMSmun])")
MS_OF_UNIT: Final = {
    b"H": 3_600_000.0,
    b"M": 60_000.0,
    b"S": 1_000.0,
    b"m": 1.0,
    b"u": 1e-3,
    b"n": 1e-6,
}


FIELD_BYTES: Final = 100
"""The memory of a field, beside its name and its value."""
TIMEOUTS_KEPT: Final = 1_024
"""Texts of timeouts that are read once: a client sends few different ones."""


class NotGrpc(CallRefused):
    """The request is none of gRPC: the answer is of HTTP alone, with this status."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(StatusCode.UNKNOWN, text)
        self.http_status = http_status


class EncodingRefused(CallRefused):
    """The messages are compressed; the answer names what is accepted."""

    def __init__(self, encoding: str) -> None:
        text = f"grpc-encoding {encoding} is not supported, identity is"
        super().__init__(StatusCode.UNIMPLEMENTED, text)


class RequestHead:
    """The head of a call: its path, what is left of its time, its metadata.

    Raises: NotGrpc, EncodingRefused, CallRefused.
    """

    __slots__ = ("_fields", "path", "timeout_ms")

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        fields = dict(headers)
        if len(fields) != len(headers):
            fields = _joined(headers)
        self._fields = fields
        if fields.get(b":method") != b"POST":
            raise NotGrpc(405, "a call is a POST request")
        content_type = fields.get(b"content-type", b"")
        if content_type != CONTENT_TYPE and not CONTENT_TYPES.fullmatch(content_type):
            raise NotGrpc(415, "the content-type of a call is application/grpc")
        self.path = fields.get(b":path", b"")
        encoding = fields.get(b"grpc-encoding", b"identity")
        if encoding != b"identity":
            raise EncodingRefused(encoding.decode("ascii", "replace"))
        timeout = fields.get(b"grpc-timeout")
        self.timeout_ms = None if timeout is None else timeout_ms(timeout)
        """Milliseconds until the client gives up, from the arrival of the head; None: never."""

    def text(self, name: bytes, default: str = "") -> str:
        """A field of the metadata; bytes that are no ASCII are replaced. Repeated fields are one,
        joined by commas.
        """
        value = self._fields.get(name)
        return default if value is None else value.decode("ascii", "replace")

    def binary(self, name: bytes) -> bytes | None:
        """A field whose name ends in -bin, decoded; None if there is none, or it is no base64."""
        value = self._fields.get(name)
        if value is None:
            return None
        try:
            # Padding may be left out, and where it is there, too much of it does not matter.
            return b64decode(value + b"==", validate=False)
        except Base64Error:
            return None

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the metadata."""
        fields = self._fields
        texts = sum(map(len, fields)) + sum(map(len, fields.values()))
        return texts + FIELD_BYTES * len(fields)

    def drop_fields(self) -> None:
        """Forget the metadata: all that is needed of it was noted."""
        self._fields = {}

    @property
    def method(self) -> str:
        """The path without its first slash, as status texts name it."""
        return self.path.removeprefix(b"/").decode("ascii", "replace")


@lru_cache(maxsize=TIMEOUTS_KEPT)
def timeout_ms(value: bytes) -> float:
    """The value of grpc-timeout in milliseconds. Raises: CallRefused."""
    parts = TIMEOUT.fullmatch(value)
    if parts is None:
        text = f"grpc-timeout {value.decode('ascii', 'replace')} is not a number and a unit"
        raise CallRefused(StatusCode.INTERNAL, text)
    return int(parts[1]) * MS_OF_UNIT[parts[2]]


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        fields[name] = fields[name] + b"," + value if name in fields else value
    return fields
