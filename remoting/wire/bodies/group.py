"""The settings of consumer groups, in bodies and in `subscriptionGroup.json`.

Source: admin §2 (SubscriptionGroupWrapper), store format §1.7 (SubscriptionGroupConfig).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aerobee.remoting.wire.bodies.body import Body

PRIORITY_FACTOR: Final = "priority.factor"
"""The attribute of a group that says how many of a hundred of its pops read the highest priority
first."""


def customized_policy() -> dict[str, Any]:
    """The retry policy of a group that sets none: the table of delay levels."""
    return {"type": "CUSTOMIZED"}


class SubscriptionGroupConfig(Body, msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One group. Members that 4.9 does not write have defaults; `groupRetryPolicy` passes
    through.
    """

    attributes: dict[str, str] = {}
    broker_id: int = 0
    consume_broadcast_enable: bool = True
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_message_orderly: bool = False
    consume_timeout_minute: int = 15
    group_name: str
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=customized_policy)
    group_sys_flag: int = 0
    notify_consumer_ids_changed_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    subscription_data_set: list[dict[str, Any]] | msgspec.UnsetType | None = msgspec.UNSET
    which_broker_when_consume_slowly: int = 1


class SubscriptionGroupConfigs(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig]


class GroupForbidden(Body, msgspec.Struct, kw_only=True):
    """Whether a group may read a topic."""

    group: str
    readable: bool
    topic: str


class SubscriptionGroupWrapper(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG: name → settings."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
