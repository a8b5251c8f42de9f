"""The traces that lie in the trace topic are joined, and summed up per topic and group."""

import pytest
from pyspark.sql import SparkSession

from aerobee.errors import AerobeeError
from aerobee.spark.jobs.traces import command
from aerobee.store.format.system_names import TRACE_TOPIC
from tests.aerobee.spark.filling import fill, say_compressed
from tests.aerobee.spark.jobs.running import run_job
from tests.aerobee.spark.test_trace import after, before, pub
from tests.conftest import StartBroker

pytestmark = pytest.mark.spark


def test_traces_are_joined_and_summed_up(
    spark: SparkSession, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(traceTopicEnable=True)
    texts = [
        *(pub(f"id{number}", number) for number in range(4)),
        *(before(f"R{number}", f"id{number}", number + 20) for number in range(3)),
        *(after(f"R{number}", f"id{number}", number + 27, number) for number in range(2)),
    ]
    fill(broker, TRACE_TOPIC, [text.encode() for text in texts])
    say_compressed(broker, TRACE_TOPIC, b"not packed")
    place = ("-n", broker.namesrv_address)
    rows = run_job(command, *place, "--of", "orders", capsys=capsys).rows
    assert [(row["msgId"], row["latencyMs"], row["contextCode"]) for row in rows] == [
        ("id0", 20, "SUCCESS"),
        ("id1", 20, "TIME_OUT"),
        ("id2", 20, None),
        ("id3", None, None),
    ]
    summed = run_job(command, *place, "--summary", capsys=capsys).rows
    nobody, group = summed
    assert (nobody["consumerGroup"], nobody["messages"], nobody["tries"]) == (None, 1, 0)
    assert (group["consumerGroup"], group["messages"], group["tries"]) == ("c-group", 3, 3)
    assert (group["failed"], group["pending"], group["latencyP99Ms"]) == (1, 1, 20)


def test_a_broker_without_traces_is_told_with_what_to_do(
    spark: SparkSession, start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    with pytest.raises(AerobeeError, match=r"RMQ_SYS_TRACE_TOPIC.* traceTopicEnable=true"):
        run_job(command, "-n", broker.namesrv_address, capsys=capsys)
