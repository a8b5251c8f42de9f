"""A cluster as drivers and tasks ask it: topics, routes, bounds, times, committed offsets.

The SDK's steps over blocking sockets, for processes without an event loop; the requests of many
queues go down one connection per broker together. What could not be answered is asked again, three
times in all; no wait is without an end. Masters are asked where the route has one, for slaves may
be behind: then the end of a queue is one that it had a moment ago.
Source: remoting §3.7, nameserver §4.1.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aerobee.client.blocking.connections import Connections
from aerobee.client.factory import CLOCK, make_config
from aerobee.client.message import MessageQueue
from aerobee.client.route import in_order
from aerobee.client.security import link_of
from aerobee.client.steps.admin import topics as topic_steps
from aerobee.client.steps.answers import error_of, expect
from aerobee.client.steps.asking import ask_address, ask_broker
from aerobee.client.steps.offsets import READER
from aerobee.client.steps.offsets import Offsets as GroupOffsets
from aerobee.client.steps.pulling import NOTHING_THERE, pull_of_one
from aerobee.client.steps.routes import Routes
from aerobee.errors import BrokerNotFoundError, ConfigurationError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.spark.access import OPEN, Access
from aerobee.spark.offsets import Offsets, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.route import TopicRoute
    from aerobee.client.steps.effects import Steps
    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

__all__ = ["Cluster", "cluster_of"]

T = TypeVar("T")

TRIES = 3
TIMEOUT_S = 3.0
NOT_UNDERSTOOD = (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
"""To a pull with an expression: conditions are not enabled, or it is none."""
NOWHERE = 1 << 62
"""An offset that no queue reaches."""


class Cluster:
    """The brokers behind these name servers. Any thread may use it; times in seconds."""

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
        link = link_of(config.credentials, config.tls)
        self._connections = Connections(timeout_s, link=link)
        self._offsets = GroupOffsets(self.routes, READER)

    def channel(self, address: str) -> BlockingChannel:
        """An open connection to an address, kept for the next. Raises: ConnectFailed."""
        return self._connections.channel(address)

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self._connections.close()

    # ── Name servers ──

    def topics(self) -> list[str]:
        """All topics that the name server knows, sorted. Raises: NoNameServerError."""
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
        """The route of a topic, as last heard; asked for again if it is in doubt, or `fresh`.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        if fresh:
            return self._fetch([topic])[0]
        known = self.routes.known_route(topic)
        if known is not None:
            return known
        return self._connections.perform(self.routes.route(topic, self.timeout_s))

    def first_route(self, topic: str, wait_s: float) -> TopicRoute:
        """The route to write to a topic or to one that is to be made; waits for a broker so long.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        return self._connections.perform(self.routes.first_route_to_publish(topic, wait_s))

    def suspect(self, topic: str) -> None:
        """The route is in doubt: the next one to need it asks again, at most once a second."""
        self.routes.suspect(topic)

    def queues(
        self, topics: Sequence[str], read_from: str = "master"
    ) -> list[tuple[Queue, tuple[str, ...]]]:
        """The readable queues of topics as the name server knows them now, sorted.

        With each come the addresses to read it from, best first: the master's, a slave's, or by
        `any` those of all in turns. A topic that may not be read has no queues.
        Raises: RouteNotFoundError, BrokerNotFoundError, NoNameServerError.
        """
        found: dict[Queue, tuple[str, ...]] = {}
        for route in self._fetch(topics):
            for one in route.readable:
                queue = Queue(*one)
                addresses = self.routes.addresses(queue.broker)
                if not addresses:
                    raise BrokerNotFoundError(f"{queue}: the route names no address of that broker")
                found[queue] = preferred(addresses, read_from, queue)
        return sorted(found.items())

    def has_master(self, queue: Queue) -> bool:
        """Whether the newest route of a topic of its broker has the master, too."""
        return self.routes.has_master(queue.broker)

    def _fetch(self, topics: Iterable[str]) -> list[TopicRoute]:
        wanted = dict.fromkeys(topics)
        steps = [self.routes.fetch_route(topic, self.timeout_s) for topic in wanted]
        routes = self._connections.perform_all(steps)
        self._connections.drop(self.routes.take_left())
        return routes

    # ── Offsets ──

    def min_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The oldest offset that each queue still has. Raises: BrokerError, TransportError."""
        return self._of_each(queues, self._offsets.lowest)

    def max_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The offset that the next message of each queue gets. Raises: as `min_offsets`."""
        return self._of_each(queues, self._offsets.end)

    def offsets_at(self, queues: Sequence[Queue], ms: int) -> Offsets:
        """The first message of each queue stored at that time or later; its end if there is none.

        `ms` since the epoch. Raises: as `min_offsets`.
        """
        return self._of_each(queues, partial(self._offsets.at_ms, ms=ms))

    def committed(self, group: str, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """Where the group stands in each queue; None where the broker has nothing.

        Brokers before 5.0 say 0 for "nothing" as long as a queue still has its first message.
        Raises: as `min_offsets`.
        """
        of_group = GroupOffsets(self.routes, group)
        return self._of_each(queues, partial(of_group.committed, zero=False))

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Store where the group stands, at the masters, and wait until they have it.

        Raises: the first error, after all were asked.
        """
        of_group = GroupOffsets(self.routes, group)
        self._of_each(offsets, lambda q: of_group.commit(q, offsets[Queue(*q)], master_only=True))

    def _of_each(
        self, queues: Iterable[Queue], steps: Callable[[MessageQueue], Steps[T]]
    ) -> dict[Queue, T]:
        """What these steps give for each queue, all at once. Raises: the first of their errors."""
        listed = list(queues)
        many = [steps(MessageQueue(*queue)) for queue in listed]
        return dict(zip(listed, self._connections.perform_all(many), strict=True))

    # ── Others ──

    def check_expression(
        self, group: str, queues: Sequence[Queue], expression: str, expression_type: str
    ) -> None:
        """Have each broker look at a subscription, which is answered before anything is read.

        Raises: ConfigurationError for one that a broker does not understand or does not allow;
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
        """The answer to one request, if it says SUCCESS; it may arrive as often as it is tried.

        Raises: BrokerError, TransportError, ConfigurationError when it is too long to be sent.
        """
        steps = ask_address(self.routes, address, header, body, tries)
        ask, answer = self._connections.perform(steps)
        return expect(ask, answer, "broker")

    def introduce(self, group: str, queue: Queue, address: str) -> None:
        """Pull once by the name of a group: brokers that make groups make this one.

        Raises: BrokerError, TransportError.
        """
        self.call(address, pull_of_one(group, MessageQueue(*queue), 0), tries=1)


def preferred(addresses: tuple[str, ...], read_from: str, queue: Queue) -> tuple[str, ...]:
    """The addresses of a broker, the one to read the queue from first."""
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
    """The cluster behind these name servers, the same object as long as the process lives.

    Workers are used again for query after query, and so are the connections.
    Raises: ConfigurationError for files of keys or certificates that are none.
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
