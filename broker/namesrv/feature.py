"""The name server of a broker, and the registration of the broker with it and with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.core.feature import Feature
from aerobee.broker.namesrv.name_server_link import connected
from aerobee.broker.namesrv.registration import Identity, Registration
from aerobee.broker.namesrv.role import NamesrvRole
from aerobee.broker.process.host import other_name_servers
from aerobee.broker.replication.status import ha_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core
    from aerobee.broker.namesrv.name_server_link import NameServerLink
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Route
    from aerobee.store.results import Recovery


class NamesrvFeature(Feature):
    """The embedded name server with the routes of all registered brokers, including this one."""

    def __init__(self, core: Core, topics: TopicTable, *, more: Sequence[Route]) -> None:
        """`more`: further requests that the name server answers."""
        config = core.config
        embedded = config.namesrv.embedded_namesrv
        self._connect_s = config.remoting.connect_timeout_ms / 1000
        self.role = NamesrvRole(config, core.tables, core.clock)
        self.route_table = self.role.route_table
        self.registration = Registration(
            identity=identity(config, core.address),
            settings=config.broker,
            topics=topics,
            clock=core.clock,
            routes=self.route_table if embedded else None,
            name_servers=other_name_servers(config),
            connect=self.connect,
        )
        topics.listeners.append(self.registration.topics_changed)
        if embedded:
            self.routes = (*self.role.routes, *more)
        self.saved = (self.role.kv_file,)
        self.services = (self.registration, *self.role.services)

    def connect(self, address: str) -> AbstractAsyncContextManager[NameServerLink]:
        """Open a connection to a name server or broker elsewhere, signed where that is set."""
        return connected(address, connect_timeout_s=self._connect_s, link=self.role.link)

    def tls(self) -> ssl.SSLContext | None:
        """How such a connection is encrypted; None: it is not."""
        return self.role.link.tls

    def load(self) -> None:
        """Read the key-value table."""
        self.role.load()

    def recovered(self, recovery: Recovery) -> None:
        """Register this broker with its embedded name server."""
        self.registration.register_own()

    def settings_changed(self) -> Iterator[None]:
        """Register again when brokerPermission has changed."""
        return self.registration.settings_changed()

    def connection_closed(self, connection: Caller) -> None:
        """Unregister the brokers that registered over this connection."""
        self.role.connection_closed(connection)

    async def leave(self) -> None:
        """Unregister from every name server."""
        await self.registration.leave()


def identity(config: BrokerConfig, address: str) -> Identity:
    """The identity of this broker in registrations."""
    broker = config.broker
    return Identity(
        cluster=broker.broker_cluster_name,
        broker=broker.broker_name,
        broker_id=broker.broker_id,
        address=address,
        ha_address=ha_address(config),
    )
