"""POP with the real client of 5.x, and check points that are open while their directory moves.

What was popped and not acknowledged when a broker stops comes again from whoever opens the
directory; what was acknowledged does not.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import AnyBroker
from tests.interop.conftest import GetClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection, properties_text, records, send_fields
from tests.kit.reading import max_offset
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

SEND_MESSAGE_V2, UPDATE_CONSUMER_OFFSET, SET_MODE = 310, 15, 401
POP_MESSAGE, ACK_MESSAGE = 200050, 200051
POLLING_TIMEOUT = 210
WHEEL_TOPIC = "rmq_sys_wheel_timer"
TOPIC, GROUP = "popped", "poppers"
OUT_MS = 20_000
NAMES = {"brokerName": "broker-a"}


def let_pop(broker: AnyBroker, topic: str, group: str) -> None:
    """An administrator has the group pop the topic, from what comes next in its four queues."""
    mode = {"consumerGroup": group, "mode": "POP", "popShareQueueNum": 0, "topic": topic}
    with RawConnection(broker.address) as connection:
        for queue in range(4):
            end = max_offset(connection, topic, queue)
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": end}
            assert connection.call(UPDATE_CONSUMER_OFFSET, fields).code == 0
        answer = connection.call(SET_MODE, {}, json.dumps(mode).encode())
        assert answer.code == 0, answer


def check_points(broker: AnyBroker) -> int:
    with RawConnection(broker.address) as connection:
        return max_offset(connection, WHEEL_TOPIC, 0)


def test_a_push_consumer_pops_acknowledges_and_tries_again(
    java_client: GetClient, broker: AnyBroker, topic: str
) -> None:
    client = java_client("5.5.0", "JSON")
    group = f"{topic}-g"
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["makes the topic"])
    # The group comes with its first heartbeat.
    client.consumer("c", broker.namesrv_address, topic, group=group)
    assert len(client.received("c", 1)) == 1
    client.stop(consumer="c")
    let_pop(broker, topic, group)
    before = check_points(broker)
    client.consumer("c", broker.namesrv_address, topic, group=group, pop=1, failing=1)
    bodies = [f"message {number}" for number in range(40)]
    client.send("p", topic, bodies)
    first = client.received("c", 40, within_s=30)
    assert sorted(message.body for message in first) == sorted(bodies)
    assert check_points(broker) > before, "it pulled"
    again = client.received("c", 80, within_s=40)[40:]
    assert sorted(message.body for message in again) == sorted(bodies)
    assert {message.reconsume_times for message in again} == {1}
    assert {message.topic for message in again} == {topic}
    assert len(client.received("c", 81, within_s=8)) == 80
    client.call("clear")


# ── Moving with open check points ──


def pop(connection: RawConnection, invisible_ms: int) -> list[tuple[str, dict[str, object]]]:
    """Bodies, and the fields that acknowledge them."""
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": -1,
        "maxMsgNums": 32,
        "invisibleTime": invisible_ms,
        "pollTime": 0,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
    }
    answer = connection.call(POP_MESSAGE, fields)
    if answer.code == POLLING_TIMEOUT:
        return []
    assert answer.code == 0, answer
    starts = dict(entry.rsplit(" ", 1) for entry in answer.ext["startOffsetInfo"].split(";"))
    found: list[tuple[str, dict[str, object]]] = []
    for record in records(answer.body):
        handle = dict(
            pair.split("\x01") for pair in record.properties.split("\x02") if "\x01" in pair
        ).get("POP_CK")
        topic, queue = TOPIC, record.queue_id
        if handle is None:
            said = answer.ext
            handle = (
                f"{starts[f'0 {queue}']} {said['popTime']} {said['invisibleTime']} "
                f"{said['reviveQid']} 0 broker-a {queue} {record.queue_offset}"
            )
        else:
            topic = f"%RETRY%{GROUP}_{TOPIC}"
            queue = int(handle.split(" ")[6])
        found.append(
            (
                record.body.decode(),
                {
                    "consumerGroup": GROUP,
                    "topic": topic,
                    "queueId": queue,
                    "extraInfo": handle,
                    "offset": record.queue_offset,
                },
            )
        )
    return found


def fill(broker: AnyBroker) -> float:
    """Ten messages, popped for 20 s; every other one is acknowledged. Before this the rest may not
    come again.
    """
    with RawConnection(broker.address) as connection:
        for number in range(10):
            fields = send_fields(TOPIC, 0, i=properties_text(UNIQ_KEY=f"K{number}"))
            assert connection.call(SEND_MESSAGE_V2, fields, b"%d" % number).code == 0
        popped: list[tuple[str, dict[str, object]]] = []
        due_s = time.time() + OUT_MS / 1000

        def all_out() -> bool:
            popped.extend(pop(connection, OUT_MS))
            return len(popped) == 10

        eventually(all_out, within_s=10, what="ten messages")
        for body, fields_of_ack in popped:
            if int(body) % 2:
                assert connection.call(ACK_MESSAGE, fields_of_ack).code == 0
    return due_s


def expect(broker: AnyBroker, due_s: float) -> None:
    """The others come again, once, and not before they may."""
    again: list[str] = []
    with RawConnection(broker.address) as connection:

        def came() -> bool:
            for body, fields in pop(connection, 60_000):
                assert time.time() >= due_s, body
                again.append(body)
                assert connection.call(ACK_MESSAGE, fields).code == 0
            return len(again) >= 5

        eventually(came, within_s=60, what="five messages again")
        assert sorted(again) == ["0", "2", "4", "6", "8"]
        assert pop(connection, OUT_MS) == []


@contextmanager
def java_broker(data: Path, namesrv: JavaNamesrv) -> Iterator[JavaBroker]:
    with JavaBroker(
        toolkit=toolkit("5.5.0"),
        data=data,
        home=data.with_name("java-home"),
        namesrv_address=namesrv.address,
        settings={"timerWheelEnable": "true"},
    ) as broker:
        yield broker


def make_topic(get: GetClient, broker: AnyBroker) -> None:
    client = get("5.5.0", "JSON")
    client.topic(broker.namesrv_address, broker.address, TOPIC, queues=1)


def test_what_is_out_at_java_comes_again_from_ours(
    java_client: GetClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with java_broker(data, java_namesrv) as java:
        make_topic(java_client, java)
        due_s = fill(java)
        java.stop()
    with BrokerProcess(data=data, settings=NAMES) as ours:
        expect(ours, due_s)


def test_what_is_out_at_ours_comes_again_from_java(
    java_client: GetClient, java_namesrv: JavaNamesrv, tmp_path: Path
) -> None:
    data = tmp_path / "store"
    with BrokerProcess(data=data, settings=NAMES) as ours:
        make_topic(java_client, ours)
        due_s = fill(ours)
        assert ours.stop() == 0
    with java_broker(data, java_namesrv) as java:
        expect(java, due_s)
