"""Small files beside tables, and the lock that two jobs cannot have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.spark.jobs.places import AlreadyRunningError, Place, alone, sync_tree

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_written_is_read_again_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(spark, str(tmp_path / "a" / "b"))
    assert place.names() == []
    place.write("one", b"\x00\xff")
    place.write("two", b"")
    assert place.read("one") == b"\x00\xff"
    place.write("one", b"new")
    assert place.read("one") == b"new"
    assert place.names() == ["one", "two"]
    assert place.local == tmp_path / "a" / "b"
    assert place.path == f"file:{tmp_path}/a/b"
    place.remove("one")
    place.remove("one")
    assert place.names() == ["two"]


def test_other_file_systems_are_reached_by_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    context: Any = spark.sparkContext._jsc
    mounted = "fs.viewfs.mounttable.places.link./a"
    context.hadoopConfiguration().set(mounted, f"file:{tmp_path}")
    place = Place(spark, "viewfs://places/a/b")
    assert place.local is None
    assert place.names() == []
    place.write("one", b"\x00\xff")
    place.write("one", b"new")
    assert place.read("one") == b"new"
    assert (tmp_path / "b" / "one").read_bytes() == b"new"
    place.remove("one")
    assert place.names() == []


def test_a_checksum_that_a_kill_left_behind_hides_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Hadoop lays one beside each local file, and replaces the two one after the other."""
    (tmp_path / "one").write_bytes(b"new")
    (tmp_path / ".one.crc").write_bytes(b"crc\0" + (512).to_bytes(4) + bytes(4))
    place = Place(spark, str(tmp_path))
    assert place.read("one") == b"new"
    place.write("one", b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_what_is_written_here_is_on_the_disk_before_it_has_its_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    Place(spark, str(tmp_path / "a")).write("one", b"1")
    assert synced == [f"{tmp_path}/a/.one.draft", f"{tmp_path}/a", f"{tmp_path}"]


def test_only_one_holds_the_lock_and_it_is_free_again_after(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    with (
        alone(spark, path, "an archive job"),
        pytest.raises(AlreadyRunningError, match="an archive job is running already"),
        alone(spark, path, "an archive job"),
    ):
        pytest.fail("two have it")
    with alone(spark, path, "an archive job"):
        assert path.exists()


def test_a_tree_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("c")
    sync_tree(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="broken"):
        sync_tree(tmp_path)
