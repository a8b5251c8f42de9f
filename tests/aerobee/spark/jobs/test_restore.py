"""What was archived comes back: archive, wipe, restore, and everybody reads what was sent."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee.blocking import ConsumeFrom, PullConsumer
from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs import restore as job
from aerobee.spark.jobs.archive import Archive, archive
from aerobee.spark.jobs.common import cluster_at
from aerobee.spark.jobs.restore import (
    Restore,
    counted,
    needed,
    planned,
    restored,
)
from aerobee.spark.jobs.restore import make_topic as make_queues
from aerobee.store.format.system_names import WHEEL_TOPIC
from tests.aerobee.spark.filling import CREATE_TOPIC, make_topic
from tests.aerobee.spark.jobs.lakes import SEGMENT_BYTES, Message, messages, say, talk
from tests.aerobee.spark.store_maker import StoreMaker
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.reading import read_topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.spark

BORN_MS = 1_700_000_000_000
"""When the messages of these tests were made, by their headers."""
RETRIED = Message("orders", 1, b"came back twice", "IDretried", "kr", "r")
SENT = {
    ("bills", 0): messages("bills", 0, 120),
    ("orders", 0): messages("orders", 0, 300),
    ("orders", 1): [*messages("orders", 1, 150), RETRIED],
}
LATER_MS = (time.time_ns() // 1_000_000_000 + 86_400) * 1_000
"""When the timer of these tests is due."""
LEVEL, LEVEL_MS = 15, 20 * 60_000
DELAYED = Message("later", 1, b"by level", "IDlevel", "kl", "d")
TIMED = Message("later", 0, b"by timer", "IDtimer", "kt", "t")
BY_BROKERS = {
    "REAL_TOPIC": "elsewhere",
    "RECONSUME_TIME": "2",
    "MIN_OFFSET": "0",
    "AB_REPLAY": "an-earlier-run",
    "__SHARDINGKEY": "customer-7",
}


SEND_BACK = 36


class Restored(NamedTuple):
    """A new broker after the restore, and the archive that it came from."""

    broker: AnyBroker
    lake: Path
    told: str


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The archive of a broker that is gone, and its directory with it."""
    broker = start_broker(mappedFileSizeCommitLog=SEGMENT_BYTES)
    make_topic(broker, "orders", 2)
    make_topic(broker, "bills", 1)
    make_topic(broker, "%DLQ%shop", 1)
    for said in SENT.values():
        talk(broker, [one for one in said if one is not RETRIED])
    say(broker, RETRIED, more=BY_BROKERS)
    say(broker, Message("%DLQ%shop", 0, b"dead", "IDdead", "kd", "d"))
    make_topic(broker, "later", 2)
    say(broker, DELAYED, more={"DELAY": str(LEVEL)})
    say(broker, TIMED, more={"TIMER_DELIVER_MS": str(LATER_MS)})
    send_back(broker, TIMED.topic)
    assert broker.stop() == 0
    lake = tmp_path_factory.mktemp("lake")
    outcome = archive(spark, Archive(store=broker.data, output=str(lake), tail=True, job="job-1"))
    assert outcome.failed == {}
    shutil.rmtree(broker.data)
    return lake


def send_back(broker: AnyBroker, topic: str) -> None:
    """A consumer could not handle a message, so that it waits for its first retry."""
    one = Message(topic, 0, b"failed once", "IDretry", "kf", "f")
    say(broker, one)
    with RawConnection(broker.address) as connection:
        [record] = read_topic(connection, topic, 0)
        fields = {"offset": record.physical_offset, "group": "shop", "delayLevel": 0}
        answer = connection.call(SEND_BACK, fields | {"maxReconsumeTimes": 16})
    assert answer.code == 0, answer.remark


