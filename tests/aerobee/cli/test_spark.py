"""`aerobee spark`: its jobs are listed without Spark, and what is missing is named in one line."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from aerobee.cli.border import DONE, WRONG_USAGE
from aerobee.cli.spark import JOBS, spark
from tests.aerobee.cli.conftest import command

WITHOUT_PYSPARK = (
    "import sys; sys.modules['pyspark'] = None; from aerobee.cli.main import main; main()"
)


def run(
    *arguments: str, program: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return subprocess.run(
        [*program, *arguments] if program else command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=kept | dict(env or {}),
    )


def test_help_names_every_job_and_loads_none_of_them() -> None:
    told = "import sys; from aerobee.cli.main import run; run(['spark', '-h']); "
    told += "assert not {'pyspark', 'numpy', 'aerobee.spark.jobs.common'} & set(sys.modules)"
    done = run(program=(sys.executable, "-c", told))
    assert (done.returncode, done.stderr) == (DONE, "")
    for name, (_, summary) in JOBS.items():
        assert f"  {name} " in done.stdout
        assert summary in done.stdout


@pytest.mark.parametrize("name", JOBS)
def test_every_job_is_where_the_table_says_and_explains_itself(name: str) -> None:
    found = spark.get_command(click.Context(spark), name)
    assert isinstance(found, click.Command)
    assert found.name == name
    assert found.help
    page = found.get_help(click.Context(found, info_name=name))
    assert "--master" in page
    assert "spark-submit" in page


def test_the_jobs_explain_themselves_without_spark() -> None:
    for name in JOBS:
        done = run("spark", name, "-h", program=(sys.executable, "-c", WITHOUT_PYSPARK))
        assert done.returncode == DONE, done.stderr


def test_without_pyspark_the_extra_is_named() -> None:
    job = ("spark", "stats", "--topic", "t")
    done = run(*job, program=(sys.executable, "-c", WITHOUT_PYSPARK))
    assert done.returncode == WRONG_USAGE
    assert "pip install 'aerobee[spark]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("home", ["", "/no/such/java"])
def test_without_java_java_is_named(home: str, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)} | ({"JAVA_HOME": home} if home else {})
    done = run("spark", "stats", "--topic", "t", env=env)
    assert done.returncode == WRONG_USAGE
    assert "Java 17" in done.stderr
    assert done.stderr.count("\n") == 1
    assert home in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-job",), "no-such-job"),
        (("stats", "--no-such-option"), "--no-such-option"),
        (("stats", "--topic", "t", "--levels", "1s soon"), "--levels '1s soon'"),
        (("stats", "--topic", "t", "--since", "noon"), "--since 'noon'"),
        (("stats",), "--topic"),
        (("stats", "--topic", "t", "--option", "collums=body"), "did you mean columns?"),
        (("traces", "--store", "/a", "--archive", "/b"), "give one of them"),
        (("stats", "--store", "/a", "--topic-pattern", "a.*"), "with --store say"),
        (("replay", "--topic", "t", "--to-topic", "u", "--starting-offsets", "{"), "startingOff"),
        (("replay", "--topic", "t"), "--to-topic"),
        (("replay", "--topic", "t", "--to-topic", "t"), "--to-topic t is what --topic reads"),
    ],
)
def test_what_can_never_work_is_said_before_spark_starts(
    arguments: tuple[str, ...], words: str
) -> None:
    # Without Java the answer would be another one, if it came that far.
    done = run("spark", *arguments, env={"JAVA_HOME": "/no/such/java"})
    assert done.returncode == WRONG_USAGE
    assert words in done.stderr
    assert "Traceback" not in done.stderr
