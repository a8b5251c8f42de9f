from pathlib import Path

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.index import INDEX_ENTRY, INDEX_HEAD, IndexHead, IndexShape
from aerobee.store.index.index_file import IndexBuilder, IndexFile, Key
from aerobee.store.index.index_walk import IndexWalk
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.index_candidates import candidates

DEFAULT = IndexShape(5_000_000, 20_000_000)
SMALL = IndexShape(10, 20)
STORED = 1_700_000_000_001
HASHES = (0x5EFA67CA, 0x717125C9, 0x717125C8, 0x72BBCF67)


def index_file(directory: Path, shape: IndexShape = SMALL, disk: Disk | None = None) -> IndexFile:
    return IndexFile(disk or Disk(), directory / "index" / "20231114221320001", shape)


def built(file: IndexFile, keys: list[Key]) -> IndexBuilder:
    builder = IndexBuilder.create(file)
    assert builder.add(keys) == len(keys)
    builder.write()
    return builder


def found(file: IndexFile, key_hash: int, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
    return candidates(IndexWalk([file], key_hash, begin_ms, end_ms))


def test_the_worked_example_comes_out_byte_for_byte(tmp_path: Path) -> None:
    file = index_file(tmp_path, DEFAULT)
    built(file, [Key(value, 0, STORED) for value in HASHES]).close()
    assert file.path.stat().st_size == 420_000_040
    with file.path.open("rb") as data:
        assert data.read(40) == bytes.fromhex(
            "0000018bcfe56801 0000018bcfe56801 0000000000000000 0000000000000000 00000004 00000005"
        )
        for number, slot in enumerate((3_468_874, 3_240_649, 3_240_648, 4_910_951), 1):
            data.seek(40 + 4 * slot)
            assert data.read(4) == number.to_bytes(4, "big")
        data.seek(20_000_040)
        assert data.read(20) == bytes(20)
        assert data.read(20) == bytes.fromhex("5efa67ca 0000000000000000 00000000 00000000")


def test_a_chain_leads_from_the_newest_entry_to_the_oldest(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    builder = built(file, [Key(7 + 10 * (n % 2), 100 * n, STORED + 1_000 * n) for n in range(6)])
    assert builder.slots_used == 1
    assert found(file, 7) == [400, 200, 0]
    assert found(file, 17) == [500, 300, 100]
    assert found(file, 27) == []
    assert found(file, 8) == []


def test_times_narrow_the_search_to_the_second(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    built(file, [Key(7, n, STORED + 400 * n) for n in range(10)])
    # Stored 0, 400, 800, … ms after the first; the file says 0, 0, 0, 1, 1, 2, 2, 2, 3, … s.
    assert found(file, 7, STORED + 2_000, STORED + 2_100) == [7, 6, 5]
    assert found(file, 7, STORED + 1_999, STORED + 2_100) == [7, 6, 5, 4, 3]
    assert found(file, 7, STORED + 4_000) == []
    assert found(file, 7, end_ms=STORED - 1) == []


def test_the_first_entry_of_a_later_file_has_the_time_of_its_message(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    file.head = IndexHead(STORED, STORED, 50, 50)
    built(file, [Key(7, 60, STORED + 9_500), Key(7, 70, STORED + 10_600)])
    entry = INDEX_ENTRY.read(file.path.read_bytes(), SMALL.entry_position(1))
    assert entry.time_diff_s == 9, "taken against the file before"
    assert file.head.begin_timestamp == STORED + 9_500
    assert file.head.begin_physical_offset == 60
    assert found(file, 7, STORED + 9_500, STORED + 9_500) == [60]


def test_a_file_takes_one_entry_less_than_its_number(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    builder = IndexBuilder.create(file)
    assert builder.add([Key(n, n, STORED) for n in range(30)]) == 19
    assert builder.full
    assert builder.add([Key(1, 1, STORED)]) == 0
    builder.write()
    assert file.full
    assert INDEX_HEAD.read(file.path.read_bytes()).index_count == 20


def test_building_in_pieces_and_in_two_runs_gives_the_same_bytes(tmp_path: Path) -> None:
    shape = IndexShape(3_000, 500)
    keys = [Key(n * 7_919 % 5_000, n * 10, STORED + n * 333) for n in range(400)]
    whole = index_file(tmp_path / "whole", shape)
    built(whole, keys).close()
    pieces = index_file(tmp_path / "pieces", shape)
    builder = IndexBuilder.create(pieces)
    for at in range(0, 400, 40):
        assert builder.add(keys[at : at + 40]) == 40
        builder.write()
        if at == 200:
            builder.close()
            pieces = index_file(tmp_path / "pieces", shape)
            pieces.read_head()
            builder = IndexBuilder.resume(pieces)
    builder.close()
    assert pieces.path.read_bytes() == whole.path.read_bytes()


def test_a_file_has_its_head_when_its_name_appears(tmp_path: Path) -> None:
    """Killed at any moment: Java keeps a file whose head is zeros, and fills it from far in front
    of its place."""
    disk = FaultyDisk(tmp_path)
    head = IndexHead(STORED, STORED, 700, 700)
    file = index_file(tmp_path, disk=disk)
    file.head = head
    seen: list[IndexHead] = []

    def look(_: Call) -> None:
        if file.path.exists():
            seen.append(INDEX_HEAD.read(file.path.read_bytes()))

    disk.before = look
    IndexBuilder.create(file).close()
    assert seen
    assert set(seen) == {head}


def test_a_short_file_grows_when_it_goes_on_and_a_count_of_zero_is_one(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    file.path.parent.mkdir()
    file.path.write_bytes(bytes(40))
    file.read_head()
    assert file.fits
    IndexBuilder.resume(file).close()
    assert file.path.stat().st_size == SMALL.size
    assert file.empty
    builder = IndexBuilder.resume(file)
    builder.add([Key(3, 5, STORED)])
    builder.write()
    assert found(file, 3) == [5]


@pytest.mark.parametrize(
    "head",
    [
        IndexHead(0, 0, 0, 0, 0, 21),
        IndexHead(0, 0, 0, 0, 5, 5),
        IndexHead(0, 0, 0, 0, -1, 5),
        IndexHead(0, 0, 9, 8, 1, 5),
        IndexHead(-1, 0, 0, 8, 1, 5),
        IndexHead(0, 0, 0, 8, 11, 15),
    ],
)
def test_a_head_that_cannot_be_true_is_seen(tmp_path: Path, head: IndexHead) -> None:
    file = index_file(tmp_path)
    assert file.sound
    file.head = head
    assert not file.sound


def test_slots_and_links_that_lead_nowhere_end_a_search(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    built(file, [Key(7, 10, STORED), Key(7, 20, STORED), Key(8, 30, STORED)]).close()
    data = bytearray(file.path.read_bytes())
    data[SMALL.entry_position(2) + 16 : SMALL.entry_position(2) + 20] = (2).to_bytes(4, "big")
    data[SMALL.slot_position(8) : SMALL.slot_position(9)] = (4).to_bytes(4, "big")
    data[SMALL.slot_position(9) : SMALL.slot_position(10)] = (-1).to_bytes(4, "big", signed=True)
    file.path.write_bytes(data)
    assert found(file, 7) == [20]
    assert found(file, 8) == found(file, 9) == []


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    file = index_file(tmp_path, disk=disk)
    builder = built(file, [Key(7, 10, STORED)])
    builder.add([Key(7, 20, STORED), Key(8, 30, STORED)])
    disk.faults.append(Fault(name="pwrite", times=1))
    with pytest.raises(OSError, match="Input/output"):
        builder.write()
    assert builder.unwritten == 2
    builder.write()
    assert found(file, 7) == [20, 10]
    assert builder.unwritten == 0


def test_the_newest_entries_of_a_message_are_counted(tmp_path: Path) -> None:
    file = index_file(tmp_path)
    built(file, [Key(1, 10, STORED), Key(2, 20, STORED), Key(3, 20, STORED)])
    assert file.entries_of(20) == 2
    assert file.entries_of(10) == 0
