"""Offsets: of groups, and the min and max of queues. Source: remoting §3.7."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header


class OffsetResponse(Header):
    """One offset: the answer to most of these."""

    offset: I64


class QueryConsumerOffset(Header):
    """QUERY_CONSUMER_OFFSET (14): the next offset that the group consumes."""

    code = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponse(OffsetResponse):
    """The offset that the group stored."""


class UpdateConsumerOffset(Header):
    """UPDATE_CONSUMER_OFFSET (15).

    The last two are required, but without them RocketMQ answers INVALID_PARAMETER, unlike for any
    other request, so the handler checks them.
    """

    code = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32 | None = None
    commit_offset: I64 | None = None


class SearchOffset(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `timestamp` in ms; `boundary_type` "upper" or else lower."""

    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None


class SearchOffsetResponse(OffsetResponse):
    """The first message at or after the time, or the last one at or before it."""


class GetMaxOffset(Header):
    """GET_MAX_OFFSET (30): the offset of the next message."""

    code = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: I32
    committed: bool | None = None


class GetMaxOffsetResponse(OffsetResponse):
    """The offset of the next message."""


class GetMinOffset(Header):
    """GET_MIN_OFFSET (31): the offset of the oldest message."""

    code = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: I32


class GetMinOffsetResponse(OffsetResponse):
    """The offset of the oldest message."""


class GetEarliestMessageStoreTime(Header):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: I32


class GetEarliestMessageStoreTimeResponse(Header):
    """When the oldest message was stored, ms; −1 in an empty queue."""

    timestamp: I64


class GetAllDelayOffset(Header):
    """GET_ALL_DELAY_OFFSET (45): how far each delay level has been delivered."""

    code = RequestCode.GET_ALL_DELAY_OFFSET


class ResetOffset(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222): move a group, in one queue (≥ 0) or in all.

    `timestamp` below 0 means the end; an `offset` other than −1 takes precedence over the time.
    """

    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: I64
    is_force: bool
    queue_id: I32 = -1
    offset: I64 | None = None


class ResetOffsetInClient(Header):
    """RESET_CONSUMER_CLIENT_OFFSET (220), from the broker: the body has the new offsets."""

    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: I64
    queue_id: I32 = -1
    is_force: bool = False


class GetAllConsumerOffset(Header):
    """GET_ALL_CONSUMER_OFFSET (43): the whole table, in the form of its file."""

    code = RequestCode.GET_ALL_CONSUMER_OFFSET


class CloneGroupOffset(Header):
    """CLONE_GROUP_OFFSET (314): copy the offsets of one group to another. No topic means all."""

    code = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None
