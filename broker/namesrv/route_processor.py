"""The request handlers of a name server: routes, clusters, registration of brokers, the KV table.

The addresses of the brokers of this process, or supervisor, depend on the client (`advertised`). A
change of the KV table is answered when it is on disk.
Source: nameserver §3–4 (DefaultRequestProcessor, ClientRequestProcessor).
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.core.lists import encoded, encoded_table
from aerobee.broker.errors import Refusal
from aerobee.broker.namesrv.kv_config import ORDER_TOPIC_CONFIG
from aerobee.broker.namesrv.registrations import Registration, timeout_ms
from aerobee.broker.namesrv.route_views import of_zone, with_acting_masters
from aerobee.broker.topics.topic_processor import once_saved
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.bodies.route import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    QueueData,
    TopicRouteData,
)
from aerobee.remoting.wire.bodies.topic import TopicList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import namesrv as headers
from aerobee.store.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Set

    from aerobee.broker.config.settings.advertised import AdvertisedAddress
    from aerobee.broker.namesrv.kv_config import KvConfigTable
    from aerobee.broker.namesrv.registrations import BrokerConnection
    from aerobee.broker.namesrv.route_table import RouteTable
    from aerobee.broker.topics.topic_processor import TableFile
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Outcome, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.store.clock import Clock

DONE: Final = Answer()
UNIT, UNIT_SUB = 1, 2
"""Bits of a topic's flags: the topic belongs to a unit; units subscribe to it."""
FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

log = structlog.stdlib.get_logger(__name__)


class NamesrvSettings(Protocol):
    """The settings of the name server that responses depend on."""

    @property
    def order_message_enable(self) -> bool: ...
    @property
    def return_order_topic_config_to_broker(self) -> bool: ...
    @property
    def enable_all_topic_list(self) -> bool: ...
    @property
    def enable_topic_list(self) -> bool: ...
    @property
    def support_acting_master(self) -> bool: ...
    @property
    def need_wait_for_service(self) -> bool: ...
    @property
    def wait_seconds_for_service_s(self) -> int: ...


