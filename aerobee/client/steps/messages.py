"""Encodes and decodes messages: property strings, batch items, stored records. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aerobee.client.compression import UNPACKED_MAX, TooLargeError, unpack
from aerobee.client.message import BUYER_ID, ReceivedMessage, timer_of
from aerobee.client.namespaces import plain
from aerobee.client.send_result import MessageQueue
from aerobee.errors import (
    CompressionError,
    ConfigurationError,
    MessageUnreadableError,
    TransportError,
)
from aerobee.store.format import message_id, properties, record
from aerobee.store.format.batch import BATCH_HEAD
from aerobee.store.format.priority import PRIORITY, priority_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aerobee.client.message import Message
    from aerobee.remoting.wire.headers.send import PushReplyMessage

NOTHING: Mapping[str, str] = {}
COUNTER_DIGITS: Final = 4
"""Digits at the end of a message id that count within a millisecond."""


class NoRoom(Exception):
    """The body of a record takes more bytes than there is room for; `at` is its place."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def property_string(message: Message, uniq_id: str, extra: Mapping[str, str] = NOTHING) -> str:
    """All properties of a message to send, of user and SDK. Raises: ConfigurationError."""
    named = {
        **message.properties,
        "UNIQ_KEY": uniq_id,
        "WAIT": "true" if message.wait_store_ok else "false",
        "TAGS": message.tag or "",
        "KEYS": " ".join(message.keys),
        "__SHARDINGKEY": message.ordering_key or "",
        "DELAY": str(message.delay_level or ""),
        **extra,
    }
    if message.buyer_id:
        named[BUYER_ID] = message.buyer_id
    if message.priority is not None:
        named[PRIORITY] = str(message.priority)
    if timer := timer_of(message):
        named[timer[0]] = str(timer[1])
    return checked_length(properties.encode(named), message.topic)


def checked_length(text: str, topic: str) -> str:
    """Check that the properties of a message fit into a record. Raises: ConfigurationError."""
    if len(text) > properties.PROPERTIES_BYTES_MAX // 4:
        size = len(text.encode())
        if size > properties.PROPERTIES_BYTES_MAX:
            raise ConfigurationError(
                f"the properties of a message to {topic} take {size} bytes, "
                f"at most {properties.PROPERTIES_BYTES_MAX}"
            )
    return text


def batch_item(flag: int, body: bytes, properties: str) -> bytes:
    """One message of a batch body. Source: remoting §4.6."""
    named = properties.encode()
    fixed = BATCH_HEAD.size + record.LENGTH16.size
    size = fixed + len(body) + len(named)
    return b"".join(
        (
            BATCH_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            record.LENGTH16.pack(len(named)),
            named,
        )
    )


def received(
    body: bytes | memoryview,
    broker_name: str,
    namespace: str | None,
    room: Callable[[], int] | None = None,
) -> Iterator[ReceivedMessage]:
    """The records of a pull response, in order, with plain names of the client's namespace.

    A message whose body cannot be decompressed says so: `unreadable`. Raises: NoRoom in front of a
    record whose body takes more than `room()` bytes, of which no more than those were decompressed;
    TransportError.
    """
    at = 0
    while at < len(body):
        most = UNPACKED_MAX if room is None else min(UNPACKED_MAX, room())
        try:
            stored = record.read(body, at)
        except record.RecordDamaged as error:
            text = f"broker {broker_name} sent a broken record: {error}"
            raise TransportError(text).about(broker=broker_name) from error
        at += stored.size
        if room is not None and len(stored.body) > most:
            raise NoRoom(at - stored.size)
        why = None
        try:
            plain_body = _unpacked(stored, most)
        except CompressionError as error:
            if isinstance(error, TooLargeError) and most < UNPACKED_MAX:
                raise NoRoom(at - stored.size) from None
            plain_body, why = bytes(stored.body), str(error)
        yield _with_body(stored, plain_body, broker_name, namespace, why)


def readable(body: bytes | memoryview, broker: str, namespace: str | None) -> ReceivedMessage:
    """The message that a broker sent with a request.

    Raises: MessageUnreadableError, TransportError.
    """
    message = next(received(body, broker, namespace), None)
    if message is None:
        raise TransportError(f"broker {broker} sent no record").about(broker=broker)
    if message.unreadable is not None:
        raise MessageUnreadableError(message)
    return message


def as_stored(
    body: bytes | memoryview, at: int, broker_name: str, namespace: str | None
) -> Iterator[ReceivedMessage]:
    """The records of a response from a place on, with bodies as they are stored.

    Raises: RecordDamaged.
    """
    while at < len(body):
        stored = record.read(body, at)
        at += stored.size
        yield _with_body(stored, bytes(stored.body), broker_name, namespace)


