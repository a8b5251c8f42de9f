"""RocketMQ topics, store directories and consumer lag as Spark data sources, in plain Python.

`format("aerobee")` reads and writes a running broker, `format("aerobee.store")` reads a store
directory, `format("aerobee.lag")` reads the lag of consumer groups. An installed Aerobee registers
them automatically; `register` does it where that is not possible. This module loads none of them,
and neither pyspark nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

SOURCES = {
    "aerobee": ("aerobee.spark.source.data_source", "AerobeeSource"),
    "aerobee.store": ("aerobee.spark.storefiles.data_source", "StoreSource"),
    "aerobee.lag": ("aerobee.spark.lag.data_source", "LagSource"),
}
"""The module and class of each format name."""


def register(spark: SparkSession) -> None:
    """Register the formats in this session; a second call changes nothing.

    For notebooks and Spark Connect, where the server looks for data sources in another place.
    """
    from pyspark.errors import AnalysisException

    for module, name in SOURCES.values():
        try:
            spark.dataSource.register(getattr(import_module(module), name))
        except AnalysisException as error:
            # PySpark 4.0 refuses formats that it has found by itself; later versions replace them.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
