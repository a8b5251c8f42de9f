"""Which messages of an archive still wait: those that came later than the last that left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.spark.jobs.waiting import DUE, waiting
from aerobee.store.format.system_names import WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1_000
LEVELS_MS = [1_000, 60_000]
DDL = (
    "topic string, queueId int, queueOffset bigint, commitLogOffset bigint, msgId string, "
    "bornTimestamp timestamp, storeTimestamp timestamp, bodyCRC int, reconsumeTimes int, "
    "properties map<string,string>"
)


class Log:
    """Records of a log, one after the other, each stored a second later."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def put(
        self, topic: str, queue_id: int, msg_id: str | None, tries: int = 0, /, **said: str
    ) -> None:
        number = len(self.rows)
        stored = NOON + timedelta(seconds=number)
        place = (topic, queue_id, number, number * 100)
        self.rows.append((*place, msg_id, NOON, stored, 7, tries, said))

    def level(
        self, msg_id: str | None, level: int = 1, *, to: str = "orders", tries: int = 0
    ) -> None:
        """A message that waits for a delay level."""
        said = {"DELAY": str(level), "REAL_TOPIC": to, "REAL_QID": "3"}
        self.put(DELAY_TOPIC, level - 1, msg_id, tries, **said)

    def timer(self, msg_id: str | None, **said: str) -> None:
        """A message that waits for its time, ten minutes after noon."""
        at = {"TIMER_OUT_MS": str(NOON_MS + 599_000), "REAL_TOPIC": "orders", "REAL_QID": "3"}
        self.put(WHEEL_TOPIC, 0, msg_id, **at | said)

    def leave(self, number: int) -> None:
        """The broker stores a message again in its own topic."""
        row = self.rows[number]
        said = row[-1]
        self.put(said["REAL_TOPIC"], int(said["REAL_QID"]), row[4], row[8], **said)

    def waiting(self, spark: SparkSession) -> Sequence[Any]:
        records = spark.createDataFrame(self.rows, DDL)
        found = waiting(records, LEVELS_MS)
        assert found.columns == [*records.columns, DUE]
        return found.orderBy("commitLogOffset").collect()


def test_a_message_waits_until_it_is_stored_in_its_own_topic(spark: SparkSession) -> None:
    log = Log()
    log.level("A")
    log.level("B", 2)
    log.level("C", 9)
    log.timer("D")
    log.timer("E", TIMER_DELIVER_MS=str(NOON_MS + 599_500))
    log.timer("F")
    log.put("orders", 3, "sent without delay")
    for left in (0, 3):
        log.leave(left)
    found = log.waiting(spark)
    assert [(row.msgId, row.topic, row.queueId, row.queueOffset) for row in found] == [
        ("B", "orders", 3, 1),
        ("C", "orders", 3, 2),
        ("E", "orders", 3, 4),
        ("F", "orders", 3, 5),
    ]
    due_ms = [row[DUE].timestamp() * 1_000 - NOON_MS for row in found]
    assert due_ms == [1_000 + 60_000, 2_000 + 1_000, 599_500, 600_000], "never early"


def test_equal_messages_are_counted(spark: SparkSession) -> None:
    """They have no id, and the same body at the same time."""
    log = Log()
    for _ in range(3):
        log.level(None)
    log.leave(0)
    log.level(None)
    assert [row.queueOffset for row in log.waiting(spark)] == [1, 2, 4]


def test_a_retry_waits_beside_the_copies_of_other_tries(spark: SparkSession) -> None:
    log = Log()
    log.level("A")
    log.leave(0)
    log.level("A", 2, to="%RETRY%shop", tries=1)
    log.leave(2)
    log.level("A", 2, to="%RETRY%shop", tries=2)
    found = log.waiting(spark)
    assert [(row.topic, row.queueId, row.reconsumeTimes) for row in found] == [
        ("%RETRY%shop", 3, 2)
    ]


def test_a_timer_that_was_put_back_waits_once_and_one_that_was_taken_back_not_at_all(
    spark: SparkSession,
) -> None:
    log = Log()
    for msg_id in ("far", "come", "gone", "gone too", "other"):
        log.timer(msg_id)
    log.timer("far", TIMER_ROLL_TIMES="1")
    log.timer("come", TIMER_ROLL_TIMES="1")
    log.timer("far", TIMER_ROLL_TIMES="2")
    log.leave(6)
    log.timer("gone", TIMER_DEL_UNIQKEY="gone")
    log.timer("gone too", TIMER_DEL_UNIQKEY="orders+gone too")
    assert [(row.msgId, row.queueOffset) for row in log.waiting(spark)] == [
        ("other", 4),
        ("far", 7),
    ]
