"""A range of a topic goes to another one, whole, in order and with its ids; nothing by accident."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.replay import command
from aerobee.spark.jobs.sending import AS_SENT, REPLAY
from aerobee.spark.rows.columns import COLUMNS
from tests.aerobee.spark.filling import bodies, fill, make_topic, say_compressed
from tests.aerobee.spark.jobs.running import Done, run_job
from tests.aerobee.spark.reading_back import read_back
from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

Job = Callable[..., Done]
BODIES = bodies(300)


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker()
    make_topic(broker, "orders", 2)
    fill(broker, "orders", BODIES[:200], queue_id=0, TAGS="EU", trace="t-1")
    fill(broker, "orders", BODIES[200:], queue_id=1, TAGS="US")
    make_topic(broker, "copy", 2)
    return broker


@pytest.fixture
def job(spark: SparkSession, broker: AnyBroker, capsys: pytest.CaptureFixture[str]) -> Job:
    def run(*arguments: str) -> Done:
        given = ("-n", broker.namesrv_address, "--topic", "orders")
        return run_job(command, *given, *arguments, capsys=capsys)

    return run


def test_a_range_of_offsets_arrives_in_its_queues_and_order(job: Job, broker: AnyBroker) -> None:
    [name] = {one.queue.broker_name for one in read_back(broker, "orders", 300)}
    first = json.dumps({"orders": {name: {"0": 50, "1": 0}}})
    last = json.dumps({"orders": {name: {"0": 150, "1": 30}}})
    chosen = ("--starting-offsets", first, "--ending-offsets", last, "--to-topic", "copy")
    dry = job(*chosen)
    assert dry.rows == [{"topic": "copy", "messages": 130, "bodyBytes": 130 * 12}]
    assert dry.said == "nothing sent: say --yes\n"
    done = job(*chosen, "--keep-queues", "--run", "run-7", "--yes")
    assert done.rows == [{"messages": 130, "bodyBytes": 130 * 12}]
    taken = read_back(broker, "copy", 130)
    assert len(taken) == 130, "the dry run sent nothing"
    by_queue = {
        queue_id: [one for one in taken if one.queue.queue_id == queue_id] for queue_id in (0, 1)
    }
    assert [one.body for one in by_queue[0]] == BODIES[50:150]
    assert [one.body for one in by_queue[1]] == BODIES[200:230]
    assert {one.properties[REPLAY] for one in taken} == {"run-7"}
    assert by_queue[0][0].properties["trace"] == "t-1"
    assert by_queue[0][0].tag == "EU"


def test_nothing_is_sent_when_the_table_has_no_place(
    job: Job, broker: AnyBroker, tmp_path: Path
) -> None:
    make_topic(broker, "unsent", 2)
    with pytest.raises(ConfigurationError, match="is there already"):
        job("--to-topic", "unsent", "--yes", "--output", str(tmp_path))
    assert not read_back(broker, "unsent", 0)


def test_bodies_are_not_sent_as_they_are_stored(job: Job) -> None:
    with pytest.raises(ConfigurationError, match="decompress=false: nobody would decompress"):
        job("--option", "Decompress=no", "--to-topic", "copy")


def test_a_body_that_cannot_be_unpacked_is_named_with_what_leaves_it_out(
    job: Job, broker: AnyBroker
) -> None:
    make_topic(broker, "lies", 1)
    fill(broker, "lies", BODIES[:3])
    say_compressed(broker, "lies", b"not packed")
    to = ("--topic", "lies", "--to-topic", "copy")
    with pytest.raises(AerobeeError, match=r"message at .*/lies/0/3/.* --where"):
        job(*to)
    (row,) = job(*to, "--where", f"topic = 'lies' and {AS_SENT}").rows
    assert row["messages"] == 3


def test_a_condition_chooses(job: Job) -> None:
    done = job("--to-topic", "elsewhere", "--where", "tags = 'US' AND queueOffset < 7")
    assert [row["messages"] for row in done.rows] == [7]


def test_a_condition_may_name_any_column(job: Job) -> None:
    every = " AND ".join(f"({name} IS NULL OR true)" for name in COLUMNS)
    done = job("--to-topic", "elsewhere", "--where", f"{every} AND reconsumeTimes = 0")
    assert [row["messages"] for row in done.rows] == [300]


def test_queues_without_a_message_since_then_have_nothing_to_send(job: Job) -> None:
    assert job("--to-topic", "elsewhere", "--since", "4000000000000").rows == []


def test_a_run_that_was_killed_is_completed_by_one_of_its_name(job: Job, broker: AnyBroker) -> None:
    """What it has sent is found in the target, wherever in the queues that was."""
    make_topic(broker, "again", 2)
    named = ("--to-topic", "again", "--run", "run-8")
    part = "queueOffset < 60 OR queueOffset % 7 = 0"
    first = job(*named, "--where", part, "--yes")
    assert "if it is interrupted: --run run-8" in first.said
    sent = first.rows[0]["messages"]
    assert 60 < sent < 300
    assert job(*named).rows == [
        {"topic": "again", "messages": 300 - sent, "bodyBytes": 12 * (300 - sent)}
    ]
    assert [row["messages"] for row in job(*named, "--yes").rows] == [300 - sent]
    assert sorted(one.body for one in read_back(broker, "again", 300)) == BODIES
    assert job(*named).rows == []
