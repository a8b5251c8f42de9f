"""The name server: its tables, request handlers and services. Inside a broker, or alone.

Source: nameserver §7 (NamesrvController).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from aerobee.broker.config.members import PORT_STEP, advertised_rules, member_name
from aerobee.broker.config.settings.advertised import AdvertisedAddress, parse_rules
from aerobee.broker.config.settings.auth import credentials_of
from aerobee.broker.core.background import Housekeeping
from aerobee.broker.namesrv.kv_config import KvConfigTable
from aerobee.broker.namesrv.min_id_notices import MinIdNotices
from aerobee.broker.namesrv.name_server_link import signed_by
from aerobee.broker.namesrv.route_processor import RouteProcessor
from aerobee.broker.namesrv.route_table import RouteTable
from aerobee.broker.process.outgoing_tls import outgoing_link
from aerobee.remoting.server.routes import Route
from aerobee.remoting.server.tls_files import CertificateUnusable
from aerobee.remoting.wire.headers import namesrv as headers
from aerobee.store.clock import monotonic_ms
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.feature import Service
    from aerobee.broker.namesrv.registrations import MinIdChange
    from aerobee.broker.saved.tables import Tables
    from aerobee.remoting.server.caller import Caller
    from aerobee.store.clock import Clock

SETTLE_S: Final = 0.5
"""The period of `settle`, which removes the queue entries of brokers that left."""

log = structlog.stdlib.get_logger(__name__)


class NamesrvRole:
    """The routes of all registered brokers, and the KV table."""

    def __init__(self, config: BrokerConfig, tables: Tables, clock: Clock) -> None:
        self._settings, self._clock = config.namesrv, clock
        account = credentials_of(config.auth.inner_client_authentication_credentials)
        self._tls = config.tls
        self.link = replace(outgoing_link(config.tls), dress=signed_by(account))
        """How this process connects to others, from the next connection on."""
        self._notices = MinIdNotices(lambda: self.link)
        self.route_table = RouteTable(
            min_id_changed=self._min_id_changed,
            deletes_missing=lambda: config.namesrv.delete_topic_with_broker_registration,
        )
        self.kv = KvConfigTable(on_change=self._kv_changed)
        self.kv_file = tables.asked(self.kv, config.namesrv.kv_config_path or "kvConfig.json")
        self.requests = RouteProcessor(
            routes=self.route_table,
            kv=self.kv,
            saved=self.kv_file,
            advertised=advertised(config),
            settings=config.namesrv,
            clock=clock,
        )
        scan_s = config.namesrv.scan_not_active_broker_interval_ms / 1000
        self.services: Sequence[Service] = (
            self._notices,
            Housekeeping(self.scan_brokers, period_s=scan_s),
            Housekeeping(self.route_table.settle, period_s=SETTLE_S),
        )

    @property
    def routes(self) -> Iterator[Route]:
        """The requests of a name server."""
        requests = self.requests
        yield Route(headers.GetRouteInfo, requests.route, "admin")
        yield Route(headers.RegisterBroker, requests.register, "admin")
        yield Route(headers.UnregisterBroker, requests.unregister, "admin")
        yield Route(headers.QueryDataVersion, requests.query_data_version, "admin")
        yield Route(headers.BrokerHeartbeat, requests.heartbeat, "admin")
        yield Route(headers.GetBrokerMemberGroup, requests.member_group, "admin")
        yield Route(headers.GetBrokerClusterInfo, requests.cluster_info, "admin")
        yield Route(headers.GetAllTopicList, requests.topic_list, "admin")
        yield Route(headers.GetTopicsByCluster, requests.topics_of_cluster, "admin")
        yield Route(headers.GetUnitTopicList, requests.unit_topics, "admin")
        yield Route(headers.GetHasUnitSubTopicList, requests.unit_sub_topics, "admin")
        yield Route(headers.GetHasUnitSubUnunitTopicList, requests.unit_sub_of_no_unit, "admin")
        yield Route(headers.GetSystemTopicListFromNs, requests.system_topics, "admin")
        yield Route(headers.RegisterTopicInNamesrv, requests.register_topic, "admin")
        yield Route(headers.DeleteTopicInNamesrv, requests.delete_topic, "admin")
        yield Route(headers.WipeWritePermOfBroker, requests.wipe_write_perm, "admin")
        yield Route(headers.AddWritePermOfBroker, requests.add_write_perm, "admin")
        yield Route(headers.PutKvConfig, requests.put_kv, "admin")
        yield Route(headers.GetKvConfig, requests.get_kv, "admin")
        yield Route(headers.DeleteKvConfig, requests.delete_kv, "admin")
        yield Route(headers.GetKvListByNamespace, requests.kv_list, "admin")

    def load(self) -> None:
        """Read the KV table. Raises: TableDamaged, OSError."""
        self.kv_file.load(self.kv.load)

    def scan_brokers(self) -> Iterator[None]:
        """Remove brokers whose registration expired, and close their connections."""
        routes = self.route_table
        before = set(routes.live)
        connections = routes.expire(monotonic_ms(self._clock))
        yield
        for cluster, address in before - routes.live.keys():
            log.info("broker.expired", cluster=cluster, address=address)
        for connection in connections:
            yield
            connection.close("the broker did not register again in time")

    def connection_closed(self, connection: Caller) -> None:
        """Unregister the brokers that registered over this connection."""
        self.requests.connection_closed(connection)

    def _kv_changed(self) -> None:
        self.kv_file.request()

    async def reload(self) -> None:
        """Read the certificates of outgoing connections again, and report what is wrong with
        them.
        """
        try:
            link = await in_thread(outgoing_link, self._tls)
        except CertificateUnusable as problem:
            log.error("tls.reload_failed", reason=str(problem))
        else:
            self.link = replace(link, dress=self.link.dress)

    def _min_id_changed(self, change: MinIdChange) -> None:
        if self._settings.notify_min_broker_id_changed:
            self._notices.tell(change)


def advertised(config: BrokerConfig) -> dict[str, AdvertisedAddress]:
    """The rules for the advertised address of each broker in this process, or of this
    supervisor.
    """
    broker = config.broker
    explicit = broker.broker_ip1 if "brokerIP1" in config.sources else None

    def of(number: int) -> AdvertisedAddress:
        return AdvertisedAddress(
            port=(broker.advertised_port or config.remoting.listen_port) + number * PORT_STEP,
            host=broker.advertised_host or explicit,
            rules=parse_rules(advertised_rules(config, number)),
        )

    if broker.broker_count > 1:
        return {member_name(config, number): of(number) for number in range(broker.broker_count)}
    return {broker.broker_name: of(0)} if config.namesrv.embedded_namesrv else {}
