"""What the cluster test submits: a topic read by all executors, copied to another, and counted.

Prints one JSON object: who did the work, and with which copy of Aerobee.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql


def worker(_rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """The directory of the executor that a task runs in, and the file its Aerobee comes from."""
    import aerobee

    yield os.getcwd(), str(aerobee.__file__)


def main(name_server: str, topic: str, copy: str) -> None:
    """Read, write, and tell."""
    import aerobee
    from aerobee.spark import register

    spark = SparkSession.builder.appName("cluster test").getOrCreate()
    register(spark)

    def read(name: str) -> Any:
        reader = spark.read.format("aerobee").option("nameServer", name_server)
        return reader.option("subscribe", name).option("minPartitions", 4).load()

    messages = read(topic)
    rows = messages.select("body", "tags", sql.col("queueId"))
    rows.write.format("aerobee").mode("append").option("nameServer", name_server).option(
        "topic", copy
    ).save()
    found = (
        read(copy)
        .agg(
            sql.count("*").alias("messages"),
            sql.count_distinct("body").alias("bodies"),
            sql.collect_set("tags").alias("tags"),
        )
        .collect()[0]
    )
    workers = spark.sparkContext.parallelize(range(8), 8).mapPartitions(worker).collect()
    told = {
        "partitions": messages.rdd.getNumPartitions(),
        "messages": found.messages,
        "bodies": found.bodies,
        "tags": sorted(found.tags),
        "driver": aerobee.__file__,
        "workers": sorted({directory for directory, _ in workers}),
        "copies": sorted({file for _, file in workers}),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
