"""Trace messages, as Java clients write them, become rows; sends meet the tries of consumers."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from aerobee.client.trace_records import FIELDS
from aerobee.spark.trace import TYPES, joined, parse

pytestmark = pytest.mark.spark

BASE_MS = 1_700_000_000_000
ID = "7F00000100002A9F18B4AAC2{:08X}"


def record(kind: str, *fields: object) -> str:
    return "\x01".join([kind, *map(str, fields)]) + "\x02"


def pub(msg_id: str, at_ms: int = 0, *, success: str = "true", cost: int = 4) -> str:
    head = (BASE_MS + at_ms, "DefaultRegion", "p-group", "orders", msg_id, "TagA", "k1 k2")
    tail = ("127.0.0.1:10911", 11, cost, 3, "7F00000100002A9F0000000000000042", success)
    return record("Pub", *head, *tail, "10.0.0.7")


def before(request: str, msg_id: str, at_ms: int, retry: int = 0) -> str:
    who = ("DefaultRegion", "c-group", request, msg_id)
    return record("SubBefore", BASE_MS + at_ms, *who, retry, "k1 k2")


def after(request: str, msg_id: str, at_ms: int, code: int = 0) -> str:
    success = "true" if code == 0 else "false"
    end = (code, BASE_MS + at_ms, "c-group")
    return record("SubAfter", request, msg_id, 7, success, "k1 k2", *end)


def messages(spark: SparkSession, *bodies: str | bytes) -> DataFrame:
    rows = [
        (body.encode() if isinstance(body, str) else body, number)
        for number, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, "body binary, queueOffset bigint")


def instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp((BASE_MS + at_ms) / 1000, UTC).replace(tzinfo=None)


def known(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.asDict().items() if value is not None}


def test_each_kind_of_record_is_read_by_its_own_list_of_fields(spark: SparkSession) -> None:
    a, b = ID.format(1), ID.format(2)
    transaction = record(
        *("EndTransaction", BASE_MS, "DefaultRegion", "p-group", "orders", b, "null", "null"),
        *("127.0.0.1:10911", 2, "TX1", "COMMIT_MESSAGE", "false"),
    )
    recall = record("Recall", BASE_MS, "DefaultRegion", "p-group", "orders", b, "true")
    parsed = parse(
        messages(spark, pub(a) + before("R1", a, 9) + after("R1", a, 16, 2), transaction + recall)
    )
    assert parsed.columns == ["queueOffset", *TYPES]
    rows = [known(row) for row in parsed.orderBy("queueOffset", "kind").collect()]
    assert [row.pop("kind") for row in rows] == [
        *("Pub", "SubAfter", "SubBefore"),
        *("EndTransaction", "Recall"),
    ]
    ended, recalled = rows[3:]
    region = {"region": "DefaultRegion"}
    assert rows[0] == region | {
        "queueOffset": 0,
        "time": instant(0),
        "group": "p-group",
        "topic": "orders",
        "msgId": a,
        "tags": "TagA",
        "keys": "k1 k2",
        "storeHost": "127.0.0.1:10911",
        "clientHost": "10.0.0.7",
        "bodyLength": 11,
        "costMs": 4,
        "msgType": "DELAY",
        "offsetMsgId": "7F00000100002A9F0000000000000042",
        "success": True,
    }
    assert rows[1] == {
        "queueOffset": 0,
        "time": instant(16),
        "group": "c-group",
        "msgId": a,
        "requestId": "R1",
        "keys": "k1 k2",
        "costMs": 7,
        "success": False,
        "contextCode": "EXCEPTION",
    }
    assert rows[2]["retryTimes"] == 0
    assert ended == region | {
        "queueOffset": 1,
        "time": instant(0),
        "group": "p-group",
        "topic": "orders",
        "msgId": b,
        "storeHost": "127.0.0.1:10911",
        "msgType": "TRANSACTION_COMMIT",
        "transactionId": "TX1",
        "state": "COMMIT_MESSAGE",
        "fromCheck": False,
    }
    assert (recalled["success"], recalled["msgId"]) == (True, b)


def test_records_of_older_clients_lack_what_came_later(spark: SparkSession) -> None:
    head = ("Pub", BASE_MS, "DefaultRegion", "g", "t", "id", "null", "null", "h:1", 5, 6, 0)
    rows = parse(
        messages(
            spark,
            record(*head, "true"),
            record(*head, "offset-id", "false"),
            record("SubAfter", "R", "id", 3, "true", "null"),
        )
    ).orderBy("queueOffset")
    found = [(row.offsetMsgId, row.success, row.clientHost, row.tags) for row in rows.collect()]
    assert found == [
        (None, True, None, None),
        ("offset-id", False, None, None),
        (None, True, None, None),
    ]


def test_what_is_no_trace_is_a_row_with_a_kind_and_nulls_and_no_error(spark: SparkSession) -> None:
    parsed = parse(messages(spark, b"\xff\xfe no trace", "", "Pub\x01not a time\x02", "\x02\x02"))
    rows = [known(row) for row in parsed.orderBy("queueOffset").collect()]
    assert [row["queueOffset"] for row in rows] == [0, 2]
    assert rows[1] == {"queueOffset": 2, "kind": "Pub"}


def test_a_send_meets_every_try_of_every_group(spark: SparkSession) -> None:
    a, b, c = (ID.format(number) for number in range(3))
    bodies = (
        pub(a, 0, success="false") + pub(a, 5),
        before("R1", a, 25) + after("R1", a, 32, 1),
        before("R2", a, 10_025, retry=1) + after("R2", a, 10_032),
        # Sent as a batch, consumed as a batch: one Pub, one request id.
        pub(f"{b},{c}", 100),
        before("R3", b, 120) + before("R3", c, 120),
        after("R3", b, 127),
    )
    table = joined(parse(messages(spark, *bodies))).orderBy("msgId", "consumeTime")
    found = [
        (
            *(row.msgId, row.sends, row.sendSuccess, row.retryTimes),
            *(row.latencyMs, row.consumeSuccess, row.contextCode),
        )
        for row in table.collect()
    ]
    assert found == [
        (a, 2, True, 0, 25, False, "TIME_OUT"),
        (a, 2, True, 1, 10_025, True, "SUCCESS"),
        (b, 1, True, 0, 20, True, "SUCCESS"),
        (c, 1, True, 0, 20, None, None),
    ]


def test_nothing_is_dropped_that_only_one_side_traced(spark: SparkSession) -> None:
    bodies = (pub("sent"), before("R1", "begun", 9), after("R2", "ended", 9))
    rows = joined(parse(messages(spark, *bodies))).collect()
    found = {row.msgId: (row.topic, row.consumeTime, row.contextCode) for row in rows}
    assert found == {
        "sent": ("orders", None, None),
        "begun": (None, instant(9), None),
        "ended": (None, None, "SUCCESS"),
    }


def test_every_field_has_a_type() -> None:
    assert {name for names in FIELDS.values() for name in names} | {"kind"} == TYPES.keys()
