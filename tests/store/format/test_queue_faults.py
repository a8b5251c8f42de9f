"""What counts as wrong with a number of a queue, and with a unit."""

import pytest

from aerobee.store.format.faults import CQ_MISMATCH, CQ_MISSING, CQ_TAG_MISMATCH, END, QUEUE_GAP
from aerobee.store.format.queue_faults import number_fault, unit_detail, unit_fault
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.tags import EXT_ADDRESS_MAX
from aerobee.store.format.unit import BLANK_SIZE, Unit

WANTED = Unit(1_000, 200, 77)
DUE_MS = 1 << 40


@pytest.mark.parametrize(
    ("expected", "queue_offset", "kind"),
    [
        (None, 5, END),
        (None, -1, QUEUE_GAP),
        (5, 5, END),
        (5, 0, END),
        (5, 6, QUEUE_GAP),
        (5, 4, QUEUE_GAP),
    ],
)
def test_numbers_go_on_or_begin_anew(expected: int | None, queue_offset: int, kind: str) -> None:
    assert number_fault(expected, queue_offset) == kind


@pytest.mark.parametrize(
    ("found", "kind", "detail"),
    [
        (WANTED, END, ""),
        (Unit(1_000, 200, 78), CQ_TAG_MISMATCH, "the unit says 78, the tags of the message 77"),
        (Unit(0, 0, 0), CQ_MISSING, "no unit"),
        (Unit(0, BLANK_SIZE, 0), CQ_MISSING, "filled over"),
        (
            Unit(1_200, 200, 77),
            CQ_MISMATCH,
            "the unit says 200 bytes at 1200, the message has 200 bytes at 1000",
        ),
    ],
)
def test_a_unit_says_what_the_log_says(found: Unit, kind: str, detail: str) -> None:
    assert unit_fault("T", WANTED, found) == kind
    assert kind == END or unit_detail(kind, WANTED, found) == detail


def test_codes_may_be_addresses_where_there_are_some() -> None:
    address = WANTED._replace(tags_code=EXT_ADDRESS_MAX)
    assert unit_fault("T", WANTED, address) == CQ_TAG_MISMATCH
    assert unit_fault("T", WANTED, address, extended=True) == END


def test_the_code_of_a_parked_message_is_when_it_is_due_and_not_before_it_was_stored() -> None:
    due = WANTED._replace(tags_code=DUE_MS)
    assert unit_fault("T", WANTED, due) == CQ_TAG_MISMATCH
    assert unit_fault(SCHEDULE_TOPIC, WANTED, due, stored_ms=DUE_MS) == END
    assert unit_fault(SCHEDULE_TOPIC, WANTED, due, stored_ms=DUE_MS + 1) == CQ_TAG_MISMATCH
    assert unit_fault(SCHEDULE_TOPIC, WANTED, WANTED) == END
