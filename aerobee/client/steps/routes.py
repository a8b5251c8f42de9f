"""The name servers, routes and brokers of a client, and the steps that update them.

Source: client §1, §2 (MQClientInstance).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.route import MASTER_ID, in_order, read_route
from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    NoNameServerError,
    PermissionDeniedError,
    RouteNotFoundError,
    TopicNotFoundError,
    TransportError,
)
from aerobee.remoting.wire.bodies.route import ClusterInfo, TopicRouteData
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from aerobee.store.format.system_names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.client import ClientConfig
    from aerobee.client.steps.effects import Clock, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

log = logging.getLogger("aerobee.client")
# Applications that do not configure logging get no output.
logging.getLogger("aerobee").addHandler(logging.NullHandler())

DEFAULT_TOPIC_QUEUES = 4
PAUSES_S = (0.1, 0.5)
"""The pause before the second try after a temporary failure, and before further ones."""
MAY_NOT_SEE = "has no permission to access Cluster:"
"""In the remark for a user who may not see all brokers."""
NOBODY_PAUSE_S = 0.25
"""The pause before name servers without any broker are queried again."""
ROUTE_NOT_FOUND = (
    "no route for topic {topic}: asked {asked}, last answer {last}{there}. Usual causes: the "
    "topic was never created and auto-create is off, or the broker registered an address that "
    "cannot be reached from here (see brokerIP1 or advertisedHost)"
)


@dataclass(slots=True)
class Routes:
    """The name servers, routes and brokers of one client, and the steps that update them."""

    config: ClientConfig
    clock: Clock
    routes: dict[str, TopicRoute] = field(default_factory=dict)
    brokers: dict[str, Mapping[int, str]] = field(default_factory=dict)
    """Addresses by broker name and broker id, from the newest route with the broker."""
    planned: set[str] = field(default_factory=set)
    """Topics that use the route of TBW102 until the first send creates them."""
    cluster: ClusterInfo | None = None
    closing: Signal = field(default_factory=Signal)
    left_out: frozenset[str] = frozenset()
    """Addresses of brokers that the steps which run now do not ask: see `AdminClient.leave_out`."""
    _namesrv: int = 0
    _left: set[str] = field(default_factory=set)
    """Old addresses of brokers, which newer routes do not have."""
    _suspects: dict[str, float] = field(default_factory=dict)
    """Topics whose route should be queried again, and the earliest time of that."""
    _fetched: dict[str, float] = field(default_factory=dict)
    _quiet: set[str] = field(default_factory=set)

    # ── Name server ──

    def ask_name_server(self, header: Header, timeout_s: float) -> Steps[tuple[Ask, Command]]:
        """Query the current name server, or the next ones if it does not answer.

        Raises: NoNameServerError.
        """
        servers = self.config.name_servers
        failures: dict[str, None] = {}
        for turn in range(max(self.config.lookup_tries, len(servers))):
            if turn >= len(servers):
                yield Wait(self.closing, PAUSES_S[0])
            number = self._namesrv
            ask = Ask(address=servers[number % len(servers)], header=header, timeout_s=timeout_s)
            try:
                return ask, (yield ask)
            except TransportError as error:
                failures[str(error)] = None
                if number == self._namesrv:
                    # Otherwise a concurrent query has switched to the next one already.
                    self._namesrv += 1
        text = f"no name server answers: {'; '.join(failures)}"
        raise NoNameServerError(text).about(
            topic=getattr(header, "topic", None), address=";".join(servers)
        )

    def greet(self, timeout_s: float) -> Steps[ClusterInfo]:
        """The registered brokers. Raises: NoNameServerError, BrokerError."""
        ask, answer = yield from self.ask_name_server(GetBrokerClusterInfo(), timeout_s)
        self.cluster = body_of(ask, expect(ask, answer, "name server"), ClusterInfo)
        return self.cluster

    def reach(self, timeout_s: float) -> Steps[None]:
        """Make sure that a name server answers, and learn the brokers if the user may see them.

        Raises: NoNameServerError, BrokerError.
        """
        try:
            yield from self.greet(timeout_s)
        except PermissionDeniedError as error:
            # A user of some topics only; the remark for a wrong signature is another one.
            if MAY_NOT_SEE not in (error.remark or ""):
                raise

    # ── Routes ──

    def route(self, topic: str, timeout_s: float) -> Steps[TopicRoute]:
        """The cached route of a topic, else the name server's.

        A suspect route is kept if there is no other. Raises: RouteNotFoundError, NoNameServerError.
        """
        known = self.known_route(topic)
        if known is not None:
            return known
        try:
            return (yield from self.fetch_route(topic, timeout_s))
        except AerobeeError as error:
            # That of a topic to be made is one of TBW102, which is asked again in its place.
            planned = topic in self.planned and isinstance(error, RouteNotFoundError)
            if topic not in self.routes or planned:
                raise
            return self.routes[topic]

    def known_route(self, topic: str) -> TopicRoute | None:
        """The cached route of a topic, unless it is suspect."""
        doubted_from = self._suspects.get(topic)
        if doubted_from is not None and doubted_from <= self.clock.monotonic():
            return None
        return self.routes.get(topic)

    def suspect(self, topic: str, every_s: float = 1.0) -> None:
        """Mark a route as possibly stale: its next use queries it again, at most every so often."""
        self._suspects[topic] = self._fetched.get(topic, 0.0) + every_s

    def route_to_publish(
        self, topic: str, timeout_s: float, *, fresh: bool = False
    ) -> Steps[TopicRoute]:
        """As `route`, with queues to write; for an unknown topic the route of TBW102.

        `fresh` ignores the cache. Raises: RouteNotFoundError, also if no queue can be written;
        BrokerNotFoundError if there are only slaves; NoNameServerError.
        """
        ask = self.fetch_route if fresh else self.route
        try:
            route = yield from ask(topic, timeout_s)
        except RouteNotFoundError:
            try:
                data = yield from self._ask_route(AUTO_CREATE_TOPIC, timeout_s)
            except RouteNotFoundError as error:
                raise self._no_route(topic, error.remark) from None
            self.planned.add(topic)
            route = self.remember(topic, read_route(topic, data, DEFAULT_TOPIC_QUEUES))
        if not route.to_publish:
            if route.brokers and not any(MASTER_ID in by_id for by_id in route.brokers.values()):
                names = ", ".join(sorted(route.brokers))
                text = f"the masters of topic {topic} are down ({names})"
                raise BrokerNotFoundError(text).about(topic=topic, broker=names)
            refused = RouteNotFoundError(f"no queue of topic {topic} can be written")
            refused.code = ResponseCode.NO_PERMISSION
            raise refused.about(topic=topic)
        return route

    def first_route_to_publish(self, topic: str, wait_s: float) -> Steps[TopicRoute]:
        """As `route_to_publish`, fresh; waits at most `wait_s` while there is no broker at all.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        give_up_at = self.clock.monotonic() + wait_s
        timeout_s = self.config.request_timeout
        somebody = False
        while True:
            try:
                route = yield from self.route_to_publish(topic, timeout_s, fresh=True)
            except (RouteNotFoundError, NoNameServerError) as error:
                if somebody or self.clock.monotonic() >= give_up_at:
                    raise
                if isinstance(error, RouteNotFoundError) and (
                    yield from self.somebody_there(timeout_s)
                ):
                    # Brokers may have registered since, so try again; then the topic is missing.
                    somebody = True
                    continue
                self.log_once(f"wait {topic}", "waiting for a broker of topic %s: %s", topic, error)
            else:
                self.works_again(f"wait {topic}")
                return route
            yield Wait(self.closing, NOBODY_PAUSE_S)

    def somebody_there(self, timeout_s: float) -> Steps[bool]:
        """Whether any broker is registered with a name server now, as far as it tells."""
        try:
            cluster = yield from self.greet(timeout_s)
        except NoNameServerError:
            return False
        except PermissionDeniedError:
            return True
        return any(data.broker_addrs for data in cluster.broker_addr_table.values())

    def fetch_route(self, topic: str, timeout_s: float) -> Steps[TopicRoute]:
        """Query and cache a route. Raises: RouteNotFoundError, NoNameServerError."""
        self._suspects.pop(topic, None)
        self._fetched[topic] = self.clock.monotonic()
        try:
            data = yield from self._ask_route(topic, timeout_s)
        finally:
            # Also after a failure: a query of a silent name server takes seconds.
            self._fetched[topic] = self.clock.monotonic()
        self.planned.discard(topic)
        return self.remember(topic, read_route(topic, data))

    def locate(self, queue: MessageQueue, timeout_s: float) -> Steps[None]:
        """Make sure that the broker of a queue is known, by a fresh route. Raises: as `route`."""
        if queue.broker_name not in self.brokers and queue.topic not in self._suspects:
            # The topic may have been extended to that broker.
            self.suspect(queue.topic)
        if queue.topic in self._suspects:
            yield from self.route(queue.topic, timeout_s)

    def _ask_route(self, topic: str, timeout_s: float) -> Steps[TopicRouteData]:
        header = GetRouteInfo(topic=topic, accept_standard_json_only=True)
        ask, answer = yield from self.ask_name_server(header, timeout_s)
        try:
            return body_of(ask, expect(ask, answer, "name server"), TopicRouteData)
        except TopicNotFoundError as error:
            raise self._no_route(topic, f"{error.code} {error.remark}") from None

    def _no_route(self, topic: str, last: str | None) -> RouteNotFoundError:
        there = ""
        if self.cluster is not None:
            brokers = ", ".join(
                f"{name} at {' '.join(data.broker_addrs.values())}"
                for name, data in self.cluster.broker_addr_table.items()
            )
            there = f"; brokers there: {brokers or 'none'}"
        servers = self.config.name_servers
        servers_text = f"name server{'s' if len(servers) > 1 else ''} {' and '.join(servers)}"
        text = ROUTE_NOT_FOUND.format(topic=topic, asked=servers_text, last=last, there=there)
        return RouteNotFoundError(text).about(topic=topic, remark=last)

    def remember(self, topic: str, route: TopicRoute) -> TopicRoute:
        """Cache a route and the addresses of its brokers."""
        self.routes[topic] = route
        for name, by_id in route.brokers.items():
            self._left |= set(self.brokers.get(name, {}).values()) - set(by_id.values())
            self.brokers[name] = by_id
        return route

    def take_left(self) -> set[str]:
        """Remove and return the old addresses of brokers.

        A machine that is down does not close connections, which would stay open forever.
        """
        left, self._left = self._left, set()
        return left.difference(*(by_id.values() for by_id in self.brokers.values()))

    def addresses(self, broker_name: str) -> tuple[str, ...]:
        """The addresses of a broker in the newest route, master first; empty if unknown."""
        return in_order(self.brokers.get(broker_name, {}))

    def has_master(self, broker_name: str) -> bool:
        """Whether the newest route with the broker has its master."""
        return MASTER_ID in self.brokers.get(broker_name, {})

    def master(self, broker_name: str) -> str:
        """The address of the master, for sends. Raises: BrokerNotFoundError."""
        by_id = self.brokers.get(broker_name, {})
        if MASTER_ID in by_id:
            return by_id[MASTER_ID]
        if by_id:
            text = f"the master of broker {broker_name} is down"
        else:
            text = f"no route names an address of broker {broker_name}"
        raise BrokerNotFoundError(text).about(broker=broker_name)

    def reader(self, broker_name: str, turn: int = 0) -> str:
        """The address for reads: the master, else a slave, in turns.

        Raises: BrokerNotFoundError.
        """
        by_id = self.brokers.get(broker_name, {})
        if by_id and MASTER_ID not in by_id:
            slaves = in_order(by_id)
            return slaves[turn % len(slaves)]
        return self.master(broker_name)

    # ── Warnings ──

    def log_once(self, about: str, text: str, *values: object) -> None:
        """Log a warning once, until `about` has worked in between."""
        if about not in self._quiet:
            self._quiet.add(about)
            log.warning(text, *values)

    def works_again(self, about: str) -> None:
        """Note that `about` works, so that its next failure is logged."""
        self._quiet.discard(about)
