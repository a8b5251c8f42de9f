import errno
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk, Handle
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.format.faults import BAD_MAGIC, BLANK, Stop
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import BLANK_BYTES, encode
from aerobee.store.log.commit_log import CommitLog
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.store_model import draft

SEGMENT = 1_024
FIXED = len(encode(draft(body=b""), 0, 0, 0))


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return new_log(tmp_path)


def new_log(root: Path, disk: Disk | None = None) -> CommitLog:
    disk = disk or Disk()
    disk.mkdir(root / "commitlog")
    log = CommitLog(disk, root / "commitlog", SEGMENT)
    log.load()
    return log


def put(log: CommitLog, body: bytes, stored: int = 1_000) -> int:
    """Append one message as the writer does; its physical offset."""
    at = log.max_offset
    record = encode(draft(body=body), 0, at, stored)
    if not log.append(record, stored):
        log.roll(len(record))
        at = log.max_offset
        assert log.append(encode(draft(body=body), 0, at, stored), stored)
    return at


def reopen(log: CommitLog, root: Path) -> CommitLog:
    log.close()
    again = new_log(root)
    end = again.walk(again.min_offset)
    for _ in end:
        pass
    again.truncate(end.stop.physical_offset)
    again.take_over()
    return again


def test_the_first_append_asks_for_a_segment(log: CommitLog) -> None:
    assert not log.append(b"x", 1)
    assert put(log, b"hello") == 0
    assert [path.name for path in log.queue.directory.iterdir()] == [segment_name(0)]


def test_records_lie_side_by_side_and_read_back(log: CommitLog) -> None:
    places = [put(log, body) for body in (b"one", b"two2", b"three")]
    assert places == [0, FIXED + 3, 2 * FIXED + 7]
    views = [log.record(at) for at in places]
    assert [bytes(view)[88:-4] for view in views if view] == [b"one", b"two2", b"three"]
    assert [at for at, _ in log.walk(0, crc=True)] == places


@pytest.mark.parametrize("spare", range(BLANK_BYTES + 2))
def test_an_append_always_leaves_room_for_the_blank(log: CommitLog, spare: int) -> None:
    put(log, bytes(SEGMENT - 2 * FIXED - spare))
    second = put(log, b"")
    fits = spare >= BLANK_BYTES
    assert (second < SEGMENT) is fits
    if not fits:
        assert second == SEGMENT
        first = (log.queue.directory / segment_name(0)).read_bytes()
        at = SEGMENT - FIXED - spare
        assert first[at : at + 8] == (FIXED + spare).to_bytes(4, "big") + bytes.fromhex("cbd43194")
        assert not first[at + 8 :].strip(b"\0")


def test_a_walk_passes_the_blank_and_says_where_it_ended(log: CommitLog) -> None:
    places = [put(log, bytes(200)) for _ in range(9)]
    walk = log.walk(0, crc=True)
    assert [at for at, _ in walk] == places
    assert walk.stop.physical_offset == log.max_offset
    assert log.max_offset > 2 * SEGMENT


def test_a_walk_ends_at_a_blank_without_a_next_segment(log: CommitLog) -> None:
    put(log, bytes(500))
    put(log, bytes(500))
    (log.queue.directory / segment_name(SEGMENT)).unlink()
    log.queue.files.pop()
    walk = log.walk(0)
    assert len(list(walk)) == 1
    assert walk.stop == Stop(BLANK, FIXED + 500)


def test_a_walk_stops_at_what_is_no_record(log: CommitLog) -> None:
    put(log, b"good")
    at = put(log, b"bad")
    assert log.tail is not None
    log.tail.pages[at + 4] ^= 0xFF
    walk = log.walk(0)
    assert len(list(walk)) == 1
    assert walk.stop == Stop(BAD_MAGIC, at)


def test_only_the_begin_of_a_record_reads_as_one(log: CommitLog) -> None:
    put(log, b"a")
    at = put(log, b"b")
    assert log.record(at) is not None
    assert log.record(at, FIXED + 1) is not None
    assert log.record(at, FIXED) is None
    for elsewhere in (at + 1, at - 1, log.max_offset, SEGMENT, -1, 1 << 40):
        assert log.record(elsewhere) is None


def test_a_segment_that_was_just_deleted_has_no_record(log: CommitLog) -> None:
    """A thread that has it open reads less than was there."""
    at = put(log, b"hello")

    def left(there: int, file: MappedFile, position: int, size: int) -> memoryview:
        return file.readable()[position : min(position + size, there)]

    for there in (0, 20, 95):
        assert log.record(at, None, partial(left, there)) is None
    assert log.record(at, None, partial(left, SEGMENT)) is not None


def test_store_times_are_read_from_the_record_for_both_address_families(log: CommitLog) -> None:
    put(log, b"x", stored=1_700_000_000_001)
    at = log.max_offset
    message = draft(body=b"six")
    message.born_host = bytes(20)
    assert log.append(encode(message, 0, at, 1_700_000_000_002), 1_700_000_000_002)
    assert log.store_time(0) == 1_700_000_000_001
    assert log.store_time(at) == 1_700_000_000_002
    assert log.store_time(at + 1) == -1
    assert log.store_time(SEGMENT) == -1


