"""The console of a broker: with `consolePort: 0` nothing of it is there.

Its listener is opened with the others. Everything else is imported and built when somebody
connects for the first time, in a thread, so that nobody pays for a console at which nobody looks.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.config.settings.advertised import AdvertisedAddress, parse_rules, with_port
from aerobee.broker.core.feature import Feature
from aerobee.broker.errors import first_reason
from aerobee.broker.http.listener import imported, open_listener
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from aerobee.broker.access.audit import Audit
    from aerobee.broker.access.authority import Authority
    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.metrics.feature import MetricsFeature
    from aerobee.broker.topics.topics import TopicTable

PORT_KEY: Final = "consolePort"
HOST_KEY: Final = "consoleHost"
SERVED_AS: Final = "broker"
"""The listener as whose connections those of the console count."""
ASSEMBLY: Final = "aerobee.broker.console.assembly"

log = structlog.stdlib.get_logger(__name__)


class ConsoleFeature(Feature):
    """The console, and when it begins to cost anything."""

    def __init__(
        self, core: Core, topics: TopicTable, consumers: ConsumerTables, metrics: MetricsFeature
    ) -> None:
        self.core = core
        self.topics = topics
        self.consumers = consumers
        self.metrics = metrics

    def listener(self) -> socket.socket | None:
        """The listening socket; None with port 0, and where the port by default is taken: a second
        broker of a machine starts without a console. Raises: OSError naming the setting.
        """
        config = self.core.config
        host, port = config.console.console_host, config.console.console_port
        try:
            return open_listener(host, port, port_key=PORT_KEY, host_key=HOST_KEY)
        except OSError as error:
            if PORT_KEY in config.sources or error.errno != errno.EADDRINUSE:
                raise
            log.warning("console.port_taken", reason=error.strerror)
            return None

    async def serve(
        self,
        listener: socket.socket,
        audit: Audit,
        authority: Callable[[], Authority | None],
        tls: ssl.SSLContext | None,
    ) -> None:
        """Serve until cancelled, from the first connection on; closes the listener.

        An error ends the console and not the broker: its modules may be those of another version,
        which was installed since the start.
        """
        with Border() as border, listener:
            await trio.lowlevel.wait_readable(listener)
            assembly = await imported(ASSEMBLY)
            await assembly.serve(self, listener, audit, authority, tls)
        if border.error is not None:
            log.error("console.ended", reason=first_reason(border.error), exc_info=border.error)

    def own_addresses(self, viewer: str) -> set[str]:
        """The addresses under which clients at an IP address know this broker."""
        remoting, broker = self.core.config.remoting, self.core.config.broker
        port = broker.advertised_port or remoting.listen_port
        rules = parse_rules(broker.advertised)
        advertised = AdvertisedAddress(port=port, host=broker.advertised_host or None, rules=rules)
        local = with_port("127.0.0.1", remoting.listen_port)
        return {self.core.address, local, advertised.address_for(with_port(viewer, 0), local)}
