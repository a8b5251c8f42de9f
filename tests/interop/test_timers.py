"""Timers with real clients, and timers that wait while their directory goes to the other broker.

What waits when a broker stops cleanly comes at its time from whoever opens the directory, once;
what was taken back stays away.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import toolkit
from tests.kit.java_driver import JavaClient, JavaError
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection, RawRecord, properties_text, send_fields
from tests.kit.reading import max_offset, read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TOPIC = "timed"
SEND_MESSAGE_V2, RECALL_MESSAGE = 310, 370
WHEEL_TOPIC = "rmq_sys_wheel_timer"
ILLEGAL_OPERATION = 604
TAKEN_BACK, LATE_S = b"20 s, 0", 4
TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true", "brokerName": "broker-a"}
SHORT_ROLL = {"timerRollWindowSlot": "12"}
"""Timers more than 12 s ahead go round: here they do so on both sides of the exchange."""


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    """The broker of this module."""
    return shared_broker(recallMessageEnable=True, timerWheelEnable=True)


def test_a_real_client_sends_timers_and_takes_one_back(
    java_client: GetClient, broker: AnyBroker, topic: str
) -> None:
    client = java_client("5.5.0", "ROCKETMQ")
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["makes the topic"])
    client.consumer("c", broker.namesrv_address, topic)
    assert len(client.received("c", 1)) == 1
    began = time.monotonic()
    [kept] = client.send("p", topic, ["kept"], **{"property.TIMER_DELAY_SEC": "4"})
    [back] = client.send("p", topic, ["taken back"], **{"property.TIMER_DELAY_SEC": "4"})
    assert kept.handle
    assert client.recall("p", topic, back.handle) == back.msg_id
    received = client.received("c", 2)
    assert time.monotonic() - began >= 4
    assert [message.body for message in received] == ["makes the topic", "kept"]
    assert received[1].msg_id == kept.msg_id
    assert len(client.received("c", 3, within_s=2)) == 2
    with pytest.raises(JavaError) as error:
        client.recall("p", topic, back.handle)
    assert error.value.code == ILLEGAL_OPERATION
    client.call("clear")


def fill(broker: AnyBroker) -> dict[bytes, float]:
    """Timers of 2, 20 and 26 s, and one of 20 s that is taken back; body → when it is due."""
    with RawConnection(broker.address) as connection:
        due: dict[bytes, float] = {}
        handle = ""
        for delay_s in (2, 20, 26):
            for number in range(20):
                body = f"{delay_s} s, {number}".encode()
                deliver_ms = int((time.time() + delay_s) * 1000)
                due[body] = deliver_ms / 1000
                key = f"KEY{delay_s:05d}{number:05d}"
                properties = properties_text(TIMER_DELIVER_MS=str(deliver_ms), UNIQ_KEY=key)
                fields = send_fields(TOPIC, 0, i=properties)
                answer = connection.call(SEND_MESSAGE_V2, fields, body)
                assert answer.code == 0, answer
                if body == TAKEN_BACK:
                    handle = answer.ext["recallHandle"]
        answer = connection.call(RECALL_MESSAGE, {"topic": TOPIC, "recallHandle": handle})
        assert (answer.code, answer.ext["msgId"]) == (0, "KEY0002000000")
        del due[TAKEN_BACK]
        eventually(
            lambda: max_offset(connection, TOPIC, 0) == 20,
            within_s=10,
            what="the timers of 2 s",
        )
    return due


def expect(broker: AnyBroker, due: dict[bytes, float], *, besides: Sequence[bytes] = ()) -> None:
    """All of them, each once and none before its time; those in `besides` may come as well."""

    def found() -> list[RawRecord]:
        records = read_topic(connection, TOPIC, 0)
        return [record for record in records if record.body not in besides]

    with RawConnection(broker.address) as connection:
        last_s = max(due.values()) - time.time()
        eventually(
            lambda: len(found()) >= len(due),
            within_s=max(0.0, last_s) + 10,
            what="all timers",
        )
        came = found()
        assert sorted(record.body for record in came) == sorted(due)
        for record in came:
            early_s = due[record.body] - record.store_timestamp / 1000
            assert early_s <= 0.001, record
        assert any(b"TIMER_ROLL_TIMES" in record.properties.encode() for record in came)


@contextmanager
def java_broker(data: Path, namesrv: JavaNamesrv) -> Iterator[JavaBroker]:
    with JavaBroker(
        toolkit=toolkit("5.5.0"),
        data=data,
        home=data.with_name("java-home"),
        namesrv_address=namesrv.address,
        settings=TIMERS | SHORT_ROLL,
    ) as broker:
        yield broker


@contextmanager
def our_broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data=data, settings=TIMERS | SHORT_ROLL) as broker:
        yield broker


def make_topic(client: JavaClient, broker: AnyBroker) -> None:
    client.topic(broker.namesrv_address, broker.address, TOPIC, queues=1)


def test_timers_of_the_java_broker_come_from_ours(
    java_client: GetClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with java_broker(data, java_namesrv) as java:
        make_topic(java_client("5.5.0", "JSON"), java)
        due = fill(java)
        java.stop()
    assert not (data / "abort").exists(), "Java did not stop cleanly"
    with our_broker(data) as ours:
        assert ours.ready is not None
        assert ours.ready.recovered == "clean"
        expect(ours, due)


def test_timers_of_ours_come_from_the_java_broker(
    java_client: GetClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with our_broker(data) as ours:
        make_topic(java_client("5.5.0", "JSON"), ours)
        due = fill(ours)
        assert ours.stop() == 0
    assert not (data / "abort").exists(), "ours did not stop cleanly"
    with java_broker(data, java_namesrv) as java:
        # A Java broker that starts when a timer is due already delivers it although it was taken
        # back, from its own store as well: its removal waits in a later slot of the wheel.
        late = time.time() > due[b"20 s, 1"] - LATE_S
        expect(java, due, besides=[TAKEN_BACK] if late else [])
