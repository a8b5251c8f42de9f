"""Where Spark finds `format("aerobee.store")`: it loads every top-level module `pyspark_…`."""

from aerobee.spark.store import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
