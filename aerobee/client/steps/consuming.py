"""A member of a consumer group: its subscriptions, held queues, deliveries and commits.

With `subscribe` the members of the group share the queues; with `assign` the caller chooses them.
Source: client §8.1, §11 (DefaultLitePullConsumerImpl).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aerobee.allocation import Allocator, Nearby, consistent_hash, strategy
from aerobee.client.filters import ALL, Filter
from aerobee.client.handling import Guarded
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.client.namespaces import check_plain, wrapped
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.checking import check_served, described
from aerobee.client.steps.effects import Ask, Signal, Wait
from aerobee.client.steps.figures import Figures
from aerobee.client.steps.held_queue import PULL_LIMITS, Cache, HeldQueue, Limits, Subscription
from aerobee.client.steps.offsets import Offsets
from aerobee.client.steps.pulling import Puller, raise_if_broken
from aerobee.client.steps.sending_back import retry_topic
from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ClientClosedError,
    ClientStateError,
    ConfigurationError,
    ConsumerNotOnlineError,
    QueueNotAssignedError,
)
from aerobee.remoting.wire.bodies.consumer_list import ConsumerList
from aerobee.remoting.wire.bodies.heartbeat import ConsumerData
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.client import GetConsumerListByGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from aerobee.client.filters import Expression
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.consumers import ConsumerConfig
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance, Outcome
    from aerobee.client.steps.tracing import Tracing
    from aerobee.hooks import Hook
    from aerobee.remoting.wire.command import Command

REBALANCE_S = 20.0
UNBALANCED_S = 1.0
"""The pause after an incomplete rebalance, shorter than the usual one."""


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
    _taken: list[ReceivedMessage] = field(default_factory=list)
    """Messages of a call under way, which their queues count as delivered already."""

    def __post_init__(self) -> None:
        self.hooks = self.instance.config.hooks
        self.offsets = Offsets(self.instance, self.config.group)
        self.puller = Puller(self.instance, self.config.group, self.config.pull_batch)
        self.figures = Figures(self.instance.clock.monotonic())

    def begin(self) -> list[Steps[None]]:
        """Register with the client; returns the steps to run until closed.

        Raises: ConfigurationError for a second consumer of the group.
        """
        self.instance.add_consumer(self)
        # A wait for messages ends with the client.
        self._forget_client = self.instance.closing.listen(self.cache.arrived.set)
        steps = [self.stay_balanced()]
        if self.config.auto_commit:
            steps.append(self.commit_on())
        if self.tracing is not None:
            steps.append(self.tracing.run())
        return steps

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
        """Handle a request of a broker for this group."""
        return ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    # ── Queues ──

    def subscribe(self, topic: str, expression: Expression) -> Steps[None]:
        """Share the queues of a topic with the group. The topic may not exist yet.

        Raises: ConfigurationError, ClientStateError after `assign`, SubscriptionError for an SQL
        condition that the brokers do not support.
        """
        check_name("topic", topic, TOPIC_MAX)
        check_plain("topic", topic, self.instance.config.namespace)
        if self.assigned_filter is not None:
            raise ClientStateError("this consumer has assigned queues; subscribe excludes assign")
        wanted = Filter.of(expression)
        version = self.instance.clock.wall_ms()
        subscription = Subscription(topic, wanted, version)
        yield from check_served(self.instance, self.group, subscription)
        self.subscriptions[topic] = subscription
        self.instance.subscriptions_changed()
        if not (yield from self.rebalance()):
            # `stay_balanced` tries again, sooner than after a complete rebalance.
            self.rebalance_now.set()

    def assign(self, queues: Iterable[MessageQueue], expression: Expression) -> Steps[None]:
        """Hold exactly these queues, without sharing them in the group.

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
        self.assigned_filter = filter_
        for queue in [queue for queue in self.held if queue not in wanted]:
            yield from self.give_up(queue)
        for queue in wanted:
            yield from self._take_on(queue)

    def queues(self, topic: str) -> Steps[list[MessageQueue]]:
        """All readable queues of a topic. Raises: RouteNotFoundError."""
        route = yield from self._route(topic)
        return list(route.to_subscribe)

    def _route(self, topic: str) -> Steps[TopicRoute]:
        return (yield from self.instance.route(topic, self.instance.config.request_timeout))

    def stay_balanced(self) -> Steps[None]:
        """Rebalance on every change of the group and every 20 s, until closed."""
        balanced = True
        while not self.closing.is_set:
            yield Wait(self.rebalance_now, REBALANCE_S if balanced else UNBALANCED_S)
            if not self.closing.is_set:
                balanced = yield from self.rebalance()

    def rebalance(self) -> Steps[bool]:
        """Give up and take on queues by the allocation; False if that is not complete yet."""
        self.rebalance_now.clear()
        self.figures.sample(self.instance.clock.monotonic())
        balanced = True
        for topic in tuple(self.subscriptions):
            about = f"rebalance {topic}"
            try:
                yield from self._rebalance_topic(topic)
                self.instance.works_again(about)
            except AerobeeError as error:
                balanced = False
                self.instance.log_once(about, "no share of %s yet: %s", topic, error)
        return balanced

    def _rebalance_topic(self, topic: str) -> Steps[None]:
        """Take on and give up queues of one topic, by the allocation.

        Raises: AerobeeError if the group's members or a start offset cannot be queried.
        """
        route = yield from self._route(topic)
        yield from self.instance.introduce(route)
        members = yield from self._members(route)
        own = self._share(sorted(route.to_subscribe), members)
        for queue in [q for q in self.held if q.topic == topic and q not in own]:
            yield from self.give_up(queue)
        for queue in own:
            yield from self._take_on(queue)
        if self.instance.config.client_id not in members:
            # The broker has no heartbeat of this client, so the allocation had no queues.
            self.instance.subscriptions_changed()
            raise ConsumerNotOnlineError(206, "we are no member", "broker", "", "rebalance")

    def _share(
        self, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """This member's queues by the allocation. Raises: ConfigurationError if that fails."""
        config = self.instance.config
        allocate = in_namespace(strategy(self.config.strategy), config.namespace)
        with Guarded() as guard:
            own = allocate(self.group, config.client_id, queues, members)
            if not set(own).issubset(queues):
                raise ConfigurationError("it assigns queues that were not given to it")
            return own
        raise ConfigurationError(f"the strategy of {self.group} failed: {guard.error!r}")

    def _members(self, route: TopicRoute) -> Steps[Sequence[str]]:
        """The client ids of the group from any broker of the topic, sorted.

        In broadcasting it is this client only.
        """
        if self.config.broadcasting:
            return [self.instance.config.client_id]
        names = sorted(route.brokers)
        if not names:
            raise BrokerNotFoundError("the route names no broker")
        name = self.instance.random.choice(names)
        ask = Ask(
            address=self.instance.reader(name),
            header=GetConsumerListByGroup(consumer_group=self.group),
            timeout_s=self.instance.config.request_timeout,
        )
        answer = expect(ask, (yield ask), name)
        members = body_of(ask, answer, ConsumerList).consumer_id_list
        if not members:
            raise ConsumerNotOnlineError(206, "no member known", name, ask.address, "rebalance")
        return sorted(members, key=lambda member: member.encode("utf-16-be"))

    def _take_on(self, queue: MessageQueue) -> Steps[None]:
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

    def pull_on(self, held: HeldQueue) -> Steps[None]:
        """Pull one held queue until it is dropped."""
        yield from self.puller.pull_on(held, self.subscription_of(held.queue.topic))

    def subscription_of(self, topic: str) -> Subscription:
        """The subscription of a topic."""
        assigned = Subscription(topic, self.assigned_filter or ALL, 0)
        return self.subscriptions.get(topic, assigned)

    # ── Delivery ──

    def poll(self, most: int, timeout_s: float) -> Steps[list[ReceivedMessage]]:
        """Return up to `most` messages as soon as there is one; none after the timeout or close.

        Raises: CompressionError for a message that cannot be decompressed here, ClientClosedError
        if the client ends before this consumer is closed.
        """
        deadline = self.instance.clock.monotonic() + timeout_s
        self._put_back_taken()
        while True:
            taken = self.take(most)
            left_s = deadline - self.instance.clock.monotonic()
            if taken or self.closing.is_set:
                self._hand_out(taken)
                return taken
            if self.instance.closing.is_set:
                raise ClientClosedError("the client of this consumer is closed")
            for held in self.held.values():
                raise_if_broken(held)
            if left_s <= 0:
                return taken
            self.cache.arrived.clear()
            yield Wait(self.cache.arrived, left_s)

    def take(self, most: int) -> list[ReceivedMessage]:
        """The messages that are already pulled, queue by queue."""
        if not self._ready:
            self._ready.extend(
                held for held in self.held.values() if held.waiting and not held.paused
            )
        taken = self._taken
        while self._ready and len(taken) < most:
            self._ready[0].take_into(taken, most - len(taken))
            self._ready.popleft()
        return taken

    def _hand_out(self, taken: Sequence[ReceivedMessage]) -> None:
        """Note that the caller gets these messages."""
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

    # ── Offsets ──

    def holding(self, queue: MessageQueue) -> HeldQueue:
        """The state of a queue that this consumer holds. Raises: QueueNotAssignedError."""
        held = self.held.get(queue)
        if held is None:
            raise QueueNotAssignedError(f"this consumer does not hold {queue}").about(
                topic=queue.topic, broker=queue.broker_name
            )
        return held

    def seek(self, queue: MessageQueue, to: int | ConsumeFrom | datetime) -> Steps[None]:
        """Move a queue. Raises: QueueNotAssignedError, ConfigurationError outside of the queue."""
        self.holding(queue)
        if isinstance(to, int):
            lowest = yield from self.offsets.lowest(queue)
            end = yield from self.offsets.end(queue)
            if not lowest <= to <= end:
                raise ConfigurationError(f"{queue} has offsets {lowest} to {end}, not {to}")
        else:
            to = yield from self.offsets.resolve(queue, to)
        self.holding(queue).move_to(to)

    def offsets_for_time(self, at: datetime) -> Steps[dict[MessageQueue, int]]:
        """Per held queue, the offset of the first message stored at `at` or later."""
        found = {}
        for queue in tuple(self.held):
            found[queue] = yield from self.offsets.at_time(queue, at)
        return found

    def end_offsets(self) -> Steps[dict[MessageQueue, int]]:
        """Per held queue, the offset of the next message to be written."""
        found = {}
        for queue in tuple(self.held):
            found[queue] = yield from self.offsets.end(queue)
        return found

    def commit(self, given: Mapping[MessageQueue, int] | None) -> Steps[None]:
        """Commit the given offsets, or the progress of each held queue.

        Raises: TransportError, BrokerError.
        """
        wanted = given if given is not None else self._uncommitted()
        for queue, offset in dict(wanted).items():
            yield from self._commit_one(queue, offset)
        self.offsets.save()

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
        """Commit at each broker; a failure at one does not stop the others."""
        about = f"commit {self.group}"
        failed: dict[str, AerobeeError] = {}
        for queue, offset in self._uncommitted().items():
            if queue.broker_name not in failed:
                try:
                    yield from self._commit_one(queue, offset)
                except AerobeeError as error:
                    failed[queue.broker_name] = error
        self.offsets.save()
        if not failed:
            self.instance.works_again(about)
        for reason in failed.values():
            self.instance.log_once(about, "offsets of %s not committed: %s", self.group, reason)

    # ── Close ──

    def close(self, within_s: float) -> Steps[None]:
        """Commit, unregister and drop all queues."""
        deadline = self.instance.clock.monotonic() + within_s
        self.closing.set()
        if self._forget_client is not None:
            self._forget_client()
            self._forget_client = None
        self.rebalance_now.set()
        self.cache.arrived.set()
        if self.config.auto_commit:
            yield from self._commit_if_possible()
        if self.tracing is not None:
            yield from self.tracing.close()
        left_s = deadline - self.instance.clock.monotonic()
        yield from self.instance.leave(consumer=self.group, within_s=left_s)
        for held in self.held.values():
            held.drop()
        self.held.clear()


def in_namespace(allocate: Allocator, namespace: str | None) -> Allocator:
    """The same strategy; where it hashes queues, by their names on the wire, as Java's clients."""
    if namespace is None:
        return allocate
    if isinstance(allocate, Nearby):
        return replace(allocate, inner=in_namespace(allocate.inner, namespace))
    if allocate is not consistent_hash:
        return allocate

    def by_names_on_the_wire(
        group: str, own_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        by_wire = {one._replace(topic=wrapped(one.topic, namespace)): one for one in queues}
        return [by_wire[one] for one in consistent_hash(group, own_id, list(by_wire), members)]

    return by_names_on_the_wire
