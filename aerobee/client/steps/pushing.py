"""A push consumer's member of a group: delivers batches to workers, and settles their results.

A worker of a front repeats: `next_batch`, call the handler, then `settle`. Each idle worker waits
for its own signal, and one at a time is woken, so that a handler that never waits causes no
wake-ups. Source: client §9 (ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService).
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aerobee.client.filters import ALL, Filter
from aerobee.client.handling import BatchFailed, Reject, RetryLater
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.namespaces import check_plain
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.steps.checking import check_served, described
from aerobee.client.steps.direct import DIRECT_MAX, DirectConsumption
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import Cache, HeldQueue, Subscription
from aerobee.client.steps.hooking import after_consume, before_consume
from aerobee.client.steps.member import Member
from aerobee.client.steps.messages import readable
from aerobee.client.steps.sending_back import hand_back, retry_topic, send_back
from aerobee.errors import AerobeeError, MessageUnreadableError
from aerobee.hooks import ConsumeContext, ConsumeOutcome
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import ConsumerData
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.admin import ConsumeMessageDirectly

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.client.filters import Expression
    from aerobee.client.handling import Verdict
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.settings.consumers import Limits, PushConfig
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Outcome
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")

AGAIN_S = 5.0
"""The delay until a message is handled again here, if no broker accepts it back."""
IDLE_S = 3600.0
OVERDUE_LEVEL = 3
"""The delay level of messages whose handler timed out."""
WATCH_AT_MOST_S = 5.0
PAUSED_S = 1.0
ROOM_CHECK_S = 0.25
"""How often free room is checked: other queues may have released theirs."""


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one queue that one worker handles."""

    held: HeldQueue
    messages: Sequence[ReceivedMessage]
    began: float
    given_up: bool = False
    """Whether its handler timed out, so that its result is ignored."""
    give_up: Callable[[], object] | None = None
    """The front's function that stops the handler, if it can."""
    direct: DirectConsumption | None = None
    """The administrator's request of this message, which is of no queue then."""
    error: Exception | None = None
    """The exception of its handler."""
    consume: ConsumeContext | None = None
    """The context for hooks."""


