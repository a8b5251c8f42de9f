"""A consume-queue unit: where a message lies in the log, and its tags code.

Source: store format §1.3 (ConsumeQueue).
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.store.format.layout import Buffer, Layout, i32, i64
from aerobee.store.format.properties import value_of
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.tags import tags_code_of

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BLANK_SIZE = 0x7FFFFFFF
LEVEL_DIGITS = 9
INT64_MAX = (1 << 63) - 1


class Unit(NamedTuple):
    """20 bytes; valid when `physical_offset` ≥ 0 and `size` > 0."""

    physical_offset: i64
    size: i32
    tags_code: i64


UNIT = Layout(Unit, size=20)
UNIT_SIZE = UNIT.size
BLANK = UNIT.pack(0, BLANK_SIZE, 0)
"""Fills a file in front of a queue's first unit; never a message (fillPreBlank)."""


class DelayLevels:
    """The table `messageDelayLevel`: level 1…n → milliseconds.

    Raises: ValueError naming the piece that is no number with one of s, m, h, d.
    """

    __slots__ = ("delays_ms",)

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        self.delays_ms = tuple(_delay_ms(piece) for piece in text.split())

    def deliver_at(self, level: int, store_timestamp: int) -> int:
        """When a message parked at `level` ≥ 1 is due, in ms; without any level: after a second."""
        if not self.delays_ms:
            return store_timestamp + 1_000
        return store_timestamp + self.delays_ms[min(level, len(self.delays_ms)) - 1]


def _delay_ms(piece: str) -> int:
    unit_ms = _UNIT_MS.get(piece[-1:])
    if unit_ms is None or not (piece.isascii() and piece[:-1].isdigit()):
        raise ValueError(f"delay level {piece!r} is not a number followed by s, m, h or d")
    return int(piece[:-1]) * unit_ms


def code_of(topic: str, properties: bytes, store_timestamp: int, levels: DelayLevels) -> int:
    """The tags code of a record's unit: hash of its tags, or the time a parked message is due."""
    if topic == SCHEDULE_TOPIC:
        text = value_of(properties, b"DELAY")
        short = text is not None and len(text) <= LEVEL_DIGITS
        level = int(text) if text and short and text.isascii() and text.isdigit() else 0
        if level > 0:
            return min(levels.deliver_at(level, store_timestamp), INT64_MAX)
    return tags_code_of(properties)


def is_due_time(tags_code: int) -> bool:
    """Whether the unit of a parked message says when it is due; else it is the hash of its tags.

    4.9 writes such units when it recovers: it has not read its table of levels by then.
    """
    return tags_code > 1 << 32


def can_have_unit(topic: str, queue_id: int, queue_offset: int) -> bool:
    """Whether a record with these fields can have a unit: its queue is a directory of that name."""
    named = topic not in (".", "..") and "/" not in topic and "\0" not in topic
    return named and queue_id >= 0 and 0 <= queue_offset <= INT64_MAX // UNIT.size


def is_blank(physical_offset: int, size: int) -> bool:
    """Whether the unit is the filling in front of a queue's first message."""
    return physical_offset == 0 and size == BLANK_SIZE


def units_in_use(data: Buffer) -> int:
    """How many units a file holds, counted from its start: the first invalid one ends it."""
    count = 0
    whole = len(data) - len(data) % UNIT_SIZE
    for physical_offset, size, _ in UNIT.iter_unpack(memoryview(data)[:whole]):
        if physical_offset < 0 or size <= 0:
            break
        count += 1
    return count
