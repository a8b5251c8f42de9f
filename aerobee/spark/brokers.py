"""A cluster as drivers and tasks ask it: topics, routes, bounds, times, committed offsets.

Plain blocking sockets, for processes without an event loop; the requests of many queues go down one
connection per broker together. What could not be answered is asked again, three times in all; no
wait is without an end. Masters are asked where the route has one, for slaves may be behind: then
the end of a queue is one that it had a moment ago. Source: remoting §3.7, nameserver §4.1.
"""

from __future__ import annotations

import os
import threading
from time import sleep
from typing import TYPE_CHECKING

from aerobee.config import name_servers as addresses_of
from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ConfigurationError,
    NoNameServerError,
    RouteNotFoundError,
    TopicNotFoundError,
)
from aerobee.remoting.wire.bodies.cluster import ClusterInfo
from aerobee.remoting.wire.bodies.route import TopicRouteData
from aerobee.remoting.wire.bodies.topic_list import TopicList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import namesrv
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pull import PullMessage
from aerobee.route import MASTER_ID, read_route, readable_queues
from aerobee.spark.connections import Connections, Outcome
from aerobee.spark.offsets import Offsets, Queue
from aerobee.steps.answers import body_of, error_of, expect, header_of
from aerobee.steps.effects import Ask
from aerobee.store.format.record import records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.wire.header import Header
    from aerobee.route import TopicRoute

__all__ = ["Cluster", "cluster_of", "pull_of_one"]

TRIES = 3
PAUSES_S = (0.1, 0.5)
"""Before the second and the third try."""
TIMEOUT_S = 3.0
EXACT_TIME_SINCE = 479
"""V5_3_3: a broker that says so finds offsets by time to the message; others come near."""
READER = "TOOLS_CONSUMER"
"""The group that every broker has for tools to read with."""
SUBSCRIPTION_INLINE = 4
NOTHING_THERE = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
NOT_UNDERSTOOD = (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED)
"""To a pull with an expression: conditions are not enabled, or it is none."""
NOWHERE = 1 << 62
"""An offset that no queue reaches."""
NAME_SERVER = "name server"


def pull_of_one(
    group: str, queue: Queue, offset: int, expression: str = "*", expression_type: str = "TAG"
) -> PullMessage:
    """The request for one message, which commits nothing and is answered at once."""
    return PullMessage(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=SUBSCRIPTION_INLINE,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=expression_type,
    )


