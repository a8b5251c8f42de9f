"""A push consumer's member whose queues the broker assigns, to be pulled or popped.

    QUERY_ASSIGNMENT → queues to pull, as for any member · queues to pop, often all of a broker
    popped → handled → acknowledged, or invisible until its next try

Offsets of popped queues are not committed: the broker tracks acknowledgements. A message that is
not acknowledged in time is delivered again.
Source: client §8.1, §12 (RebalanceImpl, ConsumeMessagePopConcurrentlyService).
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.settings.consumers import PopConfig
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.held_queue import HeldQueue
from aerobee.client.steps.popping import BATCH_MAX, RETRY_DELAYS_S, Popper
from aerobee.client.steps.pushing import IDLE_S, Batch, PushMember
from aerobee.client.steps.rebalance import rebalance_by_broker
from aerobee.client.wire_queues import to_wire
from aerobee.errors import AerobeeError
from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo, PopQueueInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.handling import Verdict
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps

log = logging.getLogger("aerobee.client")

AHEAD_MAX: Final = 96
"""The most unacknowledged messages of one queue: their invisible time is running already."""
HOLD_S: Final = 15.0
"""How long a broker may hold a pop while there are no messages."""
AGAIN_S: Final = 1.0


@dataclass(slots=True)
class PoppedQueue(HeldQueue):
    """A queue, or with id −1 all queues of a broker, from which messages are popped."""

    committed: int | None = 0
    at_work: int = 0
    """The number of messages that handlers have."""
    _until: deque[float] = field(default_factory=deque)
    """For each waiting message, the end of its invisible time."""

    @property
    def commit_point(self) -> int:
        """The offset 0: offsets of popped queues are not committed."""
        return 0

    @property
    def full(self) -> bool:
        """Whether popping more must wait."""
        used = self.cache.used_bytes
        return len(self.waiting) + self.at_work >= AHEAD_MAX or used >= self.limits.max_bytes

    def keep(self, messages: Sequence[ReceivedMessage], until: float) -> None:
        """Add messages that are invisible to others until `until`."""
        for message in messages:
            self.add(message)
            self._until.append(until)

    def drop_late(self, now: float) -> None:
        """Drop messages whose invisible time is over."""
        late = 0
        while self._until and self._until[0] <= now:
            self._until.popleft()
            late += 1
        if late:
            HeldQueue.take(self, late)
            self.unfinished.clear()

    def take(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages for a handler, oldest first."""
        messages = HeldQueue.take(self, most)
        self.unfinished.clear()
        self.at_work += len(messages)
        for _ in messages:
            self._until.popleft()
        return messages

    def finish(self, queue_offset: int) -> None:
        """Note that one message is finished, or given up."""
        self.at_work -= 1
        if not self.full:
            self.room.set()


