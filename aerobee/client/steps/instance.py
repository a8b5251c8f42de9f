"""The state of a client that is kept up to date: its routes, and its groups at brokers.

Producers and consumers share one Instance; it queries routes, sends heartbeats, and unregisters.
Source: client §1, §4 (MQClientInstance).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from aerobee.client.namespaces import check_plain
from aerobee.client.route import MASTER_ID
from aerobee.client.steps.answers import expect
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.client.steps.routes import Routes
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    NoNameServerError,
    TransportError,
)
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import ConsumerData, HeartbeatData, ProducerData
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.client import (
    Heartbeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from aerobee.client.route import TopicRoute
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.questions import Checks, Question
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")
Outcome: TypeAlias = "int | Answer | Steps[Answer | None] | None"
"""A response or its code, None for no response; or steps that return it and raise nothing."""
Service: TypeAlias = "Callable[[Command, str], Outcome]"
"""Handles a request from an address, without waiting."""
ASKED_OF_CONSUMERS = {
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "group",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "group",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "consumerGroup",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "consumerGroup",
}
"""Requests for a consumer group, and the header field with the group."""


class Consumer(Protocol):
    """The interface of a consumer group that the instance uses."""

    rebalance_now: Signal

    @property
    def group(self) -> str:
        """The name of the group."""

    def heartbeat(self) -> ConsumerData:
        """The group's data for heartbeats."""

    def topics(self) -> set[str]:
        """The topics whose routes are needed."""

    def serve(self, request: Command) -> Outcome:
        """Handle a request of a broker for this group. Raises: HeaderError, BodyError."""