@dataclass(slots=True)
class PushMember(Member):
    """The state of one push consumer, and its steps."""

    config: PushConfig
    stopping: bool = False
    """Whether no more batches are delivered."""
    paused: bool = False
    resumed: Signal = field(default_factory=Signal)
    running: dict[Batch, None] = field(default_factory=dict)
    """The batches that workers handle and whose results count, the oldest first."""
    _again: deque[tuple[float, HeldQueue, Sequence[ReceivedMessage]]] = field(default_factory=deque)
    """Messages that no broker accepted back, and when they are delivered again here."""
    _idle: deque[Signal] = field(default_factory=deque)
    _waking: bool = False
    """Whether an idle worker was woken and did not ask for a batch yet."""
    _direct: deque[DirectConsumption] = field(default_factory=deque)
    """Messages of administrators' requests."""

    def prepare(self) -> None:
        """Wake workers for messages that arrive, and share the retry topic with the group."""
        self.cache.arrived.listen(self.wake_one)
        self.rebalance_now.set()
        if not self.config.broadcasting:
            self._want(retry_topic(self.group), ALL)

    def background(self) -> list[Steps[None]]:
        """The steps that watch over handlers."""
        return [self.watch_over()]

    # ── Subscription ──

    def add_subscription(self, topic: str, expression: Expression) -> None:
        """Share the queues of a topic with the group, from the next rebalance on.

        Raises: ConfigurationError.
        """
        check_name("topic", topic, TOPIC_MAX)
        check_plain("topic", topic, self.instance.config.namespace)
        self._want(topic, Filter.of(expression))
        self.instance.subscriptions_changed()
        self.rebalance_now.set()

    def check_filters(self) -> Steps[None]:
        """Check that brokers support SQL conditions. Raises: SubscriptionError."""
        for subscription in tuple(self.subscriptions.values()):
            yield from check_served(self.instance, self.group, subscription)

    def _want(self, topic: str, wanted: Filter) -> None:
        version = self.instance.clock.wall_ms()
        # The retry topic is last: the heartbeat with the others creates it.
        retry = self.subscriptions.pop(retry_topic(self.group), None)
        self.subscriptions[topic] = Subscription(topic, wanted, version)
        if retry is not None:
            self.subscriptions.setdefault(retry.topic, retry)

    def heartbeat(self) -> ConsumerData:
        """The group's data for heartbeats."""
        last = self.config.start_from is ConsumeFrom.LAST
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model=self.config.model.value,
            consume_from_where=f"CONSUME_FROM_{'LAST' if last else 'FIRST'}_OFFSET",
            subscription_data_set=[described(s) for s in self.subscriptions.values()],
            unit_mode=False,
        )

    def serve(self, request: Command) -> Outcome:
        """As in any member, and for messages of administrators. Raises: HeaderError."""
        if request.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return Member.serve(self, request)
        header = request.header(ConsumeMessageDirectly)
        if self.stopping or len(self._direct) >= DIRECT_MAX:
            return Answer(ResponseCode.SYSTEM_BUSY, remark="no handler is free: try again later")
        namespace = self.instance.config.namespace
        try:
            message = readable(request.body, header.broker_name or "", namespace)
        except AerobeeError as error:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=f"no message to handle: {error}")
        direct = DirectConsumption(replace(message, topic=message.original_topic))
        self._direct.append(direct)
        self.wake_one()
        return direct.answer(self.instance.clock, order=self.config.orderly)

    # ── Queues ──

    @property
    def limits(self) -> Limits:
        """The limits of pulling ahead of the handlers."""
        return self.config.limits

    def pull_on(self, held: HeldQueue) -> Steps[None]:
        """Pull one held queue until it is dropped; unreadable messages are sent back."""
        while not held.dropped:
            if self.stopping:
                yield Wait(self.closing, PAUSED_S)
            elif self.paused:
                yield Wait(self.resumed, PAUSED_S)
            elif held.broken is not None:
                yield from self._pass_over(held)
            elif held.full:
                held.room.clear()
                yield Wait(held.room, ROOM_CHECK_S)
            else:
                yield from self.fetch(held)

    def fetch(self, held: HeldQueue) -> Steps[None]:
        """Pull once, and pause after it."""
        subscription = self.subscription_of(held.queue.topic)
        pause_s = yield from self.puller.pull(held, subscription)
        if pause_s:
            yield Wait(held.interrupt, pause_s)

    def pause(self) -> None:
        """Pause pulling; messages that are already pulled are still delivered."""
        self.paused = True
        self.resumed.clear()

    def resume(self) -> None:
        """Resume pulling."""
        self.paused = False
        self.resumed.set()

    def _pass_over(self, held: HeldQueue) -> Steps[None]:
        """Skip a message that cannot be decompressed here: another member may handle it."""
        error = held.broken
        if not isinstance(error, MessageUnreadableError):
            self.instance.log_once(f"pull {held.queue}", "pulling %s failed: %s", held.queue, error)
            yield Wait(held.interrupt, AGAIN_S)
            held.broken = None
            return
        log.error("%s is sent back unread: %s", error.message.message_id, error)
        if not self.config.broadcasting:
            try:
                yield from hand_back(
                    self.instance, self.group, error.message, 0, self.config.max_reconsume
                )
            except AerobeeError as refused:
                self.instance.log_once(f"pass {held.queue}", "%s: %s", held.queue, refused)
                yield Wait(held.interrupt, AGAIN_S)
                return
        held.finish(error.message.queue_offset)

    # ── Delivery ──

    def next_batch(self, wake: Signal) -> Steps[Batch | None]:
        """The next batch of a worker, as soon as there is one; None when the worker should end."""
        while True:
            batch = self.take_batch()
            if batch is not None or self.stopping:
                return batch
            wake.clear()
            self._idle.append(wake)
            try:
                yield Wait(wake, self._until_due())
            finally:
                if wake in self._idle:
                    self._idle.remove(wake)
                else:
                    self._waking = False

    def take_batch(self) -> Batch | None:
        """A batch that is already pulled, queue by queue; None without one, or when stopping."""
        if self.stopping:
            return None
        now = self.instance.clock.monotonic()
        if self._direct:
            direct = self._direct.popleft()
            nowhere = HeldQueue(direct.message.queue, 0, Cache())
            return Batch(nowhere, [direct.message], now, direct=direct)
        again = self._take_again(now) if self._again else None
        if again is not None:
            return again
        ready = self._ready
        if not ready:
            ready.extend(held for held in self.held.values() if held.waiting)
        while ready:
            held = ready.popleft()
            if self.may_take(held, now):
                batch = self._batch(held, now)
                if self._idle and (ready or held.waiting):
                    self.wake_one()
                return batch
        return None

    def may_take(self, held: HeldQueue, now: float) -> bool:
        """Whether a worker may handle messages of this queue now."""
        return bool(held.waiting) and not held.dropped

    def _batch(self, held: HeldQueue, now: float) -> Batch:
        if held.queue.topic == retry_topic(self.group):
            # One message at a time: messages of a retry topic may be of different topics.
            messages = [replace(message, topic=message.original_topic) for message in held.take(1)]
        else:
            messages = held.take(self.config.batch_size)
        held.consumed_at = now
        batch = Batch(held, messages, now)
        self.running[batch] = None
        return batch

    def _take_again(self, now: float) -> Batch | None:
        while self._again and self._again[0][0] <= now:
            _, held, messages = self._again.popleft()
            if held.lost or not held.dropped:
                batch = Batch(held, messages, now)
                self.running[batch] = None
                return batch
        return None

    def _until_due(self) -> float:
        if not self._again:
            return IDLE_S
        return max(0.0, self._again[0][0] - self.instance.clock.monotonic())

    def wake_one(self) -> None:
        """Wake one idle worker, unless another one was just woken."""
        if self._idle and not self._waking:
            self._waking = True
            self._idle.popleft().set()

    # ── Hooks ──

    def before(self, batch: Batch) -> None:
        """Call hooks before a batch is handled."""
        batch.consume = ConsumeContext(self.group, batch.messages)
        before_consume(self.hooks, batch.consume)

    def after(self, batch: Batch, verdict: Verdict | None) -> None:
        """Call hooks with the result of a batch."""
        context = batch.consume
        if context is not None:
            context.failed = () if verdict is None else verdict.failed(batch.messages)
            context.error = batch.error
            context.outcome = outcome_of(batch, context.failed)
            after_consume(self.hooks, context)

    # ── Results ──

    def finished(self, batch: Batch) -> None:
        """Note that all messages of a batch are finished."""
        self._end_of(batch, None)
        if not batch.given_up:
            for message in batch.messages:
                batch.held.finish(message.queue_offset)

    def settle(self, batch: Batch, verdict: Verdict) -> Steps[None]:
        """Finish the successful messages of a batch, and send back the failed ones."""
        failed = self._end_of(batch, verdict)
        if batch.given_up or batch.direct:
            return
        lost = {message.queue_offset for message in failed}
        for message in batch.messages:
            if message.queue_offset not in lost:
                batch.held.finish(message.queue_offset)
        yield from self._send_back(batch.held, failed, verdict.level)

    def _end_of(self, batch: Batch, verdict: Verdict | None) -> list[ReceivedMessage]:
        """Count a batch, and report its result; returns its failed messages."""
        self.running.pop(batch, None)
        failed = [] if verdict is None else verdict.failed(batch.messages)
        counts = batch.held.counts
        counts.calls += 1
        counts.call_s += self.instance.clock.monotonic() - batch.began
        counts.handled += len(batch.messages) - len(failed)
        counts.failed += len(failed)
        if batch.direct is not None:
            batch.direct.settle(verdict)
        return failed

    def _send_back(
        self, held: HeldQueue, failed: Sequence[ReceivedMessage], level: int
    ) -> Steps[None]:
        """Send messages back to the broker; those it refuses are handled here again later."""
        for message in failed:
            if held.dropped and not held.lost:
                # Another member holds the queue now, and its messages are delivered again there.
                return
            if self.config.broadcasting:
                log.warning("%s of %s failed and is dropped", message.message_id, held.queue)
            else:
                try:
                    yield from send_back(
                        self.instance, self.group, message, level, self.config.max_reconsume
                    )
                except AerobeeError as error:
                    self._keep(held, message, error)
                    continue
            held.finish(message.queue_offset)

    def _keep(self, held: HeldQueue, message: ReceivedMessage, error: AerobeeError) -> None:
        log.warning("%s stays here, to be tried again: %s", message.message_id, error)
        due = self.instance.clock.monotonic() + AGAIN_S
        once_more = replace(message, reconsume_times=message.reconsume_times + 1)
        self._again.append((due, held, [once_more]))
        self.wake_one()

    def watch_over(self) -> Steps[None]:
        """Send back messages whose handler timed out, until closed."""
        limit_s = self.config.handler_timeout
        while not self.closing.is_set:
            yield Wait(self.closing, min(limit_s / 4, WATCH_AT_MOST_S))
            late = self.instance.clock.monotonic() - limit_s
            for batch in tuple(self.running):
                # Some may have ended while others were sent back.
                if batch in self.running and batch.began <= late:
                    yield from self._give_up_batch(batch)

    def _give_up_batch(self, batch: Batch) -> Steps[None]:
        batch.given_up = True
        # A handler that is cancelled has no result that would take it out.
        self.running.pop(batch, None)
        if batch.give_up is not None:
            batch.give_up()
        log.warning(
            "a handler took more than %g s: %d messages of %s come again",
            self.config.handler_timeout,
            len(batch.messages),
            batch.held.queue,
        )
        yield from self._send_back(batch.held, batch.messages, OVERDUE_LEVEL)

    # ── Close ──

    def stop(self) -> None:
        """Stop pulls and deliveries; workers end after their current batch."""
        self.stopping = True
        for held in self.held.values():
            held.interrupt.set()
        while self._idle:
            self._idle.popleft().set()


def outcome_of(batch: Batch, failed: Sequence[ReceivedMessage]) -> ConsumeOutcome:
    """The outcome of a batch. Source: client §15.2 (ConsumeReturnType)."""
    if batch.given_up:
        return ConsumeOutcome.TIME_OUT
    if not failed:
        return ConsumeOutcome.SUCCESS
    if batch.error is None or isinstance(batch.error, (RetryLater, Reject, BatchFailed)):
        return ConsumeOutcome.FAILED
    return ConsumeOutcome.EXCEPTION
