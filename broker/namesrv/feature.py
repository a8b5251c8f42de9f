"""The name server: the embedded one, its routes and key-value table; registration with others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.core.feature import Feature
from aerobee.broker.core.housekeeping import Housekeeping
from aerobee.broker.namesrv.advertised import Advertised, parse_rules
from aerobee.broker.namesrv.kv_config import KvConfigTable
from aerobee.broker.namesrv.name_server_link import connected
from aerobee.broker.namesrv.registration import Identity, Registration
from aerobee.broker.namesrv.route_processor import RouteProcessor
from aerobee.broker.namesrv.route_table import MASTER_ID, RouteTable
from aerobee.broker.process.host import other_name_servers
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.server.connection import Connection
    from aerobee.store.results import Recovery

__all__ = ["NamesrvFeature"]

SETTLE_S: Final = 0.5
"""How long a broker that left may still take memory, and an acting master seem writable."""

log = structlog.stdlib.get_logger("aerobee.broker")


class NamesrvFeature(Feature):
    """Routes of all brokers that registered here; this one among them."""

    def __init__(self, core: Core, topics: TopicTable) -> None:
        config, self._clock = core.config, core.clock
        embedded = config.namesrv.embedded_namesrv
        self.route_table = RouteTable(now_ms=core.clock.now_ms())
        self.kv = KvConfigTable(on_change=self._kv_changed)
        path = config.namesrv.kv_config_path
        self._kv_file = core.tables.asked(self.kv, path or "kvConfig.json")
        self.requests = RouteProcessor(
            routes=self.route_table,
            kv=self.kv,
            saved=self._kv_file,
            advertised=advertised(config),
            settings=config.namesrv,
            clock=core.clock,
        )
        self.registration = Registration(
            identity=identity(config, core.address),
            settings=config.broker,
            topics=topics,
            clock=core.clock,
            routes=self.route_table if embedded else None,
            name_servers=other_name_servers(config),
            connect=partial(connected, connect_timeout_s=config.remoting.connect_timeout_ms / 1000),
        )
        topics.listeners.append(self.registration.topics_changed)
        if embedded:
            self.routes = tuple(self._routes())
        self.saved = (self._kv_file,)
        scan_s = config.namesrv.scan_not_active_broker_interval_ms / 1000
        self.services = (
            self.registration,
            Housekeeping(self.scan_brokers, period_s=scan_s),
            Housekeeping(self.route_table.settle, period_s=SETTLE_S),
        )

    def _routes(self) -> Iterator[Route]:
        requests = self.requests
        yield Route(headers.GetRouteInfo, requests.route, "admin")
        yield Route(headers.RegisterBroker, requests.register, "admin")
        yield Route(headers.UnregisterBroker, requests.unregister, "admin")
        yield Route(headers.QueryDataVersion, requests.query_data_version, "admin")
        yield Route(headers.GetBrokerClusterInfo, requests.cluster_info, "admin")
        yield Route(headers.GetAllTopicList, requests.topic_list, "admin")
        yield Route(headers.GetTopicsByCluster, requests.topics_of_cluster, "admin")
        yield Route(headers.GetSystemTopicListFromNs, requests.system_topics, "admin")
        yield Route(headers.DeleteTopicInNamesrv, requests.delete_topic, "admin")
        yield Route(headers.WipeWritePermOfBroker, requests.wipe_write_perm, "admin")
        yield Route(headers.AddWritePermOfBroker, requests.add_write_perm, "admin")
        yield Route(headers.PutKvConfig, requests.put_kv, "admin")
        yield Route(headers.GetKvConfig, requests.get_kv, "admin")
        yield Route(headers.DeleteKvConfig, requests.delete_kv, "admin")
        yield Route(headers.GetKvListByNamespace, requests.kv_list, "admin")

    def _kv_changed(self) -> None:
        self._kv_file.request()

    def load(self) -> None:
        """Read the key-value table."""
        self._kv_file.load(self.kv.load)

    def recovered(self, recovery: Recovery) -> None:
        """Write this broker into its own name server."""
        self.registration.register_own()

    def scan_brokers(self) -> Iterator[None]:
        """Take out brokers that stopped registering, and close their connections."""
        routes = self.route_table
        before = set(routes.live)
        connections = routes.expire(int(self._clock.monotonic() * 1000))
        yield
        for cluster, address in before - routes.live.keys():
            log.info("broker.expired", cluster=cluster, address=address)
        for connection in connections:
            yield
            connection.close("the broker did not register again in time")

    def connection_closed(self, connection: Connection) -> None:
        """The brokers that registered over it are gone."""
        self.requests.connection_closed(connection)

    async def leave(self) -> None:
        """Unregister from every name server."""
        await self.registration.leave()


def identity(config: BrokerConfig, address: str) -> Identity:
    """Who this broker is to a name server."""
    broker, remoting = config.broker, config.remoting
    ha_port = remoting.listen_port + 1 if remoting.listen_port < 65_535 else 0
    return Identity(
        cluster=broker.broker_cluster_name,
        broker=broker.broker_name,
        broker_id=MASTER_ID,
        address=address,
        ha_address=f"{broker.broker_ip2}:{ha_port}",
        permission=broker.broker_permission,
    )


def advertised(config: BrokerConfig) -> Advertised:
    """Which address of this broker clients get."""
    broker, port = config.broker, config.remoting.listen_port
    explicit = broker.broker_ip1 if "brokerIP1" in config.sources else None
    return Advertised(
        listen_port=port,
        host=broker.advertised_host or explicit,
        rules=parse_rules(broker.advertised, port),
    )
