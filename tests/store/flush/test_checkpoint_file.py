from pathlib import Path

from aerobee.store.files.disk import Disk
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.format.checkpoint import CHECKPOINT, Checkpoint
from tests.kit.faulty_disk import FaultyDisk


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert CheckpointFile(Disk(), tmp_path / "checkpoint").load() == Checkpoint()


def test_what_was_written_is_read_by_the_next_start(tmp_path: Path) -> None:
    CheckpointFile(Disk(), tmp_path / "checkpoint").write(7, 8, 9)
    assert CheckpointFile(Disk(), tmp_path / "checkpoint").load() == Checkpoint(7, 8, 9)
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_a_torn_file_counts_as_zeros_where_it_ends(tmp_path: Path) -> None:
    whole = CHECKPOINT.write(Checkpoint(7, 8, 9))
    for length in range(len(whole)):
        (tmp_path / "checkpoint").write_bytes(whole[:length])
        found = CheckpointFile(Disk(), tmp_path / "checkpoint").load()
        assert found.min_timestamp <= Checkpoint(7, 8, 9).min_timestamp


def test_fields_of_other_brokers_are_preserved(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(CHECKPOINT.write(Checkpoint(1, 2, 3, 44, 55)).ljust(4096, b"\0"))
    file = CheckpointFile(Disk(), path)
    file.load()
    file.write(10, 20, 30)
    assert file.value == Checkpoint(10, 20, 30, 44, 55)
    assert CheckpointFile(Disk(), path).load() == file.value


def test_a_written_checkpoint_is_on_disk_with_its_name(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    CheckpointFile(disk, tmp_path / "checkpoint").write(1, 2)
    syncs = [call for call in disk.calls if call.name in ("fsync", "fdatasync")]
    assert [call.path for call in syncs] == [tmp_path / "checkpoint", tmp_path]
