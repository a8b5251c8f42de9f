"""What one peer can make the broker keep: bounded, at nobody else's cost, and given back.

Over the wire, against the broker as a process. Private memory is what counts: `RssAnon`.
"""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import ngh2
import pytest

from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.messages import Message, Resource, SystemProperties
from aerobee.remoting.server.boss import reserve
from tests.kit.broker_process import BrokerProcess
from tests.kit.grpc_client import GrpcClient
from tests.kit.health import events, metrics_of, rss_anon
from tests.kit.http2_client import POST
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import (
    Closed,
    RawAnswer,
    RawConnection,
    pull_fields,
    request_frame,
    send_fields,
    topic_fields,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.faults

MiB = 1_048_576
SEND, PULL, CREATE_TOPIC, POP = 310, 11, 17, 200_050
DELETE_TOPIC, DELETE_GROUP = 215, 207
HEART_BEAT, GET_CONSUMER_RUNNING_INFO, SYSTEM_ERROR = 34, 307, 1
UPDATE_OFFSET, QUERY_OFFSET = 15, 14
COMMIT, HOLD, OWN_SUBSCRIPTION = 1, 2, 4
QUERY_NOT_FOUND, INVALID_PARAMETER = 22, 29
NOT_FOUND, FOUND = 19, 0
PLACES = 60
OFFSETS = 1_000
SETTINGS = {
    "maxHeldPulls": PLACES,
    "maxHeldRequestsOfConnection": PLACES - 10,
    "popPollingSize": 10_000,
    "maxConsumerOffsets": OFFSETS,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("memory") / "data"
    with BrokerProcess(data=data, settings=SETTINGS) as running:
        with RawConnection(running.address) as admin:
            assert admin.call(CREATE_TOPIC, topic_fields("quiet")).code == 0
        yield running


def held_pull(group: str, **other: object) -> dict[str, object]:
    wait = {"sysFlag": HOLD | OWN_SUBSCRIPTION, "suspendTimeoutMillis": 60_000}
    return pull_fields(group, "quiet", 0, 0, **wait | other)


def pop_fields(group: str) -> dict[str, object]:
    now_ms = round(time.time() * 1000)
    return {
        "consumerGroup": group,
        "topic": "quiet",
        "queueId": -1,
        "maxMsgNums": 1,
        "invisibleTime": 60_000,
        "pollTime": 60_000,
        "bornTime": now_ms,
        "initMode": 1,
        "exp": "*",
        "expType": "TAG",
        "order": False,
    }


def waits(connection: RawConnection, within_s: float = 0.3) -> bool:
    """Whether nothing comes back for a while."""
    connection.socket.settimeout(within_s)
    try:
        connection.hear()
    except TimeoutError:
        return True
    finally:
        connection.socket.settimeout(10)
    return False


@pytest.mark.parametrize(
    ("code", "fields_of"), [(PULL, held_pull), (POP, pop_fields)], ids=["pull", "pop"]
)
def test_what_is_held_keeps_nothing_of_its_frame(
    broker: BrokerProcess, code: int, fields_of: Callable[[str], dict[str, object]]
) -> None:
    count, body, fields = 20, bytes(8 * MiB), fields_of("big")
    with ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(broker.address)) for _ in range(count)]
        before = rss_anon(broker.child.pid)
        for connection in connections:
            # Two, so that the frame of the first is not what the decoder holds last.
            connection.send_bytes(request_frame(code, 1, fields, body))
            connection.send_bytes(request_frame(code, 2, fields))
        assert waits(connections[-1])
        eventually(
            lambda: rss_anon(broker.child.pid) - before < 40 * MiB,
            within_s=10,
            every_s=0.2,
            what=f"{count} held requests of 8 MiB cost less than 40 MiB",
        )


