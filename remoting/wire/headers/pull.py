"""Pulling, and what a pull found. Source: remoting §3.6."""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header


class PullMessage(Header, kw_only=True):
    """PULL_MESSAGE (11). `bulk_bytes` is Aerobee's own: it lifts the limits of one answer."""

    code = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    queue_offset: I64
    max_msg_nums: I32
    sys_flag: I32
    commit_offset: I64
    suspend_timeout_millis: I64
    subscription: str | None = None
    sub_version: I64
    expression_type: str | None = None
    max_msg_bytes: I32 | None = None
    request_source: I32 | None = None
    # Misspelt in Java, too.
    proxy_froward_client_id: str | None = None
    bulk_bytes: I32 | None = None


class LitePullMessage(PullMessage, kw_only=True):
    """LITE_PULL_MESSAGE (361): the same, served by a pool of its own."""

    code = RequestCode.LITE_PULL_MESSAGE


class PullAnswer(Header):
    """The next offset to pull from, with SUCCESS, 19, 20 and 21, and the ends of the queue."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64


class PullMessageResponse(PullAnswer):
    """The answer to a pull, with what only brokers of other kinds add."""

    offset_delta: I64 | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
    forbidden_type: I32 | None = None


class PullMessageRefused(Header):
    """Whose permission is missing: 1 broker, 2 group, 3 topic, 4 broadcast, 5 group for topic."""

    forbidden_type: I32
