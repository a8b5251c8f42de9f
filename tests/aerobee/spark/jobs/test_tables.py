"""Tables by segment: writing some replaces these and no others; what is not installed is named.

Delta and Iceberg run where AEROBEE_TEST_SPARK_JARS has their jars, and skip elsewhere.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs import archive as job
from aerobee.spark.jobs import restore as restoring
from aerobee.spark.jobs.archive import Archive, archive
from aerobee.spark.jobs.tables import KINDS, SEGMENT, check_kind
from aerobee.spark.storefiles.files import segments_of
from tests.aerobee.spark.filling import make_topic
from tests.aerobee.spark.jobs.killing import STEP_WITHIN_S, archive_if_free, start_victims
from tests.aerobee.spark.jobs.lakes import (
    SEGMENT_BYTES,
    Message,
    as_sent,
    messages,
    sealed,
    talk,
)
from tests.aerobee.spark.jobs.packages import CATALOG, home_of, needed
from tests.kit.raw_client import RawConnection
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import StartBroker

pytestmark = pytest.mark.spark
others = pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
"""What test_archive and test_restore show of Parquet."""
GiB = 1 << 30
NOT_COPIED = shutil.ignore_patterns("lock", "abort", "*.new")
"""Of a directory in use: what is its broker's alone, and files that do not have their name yet."""
EARLY = messages("orders", 0, 500)
LATE = messages("orders", 0, 400, first=500)


class Lake(NamedTuple):
    """Where an archive of one kind goes."""

    kind: str
    output: str
    manifest: str

    def task(self, store: Path, **changes: object) -> Archive:
        changes = {"tail": True, "job": "job-1"} | changes
        return Archive(
            store=store,
            output=self.output,
            kind=self.kind,
            manifest=self.manifest,
            **changes,  # type: ignore[arg-type]  # as the test names them
        )

    def messages(self, spark: SparkSession, store: Path) -> list[Message]:
        """All that a reader of the table finds in it, in order."""
        rows = KINDS[self.kind].read(spark, self.output, [one.start for one in segments_of(store)])
        whole = spark.table if self.kind == "iceberg" else spark.read.format(self.kind).load
        assert rows.count() == whole(self.output).count()
        return as_sent(rows.where("topic = 'orders'").collect())


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    kind: str = request.param
    needed(spark, kind)
    by_name = f"{CATALOG}.db.{tmp_path.name}"
    output = str(tmp_path / "lake") if KINDS[kind].is_path else by_name
    return Lake(kind, output, str(tmp_path / "entries"))


class Stores(NamedTuple):
    """One store at two moments."""

    early: Path
    late: Path


@pytest.fixture(scope="module")
def stores(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """No broker runs any more on any of them."""
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT_BYTES)
    make_topic(broker, "orders", 1)
    talk(broker, EARLY)
    early = tmp_path_factory.mktemp("stores") / "early"
    shutil.copytree(broker.data, early, ignore=NOT_COPIED)
    talk(broker, LATE)
    assert broker.stop() == 0
    return Stores(early, broker.data)


@pytest.fixture
def store(stores: Stores, tmp_path: Path) -> Path:
    """A copy of the later one, without marks."""
    without = shutil.ignore_patterns("archive")
    return shutil.copytree(stores.late, tmp_path / "store", ignore=without)


def test_writing_segments_replaces_just_these(spark: SparkSession, lake: Lake) -> None:
    kind = KINDS[lake.kind]

    def write(rows: list[tuple[int, str]], starts: list[int]) -> None:
        table = spark.createDataFrame(rows, f"{SEGMENT} bigint, topic string")
        kind.write(table, lake.output, starts)

    def read(*starts: int) -> list[tuple[int, str]]:
        rows = kind.read(spark, lake.output, starts)
        assert rows.schema[SEGMENT].dataType.simpleString() == "bigint"
        return sorted((row[SEGMENT], row["topic"]) for row in rows.collect())

    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    write([(0, "a"), (GiB, "b"), (9 * GiB, "c")], [0, GiB, 9 * GiB])
    write([(GiB, "b2"), (GiB, "b3")], [GiB])
    assert read(0, GiB, 9 * GiB) == [(0, "a"), (GiB, "b2"), (GiB, "b3"), (9 * GiB, "c")]
    assert read(0) == [(0, "a")], "a small number is as wide as a large one"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == before


