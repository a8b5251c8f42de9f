import errno
from pathlib import Path

import pytest

from aerobee.store.errors import StoreForeign, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.recovery.start_check import (
    is_made_anew,
    make_directory,
    refuse_foreign,
    refuse_small_disk,
    refusing,
    remove_leftovers,
)
from tests.kit.faulty_disk import CHANGES, Fault, FaultyDisk
from tests.kit.logged import Logged, events

TOPICS = '{"dataVersion":{"counter":1},"topicConfigTable":{"X":{"attributes":{%s},"perm":6}}}'


@pytest.mark.parametrize(
    "name",
    [
        "consumequeue/CURRENT",
        "consumequeue/MANIFEST-000004",
        "consumequeue/000012.sst",
        "config/topics/CURRENT",
        "config/subscriptionGroups/x",
        "config/consumerOffsets/x",
        "config/metadata/x",
        "config/rdb/x",
        "rocksdbstore/000012.sst",
        "rocksdbstore/timer/000013.log",
        "batchconsumequeue/T/0/00000000000000000000",
        "dledger-n0/data/x",
        "epochFileCheckpoint",
        "brokerIdentity",
    ],
)
def test_a_sign_of_foreign_data_is_refused_and_named(tmp_path: Path, name: str) -> None:
    sign = tmp_path / name
    sign.parent.mkdir(parents=True, exist_ok=True)
    sign.write_bytes(b"content")
    disk = FaultyDisk(tmp_path)
    with pytest.raises(StoreForeign) as refused:
        refuse_foreign(disk, tmp_path)
    text = str(refused.value)
    named = Path(text.partition(": ")[0])
    assert named == sign or named in sign.parents
    assert named.exists()
    assert "choose another directory" in text
    assert not [c for c in disk.calls if c.name in CHANGES and c.name not in ("open", "fsync")]


@pytest.mark.parametrize("name", ["epochFileCheckpoint", "brokerIdentity"])
def test_what_every_replica_of_a_group_has_is_no_sign_in_a_group(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"content")
    refuse_foreign(Disk(), tmp_path, in_group=True)


@pytest.mark.parametrize(
    "name", ["rocksdbstore/LOG", "rocksdbstore/000003.log", "config/topics.json.bak", "timerlog/x"]
)
def test_what_every_java_store_has_is_no_sign(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    (tmp_path / "batchconsumequeue").mkdir()
    (tmp_path / "consumequeue").mkdir()
    refuse_foreign(Disk(), tmp_path)


def test_a_directory_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    refuse_foreign(Disk(), tmp_path / "none")
    make_directory(Disk(), tmp_path / "none" / "deeper")
    make_directory(Disk(), tmp_path / "none" / "deeper")
    assert (tmp_path / "none" / "deeper").is_dir()


def write_topics(root: Path, attributes: str) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(TOPICS % attributes)


def test_a_topic_of_inner_batches_is_refused_by_name(tmp_path: Path) -> None:
    write_topics(tmp_path, '"queue.type":"BatchCQ"')
    with pytest.raises(StoreForeign, match=r"topics.json: topic X has queue.type=BatchCQ"):
        refuse_foreign(Disk(), tmp_path)


def test_a_compacted_topic_is_warned_of(tmp_path: Path, logged: Logged) -> None:
    write_topics(tmp_path, '"cleanup.policy":"COMPACTION"')
    (tmp_path / "kvStore").mkdir()
    refuse_foreign(Disk(), tmp_path)
    assert events(logged) == ["store.compaction_ignored", "store.pop_state_ignored"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable":null}', TOPICS % ""])
def test_topics_that_cannot_be_read_are_somebody_elses_matter(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(text)
    refuse_foreign(Disk(), tmp_path)


def test_a_directory_that_cannot_be_read_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    disk = FaultyDisk(tmp_path, Fault(name="listdir", error=errno.EACCES))
    with pytest.raises(StoreUnusable, match=r"consumequeue cannot be used \(Permission denied\)"):
        refuse_foreign(disk, tmp_path)


def test_a_directory_that_cannot_be_made_is_unusable(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="mkdir", error=errno.EROFS))
    with pytest.raises(StoreUnusable, match=r"Read-only file system.*storePathRootDir"):
        make_directory(disk, tmp_path / "d")


def test_a_disk_too_small_for_a_first_start_names_the_keys(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable) as refused:
        refuse_small_disk(Disk(), tmp_path, tmp_path / "commitlog", 1 << 60, 1 << 20)
    for key in ("mappedFileSizeCommitLog", "maxHashSlotNum", "maxIndexNum"):
        assert key in str(refused.value)
    refuse_small_disk(Disk(), tmp_path, tmp_path / "commitlog", 1 << 12, 1 << 12)


def test_a_store_that_has_its_segments_may_go_on(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "00000000000000000000").touch()
    refuse_small_disk(Disk(), tmp_path, tmp_path / "commitlog", 1 << 60, 1 << 20)


def test_leftovers_go_and_nothing_else_does(tmp_path: Path) -> None:
    keep = [tmp_path / "mine.new", tmp_path / "consumequeue" / "T" / "readme.new"]
    gone = [
        tmp_path / "commitlog.00000000000000000000.new",
        tmp_path / "consumequeue" / "T" / "0.00000000000000000200.new",
    ]
    for path in keep + gone:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "consumequeue" / "file").touch()
    remove_leftovers(Disk(), tmp_path, tmp_path / "commitlog")
    assert all(path.exists() for path in keep)
    assert not any(path.exists() for path in gone)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_refusal(tmp_path: Path, number: int) -> None:
    with pytest.raises(OSError, match=r"make room on its disk.*quota") as full, refusing(tmp_path):
        raise OSError(number, "none left", str(tmp_path / "a"))
    assert full.value.errno == number
    assert str(tmp_path / "a") in str(full.value)


def test_an_error_without_a_file_name_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match=str(tmp_path)), refusing(tmp_path):
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", ["abort", "checkpoint", "laststop.json"])
def test_a_directory_with_a_file_of_a_store_was_not_made_anew(tmp_path: Path, name: str) -> None:
    (tmp_path / "epochFileCheckpoint").write_text("1")
    (tmp_path / "config").mkdir()
    assert is_made_anew(Disk(), tmp_path)
    (tmp_path / name).touch()
    assert not is_made_anew(Disk(), tmp_path)
