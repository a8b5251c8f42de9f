"""Segments go into a table before they expire: all of them, each once, whatever is killed when."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs import archive as job
from aerobee.spark.jobs import replay, restore
from aerobee.spark.jobs.archive import Archive, Run, archive
from aerobee.spark.jobs.common import Source
from aerobee.spark.jobs.manifest import Manifest
from aerobee.spark.jobs.places import Place
from aerobee.spark.jobs.same_log import compared
from aerobee.spark.jobs.sending import AS_SENT
from aerobee.spark.storefiles.files import segments_of
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import segment_name
from aerobee.store.space.archive_marks import ArchiveMarks
from tests.aerobee.spark.filling import make_topic, say_compressed
from tests.aerobee.spark.jobs.killing import (
    STEP_WITHIN_S,
    TOPIC,
    Feeder,
    archive_if_free,
    kill_all,
    start_victims,
)
from tests.aerobee.spark.jobs.lakes import (
    SEGMENT_BYTES,
    Message,
    archived,
    as_sent,
    messages,
    say,
    sealed,
    talk,
)
from tests.aerobee.spark.jobs.running import run_job
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import StartBroker

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[4]
EARLY = {
    ("bills", 0): messages("bills", 0, 150),
    ("orders", 0): messages("orders", 0, 300),
    ("orders", 1): messages("orders", 1, 150),
}
"""By queue, in order: two segments and a half."""
SQUEEZED = Message("bills", 0, b"squeezed " * 99, "IDz", "kz", "z")
LATE = [SQUEEZED, *messages("bills", 0, 350, first=200)]
"""What comes later to the first queue: another segment and more."""
ALL = EARLY | {("bills", 0): EARLY["bills", 0] + LATE}


class Stores(NamedTuple):
    """One store at two moments; `lake` is the archive of the first."""

    early: Path
    late: Path
    lake: Path


@pytest.fixture(scope="module")
def stores(
    spark: SparkSession, start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> Stores:
    """No broker runs any more on any of them."""
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT_BYTES, waitForArchive="true")
    make_topic(broker, "orders", 2)
    make_topic(broker, "bills", 1)
    for said in EARLY.values():
        talk(broker, said)
    folder = tmp_path_factory.mktemp("stores")
    copy(broker.data, folder / "early")
    say(broker, SQUEEZED, compressed=True)
    talk(broker, LATE[1:])
    assert broker.stop() == 0
    found = Stores(folder / "early", broker.data, folder / "lake")
    outcome = archive(spark, task(found.early, found.lake, tail=True, broker_name="b-1"))
    assert outcome.failed == {}
    assert [entry.start for entry in outcome.entries if entry.sealed] == sealed(found.early)
    return found


def copy(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "abort"))


@pytest.fixture
def store(stores: Stores, tmp_path: Path) -> Path:
    """A copy of the archived store, to be spoilt."""
    return copy(stores.early, tmp_path / "store")


@pytest.fixture
def lake(stores: Stores, tmp_path: Path) -> Path:
    """A copy of its archive."""
    return copy(stores.lake, tmp_path / "lake")


def task(store: Path, output: Path, **changes: object) -> Archive:
    changes = {"segments_per_write": 3, "job": "job-1"} | changes
    return Archive(store=store, output=str(output), **changes)  # type: ignore[arg-type]  # as the test names them


def marks(store: Path) -> list[int]:
    """The segments that the broker takes for archived."""
    starts = dict.fromkeys(sealed(store), SEGMENT_BYTES)
    end = max(starts) + 2 * SEGMENT_BYTES
    return sorted(ArchiveMarks(Disk(), store / "archive").look(starts, end, make=False))


def found_in(spark: SparkSession, lake: Path) -> dict[tuple[str, int], list[Message]]:
    """All that anybody reads who is given the path of an archive, by queue, in order."""
    found: dict[tuple[str, int], list[Message]] = {}
    for one in as_sent(archived(spark, lake).collect()):
        found.setdefault((one.topic, one.queue_id), []).append(one)
    return found


def test_all_is_in_the_table_once_and_a_later_run_adds_what_is_new(
    spark: SparkSession, stores: Stores, lake: Path
) -> None:
    assert found_in(spark, lake) == EARLY
    assert marks(stores.early) == sealed(stores.early)
    assert not marked_beyond(stores.early), "the growing end is not marked"
    shutil.copytree(stores.early / "archive", stores.late / "archive", dirs_exist_ok=True)
    outcome = archive(spark, task(stores.late, lake, tail=True, job="job-2"))
    entries = Manifest(Place(spark, f"{lake}/_manifest")).load()
    assert {entry.start for entry in outcome.entries} == entries.keys() - set(sealed(stores.early))
    assert {entry.job for entry in outcome.entries} == {"job-2"}
    assert found_in(spark, lake) == ALL, "the growing end was replaced"
    assert sum(entry.records for entry in entries.values()) == sum(map(len, ALL.values()))
    assert marks(stores.late) == sealed(stores.late)


def marked_beyond(store: Path) -> list[str]:
    """Marks of what is not full."""
    full = {f"{segment_name(start)}.done" for start in sealed(store)}
    return [path.name for path in (store / "archive").glob("*.done") if path.name not in full]


def test_a_run_completes_and_replaces_what_a_killed_one_left(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    shutil.rmtree(store / "archive")
    output = tmp_path / "half"
    run = job.Run(spark, task(store, output))
    group = segments_of(store)[:-1]
    rows = run.rows(group, sealed=True)
    run.kind.write(rows.limit(100).union(rows.limit(9)), str(output), [one.start for one in group])
    (output / ".spark-staging-1234" / "segment=0").mkdir(parents=True)
    (store / "archive").mkdir()
    (store / "archive" / f"{segment_name(0)}.done.tmp").write_text('{"segm')
    outcome = archive(spark, task(store, output))
    assert [entry.start for entry in outcome.entries] == sealed(store) == marks(store)
    found = found_in(spark, output)
    assert {key: said[: len(found[key])] for key, said in EARLY.items()} == found
    assert sum(map(len, found.values())) == sum(one.records for one in outcome.entries)
    assert not list(output.glob(".spark-staging*"))


def test_a_missing_mark_is_made_again_and_another_log_is_not_mixed_in(
    spark: SparkSession, store: Path, lake: Path
) -> None:
    shutil.rmtree(store / "archive")
    assert archive(spark, task(store, lake)).entries == []
    assert marks(store) == sealed(store)

    shutil.rmtree(store / "archive")
    path = store / "commitlog" / segment_name(SEGMENT_BYTES)
    content = bytearray(path.read_bytes())
    at = content.index(b"colour\x01blue") + 7
    content[at : at + 4] = b"pink"
    path.write_bytes(content)
    with pytest.raises(AerobeeError, match=r"0131072 .* is not the one that is archived .* job-1"):
        archive(spark, task(store, lake))
    outcome = archive(spark, task(store, lake, replace=True, job="job-2"))
    assert [entry.start for entry in outcome.entries] == [SEGMENT_BYTES]
    pink = archived(spark, lake).where("properties['colour'] = 'pink'").collect()
    assert [row["segment"] for row in pink] == [SEGMENT_BYTES]


def test_a_segment_that_the_broker_deletes_meanwhile_is_not_asked_for(
    spark: SparkSession, store: Path, lake: Path
) -> None:
    run = Run(spark, task(store, lake))
    segments = segments_of(store)
    Path(segments[0].path).unlink()
    assert run.missing(segments) == [segments[-1]]


def test_a_segment_that_is_deleted_when_it_was_compared_fails_no_run(
    spark: SparkSession, store: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(store / "archive")
    run = Run(spark, task(store, lake))
    segments = segments_of(store)

    def cleaned_up(*given: Any) -> Any:
        matches = compared(*given)
        Path(segments[0].path).unlink()
        return matches

    monkeypatch.setattr(job, "compared", cleaned_up)
    assert run.missing(segments) == [segments[-1]]
    assert marks(store) == sealed(store)


def test_a_segment_that_is_deleted_when_its_rows_are_written_has_its_entry(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(store / "archive")
    counted = job.counted

    def cleaned_up(rows: DataFrame) -> list[Any]:
        (store / "commitlog" / segment_name(0)).unlink(missing_ok=True)
        return counted(rows)

    monkeypatch.setattr(job, "counted", cleaned_up)
    crc = crc32((store / "commitlog" / segment_name(0)).read_bytes())
    wanted = sealed(store)
    outcome = archive(spark, task(store, tmp_path / "new"))
    assert outcome.failed == {}
    assert [entry.start for entry in outcome.entries] == wanted
    assert outcome.entries[0].crc32 == crc


def test_a_damaged_segment_keeps_none_of_the_others_waiting(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(store / "archive")
    path = store / "commitlog" / segment_name(0)
    content = bytearray(path.read_bytes())
    content[content.index(b"bills-0-7 ") + 30] ^= 1  # within its body
    path.write_bytes(content)
    options = ["--store", str(store), "--output", str(tmp_path / "new"), "--json", "--no-mark"]
    with pytest.raises(AerobeeError, match="1 segments are not archived"):
        job.command.main(options, standalone_mode=False)
    out, err = capsys.readouterr()
    told = [json.loads(line)["segment"] for line in out.splitlines()]
    assert told == [segment_name(start) for start in sealed(store)[1:]]
    assert f"segment {segment_name(0)} is not archived: " in err
    assert not (store / "archive").exists(), "as it was asked for"


def test_a_body_that_cannot_be_unpacked_is_archived_as_it_is_stored_and_never_sent_so(
    spark: SparkSession,
    start_broker: StartBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its client said that the body is compressed, and it is not."""
    broker = start_broker()
    make_topic(broker, "bills", 1)
    talk(broker, EARLY["bills", 0][:3])
    say_compressed(broker, "bills", b"not packed", UNIQ_KEY="IDraw")
    make_topic(broker, "%DLQ%shop", 1)
    say_compressed(broker, "%DLQ%shop", b"dead of it")
    say(broker, SQUEEZED, compressed=True)
    lake = tmp_path / "lake"
    outcome = archive(spark, task(broker.data, lake, tail=True, marks=False, broker_name="b"))
    assert outcome.failed == {}
    assert f"segment {segment_name(0)}: 2 bodies cannot be decompressed" in capsys.readouterr().err
    bodies = {row["msgId"]: bytes(row["body"]) for row in archived(spark, lake).collect()}
    assert (bodies["IDraw"], bodies["IDz"]) == (b"not packed", SQUEEZED.body)
    for command, *words in (
        (replay.command, "--topic", "bills", "--to-topic", "copy"),
        (restore.command, "--to-topic", "copy"),
    ):
        given = [*words, "--namesrv", broker.namesrv_address, "--archive", str(lake)]
        with pytest.raises(AerobeeError, match=r"message at b/bills/0/3/.* still compressed"):
            run_job(command, *given, "--yes", capsys=capsys)
        (row,) = run_job(command, *given, "--where", AS_SENT, capsys=capsys).rows
        assert row["messages"] == 4
    # Dead letters are not sent, so none of them keeps the others out.
    done = run_job(command, *given, "--where", "topic <> 'bills'", capsys=capsys)
    assert (done.rows, "left out: 1 of %DLQ%shop" in done.said) == ([], True)


