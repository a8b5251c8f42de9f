"""Registers `aerobee.store` with Spark, which loads every top-level module called `pyspark_…`."""

from aerobee.spark.storefiles.data_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
