"""Where Spark finds `aerobee.store`: it loads every top-level module called `pyspark_…`."""

from aerobee.spark.store import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
