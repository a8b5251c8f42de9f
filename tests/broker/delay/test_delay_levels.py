"""Delay levels: parking, what is due, where to."""

from __future__ import annotations

import tracemalloc

import pytest

from aerobee.broker.core.drafts import Target
from aerobee.broker.delay.delay_levels import delay_hook, how_many_due, target_of
from aerobee.broker.errors import Refusal
from aerobee.store.format.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, MessageDraft
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.unit import DelayLevels

HOST = bytes(8)
NOW_MS = 1_700_000_000_000
YEAR_MS = 366 * 86_400_000
LEVELS_S = [
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
]


def parked(
    properties: dict[str, str], levels: DelayLevels | None = None, sys_flag: int = 0
) -> tuple[MessageDraft, dict[str, str]]:
    draft = MessageDraft("t", 7, b"", b"", HOST, HOST, sys_flag=sys_flag, tags_code=42)
    delay_hook(levels or DelayLevels())(draft, properties, NOW_MS, False)
    return draft, properties


@pytest.mark.parametrize("level", range(1, 19))
def test_each_level_has_its_queue_and_its_time(level: int) -> None:
    draft, properties = parked({"DELAY": str(level), "TAGS": "a"})
    assert (draft.topic, draft.queue_id) == (SCHEDULE_TOPIC, level - 1)
    assert draft.tags_code == NOW_MS + LEVELS_S[level - 1] * 1_000
    assert properties == {
        "DELAY": str(level),
        "TAGS": "a",
        "REAL_TOPIC": "t",
        "REAL_QID": "7",
    }


def test_a_level_beyond_the_table_is_the_last_one() -> None:
    draft, properties = parked({"DELAY": "19"}, DelayLevels("1s 2d"))
    assert (draft.queue_id, properties["DELAY"]) == (1, "2")
    assert draft.tags_code == NOW_MS + 2 * 86_400_000


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}], ids=str)
def test_without_a_level_nothing_is_parked(properties: dict[str, str]) -> None:
    draft, after = parked(dict(properties))
    assert (draft.topic, draft.queue_id, draft.tags_code) == ("t", 7, 42)
    assert after == properties


def test_a_half_message_is_not_parked_and_its_commit_is() -> None:
    assert parked({"DELAY": "1"}, sys_flag=TRANSACTION_PREPARED)[0].topic == "t"
    assert parked({"DELAY": "1"}, sys_flag=TRANSACTION_COMMIT)[0].topic == SCHEDULE_TOPIC


def test_a_level_that_is_no_number_is_refused() -> None:
    with pytest.raises(Refusal, match="not a number"):
        parked({"DELAY": "soon"})


@pytest.mark.parametrize(
    ("due_times", "waited", "expected"),
    [
        ([], 0, 0),
        ([NOW_MS], 0, 1),
        ([NOW_MS + 1], 0, 0),
        ([NOW_MS - 9, NOW_MS, NOW_MS + 1, NOW_MS - 9], 0, 2),
        # Later than any level could make it: the clock went back. They wait for their delay.
        ([NOW_MS + YEAR_MS * 9], 0, 0),
        ([NOW_MS + YEAR_MS * 9, NOW_MS + 1, NOW_MS, NOW_MS + 1], 1, 1),
        ([NOW_MS + YEAR_MS * 9, NOW_MS + 1, NOW_MS, NOW_MS + 1], 2, 3),
        # Without a level nobody knows how long.
        ([NOW_MS + 1_001], None, 0),
        ([NOW_MS + YEAR_MS * 9], None, 1),
        # The hash of a tag says nothing of the time.
        ([NOW_MS, 3_027_034, NOW_MS], 0, 1),
        ([NOW_MS, 3_027_034, NOW_MS], 3, 1),
        ([-1], None, 0),
    ],
)
def test_what_is_due_goes_and_nothing_behind_what_is_not(
    due_times: list[int], waited: int | None, expected: int
) -> None:
    assert how_many_due(due_times, NOW_MS, waited) == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"REAL_TOPIC\x01t\x02REAL_QID\x013\x02", Target("t", 3)),
        (b"REAL_TOPIC\x01t\x02", None),
        (b"REAL_QID\x013\x02", None),
        (b"REAL_TOPIC\x01t\x02REAL_QID\x01-1\x02", None),
        (b"A\x01b\x02REAL_TOPIC\x01t\x02REAL_QID\x013", Target("t", 3)),
        (b"A\x01b\x02REAL_TOPIC\x01t\x02REAL_QID\x013\x02B\x01c\x02", Target("t", 3)),
        (b"A\x01b\x02REAL_QID\x013\x02REAL_TOPIC\x01t\x02", Target("t", 3)),
        (b"A\x01b\x02REAL_QID\x013\x02REAL_TOPIC\x01t\x02REAL_QID\x01\x02", Target("t", 3)),
        (b"A\x01b\x02REAL_TOPIC\x01t\x02REAL_QID\x013\x02REAL_QID\x014\x02", Target("t", 4)),
    ],
)
def test_the_target_is_what_the_properties_say(properties: bytes, expected: Target | None) -> None:
    assert target_of(properties) == expected


def test_retries_of_a_queue_take_the_memory_of_one() -> None:
    """R12: a retry has the id of its origin behind its target, which no other message shares."""
    retry = b"A\x01b\x02REAL_TOPIC\x01%%RETRY%%g\x02REAL_QID\x010\x02ORIGIN_MESSAGE_ID\x01%032d\x02"
    assert target_of(retry % 0) == Target("%RETRY%g", 0)
    tracemalloc.start()
    try:
        for number in range(2_000):
            target_of(retry % number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000
