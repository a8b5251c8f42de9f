"""Message drafts: flags that clients may not set, the fields that every copy keeps, and its target.

Halves, delayed messages and timers have the target in REAL_TOPIC and REAL_QID. These are read from
the log, so no value is trusted: a queue id must fit the field of a record, and the topic must not
be one that the broker reads itself, or the message would circulate for ever.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.core.names import is_sendable
from aerobee.store.errors import RecordDamaged
from aerobee.store.format.record import HOST_FLAGS, MessageDraft
from aerobee.store.format.tags import tags_code_of

if TYPE_CHECKING:
    from aerobee.store.format.record import Record

BROKER_BITS: Final = HOST_FLAGS | 0xC0
"""sysFlag bits that only a broker sets: IPv6 hosts, inner batches."""
QUEUE_ID_MAX: Final = (1 << 31) - 1
"""The largest queue id that a record can hold."""
DIGITS: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


def draft_again(record: Record, topic: str, queue_id: int, properties: bytes) -> MessageDraft:
    """A draft of a stored message for another topic: body, flags, times and hosts are kept.

    The tags code is that of the tags in its properties. Raises: RecordDamaged for another body than
    was stored: the copy would look whole.
    """
    if not record.is_whole:
        raise RecordDamaged(f"the body at {record.physical_offset} is not the one that was stored")
    return MessageDraft(
        topic,
        queue_id,
        record.body,
        properties,
        record.born_host,
        record.store_host,
        record.flag,
        record.sys_flag & ~HOST_FLAGS,
        record.born_timestamp,
        record.reconsume_times,
        record.prepared_transaction_offset,
        tags_code_of(properties),
    )


class Target(NamedTuple):
    """Topic and queue that a message is to be stored in."""

    topic: str
    queue_id: int


def queue_id_of(text: str | None) -> int | None:
    """The queue id in a property; None if it is not one."""
    if text is None or not DIGITS.fullmatch(text):
        return None
    number = int(text)
    return number if number <= QUEUE_ID_MAX else None


def target(topic: str | None, queue_id: str | None) -> Target | None:
    """The target in two properties; None if nothing can be delivered there."""
    number = queue_id_of(queue_id)
    if not topic or number is None or not is_sendable(topic):
        return None
    return Target(topic, number)
