"""The records of POP in the log: check points, acknowledgements; and the receipt handle.

A check point lists the messages of a queue that one pop returned, and until when they are
invisible. Check points and acknowledgements pass through the timers into the revive log of the
cluster, where matching ones cancel each other and the remaining messages are delivered again.
Source: semantics §11.2, remoting §3.12 (PopCheckPoint, AckMsg, BatchAckMsg, ExtraInfoUtil).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.header import I64
from aerobee.store.format.system_names import RETRY_PREFIX, REVIVE_LOG_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
ORDER_REVIVE_QID: Final = 999
"""In place of a revive queue, for messages of orderly pops."""
GRACE_MS: Final = 2_000
"""How long after its time a check point waits for late acknowledgements, and for changes of it."""
OFFSETS_MAX: Final = 65_536
FAILURE_DIGITS: Final = 9
BATCHED: Final = -1
"""The `ao` of an acknowledgement that carries a list."""
RECEIPT_PARTS: Final = 8
PROXY_PARTS: Final = 2
"""The parts that RocketMQ's proxy adds to a receipt handle: where the message lies in the log, and
for one that was hidden anew its queue offset before that.
"""
_encode: Final = msgspec.json.Encoder().encode
NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""In a receipt handle; two of them are added to a time that fits a long."""


def revive_topic(cluster: str) -> str:
    """The topic where check points and acknowledgements arrive from the timers."""
    return f"{REVIVE_LOG_PREFIX}{cluster}"


def retry_topic_v1(topic: str, group: str) -> str:
    """The topic of messages that were not acknowledged in time."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """The topic of such messages with `enableRetryTopicV2`."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def is_of_a_group(topic: str, group: str, groups: Callable[[str], object | None]) -> bool:
    """Whether what looks like the first form of a retry topic of this group's pops is the retry
    topic of another group, `groups` being those that exist: `%RETRY%g_t` is that of the group `g_t`
    as well as that of `g` and `t`. With access control, rights on `g` and `t` do not open it.
    """
    rest = topic.removeprefix(RETRY_PREFIX)
    return rest != topic and rest.startswith(f"{group}_") and groups(rest) is not None


class PopKey(NamedTuple):
    """Identifies a pop of a queue: the common fields of its check point and acknowledgements."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker: str


class PopRecordFields(Body, msgspec.Struct, kw_only=True):
    """The common fields of all records of a pop. Times in ms."""

    topic: str = msgspec.field(name="t")
    group: str = msgspec.field(name="c")
    queue_id: int = msgspec.field(name="q")
    start_offset: I64 = msgspec.field(name="so")
    pop_time: I64 = msgspec.field(name="pt")
    broker: str = msgspec.field(name="bn", default="")

    @property
    def key(self) -> PopKey:
        """The key of the pop."""
        return PopKey(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker,
        )

    def to_bytes(self) -> bytes:
        """Compact JSON, in the order in which members are declared: two of them for each pop."""
        return _encode(self)


class CheckPoint(PopRecordFields, kw_only=True):
    """Messages of one queue returned by one pop; times in ms. `diffs` are relative to the start."""

    invisible_time: I64 = msgspec.field(name="it")
    bit_map: int = msgspec.field(name="bm", default=0)
    count: int = msgspec.field(name="n", default=0)
    revive_offset: I64 = msgspec.field(name="ro", default=0)
    diffs: list[int] = msgspec.field(name="d", default_factory=list)
    revive_times: str | int | msgspec.UnsetType = msgspec.field(name="rp", default=msgspec.UNSET)
    """How often putting a message back failed; absent before the first failure."""
    revive_time: I64 = msgspec.field(name="reviveTime", default=0)
    log_end: I64 | msgspec.UnsetType = msgspec.field(name="le", default=msgspec.UNSET)
    """Where the log ended at the pop. Not known to RocketMQ, whose check points have none."""

    @property
    def failures(self) -> int:
        """How often putting a message back failed; 0 where that cannot be parsed."""
        text = str(self.revive_times or 0)
        return int(text) if text.isascii() and text.isdigit() and len(text) <= FAILURE_DIGITS else 0

    @property
    def due_ms(self) -> int:
        """When unacknowledged messages become visible again."""
        return self.pop_time + self.invisible_time

    @property
    def unique_key(self) -> str:
        """The UNIQ_KEY of its message."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}"
            f"@{self.broker}@{CHECK_POINT_TAG}"
        )

    def offsets(self) -> list[int]:
        """The queue offsets of the messages; in records of old writers they are consecutive.

        Raises: BodyError for more than a pop can return.
        """
        diffs = self.diffs or range(self.count)
        if len(diffs) > OFFSETS_MAX:
            raise BodyError(f"{len(diffs)} messages in one check point, {OFFSETS_MAX} are read")
        return [self.start_offset + diff for diff in diffs]


class Ack(PopRecordFields, kw_only=True, omit_defaults=True):
    """Acknowledged messages of one pop: one, or with `ao` −1 those in `aol`."""

    offset: I64 = msgspec.field(name="ao")
    offsets: list[int] = msgspec.field(name="aol", default_factory=list)

    @classmethod
    def of(cls, key: PopKey, offsets: list[int]) -> Ack:
        """The acknowledgement of one or more messages of a pop."""
        single = len(offsets) == 1
        return cls(
            offset=offsets[0] if single else BATCHED,
            offsets=[] if single else offsets,
            start_offset=key.start_offset,
            group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            pop_time=key.pop_time,
            broker=key.broker,
        )

    @property
    def tag(self) -> str:
        """The tag of its message."""
        return BATCH_ACK_TAG if self.offsets else ACK_TAG

    @property
    def unique_key(self) -> str:
        """The UNIQ_KEY of its message."""
        return (
            f"{self.topic}@{self.queue_id}@{self.offset}@{self.group}@{self.pop_time}"
            f"@{self.broker}@{ACK_TAG}"
        )

    def all_offsets(self) -> list[int]:
        """The queue offsets that it acknowledges."""
        return self.offsets or [self.offset]


class Receipt(NamedTuple):
    """A receipt handle. `retry`: 0 the topic itself, 1 or 2 a retry topic of that version."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    retry: str
    broker: str
    queue_id: int
    offset: int

    @property
    def in_order(self) -> bool:
        """Whether it comes from an orderly pop."""
        return self.revive_qid == ORDER_REVIVE_QID

    def text(self) -> str:
        """The text of the property POP_CK."""
        return " ".join(map(str, self))


def receipt_of(text: str, offset: int = -1) -> Receipt:
    """Parse a receipt handle; without its last part `offset` is used. Raises: BodyError."""
    parts = text.split(" ")
    if len(parts) == RECEIPT_PARTS - 1:
        parts.append(str(offset))
    if RECEIPT_PARTS < len(parts) <= RECEIPT_PARTS + PROXY_PARTS:
        del parts[RECEIPT_PARTS:]
    if len(parts) != RECEIPT_PARTS:
        raise BodyError(f"receipt handle {text[:80]!r} has not {RECEIPT_PARTS} parts")
    retry, broker = parts[4:6]
    numbers = parts[:4] + parts[6:]
    if not all(NUMBER.fullmatch(number) for number in numbers):
        raise BodyError(f"receipt handle {text[:80]!r}: not all of its numbers are numbers")
    start, popped, hidden, revive, queue_id, at = map(int, numbers)
    return Receipt(start, popped, hidden, revive, retry, broker, queue_id, at)
