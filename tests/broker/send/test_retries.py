"""How often a message is tried, and what it says of that."""

from __future__ import annotations

import pytest

from aerobee.broker.send.retries import max_tries, next_level, returned
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig

GROUP = SubscriptionGroupConfig(group_name="g", retry_max_times=3)


@pytest.mark.parametrize(
    ("asked", "version", "expected"), [(None, 479, 3), (7, 479, 7), (7, 121, 7), (7, 120, 3)]
)
def test_the_limit_is_the_clients_own_if_it_knows_of_limits(
    asked: int | None, version: int, expected: int
) -> None:
    assert max_tries(GROUP, asked, version) == expected


@pytest.mark.parametrize(
    ("tries", "asked", "expected"),
    [(0, 0, 3), (15, 0, 18), (16, 0, None), (17, 0, None), (0, -1, None), (0, 5, 5), (3, 99, 99)],
)
def test_the_next_level_follows_the_tries_unless_the_consumer_names_one(
    tries: int, asked: int, expected: int | None
) -> None:
    assert next_level(tries, asked, 16) == expected


def test_a_message_keeps_the_topic_and_the_id_it_had_first() -> None:
    first = returned({"TAGS": "a", "DELAY": "9"}, "orders", "ID1", 3)
    assert first == {
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "ID1",
        "TAGS": "a",
        "DELAY": "3",
        "WAIT": "false",
    }
    last = returned(first, "%RETRY%g", "ID2", None)
    assert last == {**first, "DELAY": "0"}
