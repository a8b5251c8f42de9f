import os
from pathlib import Path
from random import Random

from aerobee.store.files.disk import Disk
from aerobee.store.recovery.abort_file import AbortFile
from tests.kit.faulty_disk import FaultyDisk


def test_it_exists_from_create_to_remove(tmp_path: Path) -> None:
    abort = AbortFile(Disk(), tmp_path / "abort")
    assert not abort.exists()
    abort.create()
    assert abort.exists()
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    abort.create()
    abort.remove()
    assert not abort.exists()


def test_it_survives_a_power_cut_right_after_it_was_made(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    disk = FaultyDisk(root)
    AbortFile(disk, root / "abort").create()
    assert (disk.power_cut(tmp_path / "after", Random(1), keep=0.0) / "abort").exists()


def test_it_does_not_come_back_once_it_was_removed(tmp_path: Path) -> None:
    root = tmp_path / "d"
    root.mkdir()
    AbortFile(Disk(), root / "abort").create()
    disk = FaultyDisk(root)
    AbortFile(disk, root / "abort").remove()
    assert not (disk.power_cut(tmp_path / "after", Random(1), keep=0.0) / "abort").exists()
