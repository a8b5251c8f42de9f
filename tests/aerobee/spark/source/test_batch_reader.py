"""A batch read: what is planned, and what tasks make of it. The last tests go through Spark."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import InputPartition

from aerobee.errors import (
    ConfigurationError,
    DataLossError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from aerobee.spark.options import read_options
from aerobee.spark.rows.columns import chosen
from aerobee.spark.source.batch_reader import BatchReader
from tests.aerobee.spark.conftest import PYSPARK
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

QUEUES = 3
EACH = 400
MESSAGES = bodies(QUEUES * EACH)
BROKER = "broker-a"
PLANS_ONCE_FROM = (4, 1)


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker(brokerName=BROKER)
    make_topic(broker, "orders", QUEUES)
    for queue_id in range(QUEUES):
        part = MESSAGES[queue_id * EACH : (queue_id + 1) * EACH]
        fill(broker, "orders", part, queue_id=queue_id, TAGS=f"tag{queue_id}", KEYS="k1 k2")
    make_topic(broker, "empty")
    return broker


def given(broker: AnyBroker, **options: object) -> dict[str, str]:
    """Options as Spark hands them over."""
    named = {"nameServer": broker.namesrv_address, "topic": "orders"} | options
    return {name.lower(): str(value) for name, value in named.items() if value is not None}


def reader(broker: AnyBroker, **wanted: object) -> Any:
    options = read_options(given(broker, **wanted), stream=False)
    return BatchReader(options, chosen(options.columns, options.schema_preset))


def planned(made: BatchReader) -> list[tuple[int, int, int]]:
    """Queue, start and end of each range."""
    return [(one.queue_id, one.start, one.end) for part in made.partitions() for one in part.value]


def rows(made: BatchReader) -> list[dict[str, Any]]:
    """All rows, read as Spark does it: each part by a reader that was pickled."""
    pickler: Any = CPickleSerializer()
    found = []
    for part in made.partitions():
        task, own = pickler.loads(pickler.dumps((made, part)))
        found += [row for batch in task.read(own) for row in batch.to_pylist()]
    return found


# ── Planning ──


def test_a_plan_has_a_range_for_each_queue_with_messages(broker: AnyBroker) -> None:
    assert planned(reader(broker)) == [(0, 0, EACH), (1, 0, EACH), (2, 0, EACH)]
    assert planned(reader(broker, topic="empty")) == []


def test_start_and_end_are_taken_as_given(broker: AnyBroker) -> None:
    start = json.dumps({"orders": {BROKER: {"0": 10, "1": -2, "2": 399}}})
    end = json.dumps({"orders": {BROKER: {"0": 20, "1": 0, "2": -1}}})
    made = reader(broker, startingOffsets=start, endingOffsets=end)
    assert planned(made) == [(0, 10, 20), (2, 399, 400)]


def test_an_end_before_the_start_is_refused(broker: AnyBroker) -> None:
    start = json.dumps({"orders": {BROKER: {"0": 10, "1": 0, "2": 0}}})
    end = json.dumps({"orders": {BROKER: {"0": 9, "1": 0, "2": 0}}})
    with pytest.raises(ConfigurationError, match=r"queue 0 .* 10 lies behind endingOffsets 9"):
        planned(reader(broker, startingOffsets=start, endingOffsets=end))


def test_long_ranges_are_cut(broker: AnyBroker) -> None:
    assert len(planned(reader(broker, minPartitions=6))) == 6
    cut = planned(reader(broker, maxRecordsPerPartition=150))
    assert len(cut) == 9
    assert sum(end - start for _, start, end in cut) == QUEUES * EACH


def test_a_missing_topic_is_said(broker: AnyBroker) -> None:
    with pytest.raises(RouteNotFoundError, match="nowhere"):
        planned(reader(broker, topic="nowhere"))


def test_a_start_behind_the_end_of_the_queue_is_a_loss(
    broker: AnyBroker, caplog: pytest.LogCaptureFixture
) -> None:
    start = json.dumps({"orders": {BROKER: {"0": 1000, "1": 0, "2": 0}}})
    with pytest.raises(DataLossError, match=r"queue 0 of topic orders.*failOnDataLoss"):
        planned(reader(broker, startingOffsets=start))
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        assert planned(reader(broker, startingOffsets=start, failOnDataLoss="false")) == [
            (1, 0, EACH),
            (2, 0, EACH),
        ]
    assert "queue 0 of topic orders" in caplog.text


@pytest.mark.ours
def test_a_start_before_what_is_kept_is_a_loss(start_broker: StartBroker) -> None:
    broker = start_broker(mappedFileSizeCommitLog=65_536, brokerName=BROKER)
    make_topic(broker, "orders")
    fill(broker, "orders", MESSAGES)
    expire(broker, 1)
    [(_, least, end)] = planned(reader(broker))
    assert 0 < least < end == len(MESSAGES)
    start = json.dumps({"orders": {BROKER: {"0": 1}}})
    with pytest.raises(DataLossError, match=rf"\[1, {least}\)"):
        planned(reader(broker, startingOffsets=start))
    skipping = reader(broker, startingOffsets=start, failOnDataLoss="false")
    assert planned(skipping) == [(0, least, end)]
    assert [row["body"] for row in rows(skipping)] == MESSAGES[least:]


# ── Reading ──


def test_what_is_read_is_what_was_sent(broker: AnyBroker) -> None:
    found = rows(reader(broker))
    assert [row["body"] for row in found] == MESSAGES
    assert [row["queueOffset"] for row in found] == list(range(EACH)) * QUEUES
    assert {row["brokerName"] for row in found} == {BROKER}
    assert {row["keys"] for row in found} == {"k1 k2"}
    assert dict(found[-1]["properties"])["TAGS"] == "tag2"


def test_batches_have_as_many_rows_as_told(broker: AnyBroker) -> None:
    made = reader(broker, batchRows=150)
    part = made.partitions()[0]
    sizes = [batch.num_rows for batch in made.read(part)]
    # As many answers as fit; a Java broker gives 32 messages at a time.
    assert all(100 < size <= 150 for size in sizes[:-1])
    assert sum(sizes) == EACH
    small = reader(broker, batchBytes=20_000)
    sizes = [batch.num_rows for batch in small.read(part)]
    assert sum(sizes) == EACH
    assert max(sizes) * 100 < 20_000


def test_a_partition_without_a_value_has_no_rows(broker: AnyBroker) -> None:
    assert list(reader(broker).read(None)) == list(reader(broker).read(InputPartition(None))) == []


def test_tags_of_one_hash_are_told_apart(broker: AnyBroker) -> None:
    """`Aa` and `BB` have the same Java hash, and a broker compares nothing else."""
    make_topic(broker, "collision")
    for tag in ("Aa", "BB", "CC"):
        fill(broker, "collision", [tag.encode() + b"1", tag.encode() + b"2"], TAGS=tag)
    found = rows(reader(broker, topic="collision", subExpression="Aa || CC"))
    assert [row["body"] for row in found] == [b"Aa1", b"Aa2", b"CC1", b"CC2"]


@pytest.mark.ours
def test_conditions_over_properties_are_the_brokers(start_broker: StartBroker) -> None:
    broker = start_broker(enablePropertyFilter=True)
    make_topic(broker, "orders")
    fill(broker, "orders", [b"small", b"tiny"], price="3")
    fill(broker, "orders", [b"large"], price="30")
    found = rows(reader(broker, subExpression="price > 10", expressionType="SQL92"))
    assert [row["body"] for row in found] == [b"large"]


def test_a_broker_that_goes_in_the_middle_is_a_clear_end(start_broker: StartBroker) -> None:
    # Java brokers share a name server.
    broker = start_broker(brokerName="broker-z")
    make_topic(broker, "leaving")
    fill(broker, "leaving", MESSAGES)
    made = reader(broker, topic="leaving", pullTimeoutMs=100, pullWindow=1, batchRows=10)
    batches = made.read(made.partitions()[0])
    next(batches)
    broker.kill()
    with pytest.raises(RequestTimeoutError, match=r"topic leaving, queue 0 .* no progress at"):
        list(batches)


# ── Conditions of the query ──


# ── Through Spark ──


def load(spark: SparkSession, broker: AnyBroker, **options: object) -> DataFrame:
    return spark.read.format("aerobee").options(**given(broker, **options)).load()


def test_spark_counts_selects_and_stops_early(spark: SparkSession, broker: AnyBroker) -> None:
    messages = load(spark, broker)
    assert messages.count() == QUEUES * EACH
    assert messages.limit(1).collect()[0]["topic"] == "orders"
    picked = messages.select("body").where("queueId = 1 and queueOffset < 2").collect()
    assert [bytes(row.body) for row in picked] == MESSAGES[EACH : EACH + 2]


def test_spark_reads_nothing_from_an_empty_topic(spark: SparkSession, broker: AnyBroker) -> None:
    assert load(spark, broker, topic="empty").count() == 0


def test_spark_hears_what_went_wrong(spark: SparkSession, broker: AnyBroker) -> None:
    with pytest.raises(PySparkException, match=r"RouteNotFoundError.*nowhere"):
        load(spark, broker, topic="nowhere").count()
    start = json.dumps({"orders": {BROKER: {"0": 1000, "1": 0, "2": 0}}})
    with pytest.raises(PySparkException, match=r"DataLossError.*queue 0 of topic orders"):
        load(spark, broker, startingOffsets=start).count()


def test_actions_of_one_load_see_the_same_and_a_new_load_sees_more(
    spark: SparkSession, broker: AnyBroker
) -> None:
    """An older PySpark plans each action anew, as docs/spark/start.md says."""
    make_topic(broker, "growing")
    fill(broker, "growing", bodies(7))
    messages = load(spark, broker, topic="growing")
    messages.createOrReplaceTempView("growing")
    options = f"nameServer '{broker.namesrv_address}', topic 'growing'"
    spark.sql(f"CREATE TABLE growing_table USING aerobee OPTIONS ({options})")
    try:
        asked = (messages, spark.table("growing"))
        assert [one.count() for one in asked] == [7, 7]
        assert spark.sql("SELECT count(*) FROM growing_table").first()[0] == 7  # type: ignore[index]  # one row
        fill(broker, "growing", bodies(5))
        kept = 7 if PYSPARK >= PLANS_ONCE_FROM else 12
        assert [one.count() for one in asked] == [kept, kept], "a view is what its load was"
        assert len(messages.where("queueOffset >= 0").collect()) == kept
        assert load(spark, broker, topic="growing").count() == 12
        assert spark.sql("SELECT count(*) FROM growing_table").first()[0] == 12  # type: ignore[index]  # one row
    finally:
        spark.sql("DROP TABLE growing_table")


def test_filters_of_one_query_do_not_stick_to_the_next(
    spark: SparkSession, broker: AnyBroker
) -> None:
    """Spark offers them to a reader that has `pushFilters`, once for all queries of a DataFrame."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        messages = load(spark, broker)
        one, two = messages.where("queueId = 0"), messages.where("queueOffset < 10")
        assert one.count() == EACH
        assert two.count() == 10 * QUEUES
        assert one.union(two).count() == EACH + 10 * QUEUES
        assert one.join(messages.where("queueId = 1"), "queueOffset").count() == EACH
        assert messages.count() == EACH * QUEUES
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    with pytest.raises(PySparkException, match="gives wrong rows"):
        load(spark, broker, pushFilters="true")
