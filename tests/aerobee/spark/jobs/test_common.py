"""What jobs share: times, tables, sources by their options, and errors of Spark in one line."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aerobee.errors import (
    AerobeeError,
    ConfigurationError,
)
from aerobee.spark.jobs.common import (
    Output,
    Session,
    Source,
    instant_ms,
    pairs,
    table_text,
    window_ms,
)
from aerobee.store.format.system_names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
    WHEEL_TOPIC,
)

ISO = "2025-01-31T12:00:00.250+01:00"


def test_times_are_iso_or_milliseconds() -> None:
    assert instant_ms(None, "--since") is None
    assert instant_ms("1738321200250", "--since") == 1_738_321_200_250
    assert instant_ms(ISO, "--since") == 1_738_321_200_250
    with pytest.raises(ConfigurationError, match="--since 'noon'"):
        instant_ms("noon", "--since")
    with pytest.raises(ConfigurationError, match="--since 1738321200: these are seconds"):
        instant_ms("1738321200", "--since")


def test_pairs_name_the_option_that_is_none() -> None:
    assert pairs(["a=1", "b=x=y"], "--conf") == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigurationError, match="--conf '=1'"):
        pairs(["=1"], "--conf")


def test_tables_for_people_are_aligned() -> None:
    at = datetime(2025, 1, 31, 12, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"topic": "a", "n": 1, "at": at, "x": None},
        {"topic": "b" * 80, "n": 1_000, "at": None, "x": 2.25},
    ]
    lines = table_text(rows, ["topic", "n", "x"]).splitlines()
    assert lines[0].split() == ["topic", "n", "x"]
    assert lines[1].endswith("     1  -")
    assert lines[2].endswith("…  1000  2.2")
    assert table_text([], ["topic"]) == "no rows"
    assert table_text([{"rate": 0.0213}, {"rate": 0.0}], ["rate"]).split() == [
        "rate",
        "0.021",
        "0.0",
    ]


def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever sends to a topic chooses its names, tags and keys, and the fields of a trace."""
    rows = [{"keys": "red\x1b[31m\u202e\nb", "n": 1}]
    Output().show(rows, ["keys", "n"])
    table = capsys.readouterr().out
    assert table.splitlines()[1] == r"red\x1b[31m\u202e\nb  1"
    Output(as_json=True).show(rows, ["keys", "n"])
    line = capsys.readouterr().out
    assert line.strip().isprintable()
    assert json.loads(line) == rows[0]


