"""Dead letters are counted and sent again, with their ids, once; what is closed is said."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from aerobee.cli.border import DONE, FAILED
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.dead_letters import command
from aerobee.spark.jobs.sending import REPLAY
from tests.aerobee.spark.jobs.running import Done, run_job
from tests.conftest import AnyBroker, StartBroker
from tests.kit.raw_client import (
    RawConnection,
    RawRecord,
    properties_text,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.waiting import eventually

pytestmark = pytest.mark.spark

SEND, PULL, SEND_BACK, MAKE_TOPIC, MAKE_GROUP = 310, 11, 36, 17, 200
GIVE_UP = -1
Job = Callable[..., Done]
IDS = [f"7F00000100002A9F18B4AAC2{number:08X}" for number in range(6)]


def pulled(raw: RawConnection, topic: str, queues: int = 1) -> list[RawRecord]:
    found: list[RawRecord] = []
    for queue_id in range(queues):
        answer = raw.call(PULL, pull_fields("reader", topic, queue_id, 0))
        found += records(answer.body)
    return found


def arrived(raw: RawConnection, topic: str, count: int) -> list[RawRecord]:
    """All of a topic, once it has so many."""

    def look() -> list[RawRecord]:
        found = pulled(raw, topic)
        return found if len(found) >= count else []

    return eventually(look, within_s=10, what=f"{count} messages in {topic}")


def properties_of(record: RawRecord) -> dict[str, str]:
    pairs = (pair.partition("\x01") for pair in record.properties.split("\x02") if pair)
    return {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture(scope="module")
def raw(broker: AnyBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as raw:
        yield raw


@pytest.fixture(scope="module", autouse=True)
def dead(raw: RawConnection) -> None:
    """Four orders that `billing` gave up and one that `mailer` did; one stays alive."""
    assert raw.call(MAKE_TOPIC, topic_fields("orders", 1)).code == 0
    assert raw.call(MAKE_TOPIC, topic_fields("%DLQ%closed", 1) | {"perm": 2}).code == 0
    for number, msg_id in enumerate(IDS):
        tag = "EU" if number % 2 else "US"
        text = properties_text(UNIQ_KEY=msg_id, TAGS=tag, KEYS=f"k{number} all", trace="t-1")
        answer = raw.call(SEND, send_fields("orders", 0, i=text), f"order {number}".encode())
        assert answer.code == 0
    stored = arrived(raw, "orders", len(IDS))
    for number, record in enumerate(stored[:5]):
        group = "mailer" if number == 4 else "billing"
        fields = {"offset": record.physical_offset, "group": group, "delayLevel": GIVE_UP}
        given = {"originMsgId": IDS[number], "originTopic": "orders", "unitMode": False}
        assert raw.call(SEND_BACK, fields | given | {"maxReconsumeTimes": 16}).code == 0
    arrived(raw, "%DLQ%billing", 4)
    arrived(raw, "%DLQ%mailer", 1)


@pytest.fixture
def job(spark: SparkSession, broker: AnyBroker, capsys: pytest.CaptureFixture[str]) -> Job:
    def run(*arguments: str) -> Done:
        return run_job(command, "-n", broker.namesrv_address, *arguments, capsys=capsys)

    return run


def test_an_analysis_counts_by_group_origin_and_tag_and_names_what_is_closed(job: Job) -> None:
    done = job()
    found = {(row["group"], row["origin"], row["tags"]): row["messages"] for row in done.rows}
    assert found == {
        ("billing", "orders", "US"): 2,
        ("billing", "orders", "EU"): 2,
        ("mailer", "orders", "US"): 1,
    }
    assert {(row["why"], row["tries"]) for row in done.rows} == {("given up at the first try", 1)}
    assert done.code == FAILED
    assert "%DLQ%closed cannot be read" in done.said
    assert "updateTopicPerm" in done.said
    assert "-t '%DLQ%closed' -p 6" in done.said


def test_a_redrive_sends_what_was_chosen_once_and_with_its_ids(
    job: Job, raw: RawConnection, tmp_path: Path
) -> None:
    record = str(tmp_path / "record")
    chosen = ("--group", "billing", "--tag", "EU", "--redrive", "--record", record)
    dry = job(*chosen)
    assert (dry.code, dry.rows) == (DONE, [{"topic": "orders", "messages": 2, "bodyBytes": 14}])
    assert "nothing sent: say --yes" in dry.said
    assert len(pulled(raw, "orders")) == 6

    sent = job(*chosen, "--yes")
    assert (sent.code, sent.rows) == (DONE, [{"messages": 2, "bodyBytes": 14}])
    again = [record for record in pulled(raw, "orders") if REPLAY in properties_of(record)]
    assert [record.body for record in again] == [b"order 1", b"order 3"]
    for record_, msg_id, keys in zip(again, (IDS[1], IDS[3]), ("k1 all", "k3 all"), strict=True):
        found = properties_of(record_)
        assert (found["UNIQ_KEY"], found["KEYS"], found["TAGS"]) == (msg_id, keys, "EU")
        assert found["trace"] == "t-1"
        assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY"} & found.keys()

    assert job(*chosen, "--yes").rows == [{"messages": 0, "bodyBytes": 0}], "never twice"


def test_a_redrive_that_was_killed_is_completed_by_one_of_its_name(
    job: Job, raw: RawConnection
) -> None:
    """What it has sent is found where the dead letters came from; other runs do not count."""
    named = ("--group", "billing", "--redrive", "--run", "run-9", "--yes")
    part = job(*named, "--where", "queueOffset IN (0, 3)")
    assert part.rows == [{"messages": 2, "bodyBytes": 14}]
    assert "where it is interrupted, repeat --run run-9" in part.said
    assert job(*named).rows == [{"messages": 2, "bodyBytes": 14}]
    again = [one for one in pulled(raw, "orders") if properties_of(one).get(REPLAY) == "run-9"]
    assert sorted(one.body for one in again) == [b"order %d" % number for number in range(4)]
    assert job(*named).rows == [{"messages": 0, "bodyBytes": 0}]


def test_nothing_is_sent_when_the_record_cannot_be_written(
    job: Job, raw: RawConnection, tmp_path: Path
) -> None:
    before = len(pulled(raw, "orders"))
    (tmp_path / "file").write_text("in the way")
    record = str(tmp_path / "file" / "record")
    with pytest.raises(AerobeeError, match=r"Parent path is not a directory|Not a directory"):
        job("--group", "billing", "--redrive", "--yes", "--record", record)
    assert len(pulled(raw, "orders")) == before


def test_another_topic_and_any_condition(job: Job, raw: RawConnection) -> None:
    chosen = ("--group", "billing", "--key", "k2", "--where", "reconsumeTimes < 3")
    done = job(*chosen, "--redrive", "--to-topic", "parked", "--yes")
    assert done.rows == [{"messages": 1, "bodyBytes": 7}]
    [record] = pulled(raw, "parked", 8)
    assert (record.body, properties_of(record)["UNIQ_KEY"]) == (b"order 2", IDS[2])


def test_groups_without_dead_letters_are_an_empty_table(job: Job, broker: AnyBroker) -> None:
    with RawConnection(broker.address) as raw:
        assert raw.call(MAKE_GROUP, {}, json.dumps({"groupName": "fine"}).encode()).code == 0
    assert job("--group", "fine") == Done(DONE, [], "")


def test_tags_are_chosen_one_by_one_or_several_in_one(job: Job) -> None:
    def found(*tags: str) -> dict[str, int]:
        chosen = [text for tag in tags for text in ("--tag", tag)]
        return {row["tags"]: row["messages"] for row in job("--group", "billing", *chosen).rows}

    assert found("EU") == {"EU": 2}
    assert found("EU || US") == found("EU", "US") == {"EU": 2, "US": 2}
    assert found("EU||none") == {"EU": 2}


def test_a_condition_that_is_none_is_an_error_in_a_line(job: Job) -> None:
    with pytest.raises(AerobeeError, match="no_such_column"):
        job("--group", "billing", "--where", "no_such_column = 1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--key", "k1 k2"), "a key has no spaces"),
        (("--group", "biling"), "no broker knows a consumer group biling; there are"),
        (("--tag", "||"), "a tag is missing"),
        (("--tag", ""), "a tag is missing"),
        (("--run", "r"), "are for --redrive"),
    ],
)
def test_what_can_match_nothing_is_said(job: Job, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        job(*arguments)
