"""The epochs of a log survive a crash at any call of the disk: the old ones or the new."""

from itertools import count
from pathlib import Path
from random import Random

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME, EpochFileIllegal, encode_epochs
from aerobee.store.format.epochs import Epoch
from aerobee.store.replication.saved_epochs import read_epochs, write_epochs
from tests.kit.faulty_disk import Fault, FaultyDisk, PowerCut

OLD = (Epoch(1, 0),)
NEW = (Epoch(1, 0), Epoch(2, 300))


def test_a_directory_without_the_file_has_no_epochs(tmp_path: Path) -> None:
    assert read_epochs(Disk(), tmp_path) == ()


def test_a_damaged_file_is_refused_whatever_was_before_it(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / EPOCH_FILE_NAME
    path.with_name(f"{EPOCH_FILE_NAME}.bak").write_bytes(encode_epochs(OLD))
    write_epochs(disk, tmp_path, NEW)
    assert read_epochs(disk, tmp_path) == NEW
    path.write_bytes(b"2\n7\n1-0\n2-300\n")
    with pytest.raises(EpochFileIllegal, match=str(path)):
        read_epochs(disk, tmp_path)


def test_a_power_cut_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    for number in count(1):
        home = tmp_path / str(number)
        home.mkdir()
        write_epochs(Disk(), home, OLD)
        disk = FaultyDisk(home, Fault(number=number, cut=True))
        try:
            write_epochs(disk, home, NEW)
        except PowerCut:
            left = disk.power_cut(tmp_path / f"{number}-left", Random(number))
            assert read_epochs(Disk(), left) in (OLD, NEW)
        else:
            assert number > 3
            break
