"""A Spark session to measure in, and what a query costs: time, and CPU of Spark's processes."""

from __future__ import annotations

import os
import statistics
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[1]
AUTOREGISTER = ROOT / "aerobee" / "spark" / "autoregister"
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def measuring_session(
    directory: Path, *, slots: int = 1, jars: Sequence[Path] = ()
) -> Iterator[SparkSession]:
    """A session with so many task slots; what Spark writes by itself goes below `directory`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(AUTOREGISTER)])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master(f"local[{slots}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.driver.memory", "2g")
        .config("spark.log.level", "ERROR")
    )
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


class Cost(NamedTuple):
    """Medians of a query: seconds on the wall, and of CPU in the JVM and its Python workers."""

    wall_s: float
    cpu_s: float

    def line(self, rows: int) -> str:
        """Rows per second, and CPU seconds for a million of them."""
        return f"{rows / self.wall_s:>10,.0f} rows/s {self.cpu_s / rows * 1e6:8.2f} CPU s/M rows"


def cost_of(query: Callable[[], object], runs: int) -> Cost:
    """The medians of so many runs, after one to warm up."""
    query()
    walls, cpus = [], []
    for _ in range(runs):
        cpu, began = spark_cpu_s(), time.perf_counter()
        query()
        walls.append(time.perf_counter() - began)
        cpus.append(spark_cpu_s() - cpu)
    return Cost(statistics.median(walls), statistics.median(cpus))


def spark_cpu_s() -> float:
    """CPU of the JVM and of what it started. Workers are used again, so none of theirs is lost."""
    return sum(ticks for _, ticks in _processes()) / TICKS


def _processes() -> list[tuple[int, int]]:
    """The JVM first, then what it started and they: pid, and ticks of CPU.

    In the ticks are children that have ended and were waited for.
    """
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._gateway is not None
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue  # ended meanwhile
        # State, parent, … user and system time of itself and of children it has waited for.
        children.setdefault(int(fields[1]), []).append(
            (int(entry.name), sum(map(int, fields[11:15])))
        )
    jvm = context._gateway.proc.pid
    found = [one for siblings in children.values() for one in siblings if one[0] == jvm]
    for pid, _ in found:
        found += children.get(pid, ())
    return found
