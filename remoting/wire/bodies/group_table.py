"""All consumer groups of a broker. Source: admin §2 (SubscriptionGroupWrapper)."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.subscription_group import (
    SubscriptionGroupConfig,
)


class SubscriptionGroupWrapper(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG: name → settings."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
