"""Namespaces of 4.x: names as the Java client makes them, and messages between the two clients."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import aerobee
from aerobee import ConsumeFrom, Message, ReceivedMessage
from aerobee.blocking import AdminClient
from aerobee.client.namespaces import plain, wrapped
from aerobee.client.system_names import SYSTEM_TOPICS
from aerobee.errors import ConfigurationError
from aerobee.spark.jobs.common import cluster_at
from aerobee.spark.lag import read as lag
from aerobee.spark.options import LagOptions, lag_options
from aerobee.spark.sink.writer import ArrowWriter, Task, checked, row_schema
from tests.aerobee.client.fronts import FRONTS, Front
from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.kit.allocations import named
from tests.kit.java import VERSIONS
from tests.kit.java_driver import JavaClient
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

NS = "ns1"
SCHEMA = StructType([StructField("body", BinaryType())])
NEW_SINCE_4 = {
    "CHECKPOINT_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
"""Topics of the system that 4.9 takes for a user's."""
NAMES = [
    *("T", "ns1", "ns1%T", "%RETRY%G", "%RETRY%ns1%G", "%DLQ%G", "%DLQ%ns1%G", "ns2%T", "%T", "T%"),
    *("%RETRY%", "%RETRY%G_ns1%T", "%RETRY%G+T", "ns1%%RETRY%G", "rmq_sys_x", "RMQ_SYS_X", "ns1%"),
    *("CID_RMQ_SYS_X", "CID_ONS", "TOOLS_CONSUMER", "c_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC", "a|b"),
    *("%RETRY%CID_RMQ_SYS_X", "ns1%TBW102", "ns1%CID_RMQ_SYS_X", "RMQ_SYS_TRANS_HALF_TOPIC"),
    *sorted(SYSTEM_TOPICS | NEW_SINCE_4),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_are_those_that_java_makes(version: str, java_client: GetClient) -> None:
    java = java_client(version, "JSON")
    listed = [name for name in NAMES if version[0] > "4" or name not in NEW_SINCE_4]
    rows = java.call("names", namespace=NS, names="\n".join(listed))
    for name, row in zip(listed, rows, strict=True):
        full = wrapped(name, NS)
        assert (full, plain(full, NS), plain(name, NS)) == (
            row["wrapped"],
            row["back"],
            row["plain"],
        ), name


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(messageDelayLevel="1s 1s 1s 1s")


@pytest.fixture(params=list(zip(FRONTS, (*VERSIONS, "5.5.0"), strict=True)), ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A front of ours, and the version of the Java client that it meets."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def anyio_backend(pair: tuple[str, str]) -> str:
    return "trio" if pair[0] == "trio" else "asyncio"


@pytest.fixture
def java(pair: tuple[str, str], java_client: GetClient) -> JavaClient:
    return java_client(pair[1], "JSON")


async def in_thread(call: Any, *arguments: Any, **named: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: call(*arguments, **named))


@asynccontextmanager
async def consuming(front: Front, group: str, topic: str, **options: Any) -> AsyncIterator[Any]:
    """What a push consumer of ours in the namespace gets; the first try of `again` fails."""
    got: list[ReceivedMessage] = []

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        got.extend(messages)
        if messages[0].body == b"again" and not messages[0].reconsume_times:
            raise ValueError("on purpose")

    consumer = front.push(group, namespace=NS, start_from=ConsumeFrom.FIRST, **options)
    consumer.subscribe(topic, handler=front.handler(handle))
    async with consumer:
        yield got


@pytest.mark.anyio
async def test_java_and_python_meet_in_a_namespace(
    pair: tuple[str, str], broker: AnyBroker, java: JavaClient
) -> None:
    front, where = Front(pair[0], broker.namesrv_address), broker.namesrv_address
    topic = f"Meeting-{'-'.join(pair).replace('.', '_')}"
    try:
        async with front.producer(namespace=NS) as producer:
            await producer.send(Message(topic, b"ours"))
            await in_thread(java.producer, topic, where, namespace=NS)
            await in_thread(java.send, topic, topic, ["theirs", "again"])
            await in_thread(java.consumer, f"{topic}-c", where, topic, namespace=NS)
            async with consuming(front, f"{topic}-g", topic) as got:
                with anyio.fail_after(30.0):
                    while len(got) < 4:  # noqa: ASYNC110  (true of threads as well)
                        await anyio.sleep(0.02)
            assert sorted((one.topic, one.original_topic, one.body) for one in got) == [
                (topic, topic, b"again"),
                (topic, topic, b"again"),
                (topic, topic, b"ours"),
                (topic, topic, b"theirs"),
            ]
            received = await in_thread(java.received, f"{topic}-c", 3, within_s=30.0)
            assert {one.topic for one in received} == {topic}
            assert sorted(one.body for one in received) == ["again", "ours", "theirs"]
    finally:
        java.call("clear")


@pytest.mark.anyio
async def test_members_share_the_queues_of_a_namespace(
    pair: tuple[str, str], broker: AnyBroker, java: JavaClient
) -> None:
    front, where = Front(pair[0], broker.namesrv_address), broker.namesrv_address
    topic = f"Shared-{'-'.join(pair).replace('.', '_')}"
    name = "NEARBY-CONSISTENT_HASH" if pair[0] == "trio" else "CONSISTENT_HASH"
    group, hashed = f"{topic}-g", {"strategy": name}
    async with front.admin(namespace=NS) as admin:
        await admin.create_topic(topic, queues=8)
    consumer = front.push(group, namespace=NS, strategy=named(name))
    consumer.subscribe(topic, handler=front.handler(lambda _: None))
    try:
        async with consumer:
            await in_thread(java.consumer, topic, where, topic, group=group, namespace=NS, **hashed)
            full = wrapped(topic, NS)
            with anyio.fail_after(40.0):
                while True:
                    ours = {one.queue_id for one in consumer.assignment if one.topic == topic}
                    theirs = set(await in_thread(java.assigned, topic, full))
                    if theirs and not ours & theirs and len(ours | theirs) == 8:
                        break
                    await anyio.sleep(0.05)
    finally:
        java.call("clear")


@pytest.mark.anyio
async def test_requests_are_answered_in_a_namespace(
    pair: tuple[str, str], broker: AnyBroker, java: JavaClient
) -> None:
    front, where = Front(pair[0], broker.namesrv_address), broker.namesrv_address
    topic = f"Asked-{'-'.join(pair).replace('.', '_')}"
    async with front.admin(namespace=NS) as admin:
        await admin.create_topic(topic, queues=1)
    try:
        await in_thread(java.answerer, topic, where, topic, suffix="!", namespace=NS)
        async with front.producer(namespace=NS, group=f"{topic}-asker") as producer:
            answer = await producer.request(Message(topic, b"?"), timeout=20.0)
        assert answer.body == b"?!"
    finally:
        java.call("clear")


def test_spark_reads_writes_and_counts_in_a_namespace(
    broker: AnyBroker, java_client: GetClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, topic, group = broker.namesrv_address, "Sparked", "Sparked-g"
    java = java_client("4.9.7", "JSON")
    with AdminClient(where, namespace=NS) as admin:
        admin.create_topic(topic, queues=2)
    options = {"nameServer": where, "namespace": NS}
    try:
        java.producer(topic, where, namespace=NS)
        java.send(topic, topic, ["theirs"])
        writer = ArrowWriter(checked(options | {"topic": topic}), row_schema(SCHEMA))
        rows = pa.record_batch({"body": [b"ours"]})
        assert writer.write_batches(iter([rows]), Task(0)).sent == 1
        java.consumer(group, where, topic, group=group, namespace=NS)
        received = java.received(group, 2, within_s=30.0)
        assert sorted(one.body for one in received) == ["ours", "theirs"]
        java.commit(group)
        # Jobs are told by the environment, as the command line is.
        monkeypatch.setenv("AEROBEE_NAMESPACE", NS)
        assert topic in cluster_at(where).topics()
        asked = lag_options({"nameserver": where, "groups": group, "topics": topic})
        eventually(partial(nothing_behind, asked), within_s=30, what="no lag")
    finally:
        java.call("clear")
    found = aerobee.arrow(topic, namesrv=where, columns="topic,body,properties").to_pylist()
    assert {one["topic"] for one in found} == {topic}
    assert {one["body"]: dict(one["properties"])["INSTANCE_ID"] for one in found} == {
        b"ours": NS,
        b"theirs": NS,
    }
    monkeypatch.delenv("AEROBEE_NAMESPACE")
    outside = aerobee.arrow(wrapped(topic, NS), namesrv=where, columns="topic").to_pylist()
    assert {one["topic"] for one in outside} == {wrapped(topic, NS)}
    with pytest.raises(ConfigurationError, match=r"option namespace: .*without %"):
        aerobee.arrow(topic, namesrv=where, options={"namespace": "a%b"})


def nothing_behind(options: LagOptions) -> bool:
    rows = lag.read(options, ("topic", "lag")).to_pylist()
    own = [one["lag"] for one in rows if one["topic"] == "Sparked"]
    return len(own) == 2 and not any(own)
