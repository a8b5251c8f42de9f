"""Tasks that fail half-way and that Spark runs again, in a session of its own: how often a task is
tried is a property of the master.

`python -m tests.aerobee.spark.second_tries NAMESRV TOPIC MARKED DIRECTORY`: writes numbers to TOPIC
in a batch, reads them back, and copies them to MARKED as a stream with a commit marker, twice.
Tasks fail in the middle of their rows at the first try. Prints what the read gave, as JSON.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType, StringType

from aerobee.spark.brokers import Cluster
from tests.aerobee.spark.small import FEW_ROWS, quick_java
from tests.kit.waiting import eventually

EACH = 4_000
"""Rows per partition, and so per file of the stream."""
FAILS_AT = 3_000
PADDING = "." * 1_000
"""So many rows of so much do not all wait for those behind the failure, in Spark or in the sink."""
WITHIN_S = 240
SETTINGS: dict[str, str | int | float | bool | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": quick_java(),
    **FEW_ROWS,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.log.level": "OFF",
}


def fails_now(number: int) -> bool:
    """Whether this is the first try of a task, in the middle of its rows."""
    context = TaskContext.get()
    assert context is not None
    return number % EACH == FAILS_AT and context.attemptNumber() == 0


@udf(LongType(), useArrow=False)
def once(number: int) -> int:
    """The number, but for the first try."""
    if fails_now(number):
        raise RuntimeError("in the middle of the rows")
    return number


def sent_once(name_server: str, topic: str) -> Callable[..., Column]:
    """Number → body; the first try of a task fails when some of its kind are stored."""

    @udf(StringType(), useArrow=False)
    def body(number: int) -> str:
        if fails_now(number):
            cluster = Cluster([name_server])
            queues = [queue for queue, _ in cluster.queues([topic])]
            eventually(
                lambda: any(cluster.max_offsets(queues).values()),
                within_s=WITHIN_S,
                what="the rows in front of the failure",
            )
            cluster.close()
            raise RuntimeError("in the middle of the rows")
        return f"{number}{PADDING}"

    return body


def write(spark: SparkSession, name_server: str, topic: str) -> None:
    """Two tasks, of which each fails once."""
    rows = spark.range(0, 2 * EACH, numPartitions=2)
    bodies = rows.select(sent_once(name_server, topic)("id").alias("body"))
    writer = bodies.write.format("aerobee").mode("append")
    writer.options(nameServer=name_server, topic=topic).save()


def read(spark: SparkSession, name_server: str, topic: str) -> list[tuple[int, int, int]]:
    """Queue, offset and number of all messages, by tasks that fail once where the number is."""
    source = spark.read.format("aerobee").options(nameServer=name_server, topic=topic)
    rows = source.load().selectExpr(
        "queueId",
        "queueOffset",
        "cast(trim(TRAILING '.' FROM cast(body AS string)) AS long) AS number",
    )
    found = rows.select("queueId", "queueOffset", once("number").alias("number")).collect()
    return sorted((row[0], row[1], row[2]) for row in found)


def stream(spark: SparkSession, name_server: str, topic: str, directory: Path) -> None:
    """A batch of two tasks, each of which fails once; then the same batch again."""
    source, checkpoint = directory / "source", directory / "checkpoint"
    source.mkdir()
    for part in range(2):
        numbers = range(part * EACH, (part + 1) * EACH)
        text = "".join(f'{{"id": {number}}}\n' for number in numbers)
        (source / f"{part}.json").write_text(text)
    rows = spark.readStream.schema("id long").json(str(source))
    bodies = rows.select(sent_once(name_server, topic)("id").alias("body"))
    options = {"nameServer": name_server, "topic": topic, "sinkId": "s", "dedupe": "fence"}
    options["checkpointLocation"] = str(checkpoint)
    for _ in range(2):
        writer = bodies.writeStream.format("aerobee").options(**options)
        writer.trigger(availableNow=True).start().awaitTermination()
        # As if the driver had died behind the last task: the batch is planned, and not committed.
        shutil.rmtree(checkpoint / "commits")


def main(name_server: str, topic: str, marked: str, directory: str) -> None:
    """All three, and the report of the read on stdout."""
    builder = SparkSession.builder.master("local[2,3]").appName("second tries")
    spark = builder.config(map=SETTINGS).getOrCreate()
    try:
        write(spark, name_server, topic)
        found = read(spark, name_server, topic)
        stream(spark, name_server, marked, Path(directory))
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
