"""Rebalance: which queues of its topics a member of a group consumes, looked at again and again.

    allocation: the group's members from a broker → the strategy, as at every member → own queues
    assignment: the broker says which queues, and whether to pull or pop them

Then queues of others are given up, and own ones are taken on. Source: client §8.1 (RebalanceImpl),
semantics §11.2 (QueryAssignmentProcessor).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from aerobee.allocation import Allocator, Nearby, consistent_hash, strategy
from aerobee.client.namespaces import wrapped
from aerobee.client.steps.answers import body_of, expect
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.wire_queues import from_wire
from aerobee.errors import (
    AerobeeError,
    ConfigurationError,
    ConsumerNotOnlineError,
    UnsupportedRequestError,
)
from aerobee.remoting.border import Border
from aerobee.remoting.wire.bodies.client import ConsumerList
from aerobee.remoting.wire.bodies.pop import AssignmentRequest, AssignmentResponse
from aerobee.remoting.wire.headers.client import GetConsumerListByGroup
from aerobee.remoting.wire.headers.pop import QueryAssignment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.route import TopicRoute
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.consumers import ConsumerConfig
    from aerobee.client.steps.effects import Signal, Steps
    from aerobee.client.steps.figures import Figures
    from aerobee.client.steps.held_queue import HeldQueue, Subscription
    from aerobee.client.steps.instance import Instance

REBALANCE_S = 20.0
UNBALANCED_S = 1.0
"""The pause after an incomplete rebalance, shorter than the usual one."""
POP: Final = "POP"


class Holder(Protocol):
    """The member that holds queues, as rebalance needs it."""

    @property
    def instance(self) -> Instance: ...
    @property
    def config(self) -> ConsumerConfig: ...
    @property
    def closing(self) -> Signal: ...
    @property
    def rebalance_now(self) -> Signal: ...
    @property
    def figures(self) -> Figures: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]: ...

    def rebalance(self) -> Steps[bool]: ...
    def rebalance_topic(self, topic: str) -> Steps[None]: ...
    def take_on(self, queue: MessageQueue) -> Steps[None]: ...
    def give_up(self, queue: MessageQueue) -> Steps[None]: ...


class PopHolder(Holder, Protocol):
    """A member whose broker may have it pop from queues."""

    def pops(self, queue: MessageQueue) -> bool: ...
    def take_on_popped(self, queue: MessageQueue) -> None: ...


def stay_balanced(holder: Holder) -> Steps[None]:
    """Rebalance on every change of the group and every 20 s, until closed."""
    balanced = True
    while not holder.closing.is_set:
        yield Wait(holder.rebalance_now, REBALANCE_S if balanced else UNBALANCED_S)
        if not holder.closing.is_set:
            balanced = yield from holder.rebalance()


def rebalance_topics(holder: Holder) -> Steps[bool]:
    """Rebalance topic by topic; False if that is not complete yet."""
    instance = holder.instance
    holder.rebalance_now.clear()
    holder.figures.sample(instance.clock.monotonic())
    balanced = True
    for topic in tuple(holder.subscriptions):
        about = f"rebalance {topic}"
        try:
            yield from holder.rebalance_topic(topic)
            instance.works_again(about)
        except AerobeeError as error:
            balanced = False
            instance.log_once(about, "no share of %s yet: %s", topic, error)
    return balanced


# ── Allocation by the members ──


def rebalance_by_members(holder: Holder, topic: str) -> Steps[None]:
    """Take on and give up queues of one topic, by the allocation.

    Raises: AerobeeError if the group's members or a start offset cannot be queried.
    """
    instance = holder.instance
    route = yield from instance.route(topic, instance.config.request_timeout)
    yield from instance.introduce(route)
    members = yield from members_of(holder, route)
    own = share(holder, sorted(route.to_subscribe), members)
    for queue in [q for q in holder.held if q.topic == topic and q not in own]:
        yield from holder.give_up(queue)
    yield from take_on_all(holder, own)
    if instance.config.client_id not in members:
        # The broker has no heartbeat of this client, so the allocation had no queues.
        instance.subscriptions_changed()
        raise ConsumerNotOnlineError(206, "we are no member", "broker", "", "rebalance")


def take_on_all(holder: Holder, queues: Sequence[MessageQueue]) -> Steps[None]:
    """Take on queues; those of a broker that fails do not keep others waiting.

    Raises: the first AerobeeError, at the end.
    """
    failed: dict[str, AerobeeError] = {}
    for queue in queues:
        if queue.broker_name not in failed:
            try:
                yield from holder.take_on(queue)
            except AerobeeError as error:
                failed[queue.broker_name] = error
    for first in failed.values():
        raise first


def share(
    holder: Holder, queues: Sequence[MessageQueue], members: Sequence[str]
) -> Sequence[MessageQueue]:
    """The member's queues by the allocation. Raises: ConfigurationError if that fails."""
    client, group = holder.instance.config, holder.config.group
    allocate = in_namespace(strategy(holder.config.strategy), client.namespace)
    with Border() as border:
        own = allocate(group, client.client_id, queues, members)
        if not set(own).issubset(queues):
            raise ConfigurationError("it assigns queues that were not given to it")
        return own
    raise ConfigurationError(f"the strategy of {group} failed: {border.error!r}")


