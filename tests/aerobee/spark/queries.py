"""Random queries on DataFrames, views and tables that are used again and again, beside plain files.

    messages of a broker, once in Parquet → a random query, asked of both → the same rows

Everything that Spark keeps between two queries of one `load()` (its plan, its filters, its columns)
is kept here for thousands of them. The data do not change, so that any difference is a fault.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign

if TYPE_CHECKING:
    from random import Random

    from pyspark.sql import DataFrame, SparkSession

    from tests.kit.campaign import Run

QUEUES, EACH = 3, 120
COLUMNS = ("topic", "queueId", "queueOffset", "tags", "keys", "body", "storeTimestamp")
PLAIN = "plain_messages"
OURS = ("kept_view", "sql_view", "kept_table", "store_view", "store_table")
"""Made once; asked by every query in turns."""
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COUNTED = 0.1
"""How often the DataFrame itself is asked between two queries."""


def predicate(rng: Random, depth: int = 0) -> str:
    """A condition on the columns, as a person or an optimizer writes them."""
    if depth < 2 and rng.random() < 0.4:
        word = rng.choice(("AND", "OR"))
        both = f"({predicate(rng, depth + 1)} {word} {predicate(rng, depth + 1)})"
        return f"NOT {both}" if rng.random() < 0.2 else both
    queue, at = rng.randrange(-1, QUEUES + 1), rng.randrange(-2, EACH + 2)
    sign = rng.choice(("=", "<", "<=", ">", ">=", "<>"))
    return rng.choice(
        (
            f"queueId {sign} {queue}",
            f"queueId IN ({queue}, {rng.randrange(QUEUES)})",
            f"queueOffset {sign} {at}",
            f"queueOffset BETWEEN {at} AND {at + rng.randrange(40)}",
            f"queueOffset % {rng.randrange(2, 9)} = 1",
            f"tags {sign} 'tag{queue}'",
            f"tags IN ('tag{queue}', 'tag1', 'none')",
            "tags IS NOT NULL",
            f"tags <=> {rng.choice(('null', repr('tag1')))}",
            f"keys LIKE 'k{rng.randrange(3)}%'",
            f"topic = {rng.choice(('orders', 'others'))!r}",
            f"storeTimestamp {sign} (SELECT max(storeTimestamp) FROM {{T}})",
            f"cast(body AS string) > '{at:08d}'",
        )
    )


def query(rng: Random) -> str:
    """A query of `{T}`, the rows of which do not depend on an order."""
    some = ", ".join(rng.sample(COLUMNS, rng.randrange(1, len(COLUMNS) + 1)))
    one, two = predicate(rng), predicate(rng)
    joined = "a.queueOffset, a.queueId, b.queueId AS other, b.tags"
    return rng.choice(
        (
            f"SELECT {some} FROM {{T}} WHERE {one}",
            f"SELECT count(*), sum(queueOffset), max(body) FROM {{T}} WHERE {one}",
            f"SELECT tags, count(*) FROM {{T}} WHERE {one} GROUP BY tags HAVING count(*) > 3",
            f"SELECT {some} FROM {{T}} WHERE {one} UNION ALL SELECT {some} FROM {{T}} WHERE {two}",
            f"SELECT {some} FROM {{T}} WHERE {one} EXCEPT SELECT {some} FROM {{T}} WHERE {two}",
            f"SELECT {some} FROM {{T}} WHERE {one} INTERSECT SELECT {some} FROM {{T}} WHERE {two}",
            f"SELECT {joined} FROM (SELECT * FROM {{T}} WHERE {one}) a "
            f"JOIN (SELECT * FROM {{T}} WHERE {two}) b ON a.queueOffset = b.queueOffset",
            f"SELECT {joined} FROM {{T}} a LEFT JOIN (SELECT * FROM {{T}} WHERE {two}) b "
            "ON a.queueOffset = b.queueOffset AND a.queueId < b.queueId",
            f"SELECT {some} FROM {{T}} WHERE queueOffset IN "
            f"(SELECT queueOffset FROM {{T}} WHERE {one}) AND {two}",
            f"SELECT queueId, queueOffset FROM {{T}} WHERE {one} "
            f"ORDER BY queueId, queueOffset DESC LIMIT {rng.randrange(1, 60)}",
            f"SELECT DISTINCT tags, keys FROM {{T}} WHERE {one}",
            f"SELECT queueId, row_number() OVER (PARTITION BY queueId ORDER BY queueOffset) "
            f"FROM {{T}} WHERE {one}",
        )
    )


def answer(spark: SparkSession, text: str, table: str) -> list[str]:
    """The rows of the query, in one order."""
    return sorted(map(repr, spark.sql(text.format(T=table)).collect()))


def same_answers(run: Run) -> None:
    """A cycle is a query. A session that is there is used, else one is started."""
    from pyspark.sql import SparkSession

    from tests.aerobee.spark.conftest import session_for

    with ExitStack() as held:
        spark = SparkSession.getActiveSession() or held.enter_context(session_for(run.directory))
        broker = held.enter_context(BrokerProcess(data=run.directory / "data"))
        kept = prepared(spark, broker, run)
        # PySpark 4.0 does not know it, and pushes nothing down.
        held.callback(spark.conf.set, PUSHDOWN, str(spark.conf.get(PUSHDOWN, "false")))
        try:
            for cycle in run.cycles():
                spark.conf.set(PUSHDOWN, str(cycle.rng.random() < 0.5).lower())
                text, table = query(cycle.rng), cycle.rng.choice(OURS)
                expected = answer(spark, text, PLAIN)
                found = answer(spark, text, table)
                assert found == expected, f"{table}: {text}"
                if cycle.rng.random() < COUNTED:
                    assert kept.count() == QUEUES * EACH
                run.counts["rows"] += len(found)
                run.counts["differences"] += 0
        finally:
            for name in ("kept_table", "store_table"):
                spark.sql(f"DROP TABLE IF EXISTS {name}")


def prepared(spark: SparkSession, broker: BrokerProcess, run: Run) -> DataFrame:
    """The messages, in all the ways that a query can ask for them; one of these DataFrames."""
    make_topic(broker, "orders", QUEUES)
    numbered = bodies(QUEUES * EACH)
    for queue_id in range(QUEUES):
        part = numbered[queue_id * EACH : (queue_id + 1) * EACH]
        some: dict[str, str] = {"TAGS": f"tag{queue_id}"} if queue_id else {}
        fill(broker, "orders", part[:70], queue_id=queue_id, KEYS=f"k{queue_id} k", **some)
        fill(broker, "orders", part[70:], queue_id=queue_id, TAGS="tag1")
    cluster = {
        "nameServer": broker.namesrv_address,
        "topic": "orders",
        "columns": ",".join(COLUMNS),
    }
    store = {"path": str(broker.data), "topics": "orders", "columns": ",".join(COLUMNS)}
    plain = str(run.directory / "plain")
    kept = spark.read.format("aerobee").options(**cluster).load()
    kept.createOrReplaceTempView("kept_view")
    kept.write.parquet(plain)
    spark.read.parquet(plain).createOrReplaceTempView(PLAIN)
    in_store = spark.read.format("aerobee.store").options(**store).load()
    in_store.createOrReplaceTempView("store_view")
    view = f"CREATE OR REPLACE TEMPORARY VIEW sql_view USING aerobee OPTIONS ({quoted(cluster)})"
    spark.sql(view)
    spark.sql(f"CREATE TABLE kept_table USING aerobee OPTIONS ({quoted(cluster)})")
    spark.sql(f"CREATE TABLE store_table USING `aerobee.store` OPTIONS ({quoted(store)})")
    return kept


def quoted(options: dict[str, Any]) -> str:
    """Options as SQL writes them."""
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


Q1 = Campaign(
    key="Q1",
    title="random Spark queries on DataFrames, views and tables used again, beside plain Parquet",
    unit="queries",
    t1=10,
    t2=1_000,
    run=same_answers,
)
