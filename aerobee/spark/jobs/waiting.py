"""Finds the messages of an archive that still wait: for a delay level, a timer, or a retry.

        all records of the archive
          → those that wait in a topic of the broker, without those that have left it
          → rows of their own topics and queues, with the time at which they are due

A message that waits is a record of a system topic, with its own topic and queue among its
properties. When it is due, the broker stores it again, with the same id, birth, body and number of
tries. So of equal messages as many are left as came later than the last that left.
Source: semantics §8, §9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.system_names import SCHEDULE_TOPIC, WHEEL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

HOLDERS = (SCHEDULE_TOPIC, WHEEL_TOPIC)
"""The topics in which messages wait."""
DUE = "deliverTime"
"""The column with the time at which a message is due; null for one that does not wait."""
UNKNOWN_LEVEL_MS = 1_000
"""The delay of a level that the broker does not have."""
PRECISION_MS = 1_000
"""How much a broker lowers the time of a timer at most."""
KEY = ("_topic", "_queue", "_timer", "msgId", "bornTimestamp", "bodyCRC", "reconsumeTimes")
"""The columns that a message that waits and its later copy have in common."""


class _DelayColumns(NamedTuple):
    """The delay of a record by its properties."""

    topic: Column
    queue: Column
    timer: Column
    rolls: Column
    deletes: Column


def waiting(records: DataFrame, levels_ms: Sequence[int]) -> DataFrame:
    """The messages of `records` (columns of an archive) that wait, with DUE as a further column.

    `topic` and `queueId` are those that they are for; `queueOffset` is that of the place where
    they wait. `levels_ms` are the delays of the broker's levels.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    delay = _said()
    rows = records.withColumns(
        {"_topic": delay.topic, "_queue": delay.queue, "_timer": delay.timer}
    )
    held = rows.where(sql.col("topic").isin(*HOLDERS) & sql.col("_topic").isNotNull())
    left = rows.where(_has_left(delay)).groupBy(*KEY).agg(sql.count("*").alias("_left"))
    deleted = held.where(delay.deletes.isNotNull()).select(
        "_topic", "_timer", _deleted_id(delay).alias("msgId")
    )
    order = Window.partitionBy(*KEY).orderBy("commitLogOffset")
    messages = held.where(delay.deletes.isNull()).withColumn("_turn", sql.row_number().over(order))
    same = [sql.col(f"_m.{name}").eqNullSafe(sql.col(f"_l.{name}")) for name in KEY]
    waiting = (
        messages.alias("_m")
        .join(left.alias("_l"), same, "left")
        .where("_m._turn > coalesce(_l._left, 0)")
        .select("_m.*")
        .join(deleted, ["_topic", "_timer", "msgId"], "left_anti")
    )
    due = waiting.withColumn(DUE, _due(levels_ms))
    own = {"topic": sql.col("_topic"), "queueId": sql.col("_queue")}
    return due.select(*(own.get(name, sql.col(name)).alias(name) for name in records.columns), DUE)


def _said() -> _DelayColumns:
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    return _DelayColumns(
        properties["REAL_TOPIC"],
        properties["REAL_QID"].try_cast("int"),
        properties["TIMER_OUT_MS"].isNotNull(),
        properties["TIMER_ROLL_TIMES"].try_cast("int"),
        properties["TIMER_DEL_UNIQKEY"],
    )


def _has_left(delay: _DelayColumns) -> Column:
    """Whether a record is the later copy of one that waited: delivered, or put back to wait on."""
    from pyspark.sql import functions as sql

    delivered = (sql.col("topic") == delay.topic) & (sql.col("queueId") == delay.queue)
    return delivered | ((sql.col("topic") == WHEEL_TOPIC) & (delay.rolls > 0))


def _deleted_id(delay: _DelayColumns) -> Column:
    """The id of the timer that a record takes back, which may stand behind its topic and a `+`."""
    from pyspark.sql import functions as sql

    prefix = sql.concat(delay.topic, sql.lit("+"))
    rest = sql.substring(delay.deletes, sql.length(prefix) + 1, sql.length(delay.deletes))
    return sql.when(delay.deletes.startswith(prefix), rest).otherwise(delay.deletes)


def _due(levels_ms: Sequence[int]) -> Column:
    """The time at which a message is due: that of its timer, or the store time and its level's."""
    from pyspark.sql import functions as sql

    properties = sql.col("properties")
    timer = sql.coalesce(
        properties["TIMER_DELIVER_MS"].try_cast("bigint"),
        properties["TIMER_OUT_MS"].try_cast("bigint") + PRECISION_MS,
    )
    delays = sql.array(*map(sql.lit, levels_ms or [UNKNOWN_LEVEL_MS]))
    delay = sql.coalesce(
        sql.get(delays, properties["DELAY"].try_cast("int") - 1), sql.lit(UNKNOWN_LEVEL_MS)
    )
    level = sql.unix_millis("storeTimestamp") + delay
    return sql.timestamp_millis(sql.when(sql.col("topic") == WHEEL_TOPIC, timer).otherwise(level))
