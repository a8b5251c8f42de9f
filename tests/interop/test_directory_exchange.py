"""A store directory moves between the Java broker and ours, both ways, after a clean stop.

Whoever opens the directory must show every record bit for bit where it was, every offset, every
topic; a real consumer goes on where its group was, and the queues go on without a gap.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import AnyBroker
from tests.interop.conftest import GetClient, wait_for_commits
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection, RawRecord, send_fields
from tests.kit.reading import committed_offsets, find_by_key, max_offset, read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TOPIC, GROUP, QUEUES = "moved", "group-of-moved", 4
SMALL_LOG = {"mappedFileSizeCommitLog": 262_144}
"""Small enough that the records below fill several files."""

Books = tuple[dict[int, list[RawRecord]], dict[int, int]]
"""What must be the same on both sides: records by queue, consumer offsets by queue."""


def fill(broker: AnyBroker, client: JavaClient) -> Books:
    """200 messages sent in three ways, of which a group has consumed the first 100."""
    names = broker.namesrv_address
    client.topic(names, broker.address, TOPIC, queues=QUEUES)
    client.producer("p", names)
    eventually(
        lambda: client.call("queues", producer="p", topic=TOPIC), within_s=10, what="a route"
    )
    client.send("p", TOPIC, [f"first {n} " * 400 for n in range(90)], how="async", tags="A")
    client.send("p", TOPIC, [f"batched {n}" for n in range(10)], how="batch", keys="k")
    client.consumer("c", names, TOPIC, group=GROUP)
    assert len(client.received("c", 100)) == 100
    wait_for_commits(client, "c", broker.address, GROUP, TOPIC, total=100)
    client.stop(consumer="c")
    client.send("p", TOPIC, [f"second {n} ✓" for n in range(100)], keys="k1 k2")
    client.call("clear")
    return books(broker)


def books(broker: AnyBroker) -> Books:
    with RawConnection(broker.address) as connection:
        records = {queue: read_topic(connection, TOPIC, queue) for queue in range(QUEUES)}
        return records, committed_offsets(connection, GROUP, TOPIC, QUEUES)


def expect(broker: AnyBroker, client: JavaClient, expected: Books) -> None:
    """All of the books, the group's next 100 messages, and room for one more in each queue."""
    found = books(broker)
    assert found[1] == expected[1], "consumer offsets"
    assert found[0] == expected[0], "records"
    assert sum(map(len, found[0].values())) == 200

    client.consumer("c", broker.namesrv_address, TOPIC, group=GROUP)
    received = [message.body for message in client.received("c", 100)]
    assert sorted(received) == sorted(f"second {n} ✓" for n in range(100))

    with RawConnection(broker.address) as connection:
        for queue, records in found[0].items():
            answer = connection.call(310, send_fields(TOPIC, queue), b"one more")
            assert (answer.code, answer.ext.get("queueOffset")) == (0, str(len(records))), answer
    assert len(client.received("c", 104)) == 104
    client.call("clear")
    expect_keys(broker, found[0])


def expect_keys(broker: AnyBroker, queues: dict[int, list[RawRecord]]) -> None:
    """What the index of the other broker says is true, and it goes on here."""
    stored = [record for records in queues.values() for record in records]
    with RawConnection(broker.address) as connection:
        found = find_by_key(connection, TOPIC, "k")
        assert sorted(record.body for record in found) == sorted(
            f"batched {n}".encode() for n in range(10)
        )
        assert len(find_by_key(connection, TOPIC, "k2")) == 64
        assert all(record in stored for record in found)
        properties = {"i": "KEYS\x01anew k\x02"}
        answer = connection.call(310, send_fields(TOPIC, 0) | properties, b"anew")
        assert answer.code == 0
        eventually(
            lambda: len(find_by_key(connection, TOPIC, "anew")) == 1,
            within_s=10,
            what="the new message in the index",
        )
        assert len(find_by_key(connection, TOPIC, "k")) == 11


