"""POP: the broker delivers single messages, and again if they are not acknowledged in time.

Queues have no owner, so there is nothing to allocate. The receipt of a message is its property
POP_CK. Source: client §12, semantics §11 (POP_MESSAGE, ACK_MESSAGE).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec.structs import replace

from aerobee.client.compression import UNPACKED_MAX
from aerobee.client.filters import Filter
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.namespaces import wrapped
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.settings.consumers import CACHED_BYTES_MAX, PopConfig, check_invisible
from aerobee.client.steps.answers import error_of, expect, header_of
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.client.steps.hooking import handed_out
from aerobee.client.steps.messages import NoRoom, as_stored, received
from aerobee.client.steps.sending_back import hand_back, tries
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    MessageUnreadableError,
    TransportError,
    UnsupportedRequestError,
)
from aerobee.hooks import ConsumeOutcome
from aerobee.remoting.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pop import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
    PopMessage,
    PopMessageResponse,
)
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.deliveries import Deliveries
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.tracing import Tracing
    from aerobee.remoting.wire.command import Command

BATCH_MAX = 32
"""The most messages of one pop."""
ANY_QUEUE = -1
TURN_S = 1.0
"""How long one of several brokers may hold a request before the next one is queried."""
ANSWER_WITHIN_S = 10.0
"""The timeout of a pop, beyond the time that the broker may hold it."""
PAUSE_S = 0.5
RETRY_DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The default delay before each try after the first."""
NOTHING_YET = (
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)
DEAD_LETTER = -1
GIVEN_BACK_MS = 1
"""The invisible time of messages that are given back."""
RECEIPT = "POP_CK"
NO_RETRY, RETRY_V1, RETRY_V2 = "0", "1", "2"


class Receipt(NamedTuple):
    """The receipt of a message: the fields of POP_CK, as text."""

    start_offset: str
    pop_time: str
    invisible: str
    revive_qid: str
    retry: str
    broker: str
    queue_id: str
    offset: str

    @classmethod
    def of(cls, message: ReceivedMessage) -> Receipt:
        """The receipt of a message. Raises: ConfigurationError for one that was not popped."""
        parts = message.properties.get(RECEIPT, "").split(" ")
        if len(parts) == len(cls._fields) - 1:
            parts.append(str(message.queue_offset))
        if len(parts) != len(cls._fields):
            raise ConfigurationError(f"{message.message_id} was not popped, or was sent back since")
        return cls(*parts)

    def topic(self, message: ReceivedMessage, group: str, namespace: str | None) -> str:
        """The topic that holds the message: its own, or the group's retry topic of that."""
        # The namespace is added to this name later, as to every name.
        if self.retry == RETRY_V1:
            return f"{RETRY_PREFIX}{group}_{wrapped(message.topic, namespace)}"
        if self.retry == RETRY_V2:
            return f"{RETRY_PREFIX}{group}+{wrapped(message.topic, namespace)}"
        return message.topic


