"""The audit of a directory ends with 0 where all is sound and with 3 where it is not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.cli.border import DONE, STORE_REFUSED
from aerobee.errors import AerobeeError
from aerobee.spark.jobs import audit
from aerobee.spark.jobs.audit import command
from tests.aerobee.spark.jobs.running import run_job
from tests.aerobee.spark.small import quick_java
from tests.aerobee.spark.store_maker import StoreMaker

pytestmark = pytest.mark.spark

SUBMIT_WITHIN_S = 300
BODY = 88
"""Where the body of a record begins."""


@pytest.fixture
def store(tmp_path: Path) -> StoreMaker:
    maker = StoreMaker(tmp_path / "store")
    for number in range(60):
        maker.put(b"body %d" % number, "orders", number % 2)
    maker.write()
    return maker


def test_a_sound_directory_has_no_rows(
    spark: SparkSession, store: StoreMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run_job(command, str(store.root), capsys=capsys)
    assert (done.code, done.rows, done.said) == (DONE, [], "sound\n")


def test_damage_is_a_row_a_file_and_exit_code_3(
    spark: SparkSession, store: StoreMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put = store.puts[10]
    store.change(put.place + BODY, b"\xff")
    output = str(tmp_path / "audit")
    done = run_job(command, str(store.root), "--output", output, "--format", "json", capsys=capsys)
    assert done.code == STORE_REFUSED
    [row] = done.rows
    assert (row["kind"], row["physicalOffset"]) == ("crc", put.place)
    assert done.said == "1 findings of damage\n"
    assert spark.read.json(output).count() == 1
    counted = run_job(command, str(store.root), "--summary", capsys=capsys)
    assert [(row["kind"], row["findings"]) for row in counted.rows] == [("crc", 1)]


def test_the_file_of_a_job_is_a_program_for_spark_submit(
    spark: SparkSession, store: StoreMaker, tmp_path: Path
) -> None:
    store.change(store.puts[10].place + BODY, b"\xff")
    submit = str(Path(sys.executable).with_name("spark-submit"))
    options = ("--master", "local[1]", "--driver-java-options", quick_java())
    done = subprocess.run(
        [submit, *options, audit.__file__, str(store.root), "--json"],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SUBMIT_WITHIN_S,
        check=False,
    )
    assert done.returncode == STORE_REFUSED, done.stderr
    # Spark has both outputs of a program in one.
    [row] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (row["kind"], row["physicalOffset"]) == ("crc", store.puts[10].place)
    assert "1 findings of damage" in done.stdout.splitlines()


def test_what_is_no_store_is_an_error_in_a_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AerobeeError, match=str(tmp_path)):
        run_job(command, str(tmp_path), capsys=capsys)
