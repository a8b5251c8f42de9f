from pathlib import Path

import pytest

from aerobee.store.files.disk import Disk
from aerobee.store.files.open_files import OpenFiles


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
