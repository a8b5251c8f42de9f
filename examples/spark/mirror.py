"""A topic copied to another cluster as long as it runs: ids, tags, keys and properties are kept.

spark-submit mirror.py FROM_NAMESRV TO_NAMESRV TOPIC CHECKPOINT
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from aerobee.spark import register
from aerobee.spark.jobs.sending import NEEDED, outgoing


def main(source: str, target: str, topic: str, checkpoint: str) -> None:
    """Until it is stopped; started again it goes on where it was."""
    spark = SparkSession.builder.appName(f"mirror {topic}").getOrCreate()
    register(spark)
    messages = (
        spark.readStream.format("aerobee")
        .option("nameServer", source)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", ",".join(NEEDED))
        .load()
    )
    # The properties that the first broker added are taken off; the property AB_REPLAY says where
    # the message came from.
    copies = outgoing(messages, sql.lit(topic), f"mirror of {source}", keep_queues=True)
    query = (
        copies.writeStream.format("aerobee")
        .option("nameServer", target)
        .option("topic", topic)
        .option("dedupe", "fence")
        .option("sinkId", f"mirror_{topic}")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
