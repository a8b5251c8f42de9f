from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.ha import NEVER_COUNTS
from aerobee.store.replication.transfer import LogPiece, LogSpan, Standing, Transfer, held_by

SEGMENT = 1_000
LOG = LogSpan(2_000, 5_300, 5_300, SEGMENT, 5_300)


def started(report: int, log: LogSpan = LOG) -> Transfer:
    transfer = Transfer()
    assert transfer.reported(report, log)
    return transfer


@pytest.mark.parametrize(
    ("report", "standing", "next_offset"),
    [
        (0, Standing.FOLLOWS, 5_000),
        (2_000, Standing.FOLLOWS, 2_000),
        (5_300, Standing.FOLLOWS, 5_300),
        (4_321, Standing.FOLLOWS, 4_321),
        (5_301, Standing.AHEAD, 5_301),
        (1 << 40, Standing.AHEAD, 1 << 40),
        (1_999, Standing.DELETED, 1_999),
        (-5, Standing.DELETED, -5),
    ],
)
def test_the_first_report_says_where_to_start(
    report: int, standing: Standing, next_offset: int
) -> None:
    transfer = started(report)
    assert (transfer.standing, transfer.next_offset) == (standing, next_offset)
    follows = standing is Standing.FOLLOWS
    assert transfer.acknowledged == (report if follows else -1)
    assert (transfer.piece(LOG, 100) is not None) == (follows and next_offset < LOG.end)


def test_an_empty_slave_of_a_log_that_ends_with_a_segment_starts_with_the_next() -> None:
    assert started(0, LogSpan(2_000, 5_000, 5_000, SEGMENT, 5_000)).next_offset == 5_000
    assert started(0, LogSpan(0, 0, 0, SEGMENT, 0)).next_offset == 0


def test_bytes_that_nobody_was_sent_are_others_though_the_log_has_grown_past_them() -> None:
    """The master lost them with its power, and took other messages before the slave came."""
    grown = LogSpan(2_000, 5_300, 5_300, SEGMENT, 5_000)
    assert started(5_100, grown).standing is Standing.AHEAD
    assert started(5_000, grown).standing is Standing.FOLLOWS


def test_a_slave_that_was_ahead_is_sent_nothing_when_the_log_has_grown() -> None:
    transfer = started(5_400)
    grown = LogSpan(2_000, 6_000, 6_000, SEGMENT, 6_000)
    assert transfer.piece(grown, 100) is None
    assert not transfer.reported(5_400, grown)
    assert transfer.acknowledged == -1


def test_a_slave_whose_next_bytes_were_deleted_counts_no_more() -> None:
    transfer = started(2_500)
    assert transfer.piece(LogSpan(3_000, 5_300, 5_300, SEGMENT, 5_300), 100) is None
    assert (transfer.standing, transfer.acknowledged) == (Standing.DELETED, -1)
    assert not transfer.reported(2_600, LOG)


def test_a_report_of_what_was_not_sent_does_not_count() -> None:
    transfer = started(2_000)
    piece = transfer.piece(LOG, 300)
    assert piece == LogPiece(2_000, 300)
    assert not transfer.reported(2_001, LOG)
    transfer.sent(piece)
    assert transfer.reported(2_300, LOG)
    assert not transfer.reported(2_301, LOG)
    assert not transfer.reported(1 << 40, LOG)
    assert not transfer.reported(2_100, LOG)
    assert transfer.acknowledged == 2_300


def test_what_is_not_on_disk_yet_waits_where_it_has_to_be() -> None:
    transfer = started(5_200, LogSpan(2_000, 5_200, 5_300, SEGMENT, 5_300))
    assert transfer.piece(LogSpan(2_000, 5_200, 5_300, SEGMENT, 5_300), 500) is None
    assert transfer.piece(LOG, 500) == LogPiece(5_200, 100)


@given(st.integers(2_000, 5_300), st.integers(1, 1_500))
def test_the_pieces_are_the_log_and_never_cross_the_end_of_a_segment(
    start: int, batch_bytes: int
) -> None:
    transfer = started(start)
    at = start
    while (piece := transfer.piece(LOG, batch_bytes)) is not None:
        assert piece.physical_offset == at
        assert 0 < piece.size <= batch_bytes
        assert piece.physical_offset // SEGMENT == (piece.end - 1) // SEGMENT
        transfer.sent(piece)
        at = piece.end
    assert at == LOG.end


def test_so_many_peers_hold_what_the_least_of_them_holds() -> None:
    ends = {"a": 10, "b": 30, "c": 20}
    assert [held_by(count, ends) for count in range(5)] == [-1, 30, 20, 10, -1]
    assert held_by(1, {}) == -1


def test_a_shadow_gets_everything_and_has_acknowledged_nothing() -> None:
    transfer = started(4_321)
    assert transfer.reported(NEVER_COUNTS, LOG)
    assert (transfer.standing, transfer.acknowledged, transfer.shadow) == (
        Standing.FOLLOWS,
        -1,
        True,
    )
    piece = transfer.piece(LOG, 100)
    assert piece == LogPiece(4_321, 100)
    transfer.sent(piece)
    # Nor does it become a slave again over this connection.
    assert not transfer.reported(4_400, LOG)
    assert not transfer.reported(NEVER_COUNTS, LOG)
    assert transfer.acknowledged == -1
