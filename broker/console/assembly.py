"""The parts of the console, joined. Importing this loads the SDK, the commands and the web."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from aerobee.broker.console.console import Console
from aerobee.broker.console.feature import SERVED_AS, ConsoleFeature
from aerobee.broker.console.inside import InsideSockets
from aerobee.broker.console.looking import Tables
from aerobee.broker.console.web import serve_console

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.access.authority import Authority


async def serve(
    feature: ConsoleFeature,
    listener: socket.socket,
    audit: Audit,
    authority: Callable[[], Authority | None],
    tls: ssl.SSLContext | None,
) -> None:
    """Serve the console of a broker until cancelled; closes the listener."""
    console = make_console(feature, audit, authority)
    try:
        await serve_console(listener, console, feature.core.config.console, tls)
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(console.close)


def make_console(
    feature: ConsoleFeature, audit: Audit, authority: Callable[[], Authority | None]
) -> Console:
    """The console of a running broker."""
    core = feature.core
    reactor = core.rounds.reactor

    def take_in(sock: socket.socket, peer: tuple[Any, ...]) -> None:
        reactor.take_in(sock, peer, SERVED_AS)

    config = core.config
    own = f"127.0.0.1:{config.remoting.listen_port}"
    return Console(
        Tables(
            core,
            feature.topics,
            feature.consumers,
            feature.metrics.sources,
            feature.metrics.sampling,
        ),
        audit=audit,
        authority=authority,
        namesrv=own if config.namesrv.embedded_namesrv else config.broker.namesrv_addr,
        sockets=InsideSockets(take_in, feature.own_addresses),
    )
