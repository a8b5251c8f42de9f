"""Faults of consume queues: compares queue offsets and units with the log.

A record's queue offset, or the unit that the log implies and the one that is stored, in; the kind
of the fault out, END for none. The caller decides which findings count (a broker that still has to
write, a topic that was deleted). Source: store format §1.3, §5.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.store.format.faults import (
    CQ_MISMATCH,
    CQ_MISSING,
    CQ_TAG_MISMATCH,
    END,
    QUEUE_GAP,
)
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.tags import EXT_ADDRESS_MAX
from aerobee.store.format.unit import is_blank, is_due_time

if TYPE_CHECKING:
    from aerobee.store.format.unit import Unit


def number_fault(expected: int | None, queue_offset: int) -> str:
    """QUEUE_GAP for a record without the next number; `expected` None: it is the first one.

    Numbers start again at 0 where a topic was deleted and created again.
    """
    fine = queue_offset >= 0 and (expected in (None, queue_offset) or queue_offset == 0)
    return END if fine else QUEUE_GAP


def unit_fault(
    topic: str, wanted: Unit, unit: Unit, *, stored_ms: int = 0, extended: bool = False
) -> str:
    """The fault of a message's unit; `wanted` has the hash of its tags.

    `stored_ms` is when it was stored; `extended`: codes may be addresses in consumequeue_ext.
    """
    if (unit.physical_offset, unit.size) == (wanted.physical_offset, wanted.size):
        code = unit.tags_code
        fine = (
            code == wanted.tags_code
            or (extended and code <= EXT_ADDRESS_MAX)
            # By a table of levels that is unknown here.
            or (topic == SCHEDULE_TOPIC and is_due_time(code) and code >= stored_ms)
        )
        return END if fine else CQ_TAG_MISMATCH
    if unit.size <= 0 or is_blank(unit.physical_offset, unit.size):
        return CQ_MISSING
    return CQ_MISMATCH


def unit_detail(kind: str, wanted: Unit, unit: Unit) -> str:
    """A finding of `unit_fault` in words."""
    if kind == CQ_TAG_MISMATCH:
        return f"the unit says {unit.tags_code}, the tags of the message {wanted.tags_code}"
    if kind == CQ_MISSING:
        return "no unit" if unit.size <= 0 else "filled over"
    there = f"{unit.size} bytes at {unit.physical_offset}"
    wants = f"{wanted.size} bytes at {wanted.physical_offset}"
    return f"the unit says {there}, the message has {wants}"
