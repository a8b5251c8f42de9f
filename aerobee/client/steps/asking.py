"""Requests that are retried: the choice of a broker's address, and the response codes to retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.answers import error_of
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.steps.routes import PAUSES_S
from aerobee.errors import AerobeeError, BrokerNotFoundError
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


def ask_broker(
    routes: Routes, queue: MessageQueue, header: Header, *, master_only: bool = False
) -> Steps[tuple[Ask, Command]]:
    """Send a request to the broker of a queue; returns it with its response, maybe a refusal.

    It is sent to the master, else to the slaves in turn, unless it is for the master only.
    Raises: TransportError, RouteNotFoundError, BrokerNotFoundError, BrokerError for "not now".
    """
    timeout_s = routes.config.request_timeout
    yield from routes.locate(queue, timeout_s)

    def address(turn: int) -> str:
        name = queue.broker_name
        try:
            return routes.master(name) if master_only else routes.reader(name, turn)
        except BrokerNotFoundError as error:
            which = f"queue {queue.queue_id} of topic {queue.topic} on broker {name}"
            raise BrokerNotFoundError(f"{which}: {error}").about(
                topic=queue.topic, broker=name
            ) from None

    return (yield from _ask(routes, address, header, queue.broker_name))


def ask_address(
    routes: Routes, address: str, header: Header, body: bytes = b"", tries: int | None = None
) -> Steps[tuple[Ask, Command]]:
    """Send a request to an address, with retries; it may arrive once for each try.

    Raises: TransportError, BrokerError for "not now", ConfigurationError if it is too long.
    """
    return (yield from _ask(routes, lambda _turn: address, header, "broker", body, tries))


def _ask(
    routes: Routes,
    address: Callable[[int], str],
    header: Header,
    peer: str,
    body: bytes = b"",
    tries: int | None = None,
) -> Steps[tuple[Ask, Command]]:
    turn = 0
    tries = tries or routes.config.lookup_tries
    while True:
        ask = Ask(
            address=address(turn),
            header=header,
            body=body,
            timeout_s=routes.config.request_timeout,
        )
        try:
            answer: Command = yield ask
            if answer.code != ResponseCode.SUCCESS:
                refusal = error_of(ask, answer, peer)
                if refusal.retryable:
                    raise refusal
        except AerobeeError as error:
            turn += 1
            if turn >= tries or not error.retryable:
                raise
        else:
            return ask, answer
        yield Wait(routes.closing, PAUSES_S[min(turn, len(PAUSES_S)) - 1])
