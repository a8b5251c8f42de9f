"""Delta and Iceberg for the session of the tests, where their jars are given.

AEROBEE_TEST_SPARK_JARS names a directory with the jars of one or both, for this version of Spark
(`mvn dependency:copy-dependencies`, or what `spark.jars.packages` left in `~/.ivy2`). Nothing is
downloaded here; without the jars the tests of these tables skip and say so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.tables import check_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = "AEROBEE_TEST_SPARK_JARS"
CATALOG = "lake"
"""The catalog of Iceberg's tables, a directory."""
WAREHOUSE = f"spark.sql.catalog.{CATALOG}.warehouse"
EXTENSIONS = "spark.sql.extensions"


def settings(home: Path) -> dict[str, str]:
    """What Spark is to be started with for the jars that are there; tables go below `home`."""
    given = os.environ.get(PLACE)
    jars = sorted(Path(given).glob("*.jar")) if given else []
    found: dict[str, str] = {}
    extensions = []
    if any(jar.name.startswith("delta-spark") for jar in jars):
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
        found["spark.databricks.delta.snapshotPartitions"] = "2"
        found["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if any(jar.name.startswith("iceberg-spark-runtime") for jar in jars):
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        catalog = f"spark.sql.catalog.{CATALOG}"
        found[catalog] = "org.apache.iceberg.spark.SparkCatalog"
        found[f"{catalog}.type"] = "hadoop"
        found[WAREHOUSE] = str(home / "iceberg")
    if extensions:
        found |= {"spark.jars": ",".join(map(str, jars)), EXTENSIONS: ",".join(extensions)}
    return found


def home_of(spark: SparkSession) -> str:
    """What `settings` was given for this session, as far as there are tables below it."""
    return str(Path(str(spark.conf.get(WAREHOUSE, "/"))).parent)


def needed(spark: SparkSession, kind: str) -> None:
    """Skip where this session does not know that kind of table."""
    try:
        check_kind(spark, kind)
    except ConfigurationError as error:
        pytest.skip(f"{PLACE} has no jars for it: {error}")
