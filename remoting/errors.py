"""What goes wrong between two peers.

RemotingError
├── FrameError            the byte stream cannot be trusted any more: close the connection
├── HeaderError(field)    one field of a header is missing or unreadable: refuse this request
├── BodyError             a JSON body does not decode: refuse this request
├── Postponed             nothing of the request has happened yet: serve it again later
└── client side
    ├── ConnectFailed     no connection came about
    ├── ChannelClosed     the connection went while a call waited, or before it began
    └── CallTimedOut      no answer came in time; the connection stays
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BodyError",
    "CallTimedOut",
    "ChannelClosed",
    "ConnectFailed",
    "FrameError",
    "HeaderError",
    "Postponed",
    "RemotingError",
]


class RemotingError(Exception):
    """The root of what this package raises."""


class FrameError(RemotingError):
    """A frame or its header is malformed; what follows in the stream means nothing.

    `frames` holds the whole frames that stood before it in the same feed and are still good.
    """

    def __init__(
        self, reason: str, frames: Sequence[tuple[int, memoryview, memoryview]] = ()
    ) -> None:
        super().__init__(reason)
        self.frames = frames


class HeaderError(RemotingError):
    """A header field is missing or does not parse. `field` is its name on the wire."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"header field {field} {problem}")
        self.field = field


class BodyError(RemotingError):
    """A body is not the JSON document that its request calls for."""


class Postponed(RemotingError):
    """A handler cannot do anything yet, and has done nothing: it is called again for the request.

    That is when `Reactor.resume` is called; what its peer sent behind it waits until then.
    """


class ConnectFailed(RemotingError):
    """The peer could not be reached."""


class ChannelClosed(RemotingError):
    """The connection is gone; whether a request in flight was served is not known."""


class CallTimedOut(RemotingError):
    """The answer did not come in time; whether the request was served is not known."""
