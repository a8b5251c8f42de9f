import errno
from pathlib import Path

import pytest

from aerobee.store.errors import StoreDamaged
from aerobee.store.files.disk import Disk
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.files.mapped_file_queue import MappedFileQueue
from aerobee.store.format.names import segment_name
from tests.kit.faulty_disk import Fault, FaultyDisk

SIZE = 4_096


def make_files(directory: Path, *starts: int, size: int = SIZE) -> None:
    directory.mkdir(exist_ok=True)
    for start in starts:
        (directory / segment_name(start)).write_bytes(bytes(size))


def load(directory: Path, size: int = SIZE) -> MappedFileQueue:
    queue = MappedFileQueue(Disk(), directory, size)
    queue.load()
    return queue


def test_an_empty_queue_begins_at_0(tmp_path: Path) -> None:
    queue = load(tmp_path / "none")
    assert (queue.first, queue.last) == (None, None)
    assert (queue.min_offset, queue.max_offset, queue.next_start()) == (0, 0, 0)
    assert queue.find(0) is None


def test_files_are_loaded_in_order_and_counted_as_full(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 2 * SIZE, SIZE, 3 * SIZE)
    queue = load(tmp_path / "q")
    assert [file.start for file in queue.files] == [SIZE, 2 * SIZE, 3 * SIZE]
    assert (queue.min_offset, queue.max_offset) == (SIZE, 4 * SIZE)
    assert all(file.full and file.flushed == SIZE for file in queue.files)


def test_every_byte_is_found_in_its_file_and_none_outside(tmp_path: Path) -> None:
    make_files(tmp_path / "q", SIZE, 2 * SIZE)
    queue = load(tmp_path / "q")
    for offset in (SIZE, SIZE + 1, 2 * SIZE - 1, 2 * SIZE, 3 * SIZE - 1):
        file = queue.find(offset)
        assert file is not None
        assert file.start <= offset < file.end
    assert queue.find(SIZE - 1) is None
    assert queue.find(3 * SIZE) is None


def test_behind_a_missing_file_the_others_are_found(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0, 3 * SIZE)
    queue = load(tmp_path / "q")
    assert queue.find(SIZE) is None
    found = queue.find(3 * SIZE + 5)
    assert found is queue.last
    assert queue.first is not None
    assert queue.after(queue.first) is queue.last


def test_a_last_file_of_length_0_is_removed(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0)
    make_files(tmp_path / "q", SIZE, size=0)
    assert len(load(tmp_path / "q").files) == 1
    assert [path.name for path in (tmp_path / "q").iterdir()] == [segment_name(0)]


def test_a_file_that_nobody_could_read_later_is_named(tmp_path: Path) -> None:
    """Old files are opened when a consumer asks for them: he would be held there for ever."""
    make_files(tmp_path / "q", 0, SIZE)
    moved = (tmp_path / "q" / segment_name(0)).rename(tmp_path / "elsewhere")
    (tmp_path / "q" / segment_name(0)).symlink_to(moved)
    with pytest.raises(StoreDamaged, match=f"{segment_name(0)} is a symbolic link"):
        load(tmp_path / "q")
    disk = FaultyDisk(tmp_path, Fault(name="open", path=segment_name(SIZE), error=errno.EACCES))
    make_files(tmp_path / "r", 0, SIZE)
    with pytest.raises(PermissionError, match=segment_name(SIZE)):
        MappedFileQueue(disk, tmp_path / "r", SIZE).load()


@pytest.mark.parametrize("name", ["README", "0000", f"{SIZE:020d}.bak", "x" * 20])
def test_a_stranger_in_the_directory_is_named(tmp_path: Path, name: str) -> None:
    make_files(tmp_path / "q", 0)
    (tmp_path / "q" / name).write_bytes(bytes(SIZE))
    with pytest.raises(StoreDamaged, match=name):
        load(tmp_path / "q")


def test_a_file_of_another_length_is_named_with_both_lengths(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0, SIZE)
    (tmp_path / "q" / segment_name(0)).write_bytes(bytes(10))
    with pytest.raises(StoreDamaged, match=rf"{segment_name(0)} has 10 bytes.*{SIZE}"):
        load(tmp_path / "q")


def test_files_that_agree_on_another_size_decide_it(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0, 8_192, size=8_192)
    assert load(tmp_path / "q", size=SIZE).file_size == 8_192


def test_truncation_drops_later_files_and_keeps_one_that_begins_there(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0, SIZE, 2 * SIZE)
    queue = load(tmp_path / "q")
    queue.truncate(SIZE)
    assert [(file.start, file.wrote) for file in queue.files] == [(0, SIZE), (SIZE, 0)]
    assert len(list((tmp_path / "q").iterdir())) == 2
    queue.truncate(SIZE - 3)
    assert [(file.start, file.wrote) for file in queue.files] == [(0, SIZE - 3)]


def test_the_oldest_file_can_be_dropped_but_never_the_last(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0, SIZE)
    queue = load(tmp_path / "q")
    assert queue.first is not None
    view = queue.first.view(0, 4)
    queue.take_first()
    assert queue.min_offset == SIZE
    assert view is not None
    assert bytes(view) == bytes(4)
    with pytest.raises(AssertionError):
        queue.take_first()


def test_a_new_file_must_follow_the_last_one(tmp_path: Path) -> None:
    make_files(tmp_path / "q", 0)
    queue = load(tmp_path / "q")
    queue.add(MappedFile(Disk(), queue.path_of(SIZE), SIZE, SIZE))
    with pytest.raises(AssertionError):
        queue.add(MappedFile(Disk(), queue.path_of(4 * SIZE), 4 * SIZE, SIZE))


def test_a_thread_that_looks_for_a_byte_goes_on_while_segments_come_and_go(
    tmp_path: Path,
) -> None:
    """A query by key reads the log in a thread; the loop deletes and adds segments meanwhile."""
    make_files(tmp_path / "q", SIZE, 2 * SIZE, 3 * SIZE)
    queue = load(tmp_path / "q")
    seen = queue.files
    names = [file.path.name for file in seen]
    queue.take_first()
    start = queue.next_start()
    queue.add(MappedFile(Disk(), queue.path_of(start), start, queue.file_size))
    assert [file.path.name for file in seen] == names, "what a thread walks does not change"
    assert queue.files[0].start == seen[1].start
