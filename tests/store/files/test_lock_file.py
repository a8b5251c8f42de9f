import errno
import os
from pathlib import Path

import pytest

from aerobee.store.errors import StoreLocked, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.files.lock_file import LockFile, LogLock
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
        ("open", errno.EROFS, "mount it for writing"),
        ("open", errno.ESTALE, "mount it again"),
        ("open", errno.EMFILE, "ulimit -n"),
        ("lockf", errno.ENOLCK, "knows no locks"),
    ],
)
def test_a_directory_that_cannot_be_locked_says_what_to_do(
    tmp_path: Path, name: str, error: int, words: str
) -> None:
    disk = FaultyDisk(tmp_path, Fault(name=name, error=error))
    with pytest.raises(StoreUnusable, match=words):
        LockFile(disk, tmp_path / "lock").acquire()


def test_a_full_disk_is_no_refusal(tmp_path: Path) -> None:
    """Out of inodes, for example: systemd tries again."""
    disk = FaultyDisk(tmp_path, Fault(name="open", error=errno.ENOSPC))
    with pytest.raises(OSError, match=r"make room on its disk \(df, df -i\)"):
        LockFile(disk, tmp_path / "lock").acquire()


def test_a_missing_directory_is_unusable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="No such file"):
        LockFile(Disk(), tmp_path / "none" / "lock").acquire()


def test_a_log_directory_is_held_once_and_gets_no_file(tmp_path: Path) -> None:
    first, second = LogLock(Disk(), tmp_path / "log"), LogLock(Disk(), tmp_path / "log")
    first.acquire()  # There is none yet.
    (tmp_path / "log").mkdir()
    for _ in range(2):
        first.acquire()
    with pytest.raises(StoreLocked, match="storePathCommitLog of its own"):
        second.acquire()
    for _ in range(2):
        first.release()
    second.acquire()
    second.release()
    assert not list((tmp_path / "log").iterdir())


def test_a_file_system_without_such_locks_keeps_nobody_out(tmp_path: Path) -> None:
    for _ in range(2):
        disk = FaultyDisk(tmp_path, Fault(name="flock", error=errno.EOPNOTSUPP))
        LogLock(disk, tmp_path).acquire()
