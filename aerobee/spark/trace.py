"""Message traces as rows: the records of producers and consumers in RMQ_SYS_TRACE_TOPIC.

A trace message has records that end with 0x02, whose fields are separated by 0x01. The first field
is the kind, and each kind has its own list of fields (`trace_records`). All work is done by
functions of Spark SQL, without Python per row.
Source: the clients' trace encoding (TraceDataEncoder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from aerobee.client.trace_records import (
    CONTEXT_CODES,
    FIELD_END,
    FIELDS,
    MESSAGE_TYPES,
    RECORD_END,
    SHORT_PUB,
)
from aerobee.store.format.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["DEFAULT_TOPIC", "TYPES", "joined", "parse"]

DEFAULT_TOPIC = TRACE_TOPIC
TYPES = {
    "kind": "string",
    "time": "timestamp",
    "region": "string",
    "group": "string",
    "topic": "string",
    "msgId": "string",
    "requestId": "string",
    "tags": "string",
    "keys": "string",
    "storeHost": "string",
    "clientHost": "string",
    "bodyLength": "int",
    "costMs": "int",
    "msgType": "string",
    "offsetMsgId": "string",
    "success": "boolean",
    "retryTimes": "int",
    "contextCode": "string",
    "transactionId": "string",
    "state": "string",
    "fromCheck": "boolean",
}
"""The types of a parsed record's columns; columns that a kind does not have are null."""
NAMED = {"msgType": MESSAGE_TYPES, "contextCode": CONTEXT_CODES}
"""Fields with numbers for names; unknown numbers stay as they are."""


def parse(df: DataFrame, body: str = "body") -> DataFrame:
    """One row per trace record, columns of TYPES; the messages' other columns come before them.

    `body` (binary or string) is split; other columns are kept unless their names are taken. Records
    of unknown kinds keep their `kind`, the rest is null. A field that should be a number and is not
    is null.
    """
    kept = [name for name in df.columns if name not in TYPES and name != body]
    text = sql.make_valid_utf8(sql.col(body).cast("string"))
    records = df.select(
        *(sql.col(f"`{name}`") for name in kept),
        sql.explode(sql.split(text, RECORD_END)).alias("_record"),
    ).where("_record <> ''")
    fields = records.withColumn("_fields", sql.split("_record", FIELD_END)).withColumn(
        "kind", sql.get("_fields", sql.lit(0))
    )
    return fields.select(
        *(sql.col(f"`{name}`") for name in kept),
        "kind",
        *(_column(name, kind).alias(name) for name, kind in TYPES.items() if name != "kind"),
    )


def _column(name: str, kind: str) -> Column:
    """A field by its index in the kind's list, converted to its type."""
    raw: Column = sql.lit(None).cast("string")
    for record, names in FIELDS.items():
        if name in names:
            raw = sql.when(sql.col("kind") == record, _place(record, name, names)).otherwise(raw)
    # Java writes "null" for missing values.
    raw = sql.when(raw.isin("null", ""), None).otherwise(raw)
    if name in NAMED:
        number = raw.try_cast("int")
        named = sql.get(sql.array(*map(sql.lit, NAMED[name])), number)
        return sql.coalesce(named, raw)
    if kind == "timestamp":
        return sql.timestamp_millis(raw.try_cast("bigint"))
    return raw.try_cast(kind)


def _place(record: str, name: str, names: tuple[str, ...]) -> Column:
    """The field with this name; null if a record ends before it."""
    field = sql.get("_fields", sql.lit(1 + names.index(name)))
    if record != "Pub" or name not in ("success", "offsetMsgId"):
        return field
    short = sql.get("_fields", sql.lit(SHORT_PUB - 1)) if name == "success" else sql.lit(None)
    return sql.when(sql.size("_fields") == SHORT_PUB, short).otherwise(field)


def joined(parsed: DataFrame) -> DataFrame:
    """One row per message and try of a consumer group, from the rows of `parse`.

    Sends and consumption are joined by msgId, start and end of a try by requestId and msgId.
    Nothing is dropped: a message whose consumption was not traced has nulls there, and so has one
    whose send was not traced. A batch of messages is sent once and has a row for each. `latencyMs`
    is from the start of the send to the start of the try.
    """
    sends = _sends(parsed).alias("sent")
    tries = _tries(parsed).alias("tried")
    both = sends.join(tries, sql.col("sent.msgId") == sql.col("tried.msgId"), "full_outer")
    latency = sql.unix_millis("consumeTime") - sql.unix_millis("sendTime")
    sent = ("topic", "tags", "keys", "producerGroup", "producerHost", "storeHost", "bodyLength")
    send = ("msgType", "sends", "sendTime", "sendCostMs", "sendSuccess")
    consume = ("consumerGroup", "retryTimes", "consumeTime", "consumeCostMs", "consumeSuccess")
    return both.select(
        sql.coalesce("sent.msgId", "tried.msgId").alias("msgId"),
        *sent,
        *send,
        *consume,
        "contextCode",
        latency.alias("latencyMs"),
    )


def _sends(parsed: DataFrame) -> DataFrame:
    """One row per message sent: the last of several tries, and their number."""
    last = {
        "topic": "topic",
        "tags": "tags",
        "keys": "keys",
        "group": "producerGroup",
        "clientHost": "producerHost",
        "storeHost": "storeHost",
        "bodyLength": "bodyLength",
        "msgType": "msgType",
        "costMs": "sendCostMs",
    }
    sent = parsed.where("kind = 'Pub'").withColumn(
        # A batch is one record with the ids of its messages.
        "msgId",
        sql.explode(sql.split("msgId", ",")),
    )
    return sent.groupBy("msgId").agg(
        sql.count("*").alias("sends"),
        sql.min("time").alias("sendTime"),
        sql.coalesce(sql.max("success"), sql.lit(False)).alias("sendSuccess"),
        *(sql.max_by(name, "time").alias(alias) for name, alias in last.items()),
    )


def _tries(parsed: DataFrame) -> DataFrame:
    """One row per message and try of a consumer; a try without an end has nulls."""
    before = parsed.where("kind = 'SubBefore'").alias("before")
    after = parsed.where("kind = 'SubAfter'").alias("after")
    same = (sql.col("before.requestId") == sql.col("after.requestId")) & (
        sql.col("before.msgId") == sql.col("after.msgId")
    )
    return before.join(after, same, "full_outer").select(
        sql.coalesce("before.msgId", "after.msgId").alias("msgId"),
        sql.coalesce("before.group", "after.group").alias("consumerGroup"),
        "before.retryTimes",
        sql.col("before.time").alias("consumeTime"),
        sql.col("after.costMs").alias("consumeCostMs"),
        sql.col("after.success").alias("consumeSuccess"),
        "after.contextCode",
    )
