"""All new messages of a topic to Parquet, exactly once, then end: run it by cron.

spark-submit archive_stream.py NAMESRV TOPIC DIRECTORY
"""

import sys

from pyspark.sql import SparkSession

from aerobee.spark import register


def main(name_server: str, topic: str, directory: str) -> None:
    """One run: from where the last one ended to what is there now."""
    spark = SparkSession.builder.appName(f"archive {topic}").getOrCreate()
    register(spark)
    messages = (
        spark.readStream.format("aerobee")
        .option("nameServer", name_server)
        .option("subscribe", topic)
        # With a group, tools see how far the archive is; it shares nothing with other members.
        .option("group", f"archive_{topic}")
        .option("startingOffsets", "committed")
        .option("maxOffsetsPerTrigger", 500_000)
        .load()
    )
    query = (
        messages.selectExpr("*", "to_date(storeTimestamp) AS day")
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("path", f"{directory}/messages")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