class RouteProcessor:
    """Handles 100–106, 205, 206, 216, 217, 219, 224, 304, 311–313, 322, 327, 901 and 904."""

    def __init__(
        self,
        *,
        routes: RouteTable,
        kv: KvConfigTable,
        saved: TableFile,
        advertised: Mapping[str, AdvertisedAddress],
        settings: NamesrvSettings,
        clock: Clock,
    ) -> None:
        """`advertised`: for the brokers of this process, or of this supervisor, by name."""
        self.routes = routes
        self.kv = kv
        self.saved = saved
        self.advertised = advertised
        self.settings = settings
        self.clock = clock
        self.began_ms = monotonic_ms(self.clock)

    def shown_to(self, connection: Caller) -> Callable[[str], str | None]:
        """The addresses that a client is to see."""

        def shown(broker: str) -> str | None:
            advertised = self.advertised.get(broker)
            if advertised is None:
                return None
            return advertised.address_for(connection.address, connection.local_address)

        return shown

    # ── Clients ──

    def route(self, header: headers.GetRouteInfo, command: Command, connection: Caller) -> Answer:
        """GET_ROUTEINFO_BY_TOPIC: brokers and queues of a topic. Creates no topic."""
        settings = self.settings
        wait_ms = settings.wait_seconds_for_service_s * 1000
        if settings.need_wait_for_service and monotonic_ms(self.clock) - self.began_ms < wait_ms:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self.routes.route(header.topic, self.shown_to(connection))
        if route is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}\n{FAQ}",
            )
        if settings.order_message_enable:
            route.order_topic_conf = self.kv.get(ORDER_TOPIC_CONFIG, header.topic)
        if settings.support_acting_master:
            with_acting_masters(route, header.topic)
        if header.zone_mode and header.zone_name:
            of_zone(route, header.zone_name)
        return Answer(body=route.to_bytes())

    def cluster_info(
        self, header: headers.GetBrokerClusterInfo, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_CLUSTER_INFO: every broker of every cluster."""
        info = self.routes.cluster_info(self.shown_to(connection), monotonic_ms(self.clock))
        return Answer(body=info.to_bytes())

    def topic_list(
        self, header: headers.GetAllTopicList, command: Command, connection: Caller
    ) -> Steps:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER: every topic that has a route."""
        if not self.settings.enable_all_topic_list:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
        return topic_list(self.routes.topics())

    def topics_of_cluster(
        self, header: headers.GetTopicsByCluster, command: Command, connection: Caller
    ) -> Steps:
        """GET_TOPICS_BY_CLUSTER: empty for an unknown cluster."""
        self.check_topic_list()
        return topic_list(self.routes.topics(header.cluster))

    def check_topic_list(self) -> None:
        """Check that lists of topics are enabled. Raises: Refusal."""
        if not self.settings.enable_topic_list:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")

    def unit_topics(
        self, header: headers.GetUnitTopicList, command: Command, connection: Caller
    ) -> Steps:
        """GET_UNIT_TOPIC_LIST: topics of a unit."""
        self.check_topic_list()
        return topic_list(self.routes.queues.names(lambda queues: bool(flags(queues) & UNIT)))

    def unit_sub_topics(
        self, header: headers.GetHasUnitSubTopicList, command: Command, connection: Caller
    ) -> Steps:
        """GET_HAS_UNIT_SUB_TOPIC_LIST: topics that units subscribe to."""
        self.check_topic_list()
        return topic_list(self.routes.queues.names(lambda queues: bool(flags(queues) & UNIT_SUB)))

    def unit_sub_of_no_unit(
        self, header: headers.GetHasUnitSubUnunitTopicList, command: Command, connection: Caller
    ) -> Steps:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: those of them that belong to no unit."""
        self.check_topic_list()
        return topic_list(
            self.routes.queues.names(lambda queues: flags(queues) & (UNIT | UNIT_SUB) == UNIT_SUB)
        )

    def system_topics(
        self, header: headers.GetSystemTopicListFromNs, command: Command, connection: Caller
    ) -> Answer:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS: the topics named after clusters and brokers."""
        names, address = self.routes.system_names(self.shown_to(connection))
        return Answer(body=TopicList(topic_list=names, broker_addr=address).to_bytes())

    # ── Brokers ──

    def register(
        self, header: headers.RegisterBroker, command: Command, connection: Caller
    ) -> Steps:
        """REGISTER_BROKER: a broker with all its topics, or with changed ones."""
        body = bytes(command.body)
        if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        with self.routes.deletions(header.cluster_name) as deleted:
            content = yield from RegisterBrokerBody.in_steps(
                body, version=command.version, compressed=header.compressed
            )
            known = (header.cluster_name, header.broker_addr) in self.routes.live
            holder = self.routes.holder(header.broker_name, header.broker_id)
            wanted = registration(header, content, connection, deleted)
            result = yield from self.routes.register(wanted, monotonic_ms(self.clock))
        # Where a later master has that id it was passed over.
        accepted = self.routes.holder(header.broker_name, header.broker_id) == header.broker_addr
        if accepted and holder not in (None, header.broker_addr):
            log.warning(
                "broker.address_replaced",
                broker=header.broker_name,
                broker_id=header.broker_id,
                old=holder,
                new=header.broker_addr,
            )
        if accepted and not known:
            log.info("broker.registered", broker=header.broker_name, address=header.broker_addr)
        order = yield from self.order_config()
        return Answer(
            header=headers.RegisterBrokerResponse(
                ha_server_addr=result.ha_address, master_addr=result.master_address
            ),
            body=order,
        )

    def order_config(self) -> Generator[None, None, bytes]:
        """The order settings for brokers, encoded; empty if none were ever set."""
        entries = self.kv.namespace(ORDER_TOPIC_CONFIG)
        if entries is None or not self.settings.return_order_topic_config_to_broker:
            return b""
        return (yield from kv_table(entries))

    def unregister(
        self, header: headers.UnregisterBroker, command: Command, connection: Caller
    ) -> Steps:
        """UNREGISTER_BROKER: a broker leaves."""
        if self.routes.unregister(header.cluster_name, header.broker_addr):
            log.info("broker.unregistered", broker=header.broker_name, address=header.broker_addr)
        yield from self.routes.settle()
        return DONE

    def query_data_version(
        self, header: headers.QueryDataVersion, command: Command, connection: Caller
    ) -> Answer:
        """QUERY_DATA_VERSION: whether a broker's topics differ from those it registered."""
        stored = self.routes.stored_version(
            header.cluster_name, header.broker_addr, monotonic_ms(self.clock)
        )
        changed = stored is None or stored != DataVersion.from_client(command.body)
        return Answer(
            header=headers.QueryDataVersionResponse(changed=changed),
            body=b"" if stored is None else stored.to_bytes(),
        )

    def heartbeat(
        self, header: headers.BrokerHeartbeat, command: Command, connection: Caller
    ) -> Answer:
        """BROKER_HEARTBEAT: renews a registration; ignored for an unregistered broker."""
        self.routes.seen(header.cluster_name, header.broker_addr, monotonic_ms(self.clock))
        return DONE

    def member_group(
        self, header: headers.GetBrokerMemberGroup, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_MEMBER_GROUP: the addresses of a broker name; empty for an unknown name."""
        group = BrokerMemberGroup(broker_name=header.broker_name, cluster=header.cluster_name)
        if header.broker_name in self.routes.brokers:
            data = self.routes.broker_data(header.broker_name, self.shown_to(connection))
            group.broker_addrs = data.broker_addrs
        return Answer(body=BrokerMemberGroupBody(broker_member_group=group).to_bytes())

    def register_topic(
        self, header: headers.RegisterTopicInNamesrv, command: Command, connection: Caller
    ) -> Answer:
        """REGISTER_TOPIC_IN_NAMESRV: the queues of one topic on registered brokers."""
        queues = TopicRouteData.from_client(command.body).queue_datas
        self.routes.register_topic(header.topic, queues)
        return DONE

    def connection_closed(self, connection: BrokerConnection) -> None:
        """Remove the brokers that registered over a connection that closed."""
        for address in self.routes.connection_closed(connection.id):
            log.info("broker.lost", address=address)

    # ── Administrators ──

    def wipe_write_perm(
        self, header: headers.WipeWritePermOfBroker, command: Command, connection: Caller
    ) -> Steps:
        """WIPE_WRITE_PERM_OF_BROKER: makes all topics of a broker read-only."""
        count = yield from self.routes.wipe_write_perm(header.broker_name)
        return Answer(header=headers.WipeWritePermOfBrokerResponse(wipe_topic_count=count))

    def add_write_perm(
        self, header: headers.AddWritePermOfBroker, command: Command, connection: Caller
    ) -> Steps:
        """ADD_WRITE_PERM_OF_BROKER: makes all topics of a broker writable again."""
        count = yield from self.routes.add_write_perm(header.broker_name)
        return Answer(header=headers.AddWritePermOfBrokerResponse(add_topic_count=count))

    def delete_topic(
        self, header: headers.DeleteTopicInNamesrv, command: Command, connection: Caller
    ) -> Answer:
        """DELETE_TOPIC_IN_NAMESRV: deletes its route; brokers may register it again."""
        self.routes.delete_topic(header.topic, header.cluster_name or None)
        return DONE

    def put_kv(self, header: headers.PutKvConfig, command: Command, connection: Caller) -> Outcome:
        """PUT_KV_CONFIG."""
        before = self.kv.get(header.namespace, header.key)
        self.kv.put(header.namespace, header.key, header.value)
        return self.done(header.namespace, {header.key: before}, {header.key: header.value})

    def get_kv(self, header: headers.GetKvConfig, command: Command, connection: Caller) -> Answer:
        """GET_KV_CONFIG."""
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return Answer(header=headers.GetKvConfigResponse(value=value))

    def delete_kv(
        self, header: headers.DeleteKvConfig, command: Command, connection: Caller
    ) -> Outcome:
        """DELETE_KV_CONFIG: succeeds for a missing key, too."""
        before = self.kv.get(header.namespace, header.key)
        self.kv.delete(header.namespace, header.key)
        return self.done(header.namespace, {header.key: before}, {})

    def done(self, namespace: str, before: dict[str, str | None], after: dict[str, str]) -> Outcome:
        """The acknowledgement, sent when the KV table is on disk."""
        answer = ChangeAnswer(changes=change(namespace, before, after))
        return answer if self.saved.clean else once_saved(self.saved, "KV entry", answer)

    def kv_list(
        self, header: headers.GetKvListByNamespace, command: Command, connection: Caller
    ) -> Steps:
        """GET_KVLIST_BY_NAMESPACE: all keys and values of a namespace."""
        entries = self.kv.namespace(header.namespace)
        if entries is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        body = yield from kv_table(entries)
        return Answer(body=body)


def registration(
    header: headers.RegisterBroker,
    content: RegisterBrokerBody,
    connection: Caller,
    deleted: Set[str],
) -> Registration:
    """The registration that a request asks for. `deleted`: see there."""
    return Registration(
        cluster=header.cluster_name,
        broker=header.broker_name,
        address=header.broker_addr,
        broker_id=header.broker_id,
        ha_address=header.ha_server_addr,
        topics=content.topics,
        version=content.data_version,
        filter_servers=content.filter_server_list,
        timeout_ms=timeout_ms(header.heartbeat_timeout_millis),
        enable_acting_master=header.enable_acting_master,
        zone_name=header.zone_name,
        connection=connection,
        mapped=content.mapped,
        deleted=deleted,
    )


def topic_list(topics: Generator[None, None, list[str]]) -> Steps:
    """The response that lists topics."""
    names = yield from topics
    body = yield from encoded(names)
    return Answer(body=b'{"topicList":' + body + b"}")


def flags(queues: Mapping[str, QueueData]) -> int:
    """A topic's flags, from one of its brokers."""
    return next(iter(queues.values())).topic_sys_flag


def kv_table(entries: Mapping[str, str]) -> Generator[None, None, bytes]:
    """The response body that lists keys and values."""
    table = yield from encoded_table(entries)
    return b'{"table":' + table + b"}"
