from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.files.open_files import OpenFiles
from aerobee.store.format.names import segment_name
from aerobee.store.format.unit import BLANK, UNIT, UNIT_SIZE
from aerobee.store.queues.consume_queue import KEEP_BYTES, ConsumeQueue
from aerobee.store.queues.unit_cache import BLOCK_BYTES, BLOCKS_MAX, UnitCache
from aerobee.store.results import UnitStatus

PER_FILE = 10
FILE = PER_FILE * UNIT_SIZE
ADDED, REPEATED, GAP = UnitStatus.ADDED, UnitStatus.REPEATED, UnitStatus.GAP


def new_queue(directory: Path, file_size: int = FILE) -> ConsumeQueue:
    disk = Disk()
    queue = ConsumeQueue("T", 0, directory, file_size, disk, OpenFiles(disk), UnitCache())
    queue.load()
    return queue


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return new_queue(tmp_path / "T" / "0")


def fill(queue: ConsumeQueue, count: int, first: int | None = None) -> None:
    start = queue.end_offset if first is None else first
    for number in range(start, start + count):
        assert queue.append(number, 100 * number + 7, 100, number) is ADDED


def write(queue: ConsumeQueue) -> None:
    """As the flush service does, in place."""
    disk = Disk()
    for piece in queue.take_writes():
        disk.mkdir(piece.path.parent)
        if piece.creates:
            disk.create(piece.path, queue.file_size, piece.blanks() + piece.data).close()
        else:
            handle = disk.open(piece.path)
            handle.pwrite(piece.data, piece.position)
            handle.close()
        queue.mark_written(piece)


def numbers(data: bytes | bytearray) -> list[int]:
    return [unit[2] for unit in UNIT.iter_unpack(data)]


