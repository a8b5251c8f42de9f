"""Half messages: their properties, op records, and the rules of the check. Pure.

A half is an ordinary record of RMQ_SYS_TRANS_HALF_TOPIC with its target in its properties. Its end
is a record of the op topic, whose body has its offset in the half queue. No other redirection
happens before the end: a delay or a timer begins with the commit. Source: semantics §10
(TransactionalMessageBridge, TransactionalMessageServiceImpl).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.core.drafts import Target, draft_again, target
from aerobee.store.format.properties import PROPERTIES_BYTES_MAX, decode, encode
from aerobee.store.format.record import (
    COMPRESSED,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    MessageDraft,
)
from aerobee.store.format.system_names import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from aerobee.store.format.tags import tags_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.store.format.record import Record


PREPARED: Final = "TRAN_MSG"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
UNIQUE: Final = "UNIQ_KEY"
CHECKS: Final = "TRANSACTION_CHECK_TIMES"
FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
HALF_OFFSET: Final = "AEROBEE_HALF_OFFSET"
"""Ours: the first queue offset of a half, in every copy of it. Java keeps it."""
LATE_END: Final = "AEROBEE_HALF_ENDED"
"""Ours: the end of a half that had been given up, in a record behind it."""

OP_TAG: Final = "d"
OP_PROPERTIES: Final = f"TAGS\x01{OP_TAG}\x02".encode()
OFFSET_DIGITS: Final = 20
HALF_PROPERTIES_MAX: Final = PROPERTIES_BYTES_MAX - 256
"""Checks and the commit add some, so an accepted half can be checked and committed."""


def is_half(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a send asks for a half; its sysFlag does not matter.

    Consumers before 4.6.1 leave the mark on messages that they send back for a retry.
    """
    if properties.get(PREPARED, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and _integer(properties.get("DELAY"), 0) > 0)


def half_of(draft: MessageDraft, properties: dict[str, str]) -> None:
    """Turn a message into its half. Its UNIQ_KEY is the transaction's id from now on."""
    for name in (CHECKS, FIRST_OFFSET, HALF_OFFSET, LATE_END):
        # Properties that only a broker may set, on copies.
        properties.pop(name, None)
    properties[REAL_TOPIC] = draft.topic
    properties[REAL_QUEUE] = str(draft.queue_id)
    properties["__transactionId__"] = properties[UNIQUE]
    draft.topic, draft.queue_id = HALF_TOPIC, 0
    draft.sys_flag &= ~TRANSACTION_MASK
    draft.tags_code = tags_code(properties.get("TAGS"))
    draft.properties = encode(properties).encode()


class Half(NamedTuple):
    """A half: its record and its parsed properties."""

    record: Record
    properties: dict[str, str]
    half_offset: int | None
    """Its first queue offset; None where a copy does not have it."""

    @classmethod
    def of(cls, record: Record) -> Half:
        """Parse the properties of a record of the half topic, or of one that was given up."""
        properties = decode(record.properties)
        half_offset = _integer(properties.get(HALF_OFFSET, properties.get(FIRST_OFFSET)), -1)
        if half_offset >= 0:
            return cls(record, properties, half_offset)
        is_copy = record.topic != HALF_TOPIC or CHECKS in properties
        return cls(record, properties, None if is_copy else record.queue_offset)

    @property
    def producer_group(self) -> str:
        """The producer group of the transaction."""
        return self.properties.get("PGROUP", "")

    @property
    def transaction_id(self) -> str:
        """The unique key of the message."""
        return self.properties.get(UNIQUE, "")

    @property
    def topic(self) -> str:
        """The target topic in its properties; empty when there is none."""
        return self.properties.get(REAL_TOPIC, "")

    @property
    def target(self) -> Target | None:
        """The target; None for a record that is not a half."""
        return target(self.topic, self.properties.get(REAL_QUEUE))

    @property
    def checks(self) -> int:
        """How often its producer was asked."""
        return _integer(self.properties.get(CHECKS), 0)

    @property
    def was_moved(self) -> bool:
        """Whether it is a copy that a check has put."""
        return CHECKS in self.properties or FIRST_OFFSET in self.properties

    @property
    def first_offset(self) -> int:
        """The offset by which an op record may name it, if it was put again unasked; else −1."""
        return _integer(self.properties.get(FIRST_OFFSET), -1)

    def immunity_ms(self, timeout_ms: int) -> int | None:
        """Its immunity time; None when it has none."""
        text = self.properties.get(IMMUNITY)
        if text is None:
            return None
        seconds = _integer(text, -1)
        return timeout_ms if seconds == -1 else seconds * 1_000

    @property
    def key(self) -> int:
        """A number that all copies of one half share, and no other half; valid within this process.

        That offset alone would do, but a queue may have started again at number 0.
        """
        return hash((self.likeness, self.half_offset))

    @property
    def likeness(self) -> int:
        """Identifies a copy that has no first offset; a producer may repeat it.

        It includes the born host, which no other producer can forge.
        """
        return hash((self.transaction_id, self.record.born_timestamp, self.record.born_host))

    @property
    def keys(self) -> tuple[int, int]:
        """The keys under which its copies are known: those with a first offset, and others."""
        return self.key, hash((self.likeness, None))

    @property
    def late_end(self) -> bool:
        """Whether it is the record of a late end of a half that was given up."""
        return LATE_END in self.properties

    def commit(self, draft: MessageDraft) -> dict[str, str]:
        """Make a copy of the record the committed message; returns its properties, for the
        hooks.
        """
        draft.sys_flag = draft.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        draft.prepared_transaction_offset = self.record.physical_offset
        return {
            name: value
            for name, value in self.properties.items()
            if name not in (REAL_TOPIC, REAL_QUEUE, HALF_OFFSET)
        }


