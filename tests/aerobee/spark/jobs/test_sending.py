"""What is sent again is what the user had sent, and says so; what brokers added is gone."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any
from zlib import crc32

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from aerobee.client.message import RESERVED_PROPERTIES
from aerobee.spark.jobs.sending import (
    AS_SENT,
    BORN,
    FROM,
    NEEDED,
    REPLAY,
    new_run,
    outgoing,
    planned,
)
from aerobee.store.format.record import CRC_MASK
from tests.aerobee.spark.filling import fill, make_topic
from tests.aerobee.spark.reading_back import read_back
from tests.conftest import StartBroker

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[4] / "examples" / "spark"

DDL = (
    "topic string, brokerName string, queueId int, queueOffset bigint, "
    "commitLogOffset bigint, body binary, tags string, "
    "keys string, properties map<string,string>, msgId string, flag int, sysFlag int, bodyCRC int"
)

CRC = crc32(b"body") & CRC_MASK


def test_the_users_properties_stay_and_the_brokers_go(spark: SparkSession) -> None:
    theirs = dict.fromkeys([*RESERVED_PROPERTIES, "TIMER_X", "INNER_X", "AB_SINK", REPLAY], "x")
    theirs["__SHARDINGKEY"] = "customer 7"
    users = {"trace": "t-1", "empty": "", "UNIQ": "y"}
    rows = [
        ("orders", "b", 3, 9, 700, b"body", "EU", "k1 k2", theirs | users, "ID", 5, 0, CRC),
        ("orders", "b", 0, 1, 80, b"", None, None, None, None, 0, 1, 7),
    ]
    messages = spark.createDataFrame(rows, DDL)
    assert messages.columns == list(NEEDED)
    out = outgoing(messages, sql.lit("copy"), "run-1", keep_queues=False).persist()
    first, second = out.collect()
    assert first.asDict() == {
        "topic": "copy",
        "body": b"body",
        "tags": "EU",
        "keys": "k1 k2",
        "properties": users | {REPLAY: "run-1", FROM: "b/orders/3/9/700"},
        "msgId": "ID",
        "flag": 5,
        "shardingKey": "customer 7",
    }
    told = {REPLAY: "run-1", FROM: "b/orders/0/1/80"}
    assert (second.properties, second.shardingKey) == (told, None)
    assert [row.asDict() for row in planned(out).collect()] == [
        {"topic": "copy", "messages": 2, "bodyBytes": 4}
    ]
    born = messages.withColumn(BORN, sql.timestamp_millis(sql.lit(7)))
    kept = outgoing(born, sql.col("topic"), "run-1", keep_queues=True).collect()[0]
    assert (kept.queueId, kept.shardingKey, kept.topic) == (3, "customer 7", "orders")
    assert BORN in kept


@pytest.mark.parametrize(
    ("body", "sys_flag", "crc"),
    [(b"bodY", 0, CRC), (b"body", 1, CRC), (None, 1, CRC), (None, 0, CRC)],
    ids=["altered", "still compressed", "compressed and altered", "nothing"],
)
def test_a_body_that_is_not_as_it_was_sent_is_not_sent(
    spark: SparkSession, body: bytes | None, sys_flag: int, crc: int
) -> None:
    own = {"trace": "t-1"}
    rows = [
        ("t", "b", 0, 1, 2, b"body", None, None, own, "ID", 0, 0, CRC),
        ("t", "b", 0, 2, 4, b"body", None, None, own, "ID", 0, 1, CRC + 1),
        ("t", "b", 0, 9, 8, body, None, None, own, "ID", 0, sys_flag, crc),
    ]
    messages = spark.createDataFrame(rows, DDL)
    out = outgoing(messages, sql.col("topic"), "run-1", keep_queues=False)
    with pytest.raises(PySparkException, match=r"message at b/t/0/9/8 has a body that is damaged"):
        out.collect()
    left = outgoing(messages.where(AS_SENT), sql.col("topic"), "run-1", keep_queues=False)
    assert [row.body for row in left.collect()] == [b"body", b"body"]


def test_each_run_has_a_name_of_its_own() -> None:
    assert new_run() != new_run()


def example(name: str) -> Callable[..., None]:
    """The `main` of a program that users copy."""
    main: Callable[..., None] = runpy.run_path(str(EXAMPLES / name))["main"]
    return main


def test_the_examples_count_json_and_mirror_a_topic(
    spark: SparkSession,
    start_broker: StartBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    here, there = start_broker(), start_broker()
    for broker in (here, there):
        make_topic(broker, "orders", 2)
    bodies = [json.dumps({"country": "DE", "amount": number}).encode() for number in range(20)]
    fill(here, "orders", bodies, queue_id=1, TAGS="EU", UNIQ_KEY="ID", colour="blue")
    example("count_json.py")(here.namesrv_address)
    assert "|DE     |20    |190.0 |" in capsys.readouterr().out

    taken: list[Any] = []

    def stop_when_all_is_there() -> None:
        try:
            taken.extend(read_back(there, "orders", 20))
        finally:
            for query in spark.streams.active:
                query.stop()

    watching = Thread(target=stop_when_all_is_there)
    watching.start()
    place = (here.namesrv_address, there.namesrv_address, "orders")
    example("mirror.py")(*place, str(tmp_path / "checkpoint"))
    watching.join()
    assert [(one.body, one.queue.queue_id, one.tag) for one in taken] == [
        (body, 1, "EU") for body in bodies
    ]
    assert (taken[0].message_id, taken[0].properties["colour"]) == ("ID", "blue")
