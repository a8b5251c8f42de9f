"""An orderly push consumer's member: one handler at a time for each queue, in its order.

A queue is locked at its broker before it is read, and unlocked only when no handler works on it. A
failed message is delivered again after a pause, before all later ones. Source: client §9.5
(ConsumeMessageOrderlyService).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aerobee.client.settings.consumers import SUSPEND_MIN_S
from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.steps.pushing import AGAIN_S, Batch, PushMember
from aerobee.client.steps.sending_back import hand_back
from aerobee.client.wire_queues import from_wire, to_wire
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.bodies import queue as bodies
from aerobee.remoting.wire.headers.client import LockBatchMq, UnlockBatchMq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.client.handling import Verdict
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.instance import Instance
    from aerobee.remoting.wire.header import Header

log = logging.getLogger("aerobee.client")

RENEW_S = 20.0
RENEW_AGAIN_S = 3.0
"""The pause after a failed renewal: a switch must not cost the locks."""
LOCK_LIVES_S = 30.0
"""The age at which a lock counts as lost without renewal; brokers keep it for twice as long."""
LOCK_WITHIN_S = 1.0
NEVER = float("inf")
DEAD_LETTER = -1


@dataclass(slots=True)
class OrderlyMember(PushMember):
    """The state of one orderly push consumer, and its steps."""

    _refused: set[MessageQueue] = field(default_factory=set)
    """Queues that another member has locked, or on which a handler of before still works."""

    # ── Queues ──

    def rebalance(self) -> Steps[bool]:
        """As in any push consumer; incomplete while others have locks of allocated queues."""
        self._refused.clear()
        balanced = yield from PushMember.rebalance(self)
        return balanced and not self._refused

    def take_on(self, queue: MessageQueue) -> Steps[None]:
        """Hold a queue once it is locked. Raises: TransportError, BrokerError."""
        held = self.held.get(queue)
        if held is not None:
            if held.again_at == NEVER:
                held.again_at = 0.0
                self.wake_one()
            return
        if any(batch.held.queue == queue for batch in self.running):
            # Its handler began under a lock that was lost since.
            self._refused.add(queue)
            return
        asked_at = self.instance.clock.monotonic()
        if not self.config.broadcasting and not (
            yield from lock_queues(self.instance, self.group, [queue])
        ):
            self._refused.add(queue)
            return
        yield from PushMember.take_on(self, queue)
        if queue in self.held:
            self.held[queue].locked_at = asked_at

    def give_up(self, queue: MessageQueue) -> Steps[None]:
        """Leave a queue to others; if a handler runs, its `settle` does that later."""
        held = self.held.get(queue)
        if held is None:
            return
        held.again_at = NEVER
        if not held.busy:
            yield from PushMember.give_up(self, queue)
            yield from self._unlock([queue])

    def _unlock(self, queues: Iterable[MessageQueue]) -> Steps[None]:
        if not self.config.broadcasting:
            for some in by_broker(queues):
                yield from unlock_queues(self.instance, self.group, some)

    def watch_over(self) -> Steps[None]:
        """Renew the locks until closed. Handlers may take as long as they like."""
        pause_s = RENEW_S
        while not (self.closing.is_set or self.config.broadcasting):
            yield Wait(self.closing, pause_s)
            pause_s = RENEW_S
            for some in by_broker(self.held):
                if not (yield from self._renew(some)):
                    pause_s = RENEW_AGAIN_S

    def _renew(self, queues: list[MessageQueue]) -> Steps[bool]:
        """Renew the locks of one broker; returns whether it has answered."""
        asked_at = self.instance.clock.monotonic()
        about = f"lock {queues[0].broker_name}"
        try:
            granted = yield from lock_queues(self.instance, self.group, queues)
        except AerobeeError as error:
            self.instance.log_once(about, "locks of %s not renewed: %s", self.group, error)
            # The broker may be a slave now, which still serves pulls.
            self.instance.suspect(queues[0].topic)
            return False
        self.instance.works_again(about)
        for queue in queues:
            held = self.held.get(queue)
            if held is None:
                continue
            if queue in granted and asked_at - held.locked_at < LOCK_LIVES_S:
                held.locked_at = asked_at
            else:
                # Another member may have consumed the queue: begin at the committed offset.
                log.warning("the lock of %s was lost", queue)
                del self.held[queue]
                held.drop()
                self.rebalance_now.set()
        return True

    # ── Delivery ──

    def may_take(self, held: HeldQueue, now: float) -> bool:
        """Whether a worker may handle messages of this queue now."""
        if held.busy or held.dropped or not held.waiting or held.again_at > now:
            return False
        return self.config.broadcasting or now - held.locked_at < LOCK_LIVES_S

    def _batch(self, held: HeldQueue, now: float) -> Batch:
        held.busy = True
        return PushMember._batch(self, held, now)

    def _until_due(self) -> float:
        due = (held.again_at for held in self.held.values() if held.waiting and not held.busy)
        earliest = min(due, default=NEVER)
        left_s = max(0.0, earliest - self.instance.clock.monotonic())
        return min(left_s, PushMember._until_due(self))

    # ── Results ──

    def finished(self, batch: Batch) -> None:
        """Note that a batch is finished; the next messages of its queue may be delivered."""
        PushMember.finished(self, batch)
        self._leave(batch.held)

    def settle(self, batch: Batch, verdict: Verdict) -> Steps[None]:
        """Deliver a failed batch again after a pause, except messages without a try left."""
        self._end_of(batch, verdict)
        held, pause_s = batch.held, self.config.suspend
        if verdict.suspend_s is not None:
            pause_s = max(verdict.suspend_s, SUSPEND_MIN_S)
        again: list[ReceivedMessage] = []
        if held.lost:
            # Brokers since 5.0 make it a dead letter at once, while the group has locks.
            yield from self._send_back(held, batch.messages, verdict.level)
        for message in () if held.dropped or batch.direct else batch.messages:
            if verdict.given_up or self._exhausted(message):
                try:
                    yield from self._bury(message)
                except AerobeeError as error:
                    log.warning("%s stays here, to be tried again: %s", message.message_id, error)
                    pause_s = AGAIN_S
                else:
                    held.finish(message.queue_offset)
                    continue
            again.append(replace(message, reconsume_times=message.reconsume_times + 1))
        if not held.dropped and again:
            held.put_back(again)
            if held.again_at != NEVER:
                held.again_at = self.instance.clock.monotonic() + pause_s
        self._leave(held)

    def _exhausted(self, message: ReceivedMessage) -> bool:
        return 0 <= self.config.max_reconsume <= message.reconsume_times

    def _bury(self, message: ReceivedMessage) -> Steps[None]:
        if self.config.broadcasting:
            log.warning("%s of %s failed and is dropped", message.message_id, message.queue)
        else:
            yield from hand_back(self.instance, self.group, message, DEAD_LETTER, 0)

    def _leave(self, held: HeldQueue) -> None:
        held.busy = False
        if held.again_at == NEVER:
            # Another member waits for this queue.
            self.rebalance_now.set()
        elif held.waiting:
            self.wake_one()

    # ── Close ──

    def close(self, within_s: float) -> Steps[None]:
        """Commit, unlock, unregister and drop all queues."""
        self.closing.set()
        yield from self._commit_if_possible()
        yield from self._unlock(tuple(self.held))
        yield from PushMember.close(self, within_s)


def by_broker(queues: Iterable[MessageQueue]) -> Iterator[list[MessageQueue]]:
    """The queues, grouped by broker."""
    for _, some in groupby(sorted(queues, key=broker_of), key=broker_of):
        yield list(some)


def broker_of(queue: MessageQueue) -> str:
    """The broker name of a queue."""
    return queue.broker_name


# ── Locks of queues at brokers ──


def lock_queues(
    instance: Instance, group: str, queues: Iterable[MessageQueue]
) -> Steps[frozenset[MessageQueue]]:
    """Lock queues of one broker, or renew; returns those that are locked. Raises: AerobeeError."""
    wanted = list(queues)
    yield from instance.locate(wanted[0], LOCK_WITHIN_S)
    ask = _request(instance, group, LockBatchMq(), wanted)
    answer = expect(ask, (yield ask), wanted[0].broker_name)
    granted = body_of(ask, answer, bodies.LockBatchResponse).lock_ok_mq_set
    return frozenset(from_wire(queue) for queue in granted)


def unlock_queues(instance: Instance, group: str, queues: Iterable[MessageQueue]) -> Steps[None]:
    """Unlock queues of one broker; if that fails, the locks expire."""
    wanted = list(queues)
    try:
        ask = _request(instance, group, UnlockBatchMq(), wanted)
        expect(ask, (yield ask), wanted[0].broker_name)
    except AerobeeError as error:
        name = wanted[0].broker_name
        instance.log_once(f"unlock {name}", "broker %s was not told of locks: %s", name, error)


def _request(instance: Instance, group: str, header: Header, queues: Iterable[MessageQueue]) -> Ask:
    wanted = list(queues)
    body = bodies.LockBatchRequest(
        client_id=instance.config.client_id,
        consumer_group=group,
        mq_set=[to_wire(queue) for queue in wanted],
    )
    address = instance.master(wanted[0].broker_name)
    return Ask(address=address, header=header, body=body.to_bytes(), timeout_s=LOCK_WITHIN_S)
