"""Popped records → messages of the 5.x clients.

Source: grpc §2.6, §2.10 (GrpcConverter.buildMessage, PopMessageProcessor of the proxy).
"""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.grpc.translation.bodies import as_read
from aerobee.broker.grpc.translation.handles import Handle
from aerobee.broker.grpc.translation.message_types import DELIVER_AT, GROUP, type_of
from aerobee.broker.grpc.translation.system_properties import SYSTEM_PROPERTIES
from aerobee.broker.pop.pop_records import Receipt, receipt_of
from aerobee.remoting.errors import BodyError
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import DigestType
from aerobee.remoting.server.addresses import host_text
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.priority import PRIORITY, priority_of
from aerobee.store.format.properties import decode
from aerobee.store.format.record import Record, records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.remoting.wire.headers.pop import PopMessageResponse

SPACE: Final = " "
RETRIES: Final = frozenset({"1", "2"})
"""The `retry` of receipts in retry topics, the older one and the newer one."""
OF_SECOND_FORM: Final = "+"
"""In the names of retry topics of the second form alone."""
INT32_MAX: Final = 2**31 - 1
"""Of producers over remoting, numbers may be any."""


class PopAnswer(NamedTuple):
    """The fields of an answer to a pop that are about all of its messages."""

    pop_time: int
    invisible_ms: int
    revive_qid: int
    broker: str
    topic: str
    starts: dict[tuple[str, str], int]
    """`retry` and queue → the first offset of the pop."""
    counts: dict[tuple[str, str], int]
    """Of an orderly pop: how often a message, or all of a queue, were handed out before."""

    @classmethod
    def of(cls, header: PopMessageResponse, broker: str, topic: str) -> PopAnswer:
        """Read the header of an answer to a pop of this topic."""
        return cls(
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            broker,
            topic,
            numbers(header.start_offset_info),
            numbers(header.order_count_info),
        )

    def handle(self, record: Record, receipt: str | None) -> Handle:
        """The receipt handle of a message. `receipt` is the property of one that is delivered
        again; of another pop, or of a producer, it says nothing.
        """
        if receipt is not None:
            try:
                again = receipt_of(receipt)
            except BodyError:
                pass  # another broker's; the message is acknowledged where it lies
            else:
                if again.retry in RETRIES and again.pop_time == self.pop_time:
                    return Handle(again, record.physical_offset)
        queue_id, offset, retry = record.queue_id, record.queue_offset, "0"
        if record.topic != self.topic:
            # A message that is delivered again, and has no room for its receipt.
            retry = "2" if OF_SECOND_FORM in record.topic else "1"
        return Handle(
            Receipt(
                self.starts.get((retry, f"{queue_id}"), offset),
                self.pop_time,
                self.invisible_ms,
                self.revive_qid,
                retry,
                self.broker,
                queue_id,
                offset,
            ),
            record.physical_offset,
        )

    def times_before(self, record: Record, retry: str) -> int:
        """How often a message was delivered before; `retry` of its receipt."""
        counts = self.counts
        if not counts:
            return record.reconsume_times
        queue_id = record.queue_id
        usual = counts.get((retry, f"{queue_id}"), 0)
        count = counts.get((retry, f"qo{queue_id}%{record.queue_offset}"), usual)
        return max(count, record.reconsume_times)


class PoppedMessage(NamedTuple):
    """One popped message, before it is one of the client's protocol."""

    record: Record
    properties: dict[str, str]
    handle: Handle
    attempt: int


def numbers(text: str | None) -> dict[tuple[str, str], int]:
    """The number behind each `retry` and name in `<retry> <name> <number>;…`."""
    numbers = {}
    for entry in (text or "").split(";"):
        retry, _, rest = entry.partition(SPACE)
        name, _, number = rest.partition(SPACE)
        if number.isdigit():
            numbers[retry, name] = int(number)
    return numbers


def received(views: Sequence[bytes | memoryview], popped: PopAnswer) -> Iterator[PoppedMessage]:
    """The messages of an answer, in its order. Raises: RecordDamaged."""
    for record in records(views):
        properties = decode(record.properties)
        handle = popped.handle(record, properties.get("POP_CK"))
        before = popped.times_before(record, handle.receipt.retry)
        yield PoppedMessage(record, properties, handle, before + 1)


def message_of(
    record: Record,
    properties: dict[str, str],
    topic: Any,
    *,
    handle: Handle | None = None,
    attempt: int,
) -> Any:
    """A record as a message of this topic, a resource. `handle` None: it cannot be acknowledged."""
    body, encoding = as_read(record.body, record.sys_flag)
    # Without a digest that fits, a client finds a body corrupted that the disk has damaged.
    digest = md5(body, usedforsecurity=False).hexdigest().upper() if record.is_whole else ""
    system = messages.SystemProperties(
        keys=properties["KEYS"].split() if "KEYS" in properties else (),
        message_id=properties.get("UNIQ_KEY")
        or offset_id(record.store_host, record.physical_offset),
        body_digest=messages.Digest(type=DigestType.MD5, checksum=digest),
        body_encoding=encoding,
        message_type=type_of(properties),
        born_host=properties.get("__BORNHOST") or host_text(record.born_host),
        store_host=host_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(attempt, INT32_MAX),
    )
    set_time(system.born_timestamp, record.born_timestamp)
    set_time(system.store_timestamp, record.store_timestamp)
    if handle is not None:
        system.receipt_handle = handle.text()
        set_time(system.invisible_duration, handle.receipt.invisible_time)
    add_optional(system, properties)
    return messages.Message(
        topic=topic,
        user_properties={
            name: value for name, value in properties.items() if name not in SYSTEM_PROPERTIES
        },
        system_properties=system,
        body=body,
    )


def add_optional(system: Any, properties: dict[str, str]) -> None:
    """Set the properties that only some messages have."""
    tag, group = properties.get("TAGS"), properties.get(GROUP)
    if tag is not None:
        system.tag = tag
    if group is not None:
        system.message_group = group
    if (trace := properties.get("TRACE_CONTEXT")) is not None:
        system.trace_context = trace
    if (priority := priority_of(properties.get(PRIORITY))) is not None:
        system.priority = priority
    if (deliver_ms := integer(properties.get(DELIVER_AT))) is not None:
        set_time(system.delivery_timestamp, deliver_ms)
    if (dead_topic := properties.get("DLQ_ORIGIN_TOPIC")) is not None:
        system.dead_letter_queue.topic = dead_topic
        system.dead_letter_queue.message_id = properties.get("DLQ_ORIGIN_MESSAGE_ID", "")


def integer(text: str | None) -> int | None:
    """The number in a property; None where there is none, or one that no field takes."""
    digits = (text or "").removeprefix("-")
    if text is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        return None
    return int(text)


def set_time(field: Any, time_ms: int) -> None:
    """Set a Timestamp or a Duration to milliseconds."""
    field.seconds, rest_ms = divmod(time_ms, 1000)
    field.nanos = rest_ms * 1_000_000
