"""POP: messages handed out and acknowledged one by one. Times in ms. Source: remoting §3.12.

A queue id of −1 stands for every queue of the topic. `extra_info` is the receipt handle.
"""

from __future__ import annotations

from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import I32, I64, Header


class PopMessage(Header, kw_only=True):
    """POP_MESSAGE (200050). `poll_time`: how long to hold; `init_mode`: 0 from the start, 1 end."""

    code = RequestCode.POP_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32
    invisible_time: I64
    poll_time: I64
    born_time: I64 = 0
    init_mode: I32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopMessageResponse(Header):
    """Offsets and times in the text form that receipt handles are made of."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32
    rest_num: I64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Header):
    """ACK_MESSAGE (200051)."""

    code = RequestCode.ACK_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64


class BatchAckMessage(Header):
    """BATCH_ACK_MESSAGE (200151): the body says what is acknowledged."""

    code = RequestCode.BATCH_ACK_MESSAGE


class ChangeInvisibleTime(Header):
    """CHANGE_MESSAGE_INVISIBLETIME (200053): hidden for `invisible_time` from now on."""

    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    consumer_group: str
    topic: str
    queue_id: I32
    extra_info: str
    offset: I64
    invisible_time: I64


class ChangeInvisibleTimeResponse(Header):
    """The values of the next receipt handle."""

    pop_time: I64
    invisible_time: I64
    revive_qid: I32


class PeekMessage(Header):
    """PEEK_MESSAGE (200052): a POP without any effect."""

    code = RequestCode.PEEK_MESSAGE
    consumer_group: str
    topic: str
    queue_id: I32
    max_msg_nums: I32


class Notification(Header):
    """NOTIFICATION (200054): whether there is a message to pop."""

    code = RequestCode.NOTIFICATION
    consumer_group: str
    topic: str
    queue_id: I32
    poll_time: I64
    born_time: I64
    order: bool | None = None
    attempt_id: str | None = None


class NotificationResponse(Header):
    """Whether there is, and whether long polling was refused for lack of room."""

    has_msg: bool
    polling_full: bool = False


class PollingInfo(Header):
    """POLLING_INFO (200055)."""

    code = RequestCode.POLLING_INFO
    consumer_group: str
    topic: str
    queue_id: I32


class PollingInfoResponse(Header):
    """How many pops are held."""

    polling_num: I32


class QueryAssignment(Header):
    """QUERY_ASSIGNMENT (400): the body names the client."""

    code = RequestCode.QUERY_ASSIGNMENT


class SetMessageRequestMode(Header):
    """SET_MESSAGE_REQUEST_MODE (401): the body says which."""

    code = RequestCode.SET_MESSAGE_REQUEST_MODE


class GetAllMessageRequestMode(Header):
    """GET_ALL_MESSAGE_REQUEST_MODE (402): which groups POP and which PULL, by topic."""

    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
