"""Errors between two peers.

RemotingError
├── FrameError            the byte stream cannot be trusted any more: close the connection
├── HeaderError(field)    one field of a header is missing or unreadable: refuse this request
├── BodyError             a JSON body does not decode: refuse this request
├── RequestPostponed      nothing of the request has happened yet: serve it again later
└── client side
    ├── ConnectFailed     no connection could be made
    ├── ChannelClosed     the connection was lost while a call waited, or before it began
    └── CallTimedOut      no response came in time; the connection stays open
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class RemotingError(Exception):
    """The root of the errors of this package."""


class FrameError(RemotingError):
    """A frame or its header is malformed, so the rest of the stream cannot be decoded.

    `frames` holds the complete frames that came before it in the same feed; they are valid.
    """

    def __init__(
        self, reason: str, frames: Sequence[tuple[int, memoryview | bytes, memoryview | bytes]] = ()
    ) -> None:
        super().__init__(reason)
        self.frames = frames


class HeaderError(RemotingError):
    """A header field is missing or does not parse. `field` is its name on the wire."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"header field {field} {problem}")
        self.field = field


class BodyError(RemotingError):
    """A body is not the JSON document that its request needs."""


class RequestPostponed(RemotingError):
    """A handler cannot act yet and has done nothing: it is called again for the same request.

    That is when `Reactor.resume` is called; later requests of the connection wait until then.
    """


class ConnectFailed(RemotingError):
    """The peer could not be reached."""


class ChannelClosed(RemotingError):
    """The connection is lost; whether a request in flight was served is unknown."""


class CallTimedOut(RemotingError):
    """The response did not come in time; whether the request was served is unknown."""