@contextmanager
def java_broker(
    version: str, data: Path, namesrv: JavaNamesrv, **settings: object
) -> Iterator[JavaBroker]:
    java = toolkit(version)
    home = data.with_name("java-home")
    with JavaBroker(
        toolkit=java,
        data=data,
        home=home,
        namesrv_address=namesrv.address,
        settings=SMALL_LOG | settings,
    ) as broker:
        yield broker


@contextmanager
def our_broker(data: Path, **settings: object) -> Iterator[BrokerProcess]:
    names = {"brokerName": "broker-a"}
    with BrokerProcess(data=data, settings=SMALL_LOG | names | settings) as broker:
        yield broker


@pytest.fixture
def new_client(java_client: GetClient) -> Iterator[JavaClient]:
    client = java_client("5.5.0", "JSON")
    yield client
    client.call("clear")


@pytest.mark.parametrize("version", VERSIONS)
def test_ours_opens_what_java_wrote(
    version: str, new_client: JavaClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with java_broker(version, data, java_namesrv) as java:
        expected = fill(java, new_client)
        java.stop()
    assert not (data / "abort").exists(), "Java did not stop cleanly"
    with our_broker(data) as ours:
        assert ours.ready is not None
        assert ours.ready.recovered == "clean"
        expect(ours, new_client, expected)


def leave_a_reset(data: Path) -> None:
    """As if a running consumer had not got one before the stop; Java knows nothing of them."""
    file = data / "config" / "consumerOffset.json"
    document = json.loads(file.read_bytes())
    file.write_text(json.dumps(document | {"resets": {f"{TOPIC}@another@0": 3}}))


@pytest.mark.parametrize("version", VERSIONS)
def test_java_opens_what_ours_wrote(
    version: str, new_client: JavaClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with our_broker(data) as ours:
        expected = fill(ours, new_client)
        assert ours.stop() == 0
    assert not (data / "abort").exists(), "ours did not stop cleanly"
    leave_a_reset(data)
    with java_broker(version, data, java_namesrv) as java:
        expect(java, new_client, expected)


DELAYS = {"messageDelayLevel": "1s 20s 40s"}
"""Due at the first broker, at the second, and at the first again."""


def how_many(broker: AnyBroker) -> int:
    """How many messages the topic has by now."""
    with RawConnection(broker.address) as connection:
        return sum(max_offset(connection, TOPIC, queue) for queue in range(QUEUES))


def arrived(broker: AnyBroker) -> list[str]:
    """What the topic has, sorted, while nothing more arrives."""
    with RawConnection(broker.address) as connection:
        queues = [read_topic(connection, TOPIC, queue) for queue in range(QUEUES)]
    return sorted(record.body.decode() for records in queues for record in records)


def test_parked_messages_are_delivered_once_wherever_they_become_due(
    new_client: JavaClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    sent = {level: [f"level {level} {n}" for n in range(5)] for level in (1, 2, 3)}
    with java_broker("5.5.0", data, java_namesrv, **DELAYS) as java:
        new_client.topic(java.namesrv_address, java.address, TOPIC, queues=QUEUES)
        new_client.producer("p", java.namesrv_address)
        eventually(
            lambda: new_client.call("queues", producer="p", topic=TOPIC),
            within_s=10,
            what="a route",
        )
        for level, bodies in sent.items():
            new_client.send("p", TOPIC, bodies, delay=level)
        eventually(lambda: how_many(java) == 5, within_s=10, what="the first at Java")
        assert arrived(java) == sent[1]
        new_client.call("clear")
        java.stop()
    with our_broker(data, **DELAYS) as ours:
        both = sorted(sent[1] + sent[2])
        eventually(lambda: how_many(ours) >= 10, within_s=40, what="the second here")
        assert arrived(ours)[:10] == both
        assert ours.stop() == 0
    with java_broker("5.5.0", data, java_namesrv, **DELAYS) as java:
        everything = sorted(sent[1] + sent[2] + sent[3])
        eventually(lambda: how_many(java) >= 15, within_s=60, what="the third at Java")
        assert arrived(java) == everything
