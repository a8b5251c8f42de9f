"""Directories on which a store does not start: the text helps, and nothing in them has changed."""

import errno
from pathlib import Path

import pytest
import trio

from aerobee.store.errors import (
    StoreDamaged,
    StoreForeign,
    StoreLocked,
    StoreRefused,
    StoreUnusable,
)
from aerobee.store.files.disk import Disk
from aerobee.store.message_store import MessageStore
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.store_model import ManualClock, Sent, StoreModel, draft, small_config

pytestmark = pytest.mark.faults

Tree = dict[str, bytes | None]


def tree(root: Path) -> Tree:
    """Every name below a directory, with the bytes of the files."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def refused(root: Path, disk: Disk | None = None, **changes: object) -> StoreRefused:
    """Try to start; the refusal, after it was seen that nothing changed."""
    before = tree(root)
    store = MessageStore(small_config(root, **changes), disk=disk or Disk(), clock=ManualClock())
    with pytest.raises(StoreRefused) as refusal:
        store.load()
    assert tree(root) == before
    return refusal.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with some messages that was stopped cleanly."""
    model = StoreModel(tmp_path / "d")
    for number in range(12):
        model.put("T", number % 2, Sent(b"x" * 700, b"TAGS\x01A\x02"))
    assert trio.run(model.store.close)
    return tmp_path / "d"


def test_a_store_in_use_is_locked(root: Path) -> None:
    first = MessageStore(small_config(root), disk=Disk(), clock=ManualClock())
    first.load()
    error = refused(root)
    assert isinstance(error, StoreLocked)
    assert str(root / "lock") in str(error)
    # The first one does not notice, and its lock holds on.
    assert first.put(draft()).count == 1
    assert isinstance(refused(root), StoreLocked)
    assert trio.run(first.close)


def test_a_log_in_use_is_locked_whatever_data_directory_names_it(tmp_path: Path) -> None:
    """Both would append to the same bytes, and tell their senders that these are stored."""
    log = tmp_path / "log"
    both = [
        MessageStore(
            small_config(tmp_path / name, store_path_commit_log=str(log)),
            disk=Disk(),
            clock=ManualClock(),
        )
        for name in "ab"
    ]
    first, second = both
    first.load()
    assert first.put(draft()).count == 1
    for _ in range(2):
        with pytest.raises(StoreLocked, match="storePathCommitLog"):
            second.load()
    assert not (tmp_path / "b" / "abort").exists()
    assert first.put(draft()).count == 1
    assert trio.run(first.close)
    # Where the other broker has stopped, it is an ordinary directory again.
    second.load()
    second.let_go()


@pytest.mark.parametrize("name", ["open", "fsync", "pwrite", "ftruncate"])
def test_a_store_that_cannot_be_written_is_unusable(root: Path, name: str) -> None:
    disk = FaultyDisk(root, Fault(name=name, path="abort", error=errno.EACCES))
    store = MessageStore(small_config(root), disk=disk, clock=ManualClock())
    with pytest.raises(StoreUnusable) as error:
        store.load()
    assert "abort" in str(error.value)
    assert "storePathRootDir" in str(error.value)


def test_a_path_through_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for root in (tmp_path / "file", tmp_path / "file" / "d"):
        store = MessageStore(small_config(root), disk=Disk(), clock=ManualClock())
        with pytest.raises(StoreUnusable, match="file"):
            store.load()


@pytest.mark.parametrize("sign", ["consumequeue/CURRENT", "dledger-n0", "brokerIdentity"])
def test_a_store_of_a_foreign_kind_is_left_alone(root: Path, sign: str) -> None:
    (root / sign).write_bytes(b"x")
    (root / "lock").unlink()
    error = refused(root)
    assert isinstance(error, StoreForeign)
    assert str(root / sign) in str(error)


def test_a_stranger_among_the_segments_is_named(root: Path) -> None:
    (root / "commitlog" / "README").write_bytes(b"?")
    error = refused(root)
    assert isinstance(error, StoreDamaged)
    assert "README" in str(error)


def test_a_missing_segment_is_named(root: Path) -> None:
    sorted((root / "commitlog").iterdir())[1].unlink()
    assert isinstance(refused(root), StoreDamaged)


def test_a_disk_too_small_is_said_before_the_first_message(tmp_path: Path) -> None:
    error = MessageStore(
        small_config(tmp_path / "d", mapped_file_size_commit_log_bytes=1 << 46),
        disk=Disk(),
        clock=ManualClock(),
    )
    with pytest.raises(StoreUnusable, match="mappedFileSizeCommitLog"):
        error.load()


def test_after_a_refusal_the_remedied_directory_starts(root: Path) -> None:
    (root / "brokerIdentity").write_bytes(b"x")
    refused(root)
    (root / "brokerIdentity").unlink()
    store = MessageStore(small_config(root), disk=Disk(), clock=ManualClock())
    assert store.load().clean
    assert store.max_offset("T", 0) == 6
    assert trio.run(store.close)
