"""The messages that users send and receive. It imports no wire code or client."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import ConfigurationError
from aerobee.store.format.priority import PRIORITY_MAX
from aerobee.store.format.system_names import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.send_result import MessageQueue


@dataclass(slots=True)
class Message:
    """A message to send; the same object may be sent again.

    `keys` are for queries by key, `tag` for consumers' filters. Messages with equal `ordering_key`
    (RocketMQ's sharding key) go to the same queue. With `wait_store_ok` false the broker answers
    before the message is on disk. A bytearray or memoryview is copied. Raises: TypeError if the
    body is not bytes, or `flag` no int.

    At most one of these delays the delivery: `delay`, in seconds, or `deliver_at`, both with a
    precision of a millisecond and for brokers since 5.0 only; or a `delay_level` above 0, from the
    broker's table: normally 1s 5s 10s 30s 1m … 2h for 1 to 18.

    `priority`, from 0 on, chooses the queue, up to the last one; a topic of the type PRIORITY is
    popped from the highest down. It is for brokers since 5.4, and for messages that are neither
    delayed nor ordered.
    """

    topic: str
    body: bytes
    _: KW_ONLY
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    ordering_key: str | None = None
    delay_level: int = 0
    wait_store_ok: bool = True
    delay: float | timedelta | None = None
    deliver_at: datetime | None = None
    buyer_id: str | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.body, str):
            raise TypeError("a message body is bytes: encode it, for example body.encode()")
        if isinstance(self.body, (bytearray, memoryview)):
            # Its content may change before the message is sent.
            self.body = bytes(self.body)
        if not isinstance(self.body, bytes):
            raise TypeError(f"a message body is bytes, not {type(self.body).__name__}")
        if not isinstance(self.flag, int):
            raise TypeError(f"flag is an int, not {type(self.flag).__name__}")
        if isinstance(self.keys, str):
            raise TypeError("keys is a sequence of strings: write keys=[...]")
        if not isinstance(self.keys, (list, tuple)):
            # An iterator would be at its end when the keys are written.
            self.keys = tuple(self.keys)

    @property
    def delayed(self) -> bool:
        """Whether the delivery is delayed."""
        return bool(self.delay_level or self.delay is not None or self.deliver_at is not None)

    @property
    def alone(self) -> bool:
        """Whether it is sent in no batch: brokers refuse delays there, and see no priorities."""
        return self.priority is not None or self.delayed


class ReceivedMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored message. `message_id` is the same for every copy that a retried send has stored.

    `properties` are all properties, including those that clients and brokers add. `body` is
    decompressed. `queue_offset` counts messages in the queue, `commit_log_offset` bytes in the log.

    `unreadable` says why a body is as it is stored, and not decompressed: it is damaged, too large,
    or a package is missing. Handlers of consumers get no such message.
    """

    topic: str
    body: bytes
    tag: str | None
    keys: Sequence[str]
    properties: Mapping[str, str]
    flag: int
    ordering_key: str | None
    wait_store_ok: bool
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    commit_log_offset: int
    born_at: datetime
    stored_at: datetime
    born_host: str
    store_host: str
    reconsume_times: int
    original_topic: str
    transaction_id: str | None
    priority: int | None = None
    unreadable: str | None = None

    def __hash__(self) -> int:
        return hash((self.queue, self.queue_offset, self.message_id))


DELAY_LEVELS = 18
"""The number of delay levels of brokers with the default messageDelayLevel."""
FLAG_MIN, FLAG_MAX = -(1 << 31), (1 << 31) - 1
BUYER_ID = "BUYER_ID"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def check_message(message: Message, max_size_bytes: int, delay_levels: int = DELAY_LEVELS) -> None:
    """Check a message before it is sent: brokers would refuse or misread an invalid one.

    Raises: ConfigurationError, TypeError. Source: client §1.2 (Validators).
    """
    check_topic(message.topic)
    if not message.body:
        raise ConfigurationError(f"the body of a message to {message.topic} is empty")
    if len(message.body) > max_size_bytes:
        raise ConfigurationError(
            f"the body of a message to {message.topic} has {len(message.body)} bytes, "
            f"more than max_message_size = {max_size_bytes}"
        )
    if not FLAG_MIN <= message.flag <= FLAG_MAX:
        raise ConfigurationError(f"flag is {message.flag}: {FLAG_MIN} to {FLAG_MAX}")
    if message.delayed:
        check_delay(message, delay_levels)
    if message.priority is not None:
        check_priority(message, message.priority)
    for name, value in message.properties.items():
        check_property(name, value)
        if name == BUYER_ID:
            raise ConfigurationError(f"property name {name} is reserved; use buyer_id")
    if message.tag:
        check_tag(message.tag)
    if message.keys:
        check_keys(message.keys)
    if message.ordering_key:
        check_text("ordering_key", message.ordering_key)
    if message.buyer_id:
        check_text("buyer_id", message.buyer_id)


def check_topic(topic: str) -> None:
    """Check that clients may send to a topic. Raises: ConfigurationError."""
    check_name("topic", topic, TOPIC_MAX)
    if topic in FORBIDDEN_TOPICS:
        raise ConfigurationError(f"clients may not send to topic {topic}")


def check_priority(message: Message, priority: int) -> None:
    """Check that a broker would go by this priority. Raises: ConfigurationError, TypeError."""
    if not isinstance(priority, int):
        raise TypeError(f"priority is an int, not {type(priority).__name__}")
    if not 0 <= priority <= PRIORITY_MAX:
        raise ConfigurationError(
            f"priority is {priority}: 0 is the lowest, {PRIORITY_MAX} the most"
        )
    if message.delayed or message.ordering_key:
        # A broker would drop the priority without a word.
        other = "a delay" if message.delayed else "an ordering_key"
        raise ConfigurationError(f"a message has a priority and {other}: give one of them")


def check_delay(message: Message, levels: int) -> None:
    """Check the delay of a message. Raises: ConfigurationError, TypeError."""
    delays = [
        name
        for name, value in (
            ("delay_level", message.delay_level or None),
            ("delay", message.delay),
            ("deliver_at", message.deliver_at),
        )
        if value is not None
    ]
    if len(delays) > 1:
        raise ConfigurationError(f"a message has {' and '.join(delays)}: give one of them")
    level = message.delay_level
    if not isinstance(level, int):
        raise TypeError(f"delay_level is an int, not {type(level).__name__}")
    if not 0 <= level <= levels:
        # A broker silently replaces a level above its last one by its last one.
        raise ConfigurationError(
            f"delay_level is {level}: 0 is none, then 1 to {levels} (delay_levels of the producer)"
        )
    timer_of(message)


def timer_of(message: Message) -> tuple[str, int] | None:
    """The property that sets the timer of a message, and its value.

    Raises: ConfigurationError, TypeError. Source: semantics §9.1.
    """
    if message.deliver_at is not None:
        at = message.deliver_at
        if not isinstance(at, datetime):
            raise TypeError(f"deliver_at is a datetime, not {type(at).__name__}")
        if at.tzinfo is None:
            raise ConfigurationError("deliver_at has no time zone: write datetime.now(UTC) + …")
        return "TIMER_DELIVER_MS", (at - EPOCH) // MILLISECOND
    if message.delay is None:
        return None
    delay_ms = milliseconds("delay", message.delay)
    if delay_ms % 1000:
        return "TIMER_DELAY_MS", delay_ms
    return "TIMER_DELAY_SEC", delay_ms // 1000


def milliseconds(name: str, duration: float | timedelta) -> int:
    """A duration in ms, rounded up, so that no delivery is early.

    Raises: ConfigurationError, TypeError.
    """
    if not isinstance(duration, (int, float, timedelta)):
        raise TypeError(f"{name} is seconds or a timedelta, not {type(duration).__name__}")
    try:
        delay = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    except (OverflowError, ValueError):
        raise ConfigurationError(f"{name} is {duration} s: no duration") from None
    if delay < timedelta(0):
        raise ConfigurationError(f"{name} is {delay.total_seconds():g} s: it begins at 0")
    return math.ceil(delay / MILLISECOND)


def check_property(name: str, value: str) -> None:
    """Check that a property does not break or overwrite others.

    Raises: ConfigurationError, TypeError.
    """
    if name in RESERVED_PROPERTIES:
        raise ConfigurationError(f"property name {name} is reserved; use the message's own fields")
    check_text(f"the name of property {name!r}", name)
    check_text(f"property {name!r}", value)
    if not name.strip() or not value.strip():
        raise ConfigurationError(f"property {name!r} has an empty name or value")


def check_tag(tag: str) -> None:
    """Check that a subscription can name a tag. Raises: ConfigurationError, TypeError."""
    check_text("tag", tag)
    if tag != tag.strip() or "||" in tag:
        raise ConfigurationError(f"tag {tag!r}: blanks around it and || cannot be subscribed to")


def check_keys(keys: Sequence[str]) -> None:
    """Check that no key contains a separator of keys. Raises: ConfigurationError, TypeError."""
    for key in keys:
        check_text("a key", key)
        if not key or key.split() != [key]:
            raise ConfigurationError(f"key {key!r} is empty or has a blank, which separates keys")


def check_text(what: str, text: str) -> None:
    """Check that a text can be in properties. Raises: ConfigurationError, TypeError."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    if "\x01" in text or "\x02" in text:
        raise ConfigurationError(f"{what}: {text!r} has \\x01 or \\x02, which separate properties")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigurationError(f"{what}: {text!r} is no text that has a UTF-8 form") from None


def check_name(kind: str, name: str, longest: int) -> None:
    """Check that brokers accept the name of a topic or group. Raises: ConfigurationError."""
    if not name or not NAME_CHARACTERS.issuperset(name):
        raise ConfigurationError(f"{kind} {name!r}: use letters, digits and % | _ -")
    if len(name) > longest:
        raise ConfigurationError(f"{kind} {name[:20]}… is longer than {longest} characters")


TOPIC_MAX = 127
GROUP_MAX = 120
NAME_CHARACTERS = frozenset("%|-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
FORBIDDEN_TOPICS = frozenset(
    {
        GIVEN_UP_TOPIC,
        HALF_TOPIC,
        OFFSET_MOVED_TOPIC,
        OP_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
    }
)
RESERVED = """1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP CLUSTER CONSUME_START_TIME
    CORRECTION_FLAG CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC DUP_INFO
    EXTEND_UNIQ_INFO INNER_BASE INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET INNER_NUM INSTANCE_ID
    KEYS MAX_OFFSET MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE ORIGIN_GROUP
    ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET PUSH_REPLY_TIME REAL_QID REAL_TOPIC
    RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL TIMER_DELAY_MS
    TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS
    TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON TRANSACTION_CHECK_TIMES TRANSFER_FLAG TRAN_MSG
    TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT _SYS_MSG_PRIORITY_ __BORNHOST __CRC32#
    __SHARDINGKEY __transactionId__"""
RESERVED_PROPERTIES = frozenset(RESERVED.split())
"""Properties reserved by Java's clients and by brokers; CHECK_IMMUNITY_TIME_IN_SECONDS is not."""
