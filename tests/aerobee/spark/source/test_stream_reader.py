"""The object behind a stream, without Spark around it: offsets, limits, losses, commits."""

from __future__ import annotations

import inspect
import json
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.serializers import CPickleSerializer

from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ConfigurationError,
    DataLossError,
    RouteNotFoundError,
)
from aerobee.spark.brokers import cluster_of
from aerobee.spark.offsets import Queue
from aerobee.spark.options import read_options
from aerobee.spark.rows.columns import chosen
from aerobee.spark.source.stream_reader import StreamReader
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic
from tests.aerobee.spark.replicas import AT_MASTER, AT_SLAVE, TOPIC, replicas
from tests.kit.broker_process import BrokerProcess
from tests.kit.raw_client import RawConnection
from tests.kit.reading import committed_offsets
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

LIMITS: Any = pytest.importorskip(
    "pyspark.sql.streaming.datasource",
    reason="PySpark before 4.2 gives sources no limits; test_streaming.py is about that",
)
ReadAllAvailable, ReadMaxRows = LIMITS.ReadAllAvailable, LIMITS.ReadMaxRows
ReadMaxBytes, ReadMinRows = LIMITS.ReadMaxBytes, LIMITS.ReadMinRows
DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV = 215, 216
ALL = ReadAllAvailable()
LONG_S = 100.0
_numbers = count()


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


@dataclass
class Topic:
    """One topic of a broker, and readers of it."""

    broker: AnyBroker
    name: str

    def reader(
        self, clock: Callable[[], float] | None = None, /, **options: object
    ) -> StreamReader:
        given = {"namesrv": self.broker.namesrv_address, "topic": self.name} | options
        texts = {"nameserver": given.pop("namesrv")} | given
        raw = {name.lower(): str(value) for name, value in texts.items()}
        clock = clock or Clock()
        wait = clock.wait if isinstance(clock, Clock) else time.sleep
        return StreamReader(read_options(raw, stream=True), chosen(None), clock, wait)

    def fill(self, messages: int, queue_id: int = 0) -> None:
        """Store messages, and wait until readers can see them."""
        cluster = cluster_of((self.broker.namesrv_address,))
        queue = Queue(self.name, self.broker_name, queue_id)
        end = cluster.max_offsets([queue])[queue] + messages
        fill(self.broker, self.name, bodies(messages), queue_id=queue_id)
        eventually(
            lambda: cluster.max_offsets([queue])[queue] >= end, within_s=LONG_S, what="the messages"
        )

    def at(self, *offsets: int) -> dict[str, Any]:
        """These offsets of queues 0, 1, …"""
        queues = {str(queue): offset for queue, offset in enumerate(offsets)}
        return {self.name: {self.broker_name: queues}}

    @cached_property
    def broker_name(self) -> str:
        [brokers] = self.reader(startingOffsets="earliest").initialOffset().values()
        [name] = brokers
        return str(name)

    def committed(self, group: str, queues: int = 2) -> dict[int, int]:
        with RawConnection(self.broker.address) as connection:
            return committed_offsets(connection, group, self.name, queues)


def plain(offsets: dict[str, Any]) -> dict[str, Any]:
    """Without the notes of where the first batch began, and of what was read last."""
    return {name: value for name, value in offsets.items() if name not in ("@start", "@last")}


def delete_topic(topic: Topic) -> None:
    """As `mqadmin deleteTopic` does: at the broker, then at the name server."""
    broker, names = topic.broker.address, topic.broker.namesrv_address
    for address, code in ((broker, DELETE_TOPIC_IN_BROKER), (names, DELETE_TOPIC_IN_NAMESRV)):
        with RawConnection(address) as connection:
            assert connection.call(code, {"topic": topic.name}).code == 0


