"""Message drafts: the flags that clients may not set, and the fields that every copy keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.format.record import HOST_FLAGS, MessageDraft
from aerobee.store.format.tags import tags_code_of

if TYPE_CHECKING:
    from aerobee.store.format.record import Record

BROKER_BITS: Final = HOST_FLAGS | 0xC0
"""sysFlag bits that only a broker sets: IPv6 hosts, inner batches."""


def draft_again(record: Record, topic: str, queue_id: int, properties: bytes) -> MessageDraft:
    """A draft of a stored message for another topic: body, flags, times and hosts are kept.

    The tags code is that of the tags in its properties.
    """
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