# ── The check ──


class Step(Enum):
    """The decision of the check about an open half."""

    STOP = auto()
    """The half is too new, and so is everything behind it."""
    KEEP = auto()
    """Put it again at the end of the queue: its immunity is not over."""
    CHECK = auto()
    """Put it again at the end of the queue and ask its producer."""
    GIVE_UP = auto()
    """Put it into the topic for people to inspect."""


class Rules(NamedTuple):
    """The settings of the check, and the state when its round began. Times in ms."""

    end_offset: int
    """The offset behind the last half at that time. Halves put again are behind it."""
    timeout_ms: int
    checks_max: int
    reserved_ms: int


def next_step(half: Half, now_ms: int, rules: Rules, kept_ms: int) -> Step:
    """The first matching row, in the order of the specification's table.

    `kept_ms` is the age of the half without time that the clock skipped.
    """
    age_ms = now_ms - half.record.born_timestamp
    if half.target is None or half.checks >= rules.checks_max or kept_ms > rules.reserved_ms:
        return Step.GIVE_UP
    if half.record.queue_offset >= rules.end_offset:
        return Step.STOP
    immunity_ms = half.immunity_ms(rules.timeout_ms)
    if immunity_ms is not None:
        return Step.KEEP if age_ms <= immunity_ms else Step.CHECK
    # The clock of a producer may be ahead: a half from the future is checked at once.
    return Step.STOP if 0 <= age_ms <= rules.timeout_ms else Step.CHECK


def put_again(half: Half, step: Step) -> bytes:
    """The properties of a half that goes to the end of its queue.

    Without a question it is not counted as checked: or it could be given up unasked.
    """
    changed = half.properties | _half_offset(half)
    if step is Step.CHECK:
        changed[CHECKS] = str(half.checks + 1)
    else:
        changed.setdefault(FIRST_OFFSET, str(half.record.queue_offset))
    return encode(changed).encode()


def given_up(half: Half) -> bytes:
    """The properties of a half that is given up."""
    return encode(half.properties | _half_offset(half)).encode()


def late_end(half: Half, *, commit: bool) -> MessageDraft:
    """The record of the late end of a half that was given up.

    An op record cannot say so: op records for halves before the open ones are forgotten.
    """
    notes = {LATE_END: "commit" if commit else "rollback", UNIQUE: half.transaction_id}
    properties = encode(notes | _half_offset(half)).encode()
    # Readers would find that nothing does not unpack.
    sys_flag = half.record.sys_flag & ~COMPRESSED
    empty = half.record._replace(body=b"", body_crc=0, sys_flag=sys_flag)
    return draft_again(empty, GIVEN_UP_TOPIC, 0, properties)


def _half_offset(half: Half) -> dict[str, str]:
    return {} if half.half_offset is None else {HALF_OFFSET: str(half.half_offset)}


# ── Op records ──


def op_draft(half_offset: int, store_host: bytes, now_ms: int) -> MessageDraft:
    """The op record: the half at this offset is finished.

    One number in each, though 5.x puts many into one: Java's 4.9.7 cannot read those.
    """
    return MessageDraft(
        OP_TOPIC,
        0,
        str(half_offset).encode(),
        OP_PROPERTIES,
        store_host,
        store_host,
        born_timestamp=now_ms,
        tags_code=tags_code(OP_TAG),
    )


def op_offsets(body: bytes | memoryview) -> list[int]:
    """The offsets in an op record: one bare number (4.9), or numbers with commas (5.x).

    Pieces that are not numbers are ignored.
    """
    offsets = []
    for piece in bytes(body).split(b","):
        text = piece.strip()
        if text.isdigit() and len(text) <= OFFSET_DIGITS:
            offsets.append(int(text))
    return offsets


def _integer(text: str | None, default: int) -> int:
    if text is not None and len(text) <= OFFSET_DIGITS:
        with suppress(ValueError):
            return int(text)
    return default
