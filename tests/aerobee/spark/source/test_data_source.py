"""`format("aerobee")` as users of Spark see it: options, schemas, SQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, DoubleType, IntegerType, StructField, StructType

import aerobee
from aerobee.blocking import AdminClient
from aerobee.errors import ConfigurationError
from aerobee.spark.options import read_options
from aerobee.spark.rows.columns import COLUMNS, DEFAULT, PRESETS, ddl_of
from aerobee.spark.source.batch_reader import BatchReader
from aerobee.spark.source.data_source import AerobeeSource
from aerobee.spark.source.stream_reader import StreamReader
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.aerobee.spark.queries import Q1
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import execute
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

COUNT = 30
MESSAGES = bodies(COUNT)
BODY = StructType([StructField("body", BinaryType())])


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker(brokerName="broker-a")
    make_topic(broker, "orders")
    fill(broker, "orders", MESSAGES, TAGS="a", KEYS="k1", UNIQ_KEY="0A", region="south")
    return broker


def reading(spark: SparkSession, broker: AnyBroker, **options: str) -> DataFrameReader:
    named = {"nameServer": broker.namesrv_address, "subscribe": "orders"} | options
    return spark.read.format("aerobee").options(**named)


def first(messages: DataFrame) -> dict[str, object]:
    found = messages.orderBy(messages.columns[0]).first()
    assert found is not None
    return found.asDict(recursive=True)


def source(**options: str) -> AerobeeSource:
    given = {"nameServer": "127.0.0.1:1", "topic": "orders"} | options
    return AerobeeSource(CaseInsensitiveDict(given))


# ── Without a session ──


def test_the_schema_is_what_the_options_choose() -> None:
    assert source().schema() == ddl_of(DEFAULT)
    assert source(columns="body, topic").schema() == "body binary, topic string"
    assert source(schemaPreset="kafka").schema() == ddl_of(PRESETS["kafka"], "kafka")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"columns": "body,quueId"}, "did you mean 'queueId'"),
        ({"batchRows": "many"}, "batchRows"),
        ({"schemaPreset": "pulsar"}, "schemaPreset"),
        ({"assign": "{}"}, "exactly one of|assign"),
    ],
)
def test_wrong_options_are_refused_with_the_schema(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        source(**options).schema()


def test_what_only_streams_may_say_is_no_error_yet() -> None:
    """Spark asks for the schema of a batch and of a stream in the same way."""
    latest = source(startingOffsets="latest")
    assert latest.schema() == ddl_of(DEFAULT)
    with pytest.raises(ConfigurationError, match="latest"):
        latest.reader(BODY)


def test_a_wrong_schema_is_refused_when_the_reader_is_made() -> None:
    for field, said in (
        (StructField("weight", DoubleType()), "no column 'weight'"),
        (StructField("queueOffset", IntegerType()), "'queueOffset' is bigint, not int"),
        (StructField("body", BinaryType(), nullable=False), "'body' must not be NOT NULL"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            source().reader(StructType([field]))


TIMES = {"bornTimestamp", "storeTimestamp", "timestamp", "lastTimestamp", "snapshotTime"}
NTZ = "spark.sql.timestampType"


def test_reads_do_not_depend_on_which_timestamp_the_session_means(
    spark: SparkSession, broker: AnyBroker
) -> None:
    """With TIMESTAMP_NTZ the word `timestamp` in a schema means the type without a time zone."""
    lag = {"nameServer": broker.namesrv_address}
    given = spark.conf.get(NTZ)
    spark.conf.set(NTZ, "TIMESTAMP_NTZ")
    try:
        tables = [
            reading(spark, broker).load(),
            reading(spark, broker, schemaPreset="kafka").load(),
            reading(spark, broker, columns=",".join(COLUMNS)).load(),
            spark.read.format("aerobee.lag").options(**lag).load(),
            spark.read.format("aerobee.store").load(str(broker.data)),
            spark.read.format("aerobee.store").option("mode", "segments").load(str(broker.data)),
        ]
        for table in tables:
            table.collect()
            kinds = {field.simpleString() for field in table.schema if field.name in TIMES}
            assert all(kind.endswith(":timestamp") for kind in kinds)
        sent = spark.createDataFrame([(b"x", datetime.now(UTC))], "body binary, t timestamp_ltz")
        sent = sent.withColumnRenamed("t", "bornTimestamp")
        options = lag | {"topic": "orders-ntz"}
        sent.write.format("aerobee").options(**options).mode("append").save()
    finally:
        spark.conf.set(NTZ, str(given))


def test_all_of_it_can_be_pickled() -> None:
    pickler: Any = CPickleSerializer()
    for made in (
        source(),
        source().reader(BODY),
        source(startingTimestamp="0", endingOffsets="latest").reader(BODY),
    ):
        again = pickler.loads(pickler.dumps(made))
        assert type(again) is type(made)
        assert vars(again) == vars(made)


# ── With a session ──


def test_spark_finds_it_by_its_name_alone(spark: SparkSession, broker: AnyBroker) -> None:
    assert reading(spark, broker).load().columns == list(DEFAULT)


def test_an_unknown_option_fails_in_load(spark: SparkSession, broker: AnyBroker) -> None:
    with pytest.raises(PySparkException, match="did you mean failOnDataLoss"):
        reading(spark, broker, failOnDatLoss="true").load()


def test_every_column_has_the_type_that_the_schema_says(
    spark: SparkSession, broker: AnyBroker
) -> None:
    began = datetime.now(UTC)
    messages = reading(spark, broker, columns=",".join(COLUMNS)).load()
    row = first(messages.where("queueOffset = 7"))
    assert row["body"] == MESSAGES[7]
    assert (row["topic"], row["brokerName"], row["queueId"]) == ("orders", "broker-a", 0)
    assert (row["tags"], row["keys"], row["msgId"]) == ("a", "k1", "0A")
    assert row["properties"]["region"] == "south"  # type: ignore[index]  # a map
    assert row["storeHost"] == broker.address
    stored = row["storeTimestamp"]
    assert isinstance(stored, datetime)
    assert timedelta(0) < began - stored.replace(tzinfo=UTC) < timedelta(minutes=5)


def test_a_schema_of_the_users_is_a_subset_in_any_order(
    spark: SparkSession, broker: AnyBroker
) -> None:
    messages = reading(spark, broker).schema("body binary, queueOffset bigint").load()
    assert [bytes(row.body) for row in messages.orderBy("queueOffset").collect()] == MESSAGES
    with pytest.raises(PySparkException, match="no column 'weight'"):
        reading(spark, broker).schema("weight double").load().count()


def test_times_go_in_as_options_and_come_out_as_instants(
    spark: SparkSession, broker: AnyBroker
) -> None:
    messages = reading(spark, broker, columns="storeTimestamp").load()
    least = messages.selectExpr("min(unix_millis(storeTimestamp)) as ms").collect()[0].ms
    assert reading(spark, broker, startingTimestamp=str(least)).load().count() == COUNT
    assert reading(spark, broker, endingTimestamp=str(least)).load().count() == 0
    assert reading(spark, broker, startingTimestamp="2020-01-01T00:00:00Z").load().count() == COUNT


def test_offsets_are_given_as_json(spark: SparkSession, broker: AnyBroker) -> None:
    def at(offset: int) -> str:
        return json.dumps({"orders": {"broker-a": {"0": offset}}})

    messages = reading(spark, broker, startingOffsets=at(5), endingOffsets=at(8)).load()
    assert sorted(row.queueOffset for row in messages.collect()) == [5, 6, 7]


def test_the_columns_of_rocketmq_spark(spark: SparkSession, broker: AnyBroker) -> None:
    row = first(reading(spark, broker, schemaPreset="rocketmq-spark").load().limit(1))
    assert list(row) == list(PRESETS["rocketmq-spark"])
    assert json.loads(str(row["properties"]))["region"] == "south"


def test_the_columns_of_kafka(spark: SparkSession, broker: AnyBroker) -> None:
    messages = reading(spark, broker, schemaPreset="kafka").load().where("offset = 3")
    row = first(messages)
    assert list(row) == list(PRESETS["kafka"])
    assert (row["key"], row["value"], row["partition"]) == (b"k1", MESSAGES[3], 0)
    assert {"key": "region", "value": b"south"} in row["headers"]  # type: ignore[operator]  # a list


def test_tables_of_sql_read_topics(spark: SparkSession, broker: AnyBroker) -> None:
    options = f"nameServer '{broker.namesrv_address}', topic 'orders', columns 'tags,body,keys'"
    spark.sql(f"CREATE TABLE orders_in_sql USING aerobee OPTIONS ({options})")
    try:
        counted = spark.sql("SELECT tags, keys, count(*) FROM orders_in_sql GROUP BY tags, keys")
        assert [tuple(row) for row in counted.collect()] == [("a", "k1", COUNT)]
        at_20 = json.dumps({"orders": {"broker-a": {"0": 20}}})
        few = spark.sql(f"SELECT * FROM orders_in_sql WITH (startingOffsets '{at_20}')")
        assert few.count() == COUNT - 20
        with pytest.raises(PySparkException, match="INSERT INTO t WITH"):
            spark.sql("INSERT INTO orders_in_sql SELECT 'a', X'00', 'k'")
    finally:
        spark.sql("DROP TABLE orders_in_sql")


def test_a_table_with_a_list_of_columns_says_what_it_has_lost(
    spark: SparkSession, broker: AnyBroker
) -> None:
    options = f"nameServer '{broker.namesrv_address}', topic 'orders'"
    spark.sql(f"CREATE TABLE lost (body BINARY, tags STRING) USING aerobee OPTIONS ({options})")
    try:
        with pytest.raises(PySparkException, match="was made with a list of columns"):
            spark.sql("SELECT count(*) FROM lost").collect()
        named = spark.sql(f"SELECT body FROM lost WITH ({options})")
        assert named.count() == COUNT
    finally:
        spark.sql("DROP TABLE lost")


def test_a_condition_that_no_broker_takes_is_refused_when_the_read_is_planned(
    spark: SparkSession, broker: AnyBroker
) -> None:
    """Before any task is made; Spark would run each of them four times."""
    for stream in (False, True):
        options = read_options(
            {
                "nameserver": broker.namesrv_address,
                "topic": "orders",
                "expressiontype": "SQL92",
                "subexpression": "colour = = 'blue'",
            },
            stream=stream,
        )
        streamed, batch = StreamReader(options, ("body",)), BatchReader(options, ("body",))
        plan = streamed.initialOffset if stream else batch.partitions
        with pytest.raises(ConfigurationError, match=r"option subExpression: .* is refused"):
            plan()


def test_views_of_sql_read_topics(spark: SparkSession, broker: AnyBroker) -> None:
    options = f"nameServer '{broker.namesrv_address}', topic 'orders'"
    spark.sql(f"CREATE TEMPORARY VIEW orders_view USING aerobee OPTIONS ({options})")
    assert spark.sql("SELECT max(queueOffset) FROM orders_view").collect()[0][0] == COUNT - 1
    spark.catalog.dropTempView("orders_view")


def test_what_is_used_again_answers_as_plain_files_do(
    spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The campaign of random queries, small; `make torture ONLY=Q1` runs the long one."""
    seed = pytestconfig.getoption("--seed")
    outcome = execute(Q1, pytestconfig.getoption("--cycles") or Q1.t1, seed, tmp_path)
    print(f"{Q1.key}: {outcome.executed} {Q1.unit}, {outcome.summary()}")
    outcome.check()


