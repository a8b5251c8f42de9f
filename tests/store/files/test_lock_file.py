import errno
import os
from pathlib import Path

import pytest

from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile
from tests.kit.faulty_disk import Fault, FaultyDisk


def test_a_second_store_is_told_who_has_the_directory(tmp_path: Path) -> None:
    first = LockFile(Disk(), tmp_path / "lock")
    first.acquire()
    assert first.held
    second = LockFile(Disk(), tmp_path / "lock")
    with pytest.raises(StoreLocked) as refused:
        second.acquire()
    text = str(refused.value)
    assert str(tmp_path / "lock") in text
    assert str(os.getpid()) in text
    assert "storePathRootDir" in text
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_the_file_says_lock_as_java_writes_it(tmp_path: Path) -> None:
    for _ in range(2):
        lock = LockFile(Disk(), tmp_path / "lock")
        lock.acquire()
        lock.release()
    assert (tmp_path / "lock").read_bytes() == b"lock"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("open", errno.EACCES, "give this user the directory"),
        ("open", errno.EROFS, "choose another one"),
        ("lockf", errno.ENOLCK, "knows no locks"),
    ],
)
def test_a_directory_that_cannot_be_locked_says_what_to_do(
    tmp_path: Path, name: str, error: int, words: str
) -> None:
    disk = FaultyDisk(tmp_path, Fault(name=name, error=error))
    with pytest.raises(StoreUnusable, match=words):
        LockFile(disk, tmp_path / "lock").acquire()


def test_a_missing_directory_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="No such file"):
        LockFile(Disk(), tmp_path / "none" / "lock").acquire()
