"""What a worker serves later or together: requests checked in steps, and runs of those alike."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, TypeAlias

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.server.pools import AGE_CHECK_S
from aerobee.remoting.server.route_table import Unfinished
from aerobee.remoting.server.routes import is_steps
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.command import decode, typed_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.route_table import Resolved
    from aerobee.remoting.server.routes import Steps
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.frame import Frame
    from aerobee.remoting.wire.header import Header

    Requests: TypeAlias = Iterator[tuple[Command, Header, Connection]]

    Checked: TypeAlias = Answer | Generator[None, None, Answer | None] | None

    Gate: TypeAlias = Callable[[Command, Connection], Checked]
    """Asked before a request is served: the refusal, or None, or steps that end with one of them.
    It may hold the connection back: then the request is served or refused later.
    """

    LetsPass: TypeAlias = Callable[[Command, Connection], bool]
    """Whether the gate would let a request behind others of its connection pass, and note nothing;
    of any other it says no, and is asked about it in the ordinary way.
    """

RUN_MAX: Final = 32
"""Requests that are served together, between two looks at the time."""
JSON: Final = int(Encoding.JSON)


def following(
    command: Command,
    connection: Connection,
    route: Resolved,
    frames: Sequence[Frame],
    step: float,
    lets_pass: LetsPass | None,
) -> Requests:
    """A request, and those of the frames behind it that are like it, each decoded when it is asked
    for; ends before one that is of another kind, waited too long, does not decode, or that the gate
    has to look at more closely. Hot.
    """
    code, header_type, arrived = command.code, route.header, command.arrived
    pool, now = route.pool, connection.context.now
    served_from = max(now - pool.max_wait_s, min(pool.stall.end, now - AGE_CHECK_S))
    typed = typed_decoder(header_type)
    try:
        yield command, command.header(header_type), connection
        for encoding, head, body in frames:
            if encoding != JSON:
                return
            if lets_pass is None:
                command, header = typed(head, body)
            else:
                command = decode(encoding, head, body)
            command.arrived = arrived = arrived + step
            if command.code != code or command.flag or arrived < served_from:
                return
            if lets_pass is not None:
                if not lets_pass(command, connection):
                    return
                header = command.header(header_type)
            yield command, header, connection
    except (FrameError, HeaderError):
        # The worker meets it again, and refuses it.
        return


def passes(gate: Gate, command: Command, connection: Connection, route: Resolved) -> bool:
    """Whether a request is served now. If not, the gate has refused it, or its connection goes on
    with it later.
    """
    refusal = gate(command, connection)
    if connection.postponed:
        assert not isinstance(refusal, Generator)
        steps = None if refusal is None else refused(refusal)
        if steps is not None:
            command.body = b""
        connection.unfinished = Unfinished(command.arrived, command.detached(), route, steps)
        return False
    if isinstance(refusal, Generator):
        command.detached()
        steps = checked_first(refusal, command, connection, route)
        connection.unfinished = Unfinished(command.arrived, command, route, steps)
        return False
    if refusal is not None:
        connection.answer(command, refusal)
        return False
    return True


def refused(refusal: Answer) -> Steps:
    """The one step of a request that is refused later."""
    return refusal
    yield


def checked_first(
    checking: Generator[None, None, Answer | None],
    command: Command,
    connection: Connection,
    route: Resolved,
) -> Steps:
    """The steps of a request that the gate checks in steps."""
    refusal = yield from checking
    if refusal is not None:
        return refusal
    route.pool.served += 1
    outcome = route.handler(command.header(route.header), command, connection)
    return (yield from outcome) if is_steps(outcome) else outcome
