"""The outbox of messages sent in the background, in batches by destination.

    accept → batch queue → one batch → Sender.deliver → result of each message

A batch queue is for one queue, for messages with an ordering key or a given queue, else for any
queue of a topic. Messages that are accepted while its requests are in flight form the next batch,
so batches grow with the load and nothing waits for a timer. That of one queue has one request in
flight at a time, including retries, which keeps the order. Invariant: each accepted message is
settled once, and is in `_open` until then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.producer_batch import ProducerBatch, together
from aerobee.counted import counted
from aerobee.errors import (
    AerobeeError,
    ClientClosedError,
    MessageIllegalError,
    RequestTimeoutError,
    UndeliveredError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import Message
    from aerobee.client.send_result import MessageQueue, SendResult
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.sending import QueueSelector, Sender

REQUESTS = 4
"""The most requests in flight for messages of a topic that may go to any queue."""
BATCH_BYTES = 128 << 10
"""The size of a batch: large enough for a low cost per message, small enough for the broker."""
ITEM_BYTES = 128
"""The approximate overhead of a message beside its body and properties."""
TURN_MESSAGES = 128
"""Messages that are accepted before other tasks of the loop run."""
SETTLE_WITHIN_S = 3.0
"""How long `close` waits for accepted messages."""
FAILED_MAX = 10_000
"""The most failures that are kept for `flush`; older ones are only counted."""
SLICE_S = 60.0


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """An accepted message, and its result."""

    batch: ProducerBatch
    deadline: float
    size_bytes: int
    outcome: SendResult | AerobeeError | None = None
    settled: Signal | None = None
    """The signal for callers that wait."""


@dataclass(slots=True, eq=False)
class BatchQueue:
    """The messages that wait for one destination."""

    queue: MessageQueue | None
    waiting: deque[OutgoingMessage] = field(default_factory=deque)
    under_way: int = 0


Place: TypeAlias = "MessageQueue | tuple[str, bool]"
"""A destination: a queue; or a topic, and whether to wait for the disk, one flag per request."""


@dataclass(slots=True, eq=False)
class Outbox:
    """The messages that a producer sends in the background. `spawn` runs steps there."""

    sender: Sender
    spawn: Callable[[Steps[None]], None]
    _batch_queues: dict[Place, BatchQueue] = field(default_factory=dict)
    _open: dict[OutgoingMessage, None] = field(default_factory=dict)
    """Messages that are accepted and not settled, in the order of acceptance."""
    _bytes: int = 0
    _accepted: int = 0
    _room: Signal = field(default_factory=Signal)
    """Set when a message was settled."""
    _failed: dict[OutgoingMessage, None] = field(default_factory=dict)
    """Failed messages whose error was not raised yet."""
    _failed_bytes: int = 0
    _forgotten: int = 0
    """The number of failures dropped from `_failed`."""
    _closed: bool = False
    _unlisten: Callable[[], None] | None = None

    # ── Accepting ──

    def accept(
        self, message: Message, choice: MessageQueue | QueueSelector | None
    ) -> Steps[OutgoingMessage]:
        """Accept a message as soon as there is room for it; it is sent in the background.

        Raises: ConfigurationError, RouteNotFoundError and related errors if a queue must be known,
        RequestTimeoutError if there is no room in time, ClientClosedError.
        """
        self._check_open(message.topic)
        sender = self.sender
        outgoing = self._outgoing(sender.batch_of(message))
        queue = None
        if choice is not None or message.ordering_key:
            queue = yield from sender.queue_for(message, choice)
        self._accepted += 1
        if self._accepted % TURN_MESSAGES == 0:
            yield Wait(sender.instance.closing, 0.0)
        while self._is_full(outgoing):
            yield from self._wait_for_room(outgoing)
        self._check_open(message.topic)
        # No effect from here on: a message in `_open` has a batch queue, and steps that empty it.
        if self._unlisten is None:
            self._unlisten = sender.instance.closing.listen(self._abandon)
        self._open[outgoing] = None
        self._bytes += outgoing.size_bytes
        self._put(outgoing, queue, message)
        if self._closed:
            # A signal handler has closed the producer within these lines.
            self._abandon()
            self._check_open(message.topic)
        return outgoing

    def _outgoing(self, batch: ProducerBatch) -> OutgoingMessage:
        sender = self.sender
        deadline = sender.instance.clock.monotonic() + sender.config.timeout
        return OutgoingMessage(
            batch, deadline, ITEM_BYTES + len(batch.properties) + len(batch.body)
        )

    def _check_open(self, topic: str) -> None:
        if self._closed or self.sender.instance.closing.is_set:
            raise ClientClosedError(f"sending to topic {topic}: this producer is closed")

    def _is_full(self, outgoing: OutgoingMessage) -> bool:
        config = self.sender.config
        return bool(self._open) and (
            len(self._open) >= config.outbox_messages
            or self._bytes + outgoing.size_bytes > config.outbox_bytes
        )

    def _wait_for_room(self, outgoing: OutgoingMessage) -> Steps[None]:
        self._check_open(outgoing.batch.topic)
        left_s = outgoing.deadline - self.sender.instance.clock.monotonic()
        if left_s <= 0:
            raise RequestTimeoutError(
                f"sending to topic {outgoing.batch.topic}: the outbox stayed full, "
                f"{counted(len(self._open), 'message')} and {self._bytes} bytes wait in it"
            )
        self._room.clear()
        yield Wait(self._room, left_s)

    def _put(self, outgoing: OutgoingMessage, queue: MessageQueue | None, message: Message) -> None:
        place = queue or (message.topic, message.wait_store_ok)
        batch_queue = self._batch_queues.get(place)
        if batch_queue is None:
            batch_queue = self._batch_queues[place] = BatchQueue(queue)
        batch_queue.waiting.append(outgoing)
        if batch_queue.under_way < (REQUESTS if queue is None else 1):
            batch_queue.under_way += 1
            self.spawn(self._empty(place, batch_queue))

    # ── Sending ──

    def _empty(self, place: Place, batch_queue: BatchQueue) -> Steps[None]:
        """Send the messages of a batch queue until it is empty."""
        try:
            while batch_queue.waiting:
                yield from self._send(batch_queue, taken(batch_queue.waiting))
        finally:
            batch_queue.under_way -= 1
            if not batch_queue.under_way and not batch_queue.waiting:
                self._batch_queues.pop(place, None)

    def _send(self, batch_queue: BatchQueue, chunk: list[OutgoingMessage]) -> Steps[None]:
        """Send messages in one request, and settle them."""
        sender = self.sender
        batch = chunk[0].batch if len(chunk) == 1 else joined(chunk)
        if sender.hooks:
            batch = replace(batch, background=True)
        # The deadline is that of the newest message; the others get more time.
        left_s = max(0.0, chunk[-1].deadline - sender.instance.clock.monotonic())
        try:
            results = yield from sender.deliver(batch, left_s, batch_queue.queue)
        except MessageIllegalError as error:
            if len(chunk) == 1:
                self._settle(chunk[0], error)
            else:
                # A message of these, or the batch, may be too large for this broker.
                for outgoing in chunk:
                    yield from self._send(batch_queue, [outgoing])
        except AerobeeError as error:
            for outgoing in chunk:
                self._settle(outgoing, error)
        else:
            for outgoing, result in zip(chunk, results, strict=True):
                self._settle(outgoing, result)
        self._room.set()

    def _settle(self, outgoing: OutgoingMessage, outcome: SendResult | AerobeeError) -> None:
        """Set the result of a message, unless it has one."""
        if outgoing not in self._open:
            return
        del self._open[outgoing]
        self._bytes -= outgoing.size_bytes
        outgoing.outcome = outcome
        if isinstance(outcome, AerobeeError):
            self._keep_failure(outgoing)
        if outgoing.settled is not None:
            outgoing.settled.set()

    def _keep_failure(self, outgoing: OutgoingMessage) -> None:
        self._failed[outgoing] = None
        self._failed_bytes += outgoing.size_bytes
        most = self.sender.config.outbox_bytes
        while len(self._failed) > FAILED_MAX or self._failed_bytes > most:
            if len(self._failed) == 1:
                return
            self._drop_failure(next(iter(self._failed)))
            self._forgotten += 1

    def _drop_failure(self, outgoing: OutgoingMessage) -> None:
        if outgoing in self._failed:
            del self._failed[outgoing]
            self._failed_bytes -= outgoing.size_bytes

    # ── Results ──

    def outcome(
        self, outgoing: OutgoingMessage, timeout_s: float | None = None
    ) -> Steps[SendResult]:
        """Wait for the result of a message. Raises: its error, RequestTimeoutError."""
        clock = self.sender.instance.clock
        give_up_at = None if timeout_s is None else clock.monotonic() + timeout_s
        while outgoing.outcome is None:
            left_s = SLICE_S if give_up_at is None else give_up_at - clock.monotonic()
            if left_s <= 0:
                raise RequestTimeoutError(
                    f"sending to topic {outgoing.batch.topic}: not stored within {timeout_s:g} s, "
                    "and still under way"
                )
            yield from self._wait(outgoing, left_s)
        self._drop_failure(outgoing)
        if isinstance(outgoing.outcome, AerobeeError):
            raise outgoing.outcome
        return outgoing.outcome

    def _wait(self, outgoing: OutgoingMessage, seconds: float) -> Steps[None]:
        if outgoing.settled is None:
            outgoing.settled = Signal()
        # A signal handler may have settled it before the signal was there.
        if outgoing.outcome is None:
            yield Wait(outgoing.settled, min(seconds, SLICE_S))

    def flush(self) -> Steps[None]:
        """Wait until all messages accepted so far are settled.

        Raises: UndeliveredError with the failures that were not raised yet.
        """
        for outgoing in tuple(self._open):
            while outgoing.outcome is None:
                yield from self._wait(outgoing, SLICE_S)
        self.tell_failures()

    def close(self) -> Steps[None]:
        """Wait as `flush`, for some seconds; then give up unsettled messages.

        Raises nothing: `tell_failures` is called at the very end.
        """
        self._closed = True
        clock = self.sender.instance.clock
        deadline = clock.monotonic() + SETTLE_WITHIN_S
        for outgoing in tuple(self._open):
            while outgoing.outcome is None and (left_s := deadline - clock.monotonic()) > 0:
                yield from self._wait(outgoing, left_s)
        if self._unlisten is not None:
            self._unlisten()
        self._abandon()

    def _abandon(self) -> None:
        """Settle all messages as failed, when the client ends."""
        self._closed = True
        for batch_queue in self._batch_queues.values():
            batch_queue.waiting.clear()
        for outgoing in tuple(self._open):
            topic = outgoing.batch.topic
            text = f"sending to topic {topic}: closed before the broker answered; it may be stored"
            self._settle(outgoing, ClientClosedError(text))
        self._room.set()

    def tell_failures(self) -> None:
        """Raise the failures that were not raised yet, once. Raises: UndeliveredError with them."""
        failed, self._failed, self._failed_bytes = self._failed, {}, 0
        more, self._forgotten = self._forgotten, 0
        failures = [
            (outgoing.batch.messages[0], outgoing.outcome)
            for outgoing in failed
            if isinstance(outgoing.outcome, AerobeeError)
        ]
        if failures:
            raise UndeliveredError(failures, more)


def taken(waiting: deque[OutgoingMessage]) -> list[OutgoingMessage]:
    """Remove and return the oldest message, with those that fit into its batch."""
    chunk = [waiting.popleft()]
    size_bytes = chunk[0].size_bytes
    if chunk[0].batch.alone:
        return chunk
    waits = chunk[0].batch.messages[0].wait_store_ok
    while waiting and not waiting[0].batch.alone:
        if waiting[0].batch.messages[0].wait_store_ok is not waits:
            break
        size_bytes += waiting[0].size_bytes
        if size_bytes > BATCH_BYTES:
            break
        chunk.append(waiting.popleft())
    return chunk


def joined(chunk: list[OutgoingMessage]) -> ProducerBatch:
    """The batches of some messages as one batch."""
    return together([outgoing.batch for outgoing in chunk])