def _unpacked(stored: record.Record, most: int) -> bytes:
    """The body as it was sent. Raises: CompressionError."""
    if not stored.is_whole:
        # Brokers do not check the CRC of a body when they send it.
        raise CompressionError("the body is damaged: it has another CRC than when it was stored")
    return unpack(stored.body, stored.sys_flag, most)


def _with_body(
    stored: record.Record,
    body: bytes,
    broker_name: str,
    namespace: str | None,
    unreadable: str | None = None,
) -> ReceivedMessage:
    named = properties.decode(stored.properties)
    topic, origin = stored.topic, named.get("RETRY_TOPIC", stored.topic)
    if namespace is not None:
        topic, origin = plain(topic, namespace), plain(origin, namespace)
    offset_id = message_id.offset_id(stored.store_host, stored.physical_offset)
    return ReceivedMessage(
        topic=topic,
        body=body,
        tag=named.get("TAGS"),
        keys=tuple(named.get("KEYS", "").split()),
        properties=named,
        flag=stored.flag,
        ordering_key=named.get("__SHARDINGKEY"),
        wait_store_ok=named.get("WAIT") != "false",
        message_id=named.get("UNIQ_KEY", offset_id),
        offset_message_id=offset_id,
        queue=_queue(topic, broker_name, stored.queue_id),
        queue_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        born_at=_instant(stored.born_timestamp),
        stored_at=_instant(stored.store_timestamp),
        born_host=host_text(stored.born_host),
        store_host=host_text(stored.store_host),
        reconsume_times=stored.reconsume_times,
        original_topic=origin,
        transaction_id=named.get("__transactionId__"),
        priority=priority_of(named.get(PRIORITY)),
        unreadable=unreadable,
    )


_queue = lru_cache(maxsize=1024)(MessageQueue)


def pushed(header: PushReplyMessage, body: bytes | memoryview) -> ReceivedMessage:
    """The reply to a request; it is in no queue. Raises: CompressionError."""
    named = properties.decode(header.properties or "")
    return ReceivedMessage(
        topic=header.topic,
        body=unpack(body, header.sys_flag),
        tag=named.get("TAGS"),
        keys=tuple(named.get("KEYS", "").split()),
        properties=named,
        flag=header.flag,
        ordering_key=named.get("__SHARDINGKEY"),
        wait_store_ok=named.get("WAIT") != "false",
        message_id=named.get("UNIQ_KEY", ""),
        offset_message_id="",
        queue=MessageQueue(header.topic, "", header.queue_id),
        queue_offset=-1,
        commit_log_offset=-1,
        born_at=_instant(header.born_timestamp),
        stored_at=_instant(header.store_timestamp),
        born_host=header.born_host or "",
        store_host=header.store_host or "",
        reconsume_times=header.reconsume_times or 0,
        original_topic=header.topic,
        transaction_id=None,
        priority=priority_of(named.get(PRIORITY)),
    )


@lru_cache(maxsize=1024)
def host_text(packed: bytes) -> str:
    """`address:port` of a packed host; IPv6 in brackets."""
    address = ipaddress.ip_address(packed[:-4])
    port = int.from_bytes(packed[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@dataclass(slots=True)
class UniqIds:
    """A source of message ids, unique among all clients as far as address, pid and time are.

    `address` is 4 packed bytes, `salt` any number of this process.
    Source: client §6.1 (MessageClientIDSetter).
    """

    address: bytes
    process_id: int
    salt: int
    counter: int = 0
    _month: tuple[int, int] = field(default=(0, 0))
    """The first ms of the current month in local time, and the first ms of the next."""

    def next(self, wall_ms: int) -> str:
        """A new message id: 32 upper-case hex digits."""
        if not self._month[0] <= wall_ms < self._month[1]:
            self._month = month_of(wall_ms)
        self.counter += 1
        since = wall_ms - self._month[0]
        return message_id.uniq_id(self.address, self.process_id, self.salt, since, self.counter)

    def many(self, wall_ms: int, count: int) -> list[str]:
        """The results of `count` calls of `next`, which has 65,536 ids in a millisecond."""
        prefix = self.next(wall_ms)[:-COUNTER_DIGITS]
        first = self.counter
        self.counter += count - 1
        return [f"{prefix}{n & 0xFFFF:04X}" for n in range(first, first + count)]


FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_000
"""The end of the year 9999, in ms since 1970."""


@lru_cache(maxsize=1024)
def _instant(ms: int) -> datetime:
    """A time; values out of range, which a producer may have written, are clamped."""
    return datetime.fromtimestamp(min(max(ms, FIRST_MS), LAST_MS) / 1000, UTC)


def month_of(wall_ms: int) -> tuple[int, int]:
    """The local month around an instant: its first ms and the first ms of the next one."""
    local = datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone().replace(tzinfo=None)
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(first.year * 12 + first.month, 12)
    after = first.replace(year=year, month=month + 1)
    return int(first.timestamp() * 1000), int(after.timestamp() * 1000)