def planned(reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    """Queue, start and end of all ranges, sorted."""
    parts = reader.partitions(start, end)
    return sorted((r.queue_id, r.start, r.end) for part in parts for r in part.value)


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def topic(broker: AnyBroker) -> Topic:
    name = f"stream-{next(_numbers)}"
    make_topic(broker, name, 2)
    return Topic(broker, name)


# ── Where it begins ──


def test_a_stream_begins_at_its_end_unless_told(topic: Topic) -> None:
    topic.fill(30)
    assert topic.reader().initialOffset() == topic.at(30, 0)
    assert topic.reader(startingOffsets="earliest").initialOffset() == topic.at(0, 0)


def test_where_a_stream_begins_is_asked_once(topic: Topic) -> None:
    reader = topic.reader()
    topic.fill(10)
    first = reader.initialOffset()
    topic.fill(10)
    assert reader.initialOffset() == first == topic.at(10, 0)


def test_a_stream_begins_at_offsets_by_number_and_by_word(topic: Topic) -> None:
    topic.fill(30)
    topic.fill(20, queue_id=1)
    given = json.dumps(topic.at(7, -1))
    assert topic.reader(startingOffsets=given).initialOffset() == topic.at(7, 20)
    with pytest.raises(ConfigurationError, match="queue 1 of topic"):
        topic.reader(startingOffsets=json.dumps(topic.at(7))).initialOffset()


def test_a_stream_begins_at_a_time_or_says_that_nothing_is_so_new(topic: Topic) -> None:
    topic.fill(10)
    topic.fill(10, queue_id=1)
    assert topic.reader(startingTimestamp=1).initialOffset() == topic.at(0, 0)
    late = {"startingTimestamp": "2100-01-01T00:00:00Z"}
    with pytest.raises(ConfigurationError, match="startingOffsetsByTimestampStrategy=latest"):
        topic.reader(**late).initialOffset()
    reader = topic.reader(**late, startingOffsetsByTimestampStrategy="latest")
    assert reader.initialOffset() == topic.at(10, 10)


def test_a_stream_begins_where_the_group_stands_and_tells_the_group_the_rest(topic: Topic) -> None:
    topic.fill(30)
    topic.fill(20, queue_id=1)
    options = {"startingOffsets": "committed", "group": "lake"}
    topic.reader(group="lake").commit(topic.at(12))
    reader = topic.reader(**options, fallbackOffsets="latest")
    assert reader.initialOffset() == topic.at(12, 20)
    assert topic.committed("lake") == {0: 12, 1: 20}
    assert topic.reader(**options).initialOffset() == topic.at(12, 20)


def test_a_kept_start_is_the_answer_of_the_next_run(topic: Topic, tmp_path: Path) -> None:
    state = tmp_path.as_uri()
    topic.fill(10)
    assert topic.reader(stateLocation=state).initialOffset() == topic.at(10, 0)
    topic.fill(10)
    assert topic.reader(stateLocation=state).initialOffset() == topic.at(10, 0)
    assert topic.reader().initialOffset() == topic.at(20, 0)


def test_a_stream_of_a_topic_that_is_not_there_does_not_begin(topic: Topic) -> None:
    with pytest.raises(RouteNotFoundError, match="no-such-topic"):
        topic.reader(topic="no-such-topic").initialOffset()


# ── How far a batch goes ──


def test_a_batch_ends_at_the_ends_and_the_next_is_the_same_text_while_idle(topic: Topic) -> None:
    reader = topic.reader(startingOffsets="earliest")
    topic.fill(30)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert plain(first) == topic.at(30, 0)
    assert reader.reportLatestOffset() == topic.at(30, 0)
    again = reader.latestOffset(json.loads(json.dumps(first)), ALL)
    assert json.dumps(again) == json.dumps(first)
    topic.fill(5, queue_id=1)
    second = reader.latestOffset(first, ALL)
    assert plain(second) == topic.at(30, 5)
    assert json.dumps(reader.latestOffset(second, ALL)) == json.dumps(second)
    assert planned(reader, first, second) == [(1, 0, 5)]


def test_the_same_offsets_are_the_same_text_with_more_than_ten_queues(broker: AnyBroker) -> None:
    topic = Topic(broker, "many-queues")
    make_topic(broker, topic.name, 12)
    initial = topic.reader().initialOffset()
    assert [*initial[topic.name][topic.broker_name]] == [str(number) for number in range(12)]


def test_the_first_batch_begins_where_it_was_planned_to_after_a_restart(topic: Topic) -> None:
    topic.fill(10)
    reader = topic.reader()
    start = reader.initialOffset()
    topic.fill(10)
    end = reader.latestOffset(start, ALL)
    topic.fill(10)
    restarted = topic.reader()
    assert restarted.initialOffset() == topic.at(30, 0)
    assert planned(restarted, restarted.initialOffset(), end) == [(0, 10, 20)]


def test_a_limit_is_shared_out_and_every_queue_gets_something(topic: Topic) -> None:
    topic.fill(900)
    topic.fill(3, queue_id=1)
    reader = topic.reader(startingOffsets="earliest", maxOffsetsPerTrigger=100)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(100)
    end = plain(reader.latestOffset(reader.initialOffset(), limit))
    assert end == topic.at(99, 1)
    assert plain(reader.latestOffset(topic.at(99, 1), ReadMaxRows(10))) == topic.at(108, 2)
    assert plain(reader.latestOffset(topic.at(99, 1), ALL)) == topic.at(900, 3)
    assert reader.reportLatestOffset() == topic.at(900, 3)


def test_a_limit_in_bytes_counts_by_the_size_of_what_comes_next(topic: Topic) -> None:
    fill(topic.broker, topic.name, bodies(400, 900))
    reader = topic.reader(startingOffsets="earliest", maxBytesPerTrigger="100k")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(100 << 10)
    end = plain(reader.latestOffset(reader.initialOffset(), limit))
    messages = end[topic.name][topic.broker_name]["0"]
    assert 95 <= messages <= 110, "records of 900 bytes and about a hundred more"


def test_a_stream_that_is_idle_looks_for_messages_ten_times_a_second(topic: Topic) -> None:
    """Spark with a trigger of no interval, its default, would ask a hundred times."""
    clock = Clock()
    reader = topic.reader(clock, startingOffsets="earliest")
    topic.fill(10)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(end, ALL) == end
    assert clock.waited == [], "there were messages"
    clock.now += 0.04
    assert reader.latestOffset(end, ALL) == end
    assert clock.waited == [pytest.approx(0.06)]
    clock.now += 0.2
    topic.fill(1)
    assert plain(reader.latestOffset(end, ALL)) == topic.at(11, 0)
    assert reader.latestOffset(topic.at(11, 0), ALL) == topic.at(11, 0)
    assert len(clock.waited) == 1


def test_a_batch_waits_for_enough_but_not_for_ever(topic: Topic) -> None:
    clock = Clock()
    options = {"minOffsetsPerTrigger": 50, "maxTriggerDelay": "30s", "startingOffsets": "earliest"}
    reader = topic.reader(clock, **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(50)
    topic.fill(10)
    first = plain(reader.latestOffset(reader.initialOffset(), limit))
    assert first == topic.at(10, 0), "the first batch never waits"
    topic.fill(10)
    clock.now += 29
    assert reader.latestOffset(first, limit) == first
    assert plain(reader.latestOffset(first, ALL)) == topic.at(20, 0), "the trigger wants everything"
    clock.now += 29
    topic.fill(40)
    assert plain(reader.latestOffset(first, limit)) == topic.at(60, 0)
    topic.fill(1)
    assert reader.latestOffset(topic.at(60, 0), limit) == topic.at(60, 0)
    clock.now += 31
    assert plain(reader.latestOffset(topic.at(60, 0), limit)) == topic.at(61, 0)


def test_a_run_of_what_is_available_now_ends_where_it_was_when_it_began(topic: Topic) -> None:
    topic.fill(30)
    clock = Clock()
    reader = topic.reader(clock, startingOffsets="earliest", minOffsetsPerTrigger=1000)
    assert isinstance(reader, LIMITS.SupportsTriggerAvailableNow)
    reader.prepareForTriggerAvailableNow()
    at, steps = reader.initialOffset(), 0
    topic.fill(30)
    make_topic(topic.broker, topic.name, 3)
    clock.now += LONG_S
    while (end := reader.latestOffset(at, ReadMaxRows(11))) != at:
        at, steps = end, steps + 1
    assert plain(at) == topic.at(30, 0)
    assert steps == 3


def test_a_run_that_begins_behind_what_it_froze_has_nothing_to_do(topic: Topic) -> None:
    topic.fill(30)
    reader = topic.reader()
    reader.prepareForTriggerAvailableNow()
    topic.fill(10)
    start = reader.initialOffset()
    assert start == topic.at(40, 0)
    end = reader.latestOffset(start, ALL)
    assert plain(end) == start
    assert reader.latestOffset(end, ALL) == end
    with pytest.raises(DataLossError, match="the queue ends before them now"):
        reader.latestOffset(topic.at(50, 0), ALL)


def test_pyspark_before_4_2_gives_no_arguments(topic: Topic) -> None:
    topic.fill(30)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    reader = topic.reader(**options)
    assert len(inspect.signature(reader.latestOffset).parameters) == 2
    first = reader.latestOffset()
    assert plain(first) == topic.at(10, 0)
    assert planned(reader, reader.initialOffset(), first) == [(0, 0, 10)]
    assert plain(reader.latestOffset()) == topic.at(20, 0)
    restarted = topic.reader(**options)
    assert restarted.partitions(topic.at(20, 0), topic.at(20, 0)) == []
    assert plain(restarted.latestOffset()) == topic.at(30, 0)


# ── Queues that come and go ──


def test_a_new_queue_is_read_from_its_first_message(topic: Topic) -> None:
    clock = Clock()
    reader = topic.reader(clock)
    start = reader.initialOffset()
    make_topic(topic.broker, topic.name, 3)
    topic.fill(5, queue_id=2)
    first = reader.latestOffset(start, ALL)
    assert plain(first) == topic.at(0, 0)
    clock.now += 10
    end = reader.latestOffset(first, ALL)
    assert plain(end) == topic.at(0, 0, 5)
    assert planned(reader, topic.at(0, 0), end) == [(2, 0, 5)]
    assert planned(topic.reader(), topic.at(0, 0), end) == [(2, 0, 5)]


def test_queues_without_a_route_stay_where_they_are(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    reader = topic.reader(clock, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.fill(5)
    with RawConnection(topic.broker.namesrv_address) as connection:
        assert connection.call(DELETE_TOPIC_IN_NAMESRV, {"topic": topic.name}).code == 0
    clock.now += 10
    end = plain(reader.latestOffset(start, ALL))
    assert end == start
    assert f"topic {topic.name} is not there now" in caplog.text
    unknown = topic.reader()
    with pytest.raises(BrokerNotFoundError, match="start the query again"):
        unknown.partitions(start, {topic.name: {"broker-x": {"0": 5}}})


def test_a_broker_that_is_down_holds_its_queues_until_it_is_back(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(start_broker(), "down")
    make_topic(topic.broker, topic.name, 2)
    topic.fill(10)
    clock = Clock()
    reader = topic.reader(clock, startingOffsets="earliest", group="lake")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert topic.broker.stop() == 0
    clock.now += LONG_S
    assert reader.latestOffset(end, ALL) == end
    reader.commit(end)
    with pytest.raises(AerobeeError):
        topic.reader().initialOffset()
    with pytest.raises(AerobeeError):
        reader.prepareForTriggerAvailableNow()
    told = caplog.text.count("does not tell its offsets")
    assert reader.latestOffset(end, ALL) == end
    assert caplog.text.count("does not tell its offsets") == told == 1
    topic.broker.start()
    topic.fill(5)
    clock.now += LONG_S
    assert plain(reader.latestOffset(end, ALL)) == topic.at(15, 0)
    assert topic.committed("lake") == {0: 10, 1: 0}


# ── What is lost ──


@pytest.fixture(scope="module")
def expired(start_broker: StartBroker) -> Topic:
    """A topic whose oldest messages are gone: 6 000 of about 600 bytes in segments of 1 MiB."""
    topic = Topic(start_broker(mappedFileSizeCommitLog=1 << 20), "expired")
    make_topic(topic.broker, topic.name, 1)
    for _ in range(6):
        fill(topic.broker, topic.name, bodies(1_000, 500))
    expire(topic.broker, 2)
    return topic


def least(topic: Topic) -> int:
    initial = topic.reader(startingOffsets="earliest").initialOffset()
    first: int = initial[topic.name][topic.broker_name]["0"]
    assert first > 1_000
    return first


def test_messages_that_expired_before_they_were_read_fail_the_stream(expired: Topic) -> None:
    reader = expired.reader()
    with pytest.raises(DataLossError, match=r"queue 0 of topic expired .* expired before") as told:
        reader.partitions(expired.at(10), expired.at(6_000))
    assert "failOnDataLoss=false" in str(told.value)
    with pytest.raises(DataLossError, match="expired before"):
        reader.latestOffset(expired.at(10), ReadMaxRows(100))


def test_messages_that_expired_are_skipped_and_named_if_so_wished(
    expired: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    first = least(expired)
    reader = expired.reader(failOnDataLoss="false")
    end = reader.latestOffset(expired.at(10), ReadMaxRows(100))
    assert plain(end) == expired.at(first + 100), "the limit counts what is there"
    assert planned(reader, expired.at(10), end) == [(0, first, first + 100)]
    assert f"offsets [10, {first})" in caplog.text


def test_a_queue_that_began_before_it_was_known_lacks_its_first_messages(expired: Topic) -> None:
    first = least(expired)
    with pytest.raises(DataLossError, match=rf"offsets \[0, {first}\)"):
        expired.reader().partitions({}, expired.at(6_000))
    reader = expired.reader(failOnDataLoss="false")
    assert planned(reader, {}, expired.at(6_000)) == [(0, first, 6_000)]


def test_a_topic_made_anew_fails_the_stream_or_goes_on_at_its_end(topic: Topic) -> None:
    topic.fill(5)
    with pytest.raises(DataLossError, match="the queue ends before them now"):
        topic.reader().latestOffset(topic.at(70, 0), ALL)
    with pytest.raises(DataLossError, match="the queue ends before them now"):
        topic.reader().partitions(topic.at(3, 0), topic.at(70, 0))
    reader = topic.reader(failOnDataLoss="false")
    end = reader.latestOffset(topic.at(70, 0), ALL)
    assert plain(end) == topic.at(5, 0)
    assert reader.partitions(topic.at(70, 0), end) == []
    assert planned(reader, topic.at(3, 0), topic.at(70, 0)) == [(0, 3, 5)]


def test_a_batch_that_begins_behind_its_end_names_the_reason_and_the_remedy(topic: Topic) -> None:
    topic.fill(30)
    with pytest.raises(DataLossError, match=r"startingOffsets=committed .* or stateLocation"):
        topic.reader().partitions(topic.at(20, 0), topic.at(10, 0))
    assert topic.reader(failOnDataLoss="false").partitions(topic.at(20, 0), topic.at(10, 0)) == []


# ── What the broker is told ──


def test_the_broker_is_told_what_is_done_when_a_group_is_given(topic: Topic) -> None:
    topic.fill(30)
    reader = topic.reader(startingOffsets="earliest", group="told")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert topic.committed("told") == {0: 0, 1: 0}
    reader.commit(first)
    assert topic.committed("told") == {0: 10, 1: 0}
    second = reader.latestOffset(first, ReadMaxRows(10))
    assert reader.latestOffset(second, ReadMaxRows(5)) != second
    assert topic.committed("told") == {0: 20, 1: 0}, "the start of a batch is done, too"


def test_the_broker_is_told_nothing_unless_it_is_wanted(topic: Topic) -> None:
    topic.fill(30)
    silent = topic.reader(startingOffsets="earliest", group="silent", commitOffsets="false")
    silent.commit(topic.at(30, 0))
    assert topic.committed("silent") == {}
    nameless = topic.reader(startingOffsets="earliest")
    assert not nameless.options.commit_offsets


# ── What is read ──


def test_partitions_hold_what_was_planned_and_nothing_empty(topic: Topic) -> None:
    topic.fill(30)
    reader = topic.reader(minPartitions=4)
    assert reader.partitions(topic.at(3, 0), topic.at(3, 0)) == []
    parts = reader.partitions(topic.at(0, 0), topic.at(30, 0))
    assert len(parts) == 4
    assert sum(one.size for part in parts for one in part.value) == 30


def test_a_reader_that_was_never_asked_anything_reads_a_partition(topic: Topic) -> None:
    topic.fill(30)
    [part] = topic.reader().partitions(topic.at(10, 0), topic.at(20, 0))
    pickling: Any = CPickleSerializer()
    elsewhere = pickling.loads(pickling.dumps(topic.reader()))
    batches = list(elsewhere.read(part))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == list(range(10, 20))
    assert [row["body"] for row in rows] == bodies(30)[10:20]


def test_offsets_are_logged_under_one_name(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        topic.reader(failOnDataLoss="false").partitions(topic.at(9, 0), topic.at(3, 0))
    assert {record.name for record in caplog.records} == {"aerobee.spark"}


@contextmanager
def made_anew(
    start_broker: StartBroker, home: Path, *limit: object, **options: Any
) -> Iterator[tuple[StreamReader, dict[str, Any], Topic]]:
    """A stream that has read ten messages, its offsets, and its topic made anew without any."""
    old = start_broker()
    assert isinstance(old, BrokerProcess)
    topic = Topic(old, "renewed")
    make_topic(old, topic.name, 1)
    topic.fill(10)
    reader = topic.reader(startingOffsets="earliest", **options)
    end = reader.latestOffset(reader.initialOffset(), *limit)
    assert old.stop() == 0
    empty = home / "empty"
    with BrokerProcess(data=empty, ports=old.ports, namesrv_port=old.namesrv_port) as new:
        make_topic(new, topic.name, 1)
        yield reader, end, Topic(new, topic.name)


@pytest.mark.ours
def test_a_broker_with_an_empty_store_is_a_topic_made_anew(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    with (
        made_anew(start_broker, tmp_path, ALL) as (reader, end, _),
        pytest.raises(DataLossError, match="its topic was deleted and made anew"),
    ):
        reader.latestOffset(end, ALL)


@pytest.mark.ours
def test_messages_of_a_topic_made_anew_count_before_they_pass_the_old_end(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Those of the old topic would hide them from `minOffsetsPerTrigger`, for 15 minutes."""
    options = {"failOnDataLoss": "false", "minOffsetsPerTrigger": "3"}
    with made_anew(start_broker, tmp_path, **options) as (reader, end, topic):
        topic.fill(2)
        assert reader.latestOffset(end) is end
        topic.fill(1)
        after = plain(reader.latestOffset(end))
        assert after.pop("@renewed") == topic.at(0)
        assert after == topic.at(3)


def test_a_stream_that_waits_for_more_compares_nothing_yet(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """It looks ten times a second, and a pull may bring 4 MiB."""
    clock = Clock()
    topic.fill(10)
    reader = topic.reader(
        clock,
        startingOffsets="earliest",
        failOnDataLoss="false",
        minOffsetsPerTrigger=1000,
        maxTriggerDelay="30s",
    )
    end = reader.latestOffset(reader.initialOffset())
    end["@last"][topic.name][topic.broker_name]["0"] += 1
    topic.fill(1)
    assert reader.latestOffset(end) is end
    assert not caplog.records
    clock.now += 31
    assert plain(reader.latestOffset(end)) == topic.at(11, 0)
    assert caplog.text.count("other messages have these offsets now") == 1


# ── Slaves, deletions, restarts ──


def test_a_topic_that_was_deleted_a_moment_ago_stands_still(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queues end before what was read at once, and its route is remembered for ten seconds."""
    topic.fill(10)
    before = topic.at(70, 0)
    readers = [topic.reader(startingOffsets="earliest", failOnDataLoss=f) for f in (True, False)]
    for reader in readers:
        reader.latestOffset(reader.initialOffset(), ALL)
    with RawConnection(topic.broker.namesrv_address) as connection:
        assert connection.call(DELETE_TOPIC_IN_NAMESRV, {"topic": topic.name}).code == 0
    for reader in readers:
        assert reader.latestOffset(before, ALL) == before
    assert f"topic {topic.name} is not there now" in caplog.text


@pytest.mark.parametrize("gone_s", [0.0, LONG_S], ids=["for a moment", "for long"])
@pytest.mark.parametrize("messages", [100, 70, 30, 0])
def test_a_topic_that_was_deleted_and_made_anew_is_read_from_its_first_message_or_not_at_all(
    topic: Topic, gone_s: float, messages: int
) -> None:
    """However many messages the new one has, and whether or not the query ran while it was gone."""
    clock = Clock()
    readers = [
        topic.reader(clock, startingOffsets="earliest", failOnDataLoss=f) for f in (True, False)
    ]
    topic.fill(70)
    ends = [reader.latestOffset(reader.initialOffset(), ALL) for reader in readers]
    end = ends[0]
    delete_topic(topic)
    if gone_s:
        clock.now += gone_s
        assert [reader.latestOffset(end, ALL) for reader in readers] == ends
    make_topic(topic.broker, topic.name, 2)
    topic.fill(messages)
    topic.fill(5, queue_id=1)
    clock.now += gone_s
    gone = r"offsets \[0, 70\): its topic was deleted and made anew"
    for strict in (readers[0], topic.reader(clock)):
        with pytest.raises(DataLossError, match=gone):
            strict.latestOffset(end, ALL)
    for loose in (readers[1], topic.reader(clock, failOnDataLoss="false")):
        renewed = loose.latestOffset(end, ALL)
        assert plain(renewed) == topic.at(messages, 5) | {"@renewed": topic.at(0)}
        assert planned(loose, end, renewed) == [(0, 0, messages)] * bool(messages) + [(1, 0, 5)]
        assert loose.latestOffset(renewed, ALL) == renewed
    with pytest.raises(DataLossError, match=gone):
        readers[0].partitions(end, renewed)
    topic.fill(10)
    following = readers[1].latestOffset(renewed, ALL)
    assert plain(following) == topic.at(messages + 10, 5)
    assert planned(readers[1], renewed, following) == [(0, messages, messages + 10)]


def test_a_topic_made_anew_without_messages_yet_is_told_of_at_once(topic: Topic) -> None:
    clock = Clock()
    reader = topic.reader(clock, startingOffsets="earliest", failOnDataLoss=False)
    topic.fill(70)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    delete_topic(topic)
    assert reader.latestOffset(end, ALL) == end
    make_topic(topic.broker, topic.name, 2)
    clock.now += LONG_S
    renewed = reader.latestOffset(end, ALL)
    assert renewed == topic.at(0, 0) | {"@renewed": topic.at(0)}
    assert planned(reader, end, renewed) == []
    delete_topic(topic)
    assert reader.latestOffset(renewed, ALL) == renewed
    make_topic(topic.broker, topic.name, 2)
    topic.fill(3)
    clock.now += LONG_S
    assert plain(reader.latestOffset(renewed, ALL)) == topic.at(3, 0), "nothing of it was read"


def test_a_batch_of_a_topic_that_left_the_options_is_read_all_the_same(topic: Topic) -> None:
    """It was planned before, and other sinks may have a part of it."""
    topic.fill(10)
    other = Topic(topic.broker, f"{topic.name}-other")
    make_topic(other.broker, other.name, 2)
    assert planned(other.reader(), topic.at(0, 0), topic.at(10, 0)) == [(0, 0, 10)]


@pytest.mark.parametrize("options", ["the same", "without the topic"])
def test_a_batch_of_a_topic_that_was_deleted_is_lost(topic: Topic, options: str) -> None:
    """The broker says that nothing is there; one that is down says nothing."""
    topic.fill(10)
    start, end = topic.at(0, 0), topic.at(10, 0)
    asked = topic
    if options != "the same":
        asked = Topic(topic.broker, f"{topic.name}-other")
        make_topic(asked.broker, asked.name, 2)
    delete_topic(topic)
    with pytest.raises(DataLossError, match=r"offsets \[0, 10\): .* its topic was deleted"):
        asked.reader().partitions(start, end)
    assert planned(asked.reader(failOnDataLoss=False), start, end) == []


def test_progress_in_a_topic_that_was_deleted_is_not_told_again_and_again(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.fill(10)
    end = topic.at(10, 0)
    other = Topic(topic.broker, f"{topic.name}-other")
    make_topic(other.broker, other.name, 1)
    both = {**end, **other.at(0)}
    delete_topic(topic)
    reader = topic.reader(topic=f"{topic.name},{other.name}", group="lake")
    assert reader.latestOffset(both, ALL) == both
    assert "could not be told" not in caplog.text
    assert other.committed("lake", queues=1) == {0: 0}


def test_a_restart_tells_of_queues_that_it_cannot_see(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.fill(10)
    elsewhere = {topic.name: {**topic.at(5, 0)[topic.name], "broker-gone": {"0": 7}}}
    reader = topic.reader()
    end = reader.latestOffset(elsewhere, ALL)
    assert end[topic.name]["broker-gone"] == {"0": 7}
    assert f"queues of topic {topic.name} on broker broker-gone are in no route" in caplog.text
    caplog.clear()
    assert reader.latestOffset(end, ALL) == end
    assert not caplog.text, "once a minute"


def test_an_empty_queue_of_a_broker_that_is_gone_holds_no_batch_up(topic: Topic) -> None:
    """A new queue that was seen before anything was in it, on a broker that is gone since."""
    topic.fill(10)
    end = {topic.name: {**topic.at(10, 0)[topic.name], "broker-gone": {"0": 0}}}
    assert planned(topic.reader(), topic.at(4, 0), end) == [(0, 4, 10)]


def test_a_slave_that_is_behind_takes_nothing_back(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with replicas(start_broker(brokerName="names"), tmp_path) as both:
        clock, topic = Clock(), Topic(both, TOPIC)  # type: ignore[arg-type]  # as far as it reads
        options = {"startingOffsets": "earliest"}
        readers = [topic.reader(clock, **options, failOnDataLoss=f) for f in (True, False)]
        ends = [reader.latestOffset(reader.initialOffset(), ALL) for reader in readers]
        assert [plain(end) for end in ends] == [topic.at(AT_MASTER)] * 2
        both.kill_master()
        clock.now += LONG_S
        for reader, end in zip(readers, ends, strict=True):
            assert reader.latestOffset(end, ALL) == end
            with pytest.raises(BrokerNotFoundError, match="its master is down, and the slave"):
                reader.partitions(topic.at(5), topic.at(AT_MASTER))
            assert planned(reader, topic.at(2), topic.at(AT_SLAVE)) == [(0, 2, AT_SLAVE)]
        assert caplog.text.count("the master of broker broker-m is down") == len(readers)


def test_queues_of_the_same_number_on_two_brokers_are_two_queues(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    first = start_broker(brokerName="broker-1")
    settings = {"brokerName": "broker-2"}
    with BrokerProcess(
        data=tmp_path / "second", settings=settings, namesrv=first.namesrv_address
    ) as second:
        topic = Topic(first, "on-both")
        for broker, count in ((first, 3), (second, 5)):
            make_topic(broker, topic.name)
            fill(broker, topic.name, bodies(count))

        def at(one: int, two: int) -> dict[str, Any]:
            return {topic.name: {"broker-1": {"0": one}, "broker-2": {"0": two}}}

        clock = Clock()
        reader = topic.reader(clock, startingOffsets="earliest", group="both")
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert plain(end) == at(3, 5)
        parts = reader.partitions(reader.initialOffset(), end)
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        assert sorted((row["brokerName"], row["queueOffset"]) for row in rows) == [
            *(("broker-1", offset) for offset in range(3)),
            *(("broker-2", offset) for offset in range(5)),
        ]
        second.kill()
        fill(first, topic.name, bodies(2))
        clock.now += LONG_S
        beyond = reader.latestOffset(end, ALL)
        assert plain(beyond) == at(5, 5)
        restarted = topic.reader(clock, startingOffsets="earliest", group="both")
        assert restarted.latestOffset(end, ALL) == beyond
        assert planned(restarted, end, beyond) == [(0, 3, 5)]
        second.start()
        fill(second, topic.name, bodies(2))
        clock.now += LONG_S
        assert plain(reader.latestOffset(beyond, ALL)) == at(5, 7)
        assert topic.committed("both", 1) == {0: 5}