@dataclass(slots=True)
class AssignedMember(PushMember):
    """The state of one such consumer, and its steps."""

    popper: Popper = field(init=False)
    _acks: list[ReceivedMessage] = field(default_factory=list)
    """Messages that are finished but not acknowledged yet."""
    _ack_now: Signal = field(default_factory=Signal)

    def __post_init__(self) -> None:
        PushMember.__post_init__(self)
        config = self.config
        last = config.start_from is not ConsumeFrom.FIRST
        popped = PopConfig(
            group=config.group,
            invisible=config.invisible,
            start_from=ConsumeFrom.LAST if last else ConsumeFrom.FIRST,
            max_reconsume=config.max_reconsume,
        )
        self.popper = Popper(
            self.instance,
            popped,
            self.closing,
            room_bytes=lambda: self.limits.max_bytes - self.cache.used_bytes,
        )

    def background(self) -> list[Steps[None]]:
        """The steps that watch over handlers, and those that acknowledge."""
        return [self.watch_over(), self.acknowledge_on()]

    # ── Assignment ──

    def rebalance_topic(self, topic: str) -> Steps[None]:
        """Take on and give up queues of one topic. Raises: AerobeeError if that must wait."""
        yield from rebalance_by_broker(self, topic)

    def pops(self, queue: MessageQueue) -> bool:
        """Whether messages of a held queue are popped, not pulled."""
        return isinstance(self.held.get(queue), PoppedQueue)

    def take_on_popped(self, queue: MessageQueue) -> None:
        """Hold a queue to be popped."""
        counts = self.figures.of(queue.topic)
        held = PoppedQueue(queue, 0, self.cache, limits=self.limits, counts=counts)
        self.held[queue] = held
        self.held_now(held)

    def reset(self, offsets: Mapping[MessageQueue, int]) -> Steps[None]:
        """As in any member; the progress of popped queues is known to the broker only."""
        pulled = {
            queue: offset
            for queue, offset in offsets.items()
            if not isinstance(self.held.get(queue), PoppedQueue)
        }
        yield from PushMember.reset(self, pulled)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """As in any member; popped queues are in a table of their own."""
        info = PushMember.running_info(self, with_stacks=with_stacks)
        popped = {
            to_wire(queue).to_bytes().decode(): PopQueueInfo(
                wait_ack_count=held.at_work + len(held.waiting),
                last_pop_timestamp=self.wall_ms(held.pulled_at),
            )
            for queue, held in self.held.items()
            if isinstance(held, PoppedQueue)
        }
        pulled = {
            key: process_queue for key, process_queue in info.mq_table.items() if key not in popped
        }
        return replace(info, mq_table=pulled, mq_pop_table=popped)

    # ── Popping ──

    def fetch(self, held: HeldQueue) -> Steps[None]:
        """One pull or pop, and the pause after it."""
        if not isinstance(held, PoppedQueue):
            yield from PushMember.fetch(self, held)
            return
        wanted = self.subscription_of(held.queue.topic).filter
        clock, asked_at = self.instance.clock, self.instance.clock.monotonic()
        try:
            messages = yield from self.popper.pop(
                held.queue, BATCH_MAX, HOLD_S, wanted, until=held.interrupt
            )
        except AerobeeError as error:
            self.instance.log_once(f"pop {held.queue}", "%s: %s", held.queue, error)
            yield Wait(held.interrupt, AGAIN_S)
            return
        self.instance.works_again(f"pop {held.queue}")
        if messages and not held.dropped:
            held.pulled_at = clock.monotonic()
            held.counts.pulls += 1
            held.counts.pull_s += held.pulled_at - asked_at
            held.counts.pulled += len(messages)
            held.keep(messages, held.pulled_at + self.config.invisible)
            self.cache.arrived.set()

    def may_take(self, held: HeldQueue, now: float) -> bool:
        """Whether a worker may handle messages of this queue now."""
        if isinstance(held, PoppedQueue):
            held.drop_late(now)
        return PushMember.may_take(self, held, now)

    # ── Results ──

    def finished(self, batch: Batch) -> None:
        """Note that all messages of a batch are finished."""
        PushMember.finished(self, batch)
        if isinstance(batch.held, PoppedQueue) and not batch.given_up:
            self._acknowledge_soon(batch.messages)

    def settle(self, batch: Batch, verdict: Verdict) -> Steps[None]:
        """Acknowledge finished messages of a batch; failed ones stay invisible until a retry."""
        if not isinstance(batch.held, PoppedQueue):
            yield from PushMember.settle(self, batch, verdict)
            return
        failed = self._end_of(batch, verdict)
        if batch.given_up:
            return
        lost = {id(message) for message in failed}
        self._acknowledge_soon([message for message in batch.messages if id(message) not in lost])
        for message in batch.messages:
            batch.held.finish(message.queue_offset)
        for message in failed:
            try:
                if verdict.given_up:
                    yield from self.popper.reject(message)
                else:
                    yield from self.popper.send_back(message, delay_of(verdict.level))
            except AerobeeError as error:
                log.warning("%s comes again when its time is over: %s", message.message_id, error)

    def _send_back(
        self, held: HeldQueue, failed: Sequence[ReceivedMessage], level: int
    ) -> Steps[None]:
        if not isinstance(held, PoppedQueue):
            yield from PushMember._send_back(self, held, failed, level)
            return
        # The broker delivers them again when their invisible time is over.
        for message in failed:
            held.finish(message.queue_offset)

    def _acknowledge_soon(self, messages: Sequence[ReceivedMessage]) -> None:
        self._acks += messages
        self._ack_now.set()

    def acknowledge_on(self) -> Steps[None]:
        """Acknowledge finished messages, in batches, until closed."""
        while not self.closing.is_set:
            yield Wait(self._ack_now, IDLE_S)
            self._ack_now.clear()
            yield from self._acknowledge()

    def _acknowledge(self) -> Steps[None]:
        acks, self._acks = self._acks, []
        try:
            yield from self.popper.acknowledge(acks)
        except AerobeeError as error:
            self.instance.log_once(f"ack {self.group}", "not acknowledged, come again: %s", error)
        else:
            self.instance.works_again(f"ack {self.group}")

    def close(self, within_s: float) -> Steps[None]:
        """Acknowledge the rest, then close as any member."""
        yield from self._acknowledge()
        yield from PushMember.close(self, within_s)
        self._ack_now.set()


def delay_of(level: int) -> float | None:
    """The seconds of a delay level; None for 0: longer each time."""
    return None if level == 0 else float(RETRY_DELAYS_S[min(level, len(RETRY_DELAYS_S)) - 1])
