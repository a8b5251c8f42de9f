"""Rows of Spark become messages: all of them, as they were, and twice only where that is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Timer
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.functions import array, col, create_map, expr, lit
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _create_row,
)

from aerobee.errors import ConfigurationError
from aerobee.spark.sink.writer import (
    ArrowWriter,
    SinkCommit,
    StreamRowWriter,
    Task,
    batch_writer,
    batches_of,
    checked,
    id_maker,
    row_schema,
    stream_writer,
)
from tests.aerobee.spark.conftest import check_java
from tests.aerobee.spark.filling import make_topic
from tests.aerobee.spark.reading_back import read_back
from tests.aerobee.spark.second_tries import EACH, FAILS_AT
from tests.aerobee.spark.small import PYTHON_PATH
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import AnyBroker, StartBroker

_names = count()
NOWHERE = {"nameserver": "127.0.0.1:1", "topic": "t"}


def table(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


BODY = table(body=BinaryType())


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(brokerName="broker-a", mappedFileSizeCommitLog=32 << 20)


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    name = f"written-{next(_names)}"
    make_topic(broker, name, queues=2)
    return name


# ── Without a session ──


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({}, {"body": BinaryType(), "colour": StringType()}, "column colour cannot be sent"),
        ({}, {"topic": StringType()}, "needs a column body"),
        ({}, {"body": BinaryType(), "deliverTime": TimestampNTZType()}, "with a time zone"),
        ({}, {"body": table(a=IntegerType())}, "column body is struct<a:int>"),
        ({"orderBy": "colour"}, {"body": BinaryType()}, "orderBy: there is no column colour"),
        ({"batchRow": "9"}, {"body": BinaryType()}, "batchRow"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, {"body": BinaryType()}, "may not send to topic"),
        ({"tags": "a\x02b"}, {"body": BinaryType()}, "separate properties"),
        ({"tags": "a||b"}, {"body": BinaryType()}, "not the tag of one message"),
        ({"dedupe": "fence"}, {"body": BinaryType()}, "sinkId"),
        ({"dedupe": "fence", "sinkId": "s" * 115}, {"body": BinaryType()}, "sinkId"),
    ],
)
def test_what_can_never_be_written_is_refused_before_any_task(
    options: dict[str, str], columns: dict[str, DataType], words: str
) -> None:
    for made in (batch_writer, stream_writer):
        with pytest.raises(ConfigurationError, match=words):
            made(NOWHERE | options, table(**columns), False)


def test_a_commit_marker_needs_one_topic() -> None:
    options = {"nameServer": "127.0.0.1:1", "dedupe": "fence", "sinkId": "s"}
    with pytest.raises(ConfigurationError, match="dedupe=fence needs the option topic"):
        stream_writer(options, table(body=BinaryType(), topic=StringType()), False)


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ConfigurationError, match=r"write with \.mode\('append'\)"):
        batch_writer(NOWHERE, BODY, True)


def test_writers_and_what_they_say_can_be_pickled() -> None:
    pickler: Any = CPickleSerializer()
    for made in (
        batch_writer(NOWHERE, BODY, False),
        stream_writer(NOWHERE, BODY, False),
        StreamRowWriter(checked(NOWHERE), row_schema(BODY)),
    ):
        again = pickler.loads(pickler.dumps(made))
        assert (type(again), vars(again)) == (type(made), vars(made))
    commit = SinkCommit(Task(3), 1, 2, "A", "B", {"t/b/0": (0, 1)})
    assert pickler.loads(pickler.dumps(commit)) == commit


def test_message_ids_differ_among_tasks_and_beyond_what_a_millisecond_can_count() -> None:
    made = [id_maker("127.0.0.1:1")(70_000) for _ in range(2)]
    assert len({name for names in made for name in names}) == 140_000


# ── Tasks, without Spark ──


def batches(*numbers: range) -> Iterator[Any]:
    for some in numbers:
        yield pa.record_batch({"body": [b"%d" % number for number in some]})


def fails(source: Iterator[Any]) -> Iterator[Any]:
    """As when a task is killed in the middle of its rows."""
    yield from source
    raise KeyboardInterrupt


@pytest.mark.service
def test_rows_of_a_batch_that_failed_come_twice_and_those_of_a_committed_one_never_with_a_marker(
    broker: AnyBroker, topic: str
) -> None:
    options = {"nameServer": broker.namesrv_address, "topic": topic, "sinkId": "s"}
    writer = ArrowWriter(checked(options | {"dedupe": "fence"}), row_schema(BODY))
    first, second = Task(0, 4, "query"), Task(1, 4, "query")
    assert writer.write_batches(batches(range(100)), first).sent == 100
    with pytest.raises(KeyboardInterrupt):
        writer.write_batches(fails(batches(range(100, 150))), second)
    # The batch runs again, whole, with its rows in other tasks.
    done = [
        writer.write_batches(batches(range(120)), first),
        writer.write_batches(batches(range(120, 200)), second),
    ]
    assert [task.sent for task in done] == [120, 80]
    writer.commit([*done])
    again = [
        writer.write_batches(batches(range(90)), first),
        writer.write_batches(batches(range(90, 200)), second),
    ]
    assert [task.skipped for task in again] == [90, 110]
    writer.commit([*again])
    # Planned anew from a checkpoint that has lost it, with what came since.
    again[1] = writer.write_batches(batches(range(90, 207)), second)
    with pytest.raises(ConfigurationError, match="200 rows, and now batch 4 has 207 rows"):
        writer.commit([*again])
    found = Counter(int(message.body) for message in read_back(broker, topic, 350))
    assert found == {number: 1 + (number < 150) for number in range(200)}


@pytest.mark.service
def test_every_message_says_where_in_its_batch_it_was(broker: AnyBroker, topic: str) -> None:
    options = {"nameServer": broker.namesrv_address, "topic": topic, "sinkId": "s"}
    writer = ArrowWriter(checked(options), row_schema(BODY))
    for again in range(2):
        for partition in range(2):
            sent = writer.write_batches(batches(range(100)), Task(partition, 4, "query"))
            assert sent.sent == 100, again
    stamps = Counter(m.properties["AB_SINK"] for m in read_back(broker, topic, 400))
    assert [*stamps.values()] == [2] * 200
    places = {stamp.rpartition(":")[0] for stamp in stamps}
    assert places == {f"s:4:{p}:{n}" for p in range(2) for n in range(100)}


@pytest.mark.service
def test_a_commit_marker_outside_of_a_stream_is_refused(broker: AnyBroker, topic: str) -> None:
    options = {"nameServer": broker.namesrv_address, "topic": topic}
    options |= {"sinkId": "s", "dedupe": "fence"}
    writer = ArrowWriter(checked(options), row_schema(BODY))
    with pytest.raises(ConfigurationError, match="use writeStream, or write in foreachBatch"):
        writer.write_batches(batches(range(1)), Task(0))


@pytest.mark.service
def test_rows_are_written_as_arrow_is(broker: AnyBroker, topic: str) -> None:
    """Spark 4.0 has no Arrow for the sink of a stream."""
    schema = table(
        body=BinaryType(),
        tags=StringType(),
        properties=MapType(StringType(), StringType()),
        bornTimestamp=TimestampType(),
    )
    options = {"nameServer": broker.namesrv_address, "topic": topic}
    writer = StreamRowWriter(checked(options), row_schema(schema))
    local = datetime(2024, 5, 6, 7, 8, 9)  # noqa: DTZ001  (as Spark hands it over)
    values: list[tuple[Any, ...]] = [
        (bytearray(b"%d" % n), f"t{n}", {"n": str(n)}, local) for n in range(5)
    ]
    values.append((b"5", None, None, None))
    commit = writer.write(_create_row(schema.names, one) for one in values)
    assert (commit.sent, commit.bytes) == (6, 6)
    stored = sorted(read_back(broker, topic, 6), key=lambda message: message.body)
    assert [m.body for m in stored] == [b"%d" % n for n in range(6)]
    assert [m.tag for m in stored] == ["t0", "t1", "t2", "t3", "t4", None]
    assert stored[3].properties["n"] == "3"
    assert {m.born_at for m in stored[:5]} == {local.astimezone(UTC)}
    assert datetime.now(UTC) - stored[5].born_at < timedelta(minutes=1)


def test_large_rows_are_few_in_a_batch() -> None:
    """A thousand of the largest bodies would be 4 GB, and as much again in Arrow."""
    body, schema = b"." * (4 << 20), row_schema(BODY)
    rows = (_create_row(["body"], [value]) for value in [body] * 10)
    assert [batch.num_rows for batch in batches_of(rows, schema)] == [4, 4, 2]
    rows = (_create_row(["body"], [value]) for value in [b"."] * 2_001)
    assert [batch.num_rows for batch in batches_of(rows, schema)] == [1_000, 1_000, 1]


# ── With a session ──


@pytest.fixture
def save(broker: AnyBroker) -> Callable[..., None]:
    def save(rows: DataFrame, **options: str) -> None:
        named = {"nameServer": broker.namesrv_address} | options
        rows.write.format("aerobee").mode("append").options(**named).save()

    return save


@pytest.mark.spark
def test_all_of_10_001_rows_are_read_back_by_the_sdk(
    spark: SparkSession, broker: AnyBroker, topic: str, save: Callable[..., None]
) -> None:
    rows = (
        spark.range(10_001)
        .repartition(1)
        .select(
            expr("encode(concat('body-', id), 'utf-8')").alias("body"),
            expr("concat('tag', id % 3)").alias("tags"),
            array(expr("concat('k', id)"), lit("all")).alias("keys"),
            create_map(lit("number"), col("id").cast("string"), lit("ü"), lit("ß")).alias(
                "properties"
            ),
            col("id").cast("int").alias("flag"),
            expr("concat('ID', id)").alias("msgId"),
        )
    )
    save(rows, topic=topic)
    stored = {m.body: m for m in read_back(broker, topic, 10_001)}
    assert len(stored) == 10_001
    for n in (0, 255, 256, 9_999, 10_000):
        one = stored[b"body-%d" % n]
        assert (one.tag, one.keys, one.flag) == (f"tag{n % 3}", (f"k{n}", "all"), n)
        assert (one.properties["number"], one.properties["ü"]) == (str(n), "ß")
        assert one.message_id == f"ID{n}"


@pytest.mark.ours
@pytest.mark.spark
def test_rows_say_their_topic_queue_key_and_delay(
    spark: SparkSession, broker: AnyBroker, topic: str, save: Callable[..., None]
) -> None:
    other = f"{topic}-other"
    make_topic(broker, other, queues=2)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        rows = (
            spark.range(600)
            .repartition(1)
            .selectExpr(
                "cast(id as string) as value",
                f"if(id < 300, '{topic}', '{other}') as topic",
                "if(id < 300, null, concat('k', id % 4)) as shardingKey",
                "if(id < 150, 1, null) as queueId",
                "if(id = 299, timestamp'2024-01-01 08:00:00', null) as deliverTime",
                "if(id = 298, 1, null) as delayLevel",
                "timestamp'2024-01-01 08:00:00' as bornTimestamp",
            )
        )
        save(rows)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    stored = read_back(broker, topic, 300)
    found = {int(m.body): m for m in stored}
    assert set(found) == set(range(300))
    assert {found[n].queue.queue_id for n in range(150)} == {1}
    midnight = datetime(2024, 1, 1, tzinfo=UTC)
    assert {m.born_at for m in stored} == {midnight}
    assert found[299].properties["TIMER_DELIVER_MS"] == str(int(midnight.timestamp() * 1000))
    # Level 1 is a second later.
    assert found[298].stored_at - found[297].stored_at > timedelta(seconds=0.5)
    by_key: dict[str | None, list[int]] = {}
    for m in read_back(broker, other, 300):
        by_key.setdefault(m.ordering_key, []).append(int(m.body))
    assert by_key == {f"k{k}": [n for n in range(300, 600) if n % 4 == k] for k in range(4)}


@pytest.mark.spark
def test_what_the_kafka_preset_reads_can_be_written_back(
    spark: SparkSession, broker: AnyBroker, topic: str, save: Callable[..., None]
) -> None:
    rows = spark.sql("SELECT 'x' AS body, 'EU' AS tags, 'k' AS keys, map('a', 'b') AS properties")
    save(rows.withColumn("queueId", lit(1)), topic=topic)
    options = {"nameServer": broker.namesrv_address, "topic": topic, "schemaPreset": "kafka"}
    save(spark.read.format("aerobee").options(**options).load())
    first, second = read_back(broker, topic, 2)
    for one in (first, second):
        assert (one.body, one.tag, one.keys, one.queue.queue_id) == (b"x", "EU", ("k",), 1)
        assert one.properties["a"] == "b"
    assert first.message_id != second.message_id


@pytest.mark.spark
def test_sql_can_insert(spark: SparkSession, broker: AnyBroker, topic: str) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW sink_view (body STRING, tags STRING) USING aerobee "
        f"OPTIONS (nameServer '{broker.namesrv_address}', topic '{topic}')"
    )
    try:
        spark.sql("INSERT INTO sink_view SELECT 'by sql', 'a'")
    finally:
        spark.sql("DROP VIEW sink_view")
    (stored,) = read_back(broker, topic, 1)
    assert (stored.body, stored.tag) == (b"by sql", "a")


@pytest.mark.spark
def test_what_is_refused_says_why(
    spark: SparkSession, broker: AnyBroker, topic: str, save: Callable[..., None]
) -> None:
    rows = spark.sql("SELECT 'x' AS body")
    overwriting = rows.write.format("aerobee").mode("overwrite")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        overwriting.options(nameServer=broker.namesrv_address, topic=topic).save()
    with pytest.raises(PySparkException, match=r"column tag cannot be sent \(is tags meant\?\)"):
        save(spark.sql("SELECT 'x' AS body, 'a' AS tag"), topic=topic)
    with pytest.raises(PySparkException, match=r"to topic .*: property name KEYS is reserved"):
        save(spark.sql("SELECT 'x' AS body, map('KEYS', 'k') AS properties"), topic=topic)


@pytest.mark.ours
@pytest.mark.spark
def test_a_job_ends_with_the_reason_when_its_broker_is_gone(
    spark: SparkSession, start_broker: StartBroker, save: Callable[..., None]
) -> None:
    broker = start_broker()
    make_topic(broker, "gone")
    rows = spark.sql("SELECT 'x' AS body")
    save(rows, topic="gone", nameServer=broker.namesrv_address)
    broker.kill()
    options = {"nameServer": broker.namesrv_address, "deliveryTimeoutMs": "500"}
    with pytest.raises(PySparkException, match="no name server answers"):
        save(rows, topic="gone", **options)


def numbers(file: Path, some: range) -> None:
    """What a stream of files reads."""
    file.write_text("".join(f'{{"id": {number}}}\n' for number in some))


@pytest.mark.spark
def test_a_stream_is_written_and_every_message_says_by_which_batch(
    spark: SparkSession, broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    for batch in range(2):
        numbers(tmp_path / f"{batch}.json", range(batch * 100, batch * 100 + 100))
    options = {"nameServer": broker.namesrv_address, "topic": topic}
    options |= {"sinkId": "copy", "dedupe": "fence"}
    options |= {"checkpointLocation": str(tmp_path / "checkpoint")}
    rows = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(f"{tmp_path}/*.json")
        .selectExpr("cast(id as string) as body")
    )
    query = rows.writeStream.format("aerobee").options(**options).trigger(availableNow=True)
    query.start().awaitTermination(60)
    stored = read_back(broker, topic, 200)
    assert sorted(int(m.body) for m in stored) == list(range(200))
    stamps = Counter(m.properties["AB_SINK"].rsplit(":", 2)[0] for m in stored)
    assert stamps == {f"copy:{batch}:0": 100 for batch in range(2)}


@pytest.mark.spark
def test_a_stream_outlives_a_broker_that_is_away_with_its_name_server(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    assert isinstance(broker, BrokerProcess)
    make_topic(broker, "away")
    for batch in range(2):
        numbers(tmp_path / f"{batch}.json", range(batch * 100, batch * 100 + 100))
    options = {"nameServer": broker.namesrv_address, "topic": "away", "sinkId": "away"}
    options |= {"dedupe": "fence", "checkpointLocation": str(tmp_path / "checkpoint")}
    rows = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(f"{tmp_path}/*.json")
        .selectExpr("cast(id as string) as body")
    )
    broker.kill()
    back = Timer(3.0, broker.start)
    back.start()
    try:
        query = rows.writeStream.format("aerobee").options(**options).trigger(availableNow=True)
        query.start().awaitTermination(120)
    finally:
        back.join()
    assert sorted(int(m.body) for m in read_back(broker, "away", 200)) == list(range(200))


@pytest.mark.spark
def test_a_batch_that_is_run_again_writes_nothing_twice_with_a_commit_marker(
    spark: SparkSession, broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    for part in range(2):
        numbers(tmp_path / f"{part}.json", range(part * 50, part * 50 + 50))
    options = {"nameServer": broker.namesrv_address, "topic": topic}
    options |= {"sinkId": "again", "dedupe": "fence"}
    rows = (
        spark.readStream.schema("id long")
        .json(f"{tmp_path}/*.json")
        .selectExpr("cast(id as string) as body")
    )

    def start(*, fails: bool) -> None:
        def each(batch: DataFrame, batch_id: int) -> None:
            batch.write.format("aerobee").mode("append").options(**options).save()
            if fails:
                raise RuntimeError("between the write and the end of the batch")

        query = rows.writeStream.foreachBatch(each).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)

    with pytest.raises(StreamingQueryException, match="between the write"):
        start(fails=True)
    assert len(read_back(broker, topic, 100)) == 100
    start(fails=False)
    assert len(read_back(broker, topic, 100)) == 100


@pytest.mark.spark
def test_tasks_that_spark_runs_again_lose_nothing_and_repeat_only_their_own_rows(
    broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    """Writes without and with a commit marker, and a read; every task fails in its middle."""
    check_java()
    marked = f"{topic}-marked"
    make_topic(broker, marked, queues=2)
    command = [sys.executable, "-m", "tests.aerobee.spark.second_tries"]
    done = subprocess.run(
        [*command, broker.namesrv_address, topic, marked, str(tmp_path)],
        env=os.environ
        | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": PYTHON_PATH,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    repeated = {part * EACH + number for part in range(2) for number in range(FAILS_AT)}
    read: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    for name in (topic, marked):
        stored = read_back(broker, name, 2 * EACH)
        numbers = [int(message.body.rstrip(b".")) for message in stored]
        times = Counter(numbers)
        assert set(times) == set(range(2 * EACH))
        assert set(times.values()) == {1, 2}, "the batch that ran again with a marker wrote nothing"
        assert {number for number in times if times[number] == 2} <= repeated
        if name == topic:
            places = [(one.queue.queue_id, one.queue_offset) for one in stored]
            assert read == [[*place, number] for place, number in zip(places, numbers, strict=True)]


@pytest.mark.spark
def test_a_complete_result_is_sent_at_every_trigger(
    spark: SparkSession, broker: AnyBroker, topic: str, tmp_path: Path
) -> None:
    for batch in range(2):
        numbers(tmp_path / f"{batch}.json", range(10))
    counted = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(f"{tmp_path}/*.json")
        .groupBy(expr("'all' as body"))
        .count()
        .selectExpr("concat(body, count) as body")
    )
    options = {"nameServer": broker.namesrv_address, "topic": topic}
    options |= {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = counted.writeStream.format("aerobee").outputMode("complete").options(**options)
    query.trigger(availableNow=True).start().awaitTermination(60)
    assert sorted(m.body for m in read_back(broker, topic, 2)) == [b"all10", b"all20"]


def test_spark_before_4_1_gets_a_writer_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark.sql.datasource

    monkeypatch.delattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter", raising=False)
    made = stream_writer(NOWHERE, BODY, False)
    assert isinstance(made, StreamRowWriter)
    assert isinstance(made, DataSourceStreamWriter)
