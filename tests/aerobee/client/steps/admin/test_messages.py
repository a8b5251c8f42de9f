"""How many of the messages that were read a command gets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aerobee.client.message import ReceivedMessage
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.admin.messages import within

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def message(number: int, size: int) -> ReceivedMessage:
    """A message with a body of that size, stored so many seconds after the begin."""
    return ReceivedMessage(
        topic="t",
        body=bytes(size),
        tag=None,
        keys=(),
        properties={},
        flag=0,
        ordering_key=None,
        wait_store_ok=True,
        message_id=str(number),
        offset_message_id=str(number),
        queue=MessageQueue("t", "a", 0),
        queue_offset=number,
        commit_log_offset=number,
        born_at=BEGIN,
        stored_at=BEGIN + timedelta(seconds=number),
        born_host="",
        store_host="",
        reconsume_times=0,
        original_topic="t",
        transaction_id=None,
    )


@pytest.mark.parametrize(
    ("max_bytes", "seconds", "kept"),
    [
        (None, None, 4),
        (30, None, 3),
        (29, None, 2),
        (0, None, 1),
        (None, 2, 2),
        (30, 2, 2),
        (10, 2, 1),
        # The first one is there whatever its size is, but not when it was stored too late.
        (0, 0, 0),
    ],
)
def test_messages_end_where_bytes_or_time_do(
    max_bytes: int | None, seconds: int | None, kept: int
) -> None:
    messages = [message(number, 10) for number in range(4)]
    before = None if seconds is None else BEGIN + timedelta(seconds=seconds)
    assert within(messages, max_bytes, before) == messages[:kept]
