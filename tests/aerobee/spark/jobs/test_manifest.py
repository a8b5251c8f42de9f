"""The entries of an archive and the marks of the broker: whole or not there, and understood."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee.errors import AerobeeError
from aerobee.spark.jobs.manifest import Entry, Manifest, make_marks, mark, marked
from aerobee.spark.jobs.places import Place
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import mark_name, segment_name
from aerobee.store.space.archive_marks import ArchiveMarks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SIZE = 4_096


def entry(number: int, job: str = "job-1") -> Entry:
    return Entry(segment_name(number * SIZE), SIZE, 9, 77, job, max_store_timestamp=5)


@pytest.mark.spark
def test_entries_are_found_again_in_the_order_of_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    manifest = Manifest(Place(spark, str(tmp_path / "lake" / "_manifest")))
    assert manifest.load() == {}
    for number in (2, 0, 1):
        manifest.put(entry(number))
    manifest.put(entry(1, "job-2"))
    (tmp_path / "lake" / "_manifest" / "README").write_text("not ours")
    assert list(manifest.load().items()) == [
        (0, entry(0)),
        (SIZE, entry(1, "job-2")),
        (2 * SIZE, entry(2)),
    ]


@pytest.mark.spark
def test_a_broken_entry_is_named(spark: SparkSession, tmp_path: Path) -> None:
    manifest = Manifest(Place(spark, f"file:{tmp_path}/m"))
    manifest.put(entry(0))
    manifest.place.write(f"{segment_name(0)}.json", b'{"segment": "0')
    with pytest.raises(AerobeeError, match=r"m/0{20}\.json is no entry .* remove it"):
        manifest.load()


def test_the_broker_understands_a_mark(tmp_path: Path) -> None:
    assert not marked(tmp_path, entry(0))
    mark(tmp_path, entry(0))
    mark(tmp_path, entry(0, "job-2"))
    assert marked(tmp_path, entry(0))
    broker = ArchiveMarks(Disk(), tmp_path / "archive")
    assert broker.look({0: SIZE, SIZE: SIZE}, 2 * SIZE, make=False) == {0}
    [path] = (tmp_path / "archive").iterdir()
    assert path.name == mark_name(0)
    assert path.read_text().count("\n") == 1
    assert msgspec.json.decode(path.read_bytes()) == {
        "segment": segment_name(0),
        "bytes": SIZE,
        "records": 9,
        "crc32": 77,
        "job": "job-2",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_whom_the_store_belongs_to(tmp_path: Path) -> None:
    os.chown(tmp_path, 65_534, 65_534)
    mark(tmp_path, entry(0))
    for path in (make_marks(tmp_path), *make_marks(tmp_path).iterdir()):
        assert path.stat().st_uid == 65_534
