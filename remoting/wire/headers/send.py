"""Sending: one message under long or short names, batches, and the answers.

V1 and V2 have the same attributes, so that one handler serves both. Source: remoting §3.2, §3.3.
"""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header, wire


class SendMessage(Header):
    """SEND_MESSAGE (10). With a negative queue id the broker chooses the queue."""

    code = RequestCode.SEND_MESSAGE
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None
    batch: bool | None = None
    broker_name: str | None = wire("bname", default=None)


class SendMessageV2(Header):
    """SEND_MESSAGE_V2 (310): the fields of V1 under one-letter names."""

    code = RequestCode.SEND_MESSAGE_V2
    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c")
    default_topic_queue_nums: I32 = wire("d")
    queue_id: I32 = wire("e")
    sys_flag: I32 = wire("f")
    born_timestamp: I64 = wire("g")
    flag: I32 = wire("h")
    properties: str | None = wire("i", default=None)
    reconsume_times: I32 | None = wire("j", default=None)
    unit_mode: bool | None = wire("k", default=None)
    max_reconsume_times: I32 | None = wire("l", default=None)
    batch: bool | None = wire("m", default=None)
    broker_name: str | None = wire("n", default=None)


class SendBatchMessage(SendMessageV2):
    """SEND_BATCH_MESSAGE (320): the header of V2; the body is a sequence of messages."""

    code = RequestCode.SEND_BATCH_MESSAGE


class ConsumerSendMsgBack(Header):
    """CONSUMER_SEND_MSG_BACK (36): a message, by its physical offset, to be redelivered later.

    `delay_level` 0: the broker chooses the delay; below 0: dead letter.
    """

    code = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: I64
    group: str
    delay_level: I32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: I32 | None = None


class SendReplyMessage(SendMessage):
    """SEND_REPLY_MESSAGE (324): the reply to a request message."""

    code = RequestCode.SEND_REPLY_MESSAGE


class SendReplyMessageV2(SendMessageV2):
    """SEND_REPLY_MESSAGE_V2 (325)."""

    code = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReplyMessage(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker to the requester. Hosts are `ip:port`."""

    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: I32
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str | None = None
    reconsume_times: I32 | None = None
    unit_mode: bool | None = None
    born_host: str | None = None
    store_host: str | None = None
    store_timestamp: I64 = 0


class SendMessageResponse(Header):
    """The place of the stored message: the answer with SUCCESS and with codes 10, 11, 12.

    `msg_id` holds the offset ids of a batch joined by commas, `queue_offset` that of its first
    message. Java reads the first three without checking that they are present.
    """

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: str | None = wire("TRACE_ON", default=None)


class RecallMessage(Header, kw_only=True):
    """RECALL_MESSAGE (370): cancel the timer message that a handle names."""

    code = RequestCode.RECALL_MESSAGE
    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponse(Header):
    """The unique key of the timer message."""

    msg_id: str
    region: str | None = wire("MSG_REGION", default=None)


class SendMessageRefused(Header):
    """The header of every refused send, for clients that trace."""

    region: str = wire("MSG_REGION")
    trace_on: str = wire("TRACE_ON")
