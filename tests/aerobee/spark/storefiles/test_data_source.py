"""`format("aerobee.store")` over directories of real brokers, in use, at rest and killed."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict

from aerobee.errors import ConfigurationError
from aerobee.spark.rows.columns import COLUMNS, DEFAULT, ddl_of
from aerobee.spark.storefiles.audit import audit, plan_audit
from aerobee.spark.storefiles.data_source import StoreReader, StoreSource
from aerobee.spark.storefiles.read import plan, plan_segments, read, segment_rows
from aerobee.store.format.record import HEAD
from tests.aerobee.spark.store_maker import StoreMaker, store_options_of
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.raw_client import (
    RawConnection,
    RawRecord,
    batch_body,
    properties_text,
    send_fields,
    topic_fields,
)
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import AnyBroker

TOPIC, QUEUES = "orders", 4
LONG_GROUP = "g" * 140
LONG = "%RETRY%" + LONG_GROUP
"""Of retry topics alone 5.x takes names so long that it writes records of the second version."""
SMALL_LOG = {"mappedFileSizeCommitLog": 262_144, "brokerName": "broker-a"}
SEND, SEND_BATCH, MAKE_TOPIC = 310, 320, 17
COLUMNS_READ = ("topic", "queueId", "queueOffset", "body", "tags", "commitLogOffset")


def send(connection: RawConnection, count: int, *, first: int = 0, topic: str = TOPIC) -> None:
    """Messages of up to 4 kB, all acknowledged."""
    for number in range(first, first + count):
        properties = properties_text(TAGS="ab"[number % 2], KEYS=f"k{number}")
        body = b"body %d " % number * (1 + number % 300)
        fields = send_fields(topic, number % QUEUES, i=properties)
        answer = connection.call(SEND, fields, body)
        assert answer.code == 0, answer


FILLED = 400 + 10 * QUEUES
"""Messages of the topic behind `fill`."""


def fill(broker: AnyBroker, count: int = 400) -> None:
    """Single messages and batches in one topic, some in another."""
    with RawConnection(broker.address) as connection:
        for topic in (TOPIC, "payments"):
            assert connection.call(MAKE_TOPIC, topic_fields(topic, QUEUES)).code == 0
        send(connection, count)
        send(connection, 20, topic="payments")
        for queue_id in range(QUEUES):
            items = {b"batched %d" % number: properties_text(TAGS="c") for number in range(10)}
            fields = send_fields(TOPIC, queue_id, m=True)
            assert connection.call(SEND_BATCH, fields, batch_body(items)).code == 0


def stored(broker: AnyBroker, topic: str = TOPIC) -> list[RawRecord]:
    """What consumers get of a topic, in the order of the log."""
    with RawConnection(broker.address) as connection:
        found = [one for queue in range(QUEUES) for one in read_topic(connection, topic, queue)]
    return sorted(found, key=lambda one: one.physical_offset)


def rows_of(root: Path, **given: object) -> list[dict[str, Any]]:
    """What a read gives, without Spark."""
    options = store_options_of(root, **given)
    batches = [one for piece in plan(options) for one in read(piece, options, COLUMNS_READ)]
    return [row for batch in batches for row in batch.to_pylist()]


def as_rows(records: list[RawRecord]) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.topic,
            "queueId": one.queue_id,
            "queueOffset": one.queue_offset,
            "body": one.body,
            "tags": one.properties.partition("TAGS\x01")[2].partition("\x02")[0] or None,
            "commitLogOffset": one.physical_offset,
        }
        for one in records
    ]


def findings(root: Path) -> list[Any]:
    options = store_options_of(root, mode="audit")
    return [found for piece in plan_audit(options) for found in audit(piece, options)]


def expect(root: Path, records: list[RawRecord]) -> None:
    """These messages in the topic, by the log and by the queues, and nothing wrong."""
    wanted = as_rows(records)
    assert rows_of(root, topics=TOPIC, verifyCrc=True) == wanted
    by_queue = rows_of(root, topics=TOPIC, via="consumequeue", splitBytes="64k")
    assert sorted(by_queue, key=lambda row: int(row["commitLogOffset"])) == wanted
    assert rows_of(root, topics=TOPIC, splitBytes="64k") == wanted
    assert findings(root) == []


# ── Directories ──


@dataclass
class Filled:
    """A directory at rest and what a consumer got of it."""

    root: Path
    records: list[RawRecord]
    while_running: list[dict[str, Any]]
    found_while_running: list[Any]


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    root = tmp_path_factory.mktemp("ours") / "store"
    with BrokerProcess(data=root, settings=SMALL_LOG) as broker:
        fill(broker)
        filled = Filled(root, stored(broker), rows_of(root, topics=TOPIC), findings(root))
        assert broker.stop() == 0
    return filled


def test_a_directory_is_read_while_its_broker_runs_and_afterwards(at_rest: Filled) -> None:
    assert len(at_rest.records) == 440
    assert at_rest.while_running == as_rows(at_rest.records)
    assert at_rest.found_while_running == []
    expect(at_rest.root, at_rest.records)


def test_reading_a_log_that_grows_misses_nothing_and_finds_no_fault(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "store", settings=SMALL_LOG) as broker:
        with RawConnection(broker.address) as connection:
            assert connection.call(MAKE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
            for round_number in range(10):
                # Sent without waiting, so that the broker writes while the log is read.
                acknowledged = 50 * round_number
                for number in range(50):
                    connection.ask(SEND, send_fields(TOPIC, number % QUEUES), b"x" * 2_000)
                assert len(rows_of(broker.data, verifyCrc=True)) >= acknowledged
                assert findings(broker.data) == []
                assert all(connection.hear().code == 0 for _ in range(50))
        assert len(rows_of(broker.data)) == 500


def test_a_killed_broker_leaves_a_directory_that_is_sound(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "store", settings=SMALL_LOG) as broker:
        fill(broker, 100)
        records = stored(broker)
        with RawConnection(broker.address) as connection:
            for number in range(200):
                connection.ask(SEND, send_fields(TOPIC, number % QUEUES), b"x" * 3_000)
            broker.kill()
        rows = rows_of(broker.data, topics=TOPIC, verifyCrc=True)
        assert rows[: len(records)] == as_rows(records)
        assert {found.kind for found in findings(broker.data)} <= {"tail"}


def test_segments_are_told_with_what_is_in_them(at_rest: Filled) -> None:
    options = store_options_of(at_rest.root, mode="segments")
    rows = [row for part in plan_segments(options) for row in segment_rows(part, options)]
    everything = rows_of(at_rest.root, excludeSystem=False)
    assert [row.sealed for row in rows] == [True] * (len(rows) - 1) + [False]
    assert sum(row.records for row in rows) == len(everything)
    assert [row.size_bytes for row in rows] == [262_144] * len(rows)
    for row in rows:
        start = int(row.segment)
        of_it = [one for one in everything if start <= one["commitLogOffset"] < start + 262_144]
        assert row.records == len(of_it)
        assert row.first_physical_offset == start
        assert row.last_physical_offset == of_it[-1]["commitLogOffset"]
    sealed = rows_of(at_rest.root, excludeSystem=False, sealedOnly=True)
    assert len(sealed) == sum(row.records for row in rows[:-1])


# ── Java ──


@contextmanager
def java_broker(version: str, data: Path) -> Iterator[JavaBroker]:
    home = data.with_name("java-home")
    with JavaBroker(toolkit=toolkit(version), data=data, home=home, settings=SMALL_LOG) as broker:
        yield broker


@pytest.mark.interop
@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_of_a_java_broker(version: str, tmp_path: Path) -> None:
    data = tmp_path / "store"
    if version != "4.9.7":
        # Nobody may make such a group any more; those that are there are served.
        (data / "config").mkdir(parents=True)
        table = {"subscriptionGroupTable": {LONG_GROUP: {"groupName": LONG_GROUP}}}
        (data / "config" / "subscriptionGroup.json").write_text(json.dumps(table))
    with java_broker(version, data) as java:
        fill(java)
        # Its queues come behind its log.
        records = eventually(
            lambda: found if len(found := stored(java)) >= FILLED else [],
            within_s=60,
            what="all messages are in the queues",
        )
        if version != "4.9.7":
            with RawConnection(java.address) as connection:
                answer = connection.call(SEND, send_fields(LONG, 0), b"second version")
                assert answer.code == 0, answer
        expect(data, records)
        java.kill()
    # The pages of a killed process are the kernel's: nothing is torn, but nothing was stopped.
    assert (data / "abort").exists()
    expect(data, records)
    if version != "4.9.7":
        long = [row for row in rows_of(data) if row["topic"] == LONG]
        assert [(row["topic"], row["body"]) for row in long] == [(LONG, b"second version")]
    torn = records[-1].physical_offset if version == "4.9.7" else long[-1]["commitLogOffset"]
    tear(data, torn)
    assert [found.kind for found in findings(data)] == ["tail"]
    left = as_rows([one for one in records if one.physical_offset < torn])
    assert rows_of(data, topics=TOPIC) == left


def tear(data: Path, place: int) -> None:
    """Take the end of the last record away, as a power cut can."""
    start = place - place % 262_144
    with (data / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(place - start + 70)
        rest = file.read()
        file.seek(place - start + 70)
        file.write(bytes(len(rest)))


# ── Spark ──


def loaded(spark: SparkSession, root: Path, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("aerobee.store").options(**given).load(str(root))


@pytest.mark.spark
def test_spark_reads_the_messages(spark: SparkSession, at_rest: Filled) -> None:
    messages = loaded(spark, at_rest.root)
    assert messages.columns == list(DEFAULT)
    assert messages.count() == 460
    orders = messages.where("topic = 'orders'").select("queueId", "queueOffset", "body", "tags")
    rows = sorted(orders.collect())
    wanted = sorted(at_rest.records, key=lambda one: (one.queue_id, one.queue_offset))
    assert [bytes(row.body) for row in rows] == [one.body for one in wanted]
    assert {row.tags for row in rows} == {"a", "b", "c"}
    assert len(messages.limit(1).collect()) == 1


@pytest.mark.spark
def test_spark_reads_every_column_and_what_the_options_say(
    spark: SparkSession, at_rest: Filled
) -> None:
    wide = loaded(spark, at_rest.root, columns=",".join(COLUMNS), brokerName="broker-a")
    row = wide.where("commitLogOffset = 0").first()
    assert row is not None
    assert (row.topic, row.brokerName, row.commitLogOffset) == ("orders", "broker-a", 0)
    narrow = spark.read.format("aerobee.store").schema("tags string, topic string")
    assert narrow.load(str(at_rest.root)).where("tags = 'c'").count() == 40
    by_queue = loaded(spark, at_rest.root, via="consumequeue", topics="payments")
    assert by_queue.count() == 20


@pytest.mark.spark
def test_spark_audits_and_lists_segments(spark: SparkSession, at_rest: Filled) -> None:
    assert loaded(spark, at_rest.root, mode="audit").collect() == []
    segments = loaded(spark, at_rest.root, mode="segments").collect()
    segments.sort()
    assert [row.segment for row in segments][:2] == [f"{0:020d}", f"{262_144:020d}"]
    assert all(row.minStoreTimestamp <= row.maxStoreTimestamp for row in segments)
    assert all(row.mtime.year == row.maxStoreTimestamp.year for row in segments)
    view = f"CREATE TEMPORARY VIEW faults USING `aerobee.store` OPTIONS (path '{at_rest.root}', "
    spark.sql(view + "mode 'segments')")
    assert spark.sql("SELECT sum(records) FROM faults").first() is not None
    spark.catalog.dropTempView("faults")


@pytest.mark.spark
def test_a_table_of_the_catalog_keeps_its_options(spark: SparkSession, at_rest: Filled) -> None:
    options = f"path '{at_rest.root}', columns 'topic,queueId', topics 'payments'"
    spark.sql(f"CREATE TABLE payments USING `aerobee.store` OPTIONS ({options})")
    try:
        assert spark.table("payments").columns == ["topic", "queueId"]
        assert spark.table("payments").count() == 20
    finally:
        spark.sql("DROP TABLE payments")
    assert (at_rest.root / "commitlog").is_dir(), "a table goes without its files"


@pytest.mark.spark
def test_a_damaged_directory_fails_by_name_and_is_audited(
    spark: SparkSession, tmp_path: Path
) -> None:
    maker = StoreMaker(tmp_path / "store")
    for _ in range(60):
        maker.put()
    maker.write()
    bad, wrong = maker.puts[7], maker.puts[40]
    maker.change(bad.place + 4, b"\0\0\0\0")
    maker.change(wrong.place + HEAD.size, b"H")
    with pytest.raises(PySparkException, match=f"damaged at physical offset {bad.place} "):
        loaded(spark, maker.root).count()
    assert loaded(spark, maker.root, onCorrupt="drop").count() == 59
    assert loaded(spark, maker.root, onCorrupt="drop", verifyCrc="true").count() == 58
    rows = loaded(spark, maker.root, mode="audit").collect()
    assert [(row.kind, row.physicalOffset, row.topic, row.queueOffset) for row in rows] == [
        ("badMagic", bad.place, None, None),
        ("crc", wrong.place, "orders", 40),
    ]


@pytest.mark.spark
def test_wrong_options_fail_in_load(spark: SparkSession, tmp_path: Path) -> None:
    for options, said in (
        ({}, "holds no directory commitlog"),
        ({"mode": "adit"}, "mode"),
        ({"split": "1"}, "splitBytes"),
    ):
        with pytest.raises(PySparkException, match=said):
            loaded(spark, tmp_path, **options)


# ── Without a session ──


def source(root: Path | str, **options: str) -> StoreSource:
    return StoreSource(CaseInsensitiveDict({"path": str(root)} | options))


def test_a_path_may_be_a_uri(at_rest: Filled) -> None:
    assert source(at_rest.root.as_uri()).schema() == ddl_of(DEFAULT)
    with pytest.raises(ConfigurationError, match="holds no directory commitlog"):
        source(at_rest.root / "commitlog").schema()


def test_all_that_travels_to_tasks_can_be_pickled(at_rest: Filled) -> None:
    pickler: Any = CPickleSerializer()
    for options in ({}, {"via": "consumequeue"}, {"mode": "audit"}, {"mode": "segments"}):
        one = pickler.loads(pickler.dumps(source(at_rest.root, **options)))
        reader = StoreReader(store_options_of(at_rest.root, **options), DEFAULT)
        assert one.schema() == source(at_rest.root, **options).schema()
        there = pickler.loads(pickler.dumps(reader))
        assert [one.value for one in there.partitions()] == [
            pickler.loads(pickler.dumps(one.value)) for one in reader.partitions()
        ]


def test_the_schema_is_that_of_the_mode(at_rest: Filled) -> None:
    assert source(at_rest.root).schema() == ddl_of(DEFAULT)
    assert source(at_rest.root, columns="topic,body").schema() == "topic string, body binary"
    assert str(source(at_rest.root, mode="audit").schema()).startswith("segment string")
    with pytest.raises(ConfigurationError, match="did you mean"):
        source(at_rest.root, columns="topick").schema()


def test_a_copy_made_in_use_is_as_good(at_rest: Filled, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(at_rest.root, copy)
    (copy / "lock").unlink(missing_ok=True)
    expect(copy, at_rest.records)
