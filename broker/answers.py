"""Store results and exceptions → answers. The one table to response codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.errors import PutPostponed, Refusal
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.errors import StoreError
from aerobee.store.results import GetStatus, PutOutcome, PutStatus

if TYPE_CHECKING:
    from aerobee.remoting.wire.header import Header
    from aerobee.store.message_store import MessageStore

STORED: Final = frozenset({PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT})
"""Statuses whose message is in the log: the answer has the full send response header."""

PUT_ANSWERS: Final[dict[PutStatus, tuple[int, str | None]]] = {
    PutStatus.PUT_OK: (int(ResponseCode.SUCCESS), None),
    PutStatus.FLUSH_DISK_TIMEOUT: (int(ResponseCode.FLUSH_DISK_TIMEOUT), None),
    PutStatus.MESSAGE_ILLEGAL: (
        int(ResponseCode.MESSAGE_ILLEGAL),
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit {max_message_size_bytes}B, msg properties length limit 32KB.",
    ),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (
        int(ResponseCode.MESSAGE_ILLEGAL),
        "the message properties are longer than 32767 bytes",
    ),
    PutStatus.SERVICE_NOT_AVAILABLE: (
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        "service not available now: {cause}",
    ),
    PutStatus.SEGMENT_LATE: (
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        PutPostponed.REMARK,
    ),
}

KEPT_CODES: Final[dict[PutOutcome, int]] = {
    PutOutcome.DURABLE: int(ResponseCode.SUCCESS),
    PutOutcome.DISK_LATE: int(ResponseCode.FLUSH_DISK_TIMEOUT),
    PutOutcome.SLAVE_LATE: int(ResponseCode.FLUSH_SLAVE_TIMEOUT),
    PutOutcome.NO_SLAVE: int(ResponseCode.SLAVE_NOT_AVAILABLE),
    PutOutcome.NO_LEASE: int(ResponseCode.SERVICE_NOT_AVAILABLE),
}

KEPT_REMARKS: Final[dict[PutOutcome, str]] = {
    PutOutcome.NO_LEASE: "stored, but this broker may be the master of its group no more, and"
    " cannot say that the message stays",
}
"""The remarks of outcomes whose code does not say it all."""

PULL_CODES: Final[dict[GetStatus, int]] = {
    GetStatus.FOUND: int(ResponseCode.SUCCESS),
    GetStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    GetStatus.NO_MESSAGE_IN_QUEUE: int(ResponseCode.PULL_NOT_FOUND),
    GetStatus.OFFSET_FOUND_NULL: int(ResponseCode.PULL_NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_ONE: int(ResponseCode.PULL_NOT_FOUND),
    GetStatus.OFFSET_OVERFLOW_BADLY: int(ResponseCode.PULL_OFFSET_MOVED),
    GetStatus.OFFSET_TOO_SMALL: int(ResponseCode.PULL_OFFSET_MOVED),
    GetStatus.OFFSET_RESET: int(ResponseCode.PULL_OFFSET_MOVED),
}

FOUND: Final = GetStatus.FOUND


def kept_answer(kept: PutOutcome, header: Header | None = None) -> Answer:
    """The answer to a request whose messages are where the outcome says."""
    return Answer(KEPT_CODES[kept], header, KEPT_REMARKS.get(kept))


def put_refused(status: PutStatus, store: MessageStore) -> Refusal:
    """The answer to a put that did not store its message, with the cause that the store gives
    now.
    """
    code, remark = PUT_ANSWERS[status]
    limit = store.config.max_message_size_bytes
    remark = (remark or status.name).format(cause=store.flags.cause, max_message_size_bytes=limit)
    return Refusal(code, remark)


def first_put_refused(status: PutStatus, store: MessageStore) -> Refusal:
    """As `put_refused`, for a request of which this put is the first effect.

    If only the next segment of the log is missing, the request is postponed until it is there.
    """
    return PutPostponed() if status is PutStatus.SEGMENT_LATE else put_refused(status, store)


def refusal(error: Exception) -> Answer | None:
    """The answer to an exception that means something to the client; None for a bug of ours."""
    if isinstance(error, Refusal):
        return Answer(error.code, error.header, error.remark)
    if isinstance(error, StoreError):
        return Answer(int(ResponseCode.SYSTEM_ERROR), remark=str(error))
    return None