def test_what_cannot_work_is_said_before_anything_is_read(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    output = tmp_path / "new"
    with pytest.raises(ConfigurationError, match="this Spark has no such tables"):
        archive(spark, task(store, output, kind="delta"))
    with pytest.raises(ConfigurationError, match="--format iceberg needs --manifest"):
        task(store, output, kind="iceberg").manifest_path  # noqa: B018 - the property refuses
    with pytest.raises(ConfigurationError, match="holds no directory commitlog"):
        archive(spark, task(tmp_path, output))
    assert not output.exists()
    assert not (tmp_path / "archive").exists(), "no directory of marks in what is no store"


def test_a_topic_is_archived_online_by_a_stream_exactly_once(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """The example program, run after run as by cron; the broker is killed in between."""
    main = runpy.run_path(str(ROOT / "examples" / "spark" / "archive_stream.py"))["main"]
    broker = start_broker()
    make_topic(broker, "orders", 2)
    said = {("orders", queue): EARLY["orders", queue] for queue in (0, 1)}
    for first, last in ((0, 100), (100, 150)):
        for key in said:
            talk(broker, said[key][first:last])
        main(broker.namesrv_address, "orders", str(tmp_path))
        broker.kill()
        broker.start()
    rows = archived(spark, tmp_path / "messages").withColumn("msgId", F.col("properties.UNIQ_KEY"))
    found = as_sent(rows.collect())
    assert found == [one for key in sorted(said) for one in said[key][:150]]


@pytest.mark.faults
def test_no_kill_of_job_or_broker_loses_or_doubles_a_message(
    spark: SparkSession,
    pytestconfig: pytest.Config,
    start_broker: StartBroker,
    tmp_path: Path,
) -> None:
    """`--cycles` says how many jobs are killed, one unless told; `--seed` where."""
    lake = tmp_path / "lake"
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT_BYTES, waitForArchive="true")
    victims = start_victims(pytestconfig.getoption("--cycles") or 1, broker.data, lake, tmp_path)
    make_topic(broker, TOPIC, 1)
    feeder = Feeder(broker)
    feeder.start()
    kill_all(feeder, victims, lake, Random(pytestconfig.getoption("--seed")))
    feeder.enough.set()
    feeder.join(STEP_WITHIN_S)

    last = task(broker.data, lake, tail=True, job="last")
    outcome = eventually(
        lambda: archive_if_free(spark, last), within_s=STEP_WITHIN_S, what="the lock is free"
    )
    assert outcome is not None
    assert outcome.failed == {}
    found = [one for one in as_sent(archived(spark, lake).collect()) if one.topic == TOPIC]
    assert len({one.msg_id for one in found}) == len(found), "nothing twice"
    acked = set(feeder.acked)
    assert [one for one in found if one in acked] == feeder.acked, "all of it, in order"
    assert {one for one in found if one not in acked} <= set(feeder.unsure)
    assert len(feeder.acked) > 100 * len(victims)


def test_an_output_is_a_path_and_no_pattern(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    lake = tmp_path / "broker-[a] {b,c} d? *\\"
    task = Archive(store=stores.early, output=str(lake), marks=False, tail=True)
    assert archive(spark, task).failed == {}
    source = Source(archive=str(lake), topics=("bills",))
    assert source.read(spark, ["body"]).count() == len(EARLY["bills", 0])
