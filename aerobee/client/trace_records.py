"""Records of a message trace: their kinds, the fields of each, and one message's own. Pure.

Source: semantics §15 (TraceDataEncoder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "CONTEXT_CODES",
    "FIELDS",
    "FIELD_END",
    "MESSAGE_TYPES",
    "RECORD_END",
    "SHORT_PUB",
    "records_in",
]

RECORD_END = "\x02"
FIELD_END = "\x01"

FIELDS: dict[str, tuple[str, ...]] = {
    "Pub": (
        *("time", "region", "group", "topic", "msgId", "tags", "keys", "storeHost"),
        *("bodyLength", "costMs", "msgType", "offsetMsgId", "success", "clientHost"),
    ),
    "SubBefore": ("time", "region", "group", "requestId", "msgId", "retryTimes", "keys"),
    "SubAfter": (
        *("requestId", "msgId", "costMs", "success", "keys", "contextCode", "time", "group"),
    ),
    "EndTransaction": (
        *("time", "region", "group", "topic", "msgId", "tags", "keys", "storeHost"),
        *("msgType", "transactionId", "state", "fromCheck"),
    ),
    "Recall": ("time", "region", "group", "topic", "msgId", "success"),
}
"""The fields behind the kind, in order; later ones are absent in the records of older clients."""
SHORT_PUB = 13
"""A Pub of a client before 4.1 has so many fields, the last of them `success`: no offsetMsgId."""
MESSAGE_TYPES = ("NORMAL", "TRANSACTION_HALF", "TRANSACTION_COMMIT", "DELAY", "ORDER")
CONTEXT_CODES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURN_NULL", "FAILED")


def records_in(body: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Kind and named fields of each record in the body of a trace message; unknown kinds not."""
    for text in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *values = text.split(FIELD_END)
        names = FIELDS.get(kind)
        if names is None:
            continue
        if kind == "Pub" and 1 + len(values) == SHORT_PUB:
            names = (*names[:11], "success")
        # Java writes what it does not have as "null".
        pairs = zip(names, values, strict=False)
        yield kind, {name: value for name, value in pairs if value not in ("", "null")}
