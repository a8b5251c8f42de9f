"""A console without a broker in its process: for any cluster, by its name servers.

With an account, who logs in with its name and secret may do what brokers allow that account.
Without one it serves this host alone, and changes nothing.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

import trio

from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.console.console import Console
from aerobee.broker.console.web import serve_console
from aerobee.broker.http.listener import open_listener
from aerobee.broker.process.log import configure
from aerobee.broker.process.log_stream import LineStream
from aerobee.cli.connection import ACCOUNT
from aerobee.client.blocking.client import Client
from aerobee.store.files.system_clock import SystemClock
from aerobee.threads import in_thread

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aerobee.broker.config.settings.console import ConsoleConfig
    from aerobee.cli.connection import Connection

PORT_OPTION: Final = "--port"
HOST_OPTION: Final = "--host"


def run(connection: Connection, config: ConsoleConfig) -> None:
    """Serve the console of a cluster until a signal ends it. Raises: OSError, AerobeeError."""
    configure("info", stream=LineStream(sys.stderr))
    listener = open_listener(
        config.console_host, config.console_port, port_key=PORT_OPTION, host_key=HOST_OPTION
    )
    assert listener is not None, "port 0 is no port here"
    trio.run(serve, listener, connection, config, strict_exception_groups=True)


async def serve(listener: socket.socket, connection: Connection, config: ConsoleConfig) -> None:
    """Serve until SIGINT or SIGTERM; closes the listener. Raises: AerobeeError."""
    console = make_console(connection, config)
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                urls = await nursery.start(serve_console, listener, console, config, None)
                LineStream(sys.stdout).write(f"aerobee console ready at {' '.join(urls)}\n")
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    break
    finally:
        with trio.CancelScope(shield=True):
            await in_thread(console.close)


def make_console(connection: Connection, config: ConsoleConfig) -> Console:
    """The console of a cluster. Raises: ConfigurationError."""
    options = connection.options()

    def connect(name: str, secret: str, address: str) -> Client:
        return Client(connection.namesrv, **options)

    return Console(
        None,
        clock=SystemClock(),
        config=config,
        authority=authority_of(connection),
        connect=connect,
    )


def authority_of(connection: Connection) -> Callable[[], Authority | None]:
    """Decides over viewers: the one account may ask for anything, as brokers decide over that."""
    name, secret = (connection.profile.get(key, "") for key in ACCOUNT)
    if not name:
        return lambda: None
    account = Account(name, secret.encode(), is_super=True)
    authority = Authority({name: account}.get, lambda name: ())
    return lambda: authority
