"""What Spark finds by itself, and what it costs every other session."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from aerobee.spark import SOURCES, register
from tests.aerobee.spark.small import AUTOREGISTER, ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEAVY = ("numpy", "pyarrow", "pandas", "trio", "anyio")


def test_there_is_a_module_for_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(AUTOREGISTER))
    modules = sorted(path.stem for path in AUTOREGISTER.glob("*.py"))
    found = {import_module(name).DefaultSource.name(): name for name in modules}
    assert found == {name: "pyspark_" + name.replace(".", "_") for name in SOURCES}


def test_looking_for_data_sources_loads_nothing_heavy() -> None:
    """Spark imports these in every session that uses any data source in Python; PySpark 4.0 loads
    NumPy by itself.
    """
    modules = [path.stem for path in AUTOREGISTER.glob("*.py")]
    program = (
        f"import sys, pyspark.sql.datasource; before = {{*sys.modules}}; "
        f"import {', '.join(modules)}; "
        f"print([name for name in {HEAVY!r} if name in sys.modules.keys() - before])"
    )
    paths = os.pathsep.join([str(ROOT), str(AUTOREGISTER)])
    env = os.environ | {"PYTHONPATH": paths}
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert said.stdout.strip() == "[]"


def test_a_wheel_has_the_modules_at_its_root_and_so_has_an_editable_install() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    place = AUTOREGISTER.relative_to(ROOT)
    at_root = {str(place / path.name): path.name for path in AUTOREGISTER.glob("*.py")}
    assert built["targets"]["wheel"]["force-include"] == at_root
    assert str(place) in built["dev-mode-dirs"]


def test_spark_knows_the_formats_without_being_told(spark: SparkSession) -> None:
    for name in SOURCES:
        # Known, or the error would be that the data source cannot be found.
        with pytest.raises(Exception, match="ConfigurationError"):
            spark.read.format(name).load()


def test_registering_by_hand_changes_nothing(spark: SparkSession) -> None:
    other = spark.newSession()
    for _ in range(2):
        register(other)
    with pytest.raises(Exception, match="ConfigurationError"):
        other.read.format("aerobee").load()
