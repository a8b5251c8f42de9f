"""Clients: heartbeats, group members, queue locks. Most of it travels in bodies.

Source: remoting §3.9, §3.11.
"""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import Header, wire


class Heartbeat(Header):
    """HEART_BEAT (34)."""

    code = RequestCode.HEART_BEAT


class HeartbeatResponse(Header):
    """Whether heartbeats may leave subscriptions out, and whether the next one must not."""

    is_support_heart_beat_v2: bool | None = wire("IS_SUPPORT_HEART_BEAT_V2", default=None)
    is_sub_change: bool | None = wire("IS_SUB_CHANGE", default=None)


class UnregisterClient(Header):
    """UNREGISTER_CLIENT (35)."""

    code = RequestCode.UNREGISTER_CLIENT
    client_id: str = wire("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class CheckClientConfig(Header):
    """CHECK_CLIENT_CONFIG (46)."""

    code = RequestCode.CHECK_CLIENT_CONFIG


class GetConsumerListByGroup(Header):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str


class NotifyConsumerIdsChanged(Header):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), from the broker: rebalance."""

    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


class LockBatchMq(Header):
    """LOCK_BATCH_MQ (41)."""

    code = RequestCode.LOCK_BATCH_MQ


class UnlockBatchMq(Header):
    """UNLOCK_BATCH_MQ (42)."""

    code = RequestCode.UNLOCK_BATCH_MQ
