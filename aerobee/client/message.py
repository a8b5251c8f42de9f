"""The values users hold: what they send, what they get, and where it lies. No wire, no client."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

__all__ = ["Message", "MessageQueue", "ReceivedMessage", "SendResult", "SendStatus"]


@dataclass(slots=True)
class Message:
    """A message to send; the same object may be sent again.

    `keys` are for looking it up later, `tag` for consumers' filters. Messages with equal
    `ordering_key` go to the same queue. A `delay_level` above 0 says after how long it is
    delivered, by the broker's table: normally 1s 5s 10s 30s 1m … 2h for 1 to 18. With
    `wait_store_ok` false the broker answers before the disk. Raises: TypeError if the body is not
    bytes.
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

    def __post_init__(self) -> None:
        if isinstance(self.body, str):
            raise TypeError("a message body is bytes: encode it, for example body.encode()")
        if not isinstance(self.body, bytes):
            raise TypeError(f"a message body is bytes, not {type(self.body).__name__}")
        if isinstance(self.keys, str):
            raise TypeError("keys is a sequence of strings: write keys=[...]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A stored message. `message_id` is the same for every copy that a retried send left behind.

    `properties` holds all of them, those that clients and brokers add included. `body` is
    unpacked. `queue_offset` counts messages in the queue, `commit_log_offset` bytes in the log.
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


def check_message(message: Message, max_size_bytes: int) -> None:
    """Refuse what no broker would take, before anything is sent.

    Raises: ConfigurationError. Source: client §1.2 (Validators).
    """
    check_topic(message.topic)
    if not message.body:
        raise ConfigurationError(f"the body of a message to {message.topic} is empty")
    if len(message.body) > max_size_bytes:
        raise ConfigurationError(
            f"the body of a message to {message.topic} has {len(message.body)} bytes, "
            f"more than max_message_size = {max_size_bytes}"
        )
    if message.delay_level < 0:
        raise ConfigurationError(f"delay_level is {message.delay_level}: 0 is none, 1 the first")
    for name, value in message.properties.items():
        check_property(name, value)
    for text in (message.tag, message.ordering_key, *message.keys):
        check_separators(text or "")


def check_topic(topic: str) -> None:
    """Refuse a topic that no client may send to. Raises: ConfigurationError."""
    check_name("topic", topic, TOPIC_MAX)
    if topic in FORBIDDEN_TOPICS:
        raise ConfigurationError(f"clients may not send to topic {topic}")


def check_property(name: str, value: str) -> None:
    """Refuse a property that would break or overwrite others. Raises: ConfigurationError."""
    if name in RESERVED_PROPERTIES:
        raise ConfigurationError(f"property name {name} is reserved; use the message's own fields")
    if not name.strip() or not value.strip():
        raise ConfigurationError(f"property {name!r} has an empty name or value")
    check_separators(name)
    check_separators(value)


def check_separators(text: str) -> None:
    """Refuse what would end a property early. Raises: ConfigurationError."""
    if "\x01" in text or "\x02" in text:
        raise ConfigurationError(f"{text!r} contains \\x01 or \\x02, which separate properties")


def check_name(kind: str, name: str, longest: int) -> None:
    """Refuse a topic or group name that no broker accepts. Raises: ConfigurationError."""
    if not name or not NAME_CHARACTERS.issuperset(name):
        raise ConfigurationError(f"{kind} {name!r}: use letters, digits and % | _ -")
    if len(name) > longest:
        raise ConfigurationError(f"{kind} {name[:20]}… is longer than {longest} characters")


TOPIC_MAX = 127
GROUP_MAX = 120
NAME_CHARACTERS = frozenset("%|-_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
FORBIDDEN_TOPICS = frozenset(
    {
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
RESERVED = """1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP CHECK_IMMUNITY_TIME_IN_SECONDS CLUSTER
    CONSUME_START_TIME CORRELATION_ID DELAY DLQ_ORIGIN_MESSAGE_ID DLQ_ORIGIN_TOPIC INNER_BASE
    INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET INNER_NUM INSTANCE_ID KEYS MAX_OFFSET
    MAX_RECONSUME_TIMES MIN_OFFSET MSG_REGION MSG_TYPE ORIGIN_MESSAGE_ID PGROUP POP_CK
    PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS
    TIMER_DELAY_LEVEL TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DEL_UNIQKEY
    TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON
    TRANSACTION_CHECK_TIMES TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TTL UNIQ_KEY WAIT
    __BORNHOST __CRC32# __SHARDINGKEY __transactionId__"""
RESERVED_PROPERTIES = frozenset(RESERVED.split())
