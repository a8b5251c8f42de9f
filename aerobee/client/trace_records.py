"""The records of a message trace: their kinds, and the fields of each kind. Pure.

Source: semantics §15 (TraceDataEncoder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
"""The fields after the kind, in order; records of older clients lack the last ones."""
SHORT_PUB = 13
"""The number of fields of a Pub before 4.1, which has no offsetMsgId and ends with `success`."""
MESSAGE_TYPES = ("NORMAL", "TRANSACTION_HALF", "TRANSACTION_COMMIT", "DELAY", "ORDER")
CONTEXT_CODES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURN_NULL", "FAILED")


def records_in(body: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """The kind and the fields of each record in a trace message's body, without unknown kinds."""
    for text in body.decode("utf-8", "replace").split(RECORD_END):
        kind, *values = text.split(FIELD_END)
        names = FIELDS.get(kind)
        if names is None:
            continue
        if kind == "Pub" and 1 + len(values) == SHORT_PUB:
            names = (*names[:11], "success")
        # Java writes missing values as "null".
        pairs = zip(names, values, strict=False)
        yield kind, {name: value for name, value in pairs if value not in ("", "null")}
