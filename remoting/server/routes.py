"""Routes: request code → header, handler, pool, and what a handler may return.

Each feature of the broker declares its own routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from aerobee.remoting.wire.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from typing_extensions import TypeIs

    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

    Requests: TypeAlias = Iterator[tuple[Command, Header, Any]]
    """Each request of a run with its header and its connection."""


class _Parked(Enum):
    PARKED = "parked"


PARKED: Final = _Parked.PARKED
"""The handler answers by `connection.answer`: later, or just before it returned this. Until then
the request counts in its pool."""


Later = Answer | _Parked | None
"""The result of waiting: an answer, PARKED, or None (held, or no answer)."""


class Begun(NamedTuple):
    """The effect of the request has happened, only its answer waits: its age never refuses it."""

    work: Awaitable[Later]


Plain = Later | Begun | Awaitable[Later]
Steps: TypeAlias = Generator[None, None, Plain]
"""Long work that never waits: each step takes about a millisecond, then others may run.

Later requests of the connection are served when it has ended. It runs in its connection's turns.
"""

Outcome = Plain | Steps
"""What a handler returns: an answer, PARKED, None (held, or no answer), an awaitable, or steps that
end with one of these."""


T = TypeVar("T")


def is_steps(outcome: Outcome) -> TypeIs[Steps]:
    """Whether a handler returned steps. A compiled coroutine has all methods of a generator."""
    return isinstance(outcome, Generator) and not isinstance(outcome, Awaitable)


def finished(steps: Generator[None, None, T]) -> T:
    """Run all steps at once and return their result: for steps that are known to be few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


Handler = Callable[..., Outcome]
"""`handler(header, command, connection) -> Outcome`; the header is of the route's class."""


RunHandler = Callable[..., int]
"""`run(requests)` serves and answers the first of consecutive requests of the route, as far as it
can serve them together, and returns how many these are; the next one is the handler's. `requests`
gives command, header and connection of each, and decodes it when it is asked for. An error means
that nothing was done."""


class Route(NamedTuple):
    """One line of the table. `header.code` is the request code."""

    header: type[Header]
    handler: Handler
    pool: str
    run: RunHandler | None = None
