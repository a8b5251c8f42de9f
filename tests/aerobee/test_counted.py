"""Sentences with numbers: one message is not 1 messages."""

import pytest

from aerobee.counted import counted


@pytest.mark.parametrize(("number", "said"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues")])
def test_a_number_has_its_noun(number: int, said: str) -> None:
    assert counted(number, "queue") == said


def test_more_than_the_noun_can_differ() -> None:
    many = [counted(number, "message waits", "messages wait") for number in (1, 2)]
    assert many == ["1 message waits", "2 messages wait"]
