"""Routes: request code → header, handler, pool, and what a handler may give.

The lines of the table stand with each feature of the broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from aerobee.remoting.wire.answer import Answer

if TYPE_CHECKING:
    from aerobee.remoting.wire.header import Header

__all__ = [
    "PARKED",
    "Begun",
    "Handler",
    "Later",
    "Outcome",
    "Plain",
    "Route",
    "Steps",
    "finished",
]


class _Parked(Enum):
    PARKED = "parked"


PARKED: Final = _Parked.PARKED
"""The handler answers by `connection.answer`: later, or just before it said so. Until then the
request counts in its pool."""


Later = Answer | _Parked | None
"""What comes of waiting: an answer, PARKED, or None (held or nothing to say)."""


class Begun(NamedTuple):
    """What was asked for has happened, only its answer waits: it is never refused for its age."""

    work: Awaitable[Later]


Plain = Later | Begun | Awaitable[Later]
Steps: TypeAlias = Generator[None, None, Plain]
"""Long work that waits for nobody: each step takes a millisecond or so, then others may run.

What its peer sent behind it is served when it has ended. It begins in its connection's turn."""

Outcome = Plain | Steps
"""What a handler gives: an answer, PARKED, None (held or nothing to say), what to wait for, or
steps that end with one of these."""


T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """What steps end with, taken at once: for those that are known to be few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


Handler = Callable[..., Outcome]
"""`handler(header, command, connection) -> Outcome`; its header is the one its route names."""


class Route(NamedTuple):
    """One line of the table. `header.code` is the request code."""

    header: type[Header]
    handler: Handler
    pool: str