def test_who_parks_too_many_pulls_is_answered_and_others_are_held(broker: BrokerProcess) -> None:
    limit = SETTINGS["maxHeldRequestsOfConnection"]
    with ExitStack() as stack:
        greedy, greedy_too, modest = (
            stack.enter_context(RawConnection(broker.address)) for _ in range(3)
        )
        for _ in range(int(limit) + 5):
            greedy.ask(PULL, held_pull("greedy"))
        assert {greedy.hear().code for _ in range(5)} == {NOT_FOUND}, "beyond its share"
        for _ in range(10):
            greedy_too.ask(PULL, held_pull("greedy"))
        assert waits(greedy_too), "they fit: now all places are taken"
        modest.ask(PULL, held_pull("modest"))
        assert waits(modest), "whoever has few is held all the same"
        assert greedy.hear().code == NOT_FOUND, "and who has most gives way"
        greedy_too.ask(SEND, send_fields("quiet", 0), b"wakes all")
        assert modest.hear().code == FOUND


def test_a_peer_that_leaves_gives_its_places_back_at_once(broker: BrokerProcess) -> None:
    limit = int(SETTINGS["maxHeldRequestsOfConnection"])
    fields = held_pull("leaver") | {"queueId": 1}
    for _ in range(3):
        with RawConnection(broker.address) as leaver:
            for _ in range(limit):
                leaver.ask(PULL, fields)
            assert waits(leaver)


class CrampedBroker(BrokerProcess):
    """One that may have no more than 200 files and sockets open."""

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", 'ulimit -n 200; exec "$0" "$@"', *super().command()]


def test_a_flood_of_connections_costs_no_write_and_no_probe(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": MiB, "fileReservedTime": 72}
    with (
        CrampedBroker(data=tmp_path / "data", settings=settings) as broker,
        RawConnection(broker.address) as honest,
        ExitStack() as stack,
    ):
        assert honest.call(SEND, send_fields("rolls", 0), b"first").code == 0
        for _ in range(300):
            stack.enter_context(RawConnection(broker.address))
        for number in range(30):
            body = bytes(200_000)
            assert honest.call(SEND, send_fields("rolls", 0), body).code == 0, number
        url = f"http://127.0.0.1:{broker.ports.metrics}"
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as ready:
            assert ready.status == 200
        cut = {
            labels["reason"]: value
            for name, labels, value in metrics_of(broker)
            if name == "aerobee_connections_cut_total"
        }
        assert cut["displaced"] >= 100, "the silent ones give their places to those that come"
        said = broker.child.errors()
        assert said.count("connection.displaced") < 10
        assert "connection.refused" not in said, "those in reserve stay free"
        (few,) = [one for one in events(said) if one["event"] == "broker.descriptors_few"]
        needed = re.search(r"to (\d+) at least", few["remedy"])
        assert needed is not None
        limit = int(needed[1])
        (seen,) = [one for one in events(said) if one["event"] == "broker.descriptors"]
        assert 128 <= limit - reserve(limit) - seen["in_use"] <= 130
        stack.close()

        def comes_in() -> bool:
            try:
                with RawConnection(broker.address) as late:
                    return late.call(SEND, send_fields("rolls", 0), b"late").code == 0
            except Closed:
                return False

        eventually(comes_in, within_s=10, what="whoever comes after the flood is served")
        assert broker.stop() == 0


def flood_of_heads() -> bytes:
    """1,000 calls that have long heads, of a few bytes each, and no request."""
    core = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(peer_max_concurrent_streams=1_000))
    core.initiate_connection()
    head = [*((n.encode(), v.encode()) for n, v in POST), *[(b"x-long", b"v" * 3_700)] * 4]
    for _ in range(1_000):
        core.send_request(head)
    return b"".join(iter(core.data_to_send, b""))


def test_calls_without_a_request_cost_little_and_keep_nobody_out(tmp_path: Path) -> None:
    port = free_port()
    settings = {"grpcPort": port, "maxInboundBufferBytes": 32 * MiB}
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        RawConnection(broker.address) as admin,
        GrpcClient(f"{HOST}:{port}") as client,
        ExitStack() as stack,
    ):
        assert admin.call(CREATE_TOPIC, topic_fields("t")).code == 0
        pid = broker.child.pid

        def served(number: int) -> None:
            system = SystemProperties(message_id=f"id-{number}")
            message = Message(topic=Resource(name="t"), system_properties=system, body=b"1")
            assert client.call("SendMessage", messages=[message]).status.code == Code.OK

        served(0)
        before = rss_anon(pid)
        flood = flood_of_heads()
        for number in range(1, 51):
            stack.enter_context(socket.create_connection((HOST, port))).sendall(flood)
            served(number)
        served(51)
        assert rss_anon(pid) - before < 200 * MiB


