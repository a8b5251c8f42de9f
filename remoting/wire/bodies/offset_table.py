"""Queue → offset as Java writes a map whose keys are objects. It is no JSON, and must not be.

`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5}}`: no spaces, members sorted.
An array of pairs fails in every Java client. Source: remoting §3.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.wire.bodies.queue_lock import MessageQueue

__all__ = ["offset_table", "offset_table_for_cpp"]

_encode = msgspec.json.Encoder(order="sorted").encode


def offset_table(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Body of RESET_CONSUMER_CLIENT_OFFSET and of the answer to 222 (ResetOffsetBody)."""
    pairs = (_encode(queue) + b":%d" % offset for queue, offset in offsets.items())
    return b'{"offsetTable":{' + b",".join(pairs) + b"}}"


def offset_table_for_cpp(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The same in the only form that the C++ client reads (ResetOffsetBodyForC)."""
    rows = [
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
        for queue, offset in offsets.items()
    ]
    return _encode({"offsetTable": rows})
