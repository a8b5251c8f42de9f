import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.unit import (
    BLANK,
    UNIT,
    DelayLevels,
    Unit,
    can_have_unit,
    code_of,
    is_blank,
    is_due_time,
    units_in_use,
)

LEVELS = DelayLevels()
UNITS = st.builds(
    Unit,
    st.integers(0, 2**62),
    st.integers(1, 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(UNITS, max_size=8), st.integers(0, 60))
def test_the_first_invalid_unit_ends_a_file(units: list[Unit], zeros: int) -> None:
    data = b"".join(UNIT.write(unit) for unit in units)
    assert units_in_use(data + bytes(zeros)) == len(units)
    assert units_in_use(data + UNIT.pack(-1, 5, 0) + data) == len(units)


def test_a_blank_counts_as_used_and_is_recognised() -> None:
    assert units_in_use(BLANK * 3 + bytes(20)) == 3
    assert is_blank(*UNIT.read(BLANK)[:2])
    assert not is_blank(0, 165)


def test_the_delay_table_has_eighteen_levels() -> None:
    assert LEVELS.delays_ms[:3] == (1_000, 5_000, 10_000)
    assert LEVELS.delays_ms[-1] == 7_200_000
    assert len(LEVELS.delays_ms) == 18
    assert LEVELS.deliver_at(99, 10) == 7_200_010


def test_without_a_table_a_parked_message_waits_a_second() -> None:
    assert DelayLevels("").deliver_at(3, 10) == 1_010


@pytest.mark.parametrize("text", ["1x", "s", "1s 2", "-1s", "1.5h"])
def test_a_level_that_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        DelayLevels(text)


def test_a_parked_message_is_filed_under_its_due_time() -> None:
    assert code_of("SCHEDULE_TOPIC_XXXX", b"DELAY\x013\x02TAGS\x01TagA\x02", 500, LEVELS) == 10_500


@pytest.mark.parametrize("level", [b"0", b"-1", b"x", b""])
def test_a_level_that_is_none_leaves_the_tags(level: bytes) -> None:
    properties = b"TAGS\x01TagA\x02DELAY\x01" + level
    assert code_of("SCHEDULE_TOPIC_XXXX", properties, 500, LEVELS) == 2598919


def test_the_delay_property_of_an_ordinary_message_is_not_its_code() -> None:
    assert code_of("T", b"DELAY\x013\x02", 500, LEVELS) == 0


def test_a_code_is_a_time_where_no_hash_of_tags_can_be_it() -> None:
    assert not is_due_time(0x7FFF_FFFF)
    assert not is_due_time(-0x8000_0000)
    assert not is_due_time(1 << 32)
    assert is_due_time((1 << 32) + 1)


def test_the_length_of_a_level_is_told_by_its_unit() -> None:
    levels = DelayLevels("1s 1m 1h 1d")
    assert [levels.deliver_at(level, 0) for level in (1, 2, 3, 4)] == [
        1_000,
        60_000,
        3_600_000,
        86_400_000,
    ]


def test_a_queue_that_cannot_be_has_no_unit() -> None:
    assert can_have_unit("T", 0, 0)
    assert not can_have_unit("T", -1, 0)
    assert not can_have_unit("T", 0, -1)
