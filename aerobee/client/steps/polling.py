"""A pull consumer's member of a group: delivery, sending back, pause and resume.

With `subscribe` the members of the group share the queues; with `assign` the caller chooses them.
Source: client §11, §9.4 (DefaultLitePullConsumerImpl, CONSUMER_SEND_MSG_BACK).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aerobee.client.filters import ALL, Filter
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.namespaces import check_plain
from aerobee.client.steps.checking import check_served
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import HeldQueue, Subscription
from aerobee.client.steps.hooking import handed_out
from aerobee.client.steps.member import Member
from aerobee.client.steps.pulling import raise_if_broken
from aerobee.client.steps.sending_back import retry_topic, send_back
from aerobee.errors import (
    ClientClosedError,
    ClientStateError,
    ConfigurationError,
    QueueNotAssignedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.client import ConsumeFrom
    from aerobee.client.settings.consumers import PullConfig
    from aerobee.client.steps.effects import Steps

PAUSED_S = 1.0


@dataclass(slots=True)
class PullMember(Member):
    """The state of one pull consumer, and its steps."""

    config: PullConfig
    resumed: Signal = field(default_factory=Signal)
    _taken: list[ReceivedMessage] = field(default_factory=list)
    """Messages of a call under way, which their queues count as delivered already."""

    # ── Queues ──

    def subscribe(self, topic: str, expression: Expression) -> Steps[None]:
        """Share the queues of a topic with the group, and with `retry` those of its retry topic.

        The topic may not exist yet. Another expression replaces the one before. Raises:
        ConfigurationError, ClientStateError after `assign`, SubscriptionError for an SQL condition
        that the brokers do not support.
        """
        check_name("topic", topic, TOPIC_MAX)
        check_plain("topic", topic, self.instance.config.namespace)
        if self.assigned_filter is not None:
            raise ClientStateError("this consumer has assigned queues; subscribe excludes assign")
        wanted = Filter.of(expression)
        version = self.instance.clock.wall_ms()
        subscription = Subscription(topic, wanted, version)
        yield from check_served(self.instance, self.group, subscription)
        yield from self._share(subscription)
        retries = retry_topic(self.group)
        if self.config.retry and retries not in self.subscriptions:
            # The heartbeat with the other topic has created the retry topic.
            yield from self._share(Subscription(retries, ALL, self.instance.clock.wall_ms()))

    def _share(self, subscription: Subscription) -> Steps[None]:
        before = self.subscriptions.get(subscription.topic)
        self.subscriptions[subscription.topic] = subscription
        if before is not None and before.filter != subscription.filter:
            self._pull_again()
        self.instance.subscriptions_changed()
        if not (yield from self.rebalance()):
            # `stay_balanced` tries again, sooner than after a complete rebalance.
            self.rebalance_now.set()

    def _pull_again(self) -> None:
        """Pull again, with a new filter, what is not delivered yet."""
        for held in self.held.values():
            held.give_back()

    def assign(self, queues: Iterable[MessageQueue], expression: Expression) -> Steps[None]:
        """Hold exactly these queues, without sharing them in the group. Another call replaces them.

        Raises: ClientStateError after `subscribe`, RouteNotFoundError, BrokerError,
        TransportError.
        """
        if self.subscriptions:
            raise ClientStateError("this consumer has subscriptions; assign excludes subscribe")
        filter_ = Filter.of(expression)
        wanted = dict.fromkeys(queues)
        for topic in sorted({queue.topic for queue in wanted}):
            check_plain("topic", topic, self.instance.config.namespace)
            route = yield from self._route(topic)
            yield from self.instance.introduce(route)
            yield from check_served(self.instance, self.group, Subscription(topic, filter_, 0))
        before, self.assigned_filter = self.assigned_filter, filter_
        if before not in (None, filter_):
            self._pull_again()
        for queue in [queue for queue in self.held if queue not in wanted]:
            yield from self.give_up(queue)
        for queue in wanted:
            yield from self.take_on(queue)

    def queues(self, topic: str) -> Steps[list[MessageQueue]]:
        """All readable queues of a topic. Raises: RouteNotFoundError."""
        route = yield from self._route(topic)
        return list(route.to_subscribe)

    def _route(self, topic: str) -> Steps[TopicRoute]:
        return (yield from self.instance.route(topic, self.instance.config.request_timeout))

    def holding(self, queue: MessageQueue) -> HeldQueue:
        """The state of a queue that this consumer holds. Raises: QueueNotAssignedError."""
        held = self.held.get(queue)
        if held is None:
            raise QueueNotAssignedError(f"this consumer does not hold {queue}").about(
                topic=queue.topic, broker=queue.broker_name
            )
        return held

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are held now, except those of the retry topic."""
        retries = retry_topic(self.group)
        return frozenset(queue for queue in self.held if queue.topic != retries)

    # ── Pause ──

    def pull_on(self, held: HeldQueue) -> Steps[None]:
        """Pull one held queue until it is dropped, but not while it is paused."""
        while not held.dropped:
            if held.paused:
                yield Wait(self.resumed, PAUSED_S)
            else:
                subscription = self.subscription_of(held.queue.topic)
                yield from self.puller.pull_or_wait(held, subscription)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pause pulling and delivery of these queues, or all. Raises: QueueNotAssignedError.

        A message that is pulled and not delivered is pulled again later: it would take room from
        others.
        """
        for held in [self.holding(queue) for queue in queues] or self.held.values():
            held.paused = True
            held.give_back()
        self._ready.clear()
        self.resumed.clear()

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume these queues, or all. Raises: QueueNotAssignedError."""
        for held in [self.holding(queue) for queue in queues] or self.held.values():
            held.paused = False
        self.resumed.set()
        self.cache.arrived.set()

    # ── Delivery ──

    def poll(self, most: int, timeout_s: float) -> Steps[list[ReceivedMessage]]:
        """Return up to `most` messages as soon as there is one; none after the timeout or close.

        Raises: MessageUnreadableError for a message that cannot be decompressed here,
        ClientClosedError if the client ends before this consumer is closed.
        """
        deadline = self.instance.clock.monotonic() + timeout_s
        self._put_back_taken()
        while True:
            messages = self.take(most)
            left_s = deadline - self.instance.clock.monotonic()
            if messages or self.closing.is_set:
                self._hand_out(messages)
                return messages
            if self.instance.closing.is_set:
                raise ClientClosedError("the client of this consumer is closed")
            for held in self.held.values():
                raise_if_broken(held)
            if left_s <= 0:
                return messages
            self.cache.arrived.clear()
            yield Wait(self.cache.arrived, left_s)

    def take(self, most: int) -> list[ReceivedMessage]:
        """The messages that are already pulled; retried ones have their original topic."""
        if not self._ready:
            self._ready.extend(
                held for held in self.held.values() if held.waiting and not held.paused
            )
        messages = self._taken
        while self._ready and len(messages) < most:
            self._ready[0].take_into(messages, most - len(messages))
            self._ready.popleft()
        if not self.config.retry:
            return messages
        retries = retry_topic(self.group)
        return [
            replace(message, topic=message.original_topic) if message.topic == retries else message
            for message in messages
        ]

    def _hand_out(self, messages: Sequence[ReceivedMessage]) -> None:
        """Note that the caller gets these messages; hooks are called for them."""
        handed_out(self.hooks, self.group, messages)
        self._taken = []

    def _put_back_taken(self) -> None:
        """Put back what an interrupted call took and returned to nobody."""
        if not self._taken:
            return
        while self._taken:
            message = self._taken[-1]
            held = self.held.get(message.queue)
            if held is not None and message.queue_offset in held.unfinished:
                held.put_back([message])
            self._taken.pop()
        # The interruption may have come between a message and the count of its bytes.
        for held in self.held.values():
            held.cached_bytes = sum(len(message.body) for message in held.waiting)
        self.cache.used_bytes = sum(held.cached_bytes for held in self.held.values())

    def done(self, messages: Iterable[ReceivedMessage]) -> None:
        """Finish these messages: they need no second delivery."""
        for message in messages:
            held = self.held.get(message.queue)
            if held is not None:
                held.finish(message.queue_offset)

    # ── Sending back ──

    def nack(self, messages: Iterable[ReceivedMessage], level: int) -> Steps[None]:
        """Have messages delivered again, to any member; here they are finished.

        Raises: ClientStateError without `retry`, TransportError, BrokerError.
        """
        if not self.config.retry:
            raise ClientStateError("nobody would get it again: make the consumer with retry=True")
        for message in messages:
            # The messages of a queue that was given up are delivered again to its new holder.
            if message.queue in self.held:
                yield from send_back(
                    self.instance, self.group, message, level, self.config.max_reconsume
                )
                self.done([message])

    # ── Offsets ──

    def seek(self, queue: MessageQueue, to: int | ConsumeFrom | datetime) -> Steps[None]:
        """Move a queue. Raises: QueueNotAssignedError, ConfigurationError outside of the queue."""
        self.holding(queue)
        if isinstance(to, int) and not isinstance(to, bool):
            lowest = yield from self.offsets.lowest(queue)
            end = yield from self.offsets.end(queue)
            if not lowest <= to <= end:
                raise ConfigurationError(f"{queue} has offsets {lowest} to {end}, not {to}")
        else:
            to = yield from self.offsets.resolve(queue, to)
        self.holding(queue).move_to(to)

    def offsets_for_time(self, at: datetime) -> Steps[dict[MessageQueue, int]]:
        """Per held queue, the offset of the first message stored at `at` or later."""
        offsets = {}
        for queue in tuple(self.held):
            offsets[queue] = yield from self.offsets.at_time(queue, at)
        return offsets

    def end_offsets(self) -> Steps[dict[MessageQueue, int]]:
        """Per held queue, the offset of the next message to be written."""
        offsets = {}
        for queue in tuple(self.held):
            offsets[queue] = yield from self.offsets.end(queue)
        return offsets
