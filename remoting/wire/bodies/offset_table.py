"""Queue → offset as Java writes a map whose keys are objects. It is no JSON, and must not be.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}`: no spaces, members sorted.
An array of pairs fails in every Java client. Source: remoting §3.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.remoting.wire.bodies.queue_lock import MessageQueue

_encode = msgspec.json.Encoder(order="sorted").encode


def offset_row(queue: MessageQueue, offset: int) -> bytes:
    """One row of an `offset_table`."""
    return _encode(queue) + b":%d" % offset


def offset_table(rows: Iterable[bytes]) -> bytes:
    """Body of RESET_CONSUMER_CLIENT_OFFSET and of the answer to 222 (ResetOffsetBody)."""
    return b'{"offsetTable":{' + b",".join(rows) + b"}}"


def offset_row_for_cpp(queue: MessageQueue, offset: int) -> bytes:
    """One row of an `offset_table_for_cpp`."""
    return _encode(
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
    )


def offset_table_for_cpp(rows: Iterable[bytes]) -> bytes:
    """The same in the only form that the C++ client reads (ResetOffsetBodyForC)."""
    return b'{"offsetTable":[' + b",".join(rows) + b"]}"
