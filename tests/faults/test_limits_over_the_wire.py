"""A peer that asks for more than the limits allow, against the broker as a process.

Each request is one row of `docs/limits.md`, with as little as shows its bound. It is refused with
what was too much, and whoever asks for an ordinary thing beside it is served.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.faults

SEND, SEND_BATCH, CREATE_TOPIC, HEART_BEAT, LOCK, BATCH_ACK = 310, 320, 17, 34, 41, 200_151
MEMBERS, UPDATE_OFFSET = 38, 15
MAX_CONNECTIONS: Final = 12
FRAME_BYTES: Final = 5 << 20
SETTINGS = {
    "maxConnections": MAX_CONNECTIONS,
    "maxFrameBytes": FRAME_BYTES,
    "maxMessageSize": 1 << 20,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("limits") / "data"
    with BrokerProcess(data=data, settings=SETTINGS) as running:
        with RawConnection(running.address) as admin:
            assert admin.call(CREATE_TOPIC, topic_fields("plain")).code == 0
        yield running


@pytest.fixture(autouse=True)
def others_are_served(broker: BrokerProcess) -> Iterator[None]:
    """Somebody else is served before, and over the same connection after."""
    with RawConnection(broker.address) as other:
        assert other.call(SEND, send_fields("plain", 0), b"before").code == 0
        yield
        assert other.call(SEND, send_fields("plain", 0), b"after").code == 0


def heartbeat(**groups: Any) -> bytes:
    return json.dumps({"clientID": "c", **groups}).encode()


def consumers(count: int) -> list[dict[str, object]]:
    return [{"groupName": f"many-{number}"} for number in range(count)]


ACK = {"b": "AQ==", "c": "g", "it": 1, "pt": 1, "q": 0, "rq": 0, "so": 0, "t": "plain"}
TOO_MUCH = {
    "groups of one connection": (
        HEART_BEAT,
        {},
        heartbeat(consumerDataSet=consumers(1_025)),
        "1024",
    ),
    "subscriptions of one group": (
        HEART_BEAT,
        {},
        heartbeat(
            consumerDataSet=[
                {
                    "groupName": "g",
                    "subscriptionDataSet": [{"topic": f"t{n}"} for n in range(1_025)],
                }
            ]
        ),
        "1024",
    ),
    "bytes of a body": (HEART_BEAT, {}, heartbeat(x="y" * (1 << 20)), "1048576"),
    "signs of a body": (LOCK, {}, b'{"mqSet":[' + b"{}," * 60_000 + b"{}]}", "brackets"),
    "acknowledgements": (
        BATCH_ACK,
        {},
        json.dumps({"acks": [ACK] * 4_097}).encode(),
        "4096",
    ),
    "messages of a batch": (
        SEND_BATCH,
        send_fields("plain", 0) | {"m": True},
        (struct.pack(">iiiii", 22, 0, 0, 0, 0) + bytes(2)) * 40_000,
        "",
    ),
    "an offset of a queue that is not here": (
        UPDATE_OFFSET,
        {"consumerGroup": "g", "topic": "plain", "queueId": 99, "commitOffset": 1},
        b"",
        "",
    ),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_is_too_much_is_refused_with_a_word_and_the_connection_stays(
    broker: BrokerProcess, name: str
) -> None:
    code, fields, body, said = TOO_MUCH[name]
    with RawConnection(broker.address) as peer:
        for _ in range(2):
            answer = peer.call(code, fields, body)
            assert answer.code != 0, name
            assert said in (answer.remark or ""), answer.remark


def test_a_frame_beyond_its_limit_closes_its_connection(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as peer:
        peer.send_bytes(struct.pack(">I", FRAME_BYTES + 1))
        peer.hear_close()


def test_beyond_max_connections_a_peer_is_closed_and_places_come_back(
    broker: BrokerProcess,
) -> None:
    peers = [RawConnection(broker.address) for _ in range(MAX_CONNECTIONS + 3)]
    served = 0
    for peer in peers:
        try:
            served += peer.call(SEND, send_fields("plain", 0), b"one of many").code == 0
        except Closed:
            peer.close()
    assert served == MAX_CONNECTIONS - 1, "and the one that is there all the time"
    for peer in peers:
        peer.close()

    def comes_in() -> bool:
        try:
            with RawConnection(broker.address) as late:
                return late.call(SEND, send_fields("plain", 0), b"late").code == 0
        except Closed:
            return False

    eventually(comes_in, within_s=10, what="a place is free again")


def test_locks_of_queues_that_are_not_here_are_not_kept(broker: BrokerProcess) -> None:
    queues = [{"brokerName": "nobody", "queueId": n, "topic": "plain"} for n in range(2_000)]
    body = json.dumps({"clientId": "c", "consumerGroup": "g", "mqSet": queues}).encode()
    with RawConnection(broker.address) as peer:
        assert peer.call(HEART_BEAT, {}, heartbeat(consumerDataSet=[{"groupName": "g"}])).code == 0
        answer = peer.call(LOCK, {}, body)
        assert (answer.code, json.loads(answer.body)["lockOKMQSet"]) == (0, [])


def test_a_connection_has_the_client_id_of_its_last_heartbeat_alone(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as peer:
        for number in range(50):
            body = {"clientID": f"id-{number}", "consumerDataSet": [{"groupName": "renamed"}]}
            assert peer.call(HEART_BEAT, {}, json.dumps(body).encode()).code == 0
        answer = peer.call(MEMBERS, {"consumerGroup": "renamed"})
        assert json.loads(answer.body) == {"consumerIdList": ["id-49"]}
