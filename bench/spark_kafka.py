"""Reading a topic into Spark, compared with Spark's own Kafka source: same machine, same bytes.

    python -m bench.spark_kafka [--messages N] [--runs N]

Spark writes the same bodies to a broker of ours and to Kafka's, four queues each; then both are
read by one task slot: `count()`, and every column into Spark's sink that keeps nothing. Our CPU is
that of the JVM and its Python workers, Kafka's that of the JVM; the brokers' own is not in it.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bench.arguments import program, whole
from bench.kafka_peer import connector_jars, kafka_broker
from bench.machine import describe
from bench.spark_session import cost_of, measuring_session
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY_BYTES = 256
QUEUES = 4
TOPIC = "bench"
LOG_BYTES = 1 << 30


@program
def main() -> None:
    """Print a table: source, query, rows per second, CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=whole, default=1_000_000)
    parser.add_argument("--runs", type=whole, default=3)
    given = parser.parse_args()
    print(describe(), f"pyspark {version('pyspark')}")
    print(f"{given.messages:,} messages of {BODY_BYTES} bytes, {QUEUES} queues, one task slot")
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        settings = {"mappedFileSizeCommitLog": LOG_BYTES, "defaultTopicQueueNums": QUEUES}
        ours = running.enter_context(BrokerProcess(data=directory / "ours", settings=settings))
        kafka, _ = running.enter_context(kafka_broker(directory / "kafka", partitions=QUEUES))
        spark = running.enter_context(measuring_session(directory, jars=connector_jars()))
        readers = {
            "aerobee": spark.read.format("aerobee")
            .option("nameServer", ours.namesrv_address)
            .option("topic", TOPIC),
            "kafka": spark.read.format("kafka")
            .option("kafka.bootstrap.servers", kafka)
            .option("subscribe", TOPIC),
        }
        fill(spark, given.messages, ours.namesrv_address, kafka)
        for query in ("count", "noop"):
            for name, reader in readers.items():
                rows = reader.load()
                assert rows.count() == given.messages, name
                cost = cost_of(partial(perform, rows, query), given.runs)
                print(f"{name:<8} {query:<6} {cost.line(given.messages)}", flush=True)


def perform(rows: DataFrame, query: str) -> None:
    """Perform a query of the two."""
    if query == "count":
        rows.count()
    else:
        rows.write.format("noop").mode("overwrite").save()


def fill(spark: SparkSession, messages: int, name_server: str, kafka: str) -> None:
    """The same rows into both."""
    rows = spark.range(messages).selectExpr(
        "cast(id as string) AS key",
        f"cast(rpad(cast(id as string), {BODY_BYTES}, 'x') as binary) AS value",
    )
    to_kafka = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    to_kafka.option("topic", TOPIC).save()
    to_ours = rows.selectExpr("key AS keys", "value AS body").write.format("aerobee")
    to_ours.option("nameServer", name_server).option("topic", TOPIC).mode("append").save()


if __name__ == "__main__":
    main()