@pytest.fixture(scope="module")
def back(spark: SparkSession, lake: Path, start_broker: StartBroker) -> Restored:
    """All of it in a new broker, by the command line: a run that ended early, and its second half.

    Each queue has a part of its own, as where a driver is killed.
    """
    broker = start_broker()
    options = ["--namesrv", broker.namesrv_address, "--archive", str(lake), "--run", "run-1"]
    part = "queueOffset < 30 OR (topic = 'orders' AND queueId = 1 AND queueOffset < 101)"
    job.command.main([*options, "--where", part, "--yes"], standalone_mode=False)
    job.command.main([*options, "--yes"], standalone_mode=False)
    return Restored(broker, lake, "run-1")


def test_every_queue_has_its_messages_in_their_order_with_ids_keys_tags_and_birth(
    back: Restored,
) -> None:
    with RawConnection(back.broker.address) as connection:
        for (topic, queue_id), said in SENT.items():
            found = read_topic(connection, topic, queue_id)
            assert [one.body for one in found] == [one.body for one in said]
            for record, one in zip(found, said, strict=True):
                told = dict(part.split("\x01") for part in record.properties.split("\x02") if part)
                assert told["UNIQ_KEY"] == one.msg_id
                assert (told["KEYS"], told["TAGS"], told["colour"]) == (one.keys, one.tags, "blue")
                assert told["AB_REPLAY"] == "run-1"
                sharding = {"__SHARDINGKEY"} if one is RETRIED else set()
                assert told.keys() & BY_BROKERS.keys() == {"AB_REPLAY"} | sharding


