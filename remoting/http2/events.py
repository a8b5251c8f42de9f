"""The events of an HTTP/2 connection, in our own words: the adapter below may be exchanged.

A request is one RequestReceived, any number of DataReceived, of which the last one ends it (or the
request itself does), and in the end one StreamClosed, whatever else happens to the stream. The last
event of a connection is ConnectionEnded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[bytes, bytes]
"""A name in lower case and a value."""
Headers: TypeAlias = tuple[Header, ...]
"""In the order of the wire; names may repeat."""


class ErrorCode(IntEnum):
    """Why a stream or a connection ends. Source: RFC 9113 §7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class RequestReceived(NamedTuple):
    """The head of a request; `end`: nothing follows it."""

    stream: int
    headers: Headers
    end: bool


class DataReceived(NamedTuple):
    """Bytes of a body, which count against the windows until they are taken; empty only at the
    end. `end`: these are the last ones.
    """

    stream: int
    data: bytes
    end: bool


class StreamClosed(NamedTuple):
    """A stream is over: with NO_ERROR both sides have ended it, else one of them has reset it."""

    stream: int
    code: int


class StreamDrained(NamedTuple):
    """There is room again for the body of a stream that had none."""

    stream: int


class GoAwayReceived(NamedTuple):
    """The peer begins no more streams; those that are open go on."""

    code: int


class ConnectionEnded(NamedTuple):
    """The connection is over. When the output is written, it can be closed."""

    code: int
    reason: str


Event: TypeAlias = (
    RequestReceived | DataReceived | StreamClosed | StreamDrained | GoAwayReceived | ConnectionEnded
)