# ── A shadow that follows its master, which is asked for nothing ──


SHADOWED, SEGMENT, MANY = "shadowed", 131_072, 400
HALF = MANY // 2
SHADOW_BODIES = bodies(MANY, 700)
WITHIN_S = 120


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"brokerName": "production", "haPeers": HOST, "mappedFileSizeCommitLog": SEGMENT}
    with BrokerProcess(data=tmp_path / "master", settings=settings) as broker:
        make_topic(broker, SHADOWED)
        yield broker


@pytest.fixture
def shadow(tmp_path: Path, master: BrokerProcess) -> Iterator[BrokerProcess]:
    settings = {
        "brokerIP1": HOST,
        "brokerRole": "SLAVE",
        "brokerId": 1,
        "shadow": True,
        "haMasterAddress": f"{HOST}:{master.ports.ha}",
        "mappedFileSizeCommitLog": SEGMENT,
    }
    with BrokerProcess(data=tmp_path / "shadow", settings=settings) as broker:
        yield broker


def wait_for(shadow: BrokerProcess, count: int) -> None:
    """Until a consumer of the shadow can have so many messages."""

    def there() -> int:
        with RawConnection(shadow.address) as connection:
            return len(list(read_topic(connection, SHADOWED, 0)))

    eventually(lambda: there() == count, within_s=WITHIN_S, what=f"{count} messages there")


