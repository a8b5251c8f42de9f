"""What a client knows and keeps up to date: its routes, and at brokers its groups.

Producers and consumers share one Instance; it asks for routes, tells brokers who is there, and
takes leave. Source: client §1, §4 (MQClientInstance).
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
from aerobee.errors import AerobeeError, BrokerError, ConfigurationError, TransportError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.client import (
    Heartbeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from aerobee.client.route import TopicRoute
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.questions import Checks, Question
    from aerobee.remoting.wire.command import Command

__all__ = ["Consumer", "Instance", "Outcome", "Service"]

log = logging.getLogger("aerobee.client")
Outcome: TypeAlias = "int | Answer | Steps[Answer | None] | None"
"""An answer or its code, None for none; or the steps to it, which raise nothing."""
Service: TypeAlias = "Callable[[Command, str], Outcome]"
"""Reacts to a request from an address, without waiting."""
ASKED_OF_CONSUMERS = {
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: "group",
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: "group",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "consumerGroup",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "consumerGroup",
}
"""Requests for one of the consumers, and the field with its group."""


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

    def serve(self, request: Command) -> Outcome:
        """React to a request of a broker for this group. Raises: HeaderError, BodyError."""


@dataclass(slots=True)
class Instance(Routes):
    """The state of one client, and the steps that keep it fresh."""

    random: Random = field(kw_only=True)
    producers: set[str] = field(default_factory=set)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    heartbeat_now: Signal = field(default_factory=Signal)
    services: dict[int, Service] = field(default_factory=dict)
    """What serves the requests of brokers, by code; producers and consumers add theirs."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of brokers by address, as they answered the last heartbeat; asked anew on new connections."""
    checks: dict[str, Checks] = field(default_factory=dict)
    """What brokers ask about transactions, by producer group."""
    questions: dict[str, Question] = field(default_factory=dict)
    """Requests through topics that wait for their answers, by correlation id."""
    everywhere: bool = False
    """Whether every master of the cluster must know this client, not only those of its routes."""
    _informed: set[str] = field(default_factory=set)
    """Brokers that know all groups and subscriptions as they are now."""
    _beating: int = 0
    """Heartbeats under way."""
    _beaten: Signal = field(default_factory=Signal)
    """Set when the last of them has ended."""

    # ── Groups ──

    def add_producer(self, group: str) -> None:
        """Note a producer; a client has one of each group.

        Raises: ConfigurationError if the client already has a producer of that group, or the name
        bears the namespace.
        """
        check_plain("group", group, self.config.namespace)
        if group in self.producers:
            raise ConfigurationError(f"this client already has a producer of group {group}")
        self.producers.add(group)
        self.subscriptions_changed()

    def add_consumer(self, consumer: Consumer) -> None:
        """Note a consumer; a client has one of each group.

        Raises: ConfigurationError if the client already has a consumer of that group, or the name
        bears the namespace.
        """
        check_plain("group", consumer.group, self.config.namespace)
        if consumer.group in self.consumers:
            raise ConfigurationError(
                f"this client already has a consumer of group {consumer.group}"
            )
        self.consumers[consumer.group] = consumer
        self.subscriptions_changed()

    # ── Routes ──

    def remember(self, topic: str, route: TopicRoute) -> TopicRoute:
        """Keep a route; brokers that are new in it hear of this client at once."""
        Routes.remember(self, topic, route)
        if not self._informed.issuperset(self._addresses()):
            self.heartbeat_now.set()
        return route

    def _addresses(self) -> set[str]:
        """Where heartbeats go: the masters; slaves too if there are consumers."""
        found = {
            address
            for route in self.routes.values()
            for by_id in route.brokers.values()
            for broker_id, address in by_id.items()
            if broker_id == MASTER_ID or self.consumers
        }
        if self.everywhere and self.cluster is not None:
            for data in self.cluster.broker_addr_table.values():
                if MASTER_ID in data.broker_addrs:
                    found.add(data.broker_addrs[MASTER_ID])
        return found

    def be_known_everywhere(self) -> None:
        """From now on every master of the cluster hears of this client: any may have to ask it."""
        self.everywhere = True
        self.heartbeat_now.set()

    # ── Requests from brokers ──

    def serve(self, request: Command, address: str = "") -> Outcome:
        """React to a request of the broker at `address`. Raises: HeaderError, BodyError."""
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
                self._informed.clear()
                beat_at = now + config.heartbeat_interval
            self.heartbeat_now.clear()
            yield from self.send_heartbeats()

    def refresh_routes(self) -> Steps[None]:
        """Ask again for every topic in use; what cannot be had stays as it was."""
        if self.everywhere:
            try:
                yield from self.greet(self.config.request_timeout)
            except AerobeeError as error:
                self.log_once("cluster", "the cluster's brokers are not known: %s", error)
            else:
                self.works_again("cluster")
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
        for address in sorted(self._addresses() - self._informed):
            yield from self.send_heartbeat(address)

    def introduce(self, route: TopicRoute) -> Steps[None]:
        """Make sure that the brokers of a route know this client as it is now."""
        for by_id in route.brokers.values():
            for address in by_id.values():
                if address not in self._informed:
                    yield from self.send_heartbeat(address)

    def be_heard(self, topic: str) -> Steps[None]:
        """Have every master of the cluster know this client, but those that did not answer before.

        Raises: as `route_to_publish`.
        """
        yield from self.route_to_publish(topic, self.config.request_timeout)
        if not self.everywhere:
            self.be_known_everywhere()
        for address in sorted(self._addresses() - self._informed - self._quiet):
            yield from self.send_heartbeat(address)

    def connected(self, address: str) -> None:
        """There is a new connection: a broker that knew us by another one must hear of us again."""
        self.versions.pop(address, None)
        if address in self._informed:
            self._informed.discard(address)
            self.heartbeat_now.set()

    def subscriptions_changed(self) -> None:
        """Every broker needs a heartbeat before it knows us again as we are."""
        self._informed.clear()

    def send_heartbeat(self, address: str) -> Steps[None]:
        """Tell one broker who is here, if it answers."""
        try:
            yield from self._beat(address, self.config.request_timeout)
        except (TransportError, BrokerError) as error:
            self.log_once(address, "heartbeat to %s failed: %s", address, error)

    def _beat(self, address: str, timeout_s: float) -> Steps[None]:
        """One heartbeat. Raises: TransportError, BrokerError."""
        body = self._heartbeat()
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
        # Refusals say it as well.
        self.versions[address] = answer.version
        expect(ask, answer, "broker")
        self._quiet.discard(address)
        self._informed.add(address)

    def version_at(self, address: str, timeout_s: float) -> Steps[int | None]:
        """The version of the broker at an address; None if this client has nothing to tell it.

        Raises: TransportError if it is not known and the broker does not answer.
        """
        if address not in self.versions:
            # Who refuses a heartbeat has said its version all the same.
            with suppress(BrokerError):
                yield from self._beat(address, min(timeout_s, self.config.request_timeout))
        return self.versions.get(address)

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
