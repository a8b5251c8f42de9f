"""What lies in a queue, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.record import Record, read

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore


def records_of(store: MessageStore, topic: str, queue_id: int = 0) -> list[Record]:
    """The records of one queue, in its order."""
    result = store.get(topic, queue_id, 0, 1_000, max_count=1_000, max_bytes=1 << 20)
    data, records = memoryview(b"".join(result.views)), []
    while data:
        records.append(read(data))
        data = data[records[-1].size :]
    return records