def test_units_are_seen_at_once_and_no_file_is_made(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    assert (queue.min_offset, queue.end_offset, queue.max_physical_offset) == (0, 3, 307)
    assert numbers(queue.units(0, 10)) == [0, 1, 2]
    assert queue.unit(1) == (107, 100, 1)
    assert not queue.directory.exists()


def test_where_it_ended_is_known_while_more_is_added(queue: ConsumeQueue) -> None:
    assert queue.end_before(0) == 0
    fill(queue, 3)
    assert [queue.end_before(at) for at in (0, 7, 107, 207, 307, 999)] == [0, 0, 1, 2, 3, 3]
    write(queue)
    fill(queue, 2)
    assert [queue.end_before(at) for at in (307, 407, 507)] == [3, 4, 5]


def test_a_queue_whose_first_message_came_since_had_no_end(queue: ConsumeQueue) -> None:
    fill(queue, 2, first=30)
    assert [queue.end_before(at) for at in (3_007, 3_107, 3_207)] == [0, 31, 32]


def test_a_file_appears_with_its_first_unit_and_its_final_size(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    write(queue)
    path = queue.directory / segment_name(0)
    assert path.read_bytes() == bytes(queue.units(0, 3)).ljust(FILE, b"\0")
    assert queue.files == [0]
    assert queue.unwritten_bytes == 0


def test_the_golden_unit_is_what_other_brokers_write(queue: ConsumeQueue) -> None:
    queue.append(0, 0, 0xA5, 2_598_919)
    write(queue)
    data = (queue.directory / segment_name(0)).read_bytes()
    assert data[:20].hex() == "0000000000000000000000a5000000000027a807"


def test_units_cross_files_but_one_read_does_not(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    write(queue)
    assert queue.files == [0, FILE, 2 * FILE]
    assert numbers(queue.units(8, 32)) == [8, 9]
    assert numbers(queue.units(10, 32)) == list(range(10, 20))
    assert queue.next_file_offset(8) == 10
    assert queue.next_file_offset(10) == 20


def test_what_is_half_in_the_file_and_half_in_memory_is_read_as_one(tmp_path: Path) -> None:
    queue = new_queue(tmp_path / "T" / "0", file_size=1_000 * UNIT_SIZE)
    fill(queue, 500)
    write(queue)
    fill(queue, 5)
    assert queue.tail_position == 500 * UNIT_SIZE - KEEP_BYTES
    boundary = queue.tail_position // UNIT_SIZE
    assert numbers(queue.units(boundary - 3, 6)) == list(range(boundary - 3, boundary + 3))
    assert numbers(queue.units(0, 505)) == list(range(505))
    assert numbers(queue.units(3, 2)) == [3, 4]


def test_a_block_that_readers_go_through_is_read_from_its_file_once(tmp_path: Path) -> None:
    per_block = BLOCK_BYTES // UNIT_SIZE
    queue = new_queue(tmp_path / "T" / "0", 3 * BLOCK_BYTES + 5 * UNIT_SIZE)
    fill(queue, 5 * per_block)
    write(queue)
    read: list[tuple[int, int]] = []

    def from_disk(files: OpenFiles, path: Path, position: int, size: int) -> bytes:
        read.append((int(path.name) + position, size))
        return files.get(path).pread(size, position)

    queue.begun = 5 * BLOCK_BYTES  # all of it is of an earlier run
    for first in range(0, 2 * per_block - 7, 7):
        assert numbers(queue.units(first, 7, from_disk)) == [*range(first, first + 7)]
    assert read == [(0, BLOCK_BYTES), (BLOCK_BYTES, BLOCK_BYTES)]
    # Across the end of a file there is no block.
    at = 3 * per_block + 2
    del read[:]
    assert numbers(queue.units(at, 9, from_disk)) == [at, at + 1, at + 2]
    assert at * UNIT_SIZE < queue.tail_position
    assert read == [(at * UNIT_SIZE, 3 * UNIT_SIZE)]


def test_blocks_of_a_file_that_was_removed_are_gone(tmp_path: Path) -> None:
    per_block = BLOCK_BYTES // UNIT_SIZE
    queue = new_queue(tmp_path / "T" / "0", BLOCK_BYTES)
    fill(queue, 3 * per_block)
    write(queue)
    queue.begun = 3 * BLOCK_BYTES

    def from_disk(files: OpenFiles, path: Path, position: int, size: int) -> bytes:
        return files.get(path).pread(size, position)

    assert numbers(queue.units(3, 2, from_disk)) == [3, 4]
    queue.min_offset, queue.synced = per_block, 3 * BLOCK_BYTES
    assert len(queue.take_expired()) == 1
    assert numbers(queue.units(3, 2, from_disk)) == []


def test_blocks_that_nobody_asked_for_lately_are_dropped() -> None:
    cache = UnitCache()
    for number in range(BLOCKS_MAX + 2):
        cache.keep("queue", number, b"units")
    assert len(cache.kept) == BLOCKS_MAX
    assert next(iter(cache.kept)) == ("queue", 2)


def test_a_repeated_unit_is_ignored_by_place_and_by_number(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    assert queue.append(1, 107, 100, 1) is REPEATED
    assert queue.append(1, 900, 100, 1) is REPEATED
    assert queue.append(3, 107, 100, 1) is REPEATED
    assert queue.end_offset == 3


def test_a_gap_adds_nothing(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    assert queue.append(4, 900, 100, 4) is GAP
    assert queue.end_offset == 3
    assert queue.append(3, 800, 100, 3) is ADDED


@pytest.mark.parametrize("first", [1, 9, 10, 25])
def test_a_first_unit_with_any_number_gets_blanks_in_front(queue: ConsumeQueue, first: int) -> None:
    fill(queue, 2, first)
    assert (queue.min_offset, queue.end_offset, queue.next_offset) == (first, first + 2, first)
    write(queue)
    start = first - first % PER_FILE
    data = (queue.directory / segment_name(start * UNIT_SIZE)).read_bytes()
    assert len(data) == FILE
    assert data[: (first - start) * UNIT_SIZE] == BLANK * (first - start)
    assert BLANK.hex() == "00000000000000007fffffff0000000000000000"
    again = new_queue(queue.directory)
    again.recover(scan=True)
    again.correct_min_offset(0)
    assert (again.min_offset, again.end_offset) == (first, first + 2)


def test_blanks_alone_are_no_queue(queue: ConsumeQueue) -> None:
    queue.directory.mkdir(parents=True)
    (queue.directory / segment_name(0)).write_bytes((BLANK * 4).ljust(FILE, b"\0"))
    again = new_queue(queue.directory)
    again.recover(scan=True)
    assert again.files == []
    assert again.max_physical_offset == -1


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 35])
def test_recovery_finds_the_end(queue: ConsumeQueue, count: int, scan: bool) -> None:
    fill(queue, count)
    write(queue)
    again = new_queue(queue.directory)
    again.recover(scan=scan)
    assert again.end_offset == again.next_offset == count
    assert again.max_physical_offset == queue.max_physical_offset
    assert again.units(0, 4) == queue.units(0, 4)
    fill(again, 3)
    assert again.end_offset == count + 3


@pytest.mark.parametrize("scan", [True, False])
def test_an_all_zero_file_goes(queue: ConsumeQueue, scan: bool) -> None:
    fill(queue, 10)
    write(queue)
    (queue.directory / segment_name(FILE)).write_bytes(bytes(FILE))
    again = new_queue(queue.directory)
    again.recover(scan=scan)
    assert again.files == [0]
    assert again.end_offset == 10
    assert not (queue.directory / segment_name(FILE)).exists()


def test_after_a_crash_nothing_behind_the_first_hole_counts(queue: ConsumeQueue) -> None:
    fill(queue, 18)
    write(queue)
    path = queue.directory / segment_name(0)
    data = bytearray(path.read_bytes())
    data[4 * UNIT_SIZE : 5 * UNIT_SIZE] = bytes(UNIT_SIZE)
    path.write_bytes(data)
    again = new_queue(queue.directory)
    again.recover(scan=True)
    assert again.end_offset == 4
    assert again.files == [0]
    assert not path.read_bytes()[4 * UNIT_SIZE :].strip(b"\0")


def test_after_a_crash_places_that_do_not_rise_end_the_queue(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    write(queue)
    path = queue.directory / segment_name(0)
    data = bytearray(path.read_bytes())
    data[2 * UNIT_SIZE : 3 * UNIT_SIZE] = UNIT.pack(7, 100, 0)
    path.write_bytes(data)
    again = new_queue(queue.directory)
    again.recover(scan=True)
    assert again.end_offset == 2


def test_a_file_of_another_length_ends_the_queue_and_marks_it(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    write(queue)
    (queue.directory / segment_name(FILE)).write_bytes(bytes(3))
    again = new_queue(queue.directory)
    again.recover(scan=False)
    assert again.files == [0]
    assert again.end_offset == 10
    assert again.damaged


def test_a_last_file_of_length_0_is_no_damage(queue: ConsumeQueue) -> None:
    fill(queue, 10)
    write(queue)
    (queue.directory / segment_name(FILE)).write_bytes(b"")
    again = new_queue(queue.directory)
    again.recover(scan=False)
    assert (again.end_offset, again.damaged) == (10, False)


def test_truncation_drops_units_of_lost_messages_and_zeroes_them(queue: ConsumeQueue) -> None:
    fill(queue, 25)
    write(queue)
    again = new_queue(queue.directory)
    again.recover(scan=True)
    again.truncate(1_307)
    assert again.end_offset == 13
    assert again.max_physical_offset == 1_307
    assert again.files == [0, FILE]
    data = (queue.directory / segment_name(FILE)).read_bytes()
    assert data[3 * UNIT_SIZE :] == bytes(7 * UNIT_SIZE)
    again.truncate(10_000)
    assert again.end_offset == 13


def test_truncation_to_nothing_leaves_no_file(queue: ConsumeQueue) -> None:
    fill(queue, 3)
    write(queue)
    queue.truncate(0)
    assert queue.files == []
    assert list(queue.directory.iterdir()) == []


@given(first=st.integers(0, 25), count=st.integers(1, 30), lost=st.integers(0, 60))
def test_min_offset_is_the_first_message_still_in_the_log(
    tmp_path_factory: pytest.TempPathFactory, first: int, count: int, lost: int
) -> None:
    queue = new_queue(tmp_path_factory.mktemp("q") / "T" / "0")
    fill(queue, count, first)
    write(queue)
    queue.correct_min_offset(100 * lost)
    expected = min(max(first, lost), first + count)
    assert queue.min_offset == expected
    queue.correct_min_offset(0)
    assert queue.min_offset == expected, "never goes back"


@given(st.lists(st.integers(1, 12), max_size=8))
def test_live_reads_equal_reads_after_recovery(
    tmp_path_factory: pytest.TempPathFactory, portions: list[int]
) -> None:
    queue = new_queue(tmp_path_factory.mktemp("q") / "T" / "0")
    for portion in portions:
        fill(queue, portion)
        write(queue)
    again = new_queue(queue.directory)
    again.recover(scan=True)
    assert again.end_offset == queue.end_offset == sum(portions)
    for at in range(queue.end_offset):
        assert again.unit(at) == queue.unit(at)


def test_sync_covers_the_files_written_since_the_last_one(queue: ConsumeQueue) -> None:
    fill(queue, 12)
    write(queue)
    assert [path.name for path in queue.unsynced_paths()] == [segment_name(0), segment_name(FILE)]
    queue.mark_synced(queue.written)
    assert queue.unsynced_bytes == 0
    fill(queue, 1)
    write(queue)
    assert [path.name for path in queue.unsynced_paths()] == [segment_name(FILE)]


def test_destroyed_means_no_file_and_no_number(queue: ConsumeQueue) -> None:
    fill(queue, 12)
    write(queue)
    queue.destroy()
    assert (queue.min_offset, queue.end_offset, queue.next_offset) == (0, 0, 0)
    assert list(queue.directory.iterdir()) == []
    fill(queue, 1)
    assert queue.end_offset == 1


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("count", [1, 399, 400, 401, 5_000, 9_999, 10_000, 10_001, 14_321])
def test_the_end_is_found_in_files_of_any_shape(tmp_path: Path, count: int, dense: bool) -> None:
    queue = new_queue(tmp_path, file_size=10_000 * UNIT_SIZE)
    fill(queue, count)
    write(queue)
    if dense:
        # As a copy without holes.
        for path in tmp_path.iterdir():
            path.write_bytes(path.read_bytes())
    again = new_queue(tmp_path, file_size=10_000 * UNIT_SIZE)
    again.recover(scan=False)
    assert again.end_offset == count
    assert again.max_physical_offset == queue.max_physical_offset