class Cluster:
    """The brokers behind these name servers. Any thread may use it; times in seconds."""

    def __init__(self, name_servers: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> None:
        self.name_servers = addresses_of(tuple(name_servers))
        self.timeout_s = timeout_s
        self._connections = Connections(timeout_s)
        self._turn = 0
        """Which name server answered last."""
        self._routes: dict[str, TopicRoute] = {}
        self._brokers: dict[str, tuple[str, ...]] = {}
        """Addresses by broker name, of the newest route: master first, then by number."""
        self._masters: dict[str, str] = {}
        """Of the brokers whose master is in the newest route."""

    def channel(self, address: str) -> BlockingChannel:
        """An open connection to an address, kept for the next. Raises: ConnectError."""
        return self._connections.channel(address)

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self._connections.close()

    # ── Name servers ──

    def topics(self) -> list[str]:
        """All topics that the name server knows, sorted. Raises: NoNameServerError."""
        ((ask, answer),) = self._ask_names([namesrv.GetAllTopicList()])
        return sorted(set(body_of(ask, expect(ask, answer, NAME_SERVER), TopicList).topic_list))

    def brokers(self) -> dict[str, tuple[str, ...]]:
        """The addresses of each broker, its master first. Raises: NoNameServerError."""
        ((ask, answer),) = self._ask_names([namesrv.GetBrokerClusterInfo()])
        info = body_of(ask, expect(ask, answer, NAME_SERVER), ClusterInfo)
        return {
            name: _in_order(data.broker_addrs)
            for name, data in sorted(info.broker_addr_table.items())
            if data.broker_addrs
        }

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        """The route of a topic, as it was when last asked for unless `fresh`.

        Raises: RouteNotFoundError, NoNameServerError.
        """
        if fresh or topic not in self._routes:
            self._fetch([topic])
        return self._routes[topic]

    def queues(
        self, topics: Sequence[str], read_from: str = "master"
    ) -> list[tuple[Queue, tuple[str, ...]]]:
        """The readable queues of topics as the name server knows them now, sorted.

        With each come the addresses to read it from, best first: the master's, a slave's, or by
        `any` those of all in turns. A topic that may not be read has no queues.
        Raises: RouteNotFoundError, BrokerNotFoundError, NoNameServerError.
        """
        found: dict[Queue, tuple[str, ...]] = {}
        for topic, data in self._fetch(topics).items():
            for one in readable_queues(topic, data):
                queue = Queue(topic, one.broker_name, one.queue_id)
                found[queue] = _preferred(self._addresses(queue), read_from, queue)
        return sorted(found.items())

    def has_master(self, queue: Queue) -> bool:
        """Whether the newest route of a topic of its broker has the master, too."""
        return queue.broker in self._masters

    def _fetch(self, topics: Sequence[str]) -> dict[str, TopicRouteData]:
        wanted = list(dict.fromkeys(topics))
        headers = [
            namesrv.GetRouteInfo(topic=topic, accept_standard_json_only=True) for topic in wanted
        ]
        found: dict[str, TopicRouteData] = {}
        for topic, (ask, answer) in zip(wanted, self._ask_names(headers), strict=True):
            try:
                data = body_of(ask, expect(ask, answer, NAME_SERVER), TopicRouteData)
            except TopicNotFoundError:
                asked = ";".join(self.name_servers)
                raise RouteNotFoundError(
                    f"no broker serves topic {topic} (asked {asked}); it was never created, its "
                    "name is spelled otherwise, or its brokers are down"
                ) from None
            found[topic] = data
            self._remember(topic, read_route(topic, data))
        return found

    def _remember(self, topic: str, route: TopicRoute) -> None:
        self._routes[topic] = route
        left: set[str] = set()
        for name, by_id in route.brokers.items():
            left |= set(self._brokers.get(name, ())) - set(by_id.values())
            self._brokers[name] = _in_order(by_id)
            if MASTER_ID in by_id:
                self._masters[name] = by_id[MASTER_ID]
            else:
                self._masters.pop(name, None)
        if left:
            # A machine that is gone closes nothing, and its connection would be kept for good.
            self._connections.drop(left.difference(*self._brokers.values()))

    def _ask_names(self, headers: Sequence[Header]) -> list[tuple[Ask, Command]]:
        """The answers of one name server to all of them. Raises: NoNameServerError."""
        servers = self.name_servers
        failures: dict[str, None] = {}
        for turn in range(max(TRIES, len(servers))):
            if turn >= len(servers):
                sleep(PAUSES_S[0])
            address = servers[self._turn % len(servers)]
            asks = [Ask(address=address, header=one, timeout_s=self.timeout_s) for one in headers]
            outcomes = self._connections.exchange(asks)
            answers = [one for one in outcomes if isinstance(one, Command)]
            if len(answers) == len(asks):
                return list(zip(asks, answers, strict=True))
            failures |= {str(one): None for one in outcomes if not isinstance(one, Command)}
            self._turn += 1
        raise NoNameServerError(f"no name server answers: {'; '.join(list(failures)[:TRIES])}")

    # ── Offsets ──

    def min_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The oldest offset that each queue still has. Raises: BrokerError, TransportError."""
        return self._offsets({q: GetMinOffset(topic=q.topic, queue_id=q.queue_id) for q in queues})

    def max_offsets(self, queues: Sequence[Queue]) -> Offsets:
        """The offset that the next message of each queue gets. Raises: as `min_offsets`."""
        return self._offsets({q: GetMaxOffset(topic=q.topic, queue_id=q.queue_id) for q in queues})

    def offsets_at(self, queues: Sequence[Queue], ms: int) -> Offsets:
        """The first message of each queue stored at that time or later; its end if there is none.

        `ms` since the epoch. Raises: as `min_offsets`.
        """
        asked = {q: SearchOffset(topic=q.topic, queue_id=q.queue_id, timestamp=ms) for q in queues}
        found: Offsets = {}
        near: Offsets = {}
        for queue, (ask, answer) in self._ask(asked).items():
            offset = header_of(ask, expect(ask, answer, queue.broker), OffsetResponse).offset
            exact = answer.version >= EXACT_TIME_SINCE
            (found if exact else near)[queue] = offset
        found |= self._corrected(near, ms)
        return {queue: found[queue] for queue in asked}

    def committed(self, group: str, queues: Sequence[Queue]) -> dict[Queue, int | None]:
        """Where the group stands in each queue; None where the broker has nothing.

        Brokers before 5.0 say 0 for "nothing" as long as a queue still has its first message.
        Raises: as `min_offsets`.
        """
        asked = {
            q: QueryConsumerOffset(
                consumer_group=group,
                topic=q.topic,
                queue_id=q.queue_id,
                set_zero_if_not_found=False,
            )
            for q in queues
        }
        found: dict[Queue, int | None] = {}
        for queue, (ask, answer) in self._ask(asked).items():
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                found[queue] = None
                continue
            offset = header_of(ask, expect(ask, answer, queue.broker), OffsetResponse).offset
            found[queue] = offset if offset >= 0 else None
        return found

    def check_expression(
        self, group: str, queues: Sequence[Queue], expression: str, expression_type: str
    ) -> None:
        """Have each broker look at a subscription, which is answered before anything is read.

        Raises: ConfigurationError for one that a broker does not understand or does not allow;
        BrokerError, TransportError.
        """
        one_each = {queue.broker: queue for queue in queues}
        asked: dict[Queue, Header] = {
            queue: pull_of_one(group, queue, NOWHERE, expression, expression_type)
            for queue in one_each.values()
        }
        for queue, (ask, answer) in self._ask(asked).items():
            if answer.code in NOT_UNDERSTOOD:
                raise ConfigurationError(
                    f"option subExpression: {expression!r} ({expression_type}) is refused: "
                    f"{error_of(ask, answer, queue.broker)}"
                )
            if answer.code != ResponseCode.SUCCESS and answer.code not in NOTHING_THERE:
                raise error_of(ask, answer, queue.broker)

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Store where the group stands, at the masters, and wait until they have it.

        Raises: the first error, after all were asked.
        """
        asked = {
            q: UpdateConsumerOffset(
                consumer_group=group, topic=q.topic, queue_id=q.queue_id, commit_offset=offset
            )
            for q, offset in offsets.items()
        }
        for queue, (ask, answer) in self._ask(asked, master_only=True).items():
            expect(ask, answer, queue.broker)

    def call(
        self, address: str, header: Header, body: bytes = b"", *, tries: int = TRIES
    ) -> Command:
        """The answer to one request, if it says SUCCESS; it may arrive as often as it is tried.

        Raises: BrokerError, TransportError, ConfigurationError when it is too long to be sent.
        """
        ask = Ask(address=address, header=header, body=body, timeout_s=self.timeout_s)
        turn = 0
        while True:
            outcome = _judged(ask, self._connections.exchange([ask])[0], "broker")
            if isinstance(outcome, Command):
                return expect(ask, outcome, "broker")
            turn += 1
            if turn >= tries or not outcome.retryable:
                raise outcome
            sleep(PAUSES_S[min(turn, len(PAUSES_S)) - 1])

    def _offsets(self, asked: Mapping[Queue, Header]) -> Offsets:
        return {
            queue: header_of(ask, expect(ask, answer, queue.broker), OffsetResponse).offset
            for queue, (ask, answer) in self._ask(asked).items()
        }

    def _ask(
        self, asked: Mapping[Queue, Header], *, master_only: bool = False
    ) -> dict[Queue, tuple[Ask, Command]]:
        """The answers of the brokers, in the order asked. Raises: the first error that stays."""
        done: dict[Queue, tuple[Ask, Command]] = {}
        failed: dict[Queue, AerobeeError] = {}
        for turn in range(TRIES):
            open_ = [queue for queue in asked if queue not in done]
            if turn:
                sleep(PAUSES_S[turn - 1])
            asks = [
                Ask(
                    address=self._address(queue, turn, master_only=master_only),
                    header=asked[queue],
                    timeout_s=self.timeout_s,
                )
                for queue in open_
            ]
            for queue, ask, outcome in zip(
                open_, asks, self._connections.exchange(asks), strict=True
            ):
                judged = _judged(ask, outcome, queue.broker)
                if isinstance(judged, Command):
                    done[queue] = ask, judged
                elif judged.retryable:
                    failed[queue] = judged
                else:
                    raise judged
            if len(done) == len(asked):
                return {queue: done[queue] for queue in asked}
        raise next(failed[queue] for queue in asked if queue not in done)

    def _address(self, queue: Queue, turn: int, *, master_only: bool) -> str:
        addresses = self._addresses(queue)
        if (master := self._masters.get(queue.broker)) is not None:
            return master
        if master_only:
            raise BrokerNotFoundError(f"{queue}: the master of that broker is down")
        return addresses[turn % len(addresses)]

    def _addresses(self, queue: Queue) -> tuple[str, ...]:
        if queue.broker not in self._brokers:
            self._fetch([queue.topic])
        try:
            return self._brokers[queue.broker]
        except KeyError:
            raise BrokerNotFoundError(
                f"{queue}: the route of the topic names no address of that broker"
            ) from None

    # ── Offsets by time, of brokers that only come near ──

    def _corrected(self, near: Offsets, ms: int) -> Offsets:
        """The first message at `ms` or later, from one that is the nearest to `ms`.

        That can be the last one before, or any of several stored in the same millisecond.
        """
        minima = self.min_offsets(list(near))
        stored = self._store_times(near)
        found: Offsets = {}
        back: Offsets = {}
        for queue, offset in near.items():
            at_ms = stored[queue]
            if at_ms is None or at_ms < ms:
                found[queue] = offset if at_ms is None else offset + 1
            else:
                back[queue] = offset
        while back:
            earlier = {q: offset - 1 for q, offset in back.items() if offset > minima[q]}
            stored = self._store_times(earlier)
            found |= {q: offset for q, offset in back.items() if (stored.get(q) or 0) < ms}
            back = {q: offset - 1 for q, offset in back.items() if q not in found}
        # Where nothing is left, 4.9 may name a place in front of the queue.
        return {queue: max(offset, minima[queue]) for queue, offset in found.items()}

    def _store_times(self, places: Offsets) -> dict[Queue, int | None]:
        """When the messages at these places were stored, ms; None where there is none."""
        asked: dict[Queue, Header] = {
            queue: pull_of_one(READER, queue, offset) for queue, offset in places.items()
        }
        times: dict[Queue, int | None] = dict.fromkeys(places)
        for queue, (ask, answer) in self._ask(asked).items():
            if answer.code == ResponseCode.SUCCESS:
                first = next(records([answer.body]))
                if first.queue_offset == places[queue]:
                    times[queue] = first.store_timestamp
            elif answer.code not in NOTHING_THERE:
                raise error_of(ask, answer, queue.broker)
        return times


def _judged(ask: Ask, outcome: Outcome, peer: str) -> Outcome:
    """An answer that says "not now" is a failure that may pass."""
    if isinstance(outcome, Command) and outcome.code != ResponseCode.SUCCESS:
        error = error_of(ask, outcome, peer)
        if error.retryable:
            return error
    return outcome


def _in_order(by_id: Mapping[int, str]) -> tuple[str, ...]:
    """The master first, then the slaves by number."""
    return tuple(by_id[broker_id] for broker_id in sorted(by_id, key=lambda n: (n != MASTER_ID, n)))


def _preferred(addresses: tuple[str, ...], read_from: str, queue: Queue) -> tuple[str, ...]:
    match read_from:
        case "slave":
            return (*addresses[1:], addresses[0])
        case "any":
            turn = queue.queue_id % len(addresses)
            return (*addresses[turn:], *addresses[:turn])
    return addresses


# ── The clusters of this process ──

_clusters: dict[tuple[str, ...], Cluster] = {}
_guard = threading.Lock()


def cluster_of(name_servers: Sequence[str]) -> Cluster:
    """The cluster behind these name servers, the same object as long as the process lives.

    Workers are used again for query after query, and so are the connections.
    """
    key = tuple(name_servers)
    with _guard:
        if key not in _clusters:
            _clusters[key] = Cluster(key)
        return _clusters[key]


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    _clusters.clear()


os.register_at_fork(after_in_child=_after_fork)
