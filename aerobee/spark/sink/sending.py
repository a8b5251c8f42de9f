"""Sends shipments to brokers: a window of requests in flight, with retries, until all are stored.

        send → backlog → queue chosen → in flight → stored, or after a pause back to the backlog

Invariant: every shipment is stored, or its failure ends the delivery; the wait for each is bounded
by its tries and their timeouts. While its broker or every name server is unreachable it is retried
until the timeout of the delivery: a restart of a broker does not fail the task. Shipments for one
explicit queue are sent one after the other and stay with that queue, which keeps their order; all
others go to any broker with room in its window. Source: spark §5.6, client §5.3.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from random import randrange
from typing import TYPE_CHECKING, Self

from aerobee.client.route import MASTER_ID
from aerobee.client.send_result import SendStatus
from aerobee.client.settings.client import DEFAULT_RETRY
from aerobee.client.steps.answers import error_of, header_of
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.producer_batch import ROUTE_IS_OLD, STATUS, request
from aerobee.client.steps.retrying import is_away, worth_retrying
from aerobee.client.transport import transport_error
from aerobee.errors import (
    AerobeeError,
    Attempt,
    BrokerNotFoundError,
    RequestTimeoutError,
    SendFailedError,
)
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.headers.send import SendMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.remoting.client.blocking_channel import BlockingChannel
    from aerobee.remoting.wire.command import Command
    from aerobee.spark.brokers import Cluster
    from aerobee.spark.sink.encode import Shipment

log = logging.getLogger("aerobee.spark")

BACKLOG_BYTES = 8 << 20
BACKLOG_REQUESTS = 256
"""The most shipments that wait for a broker or for their queue; then `send` blocks."""
PAUSE_S = 0.25
PAUSE_MAX_S = 2.0
"""The longest pause before a retry; pauses grow by PAUSE_S with each try."""
TRIES_TOLD = 8
"""The most tries that an error lists, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    """The settings of a delivery. `window` is the most requests in flight per broker.

    `retries` is the number of tries after the first.
    `timeout_s` is for one try, `delivery_timeout_s` for all tries while a broker is unreachable.
    """

    group: str = "spark_sink"
    window: int = 8
    timeout_s: float = 3.0
    retries: int = 2
    delivery_timeout_s: float = 0.0


@dataclass(slots=True)
class Report:
    """Counts acknowledged messages. `offsets` has the first and the last offset of each queue.

    `unsafe` messages are stored, but not flushed or replicated as the broker's settings ask.
    """

    sent: int = 0
    body_bytes: int = 0
    unsafe: int = 0
    first_id: str | None = None
    last_id: str | None = None
    offsets: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)

    def begin(self, shipment: Shipment) -> None:
        """Note the ids of a shipment that is about to be sent."""
        self.first_id = self.first_id or shipment.batch.uniq_ids[0]
        self.last_id = shipment.batch.uniq_ids[-1]

    def add(
        self,
        shipment: Shipment,
        queue: MessageQueue,
        stored: SendMessageResponse,
        status: SendStatus,
    ) -> None:
        """Count a shipment that the broker has stored in `queue`."""
        count = len(shipment.batch.uniq_ids)
        self.sent += count
        self.body_bytes += shipment.body_bytes
        self.unsafe += count if status is not SendStatus.OK else 0
        if stored.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=stored.queue_id)
        first, last = stored.queue_offset, stored.queue_offset + count - 1
        low, high = self.offsets.get(queue, (first, last))
        self.offsets[queue] = (min(low, first), max(high, last))


@dataclass(slots=True, eq=False)
class Flight:
    """A shipment and its tries."""

    shipment: Shipment
    tries: list[Attempt] = field(default_factory=list)
    """The last TRIES_TOLD tries."""
    tried: int = 0
    give_up_at: float = 0.0
    """Set at the first try."""
    queue: MessageQueue | None = None
    ask: Ask | None = None
    deadline: float = 0.0
    channel: BlockingChannel | None = None
    forget: Callable[[], None] | None = None


