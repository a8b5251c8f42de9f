"""Timers on disk: the slots of the wheel, the units of the timer log, the check file.

A slot stands for one step of time and holds the newest unit of its chain; each unit names the one
before it. Words only. Source: store format §1.8; semantics §9.3 (TimerWheel, TimerLog,
TimerCheckpoint).
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.store.format.layout import Layout, i32, i64, u32

WHEEL_SLOTS = 2 * 7 * 86_400
"""Slots of a wheel, whatever a slot's time is: 38,707,200 bytes."""

TIMER = 1
"""Bit of every unit."""
ROLL = 2
"""The message is further away than the wheel reaches: when this is due it is put in again."""
DELETE = 4
"""The message takes another one of the same slot back."""
NO_UNIT = -1
"""In place of a position: the end of a chain."""
BLANK_MAGIC = 0xCBD43194
TIMER_CHECK_BYTES = 4_096


class WheelSlot(NamedTuple):
    """`time` counts steps since 1970; a slot with another time than asked for is empty."""

    time: i64
    first: i64
    last: i64
    timers: i32
    magic: i32 = 0


class TimerUnit(NamedTuple):
    """One timer: due at `write_time_ms` + `delay_ms`, its record in the commit log."""

    size: i32
    previous: i64
    magic: i32
    write_time_ms: i64
    delay_ms: i32
    physical_offset: i64
    record_size: i32
    topic_hash: i32
    reserved: i64 = 0

    @property
    def due_ms(self) -> int:
        """The time of its slot."""
        return self.write_time_ms + self.delay_ms


class TimerBlank(NamedTuple):
    """Fills a file in which no further unit has room; zeros follow."""

    remaining: i32
    zero: i64
    magic: u32


class TimerCheck(NamedTuple):
    """How far both are done with: what lies before is in the timer log, or was delivered.

    The last three are the version of a table that a controller compares.
    """

    last_read_time_ms: i64 = 0
    flushed_position: i64 = 0
    queue_offset: i64 = 0
    master_queue_offset: i64 = 0
    state_version: i64 = 0
    timestamp_ms: i64 = 0
    counter: i64 = 0


WHEEL_SLOT = Layout(WheelSlot, size=32)
TIMER_UNIT = Layout(TimerUnit, size=52)
TIMER_BLANK = Layout(TimerBlank, size=16)
TIMER_CHECK = Layout(TimerCheck, size=56)


def blank_of(remaining: int) -> bytes:
    """The last `remaining` ≥ 16 bytes of a file without another unit."""
    return TIMER_BLANK.pack(remaining, 0, BLANK_MAGIC).ljust(remaining, b"\0")


def slot_time(out_ms: int, now_ms: int, window_ms: int, precision_ms: int) -> tuple[int, int]:
    """Where a timer goes: the time of its slot in ms and the bits of its unit.

    A timer that is at least a window away is put in again before it is due, and soon enough to be
    there in time. `now_ms` is a multiple of the precision. Source: semantics §9.4.
    """
    rest_ms = out_ms - now_ms - window_ms
    if rest_ms < 0:
        return out_ms, TIMER
    steps = window_ms // precision_ms
    near = rest_ms < steps // 3 * precision_ms
    return now_ms + (steps // 2 * precision_ms if near else window_ms), TIMER | ROLL
