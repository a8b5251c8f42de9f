"""Spark for a minute of life and a few rows: its JVMs, its Python processes, its settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyspark

ROOT: Final = Path(__file__).parents[3]
AUTOREGISTER: Final = ROOT / "aerobee" / "spark" / "autoregister"
INSTALLED: Final = Path(__file__).with_name("installed")
"""Has Python processes import the PySpark that is installed."""
PYTHON_PATH: Final = os.pathsep.join(map(str, (ROOT, AUTOREGISTER, INSTALLED)))
"""For Python processes of Spark: this checkout, as an installed Aerobee."""
ARCHIVE: Final = ROOT / ".cache" / "java" / f"spark-{pyspark.__version__}.jsa"
"""Where `archive.py` puts the classes that sessions load."""
LEAN: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData "
    "-XX:ReservedCodeCacheSize=240m -Dsun.reflect.inflationThreshold=1000000"
)
"""Better code, classes for reflected calls, and looking for code to drop do not pay so soon."""
FEW_ROWS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of so few rows Spark would spend most of its time compiling code for every new query."""


def quick_java() -> str:
    """The options of a JVM of Spark, with the archive of its classes where that is there."""
    return f"{LEAN} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off" if ARCHIVE.exists() else LEAN
