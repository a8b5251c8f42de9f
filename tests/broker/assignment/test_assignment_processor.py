"""The broker says who consumes which queues, and whether by pulling or popping."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.consumers.clients import Client
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.pop import QueryAssignment, SetMessageRequestMode
from tests.broker.desk import Desk, body_of, open_desk
from tests.broker.peers import Peer
from tests.kit.broker_process import BrokerProcess
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

CREATE_TOPIC, HEART_BEAT, QUERY_ASSIGNMENT = 17, 34, 400
MEMBER = {
    "groupName": "g",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
    "subscriptionDataSet": [],
    "unitMode": False,
}
HEARTBEAT = json.dumps(
    {"clientID": "me", "producerDataSet": [], "consumerDataSet": [MEMBER]}
).encode()
WANTED = {"clientId": "me", "consumerGroup": "g", "topic": "t", "strategyName": "AVG"}


def join(desk: Desk, *client_ids: str, group: str = "g") -> None:
    """These clients are members of a group."""
    for client_id in client_ids:
        desk.clients.register_consumer(
            group,
            Client(Peer(), client_id, "JAVA", 479, 0),
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscriptions=None,
        )


async def asked(desk: Desk, client_id: str, **fields: Any) -> list[tuple[int, str]] | None:
    """Queue ids and modes of one client; None: keep what you have."""
    body = {"clientId": client_id, "consumerGroup": "g", "topic": "t", "strategyName": "AVG"}
    answer = await desk.ask(QueryAssignment(), json.dumps({**body, **fields}).encode())
    assert answer.code == 0, answer
    found = json.loads(body_of(answer)).get("messageQueueAssignments")
    if found is None:
        return None
    assert all(one["messageQueue"]["brokerName"] == "desk" for one in found)
    return sorted((one["messageQueue"]["queueId"], one["mode"]) for one in found)


async def set_mode(
    desk: Desk, mode: str, share: int = -1, topic: str = "t", group: str = "g"
) -> int:
    body = {"consumerGroup": group, "mode": mode, "popShareQueueNum": share, "topic": topic}
    return (await desk.ask(SetMessageRequestMode(), json.dumps(body).encode())).code


@pytest.mark.trio
async def test_a_mode_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic()
        desk.groups.require("g", 0)
        assert await set_mode(desk, "POP") == 0
        assert b"POP" in (tmp_path / "config" / "messageRequestMode.json").read_bytes()


@pytest.mark.trio
async def test_members_that_pull_share_the_queues(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=5, write_queue_nums=5)
        join(desk, "a", "b")
        assert await asked(desk, "a") == [(0, "PULL"), (1, "PULL"), (2, "PULL")]
        assert await asked(desk, "b") == [(3, "PULL"), (4, "PULL")]
        circle = await asked(desk, "b", strategyName="AVG_BY_CIRCLE")
        assert circle == [(1, "PULL"), (3, "PULL")]
        assert await asked(desk, "stranger") == []
        everything = await asked(desk, "stranger", messageModel="BROADCASTING")
        assert everything is not None
        assert len(everything) == 5


@pytest.mark.trio
async def test_nothing_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert await asked(desk, "a") is None
        desk.topic("t", read_queue_nums=5, write_queue_nums=5)
        assert await asked(desk, "a") is None


@pytest.mark.trio
async def test_members_that_pop_get_all_of_the_broker_or_as_much_as_they_share(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t", read_queue_nums=4, write_queue_nums=4)
        join(desk, "a", "b", "c", "d")
        desk.groups.find("g", 0)
        assert await set_mode(desk, "POP") == 0
        assert await asked(desk, "a") == [(-1, "POP")]
        assert await set_mode(desk, "POP", 1) == 0
        assert await asked(desk, "a") == [(0, "POP"), (1, "POP")]
        assert await asked(desk, "d") == [(0, "POP"), (3, "POP")]
        assert await asked(desk, "a", topic="%RETRY%g") is None


@pytest.mark.trio
async def test_modes_are_kept_over_a_start_in_the_file_of_the_java_broker(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        desk.groups.find("g", 0)
        assert await set_mode(desk, "POP", 3) == 0
        await desk.mode_file.catch_up()
    saved = json.loads((tmp_path / "config" / "messageRequestMode.json").read_bytes())
    entry = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "t"}
    assert saved == {"messageRequestModeMap": {"t": {"g": entry}}}
    async with open_desk(tmp_path) as desk:
        known = desk.request_modes.get("t", "g")
        assert known is not None
        assert (known.mode, known.pop_share_queue_num) == ("POP", 3)


@pytest.mark.trio
async def test_the_default_is_a_setting_and_retry_topics_are_always_pulled(tmp_path: Path) -> None:
    async with open_desk(tmp_path, default_message_request_mode="POP") as desk:
        desk.topic("t")
        desk.topic("%RETRY%g", read_queue_nums=1, write_queue_nums=1)
        join(desk, "a")
        assert await asked(desk, "a") == [(-1, "POP")]
        assert await asked(desk, "a", topic="%RETRY%g") == [(0, "PULL")]


@pytest.mark.trio
async def test_the_mode_of_an_unknown_group_creates_the_group_where_use_creates_it(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        desk.topic("t")
        assert await set_mode(desk, "PUSH", group="new") == ResponseCode.INVALID_PARAMETER
        assert desk.groups.get("new") is None
        assert await set_mode(desk, "POP", group="new") == 0
        assert desk.groups.get("new") is not None


@pytest.mark.trio
async def test_bad_requests_are_refused(tmp_path: Path) -> None:
    async with open_desk(tmp_path, auto_create_subscription_group=False) as desk:
        desk.topic("t")
        desk.groups.update(SubscriptionGroupConfig(group_name="g"), 0)
        assert await set_mode(desk, "POP", topic="%RETRY%g") == ResponseCode.NO_PERMISSION
        assert await set_mode(desk, "POP", topic="nowhere") == ResponseCode.TOPIC_NOT_EXIST
        unknown = await set_mode(desk, "POP", group="stranger")
        assert unknown == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await set_mode(desk, "PUSH") == ResponseCode.INVALID_PARAMETER
        body = {"clientId": "a", "consumerGroup": "g", "topic": "t", "strategyName": "LUCK"}
        answer = await desk.ask(QueryAssignment(), json.dumps(body).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_queues_of_brokers_that_a_name_server_elsewhere_knows_are_assigned(tmp_path: Path) -> None:
    with NamesrvProcess(data=tmp_path / "names") as names:

        def broker(name: str) -> BrokerProcess:
            settings = {"brokerName": name, "embeddedNamesrv": "false"}
            return BrokerProcess(data=tmp_path / name, namesrv=names.address, settings=settings)

        with broker("a") as a, broker("b") as b, RawConnection(a.address) as client:
            with RawConnection(b.address) as other:
                assert other.call(CREATE_TOPIC, topic_fields("t", 2)).code == 0
            assert client.call(CREATE_TOPIC, topic_fields("t", 2)).code == 0
            assert client.call(HEART_BEAT, {}, HEARTBEAT).code == 0
            both = {(name, queue_id) for name in "ab" for queue_id in range(2)}
            eventually(
                lambda: places(client) == both, within_s=60, what="the queues of both brokers"
            )
            names.stop()
            assert places(client) == set(), "the client keeps what it has"


def places(client: RawConnection) -> set[tuple[str, int]]:
    """The brokers and numbers of the queues that a client is told."""
    answer = client.call(QUERY_ASSIGNMENT, {}, json.dumps(WANTED).encode())
    assert answer.code == 0, answer
    found = json.loads(answer.body).get("messageQueueAssignments") or []
    queues = [one["messageQueue"] for one in found]
    return {(queue["brokerName"], queue["queueId"]) for queue in queues}


def test_the_name_server_of_a_pair_that_is_left_tells_which_queues_there_are(
    tmp_path: Path,
) -> None:
    """Each of a pair has one: that of the other is down for as long as its machine is."""
    settings = {"brokerName": "a"}
    other = f"{HOST}:{free_port()}"
    with (
        BrokerProcess(data=tmp_path / "a", namesrv=other, settings=settings) as broker,
        RawConnection(broker.address) as client,
    ):
        assert client.call(CREATE_TOPIC, topic_fields("t", 2)).code == 0
        assert client.call(HEART_BEAT, {}, HEARTBEAT).code == 0
        assert places(client) == {("a", 0), ("a", 1)}