@others
def test_a_later_run_adds_what_is_new_and_replaces_the_growing_end(
    spark: SparkSession, lake: Lake, stores: Stores
) -> None:
    assert archive(spark, lake.task(stores.early, marks=False)).failed == {}
    assert lake.messages(spark, stores.early) == EARLY
    again = archive(spark, lake.task(stores.early, marks=False))
    assert [entry.sealed for entry in again.entries] == [False]
    assert lake.messages(spark, stores.early) == EARLY
    outcome = archive(spark, lake.task(stores.late, marks=False, job="job-2"))
    assert outcome.failed == {}
    assert {entry.start for entry in outcome.entries}.isdisjoint(sealed(stores.early))
    assert lake.messages(spark, stores.late) == EARLY + LATE


@others
def test_what_was_written_twice_before_its_entry_is_replaced(
    spark: SparkSession, lake: Lake, store: Path
) -> None:
    run = job.Run(spark, lake.task(store))
    group = segments_of(store)[:2]
    rows = run.rows(group, sealed=True)
    run.kind.write(rows.union(rows.limit(9)), lake.output, [one.start for one in group])
    outcome = archive(spark, lake.task(store))
    assert outcome.failed == {}
    assert len(outcome.entries) == len(segments_of(store))
    assert lake.messages(spark, store) == EARLY + LATE


def test_its_files_are_on_the_disk_before_it_is_said(
    spark: SparkSession, lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    monkeypatch.setattr("aerobee.spark.jobs.places.sync", lambda path: synced.add(str(path)))
    assert archive(spark, lake.task(store)).failed == {}
    folder = KINDS[lake.kind].folder(spark, lake.output).removeprefix("file:")
    assert any(path.startswith(folder) for path in synced)
    data = [path for path in synced if path.endswith(".parquet")]
    assert len(data) >= len(segments_of(store))


@others
def test_an_archive_comes_back(
    spark: SparkSession, lake: Lake, store: Path, start_broker: StartBroker
) -> None:
    assert archive(spark, lake.task(store)).failed == {}
    broker = start_broker()
    arguments = ["--namesrv", broker.namesrv_address, "--archive", lake.output, "--yes"]
    where = ["--archive-format", lake.kind, "--manifest", lake.manifest]
    restoring.command.main([*arguments, *where], standalone_mode=False)
    with RawConnection(broker.address) as connection:
        found = [one.body for one in read_topic(connection, "orders", 0)]
    assert found == [one.body for one in EARLY + LATE]


@others
@pytest.mark.faults
def test_a_killed_job_is_completed_by_the_next(
    spark: SparkSession, lake: Lake, store: Path, tmp_path: Path
) -> None:
    where = [lake.kind, lake.manifest, home_of(spark)]
    [victim] = start_victims(1, store, lake.output, tmp_path, *where)
    victim.read_until("ready", within_s=240)
    victim.write_line("go")
    marks = store / "archive"
    eventually(lambda: len(list(marks.glob("*.done"))) >= 1, within_s=STEP_WITHIN_S, what="a mark")
    victim.kill()
    assert len(list(marks.glob("*.done"))) < len(sealed(store)), "it was half way"
    outcome = eventually(
        lambda: archive_if_free(spark, lake.task(store)), within_s=STEP_WITHIN_S, what="free"
    )
    assert outcome is not None
    assert outcome.failed == {}
    assert lake.messages(spark, store) == EARLY + LATE


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_kind_that_this_spark_does_not_know_is_refused_with_what_it_needs(
    spark: SparkSession, kind: str
) -> None:
    try:
        needed(spark, kind)
    except pytest.skip.Exception:
        with pytest.raises(ConfigurationError, match=rf"--format {kind}: .*packages.*{kind}"):
            check_kind(spark, kind)
