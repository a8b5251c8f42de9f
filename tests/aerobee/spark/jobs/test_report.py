"""The report of a broker shows its messages, who is behind, and what died."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.report import WINDOWS_MAX, command, window_s
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.aerobee.spark.jobs.test_page import check, headings
from tests.aerobee.spark.reading_back import read_back
from tests.conftest import AnyBroker, StartBroker


def run(broker: AnyBroker, file: Path) -> None:
    command.main(
        ["-n", broker.namesrv_address, "--title", "Shop", str(file)], standalone_mode=False
    )


@pytest.mark.spark
def test_a_brokers_report_is_one_whole_page(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    make_topic(broker, "orders", 2)
    fill(broker, "orders", bodies(500), queue_id=1)
    make_topic(broker, "%DLQ%billing")
    fill(broker, "%DLQ%billing", bodies(3), RETRY_TOPIC="orders")
    read_back(broker, "orders", 500)
    file = tmp_path / "report.html"
    run(broker, file)
    page = file.read_text()
    check(page)
    assert headings(page) == ["Throughput", "Latency", "Topics", "Sizes", "Lag", "Dead letters"]
    assert "<b>500</b>" in page
    assert "billing ← orders" in page
    with pytest.raises(ConfigurationError, match="is there already: say --overwrite"):
        run(broker, file)
    assert file.read_text() == page
    options = ["--store", str(broker.data), "--overwrite", str(file)]
    command.main(options, standalone_mode=False)
    page = file.read_text()
    assert headings(page) == ["Throughput", "Latency", "Topics", "Sizes", "Dead letters"]
    assert "<b>500</b><small>in 1 topics</small>" in page, "letters are no messages of their own"
    with pytest.raises(AerobeeError, match="no/such/directory"):
        run(broker, tmp_path / "no/such/directory" / "report.html")


def test_windows_are_round_and_not_too_many() -> None:
    assert window_s(0) == 1
    assert window_s(3_600) == 30
    assert all(span / window_s(span) <= WINDOWS_MAX for span in (1, 100, 86_400, 5_000_000))
