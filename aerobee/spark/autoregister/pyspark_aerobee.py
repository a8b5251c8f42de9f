"""Registers `aerobee` with Spark, which loads every top-level module called `pyspark_…`."""

from aerobee.spark.source.data_source import AerobeeSource as DefaultSource

__all__ = ["DefaultSource"]
