"""Throughput, sizes, latency and delay accuracy, from messages whose answers are known."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.stats import LEVELS, amounts, delays, level_ms, measured, rates, window_of

pytestmark = pytest.mark.spark

T0_MS = 1_700_000_040_000
"""The beginning of a minute."""


def messages(
    spark: SparkSession, rows: list[tuple[str, int, int, int, dict[str, str]]]
) -> DataFrame:
    """Rows of topic, size, born and stored (ms after T0_MS), properties."""
    table = spark.createDataFrame(
        rows, "topic string, storeSize int, b bigint, s bigint, properties map<string,string>"
    )
    return table.selectExpr(
        *("topic", "storeSize", "properties"),
        f"timestamp_millis({T0_MS} + b) AS bornTimestamp",
        f"timestamp_millis({T0_MS} + s) AS storeTimestamp",
    )


def test_rates_are_per_window_and_topic(spark: SparkSession) -> None:
    rows: list[tuple[str, int, int, int, dict[str, str]]] = [
        ("a", 100 + number, number, number + number % 10, {}) for number in range(60)
    ]
    rows += [("a", 100, 0, 60_000, {"DELAY": "5"}), ("b", 300, 0, 59_999, {"RETRY_TOPIC": "a"})]
    rows += [("b", 300, 0, 59_999, {"AB_REPLAY": "run-1"})]
    sizes = measured(messages(spark, rows)).persist()
    first, b, second = (row.asDict() for row in rates(sizes, "1 minute").collect())
    assert (first["topic"], first["messages"], first["bytes"]) == ("a", 60, sum(range(100, 160)))
    assert (first["messagesPerSecond"], first["bytesPerSecond"]) == (1.0, first["bytes"] / 60)
    assert (first["sizeMean"], first["sizeP50"], first["sizeMax"]) == (129.5, 129, 159)
    assert (first["latencyP50Ms"], first["latencyP99Ms"], first["latencyMaxMs"]) == (4, 9, 9)
    assert (b["topic"], b["messages"], b["latencyP99Ms"]) == ("b", 2, None), "a retry is no latency"
    assert (second["messages"], second["latencyMaxMs"]) == (1, None), "nor is a delay"
    assert {row.topic: row.bytes for row in amounts(sizes, "topic").collect()}["b"] == 600


def test_delays_are_measured_from_what_was_asked_for(spark: SparkSession) -> None:
    real = {"REAL_TOPIC": "a", "REAL_QID": "0"}
    rows: list[tuple[str, int, int, int, dict[str, Any]]] = [
        ("a", 1, 0, 5_020, real | {"DELAY": "2"}),
        ("a", 1, 0, 4_990, real | {"DELAY": "2"}),
        ("a", 1, 0, 70_000, real | {"TIMER_DELIVER_MS": str(T0_MS + 69_000)}),
        ("a", 1, 500, 2_600, real | {"TIMER_DELAY_SEC": "2"}),
        ("a", 1, 500, 2_510, real | {"TIMER_DELAY_MS": "2000"}),
        # Neither is a delay that a user asked for.
        ("a", 1, 0, 9_000, real | {"DELAY": "3", "RETRY_TOPIC": "a"}),
        ("a", 1, 0, 9_000, {"DELAY": "3"}),
        ("a", 1, 0, 9_000, real | {"DELAY": "99"}),
    ]
    found = {row.delay: row for row in delays(measured(messages(spark, rows))).collect()}
    late = {delay: (row.messages, row.lateMinMs, row.lateMaxMs) for delay, row in found.items()}
    assert late == {
        "level 2": (2, -10, 20),
        "timer": (1, 1_000, 1_000),
        "timer s": (1, 100, 100),
        "timer ms": (1, 10, 10),
    }


def test_levels_are_those_of_the_broker() -> None:
    steps = level_ms(LEVELS)
    assert (len(steps), steps[0], steps[4], steps[-1]) == (18, 1_000, 60_000, 7_200_000)
    with pytest.raises(ConfigurationError, match="5 minutes"):
        level_ms("5 minutes")


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ("10s", "10 seconds"),
        ("1 minute", "1 minutes"),
        ("5 mins", "5 minutes"),
        ("500ms", "500 milliseconds"),
        ("1h", "1 hours"),
        ("2 Days", "2 days"),
    ],
)
def test_windows_are_written_as_people_do(said: str, window: str) -> None:
    assert window_of(said) == window


@pytest.mark.parametrize("said", ["", "10", "s", "0s", "-1s", "10 parsecs", "1h30m", "ms 5"])
def test_what_is_no_window_is_refused_before_anything_is_read(said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--window .*: write 10s"):
        window_of(said)
