"""What a client knows and keeps up to date: name servers, routes, brokers, its groups.

Producers and consumers share one Instance; it asks for routes, tells brokers who is there, and
takes leave. Source: client §1, §2, §4 (MQClientInstance).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    NoNameServerError,
    RouteNotFoundError,
    TopicNotFoundError,
    TransportError,
)
from aerobee.remoting.wire.bodies.cluster import ClusterInfo
from aerobee.remoting.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.remoting.wire.bodies.route import TopicRouteData
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.client import (
    Heartbeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from aerobee.route import MASTER_ID, read_route
from aerobee.steps.answers import body_of, expect
from aerobee.steps.effects import Ask, Signal, Wait

if TYPE_CHECKING:
    from random import Random

    from aerobee.config import ClientConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from aerobee.route import TopicRoute
    from aerobee.steps.effects import Clock, Steps

__all__ = ["Consumer", "Instance"]

log = logging.getLogger("aerobee.client")
# Who sets up no logging is not to be written to.
logging.getLogger("aerobee").addHandler(logging.NullHandler())

INFINITE = float("inf")
AUTO_CREATE_TOPIC = "TBW102"
DEFAULT_TOPIC_QUEUES = 4
ROUTE_NOT_FOUND = (
    "no broker serves topic {topic} (asked {asked}; brokers there: {brokers}). Usual causes: the "
    "topic was never created and auto-create is off, or the broker registered an address that "
    "cannot be reached from here (see brokerIP1 or advertisedHost)"
)


class Consumer(Protocol):
    """What the instance must know of a consumer group of this client."""

    rebalance_now: Signal

    @property
    def group(self) -> str:
        """Its name."""

    def heartbeat(self) -> ConsumerData:
        """The group as brokers should see it."""

    def topics(self) -> set[str]:
        """The topics whose routes it needs."""


@dataclass(slots=True)
class Instance:
    """The state of one client, and the steps that keep it fresh."""

    config: ClientConfig
    clock: Clock
    random: Random
    producers: set[str] = field(default_factory=set)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    routes: dict[str, TopicRoute] = field(default_factory=dict)
    planned: set[str] = field(default_factory=set)
    """Topics whose route is borrowed from TBW102 until the first send makes them."""
    cluster: ClusterInfo | None = None
    heartbeat_now: Signal = field(default_factory=Signal)
    closing: Signal = field(default_factory=Signal)
    _namesrv: int = 0
    _told: set[str] = field(default_factory=set)
    """Brokers that heard of all groups and subscriptions as they are now."""
    _beating: int = 0
    """Heartbeats under way."""
    _beaten: Signal = field(default_factory=Signal)
    """Set when the last of them has ended."""
    _suspects: dict[str, float] = field(default_factory=dict)
    """Topics whose route should be asked for again, and from when on."""
    _fetched: dict[str, float] = field(default_factory=dict)
    _quiet: set[str] = field(default_factory=set)

    # ── Groups ──

    def add_producer(self, group: str) -> None:
        """Note a producer; a client has one of each group.

        Raises: ConfigurationError if the client already has a producer of that group.
        """
        if group in self.producers:
            raise ConfigurationError(f"this client already has a producer of group {group}")
        self.producers.add(group)
        self.subscriptions_changed()

    def add_consumer(self, consumer: Consumer) -> None:
        """Note a consumer; a client has one of each group.

        Raises: ConfigurationError if the client already has a consumer of that group.
        """
        if consumer.group in self.consumers:
            raise ConfigurationError(
                f"this client already has a consumer of group {consumer.group}"
            )
        self.consumers[consumer.group] = consumer
        self.subscriptions_changed()

    # ── Name server ──

    def ask_name_server(self, header: Header, timeout_s: float) -> Steps[tuple[Ask, Command]]:
        """The answer of the current name server, or of the next ones if it is silent.

        Raises: NoNameServerError.
        """
        servers = self.config.name_servers
        failures: list[str] = []
        for _ in servers:
            address = servers[self._namesrv % len(servers)]
            ask = Ask(address=address, header=header, timeout_s=timeout_s)
            try:
                return ask, (yield ask)
            except TransportError as error:
                failures.append(str(error))
                self._namesrv += 1
        raise NoNameServerError(f"no name server answers: {'; '.join(failures)}")

    def greet(self, timeout_s: float) -> Steps[ClusterInfo]:
        """The brokers that the name server knows. Raises: NoNameServerError, BrokerError."""
        ask, answer = yield from self.ask_name_server(GetBrokerClusterInfo(), timeout_s)
        self.cluster = body_of(ask, expect(ask, answer, "name server"), ClusterInfo)
        return self.cluster

    # ── Routes ──

    def route(self, topic: str, timeout_s: float) -> Steps[TopicRoute]:
        """The known route of a topic, else the name server's. Raises: RouteNotFoundError."""
        known = self.routes.get(topic)
        if known is not None and self._suspects.get(topic, INFINITE) > self.clock.monotonic():
            return known
        try:
            return (yield from self.fetch_route(topic, timeout_s))
        except (NoNameServerError, RouteNotFoundError):
            if known is None:
                raise
            return known

    def suspect(self, topic: str) -> None:
        """The route may be old: the next one to need it asks again, at most once a second."""
        self._suspects[topic] = self._fetched.get(topic, 0.0) + 1.0

    def route_to_publish(self, topic: str, timeout_s: float) -> Steps[TopicRoute]:
        """As `route`; for an unknown topic the route it will get when a broker makes it.

        Raises: RouteNotFoundError.
        """
        try:
            return (yield from self.route(topic, timeout_s))
        except RouteNotFoundError:
            try:
                data = yield from self._ask_route(AUTO_CREATE_TOPIC, timeout_s)
            except RouteNotFoundError:
                raise self._no_route(topic) from None
        self.planned.add(topic)
        return self._remember(topic, read_route(topic, data, DEFAULT_TOPIC_QUEUES))

    def fetch_route(self, topic: str, timeout_s: float) -> Steps[TopicRoute]:
        """The name server's route, remembered. Raises: RouteNotFoundError."""
        self._suspects.pop(topic, None)
        self._fetched[topic] = self.clock.monotonic()
        data = yield from self._ask_route(topic, timeout_s)
        self.planned.discard(topic)
        return self._remember(topic, read_route(topic, data))

    def _ask_route(self, topic: str, timeout_s: float) -> Steps[TopicRouteData]:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        ask, answer = yield from self.ask_name_server(header, timeout_s)
        try:
            return body_of(ask, expect(ask, answer, "name server"), TopicRouteData)
        except TopicNotFoundError:
            raise self._no_route(topic) from None

    def _no_route(self, topic: str) -> RouteNotFoundError:
        known = self.cluster.broker_addr_table if self.cluster else {}
        brokers = ", ".join(
            f"{name} at {' '.join(data.broker_addrs.values())}" for name, data in known.items()
        )
        asked = ";".join(self.config.name_servers)
        return RouteNotFoundError(
            ROUTE_NOT_FOUND.format(topic=topic, asked=asked, brokers=brokers or "none")
        )

    def _remember(self, topic: str, route: TopicRoute) -> TopicRoute:
        self.routes[topic] = route
        if not self._told.issuperset(self._addresses()):
            self.heartbeat_now.set()
        return route

    def master(self, broker_name: str) -> str:
        """The address to send to. Raises: BrokerNotFoundError."""
        return self._address(broker_name, master_only=True)

    def reader(self, broker_name: str) -> str:
        """The address to read from: the master, else any. Raises: BrokerNotFoundError."""
        return self._address(broker_name, master_only=False)

    def _address(self, broker_name: str, *, master_only: bool) -> str:
        for route in self.routes.values():
            by_id = route.brokers.get(broker_name, {})
            if MASTER_ID in by_id:
                return by_id[MASTER_ID]
            if by_id and not master_only:
                return next(iter(by_id.values()))
        raise BrokerNotFoundError(f"no route names an address of broker {broker_name}")

    def _addresses(self) -> set[str]:
        """Where heartbeats go: the masters; slaves too if there are consumers."""
        return {
            address
            for route in self.routes.values()
            for by_id in route.brokers.values()
            for broker_id, address in by_id.items()
            if broker_id == MASTER_ID or self.consumers
        }

    # ── Requests from brokers ──

    def serve(self, request: Command) -> int | None:
        """React to a broker's request; the answer's code, or None if it wants none."""
        if request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            group = request.header(NotifyConsumerIdsChanged).consumer_group
            if group in self.consumers:
                self.consumers[group].rebalance_now.set()
            return None if request.oneway else ResponseCode.SUCCESS
        return None if request.oneway else ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    # ── Housekeeping ──

    def close(self) -> None:
        """No more housekeeping."""
        self.closing.set()
        self.heartbeat_now.set()

    def stay_alive(self) -> Steps[None]:
        """Refresh routes and send heartbeats until the client closes."""
        config = self.config
        routes_at = beat_at = self.clock.monotonic()
        routes_at += config.route_interval
        while not self.closing.is_set:
            now = self.clock.monotonic()
            yield Wait(self.heartbeat_now, max(0.0, min(routes_at, beat_at) - now))
            if self.closing.is_set:
                return
            now = self.clock.monotonic()
            if now >= routes_at:
                yield from self.refresh_routes()
                routes_at = now + config.route_interval
            if now >= beat_at:
                self._told.clear()
                beat_at = now + config.heartbeat_interval
            self.heartbeat_now.clear()
            yield from self.send_heartbeats()

    def refresh_routes(self) -> Steps[None]:
        """Ask again for every topic in use; what cannot be had stays as it was."""
        wanted = set(self.routes).union(*(c.topics() for c in self.consumers.values()))
        for topic in sorted(wanted):
            before = self.routes.get(topic)
            try:
                route = yield from self.fetch_route(topic, self.config.request_timeout)
                self._quiet.discard(topic)
                if route != before:
                    self._route_changed(topic)
            except AerobeeError as error:
                if topic not in self.planned:
                    self.log_once(topic, "route of %s not refreshed: %s", topic, error)

    def _route_changed(self, topic: str) -> None:
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.rebalance_now.set()

    def send_heartbeats(self) -> Steps[None]:
        """Tell every broker that does not know yet; a silent one is tried again next time."""
        for address in sorted(self._addresses() - self._told):
            yield from self.send_heartbeat(address)

    def introduce(self, route: TopicRoute) -> Steps[None]:
        """Make sure that the brokers of a route know this client as it is now."""
        for by_id in route.brokers.values():
            for address in by_id.values():
                if address not in self._told:
                    yield from self.send_heartbeat(address)

    def connected(self, address: str) -> None:
        """There is a new connection: a broker that knew us by another one must hear of us again."""
        if address in self._told:
            self._told.discard(address)
            self.heartbeat_now.set()

    def subscriptions_changed(self) -> None:
        """Every broker needs a heartbeat before it knows us again as we are."""
        self._told.clear()

    def send_heartbeat(self, address: str) -> Steps[None]:
        """Tell one broker who is here."""
        body = self._heartbeat()
        if body is None:
            return
        ask = Ask(
            address=address, header=Heartbeat(), body=body, timeout_s=self.config.request_timeout
        )
        self._beating += 1
        try:
            expect(ask, (yield ask), "broker")
        except (TransportError, BrokerError) as error:
            self.log_once(address, "heartbeat to %s failed: %s", address, error)
        else:
            self._quiet.discard(address)
            self._told.add(address)
        finally:
            self._beating -= 1
            if not self._beating:
                self._beaten.set()

    def _heartbeat(self) -> bytes | None:
        """The heartbeat's body; None with nothing to say."""
        if not self.producers and not self.consumers:
            return None
        return HeartbeatData(
            client_id=self.config.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producers)],
            consumer_data_set=[consumer.heartbeat() for consumer in self.consumers.values()],
        ).to_bytes()

    def leave(
        self, *, producer: str | None = None, consumer: str | None = None, within_s: float
    ) -> Steps[None]:
        """Take a group of this client from every broker, as far as the time allows."""
        addresses = sorted(self._addresses())
        self.producers.discard(producer or "")
        self.consumers.pop(consumer or "", None)
        header = UnregisterClient(
            client_id=self.config.client_id, producer_group=producer, consumer_group=consumer
        )
        deadline = self.clock.monotonic() + within_s
        # Brokers work on several requests at once: a heartbeat overtaken by our leave would bring
        # the group back, and others would wait two minutes for the queues of a ghost.
        while self._beating and deadline > self.clock.monotonic():
            self._beaten.clear()
            yield Wait(self._beaten, deadline - self.clock.monotonic())
        for address in addresses:
            left_s = deadline - self.clock.monotonic()
            if left_s <= 0:
                return
            ask = Ask(address=address, header=header, timeout_s=left_s)
            try:
                expect(ask, (yield ask), "broker")
            except (TransportError, BrokerError) as error:
                log.info("broker %s was not told that we leave: %s", address, error)

    def log_once(self, about: str, text: str, *values: object) -> None:
        """Warn once per change of state: not again until `about` has worked in between."""
        if about not in self._quiet:
            self._quiet.add(about)
            log.warning(text, *values)

    def works_again(self, about: str) -> None:
        """The next trouble with `about` is news."""
        self._quiet.discard(about)