def test_times_that_are_printed_have_their_zone(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of Spark have the local time of the driver, without a zone."""
    at = datetime(2025, 1, 31, 12, tzinfo=UTC)
    local = at.astimezone().replace(tzinfo=None)
    for as_json in (True, False):
        Output(as_json=as_json).show([{"at": local}, {"at": at}], ["at"])
    lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line)["at"] for line in lines[:2]] + lines[3:]
    assert [datetime.fromisoformat(text) for text in found] == [at] * 4


@pytest.mark.spark
def test_a_table_is_written_and_printed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = spark.range(3).selectExpr("id", "timestamp_millis(id) AS at")
    for form in ("json", "csv"):
        path = str(tmp_path / form)
        assert len(Output(path=path, form=form, as_json=True, rows_max=2).deliver(table)) == 2
        assert spark.read.format(form).option("header", "true").load(path).count() == 3
    told = capsys.readouterr()
    assert [json.loads(line)["id"] for line in told.out.splitlines()] == [0, 1] * 2
    assert told.err.count("only the first 2 rows") == 2


@pytest.mark.spark
def test_csv_is_what_other_programs_read(spark: SparkSession, tmp_path: Path) -> None:
    """RFC 4180: quotes are doubled, backslashes and spaces are texts like others."""
    texts = [
        'a"b',
        '"',
        ' "x", ',
        "\\",
        '\\"',
        "a\\",
        " lead",
        "trail ",
        "two\nlines",
        "c\r\nd",
        ",",
    ]
    texts += ["", "=1+1", "\u202e", "plain"]
    table = spark.createDataFrame(list(enumerate(texts)), "n int, text string")
    Output(path=str(tmp_path / "csv"), form="csv", as_json=True).deliver(table)
    found: dict[int, str] = {}
    for path in (tmp_path / "csv").glob("*.csv"):
        with path.open(newline="") as file:
            found |= {int(row["n"]): row["text"] for row in csv.DictReader(file)}
    assert found == dict(enumerate(texts))


@pytest.mark.spark
def test_nothing_is_written_over_or_into_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    for path in (store, store / "commitlog", store / "new", tmp_path, tmp_path / "link"):
        for written in (str(path), f"file:{path}", f"{path}/"):
            with pytest.raises(ConfigurationError, match="are in one another"):
                Output(path=written, mode="overwrite").check(spark, None, str(store))
    Output(path=f"{store}-2", mode="overwrite").check(spark, None, str(store))


def test_an_end_before_the_start_is_refused() -> None:
    assert window_ms("1000", "1000") == (1_000, 1_000)
    with pytest.raises(ConfigurationError, match="--since 1001 is after --until 1000"):
        window_ms("1001", "1000")


@pytest.mark.spark
def test_a_path_that_is_there_is_refused_unless_the_mode_says_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="say --mode append or --mode overwrite"):
        Output(path=str(tmp_path)).check(spark)
    for fine in (
        Output(),
        Output(path=f"{tmp_path}/new"),
        Output(path=f"{tmp_path}", mode="append"),
    ):
        fine.check(spark)


@pytest.mark.spark
def test_an_archive_is_read_between_two_times_by_topic(spark: SparkSession, tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    spark.range(10).selectExpr(
        "if(id % 2 = 0, 'even', 'odd') AS topic",
        "id AS n",
        "timestamp_millis(id) AS storeTimestamp",
    ).write.parquet(archive)

    def read(**given: Any) -> list[int]:
        with Session().opened("test") as session:
            found = Source(archive=archive, **given).read(session, ["n"])
        assert found.columns == ["n"]
        return sorted(row.n for row in found.collect())

    assert read() == list(range(10))
    assert read(topics=("even",), since="3", until="8") == [4, 6]
    assert read(pattern="^o", until="1970-01-01T00:00:00.004+00:00") == [1, 3]
    with pytest.raises(ConfigurationError, match="one of them"):
        read(store="/there")


@pytest.mark.spark
def test_what_consumers_do_not_see_is_read_from_no_archive_either(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An archive has every record: what waits for a delay, timers, half messages, offsets."""
    archive = str(tmp_path / "archive")
    names = ["orders", "%RETRY%g", SCHEDULE_TOPIC, WHEEL_TOPIC, HALF_TOPIC, TRACE_TOPIC, "orders"]
    rows = [(name, number, 4 if number == 6 else 8) for number, name in enumerate(names)]
    made = spark.createDataFrame(rows, "topic string, n int, sysFlag int")
    made.selectExpr("*", "timestamp_millis(n) AS storeTimestamp").write.parquet(archive)

    def read(**given: Any) -> list[int]:
        with Session().opened("test") as session:
            found = Source(archive=archive, **given).read(session, ["n"])
        return sorted(row.n for row in found.collect())

    assert read() == read(pattern=".*") == [0, 1]
    assert read(topics=("orders", TRACE_TOPIC)) == [0, 5]


@pytest.mark.parametrize("place", ["master", "conf", "environment"])
def test_spark_connect_is_refused_in_a_line(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if place == "environment":
        monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    session = Session(
        master="sc://somewhere" if place == "master" else "local[1]",
        conf=("spark.remote=sc://somewhere",) if place == "conf" else (),
    )
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with (
        pytest.raises(ConfigurationError, match="sc://somewhere is Spark Connect"),
        session.opened("test"),
    ):
        pytest.fail("it was opened")


@pytest.mark.spark
def test_a_session_that_was_there_stays_and_its_errors_are_ours(spark: SparkSession) -> None:
    def read() -> None:
        with Session().opened("test") as session:
            assert session is spark
            session.read.parquet("/no/such/place").count()

    with pytest.raises(AerobeeError, match="PATH_NOT_FOUND"):
        read()
    assert spark.range(2).count() == 2
