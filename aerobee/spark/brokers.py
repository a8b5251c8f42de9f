"""The requests of drivers and tasks to a cluster: topics, routes, offsets, times, commits.

The SDK's steps over blocking sockets, for processes without an event loop; the requests for many
queues share one connection per broker. Failed requests are tried three times in all; every wait has
a timeout. Requests go to masters where the route has one, because slaves may be behind: then the
end of a queue is an older one.
Source: remoting §3.7, nameserver §4.1.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aerobee.client.blocking.connections import Connections
from aerobee.client.factory import CLOCK, make_config
from aerobee.client.route import in_order
from aerobee.client.security import link_of
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.admin import topics as topic_steps
from aerobee.client.steps.answers import error_of, expect
from aerobee.client.steps.asking import ask_address, ask_broker
from aerobee.client.steps.offsets import Offsets as GroupOffsets
from aerobee.client.steps.pulling import NOTHING_THERE, pull_of_one
from aerobee.client.steps.routes import Routes
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    RouteNotFoundError,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.spark.access import OPEN, Access
from aerobee.spark.offsets import Offsets, Queue
from aerobee.store.format.record import RecordDamaged
from aerobee.store.format.system_names import TOOLS_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.route import TopicRoute
    from aerobee.client.steps.effects import Steps
    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

T = TypeVar("T")

TRIES = 3
TIMEOUT_S = 3.0
NOT_UNDERSTOOD = (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
"""Response codes to a pull with an expression that is disabled or invalid."""
NOWHERE = 1 << 62
"""An offset that no queue reaches."""


class Cluster:
    """A cluster behind these name servers. Any thread may use it; times in seconds."""

    def __init__(
        self,
        name_servers: Sequence[str],
        access: Access = OPEN,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.timeout_s = timeout_s
        options = access.client_options()
        options["instance_name"] = "spark"
        options["connect_timeout"] = options["request_timeout"] = timeout_s
        config = make_config(tuple(name_servers), lookup_tries=TRIES, **options)
        self.routes = Routes(config, CLOCK)
        link = link_of(config.credentials, config.tls, namespace=config.namespace)
        self._connections = Connections(timeout_s, link=link)
        self._offsets = GroupOffsets(self.routes, TOOLS_GROUP)

    def channel(self, address: str) -> BlockingChannel:
        """A cached or new connection to an address. Raises: ConnectFailed."""
        return self._connections.channel(address)

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self._connections.close()

    # ── Name servers ──

    def topics(self) -> list[str]:
        """All topics of the name server, sorted. Raises: NoNameServerError."""
        return self._connections.perform(topic_steps.topics(self.routes))

    def brokers(self) -> dict[str, tuple[str, ...]]:
        """The addresses of each broker, its master first. Raises: NoNameServerError."""
        info = self._connections.perform(self.routes.greet(self.timeout_s))
        return {
            name: in_order(data.broker_addrs)
            for name, data in sorted(info.broker_addr_table.items())
            if data.broker_addrs
        }

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The cached route of a topic; queried again if it is suspect, or with `fresh`.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        if fresh:
            return self._fetch([topic])[0]
        known = self.routes.known_route(topic)
        if known is not None:
            return known
        return self._connections.perform(self.routes.route(topic, self.timeout_s))

    def first_route(self, topic: str, wait_s: float) -> TopicRoute:
        """The route for sends to a topic that may not exist yet; waits up to `wait_s` for a broker.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        return self._connections.perform(self.routes.first_route_to_publish(topic, wait_s))

    def has_topic(self, topic: str) -> bool:
        """Whether the name server has the topic now, plain or with its namespace.

        Raises: NoNameServerError.
        """
        try:
            self.route(topic, fresh=True)
        except RouteNotFoundError:
            return False
        return True

    def suspect(self, topic: str) -> None:
        """Mark a route as possibly stale: its next use queries it again, at most once a second."""
        self.routes.suspect(topic)

    def queues(
        self, topics: Sequence[str], read_from: str = "master"
    ) -> list[tuple[Queue, tuple[str, ...]]]:
        """The readable queues of topics, by the name server's current routes, sorted.

        Each comes with the addresses to read it from, best first: the master's, a slave's, or with
        `any` those of all in turns. A topic without read permission has no queues.
        Raises: RouteNotFoundError, BrokerNotFoundError, NoNameServerError.
        """
        queues: dict[Queue, tuple[str, ...]] = {}
        for route in self._fetch(topics):
            for place in route.readable:
                queue = Queue(*place)
                addresses = self.routes.addresses(queue.broker)
                if not addresses:
                    raise BrokerNotFoundError(f"{queue}: the route names no address of that broker")
                queues[queue] = preferred(addresses, read_from, queue)
        return sorted(queues.items())

    def places(
        self, queues: Iterable[Queue], read_from: str = "master"
    ) -> dict[Queue, tuple[str, ...]]:
        """The addresses of queues by their brokers' names, whatever routes their topics have.

        Queues of brokers that are not registered are left out. Raises: NoNameServerError,
        PermissionDeniedError.
        """
        info = self._connections.perform(self.routes.greet(self.timeout_s))
        places: dict[Queue, tuple[str, ...]] = {}
        for queue in queues:
            data = info.broker_addr_table.get(queue.broker)
            if data is not None and data.broker_addrs:
                self.routes.brokers.setdefault(queue.broker, dict(data.broker_addrs))
                places[queue] = preferred(in_order(data.broker_addrs), read_from, queue)
        return places

    def has_master(self, queue: Queue) -> bool:
        """Whether the newest route with the queue's broker has its master."""
        return self.routes.has_master(queue.broker)

    def _fetch(self, topics: Iterable[str]) -> list[TopicRoute]:
        wanted = dict.fromkeys(topics)
        steps = [self.routes.fetch_route(topic, self.timeout_s) for topic in wanted]
        routes = self._connections.perform_all(steps)
        self._connections.drop(self.routes.take_left())
        return routes

    # ── Offsets ──

    def min_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The oldest offset of each queue. Raises: BrokerError, TransportError."""
        return self._of_each(queues, self._offsets.lowest)

    def max_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The offset of the next message of each queue. Raises: as `min_offsets`."""
        return self._of_each(queues, self._offsets.end)

    def offsets_at(self, queues: Sequence[Queue], ms: int) -> Offsets:
        """The offset of the first message stored at that time or later, else the end of the queue.

        `ms` since the epoch. Raises: as `min_offsets`.
        """
        return self._of_each(queues, partial(self._offsets.at_ms, ms=ms))

    def stored_ms(self, group: str, places: Mapping[Queue, int]) -> dict[Queue, int | None]:
        """When the messages at these offsets were stored; None where there is no message.

        Pulls in the name of a group that may read them. Places that the broker refuses, or has as
        bytes that are no message, are left out. Raises: TransportError, BrokerError for "not now".
        """

        def time_of(queue: MessageQueue) -> Steps[dict[Queue, int | None]]:
            place = Queue(*queue)
            try:
                return {place: (yield from self._offsets.stored_ms(queue, places[place], group))}
            except BrokerError as error:
                if error.retryable:
                    raise
            except RecordDamaged:
                pass
            return {}

        times: dict[Queue, int | None] = {}
        for known in self._of_each(places, time_of).values():
            times |= known
        return times

    def committed(self, group: str, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """The committed offset of a group in each queue; None without one.

        Brokers before 5.0 return 0 for "none" as long as a queue still has its first message.
        Raises: as `min_offsets`.
        """
        of_group = GroupOffsets(self.routes, group)
        return self._of_each(queues, partial(of_group.committed, zero=False))

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Commit offsets of a group at the masters, and wait for the responses.

        Raises: the first error, after all requests have been sent.
        """
        of_group = GroupOffsets(self.routes, group)
        self._of_each(offsets, lambda q: of_group.commit(q, offsets[Queue(*q)], master_only=True))

    def _of_each(
        self, queues: Iterable[Queue], steps: Callable[[MessageQueue], Steps[T]]
    ) -> dict[Queue, T]:
        """Run these steps for each queue in parallel. Raises: the first of their errors."""
        listed = list(queues)
        many = [steps(MessageQueue(*queue)) for queue in listed]
        return dict(zip(listed, self._connections.perform_all(many), strict=True))

    # ── Other requests ──

    def check_expression(
        self, group: str, queues: Sequence[Queue], expression: str, expression_type: str
    ) -> None:
        """Let each broker check a subscription before anything is read.

        Raises: ConfigurationError for a subscription that a broker does not understand or allow;
        BrokerError, TransportError.
        """

        def checked(queue: MessageQueue) -> Steps[None]:
            header = pull_of_one(group, queue, NOWHERE, expression, expression_type)
            ask, answer = yield from ask_broker(self.routes, queue, header)
            if answer.code in NOT_UNDERSTOOD:
                raise ConfigurationError(
                    f"option subExpression: {expression!r} ({expression_type}) is refused: "
                    f"{error_of(ask, answer, queue.broker_name)}"
                )
            if answer.code not in NOTHING_THERE:
                expect(ask, answer, queue.broker_name)

        self._of_each({queue.broker: queue for queue in queues}.values(), checked)

    def call(
        self, address: str, header: Header, body: bytes = b"", *, tries: int = TRIES
    ) -> Command:
        """The response to one request, if it is SUCCESS; a retry may deliver the request twice.

        Raises: BrokerError, TransportError, ConfigurationError for a request that is too long.
        """
        steps = ask_address(self.routes, address, header, body, tries)
        ask, answer = self._connections.perform(steps)
        return expect(ask, answer, "broker")

    def introduce(self, group: str, queue: Queue, address: str) -> None:
        """Pull once in the name of a group, so that brokers with automatic creation create it.

        Raises: BrokerError, TransportError.
        """
        self.call(address, pull_of_one(group, MessageQueue(*queue), 0), tries=1)


def preferred(addresses: tuple[str, ...], read_from: str, queue: Queue) -> tuple[str, ...]:
    """The addresses of a broker, the preferred one for reads of the queue first."""
    match read_from:
        case "slave":
            return (*addresses[1:], addresses[0])
        case "any":
            turn = queue.queue_id % len(addresses)
            return (*addresses[turn:], *addresses[:turn])
    return addresses


# ── The clusters of this process ──

_clusters: dict[tuple[tuple[str, ...], Access], Cluster] = {}
_guard = threading.Lock()


def cluster_of(name_servers: Sequence[str], access: Access = OPEN) -> Cluster:
    """The cluster behind these name servers; a process has one object for each.

    Workers are reused for query after query, and so are the connections.
    Raises: ConfigurationError for invalid files of keys or certificates.
    """
    key = tuple(name_servers), access
    with _guard:
        if key not in _clusters:
            _clusters[key] = Cluster(*key)
        return _clusters[key]


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    _clusters.clear()


os.register_at_fork(after_in_child=_after_fork)