def test_an_invented_queue_gets_no_offset(broker: BrokerProcess) -> None:
    with RawConnection(broker.address) as client:
        pull = pull_fields("inventor", "quiet", 0, 0)
        client.call(PULL, pull)  # makes the group
        for queue_id in (-1, 4, 2**31 - 1):
            place = {"consumerGroup": "inventor", "topic": "quiet", "queueId": queue_id}
            refused = client.call(UPDATE_OFFSET, place | {"commitOffset": 1})
            assert refused.code == INVALID_PARAMETER, refused
            committing = {"queueId": queue_id, "sysFlag": COMMIT | OWN_SUBSCRIPTION}
            assert client.call(PULL, pull | committing).code == INVALID_PARAMETER
            assert client.call(QUERY_OFFSET, place).code == QUERY_NOT_FOUND


def test_a_new_group_is_told_0_where_the_first_message_is_to_come(broker: BrokerProcess) -> None:
    # Told that it has no offset, a client asks for the end, and skips what comes in between.
    with RawConnection(broker.address) as client:
        place = {"consumerGroup": "early", "topic": "quiet", "queueId": 3}
        answer = client.call(QUERY_OFFSET, place)
        assert (answer.code, answer.ext.get("offset")) == (0, "0"), answer


def test_a_full_table_of_offsets_says_what_makes_room_and_then_has_it(
    broker: BrokerProcess,
) -> None:
    # No queue stands behind the marks of a Spark sink.
    groups = [f"SPARK_SINK_{number}" for number in range(10)]
    with RawConnection(broker.address, timeout_s=30) as client:

        def commit(group: str, topic: str, queue_id: int) -> RawAnswer:
            place = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            return client.call(UPDATE_OFFSET, place | {"commitOffset": 1})

        def delete(group: str) -> None:
            asked = {"groupName": group, "cleanOffset": True}
            assert client.call(DELETE_GROUP, asked).code == 0

        assert client.call(CREATE_TOPIC, topic_fields("marked")).code == 0
        for group in (*groups, "SPARK_SINK_more", "late"):
            client.call(PULL, pull_fields(group, "quiet", 0, 0))  # makes the group
        codes = [
            commit(group, "marked" if mark < 10 else "quiet", mark).code
            for group in groups
            for mark in range(OFFSETS // 10)
        ]
        # A few places are those of the broker's own groups.
        assert codes == sorted(codes)
        assert codes.count(0) > OFFSETS * 0.9
        refused = commit("late", "quiet", 0)
        assert refused.code == 1
        for word in (f"0 of maxConsumerOffsets={OFFSETS} left", "delete groups", "raise it"):
            assert word in (refused.remark or ""), refused
        assert commit(groups[0], "quiet", 50).code == 0, "those that are there move on"
        delete(groups[1])
        more = [commit("SPARK_SINK_more", "quiet", mark).code for mark in range(OFFSETS // 10)]
        assert set(more) == {0}
        assert commit("SPARK_SINK_more", "quiet", OFFSETS).code == 1, "its share"
        assert commit("late", "quiet", 0).code == 1
        assert client.call(DELETE_TOPIC, {"topic": "marked"}).code == 0
        assert commit("late", "quiet", 0).code == 0
        for group in (*groups, "SPARK_SINK_more", "late"):
            delete(group)


def test_a_silent_consumer_keeps_only_those_waiting_that_ask_it(broker: BrokerProcess) -> None:
    member = {"clientID": "silent", "consumerDataSet": [{"groupName": "g"}]}
    asked = {"consumerGroup": "g", "clientId": "silent"}
    with RawConnection(broker.address) as silent, RawConnection(broker.address) as asker:
        assert silent.call(HEART_BEAT, None, json.dumps(member).encode()).code == 0
        for _ in range(20):
            asker.ask(GET_CONSUMER_RUNNING_INFO, asked)
        with RawConnection(broker.address, timeout_s=5) as admin:
            assert admin.call(CREATE_TOPIC, topic_fields("meanwhile")).code == 0
            assert admin.call(DELETE_TOPIC, {"topic": "meanwhile"}).code == 0
        silent.close()
        assert {asker.hear().code for _ in range(20)} == {SYSTEM_ERROR}
