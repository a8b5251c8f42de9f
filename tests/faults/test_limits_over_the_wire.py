"""A peer that asks for more than the limits allow, against the broker as a process.

Each request is one row of `docs/limits.md`, with as little as shows its bound. It is refused with
what was too much, and whoever asks for an ordinary thing beside it is served.
"""

from __future__ import annotations

import json
import socket
import struct
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from aerobee.broker.config.schema import SCHEMA
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events, metrics_of
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed, RawConnection, pull_fields, send_fields, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.faults

SEND, SEND_BATCH, CREATE_TOPIC, HEART_BEAT, LOCK, BATCH_ACK = 310, 320, 17, 34, 41, 200_151
MEMBERS, UPDATE_OFFSET, CONFIGURE, PULL, BUSY = 38, 15, 25, 11, 2
DEFAULTS: Final = {key.name: key.default for key in SCHEMA.values() if isinstance(key.default, int)}
MAX_CONNECTIONS: Final = 12
WHOSE: Final = ("Address", "User")
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
        (struct.pack(">iiiii", 22, 0, 0, 0, 0) + bytes(2)) * 200_000,
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
    assert f"at most {FRAME_BYTES - 4} are taken (maxFrameBytes)" in broker.log.read_text()


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


def change(**settings: int) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


@contextmanager
def limited(broker: BrokerProcess, **settings: int) -> Iterator[None]:
    """These limits, changed while the broker runs, and their defaults afterwards."""
    with RawConnection(broker.address) as admin:
        assert admin.call(CONFIGURE, {}, change(**settings)).code == 0
        try:
            yield
        finally:
            defaults = {key: DEFAULTS[key] for key in settings}
            done = admin.call(CONFIGURE, {}, change(**defaults))
            while done.code == BUSY:
                done = admin.call(CONFIGURE, {}, change(**defaults))
            assert done.code == 0


def test_beyond_the_connections_of_its_address_a_peer_is_closed_and_others_come_in(
    broker: BrokerProcess,
) -> None:
    with limited(broker, maxConnectionsOfAddress=4):
        used = dict(used_of(broker))
        assert used["maxConnectionsOfAddress"] == (2, 4), used
        with RawConnection(broker.address) as third, RawConnection(broker.address) as fourth:
            assert third.call(SEND, send_fields("plain", 0), b"not silent").code == 0
            assert fourth.call(SEND, send_fields("plain", 0), b"the last").code == 0
            with RawConnection(broker.address) as fifth:
                fifth.hear_close()
            with RawConnection(broker.address, source="127.0.0.2") as elsewhere:
                assert elsewhere.call(SEND, send_fields("plain", 0), b"of another").code == 0
        refused = [
            (event["reason"], event["address"])
            for event in events(broker.child.errors())
            if event["event"] == "connection.refused"
        ]
        assert ("maxConnectionsOfAddress is 4", "127.0.0.1") in refused


def test_beyond_its_rate_an_address_is_told_so_and_others_are_served(
    broker: BrokerProcess,
) -> None:
    with (
        limited(broker, maxRequestRateOfAddress=50),
        RawConnection(broker.address) as greedy,
        RawConnection(broker.address, source="127.0.0.2") as other,
    ):
        answers = [greedy.call(SEND, send_fields("plain", 0), b"x") for _ in range(200)]
        refused = [answer for answer in answers if answer.code == BUSY]
        assert 50 <= len(refused) < 200, len(refused)
        remark = refused[0].remark or ""
        assert remark.startswith("maxRequestRateOfAddress is 50 per second"), remark
        assert other.call(SEND, send_fields("plain", 0), b"of another").code == 0
        used, limit = dict(used_of(broker))["maxRequestRateOfAddress"]
        assert (round(used) > 0, limit) == (True, 50)
    # The bystander speaks from the address that was limited.


def test_beyond_its_bytes_the_sends_of_an_address_wait_and_nothing_else(
    broker: BrokerProcess,
) -> None:
    with (
        limited(broker, maxByteRateOfAddress=1),
        RawConnection(broker.address) as greedy,
        RawConnection(broker.address, source="127.0.0.2") as other,
    ):
        assert greedy.call(SEND, send_fields("plain", 0), bytes(100_000)).code == 0
        refused = greedy.call(SEND, send_fields("plain", 0), b"x")
        assert refused.code == BUSY
        assert (refused.remark or "").startswith("maxByteRateOfAddress is 1 per second")
        assert greedy.call(MEMBERS, {"consumerGroup": "nobody"}).code != BUSY
        assert other.call(SEND, send_fields("plain", 0), b"of another").code == 0
        used, limit = dict(used_of(broker))["maxByteRateOfAddress"]
        assert (used > 1, limit) == (True, 1)


