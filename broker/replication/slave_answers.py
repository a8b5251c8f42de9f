"""The answers of a slave to requests that only its master can serve: code → answer.

A request that is not in the table is served: it reads, or changes what each broker has for
itself, or is an offset, which a slave keeps until its master's is greater. In a group that decides
on its master by itself, the master alone takes offsets. Pure. Source: semantics §1, §3.3, §10.2;
AdminBrokerProcessor of 5.3 for administration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

REJECTED: Final = Answer(
    int(ResponseCode.SYSTEM_BUSY),
    remark="[REJECTREQUEST]system busy, start flow control for a while",
)
"""Of sends, and of pulls where slaveReadEnable is off: clients try another broker."""
NO_END: Final = Answer(
    int(ResponseCode.SLAVE_NOT_AVAILABLE), remark="this broker is a slave: ask its master"
)
NO_POP: Final = Answer(
    int(ResponseCode.SERVICE_NOT_AVAILABLE),
    remark="this broker is a slave, which keeps no check points of pops: ask its master",
)
NO_CHANGE: Final = Answer(
    int(ResponseCode.SYSTEM_ERROR),
    remark="Can't modify topic or subscription group from slave broker, "
    "please execute it from master broker.",
)
NO_RESET: Final = Answer(
    int(ResponseCode.SYSTEM_ERROR), remark="Can not reset offset in slave broker"
)
OF_THE_MASTER: Final = Answer(
    int(ResponseCode.SYSTEM_ERROR),
    remark="this broker is not the master of its group, which keeps offsets and locks: ask that"
    " one",
)
"""Of a group. An offset that a slave lacks would have a consumer begin at the end of its queue."""

SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
)
PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
"""Served where slaveReadEnable is on."""
ENDS: Final = (RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE)
POPS: Final = (
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
)
COPIED: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.CLONE_GROUP_OFFSET,
)
"""They change what a slave copies: the next copy would undo it."""
RESETS: Final = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,)

ANSWERS: Final[Mapping[int, Answer]] = {
    **dict.fromkeys(SENDS, REJECTED),
    **dict.fromkeys(PULLS, REJECTED),
    **dict.fromkeys(ENDS, NO_END),
    **dict.fromkeys(POPS, NO_POP),
    **dict.fromkeys(COPIED, NO_CHANGE),
    **dict.fromkeys(RESETS, NO_RESET),
}
"""The answers of a slave, in place of what the handler would do."""

KEPT: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
OF_A_GROUP: Final[Mapping[int, Answer]] = {**ANSWERS, **dict.fromkeys(KEPT, OF_THE_MASTER)}
"""The answers of a slave whose group decides on its master."""
