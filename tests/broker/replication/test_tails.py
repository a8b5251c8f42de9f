"""The end of a slave's log beside the master's log."""

import pytest

from aerobee.broker.replication.tails import MasterLog, Tail, deleted, difference

RECORD = b"the last record"


@pytest.mark.parametrize(
    ("tail", "master", "wrong"),
    [
        (Tail(0), MasterLog(0, 0), ""),
        (Tail(0), MasterLog(400, 900), ""),
        (Tail(300, 200, RECORD), MasterLog(0, 300, RECORD), ""),
        (Tail(300, 200, RECORD), MasterLog(0, 900, RECORD), ""),
        # Empty but for its place: its first segment was made, and nothing came.
        (Tail(400), MasterLog(0, 900), ""),
        (Tail(300, 200, RECORD), MasterLog(0, 900, b"another"), "another record at offset 200"),
        (Tail(300, 200, RECORD), MasterLog(0, 900), "no record at offset 200"),
        (Tail(300, 200, RECORD), MasterLog(0, 250, RECORD), "50 bytes behind the end"),
        (Tail(300, 200, RECORD), MasterLog(0, 0), "300 bytes behind the end"),
    ],
)
def test_a_log_is_the_begin_of_the_masters_or_it_is_said_where_it_differs(
    tail: Tail, master: MasterLog, wrong: str
) -> None:
    problem = difference(tail, master)
    assert wrong in problem
    assert bool(problem) is bool(wrong)
    assert ("empty one" in problem) is bool(wrong)


@pytest.mark.parametrize(
    ("end", "begin", "is_deleted"),
    [(0, 500, False), (500, 500, False), (499, 500, True), (900, 500, False)],
)
def test_a_slave_that_was_away_for_too_long_is_told(end: int, begin: int, is_deleted: bool) -> None:
    problem = deleted(Tail(end, end - 1, RECORD), MasterLog(begin, 1_000))
    assert bool(problem) is is_deleted
    if problem:
        assert f"before {begin}" in problem
