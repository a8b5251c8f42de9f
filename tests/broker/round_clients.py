"""Connections of one selector over real sockets, to a desk whose rounds are called."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.broker.answers import refusal
from aerobee.remoting.server import reactor as reactor_module
from aerobee.remoting.server.poller import READ, EpollPoller
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.tls_socket import TlsSocket
from aerobee.remoting.server.worker import Worker
from tests.broker.runs import Runs
from tests.kit.tls import client_context, server_context
from tests.test_depth import Named

if TYPE_CHECKING:
    from aerobee.remoting.server.guard import Gate
    from tests.broker.desk import Desk
    from tests.kit.tls import Certificate

CONNECTIONS = 5
RECEIVE_BYTES = 1 << 23


class Client:
    """One connection of a selector, and its peer."""

    def __init__(self, desk: Desk, selector: Any, worker: Worker, port: int) -> None:
        self.ours, self.theirs = socket.socketpair()
        for end in (self.ours, self.theirs):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RECEIVE_BYTES)
        self.fd = self.ours.fileno()
        named: Any = Named(self.ours)
        selector.adopt(named, ("127.0.0.1", port), "test", worker)
        self.connection = selector.connections[self.fd]
        self.left = b""
        self.answers = b""
        self.peer: ssl.SSLObject | None = None

    def speak_tls(self, shown: Certificate) -> None:
        """From here on its bytes are encrypted."""
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = client_context(shown).wrap_bio(
            self.to_client, self.to_server, server_hostname="127.0.0.1"
        )
        from_peer, to_peer = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = server_context(shown).wrap_bio(from_peer, to_peer, server_side=True)
        for _ in range(3):
            for side in (self.peer, ours):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
                from_peer.write(self.to_server.read())
                self.to_client.write(to_peer.read())
        connection = self.connection
        stats = connection.context.stats
        stage: Any = TlsSocket(connection.sock, ours, from_peer, to_peer, stats)
        connection.sock = connection.tls = stage

    def send(self, data: bytes) -> None:
        if self.peer is not None and data:
            self.peer.write(data)
            data = self.to_server.read()
        self.left += data
        with suppress(BlockingIOError, BrokenPipeError):
            self.left = self.left[self.theirs.send(self.left) :]

    def receive(self) -> None:
        data = b""
        with suppress(BlockingIOError, ConnectionResetError):
            data = self.theirs.recv(RECEIVE_BYTES)
        if self.peer is not None and data:
            self.to_client.write(data)
            with suppress(ssl.SSLWantReadError):
                while plain := self.peer.read(1 << 16):
                    self.answers += plain
        else:
            self.answers += data


class Clients:
    """Connections of one selector, whose rounds are called."""

    def __init__(
        self,
        desk: Desk,
        nursery: trio.Nursery,
        count: int = CONNECTIONS,
        gate: Gate | None = None,
        *,
        gather: bool = True,
        runs: Runs | None = None,
    ) -> None:
        """Without `gather` every request is served by itself."""
        self.desk = desk
        self.runs = runs or Runs()
        self.reactor = desk.reactor
        self.poller = EpollPoller()
        # A busy machine must not end rounds early.
        with patch.object(reactor_module, "ROUND_S", 60.0):
            self.selector = self.reactor.add_selector(self.poller)
        routes = self.runs.watched(resolve(desk.broker.routes, self.reactor.pools))
        if not gather:
            routes = {code: route._replace(run=None) for code, route in routes.items()}
        self.worker = Worker(routes, refusal, nursery, self.reactor.shared, gate)
        self.all = [
            Client(desk, self.selector, self.worker, 50_000 + number) for number in range(count)
        ]

    async def round(self, said: dict[int, bytes]) -> None:
        """One round in which each of these says so much; then others until nothing is left."""
        for number, data in said.items():
            self.all[number].send(data)
        events = [(self.all[number].fd, READ) for number in said]
        calm = 0
        while calm < 2:
            self.selector.round(events)
            while self.selector.ready:
                self.selector.go_on()
            await wait_all_tasks_blocked()
            for client in self.all:
                client.send(b"")
                client.receive()
            events = await self.poller.ready(wait=False)
            busy = events or self.selector.waiting or self.reactor.pools["send"].depth
            calm = 0 if busy else calm + 1
            if busy:
                await trio.sleep(0.001)

    def close(self) -> None:
        for connection in list(self.selector.connections.values()):
            connection.close("test")
        self.poller.close()
        for client in self.all:
            client.ours.close()
            client.theirs.close()
