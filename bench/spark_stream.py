"""A stream under steady input: how old a message is when its batch is done; and a stream at rest.

    python -m bench.spark_stream [--rate 10000] [--seconds 60] [--trigger 1]

`bench/rawload` (Go) sends at a fixed rate to a broker of ours with four queues; one query reads the
topic from its end. A message's age is taken from the broker's store time to the end of the batch
that it is in, warm-up left out. At rest the same query runs without input: CPU of the JVM and of
its Python workers.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions

from bench.arguments import positive, program, whole
from bench.load import BINARY, DEFAULT_SIZES, build
from bench.machine import describe
from bench.spark_session import measuring_session, spark_cpu_s
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "BenchmarkTest"
QUEUES, BODY_BYTES, CONNECTIONS = 4, 256, 8
SLOTS = 2
WARM_UP_S = 15.0
SETTLED_AFTER_S, REST_S = 20.0, 30.0
P50_S, P99_S, REST_CORE = 1.5, 3.0, 0.03
"""The targets: at most."""


class Ages:
    """Counts messages by their age in ms at the end of their batch, once it is told to."""

    def __init__(self) -> None:
        self.counted: Counter[int] = Counter()
        self.since = float("inf")

    def of_batch(self, rows: DataFrame, _: int) -> None:
        """A query calls it with every batch."""
        stored = functions.unix_millis("storeTimestamp").alias("stored")
        found = rows.groupBy(stored).agg(functions.count("body").alias("count")).collect()
        now = time.time() * 1_000
        if now >= self.since * 1_000:
            for stored_at, count in found:
                self.counted[max(0, round(now - stored_at))] += count

    def at(self, share: float) -> float:
        """Seconds of age that this share of the messages had at most."""
        left = share * self.counted.total()
        for age in sorted(self.counted):
            left -= self.counted[age]
            if left <= 0:
                return age / 1_000
        raise SystemExit("no message was read")


@program
def main() -> None:
    """Print two lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=whole, default=10_000, help="messages per second")
    parser.add_argument("--seconds", type=positive, default=60)
    parser.add_argument("--trigger", type=positive, default=1, help="seconds")
    given = parser.parse_args()
    build()
    print(describe(), f"pyspark {version('pyspark')}")
    with ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        settings = DEFAULT_SIZES | {"defaultTopicQueueNums": QUEUES}
        broker = running.enter_context(BrokerProcess(data=directory / "data", settings=settings))
        spark = running.enter_context(measuring_session(directory, slots=SLOTS))
        spark.conf.set("spark.sql.shuffle.partitions", "1")
        ages = Ages()
        query = started(spark, broker, directory, given.trigger, ages)
        with loaded(broker, given.rate, WARM_UP_S + given.seconds):
            time.sleep(WARM_UP_S)
            ages.since = time.time()
            time.sleep(given.seconds)
            behind = query.lastProgress
        print(
            f"stream   {ages.counted.total() / given.seconds:>8,.0f} messages/s   "
            f"age p50 {ages.at(0.5):.2f} s  p99 {ages.at(0.99):.2f} s   "
            f"target {P50_S} s, {P99_S} s",
            flush=True,
        )
        if behind is not None:
            print(f"last batch under load: {behind.numInputRows:,} messages, {behind.durationMs}")
        time.sleep(SETTLED_AFTER_S)
        cpu, began = spark_cpu_s(), time.monotonic()
        time.sleep(REST_S)
        core = (spark_cpu_s() - cpu) / (time.monotonic() - began)
        print(f"at rest  {core:8.1%} of a core   target {REST_CORE:.0%}")
        query.stop()


def started(
    spark: SparkSession, broker: BrokerProcess, directory: Path, trigger_s: float, ages: Ages
) -> StreamingQuery:
    """The running query; its topic is there."""
    load(broker, 1_000, 1).wait()
    rows = spark.readStream.format("aerobee").option("nameServer", broker.namesrv_address)
    writing = rows.option("subscribe", TOPIC).load().writeStream.foreachBatch(ages.of_batch)
    writing = writing.option("checkpointLocation", str(directory / "checkpoint"))
    return writing.trigger(processingTime=f"{round(trigger_s * 1_000)} milliseconds").start()


@contextmanager
def loaded(broker: BrokerProcess, rate: int, seconds: float) -> Iterator[None]:
    """With so many messages per second from outside; the producer has ended afterwards."""
    producer = load(broker, rate, seconds)
    try:
        yield
    finally:
        producer.terminate()
        producer.wait()


def load(broker: BrokerProcess, rate: int, seconds: float) -> subprocess.Popen[bytes]:
    """Start the load generator: `rate` sends per second, in an open loop."""
    sizes = ("-s", str(BODY_BYTES), "-q", str(QUEUES), "-c", str(CONNECTIONS))
    times = ("-W", "0", "-T", str(seconds), "-r", str(rate))
    return subprocess.Popen(
        [str(BINARY), "-a", broker.address, "-t", TOPIC, *sizes, *times],
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
