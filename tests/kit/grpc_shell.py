"""A gRPC server around `Calls` for tests: a thread for each connection, plain blocking sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee.remoting.grpc.calls import CallEvent, Calls, ConnectionOver, Method
from aerobee.remoting.http2.engine import Engine
from aerobee.remoting.http2.limits import Http2Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Handler = Callable[[CallEvent], None]

MESSAGE_MAX = 5 << 20


@contextmanager
def serving(methods: Mapping[bytes, Method], handler: Handler) -> Iterator[int]:
    """A server on a port of its own, whose events go to the handler, each in its thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[socket.socket] = []
        threads: list[threading.Thread] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(connection)
                    calls = Calls(Engine(Http2Limits()), methods, message_bytes_max=MESSAGE_MAX)
                    thread = threading.Thread(target=serve, args=(connection, calls, handler))
                    threads.append(thread)
                    thread.start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            for each in (listener, *connections):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for connection in connections:
                connection.close()


def serve(connection: socket.socket, calls: Calls, handler: Handler) -> None:
    """Serve one connection until it ends."""
    with contextlib.suppress(OSError):
        while served(connection, calls, handler):
            late_s = (calls.next_deadline_ms - now_ms()) / 1000
            connection.settimeout(max(0.001, late_s) if calls.open and late_s < 60 else None)
            try:
                data = connection.recv(65_536)
            except TimeoutError:
                calls.expire(now_ms())
            else:
                if not data:
                    return
                calls.receive(data, now_ms())


def served(connection: socket.socket, calls: Calls, handler: Handler) -> bool:
    """Take events and send output until there is neither; whether the connection goes on."""
    while True:
        while (event := calls.next()) is not None:
            if isinstance(event, ConnectionOver):
                connection.sendall(calls.output())
                return False
            handler(event)
        output = calls.output()
        if not output:
            return True
        connection.sendall(output)


def now_ms() -> float:
    return time.monotonic() * 1000
