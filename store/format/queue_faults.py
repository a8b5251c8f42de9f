"""What consume queues must say of the log: each number and each unit judged, for whoever looks.

A record's queue offset, or the unit that the log asks for and the one that is there, flow in; the
kind of what is wrong flows out, END for nothing. Which findings count (a broker that still has to
write, a topic that was deleted) is for the caller.
Source: store format §1.3, §5.2.
"""

from __future__ import annotations

from typing import TypeAlias

from aerobee.store.format.faults import (
    CQ_MISMATCH,
    CQ_MISSING,
    CQ_TAG_MISMATCH,
    END,
    QUEUE_GAP,
)
from aerobee.store.format.tags import EXT_ADDRESS_MAX
from aerobee.store.format.unit import SCHEDULE_TOPIC, is_blank, is_due_time

__all__ = ["UnitFields", "number_fault", "unit_detail", "unit_fault"]

UnitFields: TypeAlias = tuple[int, int, int]
"""Physical offset, size and tags code."""


def number_fault(expected: int | None, queue_offset: int) -> str:
    """QUEUE_GAP for a record that has not the next number; `expected` None: it is the first seen.

    Numbers begin anew at 0 where a topic was deleted and made again.
    """
    fine = queue_offset >= 0 and (expected in (None, queue_offset) or queue_offset == 0)
    return END if fine else QUEUE_GAP


def unit_fault(
    topic: str, wanted: UnitFields, found: UnitFields, *, stored_ms: int = 0, extended: bool = False
) -> str:
    """What is wrong with the unit of a message; `wanted` has the hash of its tags.

    `stored_ms` is when it was stored; `extended`: codes may be addresses in consumequeue_ext.
    """
    if found[:2] == wanted[:2]:
        code = found[2]
        fine = (
            code == wanted[2]
            or (extended and code <= EXT_ADDRESS_MAX)
            # By a table of levels that we do not know.
            or (topic == SCHEDULE_TOPIC and is_due_time(code) and code >= stored_ms)
        )
        return END if fine else CQ_TAG_MISMATCH
    if found[1] <= 0 or is_blank(found[0], found[1]):
        return CQ_MISSING
    return CQ_MISMATCH


def unit_detail(kind: str, wanted: UnitFields, found: UnitFields) -> str:
    """A finding of `unit_fault` in words."""
    if kind == CQ_TAG_MISMATCH:
        return f"the unit says {found[2]}, the tags of the message {wanted[2]}"
    if kind == CQ_MISSING:
        return "no unit" if found[1] <= 0 else "filled over"
    wants = f"{wanted[1]} bytes at {wanted[0]}"
    return f"the unit says {found[1]} bytes at {found[0]}, the message has {wants}"