def test_flushed_moves_only_when_the_plan_was_carried_out(log: CommitLog) -> None:
    put(log, b"one")
    plan = log.plan_sync()
    put(log, b"two")
    log.sync(plan)
    assert log.flushed == 0
    log.complete(plan)
    assert log.flushed == FIXED + 3
    assert log.unflushed_bytes == FIXED + 3


def test_the_old_segment_is_synced_before_the_new_one(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = new_log(tmp_path, disk)
    put(log, bytes(500))
    log.sync_all()
    put(log, bytes(500))
    disk.calls.clear()
    log.sync_all()
    synced = [str(call.path) for call in disk.calls if call.name == "fdatasync"]
    assert [segment_name(0) in path for path in synced] == [True, False]
    assert [segment_name(SEGMENT) in path for path in synced] == [False, True]


def test_when_the_old_segment_cannot_be_synced_nothing_is_promised(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = new_log(tmp_path, disk)
    put(log, bytes(500))
    put(log, bytes(500))
    disk.faults.append(Fault(name="fdatasync", path=segment_name(0)))
    with pytest.raises(OSError, match=segment_name(0)):
        log.sync_all()
    assert log.flushed == 0


def test_a_segment_under_its_name_is_found_again_before_its_data_is_promised(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    log = new_log(tmp_path, disk)
    put(log, b"x")
    disk.calls.clear()
    log.sync_all()
    assert ("fsync", log.queue.directory) in [(call.name, call.path) for call in disk.calls]
    put(log, b"y")
    disk.calls.clear()
    log.sync_all()
    assert [call.name for call in disk.calls] == ["fdatasync"]


def test_without_room_for_a_segment_nothing_has_changed(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    log = new_log(tmp_path, disk)
    put(log, bytes(500))
    end = log.max_offset
    disk.faults.append(Fault(name="posix_fallocate", error=errno.ENOSPC))
    with pytest.raises(OSError, match="space"):
        log.roll(600)
    assert log.max_offset == end
    assert [path.name for path in log.queue.directory.iterdir()] == [segment_name(0)]
    log.roll(600)
    assert log.max_offset == SEGMENT


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    places = [put(log, bytes(300)) for _ in range(5)]
    end = log.max_offset
    again = reopen(log, tmp_path)
    assert again.max_offset == end
    assert put(again, b"next") == end
    assert [at for at, _ in again.walk(0)] == [*places, end]


def test_truncation_leaves_zeros_and_says_how_far_old_bytes_reached(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    places = [put(log, bytes([65]) * 300) for _ in range(5)]
    assert places[2] == SEGMENT
    end = log.max_offset
    log.close()
    log = new_log(tmp_path)
    assert log.truncate(places[1]) >= end - places[1]
    assert log.max_offset == log.flushed == places[1]
    assert not (tmp_path / "commitlog" / segment_name(0)).read_bytes()[places[1] :].strip(b"\0")
    assert len(list((tmp_path / "commitlog").iterdir())) == 1


def test_a_segment_prepared_ahead_counts_as_nothing_when_it_is_cut(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"x")
    end = log.max_offset
    log.close()
    (tmp_path / "commitlog" / segment_name(SEGMENT)).write_bytes(bytes(SEGMENT))
    log = new_log(tmp_path)
    assert log.truncate(end) == 0


def test_blocks_of_a_segment_taken_over_are_tried_again_with_the_first_append(
    tmp_path: Path,
) -> None:
    put(log := new_log(tmp_path), b"x")
    end = log.max_offset
    log.close()
    disk = FaultyDisk(tmp_path, Fault(name="posix_fallocate", error=errno.ENOSPC, times=2))
    log = new_log(tmp_path, disk)
    log.truncate(end)
    log.take_over()
    assert log.tail is None
    assert log.record(0) is not None
    with pytest.raises(OSError, match="space"):
        put(log, b"y")
    assert put(log, b"y") == end


@given(st.lists(st.integers(0, SEGMENT - FIXED - BLANK_BYTES), max_size=30))
def test_any_sizes_are_walked_as_they_were_put(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    log = new_log(tmp_path_factory.mktemp("log"))
    places = [put(log, bytes(size)) for size in sizes]
    walk = log.walk(0, crc=True)
    assert [(at, header.size - FIXED) for at, header in walk] == list(
        zip(places, sizes, strict=True)
    )
    assert walk.stop.physical_offset == log.max_offset
    log.close()


def test_the_next_segment_may_come_from_elsewhere(log: CommitLog) -> None:
    asked: list[tuple[str, int]] = []
    make = log.new_segment

    def prepared(path: Path, size: int) -> Handle:
        asked.append((path.name, size))
        return make(path, size)

    log.new_segment = prepared
    put(log, b"x")
    assert asked == [(segment_name(0), SEGMENT)]
