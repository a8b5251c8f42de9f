"""Units of a consume queue as they are stored. Source: admin §2 (QueryConsumeQueueResponseBody)."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.heartbeat import SubscriptionData


class QueueUnit(msgspec.Struct, rename="camel", kw_only=True):
    """One unit, and whether the group's subscription matches its tags code (`eval`)."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = True


class QueueUnits(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Units of a queue with its bounds, and what the group subscribed to, if one was named."""

    min_queue_index: int
    max_queue_index: int
    queue_data: list[QueueUnit]
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
