"""What groups have not read yet, asked of a real broker; `--against` makes it Java's."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.kit.raw_client import RawConnection
from tests.kit.reading import max_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

UPDATE_OFFSET = 15
CREATE_GROUP = 200
COLUMNS = [
    *("group", "topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "lag"),
    *("lastTimestamp", "timeLagMs", "snapshotTime"),
]


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    """Two topics; group `lake` has read a part of one, `shop` all of the other."""
    broker = start_broker()
    make_topic(broker, "orders", 2)
    make_topic(broker, "bills", 1)
    fill(broker, "orders", bodies(10), queue_id=0)
    fill(broker, "orders", bodies(4), queue_id=1)
    fill(broker, "bills", bodies(3))
    with RawConnection(broker.address) as connection:
        for group in ("lake", "shop", "idle"):
            body = json.dumps({"groupName": group}).encode()
            assert connection.call(CREATE_GROUP, {}, body).code == 0
        commit(connection, "lake", "orders", 0, 7)
        commit(connection, "lake", "bills", 0, 0)
        commit(connection, "shop", "bills", 0, 3)
        assert max_offset(connection, "bills", 0) == 3
    return broker


def commit(connection: RawConnection, group: str, topic: str, queue_id: int, at: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": at}
    assert connection.call(UPDATE_OFFSET, fields).code == 0


def lag(spark: SparkSession, broker: AnyBroker, **options: str) -> DataFrame:
    reader = spark.read.format("aerobee.lag").option("nameServer", broker.namesrv_address)
    return reader.options(**options).load()


def seen(rows: DataFrame) -> list[tuple[Any, ...]]:
    """Group, topic, queue, offsets and lag, in order."""
    wanted = rows.select("group", "topic", "queueId", "brokerOffset", "consumerOffset", "lag")
    return sorted(tuple(row) for row in wanted.collect())


def test_every_group_is_there_with_its_distance_to_the_end(
    spark: SparkSession, broker: AnyBroker
) -> None:
    before = time.time()
    rows = lag(spark, broker)
    assert rows.columns == COLUMNS
    found = {(row["group"], row["topic"], row["queueId"]): row for row in rows.collect()}
    offsets = {key: (row["brokerOffset"], row["consumerOffset"]) for key, row in found.items()}
    assert offsets == {
        ("lake", "bills", 0): (3, 0),
        ("lake", "orders", 0): (10, 7),
        ("lake", "orders", 1): (4, 0),
        ("shop", "bills", 0): (3, 3),
    }
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


def test_groups_and_topics_can_be_chosen(spark: SparkSession, broker: AnyBroker) -> None:
    assert seen(lag(spark, broker, groups="lake,shop", topics="bills")) == [
        ("lake", "bills", 0, 3, 0, 3),
        ("shop", "bills", 0, 3, 3, 0),
    ]
    assert seen(lag(spark, broker, groups="idle")) == [], "it is there and has read nothing"


def test_columns_can_be_chosen_by_a_schema_and_the_source_works_in_sql(
    spark: SparkSession, broker: AnyBroker
) -> None:
    reader = spark.read.format("aerobee.lag").schema("lag bigint, topic string")
    rows = reader.option("nameServer", broker.namesrv_address).option("groups", "shop").load()
    assert [tuple(row) for row in rows.collect()] == [(0, "bills")]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW behind USING `aerobee.lag` "
        f"OPTIONS (nameServer '{broker.namesrv_address}')"
    )
    [row] = spark.sql("SELECT sum(lag) AS total FROM behind WHERE topic = 'orders'").collect()
    assert row["total"] == 7


@pytest.mark.parametrize(
    ("options", "schema", "words"),
    [
        ({"groups": "lke"}, None, "no broker knows a consumer group lke; there are"),
        ({"group": "lake"}, None, "groups"),
        ({}, "lag string", "no column lag string"),
        ({"nameServer": "127.0.0.1:1"}, None, "127.0.0.1:1"),
    ],
)
def test_a_wrong_question_is_answered_by_what_is_wrong(
    spark: SparkSession,
    broker: AnyBroker,
    options: dict[str, str],
    schema: str | None,
    words: str,
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("aerobee.lag").option("nameServer", broker.namesrv_address)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(PySparkException, match=words):
        reader.options(**options).load().collect()
