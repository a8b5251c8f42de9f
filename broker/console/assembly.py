"""The parts of the console, joined. Importing this loads the SDK, the commands and the web."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from aerobee.broker.console.console import Console
from aerobee.broker.console.feature import SERVED_AS, ConsoleFeature
from aerobee.broker.console.inside import InsideClient, InsideSockets, options_of
from aerobee.broker.console.looks.looking import Tables
from aerobee.broker.console.looks.own import OwnBroker
from aerobee.broker.console.web import serve_console
from aerobee.threads import in_thread

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
            await in_thread(console.close)


def make_console(
    feature: ConsoleFeature, audit: Audit, authority: Callable[[], Authority | None]
) -> Console:
    """The console of a running broker."""
    core = feature.core
    reactor = core.rounds.reactor

    def take_in(sock: socket.socket, peer: tuple[Any, ...]) -> None:
        reactor.take_in(sock, peer, SERVED_AS)

    config = core.config
    local = f"127.0.0.1:{config.remoting.listen_port}"
    namesrv = local if config.namesrv.embedded_namesrv else config.broker.namesrv_addr
    sockets = InsideSockets(take_in, feature.own_addresses)
    tables = Tables(
        core,
        feature.topics,
        feature.consumers,
        feature.metrics.sources,
        feature.metrics.sampling,
    )

    def connect(name: str, secret: str, address: str) -> InsideClient:
        return InsideClient(namesrv, sockets, address, **options_of(name, secret))

    return Console(
        OwnBroker(tables, audit, sockets.is_own),
        clock=core.clock,
        config=config.console,
        authority=authority,
        connect=connect if namesrv else None,
    )