LIMITED: Final = {
    "maxTopics": (CREATE_TOPIC, topic_fields("one-more")),
    "maxQueuesOfTopic": (CREATE_TOPIC, topic_fields("plain", 9)),
    "maxConsumerGroups": (PULL, pull_fields("one-more-group", "plain", 0, 0)),
    "autoCreateRate": (SEND, send_fields("made-by-use", 0)),
}


@pytest.mark.parametrize("key", LIMITED)
def test_a_table_at_its_limit_refuses_with_the_name_of_the_setting(
    broker: BrokerProcess, key: str
) -> None:
    code, fields = LIMITED[key]
    values = {"maxQueuesOfTopic": 8, "autoCreateRate": 0}
    settings = {key: values.get(key, 1)}
    if key == "autoCreateRate":
        settings["autoCreateBurst"] = 1
    with limited(broker, **settings), RawConnection(broker.address) as peer:
        answers = [peer.call(code, fields | {"a": f"p{n}"}, b"x") for n in range(2)]
        if key == "autoCreateRate":
            answers.append(peer.call(SEND, send_fields("made-by-use-2", 0), b"x"))
        assert answers[-1].code != 0
        assert key in (answers[-1].remark or ""), answers[-1]


def test_every_limit_is_shown_with_what_is_used_of_it(broker: BrokerProcess) -> None:
    used = dict(used_of(broker))
    rates = {f"max{what}RateOf{whose}" for what in ("Request", "Byte") for whose in WHOSE}
    off = {"maxConnectionsOfAddress", *rates}
    assert off.isdisjoint(used), "what is off is not shown"
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    for key, (count, limit) in used.items():
        assert 0 <= count <= limit, key
        assert f"`{key}`" in page, f"{key} has no row"
    assert used["maxConnections"] == (1, MAX_CONNECTIONS)
    assert used["maxTopics"][0] >= 1
    assert used["maxUsers"] == (0, DEFAULTS["maxUsers"])
    assert used["maxAclEntries"] == (0, DEFAULTS["maxAclEntries"])


def test_connected_groups_of_producers_count_for_their_limit(broker: BrokerProcess) -> None:
    before, _ = dict(used_of(broker))["maxConsumerGroups"]
    with RawConnection(broker.address) as peer:
        groups = [{"groupName": f"senders-{number}"} for number in range(int(before) + 5)]
        assert peer.call(HEART_BEAT, {}, heartbeat(producerDataSet=groups)).code == 0
        assert dict(used_of(broker))["maxConsumerGroups"][0] == before + 5


def test_idle_connections_of_the_metrics_port_take_neither_slots_nor_descriptors(
    broker: BrokerProcess,
) -> None:
    """R18: a scrape is served while they are there, and their descriptors are few."""
    assert list(used_of(broker))  # from here on the port is served
    before = sockets_of(broker)
    with ExitStack() as flood:
        for _ in range(300):
            flood.enter_context(socket.create_connection((HOST, broker.ports.metrics), 10))
        used, limit = dict(used_of(broker))["metricsMaxConnections"]
        assert used == limit == DEFAULTS["metricsMaxConnections"]
        assert sockets_of(broker) - before <= limit


def sockets_of(broker: BrokerProcess) -> int:
    count = 0
    for descriptor in Path(f"/proc/{broker.child.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # of a file that was open for a moment
            count += str(descriptor.readlink()).startswith("socket:")
    return count


def used_of(broker: BrokerProcess) -> Iterator[tuple[str, tuple[float, float]]]:
    """Key of each limit, what is used of it, and the limit."""
    series = list(metrics_of(broker))
    limits = {labels["limit"]: value for name, labels, value in series if name == "aerobee_limit"}
    for name, labels, value in series:
        if name == "aerobee_limit_used":
            yield labels["limit"], (value, limits[labels["limit"]])


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
