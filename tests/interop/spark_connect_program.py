"""A read and a write over Spark Connect: a program, for PySpark has one kind of session only.

    python spark_connect_program.py SERVER NAMESERVER

Prints a line of JSON for each step: its name, and what came out.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable


class Steps:
    """What is done with one session, at one broker with a topic `orders`."""

    def __init__(self, spark: SparkSession, name_server: str) -> None:
        self.spark = spark
        self.cluster = {"nameServer": name_server}

    def count(self, topic: str, **options: str) -> int:
        reader = self.spark.read.format("aerobee").options(**self.cluster, **options)
        return reader.option("subscribe", topic).load().count()

    def batch(self) -> object:
        return self.count("orders")

    def sink(self) -> object:
        rows = self.spark.createDataFrame([(b"x",), (b"y",)], "body binary")
        target = rows.write.format("aerobee").mode("append").options(**self.cluster)
        target.option("topic", "copied").save()
        return self.count("copied")

    def wrong(self) -> object:
        """A wrong option, with the words of its error."""
        try:
            return self.count("orders", batchRows="many")
        except PySparkException as error:
            return str(error)


def main() -> None:
    server, name_server = sys.argv[1:]
    spark = SparkSession.builder.remote(server).getOrCreate()
    try:
        steps = Steps(spark, name_server)
        for step in ("batch", "sink", "wrong"):
            act: Callable[[], object] = getattr(steps, step)
            print(json.dumps([step, act()]), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
