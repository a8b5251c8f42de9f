"""Builds the member of a consumer group: orderly or not, with its offset store and its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aerobee.client.factory import make_uniq_ids
from aerobee.client.offset_file import offset_file
from aerobee.client.steps.assigned import AssignedMember
from aerobee.client.steps.deliveries import Deliveries
from aerobee.client.steps.member import Member
from aerobee.client.steps.offsets import LocalOffsets
from aerobee.client.steps.orderly import OrderlyMember
from aerobee.client.steps.polling import PullMember
from aerobee.client.steps.popping import Popper
from aerobee.client.steps.popping_member import PoppingMember
from aerobee.client.steps.pushing import PushMember
from aerobee.client.steps.tracing import CONSUME, make_tracing

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.settings.consumers import ConsumerConfig, PopConfig, PullConfig, PushConfig
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.tracing import Tracing

M = TypeVar("M", bound=Member)


def push_member(
    instance: Instance, config: PushConfig, held_now: Callable[[HeldQueue], None]
) -> PushMember:
    """The state of a new push consumer; `held_now` is called for each newly assigned queue."""
    made = OrderlyMember if config.orderly else PushMember
    if config.server_assignment:
        made = AssignedMember
    return equipped(made(instance, config, held_now))


def pull_member(
    instance: Instance, config: PullConfig, held_now: Callable[[HeldQueue], None]
) -> PullMember:
    """The state of a new pull consumer; `held_now` is called for each newly assigned queue."""
    return equipped(PullMember(instance, config, held_now))


def pop_member(instance: Instance, config: PopConfig) -> Popper:
    """The state of a new POP consumer."""
    made = (PoppingMember if config.server_assignment else Popper)(instance, config)
    if config.trace:
        made.tracing = consumer_tracing(instance, config)
        made.deliveries = Deliveries(made.tracing.traces)
    return made


def equipped(member: M) -> M:
    """A member with the offset store and the message trace of its options."""
    instance, config = member.instance, member.config
    if config.broadcasting:
        store = offset_file(instance, config)
        member.offsets = LocalOffsets(instance, config.group, store)
    if config.trace:
        member.tracing = consumer_tracing(instance, config)
        member.hooks = (*member.hooks, member.tracing.traces)
    return member


def consumer_tracing(instance: Instance, config: ConsumerConfig | PopConfig) -> Tracing:
    """The message trace of a consumer group."""
    ids = make_uniq_ids(instance)
    return make_tracing(instance, ids, config.group, CONSUME, config.trace_topic)
