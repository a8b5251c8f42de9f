"""Registers `aerobee.lag` with Spark, which loads every top-level module called `pyspark_…`."""

from aerobee.spark.lag.data_source import LagSource as DefaultSource

__all__ = ["DefaultSource"]
