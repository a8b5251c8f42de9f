import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.tools.directory import ReadOnlyDisk
from aerobee.store.tools.findings import Findings
from tests.kit.faulty_disk import Fault, FaultyDisk

SIZE = 4_096


@pytest.fixture
def file(tmp_path: Path) -> MappedFile:
    disk = Disk()
    directory = tmp_path / "log"
    disk.mkdir(directory)
    handle = disk.allocate(directory / f"{SIZE:020d}", SIZE)
    file = MappedFile(disk, directory / f"{SIZE:020d}", SIZE, SIZE, handle=handle)
    file.map_for_writes()
    return file


def content(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


def test_what_was_appended_can_be_read_and_nothing_behind_it(file: MappedFile) -> None:
    file.append(b"abc")
    file.append(b"defg")
    assert content(file.view(0, 7)) == b"abcdefg"
    assert content(file.view(2, 3)) == b"cde"
    assert file.view(0, 8) is None
    assert file.view(-1, 2) is None
    assert file.max_offset == SIZE + 7


def test_appended_bytes_reach_the_file_without_a_sync(file: MappedFile) -> None:
    file.append(b"abc")
    assert file.path.read_bytes()[:4] == b"abc\0"


class Copies:
    """Pages that note the copies into them."""

    def __init__(self) -> None:
        self.made: list[tuple[int, bytes]] = []

    def __setitem__(self, place: slice, data: bytes) -> None:
        self.made.append((place.start, bytes(data)))


def test_the_begin_of_a_batch_is_copied_last_and_by_one_instruction(file: MappedFile) -> None:
    file.append(b"abcdefgh")
    file.pages = copies = Copies()  # type: ignore[assignment]  # it only takes copies
    file.append(bytes(range(100)))
    assert copies.made == [(16, bytes(range(8, 100))), (8, bytes(range(8)))]
    assert file.wrote == 108


def test_records_of_several_queues_are_copied_one_by_one(file: MappedFile) -> None:
    file.append(b"ab")
    file.pages = copies = Copies()  # type: ignore[assignment]  # it only takes copies
    file.append_each([b"first", b"second"])
    assert copies.made == [(2, b"first"), (7, b"second")]
    assert file.wrote == 13


def test_a_full_file_takes_nothing_more(file: MappedFile) -> None:
    file.append(bytes(SIZE))
    assert file.full
    with pytest.raises(AssertionError):
        file.append(b"x")


def test_the_blank_counts_the_rest_of_the_file_as_used(file: MappedFile) -> None:
    file.append(bytes(SIZE - 20))
    file.close_with_blank()
    assert file.full
    assert file.path.read_bytes()[-20:] == bytes.fromhex("00000014cbd43194") + bytes(12)


def test_a_blank_needs_its_eight_bytes(file: MappedFile) -> None:
    file.append(bytes(SIZE - 7))
    with pytest.raises(AssertionError):
        file.close_with_blank()


def test_views_outlive_the_file(file: MappedFile) -> None:
    file.append(b"still here")
    view = file.view(0, 10)
    file.close()
    file.path.unlink()
    assert content(view) == b"still here"


def test_views_cannot_be_written(file: MappedFile) -> None:
    file.append(b"abc")
    view = file.view(0, 3)
    assert view is not None
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 0


def test_flushed_never_passes_wrote_and_never_goes_back(file: MappedFile) -> None:
    file.append(b"abcdef")
    file.mark_flushed(4)
    file.mark_flushed(2)
    assert file.flushed == 4
    with pytest.raises(AssertionError):
        file.mark_flushed(7)


def test_a_truncated_file_forgets_positions_but_not_bytes(file: MappedFile) -> None:
    file.append(b"abcdef")
    file.mark_flushed(6)
    file.truncate(2)
    assert (file.wrote, file.flushed) == (2, 2)
    assert file.path.read_bytes()[:6] == b"abcdef"


def test_old_bytes_behind_the_end_are_zeroed_and_measured(file: MappedFile) -> None:
    file.append(b"abcdef")
    file.truncate(2)
    assert file.zero_from(2) == 4
    assert file.path.read_bytes() == b"ab".ljust(SIZE, b"\0")
    assert file.zero_from(2) == 0


def test_a_sparse_file_gets_its_blocks_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as sparse:
        sparse.truncate(1 << 20)
    assert path.stat().st_blocks == 0
    file = MappedFile(Disk(), path, 0, 1 << 20)
    file.prepare_writes()
    assert path.stat().st_blocks * 512 >= 1 << 20
    assert not file.in_use()
    file.append(b"x")
    assert file.in_use()


def test_a_released_file_stays_mapped_while_someone_reads_it(file: MappedFile) -> None:
    file.append(b"abc")
    view = file.view(0, 3)
    file.path.unlink()
    assert not file.release()
    assert not file.release()
    assert content(view) == b"abc"
    assert file.handle is not None, "closing it would give the blocks back in the wrong thread"
    del view
    assert file.release()
    assert file.handle is None
    assert file.release(), "once more does nothing"


def test_a_released_file_stays_whole_while_a_tool_beside_the_broker_has_it_mapped(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are freed piece by piece: for the tool that would be a SIGBUS."""
    monkeypatch.setattr("aerobee.store.files.mapped_file.PIECE_BYTES", 1_000)
    file.append(b"abc")
    disk = ReadOnlyDisk(Findings())
    tool = MappedFile(disk, file.path, SIZE, SIZE, used=SIZE)
    late = disk.open(file.path)
    assert content(tool.view(0, 3)) == b"abc"
    file.path.unlink()
    assert not file.release()
    assert late.size() == SIZE
    tool.close()
    assert file.release()
    with pytest.raises(FileNotFoundError, match="deleted meanwhile"):
        disk.map(late, SIZE, writable=False)
    late.close()


def test_a_file_that_was_never_opened_is_released_at_once(tmp_path: Path) -> None:
    assert MappedFile(Disk(), tmp_path / "x", 0, SIZE, used=SIZE).release()


def test_a_large_file_gives_its_blocks_back_piece_by_piece(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.files.mapped_file.PIECE_BYTES", 1_000)
    assert file.handle is not None
    sizes: list[int] = []
    monkeypatch.setattr(type(file.handle), "truncate", lambda handle, size: sizes.append(size))
    assert file.release()
    assert sizes == [3_096, 2_096, 1_096, 96]


def test_a_deleted_file_keeps_what_is_read_through_a_mapping_it_has_given_up(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks are freed piece by piece; reading on without them is a SIGBUS."""
    monkeypatch.setattr("aerobee.store.files.mapped_file.PIECE_BYTES", 1_000)
    file.append(b"abc")
    views = []
    for _ in range(2):
        views.append(file.view(0, 3))
        file.give_up()
    handle = file.open()
    file.path.unlink()
    while views:
        assert not file.release()
        assert handle.size() == SIZE
        views.pop()
    assert file.release()
    assert file.handle is None


# ── A file system that copies on write ──


def on_a_copying_disk(root: Path) -> tuple[MappedFile, FaultyDisk]:
    disk = FaultyDisk(root)
    disk.copying = True
    file = MappedFile(disk, root / "0", 0, SIZE, handle=disk.allocate(root / "0", SIZE))
    file.map_for_writes()
    return file, disk


def no_room(disk: FaultyDisk, times: int = 1) -> Fault:
    fault = Fault(name="pwrite", error=errno.ENOSPC, times=times)
    disk.faults.append(fault)
    return fault


def test_where_a_mapping_has_no_promise_of_room_the_file_is_written(tmp_path: Path) -> None:
    file, disk = on_a_copying_disk(tmp_path)
    file.append(b"abcdef")
    file.append_each([b"gh", b"i"])
    assert [call.name for call in disk.calls].count("pwrite") == 3
    assert content(file.view(0, 9)) == b"abcdefghi"
    file.append(bytes(range(100)))
    file.close_with_blank()
    assert file.path.read_bytes()[:9] == b"abcdefghi"
    assert file.full


def test_a_failed_append_counts_nothing_and_leaves_nothing_behind_the_next_one(
    tmp_path: Path,
) -> None:
    file, disk = on_a_copying_disk(tmp_path)
    file.append(b"one.")

    def records() -> Iterator[bytes]:
        yield b"two."
        yield b"three."
        no_room(disk)
        yield b"four."

    with pytest.raises(OSError, match="No space left"):
        file.append_each(records())
    assert file.wrote == 4
    assert file.path.read_bytes().rstrip(b"\0") == b"one.two.three."
    file.append_each([b"new."])
    assert file.path.read_bytes().rstrip(b"\0") == b"one.new."


@pytest.mark.parametrize("writes", [1, 2])
def test_what_a_failed_append_has_left_is_zeroed_before_anything_is_appended(
    tmp_path: Path, writes: int
) -> None:
    """A batch is written in two parts, of which the begin is the last."""
    file, disk = on_a_copying_disk(tmp_path)

    def fails(call: object) -> None:
        nonlocal writes
        writes -= getattr(call, "name", "") == "pwrite"
        if not writes:
            no_room(disk)

    disk.before = fails
    with pytest.raises(OSError, match="No space left"):
        file.append(bytes(range(1, 100)))
    disk.before = None
    no_room(disk)
    with pytest.raises(OSError, match="No space left"):
        file.append(b"new")
    assert file.wrote == 0
    file.append(b"new")
    assert file.path.read_bytes().rstrip(b"\0") == b"new"