def test_our_consumer_reads_them(back: Restored) -> None:
    found: dict[tuple[str, int], list[bytes]] = {}
    left = sum(map(len, SENT.values()))
    namesrv = back.broker.namesrv_address
    with PullConsumer("reader", namesrv, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.assign([*consumer.queues("bills"), *consumer.queues("orders")])
        while left and (polled := consumer.poll(max_messages=100)):
            for one in polled:
                assert one.born_at.timestamp() * 1_000 == BORN_MS
                found.setdefault((one.topic, one.queue.queue_id), []).append(one.body)
            left -= len(polled)
    assert found == {key: [one.body for one in said] for key, said in SENT.items()}


@pytest.mark.interop
@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_client_reads_them(back: Restored, tmp_path: Path, version: str) -> None:
    client = JavaClient(toolkit(version), tmp_path)
    try:
        found = client.pull(back.broker.namesrv_address, "orders", "java", 451)
    finally:
        client.child.kill()
    for queue_id in (0, 1):
        said = SENT["orders", queue_id]
        got = sorted(
            (one for one in found if one.queue_id == queue_id), key=lambda one: one.queue_offset
        )
        assert [(one.msg_id, one.keys, one.tags) for one in got] == [
            (one.msg_id, one.keys, one.tags) for one in said
        ]


def test_messages_that_waited_wait_for_the_rest_of_their_time_in_their_own_topic(
    back: Restored,
) -> None:
    """Once, although two runs had them: what is in the wheel counts as sent."""
    with RawConnection(back.broker.address) as connection:
        assert [one.body for one in read_topic(connection, "later", 0)] == [b"failed once"]
        assert read_topic(connection, "later", 1) == []
        timers = {one.body: one for one in read_topic(connection, WHEEL_TOPIC, 0)}
        assert len(read_topic(connection, WHEEL_TOPIC, 0)) == len(timers) == 2
    for sent in (DELAYED, TIMED):
        told = dict(
            part.split("\x01") for part in timers[sent.body].properties.split("\x02") if part
        )
        assert (told["REAL_TOPIC"], told["REAL_QID"]) == (sent.topic, str(sent.queue_id))
        assert (told["UNIQ_KEY"], told["KEYS"], told["TAGS"]) == (sent.msg_id, sent.keys, sent.tags)
        assert told["AB_REPLAY"] == "run-1"
        left_ms = int(told["TIMER_DELIVER_MS"]) - timers[sent.body].store_timestamp
        if sent is DELAYED:
            assert 0 < left_ms < LEVEL_MS, "the restore came later than the message"
        else:
            assert told["TIMER_DELIVER_MS"] == str(LATER_MS)


def test_what_is_left_out_is_said_and_where_nobody_may_send_is_refused(
    back: Restored, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--namesrv", back.broker.namesrv_address, "--archive", str(back.lake)]
    job.command.main([*options, "--json"], standalone_mode=False)
    out, err = capsys.readouterr()
    assert '{"topic":"later","messages":3,"bodyBytes":27,"queues":2,"waiting":2}' in out
    retry = "1 of %RETRY%shop (1 wait for a retry)"
    assert f"left out: 1 of %DLQ%shop, {retry}; --topic restores them" in err
    for topic in ("SCHEDULE_TOPIC_XXXX", WHEEL_TOPIC):
        with pytest.raises(ConfigurationError, match="restored with their own topics; name those"):
            job.command.main([*options, "--topic", topic, "--to-topic", "x"], standalone_mode=False)
    with pytest.raises(ConfigurationError, match="no client may send there"):
        job.command.main([*options, "--topic", "RMQ_SYS_TRANS_HALF_TOPIC"], standalone_mode=False)


def test_a_part_can_be_chosen_and_nothing_is_sent_unless_it_is_said(
    spark: SparkSession, lake: Path, back: Restored, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(condition: str = "true", **changes: object) -> list[tuple[str, int, int]]:
        changes = {"archive": Archive(store=lake, output=str(lake))} | changes
        task = Restore(**changes)  # type: ignore[arg-type]  # as the test names them
        rows = planned(counted(restored(spark, task).where(condition), task), task)
        return [(row["topic"], row["messages"], row["queues"]) for row in rows]

    assert plan() == [("bills", 120, 1), ("later", 3, 2), ("orders", 451, 2)]
    assert plan(topics=("%RETRY%shop",)) == [("%RETRY%shop", 1, 1)]
    assert plan(topics=("%DLQ%shop",)) == [("%DLQ%shop", 1, 1)]
    assert plan("queueOffset < 10 AND tags = 'a'") == [("bills", 5, 1), ("orders", 10, 2)]
    with pytest.raises(AerobeeError, match="names no archived segment of that time"):
        plan(until_ms=1)
    with pytest.raises(AerobeeError, match=r"nowhere/_manifest has no entries: .*--output"):
        plan(archive=Archive(store=lake, output=str(lake / "nowhere")))
    options = ["--namesrv", back.broker.namesrv_address, "--archive", str(lake), "--json"]
    job.command.main([*options, "--topic", "bills"], standalone_mode=False)
    out, err = capsys.readouterr()
    assert out.startswith('{"topic":"bills","messages":120,')
    assert err == "nothing sent: say --yes\n"
    with RawConnection(back.broker.address) as connection:
        assert len(read_topic(connection, "bills", 0)) == 120


def test_a_run_that_is_complete_has_nothing_left(
    lake: Path, back: Restored, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--namesrv", back.broker.namesrv_address, "--archive", str(lake), "--yes"]
    job.command.main([*options, "--run", "run-1"], standalone_mode=False)
    assert "nothing to send" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="has no such messages of bils"):
        job.command.main([*options, "--topic", "bills,bils"], standalone_mode=False)
    with RawConnection(back.broker.address) as connection:
        assert len(read_topic(connection, "bills", 0)) == 120


def test_a_topic_with_too_few_queues_is_refused_and_not_changed(lake: Path, back: Restored) -> None:
    make_topic(back.broker, "narrow", 1)
    options = ["--namesrv", back.broker.namesrv_address, "--archive", str(lake), "--yes"]
    with pytest.raises(ConfigurationError, match=r"topic narrow has 1 queues, .* were in 2"):
        job.command.main([*options, "--to-topic", "narrow"], standalone_mode=False)
    with RawConnection(back.broker.address) as connection:
        assert read_topic(connection, "narrow", 0) == []


def test_a_topic_that_was_made_anew_comes_back_whole_and_in_order(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    """Its queue offsets are in the log twice: a run that is completed must not take one for two."""
    store = StoreMaker(tmp_path / "store")
    for life in (b"old", b"new"):
        for number in range(40):
            store.put(b"%s %d" % (life, number), queue_offset=number)
    lake = lake_of(spark, store, tmp_path)
    broker = start_broker()
    options = ["--namesrv", broker.namesrv_address, "--archive", lake, "--run", "run-1", "--yes"]
    early = f"commitLogOffset < {store.puts[30].place}"
    job.command.main([*options, "--where", early], standalone_mode=False)
    job.command.main(options, standalone_mode=False)
    with RawConnection(broker.address) as connection:
        found = [one.body for one in read_topic(connection, "orders", 0)]
    assert found == [one.body for one in store.puts]


def test_an_archive_that_has_lost_files_is_refused(
    spark: SparkSession, shared_broker: StartBroker, tmp_path: Path
) -> None:
    store = StoreMaker(tmp_path / "store")
    for number in range(60):
        store.put(b"%d" % number * 30)
    lake = lake_of(spark, store, tmp_path)
    next((tmp_path / "lake" / "segment=4096").glob("*.parquet")).unlink()
    options = ["--namesrv", shared_broker().namesrv_address, "--archive", lake, "--yes"]
    lost = r"has 0 rows of segment 0{16}4096, and its entry says [1-9]\d: files of it are missing"
    with pytest.raises(AerobeeError, match=lost):
        job.command.main([*options, "--to-topic", "lost"], standalone_mode=False)


def test_in_a_namespace_a_topic_is_found_by_either_name(
    spark: SparkSession,
    shared_broker: StartBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is not found would be made again, with fewer queues, and everything sent again."""
    store = StoreMaker(tmp_path / "store")
    for number in range(20):
        store.put(b"%d" % number, "shop%spaced", number % 2)
    lake = lake_of(spark, store, tmp_path)
    broker = shared_broker()
    make_topic(broker, "shop%spaced", 4)
    monkeypatch.setenv("AEROBEE_NAMESPACE", "shop")
    options = ["--namesrv", broker.namesrv_address, "--archive", lake, "--run", "run-1", "--yes"]
    for _ in range(2):
        job.command.main(options, standalone_mode=False)
    with RawConnection(broker.address) as connection:
        counts = [len(read_topic(connection, "shop%spaced", queue)) for queue in range(4)]
    assert counts == [10, 10, 0, 0]


def test_of_several_brokers_one_must_be_said_before_anything_is_made_or_sent(
    shared_broker: StartBroker, tmp_path: Path
) -> None:
    broker = shared_broker()
    target, name = broker.namesrv_address, "of-two"
    second = BrokerProcess(data=tmp_path / "b", settings={"brokerName": "b"}, namesrv=target)
    with second, RawConnection(broker.address) as connection:
        for to_broker in (None, "typo"):
            with pytest.raises(ConfigurationError, match=rf"topic {name} can be written to: b, "):
                make_queues(target, name, 4, to_broker)
        assert not cluster_at(target).has_topic(name)
        make_queues(target, name, 4, "b")
        narrow = topic_fields(name, 4) | {"writeQueueNums": 2}
        assert connection.call(CREATE_TOPIC, narrow).code == 0
        [other] = cluster_at(target).brokers().keys() - {"b"}
        make_queues(target, name, 4, "b")
        with pytest.raises(ConfigurationError, match=rf"topic {name} has 2 queues"):
            make_queues(target, name, 4, other)


def lake_of(spark: SparkSession, store: StoreMaker, home: Path) -> str:
    """The archive of a whole store."""
    lake = str(home / "lake")
    task = Archive(store=store.write(), output=lake, tail=True, job="job-1")
    assert archive(spark, task).failed == {}
    return lake


def test_a_topic_gets_as_many_queues_as_any_of_its_sources_had() -> None:
    plan = [{"topic": "a", "queues": 3}, {"topic": "b", "queues": 5}]
    assert needed(plan, None) == {"a": 3, "b": 5}
    assert needed(plan, "c") == {"c": 5}
