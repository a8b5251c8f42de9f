"""The needs of Spark's processes for one read: time to plan many queues, memory of one task.

    python -m bench.spark_task [--queues 1024] [--messages 1000000]

Planned is a topic of so many queues with a message in each, in this process and then by Spark's own
planner. The memory is the highest of any Python worker (VmHWM): first after a source that gives
one row as an Arrow batch, then of the same workers after a write and a read with default settings,
and at last after a read of messages of 200 KB.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from aerobee.spark.options import read_options
from aerobee.spark.rows.columns import DEFAULT
from aerobee.spark.source.batch_reader import BatchReader
from bench.arguments import program, whole
from bench.load import DEFAULT_SIZES
from bench.machine import describe
from bench.spark_session import measuring_session, workers_peak_bytes
from tests.kit.broker_process import BrokerProcess
from tests.kit.raw_client import RawConnection, properties_text, send_fields, topic_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MANY, LONG, LARGE = "many-queues", "long", "large"
LARGE_BYTES, LARGE_COUNT = 200_000, 2_000
CREATE_TOPIC, SEND_MESSAGE_V2 = 17, 310
BODY_BYTES = 256
MiB = 1 << 20
RUNS = 5
PLAN_S, MEMORY_MIB = 1.0, 150
"""The targets: at most."""


@program
def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=whole, default=1_024)
    parser.add_argument("--messages", type=whole, default=1_000_000)
    given = parser.parse_args()
    print(describe(), f"pyspark {version('pyspark')}")
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        broker = running.enter_context(
            BrokerProcess(data=directory / "data", settings=DEFAULT_SIZES)
        )
        make_topics(broker, given.queues)
        options = {"nameServer": broker.namesrv_address, "topic": MANY}
        reader = BatchReader(read_options(options, stream=False), DEFAULT)
        assert sum(len(part.value) for part in reader.partitions()) == given.queues
        spark = running.enter_context(measuring_session(directory))
        source = spark.read.format("aerobee").options(**options)
        print(
            f"planning {given.queues:,} queues: {usual(reader.partitions):.2f} s, "
            f"by Spark {usual(lambda: source.load().rdd.getNumPartitions()):.2f} s   "
            f"target {PLAN_S} s",
            flush=True,
        )
        body = f"cast(rpad(cast(id as string), {BODY_BYTES}, 'x') as binary) AS body"
        spark.dataSource.register(OneRow)
        drain(spark.read.format(OneRow.name()).load())
        bare = workers_peak_bytes()
        rows = spark.range(0, given.messages, 1, 1)
        rows = rows.selectExpr(body, "map('region', 'south') AS properties")
        to_broker = rows.write.format("aerobee").mode("append")
        to_broker.option("nameServer", broker.namesrv_address).option("topic", LONG).save()
        written = workers_peak_bytes()
        drain(source.option("topic", LONG).load())
        read = workers_peak_bytes()
        print(
            f"memory of a worker: {bare / MiB:.0f} MiB bare, {written / MiB:.0f} after writing "
            f"{given.messages:,} messages, {read / MiB:.0f} after reading them: "
            f"{(read - bare) / MiB:.0f} MiB more   target {MEMORY_MIB} MiB",
            flush=True,
        )
        fill_with_large(broker)
        drain(source.option("topic", LARGE).load())
        large = workers_peak_bytes()
        print(f"after reading {LARGE_COUNT:,} messages of {LARGE_BYTES:,} bytes: {large / MiB:.0f}")


def make_topics(broker: BrokerProcess, queues: int) -> None:
    """One topic with a message in each of its many queues, and one to be filled."""
    with RawConnection(broker.address) as connection:
        for topic, count in ((MANY, queues), (LONG, 1)):
            connection.call(CREATE_TOPIC, topic_fields(topic, count))
        for queue_id in range(queues):
            fields = send_fields(MANY, queue_id, i=properties_text(UNIQ_KEY=f"{queue_id:032X}"))
            assert connection.call(SEND_MESSAGE_V2, fields, b"x").code == 0


def fill_with_large(broker: BrokerProcess) -> None:
    """Large messages in one queue."""
    with RawConnection(broker.address) as connection:
        connection.call(CREATE_TOPIC, topic_fields(LARGE, 1))
        body = bytes(LARGE_BYTES)
        for number in range(LARGE_COUNT):
            fields = send_fields(LARGE, 0, i=properties_text(UNIQ_KEY=f"{number:032X}"))
            assert connection.call(SEND_MESSAGE_V2, fields, body).code == 0


def usual(work: Callable[[], object]) -> float:
    """The median of its seconds, after one run to warm up."""
    work()
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


class OneRow(DataSource):
    """As little as a worker can be asked for that hands Arrow batches to Spark."""

    @classmethod
    def name(cls) -> str:
        """Its name as a format."""
        return "one-row"

    def schema(self) -> str:
        """One column."""
        return "id INT"

    def reader(self, schema: StructType) -> OneRowReader:
        """The reader of its row."""
        return OneRowReader()


class OneRowReader(DataSourceReader):
    """One batch of one row."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batch."""
        yield pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())})


def drain(rows: DataFrame) -> None:
    """Every column, into nothing."""
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
