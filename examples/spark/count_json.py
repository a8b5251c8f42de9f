"""JSON bodies as columns: orders and their sum per country and minute, of the last day.

spark-submit count_json.py NAMESRV
"""

import sys
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from aerobee.spark import register


def main(name_server: str) -> None:
    """Print a table."""
    spark = SparkSession.builder.appName("orders per country").getOrCreate()
    register(spark)
    since = datetime.now(UTC) - timedelta(days=1)
    orders = (
        spark.read.format("aerobee")
        .option("nameServer", name_server)
        .option("subscribe", "orders")
        .option("startingTimestamp", since.isoformat())
        # Without it, a queue that got nothing in that time is an error.
        .option("startingOffsetsByTimestampStrategy", "latest")
        # A read ships every column that it has: ask for those that are wanted.
        .option("columns", "body,storeTimestamp")
        .load()
    )
    order = sql.from_json(sql.col("body").cast("string"), "country string, amount double")
    (
        orders.select("storeTimestamp", order.alias("order"))
        .groupBy(sql.window("storeTimestamp", "1 minute"), "order.country")
        .agg(sql.count("*").alias("orders"), sql.sum("order.amount").alias("amount"))
        .orderBy("window", "country")
        .show(100, truncate=False)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
