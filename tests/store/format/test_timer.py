from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.timer import (
    ROLL,
    TIMER,
    TIMER_CHECK,
    TIMER_UNIT,
    WHEEL_SLOT,
    WHEEL_SLOTS,
    TimerCheck,
    TimerUnit,
    WheelSlot,
    blank_of,
    slot_time,
)

GOLDEN = (
    "00000034 ffffffffffffffff 00000001 000001941f2954f0 00002710 0000000000001000 00000141"
    "12345678 0000000000000000"
)
DAY_MS = 86_400_000
WINDOW_MS = 2 * DAY_MS


def test_a_unit_has_the_bytes_of_the_java_broker() -> None:
    unit = TimerUnit(52, -1, TIMER, 1735689590000, 10_000, 4096, 321, 0x12345678)
    assert TIMER_UNIT.write(unit) == bytes.fromhex(GOLDEN)
    assert TIMER_UNIT.read(bytes.fromhex(GOLDEN)) == unit
    assert unit.due_ms == 1735689600000


def test_the_wheel_has_the_size_and_the_places_of_the_java_broker() -> None:
    assert WHEEL_SLOTS * WHEEL_SLOT.size == 38_707_200
    assert 1735689600000 // 1000 % WHEEL_SLOTS == 1_123_200
    assert WHEEL_SLOT.write(WheelSlot(1, 2, 3, 4)).hex() == (
        "0000000000000001000000000000000200000000000000030000000400000000"
    )


def test_the_check_file_begins_with_seven_numbers() -> None:
    assert TIMER_CHECK.offset == {
        "last_read_time_ms": 0,
        "flushed_position": 8,
        "queue_offset": 16,
        "master_queue_offset": 24,
        "state_version": 32,
        "timestamp_ms": 40,
        "counter": 48,
    }
    assert TimerCheck() == (0,) * 7


def test_a_blank_says_how_much_it_fills() -> None:
    assert blank_of(20).hex() == "000000140000000000000000cbd4319400000000"


@given(st.integers(0, 400 * DAY_MS // 1000).map(lambda seconds: seconds * 1000))
def test_a_timer_is_put_in_again_before_it_is_due_until_it_is_near(out_ms: int) -> None:
    now_ms, rolls = 0, 0
    while True:
        time_ms, magic = slot_time(out_ms, now_ms, WINDOW_MS, 1000)
        assert time_ms <= out_ms
        assert time_ms - now_ms <= WINDOW_MS
        if not magic & ROLL:
            break
        assert time_ms > now_ms, "each time it comes nearer"
        now_ms, rolls = time_ms, rolls + 1
    assert time_ms == out_ms
    assert rolls <= out_ms // WINDOW_MS + 1


def test_the_last_step_of_a_far_timer_is_not_a_short_one() -> None:
    far = WINDOW_MS + DAY_MS
    assert slot_time(far, 0, WINDOW_MS, 1000) == (WINDOW_MS, TIMER | ROLL)
    near = WINDOW_MS + 1000
    assert slot_time(near, 0, WINDOW_MS, 1000) == (WINDOW_MS // 2, TIMER | ROLL)
    assert slot_time(WINDOW_MS - 1000, 0, WINDOW_MS, 1000) == (WINDOW_MS - 1000, TIMER)
