"""The decisions of sending: choice of the queue, requests, retries, and results.

Source: client §5 (DefaultMQProducerImpl), remoting §3.2, §3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from aerobee.client import compression
from aerobee.client.callables import check_result
from aerobee.client.message import Message, check_message
from aerobee.client.namespaces import INSTANCE_ID
from aerobee.client.send_result import MessageQueue, SendResult
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.client.steps.faults import Faults, next_step
from aerobee.client.steps.hooking import around_send
from aerobee.client.steps.messages import NOTHING, property_string
from aerobee.client.steps.producer_batch import (
    BATCH_BYTES,
    PREPARED,
    ROUTE_IS_OLD,
    ProducerBatch,
    read_results,
    request,
    split,
    together,
)
from aerobee.client.steps.retrying import Tries, worth_retrying
from aerobee.errors import (
    AerobeeError,
    BatchSendError,
    BrokerError,
    BrokerNotFoundError,
    ClientClosedError,
    ConfigurationError,
    NoNameServerError,
    RouteNotFoundError,
    TransportError,
)
from aerobee.remoting.wire.version import describe
from aerobee.store.format.tags import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.route import TopicRoute
    from aerobee.client.settings.producer import ProducerConfig
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.messages import UniqIds
    from aerobee.client.steps.traces import Traces
    from aerobee.hooks import Hook

QueueSelector: TypeAlias = "Callable[[Sequence[MessageQueue], Message], MessageQueue]"
TIMERS_SINCE = 413
"""The first broker version with timers, V5_0_0. Older brokers deliver at once."""
SETTLE_WITHIN_S = 3.0
"""How long `close` waits for sends in flight."""
LEAVE_WITHIN_S = 1.5
RETRIED = (TransportError, BrokerError, BrokerNotFoundError, NoNameServerError)


@dataclass(slots=True)
class Sender:
    """The sender of a producer: queue counters, ids, and the steps of all kinds of sends."""

    instance: Instance
    config: ProducerConfig
    uniq_ids: UniqIds
    traces: Traces | None = None
    """The message trace, if enabled: it gets ends and recalls here, and sends as a hook."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that are called for each send."""
    _counters: dict[str, int] = field(default_factory=dict)
    _under_way: int = 0
    """The number of sends in flight."""
    _settled: Signal = field(default_factory=Signal)
    """Set when no send is in flight any more."""
    _closing: bool = False
    _left: bool = False
    """Whether the group is out of heartbeats: another producer may have its name then."""
    _faults: Faults | None = field(init=False)
    """The latencies of brokers, if slow ones are avoided."""
    _of_all: Mapping[str, str] = field(init=False)
    """The properties that are added to every message."""

    def __post_init__(self) -> None:
        wanted = self.config.latency_fault_tolerance
        self._faults = Faults(self.instance.clock) if wanted else None
        namespace = self.instance.config.namespace
        self._of_all = {INSTANCE_ID: namespace} if namespace else NOTHING

    def begin(self) -> None:
        """Register with the client. Raises: ConfigurationError for a second producer of a group."""
        self.instance.add_producer(self.config.group)

    def close(self) -> Steps[None]:
        """Wait for sends in flight, for a while, and unregister from the brokers.

        Unfinished sends raise ClientClosedError then.
        """
        self._closing = True
        clock = self.instance.clock
        deadline = clock.monotonic() + SETTLE_WITHIN_S
        while self._under_way and (left_s := deadline - clock.monotonic()) > 0:
            self._settled.clear()
            yield Wait(self._settled, left_s)
        self._left = True
        yield from self.instance.leave(producer=self.config.group, within_s=LEAVE_WITHIN_S)

    def let_go(self) -> None:
        """Be in no further heartbeat, though the close was cut off."""
        self._closing = True
        if not self._left:
            self._left = True
            self.instance.producers.discard(self.config.group)

    def queues(self, topic: str) -> Steps[list[MessageQueue]]:
        """The writable queues of a topic. Raises: RouteNotFoundError."""
        route = yield from self._route(topic, self.config.timeout)
        return list(route.to_publish)

    # ── The kinds of send ──

    def send(
        self,
        message: Message,
        queue: MessageQueue | QueueSelector | None,
        timeout_s: float | None,
        require_ok: bool,
    ) -> Steps[SendResult]:
        """Send one message. Raises: SendFailedError, BrokerError, and as `batch_of`."""
        batch = self.batch_of(message)
        results = yield from self._deliver(
            batch, self._choice(message, queue), timeout_s, require_ok
        )
        return results[0]

    def deliver(
        self, batch: ProducerBatch, timeout_s: float | None, queue: MessageQueue | None = None
    ) -> Steps[list[SendResult]]:
        """Send a batch to this queue, or to one chosen by its first message.

        Raises: SendFailedError, BrokerError.
        """
        choice = self._choice(batch.messages[0], queue)
        return (yield from self._deliver(batch, choice, timeout_s, require_ok=False))

    def queue_for(
        self, message: Message, choice: MessageQueue | QueueSelector | None
    ) -> Steps[MessageQueue]:
        """The queue of the first try of a message. Raises: as `queues`, ConfigurationError."""
        choose = self._choice(message, choice)
        route = yield from self._route(message.topic, self.config.timeout)
        return choose(route.to_publish, None)

    def send_oneway(self, message: Message) -> Steps[None]:
        """Send one message without waiting for a response: it may get lost.

        Raises: TransportError, ConfigurationError.
        """
        batch = self.batch_of(message)
        if not self.hooks:
            yield from self._hand_over(batch, message)
            return
        with around_send(self.hooks, batch, self.config.group, oneway=True) as (hooked, _):
            yield from self._hand_over(hooked, message)

    def _hand_over(self, batch: ProducerBatch, message: Message) -> Steps[None]:
        queue = yield from self.queue_for(message, None)
        if batch.timed:
            yield from self._check_timers(queue, self.config.timeout)
        yield self._ask(batch, queue, self.config.timeout, oneway=True)

    def send_batch(
        self, messages: Iterable[Message], timeout_s: float | None
    ) -> Steps[list[SendResult]]:
        """Send many messages in few requests; one result per message, in their order.

        Nothing is sent if one of them is invalid. Raises: BatchSendError with the results so far,
        ConfigurationError.
        """
        listed = list(messages)
        for message in listed:
            check_message(message, self.config.max_message_size, self.config.delay_levels)
        results: list[SendResult | AerobeeError | None] = [None] * len(listed)
        for indexes in split(listed, BATCH_BYTES):
            chunk = [listed[index] for index in indexes]
            try:
                sent: Sequence[SendResult | AerobeeError] = yield from self._send_chunk(
                    chunk, timeout_s
                )
            except AerobeeError as error:
                sent = [error] * len(chunk)
            for index, result in zip(indexes, sent, strict=True):
                results[index] = result
        done = [result for result in results if isinstance(result, SendResult)]
        if len(done) < len(listed):
            raise BatchSendError([result for result in results if result is not None])
        return done

    def _send_chunk(
        self, chunk: Sequence[Message], timeout_s: float | None
    ) -> Steps[list[SendResult]]:
        if len(chunk) == 1:
            return [(yield from self.send(chunk[0], None, timeout_s, require_ok=False))]
        batch = together([self._unpacked(message) for message in chunk])
        choice = self._choice(chunk[0], None)
        return (yield from self._deliver(batch, choice, timeout_s, require_ok=False))

    # ── One request ──

    def batch_of(
        self,
        message: Message,
        extra: Mapping[str, str] = NOTHING,
        *,
        prepared: bool = False,
        reply: bool = False,
    ) -> ProducerBatch:
        """The batch of a message, with further properties. Raises: ConfigurationError.

        `prepared` makes it a half message, `reply` the reply to a request.
        """
        check_message(message, self.config.max_message_size, self.config.delay_levels)
        if self._of_all:
            extra = {**extra, **self._of_all}
        uniq_id = self._next_id()
        body, sys_flag = compression.pack(
            message.body, self.config.compression, self.config.compress_above
        )
        return ProducerBatch(
            message.topic,
            [uniq_id],
            property_string(message, uniq_id, extra),
            body,
            sys_flag | (PREPARED if prepared else 0),
            message.flag,
            reply=reply,
            timed=message.delay is not None or message.deliver_at is not None,
            messages=(message,),
        )

    def _unpacked(self, message: Message) -> ProducerBatch:
        """The part of a batch that a message is; it is checked already and not compressed."""
        uniq_id = self._next_id()
        named = property_string(message, uniq_id, self._of_all)
        return ProducerBatch(
            message.topic, [uniq_id], named, message.body, flag=message.flag, messages=(message,)
        )

    def _route(self, topic: str, left_s: float) -> Steps[TopicRoute]:
        """The route for sends to a topic. Raises: as `route_to_publish`."""
        timeout_s = min(left_s, self.instance.config.request_timeout)
        return (yield from self.instance.route_to_publish(topic, timeout_s))

    def _topic_missing(self, tries: Tries) -> Steps[bool]:
        """Whether the topic is missing, and not all brokers."""
        if not self.config.retry.patient:
            return True
        timeout_s = min(tries.timeout_s(), self.instance.config.request_timeout)
        return (yield from self.instance.somebody_there(timeout_s))

    def _next_id(self) -> str:
        return self.uniq_ids.next(self.instance.clock.wall_ms())

    def _deliver(
        self, batch: ProducerBatch, choose: Choice, timeout_s: float | None, require_ok: bool
    ) -> Steps[list[SendResult]]:
        """Send a batch, and call hooks."""
        make = self._hooked if self.hooks else self._counted
        return make(batch, choose, timeout_s, require_ok)

    def _hooked(
        self, batch: ProducerBatch, choose: Choice, timeout_s: float | None, require_ok: bool
    ) -> Steps[list[SendResult]]:
        with around_send(self.hooks, batch, self.config.group) as (hooked, context):
            results = yield from self._counted(hooked, choose, timeout_s, require_ok)
            context.results = results
            return results

    def _counted(
        self, batch: ProducerBatch, choose: Choice, timeout_s: float | None, require_ok: bool
    ) -> Steps[list[SendResult]]:
        """As `_store`; `close` waits for it. Raises: ClientClosedError after `close`."""
        if self._closing:
            text = f"sending to topic {batch.topic}: this producer is closed"
            raise ClientClosedError(text).about(topic=batch.topic)
        self._under_way += 1
        try:
            return (yield from self._store(batch, choose, timeout_s, require_ok))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._settled.set()

    def _store(
        self, batch: ProducerBatch, choose: Choice, timeout_s: float | None, require_ok: bool
    ) -> Steps[list[SendResult]]:
        """Try until the batch is stored, refused permanently, out of tries, or out of time."""
        instance = self.instance
        clock = instance.clock
        deadline = clock.monotonic() + (self.config.timeout if timeout_s is None else timeout_s)
        tries = Tries(batch.topic, self.config.retry, clock, instance.random, deadline)
        last: MessageQueue | None = None
        missing = False
        while True:
            broker = ""
            try:
                tries.timeout_s()
                route = yield from self._route(batch.topic, tries.left_s())
                queue = choose(route.to_publish, last)
                broker, last = queue.broker_name, queue
                if tries.failed and (pause_s := tries.pause_s(broker)):
                    yield Wait(instance.closing, pause_s)
                if batch.timed:
                    yield from self._check_timers(queue, tries.timeout_s())
                ask = self._ask(batch, queue, tries.timeout_s())
                sent_at = clock.monotonic()
                answer = yield ask
                tried = len(tries.failed) + 1
                results = read_results(batch, ask, answer, queue, tried, require_ok)
                if self._faults is not None:
                    self._faults.succeeded(broker, clock.monotonic() - sent_at)
                return results
            except RouteNotFoundError as error:
                if missing or tries.over:
                    raise
                missing = yield from self._topic_missing(tries)
                if missing:
                    # The topic's broker may have registered since, so try again.
                    continue
                tries.note(broker, error)
            except RETRIED as error:
                if self._faults is not None and worth_retrying(error, self.config.retry):
                    self._faults.failed(broker, refused=isinstance(error, BrokerError))
                tries.note(broker, error)
                if error.code in ROUTE_IS_OLD:
                    instance.suspect(batch.topic)
            if not broker:
                yield Wait(instance.closing, tries.pause_s(broker))

    def _ask(
        self, batch: ProducerBatch, queue: MessageQueue, timeout_s: float, *, oneway: bool = False
    ) -> Ask:
        header = request(batch, queue, self.config.group, self.instance.clock.wall_ms())
        return Ask(
            address=self.instance.master(queue.broker_name),
            header=header,
            body=batch.body,
            timeout_s=timeout_s,
            oneway=oneway,
        )

    def _check_timers(self, queue: MessageQueue, timeout_s: float) -> Steps[None]:
        """Refuse a timer message for a broker without timers, which would deliver it at once.

        Raises: ConfigurationError; TransportError if the broker's version is unknown, because it
        may be too old.
        """
        address = self.instance.master(queue.broker_name)
        version = yield from self.instance.version_at(address, timeout_s)
        if version is not None and version < TIMERS_SINCE:
            raise ConfigurationError(
                f"broker {queue.broker_name} at {address} is {describe(version)} and has no timers "
                "(delay, deliver_at): use a delay_level"
            )

    # ── Queue choice ──

    def _choice(self, message: Message, choice: MessageQueue | QueueSelector | None) -> Choice:
        """The function that chooses the queue of each try. Raises: ConfigurationError."""
        if isinstance(choice, MessageQueue):
            if choice.topic != message.topic:
                raise ConfigurationError(f"queue {choice} is not of topic {message.topic}")
            return lambda queues, last: choice
        if choice is not None:
            return lambda queues, last: selected(choice, queues, message)
        if message.ordering_key:
            return lambda queues, last: queues[hashed(message.ordering_key or "", len(queues))]
        return lambda queues, last: self._next_queue(message.topic, queues, last)

    def _next_queue(
        self, topic: str, queues: Sequence[MessageQueue], last: MessageQueue | None
    ) -> MessageQueue:
        """The next queue, round robin; a retry prefers another broker. Source: client §5.2."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self.instance.random.randrange(1 << 31)
        step = 1
        if last is not None or self._faults is not None:
            name = None if last is None else last.broker_name
            step = next_step(queues, counter, name, self._faults)
        queue = queues[(counter + step) % len(queues)]
        self._counters[topic] = (counter + step) & 0x7FFFFFFF
        return queue


Choice: TypeAlias = "Callable[[Sequence[MessageQueue], MessageQueue | None], MessageQueue]"


def selected(
    select: QueueSelector, queues: Sequence[MessageQueue], message: Message
) -> MessageQueue:
    """The queue that a user's function selects. Raises: TypeError if it returns no queue."""
    queue: object = select(queues, message)
    if isinstance(queue, MessageQueue):
        return queue
    check_result("the queue selector", queue)
    raise TypeError(f"the queue selector returned {queue!r}, not a MessageQueue")


def hashed(key: str, count: int) -> int:
    """The queue of an ordering key, as Java clients choose it. Source: client §5.7."""
    value = java_hash(key)
    return (value % count) if value >= 0 else (-value % count)