def bodies_of(rows: DataFrame) -> list[bytes]:
    return [bytes(row.body) for row in rows.orderBy("queueOffset").collect()]


def test_spark_and_arrow_read_a_shadow_that_follows_its_master(
    spark: SparkSession, master: BrokerProcess, shadow: BrokerProcess, tmp_path: Path
) -> None:
    names = {"nameServer": shadow.namesrv_address, "subscribe": SHADOWED}
    at, checkpoint = str(tmp_path / "rows"), str(tmp_path / "checkpoint")

    def stream() -> None:
        rows = spark.readStream.format("aerobee").options(**names, startingOffsets="earliest")
        writing = rows.load().writeStream.option("checkpointLocation", checkpoint)
        query = writing.trigger(availableNow=True).format("parquet").option("path", at).start()
        assert query.awaitTermination(WITHIN_S)

    # What comes before the first connection is left out where its file of the log is full by then.
    with AdminClient(shadow.namesrv_address) as admin:
        eventually(lambda: SHADOWED in admin.topics(), within_s=WITHIN_S, what="the topic")
    fill(master, SHADOWED, SHADOW_BODIES[:1])
    wait_for(shadow, 1)
    fill(master, SHADOWED, SHADOW_BODIES[1:HALF])
    wait_for(shadow, HALF)
    assert bodies_of(spark.read.format("aerobee").options(**names).load()) == SHADOW_BODIES[:HALF]
    stream()
    assert bodies_of(spark.read.parquet(at)) == SHADOW_BODIES[:HALF]

    fill(master, SHADOWED, SHADOW_BODIES[HALF:])
    wait_for(shadow, MANY)
    stream()
    assert bodies_of(spark.read.parquet(at)) == SHADOW_BODIES
    table = aerobee.arrow(SHADOWED, namesrv=shadow.namesrv_address)
    assert table.column("body").to_pylist() == SHADOW_BODIES

    # The files of the shadow, while it writes them.
    stored = spark.read.format("aerobee.store").option("topics", SHADOWED).load(str(shadow.data))
    assert bodies_of(stored) == SHADOW_BODIES