def members_of(holder: Holder, route: TopicRoute) -> Steps[Sequence[str]]:
    """The client ids of the group from any broker of the topic, sorted.

    In broadcasting it is this client only.
    """
    instance = holder.instance
    if holder.config.broadcasting:
        return [instance.config.client_id]
    name = instance.some_broker(route)
    ask = Ask(
        address=instance.reader(name),
        header=GetConsumerListByGroup(consumer_group=holder.config.group),
        timeout_s=instance.config.request_timeout,
    )
    answer = expect(ask, (yield ask), name)
    members = body_of(ask, answer, ConsumerList).consumer_id_list
    if not members:
        raise ConsumerNotOnlineError(206, "no member known", name, ask.address, "rebalance")
    return sorted(members, key=lambda member: member.encode("utf-16-be"))


def in_namespace(allocate: Allocator, namespace: str | None) -> Allocator:
    """A strategy that hashes queues by their names on the wire, as Java's clients do."""
    if namespace is None:
        return allocate
    if isinstance(allocate, Nearby):
        return replace(allocate, inner=in_namespace(allocate.inner, namespace))
    if allocate is not consistent_hash:
        return allocate

    def by_names_on_the_wire(
        group: str, own_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        by_wire = {queue._replace(topic=wrapped(queue.topic, namespace)): queue for queue in queues}
        own = consistent_hash(group, own_id, list(by_wire), members)
        return [by_wire[queue] for queue in own]

    return by_names_on_the_wire


# ── Assignment by the broker ──


def rebalance_by_broker(holder: PopHolder, topic: str) -> Steps[None]:
    """Take on and give up queues of one topic, by the broker's assignment.

    Raises: AerobeeError if the broker or a start offset cannot be queried.
    """
    instance, config = holder.instance, holder.config
    route = yield from instance.route(topic, instance.config.request_timeout)
    yield from instance.introduce(route)
    try:
        assigned = yield from query_assignment(
            instance, config.group, topic, route, str(config.strategy)
        )
    except UnsupportedRequestError:
        # A broker before 5.0: the members allocate its queues by themselves.
        yield from rebalance_by_members(holder, topic)
        return
    for queue in tuple(holder.held):
        if queue.topic == topic and assigned.get(queue) is not holder.pops(queue):
            yield from holder.give_up(queue)
    for queue, pops in assigned.items():
        if pops and queue not in holder.held and not holder.closing.is_set:
            holder.take_on_popped(queue)
    yield from take_on_all(holder, [queue for queue, pops in assigned.items() if not pops])


def query_assignment(
    instance: Instance, group: str, topic: str, route: TopicRoute, strategy: str
) -> Steps[dict[MessageQueue, bool]]:
    """The assigned queues, and whether to pop from them; a queue id of −1 is all of a broker.

    Raises: BrokerNotFoundError, ConsumerNotOnlineError if the broker does not know this client,
    UnsupportedRequestError before 5.0, BrokerError, TransportError.
    """
    name = instance.some_broker(route)
    wanted = AssignmentRequest(
        client_id=instance.config.client_id,
        consumer_group=group,
        strategy_name=strategy,
        topic=topic,
    )
    ask = Ask(
        address=instance.reader(name),
        header=QueryAssignment(),
        body=wanted.to_bytes(),
        timeout_s=instance.config.request_timeout,
    )
    answer = expect(ask, (yield ask), name)
    assigned = body_of(ask, answer, AssignmentResponse).message_queue_assignments
    if assigned is None:
        # The broker has no heartbeat of this client, or lost it in a restart.
        instance.subscriptions_changed()
        raise ConsumerNotOnlineError(206, "no member known", name, ask.address, "rebalance")
    return {from_wire(queue.message_queue): queue.mode == POP for queue in assigned}
