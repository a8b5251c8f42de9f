"""The member behind a push consumer: in order or not, its offsets at brokers or on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.offset_file import offset_file
from aerobee.client.steps.broadcasting import LocalOffsets
from aerobee.client.steps.orderly import OrderlyMember
from aerobee.client.steps.pushing import PushMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.push_config import PushConfig
    from aerobee.client.steps.held_queue import HeldQueue
    from aerobee.client.steps.instance import Instance

__all__ = ["push_member"]


def push_member(
    instance: Instance, config: PushConfig, held_now: Callable[[HeldQueue], None]
) -> PushMember:
    """The state of a new push consumer; `held_now` is called for each queue that it takes on."""
    made = OrderlyMember if config.orderly else PushMember
    member = made(instance, config, held_now)
    if config.broadcasting:
        store = offset_file(instance, config)
        member.offsets = LocalOffsets(instance, config.group, store)
    return member
