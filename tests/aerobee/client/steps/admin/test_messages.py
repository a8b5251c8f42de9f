"""How many of the messages that were read a command gets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.admin.messages import within
from tests.aerobee.client.received import BEGIN, received

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage

QUEUE = MessageQueue("t", "a", 0)


def message(number: int, size: int) -> ReceivedMessage:
    """A message with a body of that size, stored so many seconds after the begin."""
    return received(QUEUE, number, bytes(size), BEGIN + timedelta(seconds=number))


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


def test_only_the_first_of_all_messages_may_be_too_long() -> None:
    messages = [message(number, 10) for number in range(2)]
    assert within(messages, 9, first_anyway=False) == []
    assert within(messages, 10, first_anyway=False) == messages[:1]
