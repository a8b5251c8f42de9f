"""Received messages as tests need them: a place and a body."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aerobee.client.message import ReceivedMessage

if TYPE_CHECKING:
    from aerobee.client.send_result import MessageQueue

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def received(
    queue: MessageQueue, queue_offset: int, body: bytes, stored_at: datetime = BEGIN
) -> ReceivedMessage:
    """A message at an offset of a queue."""
    return ReceivedMessage(
        topic=queue.topic,
        body=body,
        tag=None,
        keys=(),
        properties={},
        flag=0,
        ordering_key=None,
        wait_store_ok=True,
        message_id=str(queue_offset),
        offset_message_id="",
        queue=queue,
        queue_offset=queue_offset,
        commit_log_offset=0,
        born_at=BEGIN,
        stored_at=stored_at,
        born_host="",
        store_host="",
        reconsume_times=0,
        original_topic=queue.topic,
        transaction_id=None,
    )
