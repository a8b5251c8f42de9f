"""Consumer lag as a Spark table, from a real broker; `--against` makes it Java's."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.aerobee.spark.filling import bodies, fill
from tests.aerobee.spark.groups import LAGS, commit, fill_with_groups
from tests.kit.raw_client import RawConnection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

COLUMNS = [
    *("group", "topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "lag"),
    *("lastTimestamp", "timeLagMs", "snapshotTime"),
]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker()
    fill_with_groups(broker)
    return broker


def test_every_group_is_there_with_its_distance_to_the_end(
    spark: SparkSession, broker: AnyBroker
) -> None:
    before = time.time()
    reader = spark.read.format("aerobee.lag").option("nameServer", broker.namesrv_address)
    rows = reader.load()
    assert rows.columns == COLUMNS
    found = {(row["group"], row["topic"], row["queueId"]): row for row in rows.collect()}
    offsets = {key: (row["brokerOffset"], row["consumerOffset"]) for key, row in found.items()}
    assert offsets == LAGS
    assert all(row["lag"] == row["brokerOffset"] - row["consumerOffset"] for row in found.values())
    assert len({row["snapshotTime"] for row in found.values()}) == 1
    behind = found["lake", "orders", 0]
    snapshot = behind["snapshotTime"].replace(tzinfo=UTC).timestamp()
    assert before <= snapshot <= datetime.now(UTC).timestamp()
    stored = behind["lastTimestamp"].replace(tzinfo=UTC).timestamp()
    assert behind["timeLagMs"] == pytest.approx((snapshot - stored) * 1_000, abs=2)
    assert 0 <= behind["timeLagMs"] < 600_000
    assert found["shop", "bills", 0]["timeLagMs"] == 0
    fresh = found["lake", "orders", 1]
    assert (fresh["lastTimestamp"], fresh["timeLagMs"]) == (None, None)


def test_a_dataframe_that_is_used_again_asks_again(spark: SparkSession, broker: AnyBroker) -> None:
    """As a job that looks every five minutes does; the plan is that of the first look."""
    reader = spark.read.format("aerobee.lag").option("nameServer", broker.namesrv_address)
    lag = reader.option("groups", "lake").load().where("topic = 'bills'")
    [first] = lag.collect()
    fill(broker, "bills", bodies(2))
    try:
        [second] = lag.collect()
    finally:
        with RawConnection(broker.address) as connection:
            commit(connection, "shop", "bills", 0, 5)
    assert (first["lag"], second["lag"]) == (3, 5)
    assert second["snapshotTime"] > first["snapshotTime"]


def test_it_works_in_sql_as_a_view_and_as_a_table_and_columns_can_be_chosen(
    spark: SparkSession, broker: AnyBroker
) -> None:
    options = f"OPTIONS (nameServer '{broker.namesrv_address}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW behind USING `aerobee.lag` {options}")
    [row] = spark.sql("SELECT sum(lag) AS total FROM behind WHERE topic = 'orders'").collect()
    assert row["total"] == 7
    spark.sql(f"CREATE TABLE lags USING `aerobee.lag` {options}")
    try:
        [row] = spark.sql("SELECT count(*) AS queues FROM lags").collect()
    finally:
        spark.sql("DROP TABLE lags")
    assert row["queues"] == len(LAGS)
    reader = spark.read.format("aerobee.lag").schema("lag bigint, topic string")
    rows = reader.option("nameServer", broker.namesrv_address).option("groups", "shop").load()
    assert [tuple(row) for row in rows.collect()] == [(0, "bills")]


def test_a_wrong_option_or_column_is_refused_when_the_table_is_made(
    spark: SparkSession, broker: AnyBroker
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("aerobee.lag").option("nameServer", broker.namesrv_address)
    with pytest.raises(PySparkException, match="no column lag string"):
        reader.schema("lag string").load().collect()
    with pytest.raises(PySparkException, match="groups"):
        spark.read.format("aerobee.lag").option("group", "lake").load()
