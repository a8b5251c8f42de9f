"""Listening and accepting: out of descriptors it rests and tries again, and never spins."""

from __future__ import annotations

import errno
import socket
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from aerobee.remoting.server import boss
from tests.remoting.server.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio.testing import MockClock


class Listener(socket.socket):
    """A real listener whose next accepts fail as told."""

    failures: list[int]
    accepts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.accepts += 1
        if self.failures:
            raise OSError(self.failures.pop(0), "told to fail")
        return super().accept()


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a burst of a few connections is accepted in one go."""
    monkeypatch.setattr(boss, "monotonic", lambda: 100.0)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as sock:
        sock.failures = []
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.setblocking(False)
        yield sock


@pytest.fixture
def peer(listener: Listener) -> Iterator[socket.socket]:
    """Somebody who has connected and is not accepted yet."""
    with socket.create_connection(listener.getsockname(), timeout=5) as sock:
        yield sock


def limits_of(
    stage: Stage, max_connections: int = 0, descriptors: int | None = None
) -> boss.ConnectionLimits:
    return boss.ConnectionLimits(stage.reactor.shared, max_connections, descriptors)


@pytest.mark.parametrize(
    ("max_connections", "descriptors", "stay"), [(0, None, 3), (2, None, 2), (0, 4, 0)]
)
def test_beyond_the_limit_a_peer_is_closed_as_it_comes(
    listener: Listener, max_connections: int, descriptors: int | None, stay: int
) -> None:
    stage = Stage()
    limits = limits_of(stage, max_connections, descriptors)
    turns = cycle([stage.selector])
    peers = [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(stay)]
    assert boss.accept_ready(listener, "test", stage.worker, turns, limits)
    # Those that have asked for something; others would give their places.
    stage.reactor.shared.newcomers.by_address.clear()
    peers += [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(3 - stay)]
    with capture_logs() as logged:
        assert boss.accept_ready(listener, "test", stage.worker, turns, limits)
    stats = stage.reactor.stats
    assert (stats.connections, stats.connections_refused) == (stay, 3 - stay)
    assert [peer.recv(1) for peer in peers[stay:]] == [b""] * (3 - stay)
    refused = [line for line in logged if line["event"] == "connection.refused"]
    assert len(refused) == (stay < 3), "one line, however many"
    for connection in list(stage.selector.connections.values()):
        connection.close("test")
    for peer in peers:
        peer.close()


@pytest.mark.trio
@pytest.mark.parametrize("error", sorted(boss.OVERLOADED))
async def test_a_system_out_of_something_is_asked_again_after_a_rest(
    listener: Listener, peer: socket.socket, error: int, mock_clock: MockClock
) -> None:
    stage = Stage()
    listener.failures = [error, error]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            boss.run, listener, "test", stage.worker, [stage.selector], limits_of(stage)
        )
        for failed in (1, 2):
            await wait_all_tasks_blocked(0.01)
            assert (listener.accepts, stage.reactor.stats.accept_failures) == (failed, failed)
            mock_clock.jump(boss.ACCEPT_PAUSE_S * 0.9)
            await wait_all_tasks_blocked(0.01)
            assert listener.accepts == failed, "it rests, although the listener is ready"
            mock_clock.jump(boss.ACCEPT_PAUSE_S * 0.2)
        await wait_all_tasks_blocked(0.01)
        assert stage.reactor.stats.connections == 1
        nursery.cancel_scope.cancel()
    assert listener.fileno() == -1, "closed on the way out"
    for connection in list(stage.selector.connections.values()):
        connection.close("test")


@pytest.mark.parametrize("error", sorted(boss.GONE))
def test_a_peer_that_left_while_it_waited_is_passed_over(
    listener: Listener, peer: socket.socket, error: int
) -> None:
    stage = Stage()
    listener.failures = [error]
    turns = iter([stage.selector])
    stats = stage.reactor.stats
    assert boss.accept_ready(listener, "test", stage.worker, turns, limits_of(stage))
    assert (stats.connections, stats.accept_failures) == (1, 0)
    for connection in list(stage.selector.connections.values()):
        connection.close("test")


def test_an_error_that_means_a_fault_of_ours_is_not_hidden(
    listener: Listener, peer: socket.socket
) -> None:
    stage = Stage()
    listener.failures = [errno.EBADF]
    with pytest.raises(OSError):
        boss.accept_ready(listener, "test", stage.worker, iter([]), limits_of(stage))


def test_a_burst_of_connections_gives_others_their_turn(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    now = iter(range(1_000))
    monkeypatch.setattr(boss, "monotonic", lambda: next(now) * boss.ACCEPT_S / 3.5)
    peers = [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(9)]
    turns = cycle([stage.selector])
    accepted = []
    while listener.accepts < 9:
        before = listener.accepts
        assert boss.accept_ready(listener, "broker", stage.worker, turns, limits_of(stage))
        accepted.append(listener.accepts - before)
    assert accepted == [3, 3, 3]
    for connection in list(stage.selector.connections.values()):
        connection.close("test")
    for peer in peers:
        peer.close()


def test_connections_go_to_the_selectors_in_turn(listener: Listener) -> None:
    first, second = Stage(), Stage()
    turns = iter([first.selector, second.selector, first.selector])
    peers = [socket.create_connection(listener.getsockname(), timeout=5) for _ in range(3)]
    assert boss.accept_ready(listener, "test", first.worker, turns, limits_of(first))
    assert [len(s.selector.connections) for s in (first, second)] == [2, 1]
    for stage in (first, second):
        for connection in list(stage.selector.connections.values()):
            sock = connection.sock
            assert isinstance(sock, socket.socket)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not sock.getblocking()
            connection.close("test")
    for sock in peers:
        sock.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_listener_is_of_the_family_of_its_address(host: str) -> None:
    with boss.bind(host, 0, send_bytes=1 << 16, receive_bytes=1 << 16) as sock:
        assert sock.getsockname()[0] == host
        assert not sock.getblocking()
        # The kernel doubles what it is told, for its own use.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (1 << 16, 1 << 17)


def test_a_taken_port_is_named() -> None:
    with boss.listen("127.0.0.1", 0, 16) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}") as error:
            boss.listen("127.0.0.1", port, 16)
        assert error.value.errno == errno.EADDRINUSE
