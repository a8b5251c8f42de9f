"""Writing from Spark to one broker of ours: rows per second, plain and with properties.

    python -m bench.spark_write [--messages N] [--runs N]

First the encoder alone, on rows that are in memory: what a task would do without a network. Then
`write.format("aerobee")` from one task slot; the broker shares the machine, its CPU is not counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from aerobee.client.send_result import MessageQueue
from aerobee.spark.sink.columns import places
from aerobee.spark.sink.encode import Encoder, RowEncoding
from aerobee.spark.sink.writer import id_maker
from bench.arguments import program, whole
from bench.machine import describe
from bench.spark_session import cost_of, measuring_session
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BODY_BYTES = 256
QUEUES = 4
TOPIC = "bench"
LOG_BYTES = 1 << 30
BATCH_ROWS = 10_000
"""The rows that Spark hands over at a time."""
KINDS = {
    "plain": (),
    "properties": (
        "concat('tag', id % 8) AS tags",
        "cast(id as string) AS keys",
        "map('customer', cast(id % 1000 as string), 'region', 'south') AS properties",
    ),
    "keyed": ("concat('k', id % 100) AS shardingKey",),
    "delayed": ("18 AS delayLevel",),
}


@program
def main() -> None:
    """Print a table: what is written, rows per second, CPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=whole, default=200_000)
    parser.add_argument("--runs", type=whole, default=3)
    given = parser.parse_args()
    print(describe(), f"pyspark {version('pyspark')} pyarrow {pa.__version__}")
    print(f"{given.messages:,} messages of {BODY_BYTES} bytes, {QUEUES} queues, one task slot")
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        settings = {"mappedFileSizeCommitLog": LOG_BYTES, "defaultTopicQueueNums": QUEUES}
        broker = running.enter_context(BrokerProcess(data=directory / "ours", settings=settings))
        spark = running.enter_context(measuring_session(directory))
        body = f"cast(rpad(cast(id as string), {BODY_BYTES}, 'x') as binary) AS body"
        for kind, columns in KINDS.items():
            count = given.messages // (20 if kind == "delayed" else 1)
            rows = spark.range(0, count, 1, 1).selectExpr(body, *columns)
            print(f"{kind:<11} encode {encoded(rows.limit(BATCH_ROWS)):>10,.0f} rows/s", flush=True)
            cost = cost_of(partial(save, rows, broker.namesrv_address), given.runs)
            print(f"{kind:<11} write  {cost.line(count)}", flush=True)


def encoded(rows: DataFrame) -> float:
    """Rows per second of the encoder alone."""
    (batch,) = rows.toArrow().combine_chunks().to_batches()
    encoder = Encoder(
        places(batch.schema, topic=TOPIC),
        RowEncoding(topic=TOPIC),
        new_ids=id_maker("127.0.0.1:9876"),
        queues=lambda topic, _: [MessageQueue(topic, "broker", number) for number in range(QUEUES)],
    )
    began = time.perf_counter()
    while time.perf_counter() - began < 1:
        deque(encoder.shipments(batch), maxlen=0)
    return encoder.row / (time.perf_counter() - began)


def save(rows: DataFrame, name_server: str) -> None:
    """One write, from the first row to the last acknowledgement."""
    to_broker = rows.write.format("aerobee").mode("append")
    to_broker.option("nameServer", name_server).option("topic", TOPIC).save()


if __name__ == "__main__":
    main()