@dataclass(slots=True)
class Instance(Routes):
    """The state of one client, and the steps that keep it up to date."""

    random: Random = field(kw_only=True)
    producers: set[str] = field(default_factory=set)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    heartbeat_now: Signal = field(default_factory=Signal)
    services: dict[int, Service] = field(default_factory=dict)
    """The handlers of brokers' requests, by code; producers and consumers add theirs."""
    versions: dict[str, int] = field(default_factory=dict)
    """Address → version of the broker, from its last heartbeat response on this connection."""
    checks: dict[str, Checks] = field(default_factory=dict)
    """The transaction checks of brokers, by producer group."""
    questions: dict[str, Question] = field(default_factory=dict)
    """Requests through topics that wait for their replies, by correlation id."""
    everywhere: bool = False
    """Whether heartbeats go to every master of the cluster, not only to those of the routes."""
    _up_to_date_brokers: set[str] = field(default_factory=set)
    """Brokers that know the current groups and subscriptions."""
    _beating: int = 0
    """The number of heartbeats in flight."""
    _beaten: Signal = field(default_factory=Signal)
    """Set when no heartbeat is in flight any more."""

    # ── Groups ──

    def add_producer(self, group: str) -> None:
        """Register a producer; a client has one of each group.

        Raises: ConfigurationError if the client already has a producer of that group, or the name
        contains the namespace.
        """
        check_plain("group", group, self.config.namespace)
        if group in self.producers:
            raise ConfigurationError(f"this client already has a producer of group {group}")
        self.producers.add(group)
        self.subscriptions_changed()

    def add_consumer(self, consumer: Consumer) -> None:
        """Register a consumer; a client has one of each group.

        Raises: ConfigurationError if the client already has a consumer of that group, or the name
        contains the namespace.
        """
        check_plain("group", consumer.group, self.config.namespace)
        if consumer.group in self.consumers:
            raise ConfigurationError(
                f"this client already has a consumer of group {consumer.group}"
            )
        self.consumers[consumer.group] = consumer
        self.subscriptions_changed()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Send no further heartbeats of a consumer; another one of its group stays."""
        if self.consumers.get(consumer.group) is consumer:
            del self.consumers[consumer.group]

    # ── Routes ──

    def remember(self, topic: str, route: TopicRoute) -> TopicRoute:
        """Store a route; brokers that are new in it get a heartbeat at once.

        A change of a known route calls for a rebalance, also where a producer has queried it.
        """
        before = self.routes.get(topic)
        Routes.remember(self, topic, route)
        if before is not None and before != route:
            self._route_changed(topic)
        if not self._up_to_date_brokers.issuperset(self._addresses()):
            self.heartbeat_now.set()
        return route

    def _addresses(self) -> set[str]:
        """The addresses for heartbeats: the masters; slaves too if there are consumers."""
        addresses = {
            address
            for route in self.routes.values()
            for by_id in route.brokers.values()
            for broker_id, address in by_id.items()
            if broker_id == MASTER_ID or self.consumers
        }
        if self.everywhere and self.cluster is not None:
            for data in self.cluster.broker_addr_table.values():
                if MASTER_ID in data.broker_addrs:
                    addresses.add(data.broker_addrs[MASTER_ID])
        return addresses

    def be_known_everywhere(self) -> None:
        """Send heartbeats to every master of the cluster from now on: any may send requests."""
        self.everywhere = True
        self.heartbeat_now.set()

    # ── Requests from brokers ──

    def serve(self, request: Command, address: str = "") -> Outcome:
        """Handle a request of the broker at `address`. Raises: HeaderError, BodyError."""
        service = self.services.get(request.code)
        answer: Outcome
        if service is not None:
            answer = service(request, address)
        elif request.code in ASKED_OF_CONSUMERS:
            return self._serve_consumer(request)
        elif request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            group = request.header(NotifyConsumerIdsChanged).consumer_group
            if group in self.consumers:
                self.consumers[group].rebalance_now.set()
            answer = ResponseCode.SUCCESS
        else:
            answer = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return None if request.oneway else answer

    def _serve_consumer(self, request: Command) -> Outcome:
        group = request.ext_fields().get(ASKED_OF_CONSUMERS[RequestCode(request.code)], "")
        consumer = self.consumers.get(group)
        if consumer is None:
            remark = f"no consumer of group {group} in client {self.config.client_id}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark=remark)
        return consumer.serve(request)

    # ── Housekeeping ──

    def open(self) -> None:
        """Make ready for a start, also after one that failed."""
        self.closing.clear()
        self.heartbeat_now.clear()

    def close(self) -> None:
        """Stop the housekeeping."""
        self.closing.set()
        self.heartbeat_now.set()

    def housekeeping(self) -> Steps[None]:
        """Refresh routes and send heartbeats until the client closes."""
        config = self.config
        routes_at = heartbeat_at = self.clock.monotonic()
        routes_at += config.route_interval
        while not self.closing.is_set:
            now = self.clock.monotonic()
            yield Wait(self.heartbeat_now, max(0.0, min(routes_at, heartbeat_at) - now))
            if self.closing.is_set:
                return
            now = self.clock.monotonic()
            if now >= routes_at:
                yield from self.refresh_routes()
                routes_at = now + config.route_interval
            if now >= heartbeat_at:
                self._up_to_date_brokers.clear()
                heartbeat_at = now + config.heartbeat_interval
            self.heartbeat_now.clear()
            yield from self.send_heartbeats()

    def refresh_routes(self) -> Steps[None]:
        """Query the routes of all topics in use; after a failure the old route stays.

        Where no name server answers, the other topics are not tried: heartbeats wait meanwhile,
        and brokers would take this client for gone.
        """
        if self.everywhere:
            try:
                yield from self.greet(self.config.request_timeout)
            except AerobeeError as error:
                self.log_once("cluster", "the cluster's brokers are not known: %s", error)
            else:
                self.works_again("cluster")
        wanted = set(self.routes).union(*(c.topics() for c in self.consumers.values()))
        for topic in sorted(wanted):
            is_new = topic not in self.routes
            try:
                yield from self.fetch_route(topic, self.config.request_timeout)
                self._quiet.discard(topic)
                if is_new:
                    self._route_changed(topic)
            except AerobeeError as error:
                if topic not in self.planned:
                    self.log_once(topic, "route of %s not refreshed: %s", topic, error)
                if isinstance(error, NoNameServerError):
                    return

    def _route_changed(self, topic: str) -> None:
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.rebalance_now.set()

    def send_heartbeats(self) -> Steps[None]:
        """Send heartbeats to all brokers that need one; a silent one gets the next one.

        Brokers that were silent before come last: each may take the whole timeout.
        """
        for address in self._silent_last(self._addresses() - self._up_to_date_brokers):
            yield from self.send_heartbeat(address)

    def is_silent(self, broker_name: str) -> bool:
        """Whether a broker has not answered the last heartbeat."""
        return not self._quiet.isdisjoint(self.addresses(broker_name))

    def _silent_last(self, addresses: Iterable[str]) -> list[str]:
        return sorted(addresses, key=lambda address: (address in self._quiet, address))

    def some_broker(self, route: TopicRoute) -> str:
        """The name of a broker of a route, one that has answered a heartbeat if there is one.

        Raises: BrokerNotFoundError.
        """
        names = sorted(route.brokers)
        answered = [name for name in names if self.reader(name) in self._up_to_date_brokers]
        if not names:
            raise BrokerNotFoundError("the route names no broker")
        return self.random.choice(answered or names)

    def introduce(self, route: TopicRoute) -> Steps[None]:
        """Make sure that the brokers of a route know the current groups of this client."""
        for by_id in route.brokers.values():
            for address in by_id.values():
                if address not in self._up_to_date_brokers:
                    yield from self.send_heartbeat(address)

    def heartbeat_all(self, topic: str) -> Steps[None]:
        """Send a heartbeat to every master of the cluster, except those that were silent before.

        Raises: as `route_to_publish`.
        """
        yield from self.route_to_publish(topic, self.config.request_timeout)
        if not self.everywhere:
            self.be_known_everywhere()
        for address in sorted(self._addresses() - self._up_to_date_brokers - self._quiet):
            yield from self.send_heartbeat(address)

    def connected(self, address: str) -> None:
        """Note a new connection to an address, whose broker needs a heartbeat over it."""
        self.versions.pop(address, None)
        if address in self._up_to_date_brokers:
            self._up_to_date_brokers.discard(address)
            self.heartbeat_now.set()

    def subscriptions_changed(self) -> None:
        """Note that every broker needs a heartbeat with the new subscriptions."""
        self._up_to_date_brokers.clear()

    def send_heartbeat(self, address: str) -> Steps[None]:
        """Send a heartbeat to one broker; a failure is logged."""
        try:
            yield from self._heartbeat(address, self.config.request_timeout)
        except (TransportError, BrokerError) as error:
            self.log_once(address, "heartbeat to %s failed: %s", address, error)

    def _heartbeat(self, address: str, timeout_s: float) -> Steps[None]:
        """Send one heartbeat. Raises: TransportError, BrokerError."""
        body = self._heartbeat_body()
        if body is None:
            return
        ask = Ask(address=address, header=Heartbeat(), body=body, timeout_s=timeout_s)
        self._beating += 1
        try:
            answer = yield ask
        finally:
            self._beating -= 1
            if not self._beating:
                self._beaten.set()
        # Error responses have the version, too.
        self.versions[address] = answer.version
        expect(ask, answer, "broker")
        self._quiet.discard(address)
        self._up_to_date_brokers.add(address)

    def version_at(self, address: str, timeout_s: float) -> Steps[int | None]:
        """The version of the broker at an address; None if there is no heartbeat to send.

        Raises: TransportError if it is not known and the broker does not answer.
        """
        if address not in self.versions:
            # A broker that refuses a heartbeat has sent its version nevertheless.
            with suppress(BrokerError):
                yield from self._heartbeat(address, min(timeout_s, self.config.request_timeout))
        return self.versions.get(address)

    def _heartbeat_body(self) -> bytes | None:
        """The body of a heartbeat; None without any groups."""
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
        """Unregister a group of this client from every broker, as far as the time allows."""
        addresses = self._silent_last(self._addresses())
        self.producers.discard(producer or "")
        self.consumers.pop(consumer or "", None)
        header = UnregisterClient(
            client_id=self.config.client_id, producer_group=producer, consumer_group=consumer
        )
        deadline = self.clock.monotonic() + within_s
        # Brokers handle several requests at once: a heartbeat handled after the unregistration
        # would register the group again, and other members would wait two minutes for its queues.
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
            except AerobeeError as error:
                log.info("broker %s was not told that we leave: %s", address, error)
