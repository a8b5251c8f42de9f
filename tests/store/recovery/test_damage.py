from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.disk import Disk
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.recovery.damage import (
    LogEnd,
    reason_at,
    record_time_at,
    refuse_holes,
    refuse_loss,
)
from tests.kit.store_model import LOG_BYTES, Sent, StoreModel, log_records, open_store


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """The log of a store with 24 messages in several segments, one per ms."""
    model = StoreModel(tmp_path / "d")
    for _ in range(24):
        model.put("T", 0, Sent(b"x" * 700, b""))
    assert trio.run(model.store.close)
    log = CommitLog(Disk(), tmp_path / "d" / "commitlog", LOG_BYTES)
    log.load()
    yield log
    log.close()


def places(log: CommitLog) -> list[tuple[int, int]]:
    """Physical offset and store time of every record."""
    return [(position, header.store_timestamp) for position, header in log.walk(0)]


def test_a_row_of_segments_without_a_hole_passes(log: CommitLog) -> None:
    refuse_holes(log)
    del log.queue.files[1]
    with pytest.raises(StoreDamaged, match=f"{LOG_BYTES:020d} is missing between"):
        refuse_holes(log)


def test_behind_the_true_end_there_is_nothing(log: CommitLog) -> None:
    records = log_records(log.queue.directory.parent)
    position, data = records[-1]
    refuse_loss(log, LogEnd(position + len(data), 0, None), crc=True)


def test_a_record_known_to_be_safe_must_not_be_cut(log: CommitLog) -> None:
    for number, (position, stored) in enumerate(places(log)):
        end = LogEnd(max(position - 3, 0), stored - 1, stored + 1)
        with pytest.raises(StoreDamaged, match=f"follow at {position}: restore"):
            refuse_loss(log, end, crc=True)
        if number:
            # In the same millisecond as the last safe one it may be younger.
            refuse_loss(log, end._replace(safe_before=stored), crc=True)


def test_after_a_clean_stop_every_record_is_safe(log: CommitLog) -> None:
    position, stored = places(log)[-1]
    with pytest.raises(StoreDamaged):
        refuse_loss(log, LogEnd(position - 1, stored, None), crc=True)


def test_what_is_older_than_the_end_is_left_over_from_an_earlier_cut(log: CommitLog) -> None:
    position, stored = places(log)[-1]
    refuse_loss(log, LogEnd(position - 1, stored + 1, None), crc=True)


def test_a_record_across_two_searched_pieces_is_found(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    position, stored = places(log)[-1]
    for size in range(64, 80):
        monkeypatch.setattr("aerobee.store.format.walk.SEARCH_FIRST_BYTES", size)
        monkeypatch.setattr("aerobee.store.format.walk.SEARCH_BYTES", size)
        with pytest.raises(StoreDamaged):
            refuse_loss(log, LogEnd(position - 1, stored, None), crc=True)


def test_places_without_a_record_have_no_time_and_a_reason(log: CommitLog) -> None:
    assert record_time_at(log, 1 << 40, crc=True) == 0
    assert record_time_at(log, 1, crc=True) == 0
    assert reason_at(log, 1 << 40) == "no segment"
    assert "magic" in reason_at(log, 1)


@pytest.mark.parametrize("elsewhere", ["nowhere", ""])
def test_a_log_that_is_not_where_it_is_looked_for_is_told_with_the_setting(
    log: CommitLog, tmp_path: Path, elsewhere: str
) -> None:
    """As when storePathCommitLog is changed, or left out where it was set."""
    if not elsewhere:
        log.queue.directory.rename(tmp_path / "moved")
    place = str(tmp_path / elsewhere) if elsewhere else ""
    with pytest.raises(StoreDamaged, match="set storePathCommitLog to where the segments are"):
        open_store(tmp_path / "d", Disk(), store_path_commit_log=place)
