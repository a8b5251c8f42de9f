import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from aerobee.client.blocking.connections import WINDOW, Connections
from aerobee.client.steps.effects import Ask
from aerobee.errors import ConnectError, RequestTimeoutError, TransportError
from aerobee.remoting.client.link import Link
from aerobee.remoting.errors import ConnectFailed
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.offset import GetMaxOffset, OffsetResponse
from tests.conftest import AnyBroker
from tests.kit.ports import HOST, free_port

pytestmark = pytest.mark.service

TIMEOUT_S = 5.0


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken and nothing is ever said."""
    with socket.create_server((HOST, 0)) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


@pytest.fixture
def time_outs(monkeypatch: pytest.MonkeyPatch) -> list[Empty]:
    """How often responses were waited for until the time-out."""
    passed: list[Empty] = []

    class Arrivals(SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            try:
                return super().get(block, timeout)
            except Empty as error:
                passed.append(error)
                raise

    monkeypatch.setattr("aerobee.client.blocking.connections.SimpleQueue", Arrivals)
    return passed


def ask(address: str, queue_id: int = 0) -> Ask:
    header = GetMaxOffset(topic="nobody-has-it", queue_id=queue_id)
    return Ask(address=address, header=header, timeout_s=TIMEOUT_S)


def test_more_requests_than_fit_at_once_are_answered_in_order(broker: AnyBroker) -> None:
    connections = Connections(TIMEOUT_S)
    asks = [ask(broker.address, number) for number in range(2 * WINDOW + 5)]
    outcomes = connections.exchange(asks)
    assert len(outcomes) == len(asks)
    for outcome in outcomes:
        assert isinstance(outcome, Command)
        assert outcome.header(OffsetResponse).offset == 0
    opaques = [outcome.opaque for outcome in outcomes if isinstance(outcome, Command)]
    assert opaques == sorted(opaques)
    assert connections.exchange([]) == []
    connections.close()


def test_a_connection_is_kept_and_replaced_when_it_is_gone(broker: AnyBroker) -> None:
    connections = Connections(TIMEOUT_S)
    first = connections.channel(broker.address)
    assert connections.channel(broker.address) is first
    first.close()
    second = connections.channel(broker.address)
    assert second is not first
    connections.close()
    assert second.closed
    assert not connections.channel(broker.address).closed
    connections.close()


def test_nobody_at_an_address_is_an_error_that_names_it(broker: AnyBroker) -> None:
    connections = Connections(TIMEOUT_S)
    nobody = f"{HOST}:{free_port()}"
    with pytest.raises(ConnectFailed, match=nobody):
        connections.channel(nobody)
    outcomes = connections.exchange([ask(nobody), ask(broker.address), ask(nobody)])
    assert [type(outcome) for outcome in outcomes] == [ConnectError, Command, ConnectError]
    connections.close()


def test_a_failed_attempt_to_connect_is_that_of_all_who_wait_for_it() -> None:
    """With a peer that is silent each of them would wait for its own, and more come meanwhile."""
    many = 10
    attempts: list[str] = []
    gone, beginning = threading.Event(), threading.Barrier(many + 1)

    def connect(address: str) -> None:
        attempts.append(address)
        assert gone.wait(TIMEOUT_S)
        raise ConnectionRefusedError("it is gone")

    connections = Connections(TIMEOUT_S, link=Link(shortcut=connect))

    def fails() -> str:
        beginning.wait()
        with pytest.raises(ConnectFailed) as failed:
            connections.channel("nobody:1")
        return str(failed.value)

    with ThreadPoolExecutor(many) as threads:
        failures = [threads.submit(fails) for _ in range(many)]
        beginning.wait()
        gone.wait(0.5)
        gone.set()
        (said,) = {failure.result(TIMEOUT_S) for failure in failures}
        assert said == "nobody:1: it is gone"
    assert len(attempts) < many / 2


def test_a_silent_peer_costs_one_time_out_and_nobody_else_an_answer(
    broker: AnyBroker, silent: str, time_outs: list[Empty]
) -> None:
    connections = Connections(2.0)
    channel = connections.channel(silent)
    asks = [ask(silent) for _ in range(3 * WINDOW)] + [ask(broker.address)] * (2 * WINDOW)
    outcomes = connections.exchange(asks)
    assert len(time_outs) == 1, "one time-out, not one for each request or window"
    assert {type(outcome) for outcome in outcomes[: 3 * WINDOW]} == {RequestTimeoutError}
    assert {type(outcome) for outcome in outcomes[3 * WINDOW :]} == {Command}
    assert silent in str(outcomes[0])
    assert channel.closed, "a connection that may be dead was kept"
    connections.close()


def test_a_peer_that_hangs_up_is_an_error_that_may_pass(silent: str) -> None:
    connections = Connections(TIMEOUT_S)
    connections.channel(silent).close()
    with socket.create_server((HOST, 0)) as server:
        address = f"{HOST}:{server.getsockname()[1]}"
        channel = connections.channel(address)
        peer, _ = server.accept()
        peer.close()
        (outcome,) = connections.exchange([ask(address)])
        # By then the channel may know it, and connect anew to somebody who never answers.
        assert isinstance(outcome, TransportError)
        assert outcome.retryable
        channel.close()
    connections.close()