class Delivery:
    """Sends the shipments of one task: `send` each one, then `finish`. For use by one thread.

    On exit as a context manager it abandons the requests in flight.
    """

    def __init__(self, cluster: Cluster, sending: DeliverySettings) -> None:
        self.report = Report()
        self._cluster = cluster
        self._known: dict[str, TopicRoute] = {}
        self._sending = sending
        self._next: Counter[str] = Counter()
        self._free: deque[Flight] = deque()
        self._heads: deque[Flight] = deque()
        """The first shipment of each explicit queue that has none in flight."""
        self._by_queue: dict[MessageQueue, deque[Flight]] = {}
        self._later: list[tuple[float, int, Flight]] = []
        self._air: dict[int, Flight] = {}
        """Requests in flight, in the order of their deadlines."""
        self._away: dict[str, tuple[float, AerobeeError | RemotingError]] = {}
        """Addresses that refused a connection: until when no new attempt is made, and the error."""
        self._busy: Counter[str] = Counter()
        """The number of requests in flight, by address."""
        self._heard: dict[str, float] = {}
        """The time of the last response, by address."""
        self._landed: SimpleQueue[tuple[int, Command | None, RemotingError | None]] = SimpleQueue()
        self._numbers = 0
        self._waiting = 0
        self._waiting_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for flight in self._air.values():
            if flight.forget is not None:
                flight.forget()
        self._air.clear()

    def queues(self, topic: str, broker: str | None = None) -> Sequence[MessageQueue]:
        """The writable queues of a topic; waits for those of `broker` as for one that is away.

        A broker that restarts is in no route. Raises: RouteNotFoundError and its subclasses;
        SendFailedError, for an earlier shipment.
        """
        give_up_at = time.monotonic() + self._sending.delivery_timeout_s
        waits = False
        while True:
            queues = self._route(topic).to_publish
            there = broker is None or any(queue.broker_name == broker for queue in queues)
            if there or time.monotonic() >= give_up_at:
                return queues
            if not waits:
                waits = True
                log.warning("broker %s has no queue of topic %s now; waiting for it", broker, topic)
            self._cluster.suspect(topic)
            if self._air or self._later:
                self._turn()
            else:
                time.sleep(PAUSE_S)

    def send(self, shipment: Shipment) -> None:
        """Add a shipment; blocks while the backlog is full.

        Raises: SendFailedError, for this shipment or an earlier one.
        """
        flight = Flight(shipment)
        self._waiting += 1
        self._waiting_bytes += len(shipment.batch.body)
        line = self._free
        if shipment.queue is not None:
            line = self._by_queue.setdefault(shipment.queue, deque())
            if not line:
                self._heads.append(flight)
        line.append(flight)
        self.report.begin(shipment)
        # Rows may arrive slowly, so each call also processes the responses that have arrived:
        # otherwise shipments ahead of this one could not start, and this one not before them.
        if self._clear_landed() or self._later or len(line) == 1:
            self._pump()
        while self._waiting > BACKLOG_REQUESTS or self._waiting_bytes > BACKLOG_BYTES:
            self._turn()

    def finish(self) -> Report:
        """Wait until everything is stored. Raises: SendFailedError."""
        while self._waiting or self._air:
            self._turn()
        if self.report.unsafe:
            log.warning(
                "%d of %d messages are stored, but not as safely as their brokers are set up to",
                self.report.unsafe,
                self.report.sent,
            )
        return self.report

    # ── What happens next ──

    def _turn(self) -> None:
        """Wait for a response, a timeout or the end of a pause, and process it."""
        now = time.monotonic()
        events = [flight.deadline for flight in self._air.values()][:1]
        events += [at for at, _, _ in self._later[:1]]
        assert events, "waiting for nothing"
        with suppress(Empty):
            self._land(*self._landed.get(timeout=max(0.0, min(events) - now)))
        self._clear_landed()
        self._pump()

    def _clear_landed(self) -> bool:
        """Process all responses that have arrived, then abandon the requests past their deadline.

        Returns whether there was any of either.
        """
        before = len(self._air)
        while not self._landed.empty():
            self._land(*self._landed.get_nowait())
        now = time.monotonic()
        while self._air and next(iter(self._air.values())).deadline <= now:
            self._give_up(next(iter(self._air)))
        return len(self._air) < before

    def _give_up(self, number: int) -> None:
        """Abandon a late request, and close the connection if it is silent: it may be dead."""
        flight = self._air[number]
        assert flight.ask is not None
        if flight.forget is not None:
            flight.forget()
        began = flight.deadline - self._sending.timeout_s
        if flight.channel is not None and self._heard.get(flight.ask.address, 0.0) < began:
            flight.channel.close()
        self._land(number, None, None)

    def _pump(self) -> None:
        """Start the shipments that have room."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            flight = heappop(self._later)[2]
            (self._free if flight.shipment.queue is None else self._heads).appendleft(flight)
        for _ in range(len(self._heads)):
            flight = self._heads.popleft()
            assert flight.shipment.queue is not None
            if not self._start(flight, flight.shipment.queue):
                self._heads.append(flight)
        while self._free:
            try:
                queue = self._choose(self._free[0])
            except BrokerNotFoundError as error:
                self._not_started(self._free.popleft(), error)
                continue
            if queue is None or not self._start(self._free[0], queue):
                return
            self._free.popleft()

    def _choose(self, flight: Flight) -> MessageQueue | None:
        """The next queue in turn whose broker has room, on another broker after a failure.

        Raises: BrokerNotFoundError if the broker that the row names has no queue any more.
        """
        topic, broker = flight.shipment.batch.topic, flight.shipment.broker
        route = self._route(topic)
        queues: Sequence[MessageQueue] = route.to_publish
        if broker is not None:
            queues = [q for q in queues if q.broker_name == broker]
        if not queues:
            raise BrokerNotFoundError(f"broker {broker} has no queue of topic {topic} any more")
        if flight.tries:
            failed = flight.tries[-1].broker
            queues = [q for q in queues if q.broker_name != failed] or queues
        full = {name for name in route.brokers if not self._has_room(master_of(route, name))}
        if topic not in self._next:
            # Tasks start at different queues; otherwise small ones would all fill the first.
            self._next[topic] = randrange(1 << 16)
        for step in range(len(queues)):
            queue = queues[(self._next[topic] + step) % len(queues)]
            if queue.broker_name not in full:
                self._next[topic] += step + 1
                return queue
        return None

    def _route(self, topic: str) -> TopicRoute:
        """The newest route with writable queues; an older one serves while a broker is unreachable.

        Raises: RouteNotFoundError, NoNameServerError, for a topic without a cached route.
        """
        known = self._known.get(topic)
        if known is None:
            known = self._cluster.first_route(topic, self._sending.delivery_timeout_s)
        elif (newest := self._cluster.route(topic)).to_publish:
            known = newest
        self._known[topic] = known
        return known

    def _has_room(self, address: str) -> bool:
        return self._busy[address] < self._sending.window

    # ── One try ──

    def _start(self, flight: Flight, queue: MessageQueue) -> bool:
        """Send the request if the broker has room; returns whether it has."""
        address = master_of(self._route(queue.topic), queue.broker_name)
        if not self._has_room(address):
            return False
        batch, sending = flight.shipment.batch, self._sending
        flight.give_up_at = flight.give_up_at or time.monotonic() + sending.delivery_timeout_s
        born_ms = flight.shipment.born_ms or time.time_ns() // 1_000_000
        flight.queue = queue
        flight.ask = Ask(
            address=address,
            header=request(batch, queue, sending.group, born_ms),
            body=batch.body,
            timeout_s=sending.timeout_s,
        )
        self._waiting -= 1
        self._waiting_bytes -= len(batch.body)
        self._numbers += 1
        number = self._numbers
        flight.deadline = time.monotonic() + sending.timeout_s
        flight.channel = flight.forget = None
        self._air[number] = flight
        self._busy[address] += 1
        try:
            if not address:
                raise BrokerNotFoundError(f"no address of the master of {queue.broker_name}")
            channel = self._connected(address)
        except (AerobeeError, RemotingError) as error:
            self._end_try(number, error)
            return True
        flight.channel = channel
        landed = self._landed
        flight.forget = channel.begin(
            flight.ask.header,
            batch.body,
            lambda answer, error: landed.put((number, answer, error)),
            sending.timeout_s,
        )
        return True

    def _land(self, number: int, answer: Command | None, error: RemotingError | None) -> None:
        """Process a response or a failure; with neither, the request has timed out."""
        flight = self._air.get(number)
        if flight is None:
            return
        assert flight.ask is not None
        assert flight.queue is not None
        if answer is None:
            late = f"{flight.ask.address} did not answer within {self._sending.timeout_s:g} s"
            self._end_try(number, error or RequestTimeoutError(late))
            return
        self._heard[flight.ask.address] = time.monotonic()
        status = STATUS.get(answer.code)
        if status is None:
            self._end_try(number, error_of(flight.ask, answer, flight.queue.broker_name))
            return
        try:
            header = header_of(flight.ask, answer, SendMessageResponse)
        except AerobeeError as senseless:
            self._end_try(number, senseless)
            return
        self._out_of_the_air(number)
        self.report.add(flight.shipment, flight.queue, header, status)
        waiting = self._by_queue.get(flight.shipment.queue) if flight.shipment.queue else None
        if waiting:
            waiting.popleft()
            if waiting:
                self._heads.append(waiting[0])

    def _out_of_the_air(self, number: int) -> Flight:
        flight = self._air.pop(number)
        assert flight.ask is not None
        self._busy[flight.ask.address] -= 1
        return flight

    def _connected(self, address: str) -> BlockingChannel:
        """A connection to an address. Shortly after a failure it raises the same error at once.

        Raises: AerobeeError, RemotingError.
        """
        until, why = self._away.get(address, (0.0, None))
        if why is not None and time.monotonic() < until:
            raise why
        try:
            channel = self._cluster.channel(address)
        except (AerobeeError, RemotingError) as error:
            self._away[address] = time.monotonic() + PAUSE_S, error
            raise
        self._away.pop(address, None)
        return channel

    def _not_started(self, flight: Flight, error: BrokerNotFoundError) -> None:
        """Handle a shipment whose broker has left the route. Raises: SendFailedError."""
        now = time.monotonic()
        flight.give_up_at = flight.give_up_at or now + self._sending.delivery_timeout_s
        self._waiting -= 1
        self._waiting_bytes -= len(flight.shipment.batch.body)
        self._come_back(flight, error, flight.shipment.broker or "?")

    def _end_try(self, number: int, error: AerobeeError | RemotingError) -> None:
        """Schedule a retry, or end the delivery. Raises: SendFailedError."""
        flight = self._out_of_the_air(number)
        assert flight.ask is not None
        assert flight.queue is not None
        if isinstance(error, RemotingError):
            error = transport_error(flight.ask, error)
        self._come_back(flight, error, flight.queue.broker_name)

    def _come_back(self, flight: Flight, error: AerobeeError, broker: str) -> None:
        """Retry after a pause, while tries remain or the broker is unreachable and may return.

        Raises: SendFailedError.
        """
        flight.tries = [*flight.tries[1 - TRIES_TOLD :], Attempt(broker, error)]
        flight.tried += 1
        now = time.monotonic()
        left = flight.tried <= self._sending.retries
        patient = is_away(error) and now < flight.give_up_at
        if not worth_retrying(error, DEFAULT_RETRY) or not (left or patient):
            raise self._failure(flight)
        if error.code in ROUTE_IS_OLD:
            self._cluster.suspect(flight.shipment.batch.topic)
        self._waiting += 1
        self._waiting_bytes += len(flight.shipment.batch.body)
        self._numbers += 1
        at = now + min(PAUSE_S * flight.tried, PAUSE_MAX_S)
        heappush(self._later, (at, self._numbers, flight))

    def _failure(self, flight: Flight) -> SendFailedError:
        """The error of a shipment, after the other requests in flight have been counted."""
        while self._air:
            first = next(iter(self._air.values()))
            try:
                number, answer, _ = self._landed.get(
                    timeout=max(0.0, first.deadline - time.monotonic())
                )
            except Empty:
                break
            other = self._air.pop(number, None)
            if other and answer and answer.code in STATUS:
                self.report.sent += len(other.shipment.batch.uniq_ids)
        batch = flight.shipment.batch
        what = (
            f"sending {len(batch.uniq_ids)} rows ({len(batch.body)} bytes) to topic "
            f"{batch.topic}, when {self.report.sent} rows of the task were stored,"
        )
        if flight.tried > len(flight.tries):
            what += f" {flight.tried} times,"
        return SendFailedError(what, flight.tries)


def master_of(route: TopicRoute, broker: str) -> str:
    """The address of the broker's master; empty if the route has none."""
    return route.brokers.get(broker, {}).get(MASTER_ID, "")
