"""The status of a call: its code, its text, and the trailers that carry both.

Source: grpc §4.4.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from aerobee.remoting.errors import RemotingError

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT_MAX: Final = 2_048
"""Characters of a text; the rest is cut, for clients bound the size of trailers."""
_TO_ENCODE: Final = re.compile(rb"[^ -$&-~]")
"""Bytes that are not printable ASCII, and the percent sign."""


class StatusCode(IntEnum):
    """How a call has ended."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallRefused(RemotingError):
    """A call cannot be served; `code` and the text go to the client."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def percent_encoded(text: str) -> bytes:
    """A text as the value of grpc-message; it stays one line."""
    return _TO_ENCODE.sub(_encoded, text[:TEXT_MAX].encode("utf-8", "replace"))


def _encoded(byte: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(byte[0])


def trailers(code: StatusCode, text: str = "") -> Sequence[tuple[bytes, bytes]]:
    """The last headers of a call."""
    if not text:
        return _WITHOUT_TEXT[code]
    return (*_WITHOUT_TEXT[code], (b"grpc-message", percent_encoded(text)))


_WITHOUT_TEXT: Final = tuple(((b"grpc-status", b"%d" % code),) for code in StatusCode)
