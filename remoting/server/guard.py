"""The gate of access control in front of the handlers: it is asked before a request is served."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias

from aerobee.remoting.server.route_table import OpenRequest
from aerobee.remoting.server.routes import is_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.route_table import PooledRoute
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command

    Verdict: TypeAlias = Answer | Generator[None, None, Answer | None] | None

    Gate: TypeAlias = Callable[[Command, Caller], Verdict]
    """Asked before a request is served: the refusal, or None, or steps that end with one of them.
    It may postpone the request: then it is served or refused later.
    """

    LetsPass: TypeAlias = Callable[[Command, Caller], bool]
    """Whether the gate would let a request behind others of its connection pass, and note nothing;
    of any other it says no, and is asked about it in the ordinary way.
    """


def passes(gate: Gate, command: Command, connection: Caller, route: PooledRoute) -> bool:
    """Whether a request is served now. If not, the gate has refused it, or its connection goes on
    with it later.
    """
    verdict = gate(command, connection)
    if connection.postponed:
        assert not isinstance(verdict, Generator)
        steps = None if verdict is None else refusal_later(verdict)
        if steps is not None:
            command.body = b""
        connection.current = OpenRequest(command.arrived, command.detached(), route, steps)
        return False
    if isinstance(verdict, Generator):
        command.detached()
        steps = checked_first(verdict, command, connection, route)
        connection.begin(OpenRequest(command.arrived, command, route, steps))
        return False
    if verdict is not None:
        connection.answer(command, verdict)
        return False
    return True


def refusal_later(refusal: Answer) -> Steps:
    """The one step of a request that is refused later."""
    return refusal
    yield


def checked_first(
    checking: Generator[None, None, Answer | None],
    command: Command,
    connection: Caller,
    route: PooledRoute,
) -> Steps:
    """The steps of a request that the gate checks in steps."""
    refusal = yield from checking
    if refusal is not None:
        return refusal
    route.pool.served += 1
    outcome = route.handler(command.header(route.header), command, connection)
    return (yield from outcome) if is_steps(outcome) else outcome
