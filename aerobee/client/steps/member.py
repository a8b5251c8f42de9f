"""A member of a consumer group: its subscriptions, held queues, commits, and answers to brokers.

    RESET_CONSUMER_CLIENT_OFFSET → the queues in it continue at the given offsets
    GET_CONSUMER_STATUS_FROM_CLIENT, GET_CONSUMER_RUNNING_INFO → its queues and rates

Pull and push consumers are such members (`polling`, `pushing`); `rebalance` says which queues they
hold. Source: client §4, §8.1, §9.8, §13.4 (RebalanceImpl, ClientRemotingProcessor).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING

from aerobee.client.filters import ALL, Filter
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.settings.consumers import PULL_LIMITS
from aerobee.client.stacks import stacks
from aerobee.client.steps.checking import described
from aerobee.client.steps.effects import Signal, Wait
from aerobee.client.steps.figures import Figures
from aerobee.client.steps.held_queue import Cache, HeldQueue, Subscription
from aerobee.client.steps.offsets import Offsets
from aerobee.client.steps.pulling import Puller
from aerobee.client.steps.rebalance import rebalance_by_members, rebalance_topics, stay_balanced
from aerobee.client.steps.sending_back import retry_topic
from aerobee.client.wire_queues import from_wire, to_wire
from aerobee.errors import AerobeeError, BrokerError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import ConsumerData
from aerobee.remoting.wire.bodies.queue import (
    ConsumerRunningInfo,
    ConsumerStatus,
    ProcessQueueInfo,
    ResetOffsets,
    queue_of,
)
from aerobee.remoting.wire.codes import VERSION, RequestCode, ResponseCode
from aerobee.remoting.wire.headers.admin import (
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from aerobee.remoting.wire.version import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.consumers import ConsumerConfig, Limits
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance, Outcome
    from aerobee.client.steps.tracing import Tracing
    from aerobee.hooks import Hook
    from aerobee.remoting.wire.command import Command

BUSY_CHECK_S = 0.05
"""How often the running orderly handler of a queue is looked at that begins anew behind it."""


@dataclass(slots=True)
class Member:
    """The state of one consumer, and its steps."""

    instance: Instance
    config: ConsumerConfig
    held_now: Callable[[HeldQueue], None]
    """Called for each newly held queue: the front must run `pull_on` for it."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    held: dict[MessageQueue, HeldQueue] = field(default_factory=dict)
    cache: Cache = field(default_factory=Cache)
    rebalance_now: Signal = field(default_factory=Signal)
    closing: Signal = field(default_factory=Signal)
    assigned_filter: Filter | None = None
    """The filter of assigned queues; None without `assign`."""
    offsets: Offsets = field(init=False)
    puller: Puller = field(init=False)
    figures: Figures = field(init=False)
    hooks: tuple[Hook, ...] = field(init=False)
    """Hooks that are called for each delivery."""
    tracing: Tracing | None = None
    _forget_client: Callable[[], None] | None = None
    """Ends the call of `cache.arrived` at the end of the client."""
    _ready: deque[HeldQueue] = field(default_factory=deque)
    """Queues with messages, in the order of their turns."""

    def __post_init__(self) -> None:
        self.hooks = self.instance.config.hooks
        self.offsets = Offsets(self.instance, self.config.group)
        self.puller = Puller(
            self.instance,
            self.config.group,
            self.config.pull_batch,
            self.offsets.at_time,
            self.begin_anew,
        )
        self.figures = Figures(self.instance.clock.monotonic())

    def begin(self) -> list[Steps[None]]:
        """Register with the client; returns the steps to run until closed.

        Raises: ConfigurationError for a second consumer of the group.
        """
        self.prepare()
        self.instance.add_consumer(self)
        # A wait for messages ends with the client.
        self._forget_client = self.instance.closing.listen(self.cache.arrived.set)
        steps = [stay_balanced(self)]
        if self.config.auto_commit:
            steps.append(self.commit_on())
        if self.tracing is not None:
            steps.append(self.tracing.run())
        return [*steps, *self.background()]

    def prepare(self) -> None:
        """Get ready for the first messages."""

    def background(self) -> list[Steps[None]]:
        """The steps of this kind of member, to run until closed."""
        return []

    # ── Interface for the instance ──

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.config.group

    @property
    def limits(self) -> Limits:
        """The limits of pulling ahead."""
        return PULL_LIMITS

    def topics(self) -> set[str]:
        """The topics whose routes are needed."""
        return set(self.subscriptions) | {queue.topic for queue in self.held}

    def heartbeat(self) -> ConsumerData:
        """The group's data for heartbeats."""
        return ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_ACTIVELY",
            message_model=self.config.model.value,
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[described(s) for s in self.subscriptions.values()],
            unit_mode=False,
        )

    def serve(self, request: Command) -> Outcome:
        """Handle a request of a broker for this group. Raises: HeaderError, BodyError."""
        match request.code:
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                table = ResetOffsets.from_bytes(request.body).offset_table
                return self.reset({from_wire(queue_of(key)): at for key, at in table.items()})
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                topic = request.header(GetConsumerStatusFromClient).topic
                return Answer(body=self.status(topic).to_bytes())
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                wanted = request.header(GetConsumerRunningInfo)
                info = self.running_info(with_stacks=bool(wanted.jstack_enable))
                return Answer(body=info.to_bytes())
        return ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    # ── Queues ──

    @property
    def assignment(self) -> frozenset[MessageQueue]:
        """The queues that are held now."""
        return frozenset(self.held)

    def rebalance(self) -> Steps[bool]:
        """Take on and give up queues, and call back; False if that is not complete yet."""
        before = self.assignment
        balanced = yield from rebalance_topics(self)
        self.config.events.tell(before, self.assignment)
        return balanced

    def rebalance_topic(self, topic: str) -> Steps[None]:
        """Take on and give up queues of one topic. Raises: AerobeeError if that must wait."""
        yield from rebalance_by_members(self, topic)

    def take_on(self, queue: MessageQueue) -> Steps[None]:
        """Hold a queue, from its start offset on. Raises: TransportError, BrokerError."""
        if queue in self.held:
            return
        start_from = self.config.start_from
        if queue.topic == retry_topic(self.group) and isinstance(start_from, ConsumeFrom):
            # Messages to retry were subscribed once, wherever the group begins.
            start_from = ConsumeFrom.FIRST
        start = yield from self.offsets.start(queue, start_from)
        if queue not in self.held and not self.closing.is_set:
            self.hold(queue, start)

    def hold(self, queue: MessageQueue, offset: int) -> HeldQueue:
        """Start consuming a queue at this offset."""
        counts = self.figures.of(queue.topic)
        held = HeldQueue(queue, offset, self.cache, limits=self.limits, counts=counts)
        self.held[queue] = held
        self.held_now(held)
        return held

    def give_up(self, queue: MessageQueue) -> Steps[None]:
        """Commit the progress of a queue and leave it to other members."""
        held = self.held.pop(queue, None)
        if held is None:
            return
        commit_point = held.commit_point
        held.drop()
        if self.config.auto_commit and commit_point != held.committed:
            try:
                yield from self.offsets.commit(queue, commit_point)
            except AerobeeError as error:
                self.instance.log_once(f"commit {queue}", "%s not committed: %s", queue, error)
            else:
                self.instance.works_again(f"commit {queue}")

    def subscription_of(self, topic: str) -> Subscription:
        """The subscription of a topic."""
        assigned = Subscription(topic, self.assigned_filter or ALL, 0)
        return self.subscriptions.get(topic, assigned)

    # ── Offsets ──

    def commit(self, offsets: Mapping[MessageQueue, int] | None) -> Steps[None]:
        """Commit the given offsets, or the progress of each held queue; as many as possible.

        Raises: the first TransportError or BrokerError, at the end.
        """
        failed = yield from self._commit_each(
            dict(offsets if offsets is not None else self._uncommitted())
        )
        for error in failed.values():
            raise error

    def _commit_each(
        self, wanted: Mapping[MessageQueue, int]
    ) -> Steps[dict[MessageQueue, AerobeeError]]:
        """Commit queue by queue, and save; returns the failures.

        A broker may refuse one topic only, a deleted one for example. A broker that is away gets
        no further requests. Silent ones come last: a close has not the time for many of them.
        """
        failed: dict[MessageQueue, AerobeeError] = {}
        away: set[str] = set()
        in_order = sorted(wanted, key=lambda queue: self.instance.is_silent(queue.broker_name))
        for queue in in_order:
            offset = wanted[queue]
            if queue.broker_name not in away:
                try:
                    yield from self._commit_one(queue, offset)
                except AerobeeError as error:
                    failed[queue] = error
                    # The broker may be a slave now, which still serves pulls.
                    self.instance.suspect(queue.topic)
                    if not isinstance(error, BrokerError):
                        away.add(queue.broker_name)
        self.offsets.save()
        return failed

    def _commit_one(self, queue: MessageQueue, offset: int) -> Steps[None]:
        yield from self.offsets.commit(queue, offset)
        held = self.held.get(queue)
        if held is not None:
            held.committed = offset

    def _uncommitted(self) -> dict[MessageQueue, int]:
        return {
            queue: held.commit_point
            for queue, held in self.held.items()
            if held.commit_point != held.committed
        }

    def commit_on(self) -> Steps[None]:
        """Commit the progress periodically, until closed."""
        while not self.closing.is_set:
            yield Wait(self.closing, self.config.auto_commit_interval)
            if not self.closing.is_set:
                yield from self._commit_if_possible()

    def _commit_if_possible(self) -> Steps[None]:
        """Commit what can be committed; the first failure is logged."""
        about = f"commit {self.group}"
        failed = yield from self._commit_each(self._uncommitted())
        if not failed:
            self.instance.works_again(about)
        for error in failed.values():
            self.instance.log_once(about, "offsets of %s not committed: %s", self.group, error)

    # ── Resets ──

    def reset(self, offsets: Mapping[MessageQueue, int]) -> Steps[None]:
        """Continue at these offsets in each held queue."""
        for queue, offset in offsets.items():
            held = self.held.get(queue)
            if held is not None:
                yield from self.begin_anew(held, offset)
            try:
                yield from self._commit_one(queue, offset)
            except AerobeeError as error:
                self.instance.log_once(f"commit {queue}", "%s not committed: %s", queue, error)

    def begin_anew(self, held: HeldQueue, offset: int) -> Steps[None]:
        """Continue a held queue at an offset; results of messages delivered before are ignored.

        After a reset, or in a topic made anew, an offset may be that of another delivery.
        """
        held.drop()
        while held.busy and not self.closing.is_set:
            yield Wait(self.closing, BUSY_CHECK_S)
        # Another member may hold the queue now, and use the committed offset.
        if self.held.get(held.queue) is held:
            anew = self.hold(held.queue, offset)
            anew.locked_at, anew.paused = held.locked_at, held.paused
            anew.stored_at = held.stored_at

    # ── Running info ──

    def status(self, topic: str) -> ConsumerStatus:
        """The progress in the queues of a topic."""
        return ConsumerStatus(
            message_queue_table={
                to_wire(queue).to_bytes().decode(): held.commit_point
                for queue, held in self.held.items()
                if queue.topic == topic
            }
        )

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """The running info: options, subscriptions, queues and rates."""
        now = self.instance.clock.monotonic()
        return ConsumerRunningInfo(
            properties=self.properties(),
            subscription_set=[
                described(subscription) for subscription in self.subscriptions.values()
            ],
            mq_table={
                to_wire(queue).to_bytes().decode(): self._account(held, now)
                for queue, held in self.held.items()
            },
            status_table={
                topic: self.figures.status(topic, now) for topic in sorted(self.subscriptions)
            },
            jstack=stacks() if with_stacks else None,
        )

    def properties(self) -> dict[str, str]:
        """The consumer's options, and the properties that tools expect."""
        client = self.instance.config
        options = {field.name: getattr(self.config, field.name) for field in fields(self.config)}
        plain = {
            name: str(value.value if isinstance(value, Enum) else value)
            for name, value in options.items()
            if isinstance(value, (str, int, float, Enum))
        }
        return plain | {
            "PROP_NAMESERVER_ADDR": ";".join(client.name_servers),
            "PROP_CLIENT_VERSION": describe(VERSION),
            "PROP_CONSUME_TYPE": self.heartbeat().consume_type,
            "PROP_CONSUMEORDERLY": str(options.get("orderly", False)).lower(),
            "PROP_THREADPOOL_CORE_SIZE": str(options.get("concurrency", 0)),
            "PROP_CONSUMER_START_TIMESTAMP": str(self.wall_ms(self.figures.began)),
        }

    def _account(self, held: HeldQueue, now: float) -> ProcessQueueInfo:
        waiting = held.waiting
        offsets = [*held.unfinished, *(message.queue_offset for message in waiting)]
        return ProcessQueueInfo(
            commit_offset=held.commit_point,
            cached_msg_min_offset=min(offsets, default=0),
            cached_msg_max_offset=max(offsets, default=0),
            cached_msg_count=len(offsets),
            cached_msg_size_in_mi_b=sum(len(message.body) for message in waiting) >> 20,
            locked=held.locked_at > 0,
            last_lock_timestamp=self.wall_ms(held.locked_at),
            last_pull_timestamp=self.wall_ms(held.pulled_at),
            last_consume_timestamp=self.wall_ms(held.consumed_at),
        )

    def wall_ms(self, at: float) -> int:
        """A monotonic instant as wall-clock ms; 0 stays "never"."""
        clock = self.instance.clock
        return clock.wall_ms() - int(1000 * (clock.monotonic() - at)) if at else 0

    # ── Close ──

    def close(self, within_s: float) -> Steps[None]:
        """Commit, unregister and drop all queues."""
        deadline = self.instance.clock.monotonic() + within_s
        self._end_steps()
        if self.config.auto_commit:
            yield from self._commit_if_possible()
        if self.tracing is not None:
            yield from self.tracing.close()
        left_s = deadline - self.instance.clock.monotonic()
        yield from self.instance.leave(consumer=self.group, within_s=left_s)
        self.let_go()

    def let_go(self) -> None:
        """Drop all queues, and be in no further heartbeat, though the close was cut off."""
        self._end_steps()
        self.instance.remove_consumer(self)
        for held in self.held.values():
            held.drop()
        self.held.clear()

    def _end_steps(self) -> None:
        """End what runs in the background: it would take queues on again, and lock them."""
        self.closing.set()
        if self._forget_client is not None:
            self._forget_client()
            self._forget_client = None
        self.rebalance_now.set()
        self.cache.arrived.set()
