"""A pull consumer's member of a group: delivery, sending back, pause and resume.

Source: client §11, §9.4 (DefaultLitePullConsumerImpl, CONSUMER_SEND_MSG_BACK).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aerobee.client.filters import ALL
from aerobee.client.steps.asked import AskedMember
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import HeldQueue, Subscription
from aerobee.client.steps.hooking import handed_out
from aerobee.client.steps.sending_back import retry_topic, send_back
from aerobee.errors import ClientStateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.consumers import PullConfig
    from aerobee.client.steps.effects import Steps

PAUSED_S = 1.0


@dataclass(slots=True)
class PullMember(AskedMember):
    """The state of one pull consumer, and its steps."""

    config: PullConfig
    resumed: Signal = field(default_factory=Signal)

    def subscribe(self, topic: str, expression: Expression) -> Steps[None]:
        """As in any member; with `retry` the group's retry topic is subscribed, too."""
        yield from AskedMember.subscribe(self, topic, expression)
        retries = retry_topic(self.group)
        if self.config.retry and retries not in self.subscriptions:
            # The heartbeat with the other topic has created the retry topic.
            version = self.instance.clock.wall_ms()
            self.subscriptions[retries] = Subscription(retries, ALL, version)
            self.instance.subscriptions_changed()
            if not (yield from self.rebalance()):
                self.rebalance_now.set()

    def rebalance(self) -> Steps[bool]:
        """As in any member; calls back with assigned and revoked queues."""
        before = self.assignment
        balanced = yield from AskedMember.rebalance(self)
        self.config.events.tell(before, self.assignment)
        return balanced

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are held now, except those of the retry topic."""
        retries = retry_topic(self.group)
        return frozenset(queue for queue in self.held if queue.topic != retries)

    # ── Pause ──

    def pull_on(self, held: HeldQueue) -> Steps[None]:
        """Pull one held queue until it is dropped, but not while it is paused."""
        subscription = self.subscription_of(held.queue.topic)
        while not held.dropped:
            if held.paused:
                yield Wait(self.resumed, PAUSED_S)
            else:
                yield from self.puller.pull_or_wait(held, subscription)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pause pulling and delivery of these queues, or all. Raises: QueueNotAssignedError.

        What is pulled and not delivered is pulled again later: it would take room from others.
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

    def _hand_out(self, taken: Sequence[ReceivedMessage]) -> None:
        """As in any member; hooks are called for the messages."""
        handed_out(self.hooks, self.group, taken)
        AskedMember._hand_out(self, taken)

    def take(self, most: int) -> list[ReceivedMessage]:
        """The messages that are already pulled; retried ones have their original topic."""
        taken = AskedMember.take(self, most)
        if not self.config.retry:
            return taken
        retries = retry_topic(self.group)
        return [
            replace(one, topic=one.original_topic) if one.topic == retries else one for one in taken
        ]

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