@dataclass(slots=True)
class Popper:
    """The state of one POP consumer, and its steps."""

    instance: Instance
    config: PopConfig
    closing: Signal = field(default_factory=Signal)
    tracing: Tracing | None = None
    deliveries: Deliveries | None = None
    """The deliveries with an open outcome, for the trace."""
    hold_max_s: float = 20.0
    """The longest time that a broker may hold a request, as long as a pull: it may be gone."""
    room_bytes: Callable[[], int] = lambda: CACHED_BYTES_MAX
    """How many bytes the bodies of one response may take; one message alone may take more."""
    _turn: int = 0
    _single_acks: set[str] = field(default_factory=set)
    """Brokers without BATCH_ACK_MESSAGE (5.0)."""
    _ahead_ms: dict[str, float] = field(default_factory=dict)
    """How far the clock of each broker is ahead of ours, by its last answer to a pop."""

    def begin(self) -> list[Steps[None]]:
        """The steps to run until closed."""
        return [] if self.tracing is None else [self.tracing.run()]

    def close(self, within_s: float) -> Steps[None]:
        """Stop receiving."""
        self.closing.set()
        if self.tracing is not None:
            yield from self.tracing.close()

    def let_go(self) -> None:
        """Leave nothing at the client: it was told of nothing."""

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that brokers assigned: none, as it pops from all of them."""
        return frozenset()

    # ── Receiving ──

    def receive(
        self,
        topic: str,
        most: int,
        wait_s: float,
        expression: Expression,
        given_up: Signal | None = None,
    ) -> Steps[list[ReceivedMessage]]:
        """Return up to `most` messages as soon as there is one; none after the timeout or close.

        With `given_up` set it asks no further, but awaits the answer of the request in flight.

        Raises: ConfigurationError, RouteNotFoundError, BrokerError, TransportError.
        """
        check_name("topic", topic, TOPIC_MAX)
        if not 1 <= most <= BATCH_MAX:
            raise ConfigurationError(f"max_messages is {most}: 1 to {BATCH_MAX}")
        wanted = Filter.of(expression)
        deadline = self.instance.clock.monotonic() + wait_s
        looks = 0
        while not self.closing.is_set:
            queues = yield from self.queues(topic, wanted)
            left_s = max(0.0, deadline - self.instance.clock.monotonic())
            if looks >= len(queues) and left_s == 0.0:
                break
            # Each of several brokers is queried once before any of them may hold a request.
            hold_s = left_s if len(queues) == 1 else min(left_s, TURN_S) * (looks >= len(queues))
            looks += 1
            if not queues:
                yield Wait(self.closing, hold_s)
                continue
            self._turn += 1
            queue = queues[self._turn % len(queues)]
            messages = yield from self.pop(
                queue, most, min(hold_s, self.hold_max_s), wanted, until=self.closing
            )
            if given_up is not None and given_up.is_set:
                yield from self.give_back(messages)
                break
            if messages:
                self._hand_out(messages)
                return messages
        return []

    def _hand_out(self, messages: list[ReceivedMessage]) -> None:
        handed_out(self.instance.config.hooks, self.config.group, messages)
        if self.deliveries is not None:
            receipts = [message.properties[RECEIPT] for message in messages]
            self.deliveries.handed_out(
                messages, receipts, self._hidden_until(self.config.invisible)
            )

    def _hidden_until(self, seconds: float) -> float:
        return self.instance.clock.monotonic() + seconds

    def queues(self, topic: str, wanted: Filter) -> Steps[list[MessageQueue]]:
        """The queues to pop a topic from, in turns: all queues of each of its brokers.

        Raises: RouteNotFoundError, BrokerNotFoundError.
        """
        route = yield from self.instance.route(topic, self.instance.config.request_timeout)
        names = sorted({queue.broker_name for queue in route.to_subscribe})
        if not names:
            raise BrokerNotFoundError(f"no queue of topic {topic} can be read").about(topic=topic)
        return [MessageQueue(topic, name, ANY_QUEUE) for name in names]

    def pop(
        self, queue: MessageQueue, most: int, hold_s: float, wanted: Filter, *, until: Signal
    ) -> Steps[list[ReceivedMessage]]:
        """Pop from a queue, or all of a broker; returns no messages once `until` is set.

        Raises: BrokerError, unless it is worth another try.
        """
        name, topic = queue.broker_name, queue.topic
        header = PopMessage(
            consumer_group=self.config.group,
            topic=topic,
            queue_id=queue.queue_id,
            max_msg_nums=most,
            invisible_time=int(self.config.invisible * 1000),
            poll_time=int(hold_s * 1000),
            # Without a time of birth: a broker compares it with its own clock, and refuses the pops
            # of a client whose clock is half a second behind.
            init_mode=0 if self.config.start_from is ConsumeFrom.FIRST else 1,
            exp_type=wanted.kind,
            exp=wanted.expression,
            order=False,
        )
        try:
            yield from self.instance.locate(queue, self.instance.config.request_timeout)
            ask = Ask(
                address=self.instance.master(name),
                header=header,
                timeout_s=hold_s + ANSWER_WITHIN_S,
                until=until,
            )
            answer: Command | None = yield ask
            if answer is None or answer.code in NOTHING_YET:
                return []
            if answer.code == ResponseCode.POLLING_FULL:
                yield Wait(until, PAUSE_S)
                return []
            expect(ask, answer, name)
        except AerobeeError as error:
            if until.is_set:
                # A close has ended the connection, too.
                return []
            if not error.retryable:
                raise
            self.instance.suspect(topic)
            self.instance.log_once(f"pop {name}", "pop of %s at %s failed: %s", topic, name, error)
            yield Wait(until, PAUSE_S)
            return []
        self.instance.works_again(f"pop {name}")
        return (yield from self._taken(ask, answer, queue, wanted))

    def _taken(
        self, ask: Ask, answer: Command, queue: MessageQueue, wanted: Filter
    ) -> Steps[list[ReceivedMessage]]:
        """The messages of a response with receipts; tags are compared again, not only hashes."""
        name, topic = queue.broker_name, queue.topic
        header = header_of(ask, answer, PopMessageResponse)
        self._ahead_ms[name] = header.pop_time - self.instance.clock.monotonic() * 1000
        starts = start_offsets(header.start_offset_info or "")
        messages: list[ReceivedMessage] = []
        unwanted: list[ReceivedMessage] = []
        unreadable: list[ReceivedMessage] = []
        used = 0

        def room() -> int:
            return self.room_bytes() - used if used or self.room_bytes() <= 0 else UNPACKED_MAX

        def with_receipt(message: ReceivedMessage) -> ReceivedMessage:
            receipt = message.properties.get(RECEIPT)
            if receipt is None:
                queue_id, offset = message.queue.queue_id, message.queue_offset
                retry = NO_RETRY
                if message.topic != topic:
                    # A message that is delivered again, and has no room for its receipt.
                    retry = RETRY_V2 if "+" in message.topic else RETRY_V1
                start = starts.get((retry, str(queue_id)), str(offset))
                receipt = (
                    f"{start} {header.pop_time} {header.invisible_time} {header.revive_qid} "
                    f"{retry} {name} {queue_id} {offset}"
                )
            properties = {**message.properties, RECEIPT: receipt}
            return replace(message, topic=topic, properties=properties)

        namespace = self.instance.config.namespace
        try:
            for stored in received(answer.body, name, namespace, room):
                message = with_receipt(stored)
                used += len(message.body)
                if not wanted.wants(message.tag):
                    unwanted.append(message)
                else:
                    (messages if message.unreadable is None else unreadable).append(message)
        except NoRoom as none:
            left = as_stored(answer.body, none.at, name, namespace)
            yield from self.give_back([with_receipt(stored) for stored in left])
        for message in unreadable:
            yield from self._pass_over(message)
        if unwanted:
            yield from self.acknowledge(unwanted)
        return messages

    def _pass_over(self, message: ReceivedMessage) -> Steps[None]:
        """Leave a message that is unreadable here: it is delivered again when it is visible, and
        another member may be able to read it. Without a try left it is a dead letter.
        """
        about = f"read {message.queue.broker_name}"
        self.instance.log_once(about, "%s", MessageUnreadableError(message))
        if message.reconsume_times >= tries(self.config.max_reconsume):
            try:
                yield from self.reject(message)
            except AerobeeError as error:
                self.instance.log_once(f"reject {message.topic}", "%s", error)

    def give_back(self, messages: Iterable[ReceivedMessage]) -> Steps[None]:
        """Make messages visible again at once: nobody here handles them now."""
        for message in messages:
            try:
                yield from self._hide(message, Receipt.of(message), GIVEN_BACK_MS)
            except AerobeeError as error:
                # The message is delivered again after its invisible time all the same.
                self.instance.log_once(f"give back {message.topic}", "%s", error)

    # ── Acknowledgement ──

    def acknowledge(self, messages: Iterable[ReceivedMessage]) -> Steps[None]:
        """Acknowledge messages; a failure at one broker does not stop those at others.

        Raises: ConfigurationError, and the first BrokerError or TransportError at the end.
        """
        by_broker: dict[str, list[tuple[ReceivedMessage, Receipt]]] = defaultdict(list)
        for message in messages:
            receipt = Receipt.of(message)
            by_broker[receipt.broker].append((message, receipt))
        failed: list[AerobeeError] = []
        for name, some in by_broker.items():
            try:
                yield from self._acknowledge_at(name, some)
            except AerobeeError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _acknowledge_at(
        self, name: str, some: Sequence[tuple[ReceivedMessage, Receipt]]
    ) -> Steps[None]:
        if name not in self._single_acks:
            try:
                yield from self._acknowledge_together(name, some)
            except UnsupportedRequestError:
                self._single_acks.add(name)
        if name in self._single_acks:
            for message, receipt in some:
                yield from self._acknowledge_one(name, message, receipt)
        for message, _ in some:
            self._ended(message, ConsumeOutcome.SUCCESS)

    def _ended(self, message: ReceivedMessage, outcome: ConsumeOutcome) -> None:
        """Trace the outcome of a message."""
        if self.deliveries is not None:
            self.deliveries.ended(message.topic, message.properties[RECEIPT], outcome)

    def _acknowledge_together(
        self, name: str, some: Sequence[tuple[ReceivedMessage, Receipt]]
    ) -> Steps[None]:
        # Two topics may be popped in the same millisecond, with the same queue and offset.
        offsets: dict[tuple[str, Receipt], list[int]] = defaultdict(list)
        for message, receipt in some:
            offsets[message.topic, receipt._replace(offset="")].append(int(receipt.offset))
        acks = [
            BatchAck(
                bits=bit_set(popped, int(pop.start_offset)),
                group=self.config.group,
                invisible_time=int(pop.invisible),
                pop_time=int(pop.pop_time),
                queue_id=int(pop.queue_id),
                retry=pop.retry,
                revive_qid=int(pop.revive_qid),
                start_offset=int(pop.start_offset),
                topic=topic,
            )
            for (topic, pop), popped in offsets.items()
        ]
        body = BatchAckRequest(acks=acks, broker_name=name).to_bytes()
        yield from self._ask(name, some[0][0].topic, BatchAckMessage(), body)

    def _acknowledge_one(
        self, name: str, message: ReceivedMessage, receipt: Receipt
    ) -> Steps[None]:
        header = AckMessage(
            consumer_group=self.config.group,
            topic=receipt.topic(message, self.config.group, self.instance.config.namespace),
            queue_id=int(receipt.queue_id),
            extra_info=message.properties[RECEIPT],
            offset=int(receipt.offset),
        )
        yield from self._ask(name, message.topic, header)

    def extend(self, message: ReceivedMessage, seconds: float) -> Steps[None]:
        """Keep a message invisible for `seconds` from now; it gets a new receipt.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        check_invisible(seconds)
        receipt = Receipt.of(message)
        ask, answer = yield from self._hide(message, receipt, int(seconds * 1000))
        header = header_of(ask, answer, ChangeInvisibleTimeResponse)
        renewed = receipt._replace(
            start_offset=receipt.offset,
            pop_time=str(header.pop_time),
            invisible=str(header.invisible_time),
            revive_qid=str(header.revive_qid),
        )
        before, after = message.properties[RECEIPT], " ".join(renewed)
        cast("dict[str, str]", message.properties)[RECEIPT] = after
        if self.deliveries is not None:
            until = self._hidden_until(seconds)
            self.deliveries.extended(message.topic, before, after, until)

    def _hide(
        self, message: ReceivedMessage, receipt: Receipt, invisible_ms: int
    ) -> Steps[tuple[Ask, Command]]:
        """Set the invisible time of a message, from now. Raises: BrokerError, TransportError."""
        header = ChangeInvisibleTime(
            consumer_group=self.config.group,
            topic=receipt.topic(message, self.config.group, self.instance.config.namespace),
            queue_id=int(receipt.queue_id),
            extra_info=message.properties[RECEIPT],
            offset=int(receipt.offset),
            invisible_time=invisible_ms,
        )
        return (yield from self._ask(receipt.broker, message.topic, header))

    def send_back(self, message: ReceivedMessage, delay_s: float | None) -> Steps[None]:
        """Have a message delivered again after `delay_s`, sooner where its time is over; without a
        try left it is a dead letter.

        Raises: ConfigurationError, BrokerError, TransportError.
        """
        if message.reconsume_times >= tries(self.config.max_reconsume):
            yield from self.reject(message)
        else:
            last = len(RETRY_DELAYS_S) - 1
            usual_s = RETRY_DELAYS_S[min(message.reconsume_times, last)]
            if not self._is_over(Receipt.of(message)):
                yield from self._delay(message, usual_s if delay_s is None else delay_s)
            self._ended(message, ConsumeOutcome.FAILED)
            forget_receipt(message)

    def _is_over(self, receipt: Receipt) -> bool:
        """Whether a message is delivered again already: where a Java broker gives more time for it,
        it comes twice.
        """
        ahead_ms = self._ahead_ms.get(receipt.broker)
        if ahead_ms is None:
            return False
        now_ms = self.instance.clock.monotonic() * 1000 + ahead_ms
        return now_ms > int(receipt.pop_time) + int(receipt.invisible)

    def _delay(self, message: ReceivedMessage, seconds: float) -> Steps[None]:
        try:
            yield from self.extend(message, seconds)
        except BrokerError as error:
            if error.code != ResponseCode.NO_MESSAGE:
                raise
            self.instance.log_once(f"nack {message.topic}", "%s", error)

    def reject(self, message: ReceivedMessage) -> Steps[None]:
        """Make a message a dead letter. Raises: ConfigurationError, BrokerError, TransportError."""
        Receipt.of(message)
        yield from hand_back(self.instance, self.config.group, message, DEAD_LETTER, 0)
        self._ended(message, ConsumeOutcome.FAILED)
        yield from self.acknowledge([message])
        forget_receipt(message)

    def _ask(
        self,
        name: str,
        topic: str,
        header: AckMessage | BatchAckMessage | ChangeInvisibleTime,
        body: bytes = b"",
    ) -> Steps[tuple[Ask, Command]]:
        """Send a request to the broker that messages of a topic were popped from.

        Raises: BrokerError, TransportError, BrokerNotFoundError.
        """
        timeout_s = self.instance.config.request_timeout
        yield from self.instance.locate(MessageQueue(topic, name, ANY_QUEUE), timeout_s)
        address = self.instance.master(name)
        ask = Ask(address=address, header=header, body=body, timeout_s=timeout_s)
        try:
            answer: Command = yield ask
        except TransportError:
            # The broker may have moved: another try finds it.
            self.instance.suspect(topic)
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(ask, answer, name)
        return ask, answer


def forget_receipt(message: ReceivedMessage) -> None:
    """Remove the receipt of a message, which cannot be acknowledged any more."""
    cast("dict[str, str]", message.properties).pop(RECEIPT, None)


def start_offsets(text: str) -> Mapping[tuple[str, str], str]:
    """Number of a retry topic and queue id → first offset of the pop there, from
    `<retry> <queue> <offset>;…`.
    """
    starts = {}
    for entry in text.split(";"):
        parts = entry.split(" ")
        if len(parts) == 3:
            starts[parts[0], parts[1]] = parts[2]
    return starts
