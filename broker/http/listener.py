"""The HTTP listener for /metrics and the probes.

The web framework takes about 70 ms to import. So the listener is opened at once, which proves that
its port is free, and the framework is imported later, in a thread, where it does not stop the loop.
Connections made in between wait in the backlog.

    /metrics     every metric, as text
    /startupz    the broker has begun to serve
    /livez       the loop runs
    /readyz      recovered, the store takes writes, the disk has room
    /insyncz     the same, and in sync: a slave follows, a member of a group is in the sync set

A probe answers 200 or 503, and in JSON which of its checks failed and why.
"""

from __future__ import annotations

import errno
import os
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any

import trio

from aerobee.broker.config.settings.metrics import MetricsConfig
from aerobee.broker.http.health import everybody
from aerobee.broker.process.host import listeners_on
from aerobee.remoting.server.boss import listen
from aerobee.threads import in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from aerobee.broker.http.health import Health, MayScrape
    from aerobee.broker.metrics.figures import ServerSources

PORT_KEY = "metricsPromExporterPort"
HOST_KEY = "metricsPromExporterHost"
STALLED_PEER_MS = 3_000
"""A peer that reads nothing for this long is disconnected."""
BACKLOG = 64
MOST_CONNECTIONS = MetricsConfig().metrics_max_connections
IMPORT_PAUSE_S = 0.5
"""The pause before another attempt to import, when the system was out of descriptors."""
NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL}


def with_remedy(error: OSError, host_key: str, port: int, port_remedy: str) -> OSError:
    """The error of a bind with the remedy: another address where that is wrong, else another
    port; and which process has it, where that can be seen.
    """
    number = error.errno or 0
    # Address resolution has error numbers below 0.
    wrong_host = number < 0 or number in NO_SUCH_ADDRESS
    remedy = f"set {host_key} to an address of this host" if wrong_host else port_remedy
    if number == errno.EADDRINUSE and (holders := listeners_on(port)):
        return OSError(number, f"{error.strerror} by {', '.join(holders)}; stop that, or {remedy}")
    return OSError(error.errno, f"{error.strerror}; {remedy}")


def refuse_all(errors: Sequence[OSError]) -> None:
    """Raise one error that says what all of them say; nothing where there are none.

    So a start names all ports that are taken at once.
    """
    if errors:
        reason = "; and ".join(error.strerror or str(error) for error in errors)
        raise OSError(errors[0].errno, reason) from errors[0]


def open_listener(
    host: str, port: int, *, port_key: str = PORT_KEY, host_key: str = HOST_KEY
) -> socket.socket | None:
    """The listening socket; None for port 0, which turns the listener off. `port_key` and
    `host_key`: the settings that say where.

    Raises: OSError naming the address and the key when it cannot be bound.
    """
    if port == 0:
        return None
    try:
        listener = listen(host, port, BACKLOG)
    except OSError as error:
        port_remedy = f"set {port_key} to another port, or to 0 for none"
        raise with_remedy(error, host_key, port, port_remedy) from error
    # Inherited by every connection: a peer that reads nothing, or is gone, holds up no scrape.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_PEER_MS)
    return listener


def listener_of(config: MetricsConfig) -> socket.socket | None:
    """The listening socket that the settings ask for; None where they turn it off.

    Raises: as `open_listener`.
    """
    if config.metrics_exporter_type.name != "PROM":
        return None
    return open_listener(config.metrics_prom_exporter_host, config.metrics_prom_exporter_port)


async def prepared() -> None:
    """Import what `serve_http` needs."""
    await imported("aerobee.broker.http.app")


async def imported(module: str) -> Any:
    """A module, imported in a thread; retry while the system is out of descriptors.

    A flood of connections just after the start may take them all, and must not end the broker.
    """
    while True:
        try:
            return await in_thread(import_module, module)
        except (OSError, ImportError) as error:
            # A shared library that cannot be opened is an ImportError.
            if not _no_descriptors(error):
                raise
        await trio.sleep(IMPORT_PAUSE_S)


def _no_descriptors(error: BaseException | None) -> bool:
    """Whether the cause is a lack of descriptors."""
    while error is not None:
        texts = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
        if any(text in str(error) for text in texts):
            return True
        error = error.__cause__ or error.__context__
    return False


async def serve_http(
    listener: socket.socket,
    sources: ServerSources,
    health: Health,
    may_scrape: MayScrape = everybody,
    tls: ssl.SSLContext | None = None,
    *,
    most: int = MOST_CONNECTIONS,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; takes the listener over and closes it. Started with its address.

    `tls`: HTTPS, and no HTTP. `most`: connections at once.
    """
    await prepared()
    from aerobee.broker.http.app import Slots, make_app, serve

    app, slots = make_app(sources, health, may_scrape), Slots(most, sources.remoting)
    await serve(app, listener, slots, tls, task_status=task_status)
