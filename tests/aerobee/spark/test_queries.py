"""The small size of the campaign of random queries; `make torture ONLY=S1` runs the long one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.aerobee.spark.queries import S1
from tests.kit.campaign import execute

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_used_again_answers_as_plain_files_do(
    spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("--seed")
    outcome = execute(S1, pytestconfig.getoption("--cycles") or S1.t1, seed, tmp_path)
    print(f"{S1.key}: {outcome.executed} {S1.unit}, {outcome.summary()}")
    outcome.check()
