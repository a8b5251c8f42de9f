"""Messages that are set aside: counted each, said so often, and what lies behind one is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.store.errors import CONTENT_ERRORS, MessageIllegal, NotInMemory
from aerobee.store.format.record import encode
from aerobee.store.results import GetResult, GetStatus, Location
from aerobee.store.set_aside import LINES, SetAside
from aerobee.store.stats import StoreStats
from tests.kit.logged import Logged, events
from tests.kit.store_model import ManualClock, draft

if TYPE_CHECKING:
    from aerobee.store.format.record import Record

PLACE = Location("t", 0, 7, 4096)


def test_each_is_counted_and_only_some_are_said(logged: Logged) -> None:
    stats = StoreStats()
    clock = ManualClock()
    aside = SetAside(stats, clock)
    for _ in range(LINES + 5):
        aside.take("timers", PLACE, MessageIllegal("x" * 1_000))
    assert stats.set_aside == {"timers": LINES + 5}
    assert events(logged).count("message.set_aside") == LINES
    assert (logged[0]["topic"], logged[0]["queue_offset"], logged[0]["physical_offset"]) == (
        "t",
        7,
        4096,
    )
    assert len(logged[0]["reason"]) <= 200
    clock.ms += 11_000
    aside.note("revive", PLACE, "again")
    assert logged[-1]["left_out"] == 5


def test_an_error_that_nobody_foresaw_is_said_with_its_line(logged: Logged) -> None:
    aside = SetAside(StoreStats(), ManualClock())
    named: Any = None
    try:
        named.strip()
    except CONTENT_ERRORS as error:
        aside.take("timers", PLACE, error)
    aside.take("timers", PLACE, MessageIllegal("x"))
    assert logged[0]["raised"].startswith("test_set_aside.py:")
    assert logged[1]["raised"] is None


@pytest.mark.parametrize("error", [OSError(5, "disk"), AssertionError(), MemoryError()])
def test_what_says_nothing_about_a_message_is_no_content_error(error: Exception) -> None:
    assert not isinstance(error, CONTENT_ERRORS)
    assert not isinstance(NotInMemory(()), CONTENT_ERRORS)


def test_records_end_at_a_damaged_one_and_the_next_read_begins_behind_it() -> None:
    stats = StoreStats()
    aside = SetAside(stats, ManualClock())
    whole = [encode(draft(body=b"%d" % number), number, 0, 1) for number in range(5, 8)]
    data = bytearray(b"".join(whole))
    data[len(whole[0]) + 4] ^= 0xFF
    result = GetResult(GetStatus.FOUND, 8, 0, 9, [memoryview(bytes(data))], len(data), 3)
    found: list[Record] = list(aside.records("schedule", result, "T", 0, 5))
    assert [one.queue_offset for one in found] == [5]
    assert result.next_begin_offset == 7
    assert stats.set_aside == {"schedule": 1}


def test_a_message_that_the_disk_cannot_read_is_told_and_counted_once(logged: Logged) -> None:
    stats = StoreStats()
    aside = SetAside(stats, ManualClock())
    for _ in range(3):
        aside.unreadable("pull", PLACE, OSError(5, "bad sector"))
    aside.unreadable("pull", PLACE._replace(queue_offset=8), OSError(5, "bad sector"))
    assert events(logged) == ["message.unreadable"] * 2
    assert (logged[0]["queue_offset"], logged[0]["error"]) == (7, "[Errno 5] bad sector")
    assert (stats.unreadable, stats.set_aside) == ({"pull": 2}, {})
