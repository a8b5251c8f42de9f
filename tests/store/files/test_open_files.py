import errno
from pathlib import Path

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.files.open_files import OpenFiles
from tests.kit.faulty_disk import Fault, FaultyDisk


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_text(path.name)
    return paths


def test_a_handle_is_opened_once(paths: list[Path]) -> None:
    files = OpenFiles(Disk())
    assert files.get(paths[0]) is files.get(paths[0])
    assert files.get(paths[0]).pread(9, 0) == b"0"
    files.close()


def test_the_one_unused_for_longest_is_closed(paths: list[Path]) -> None:
    files = OpenFiles(Disk(), limit=2)
    first, second = files.get(paths[0]), files.get(paths[1])
    files.get(paths[0])
    files.get(paths[2])
    assert len(files) == 2
    assert first.fd >= 0
    assert second.fd == -1
    files.close()


def test_a_file_that_goes_is_forgotten(paths: list[Path]) -> None:
    files = OpenFiles(Disk())
    handle = files.get(paths[0])
    files.forget(paths[0])
    files.forget(paths[1])
    assert handle.fd == -1
    assert len(files) == 0


def test_without_a_descriptor_the_oldest_gives_its_own(paths: list[Path], tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    files = OpenFiles(disk)
    first, second = files.get(paths[0]), files.get(paths[1])
    disk.faults.append(Fault(name="open", error=errno.EMFILE, times=1))
    assert files.get(paths[2]).pread(9, 0) == b"2"
    assert first.fd == -1
    assert second.pread(9, 0) == b"1"
    disk.faults.append(Fault(name="open", error=errno.EMFILE, times=9))
    with pytest.raises(OSError, match="Too many open files"):
        files.get(paths[3])
    assert not len(files)
    disk.faults[:] = [Fault(name="open", error=errno.EIO, times=1)]
    with pytest.raises(OSError, match="Input/output"):
        files.get(paths[0])
    assert files.get(paths[0]).pread(9, 0) == b"0"
    files.close()
