"""Streaming queries of a real Spark over a real broker: restarts, limits, losses, outages.

What a batch holds is asked of Spark's own files (checkpoint, Parquet), what is done of the broker.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException

from aerobee.spark.offsets import NOTES
from tests.aerobee.spark.conftest import PYSPARK
from tests.aerobee.spark.filling import bodies, expire, fill, make_topic
from tests.kit.raw_client import RawConnection
from tests.kit.reading import committed_offsets
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.conftest import AnyBroker, StartBroker

pytestmark = [pytest.mark.spark, pytest.mark.service]

DELETE_TOPIC_IN_NAMESRV = 216
OFTEN = {"processingTime": "100 milliseconds"}
AT_ONCE = {"availableNow": True}
RUNS = 1 if PYSPARK >= (4, 2) else 5
"""Before 4.2 a run is one batch: what is over its limit, or behind a batch that failed, is for the
next run.
"""
WITHIN_S = 240
_numbers = count()


class Streams(NamedTuple):
    """Queries of one test: all end with it, whatever happens."""

    spark: SparkSession
    broker: AnyBroker
    home: Path
    running: list[StreamingQuery]

    def read(self, topic: str, **options: object) -> DataFrame:
        """The stream of a topic, from its beginning unless told."""
        given = {"nameServer": self.broker.namesrv_address, "subscribe": topic}
        given |= {"startingOffsets": "earliest"} | {k: str(v) for k, v in options.items()}
        return self.spark.readStream.format("aerobee").options(**given).load()

    def start(
        self,
        rows: DataFrame,
        name: str,
        trigger: dict[str, Any],
        each: Callable[[DataFrame, int], None] | None = None,
    ) -> StreamingQuery:
        """Run a query into Parquet, or into `each`, with the checkpoint of that name."""
        writing = rows.writeStream.option("checkpointLocation", str(self.checkpoint(name)))
        writing = writing.trigger(**trigger)
        if each is not None:
            query = writing.foreachBatch(each).start()
        else:
            query = writing.format("parquet").option("path", str(self.home / name)).start()
        self.running.append(query)
        return query

    def run(self, rows: DataFrame, name: str, **trigger: Any) -> None:
        """Run a query to its end. Raises: StreamingQueryException."""
        for last in (False, False, True):
            query = self.start(rows, name, trigger or AT_ONCE)
            try:
                assert query.awaitTermination(WITHIN_S)
            except StreamingQueryException as error:
                # Spark gives a worker 10 s to start, and a busy machine needs longer.
                if last or "Python worker failed to connect back" not in str(error):
                    raise
            else:
                return

    def checkpoint(self, name: str) -> Path:
        return self.home / f"{name}.checkpoint"

    def batches(self, name: str) -> int:
        """How many batches were done."""
        return len(self._numbered(name, "commits"))

    def done(self, name: str) -> list[int]:
        """Where each queue stands after the last batch, if no batch is under way; sorted."""
        offsets, commits = self._numbered(name, "offsets"), self._numbered(name, "commits")
        if not offsets or [path.name for path in offsets] != [path.name for path in commits]:
            return []
        end: dict[str, Any] = json.loads(offsets[-1].read_text().splitlines()[-1])
        brokers = [brokers for topic, brokers in end.items() if topic not in NOTES]
        return [at for queues in brokers for by_id in queues.values() for at in by_id.values()]

    def _numbered(self, name: str, log: str) -> list[Path]:
        files = (self.checkpoint(name) / log).glob("[0-9]*")
        return sorted(files, key=lambda path: int(path.name))

    def rows(self, name: str) -> list[tuple[str, int, int]]:
        """Topic, queue and offset of every row that was written, sorted."""
        if not (self.home / name / "_spark_metadata").exists():
            return []
        written = self.spark.read.parquet(str(self.home / name))
        return sorted(
            (row.topic, row.queueId, row.queueOffset)
            for row in written.select("topic", "queueId", "queueOffset").collect()
        )


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def streams(spark: SparkSession, broker: AnyBroker, tmp_path: Path) -> Iterator[Streams]:
    streams = Streams(spark, broker, tmp_path, [])
    yield streams
    for query in streams.running:
        query.stop()


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    name = f"streamed-{next(_numbers)}"
    make_topic(broker, name, 2)
    return name


def expected(topic: str, *counts: int, first: int = 0) -> list[tuple[str, int, int]]:
    return [
        (topic, queue, offset) for queue, end in enumerate(counts) for offset in range(first, end)
    ]


def test_a_restart_in_the_middle_neither_loses_nor_repeats(streams: Streams, topic: str) -> None:
    fill(streams.broker, topic, bodies(2_000, 100))
    fill(streams.broker, topic, bodies(1_000, 100), queue_id=1)
    rows = streams.read(topic, maxBytesPerTrigger="100k")
    query = streams.start(rows, "table", OFTEN)
    eventually(lambda: streams.batches("table") > 1, within_s=WITHIN_S, what="two batches")
    query.stop()
    assert len(streams.rows("table")) < 3_000, "stopped too late to be a restart in the middle"
    fill(streams.broker, topic, bodies(500, 100))
    for _ in range(RUNS):
        streams.run(streams.read(topic, maxOffsetsPerTrigger=1_000), "table")
    assert streams.rows("table") == expected(topic, 2_500, 1_000)


def test_a_first_batch_that_fails_begins_at_the_same_place_again(
    streams: Streams, broker: AnyBroker
) -> None:
    told = {"group": "first"}
    state = {"stateLocation": str(streams.home / "state")}
    ways = {
        "latest": {"startingOffsets": "latest"},
        "kept": {"startingOffsets": "latest"} | state,
        "committed": {"startingOffsets": "committed", "fallbackOffsets": "latest"} | told,
    }
    seen: Counter[tuple[str, int]] = Counter()

    def fail(rows: DataFrame, number: int) -> None:
        raise ValueError("the first batch fails")

    def keep(rows: DataFrame, number: int) -> None:
        seen.update((row.topic, row.queueOffset) for row in rows.collect())

    for name, way in ways.items():
        make_topic(broker, name)
        fill(broker, name, bodies(10))
        rows = streams.read(name, **way)
        failing = streams.start(rows, name, AT_ONCE, fail)
        with pytest.raises(Exception, match="the first batch fails"):
            failing.awaitTermination(WITHIN_S)
        fill(broker, name, bodies(10))
        for _ in range(RUNS):
            assert streams.start(rows, name, AT_ONCE, keep).awaitTermination(WITHIN_S)
    wanted = {(name, offset): 1 for name in ways for offset in range(10, 20)}
    assert seen == wanted


def test_a_run_over_what_is_available_ends_and_the_broker_knows_how_far(
    streams: Streams, topic: str
) -> None:
    fill(streams.broker, topic, bodies(1_000))
    fill(streams.broker, topic, bodies(100), queue_id=1)
    rows = streams.read(topic, maxOffsetsPerTrigger=400, group="lake")
    for _ in range(RUNS):
        streams.run(rows, "limited")
    assert streams.batches("limited") == 3
    assert streams.rows("limited") == expected(topic, 1_000, 100)
    with RawConnection(streams.broker.address) as connection:
        assert committed_offsets(connection, "lake", topic, 2) == {0: 1_000, 1: 100}


def test_once_is_everything_in_one_batch_whatever_the_limit(streams: Streams, topic: str) -> None:
    fill(streams.broker, topic, bodies(50))
    streams.run(streams.read(topic, maxOffsetsPerTrigger=5), "once", once=True)
    assert streams.batches("once") == 1
    assert streams.rows("once") == expected(topic, 50 if RUNS == 1 else 5)


def test_a_stream_lives_through_idleness_new_queues_and_brokers_that_come_back(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    streams = Streams(spark, broker, tmp_path, [])
    make_topic(broker, "living", 2)
    make_topic(broker, "dying", 1)
    fill(broker, "living", bodies(10))
    fill(broker, "dying", bodies(10))
    # The least of limits: it goes to Spark and comes back as an object of Spark's.
    rows = streams.read("living,dying", minOffsetsPerTrigger=1, group="lives")
    query = streams.start(rows, "lives", OFTEN)
    try:
        eventually(lambda: streams.done("lives") == [10, 10, 0], within_s=WITHIN_S, what="all")
        batches = streams.batches("lives")
        assert not query.awaitTermination(1), query.exception()
        assert streams.batches("lives") == batches == 1, "no batch without messages"

        broker.stop()
        assert not query.awaitTermination(1), query.exception()
        broker.start()
        with RawConnection(broker.namesrv_address) as connection:
            assert connection.call(DELETE_TOPIC_IN_NAMESRV, {"topic": "dying"}).code == 0
        make_topic(broker, "living", 3)
        fill(broker, "living", bodies(10))
        fill(broker, "living", bodies(5), queue_id=2)
        ends = [10, 20, 0, 5]
        eventually(lambda: streams.done("lives") == ends, within_s=WITHIN_S, what="the new queue")
        assert query.isActive
    finally:
        query.stop()
    assert streams.rows("lives") == expected("dying", 10) + expected("living", 20, 0, 5)


def test_retention_that_overtakes_a_stream_fails_it_or_is_skipped(
    spark: SparkSession, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(mappedFileSizeCommitLog=1 << 20)
    streams = Streams(spark, broker, tmp_path, [])
    make_topic(broker, "slow", 1)
    fill(broker, "slow", bodies(100, 500))
    streams.run(streams.read("slow"), "slow")
    for _ in range(6):
        fill(broker, "slow", bodies(1_000, 500))
    expire(broker, 2)
    with pytest.raises(Exception, match=r"queue 0 of topic slow .*offsets \[100, "):
        streams.run(streams.read("slow"), "slow")
    assert len(streams.rows("slow")) == 100
    streams.run(streams.read("slow", failOnDataLoss="false"), "slow")
    rows = streams.rows("slow")
    first = rows[100][2]
    assert first > 1_000
    assert rows == expected("slow", 100) + expected("slow", 6_100, first=first)
