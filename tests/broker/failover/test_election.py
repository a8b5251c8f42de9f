"""Who may take the lease, and what is said to the others."""

import pytest

from aerobee.broker.failover.election import Candidate, emptied, objection
from aerobee.broker.failover.record import Record

RECORD = Record(epoch=3, master=2, sync_set=(1, 2), set_epoch=9)


@pytest.mark.parametrize(
    ("candidate", "record", "held", "said"),
    [
        (Candidate(1, 3), RECORD, False, ""),
        (Candidate(2, 3), RECORD, False, ""),
        (Candidate(1, 0), RECORD, False, ""),
        (Candidate(1, 3), RECORD, True, "the lease is held"),
        (Candidate(1, 3, "a wrong CRC at 7"), RECORD, False, "damaged: a wrong CRC at 7"),
        (Candidate(3, 3), RECORD, False, "not in the sync set [1, 2]"),
        (Candidate(1, 4), RECORD, False, "the record has epoch 3, and this broker knows 4"),
        (Candidate(1, 0, founder=True), None, False, ""),
        (Candidate(1, 0), None, False, "another member is to be the first"),
        (Candidate(1, 5, founder=True), None, False, "this broker knows epoch 5"),
        (Candidate(1, 0, founder=True), None, True, "the lease is held"),
    ],
)
def test_an_objection_says_why(
    candidate: Candidate, record: Record | None, held: bool, said: str
) -> None:
    reason = objection(candidate, record, held=held)
    assert bool(reason) == bool(said)
    assert said in reason


def test_a_member_of_the_set_without_an_epoch_was_emptied() -> None:
    assert emptied(Candidate(1, 0), RECORD, 2)
    assert not emptied(Candidate(1, 2), RECORD, 2)
    assert not emptied(Candidate(3, 0), RECORD, 2)
    assert not emptied(Candidate(1, 0), None, 2)


def test_a_first_master_that_was_killed_at_once_has_lost_nothing() -> None:
    first = Record(epoch=1, master=1, sync_set=(1,), set_epoch=1, lease="a")
    assert not emptied(Candidate(1, 0), first, 2)
    assert emptied(Candidate(1, 0), first, 1)
