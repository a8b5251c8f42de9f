import contextlib
from pathlib import Path
from random import Random

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import segment_name
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.queues.consume_queues import ConsumeQueues
from aerobee.store.results import UnitStatus
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut

FILE = 10 * UNIT_SIZE


def new_queues(root: Path, disk: Disk | None = None) -> ConsumeQueues:
    queues = ConsumeQueues(disk or Disk(), root / "consumequeue", FILE)
    queues.load()
    return queues


def fill(queues: ConsumeQueues, topic: str, queue_id: int, count: int, base: int = 0) -> None:
    for number in range(count):
        assert queues.put(topic, queue_id, number, base + 10 * number, 10, 0) is UnitStatus.ADDED


def test_a_read_makes_no_queue(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    assert queues.find("T", 0) is None
    assert not queues.table


def test_the_file_size_is_rounded_up_to_whole_units(tmp_path: Path) -> None:
    assert ConsumeQueues(Disk(), tmp_path, 21).file_size == 40


def test_queues_come_back_and_strangers_are_left_alone(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues, "A", 0, 3)
    fill(queues, "%RETRY%g", 12, 2, base=100)
    queues.write_all(sync=True)
    (tmp_path / "consumequeue" / "README").write_text("x")
    (tmp_path / "consumequeue" / "A" / "note").write_text("x")
    (tmp_path / "consumequeue" / "A" / "01").mkdir()
    (tmp_path / "consumequeue" / "A" / "x1").mkdir()
    again = new_queues(tmp_path)
    again.recover(scan=False)
    assert set(again.table) == {("A", 0), ("%RETRY%g", 12)}
    assert again.max_physical_offset() == 120


def test_without_a_unit_the_queues_reach_nowhere(tmp_path: Path) -> None:
    assert new_queues(tmp_path).max_physical_offset() == -1


def test_counters_follow_the_units_found_in_the_log(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues, "A", 0, 3)
    assert queues.obtain("A", 0).next_offset == 3


def test_writing_again_after_a_failed_write_gives_the_same_bytes(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    fill(queues, "A", 0, 25)
    disk.faults.append(Fault(name="pwrite", path=segment_name(FILE)))
    with pytest.raises(OSError, match="Input/output"):
        queues.write_all(sync=False)
    assert queues.unwritten()
    queues.write_all(sync=True)
    again = new_queues(tmp_path)
    again.recover(scan=True)
    assert again.obtain("A", 0).end_offset == 25
    assert not queues.unwritten()


def test_the_units_of_a_new_file_are_on_disk_before_its_name_is_there(tmp_path: Path) -> None:
    """Names wait for the next sync: a sync for each folder and file took most of the time."""
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    fill(queues, "A", 0, 1)
    queues.write_all(sync=False)
    names = [call.name for call in disk.calls]
    assert names.index("fsync") < names.index("replace")
    assert names.count("fsync") == 1


def test_no_power_cut_leaves_a_file_without_its_units(tmp_path: Path) -> None:
    """Other brokers count one message in a file of zeros."""
    found = 0
    for number in range(1, 40):
        root = tmp_path / f"{number}" / "d"
        root.mkdir(parents=True)
        disk = FaultyDisk(root, Fault(number=number, cut=True))
        queues = new_queues(root, disk)
        for queue_id in range(4):
            fill(queues, "A", queue_id, 1, base=100 * queue_id + 1)
        with contextlib.suppress(PowerCut):
            queues.write_all(sync=False)
            queues.write_all(sync=True)
        after = disk.power_cut(tmp_path / f"{number}" / "after", Random(number))
        for path in after.glob("consumequeue/*/*/*"):
            found += 1
            assert any(path.read_bytes()), (number, path)
    assert found > 20


@pytest.mark.parametrize("count", [1, 8, 12])
def test_a_queue_that_was_synced_outlives_a_power_cut_with_all_its_names(
    tmp_path: Path, count: int
) -> None:
    """Of files that are made and synced by one run, by a kill between, and by a second sync."""
    root = tmp_path / "d"
    root.mkdir()
    disk = FaultyDisk(root)
    queues = new_queues(root, disk)
    fill(queues, "A", 0, 3)
    queues.write_all(sync=True)
    fill(queues, "B", 0, count)
    queues.write_all(sync=False)
    disk.kill()
    queues = new_queues(root, disk)
    queues.recover_from(0, 1_000, 0, killed=True)
    queues.write_all(sync=True)
    for number in range(3, 15):
        assert queues.put("A", 0, number, 10 * number, 10, 0) is UnitStatus.ADDED
    queues.write_all(sync=True)
    again = new_queues(disk.power_cut(tmp_path / "after", Random(1), keep=0))
    again.recover(scan=True)
    assert again.obtain("A", 0).end_offset == 15
    assert again.obtain("B", 0).end_offset == count


def test_names_are_synced_with_the_first_sync_and_not_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    for queue_id in range(3):
        fill(queues, "A", queue_id, 1, base=100 * queue_id)
    queues.write_all(sync=True)
    folder = tmp_path / "consumequeue"
    expected = {folder, folder / "A", *(folder / "A" / f"{queue_id}" for queue_id in range(3))}
    synced = [call.path for call in disk.calls if call.name == "fsync"]
    synced = [path for path in synced if path and path.is_dir()]
    assert set(synced) == expected
    assert len(synced) == len(expected)
    disk.calls.clear()
    assert queues.put("A", 0, 1, 300, 10, 0) is UnitStatus.ADDED
    queues.write_all(sync=True)
    again = new_queues(tmp_path, disk)
    again.recover(scan=False)
    assert again.put("A", 0, 2, 310, 10, 0) is UnitStatus.ADDED
    again.write_all(sync=True)
    assert not [call for call in disk.calls if call.name == "fsync"]


def test_a_queue_that_is_gone_before_its_sync_needs_none(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues, "A", 0, 1)
    fill(queues, "B", 0, 1, base=100)
    queues.write_all(sync=False)
    for path in queues.table["A", 0].take_all():
        path.unlink()
    (tmp_path / "consumequeue" / "A" / "0").rmdir()
    assert queues.unsynced_of(queues.unsynced).directories
    queues.sync(queues.unsynced_of(queues.unsynced))


def test_only_files_with_new_bytes_are_synced(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    fill(queues, "A", 0, 3)
    fill(queues, "B", 0, 3, base=100)
    queues.write_all(sync=True)
    assert queues.put("B", 0, 3, 200, 10, 0) is UnitStatus.ADDED
    disk.calls.clear()
    queues.write_all(sync=True)
    synced = [call.path for call in disk.calls if call.name == "fdatasync"]
    assert synced == [tmp_path / "consumequeue" / "B" / "0" / segment_name(0)]


def test_truncation_and_minimum_reach_every_queue(tmp_path: Path) -> None:
    queues = new_queues(tmp_path)
    fill(queues, "A", 0, 5)
    fill(queues, "B", 0, 5, base=20)
    queues.write_all(sync=True)
    queues.truncate(40)
    assert queues.obtain("A", 0).end_offset == 4
    assert queues.obtain("B", 0).end_offset == 2
    queues.correct_min_offsets(25)
    assert queues.obtain("A", 0).min_offset == 3
    assert queues.obtain("B", 0).min_offset == 1
    queues.destroy()
    assert queues.max_physical_offset() == -1
    assert not list((tmp_path / "consumequeue").glob("*/*/*"))


def test_thousands_of_files_are_as_durable_as_one(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    for number in range(300):
        fill(queues, f"T{number % 30}", number // 30, 12, base=1_000 * number)
    queues.write_all(sync=True)
    disk.power_cut(tmp_path.with_name("after"), Random(1), keep=0)
    again = new_queues(tmp_path.with_name("after"))
    again.recover(scan=True)
    assert len(again.table) == 300
    for number in range(300):
        queue = again.obtain(f"T{number % 30}", number // 30)
        assert queue.end_offset == 12
        assert queue.max_physical_offset == 1_000 * number + 120


def test_zeros_behind_a_cut_are_on_disk_with_the_next_sync(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    queues = new_queues(tmp_path, disk)
    fill(queues, "A", 0, 8)
    queues.write_all(sync=True)
    queues.truncate(30)
    assert queues.obtain("A", 0).unsynced_bytes
    queues.write_all(sync=True)
    disk.power_cut(tmp_path.with_name("after"), Random(1), keep=0)
    again = new_queues(tmp_path.with_name("after"))
    again.recover(scan=True)
    assert again.obtain("A", 0).end_offset == 3
