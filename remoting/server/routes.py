"""Routes: request code → header, handler, pool, and what a handler may return.

Each feature of the broker declares its own routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from types import GeneratorType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from aerobee.remoting.wire.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from typing_extensions import TypeIs

    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

    Requests: TypeAlias = Iterable[tuple[Command, Header, Any]]
    """Each request of a run with its header and its connection."""


class HeldMark(Enum):
    """The type of `HELD`."""

    HELD = "held"


HELD: Final = HeldMark.HELD
"""The request is held, and counts in its pool until `connection.answer` is called: later, or just
before the handler returned this."""


Later = Answer | HeldMark | None
"""The result of waiting: an answer, HELD, or None: there is none, or long polling holds the
request, and no pool counts it."""


class PendingAnswer(NamedTuple):
    """The effect of the request has happened, only its answer waits: its age never refuses it, and
    it takes the place of no other.
    """

    work: Awaitable[Later]


Plain = Later | PendingAnswer | Awaitable[Later]
Steps: TypeAlias = Generator[None, None, Plain]
"""Long work that never waits: each step takes about a millisecond, then others may run.

Later requests of the connection are served when it has ended. It runs in its connection's turns.
Its connection keeps it from its second step on, and not before that may it postpone itself.
"""

Outcome = Plain | Steps
"""The result of a handler: an answer as `Later` describes it, an awaitable, or steps that end with
one of these.
"""


T = TypeVar("T")


def is_steps(outcome: Outcome) -> TypeIs[Steps]:
    """Whether a handler returned steps. A compiled coroutine has all methods of a generator. Hot:
    to look at the type first is three times as fast.
    """
    if type(outcome) is GeneratorType:
        return True
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


RunHandler = Callable[..., "int | Outcome"]
"""`run(header, command, connection, rest)` serves and answers a request and those behind it, as far
as it can serve them together, and returns how many these are. The first one, where it cannot be
served so, is served as by the handler, and its outcome returned. `rest` gives command, header and
connection of each other one, and decodes it when it is asked for. 0 means that the first one is the
handler's, and an error that nothing was done, and that it may be about any of them."""


class Route(NamedTuple):
    """One line of the table. `header.code` is the request code."""

    header: type[Header]
    handler: Handler
    pool: str
    run: RunHandler | None = None
