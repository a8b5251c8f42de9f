"""Bodies of POP: batch acknowledgements, and which queues a client uses in which mode.

Source: remoting §3.12, §3.13.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.header import I32, I64

if TYPE_CHECKING:
    from collections.abc import Iterable

LONG_NAMES = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}
"""Other spellings of the members of an acknowledgement."""
BITS_MAX = 1 << 16
"""No pop returns more messages of one queue than that."""
BITS_OF = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
"""The bits that are set in each byte."""


class BatchAck(Body, msgspec.Struct, kw_only=True):
    """Messages of one pop of one queue. `bits`: Base64 of a little-endian set from the start on."""

    bits: str = msgspec.field(name="b")
    group: str = msgspec.field(name="c")
    invisible_time: I64 = msgspec.field(name="it")
    pop_time: I64 = msgspec.field(name="pt")
    queue_id: I32 = msgspec.field(name="q")
    retry: str = msgspec.field(name="r", default="0")
    revive_qid: I32 = msgspec.field(name="rq")
    start_offset: I64 = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")


class BatchAckRequest(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of BATCH_ACK_MESSAGE."""

    acks: list[BatchAck] = []
    broker_name: str | None = None

    @classmethod
    def repaired(cls, document: Any) -> Any:
        """Long names become short ones."""
        acks = document.get("acks") if isinstance(document, dict) else None
        for ack in acks if isinstance(acks, list) else ():
            if isinstance(ack, dict):
                for long, short in LONG_NAMES.items():
                    if long in ack:
                        ack[short] = ack.pop(long)
        return document


def offsets_in(bits: str, start_offset: int) -> list[int]:
    """The offsets of a bit set, ascending. Raises: BodyError."""
    try:
        raw = a2b_base64(bits, strict_mode=True)
    except ValueError as error:
        raise BodyError(f"BatchAckRequest: b is no Base64: {bits[:40]!r}") from error
    if len(raw) * 8 > BITS_MAX:
        raise BodyError(
            f"BatchAckRequest: b has {len(raw)} bytes, at most {BITS_MAX // 8} are read"
        )
    bits_set = int.from_bytes(raw, "little")
    if not bits_set & (bits_set + 1):
        # All from the first one on, as of a pop without a filter.
        return list(range(start_offset, start_offset + bits_set.bit_length()))
    places = zip(range(start_offset, start_offset + 8 * len(raw), 8), raw, strict=True)
    return [place + bit for place, byte in places if byte for bit in BITS_OF[byte]]


def bit_set(offsets: Iterable[int], start_offset: int) -> str:
    """The offsets as a bit set."""
    value = 0
    for offset in offsets:
        value |= 1 << (offset - start_offset)
    return b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


class AssignmentRequest(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of QUERY_ASSIGNMENT."""

    client_id: str
    consumer_group: str
    message_model: str = "CLUSTERING"
    strategy_name: str = "AVG"
    topic: str


class MessageQueueAssignment(Body, msgspec.Struct, rename="camel", frozen=True):
    """One queue, and whether the client PULLs from it or POPs."""

    message_queue: MessageQueue
    mode: str = "PULL"


class AssignmentResponse(Body, msgspec.Struct, rename="camel"):
    """The assignment. No list at all: keep the present one. An empty list: drop all queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class RequestModeRequest(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of SET_MESSAGE_REQUEST_MODE."""

    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: I32 = -1
    topic: str


class RequestModes(Body, msgspec.Struct, rename="camel", kw_only=True):
    """Body of GET_ALL_MESSAGE_REQUEST_MODE: what was set, by topic and group."""

    message_request_mode_map: dict[str, dict[str, RequestModeRequest]] = {}
