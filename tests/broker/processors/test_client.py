import dataclasses
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from broker.errors import Refused
from broker.processors.client import ClientProcessor
from broker.settings.options import BrokerOptions
from broker.tables.clients import ClientTable
from broker.tables.groups import GroupTable
from broker.tables.queue_locks import LOCK_LIVES_MS, QueueLockTable
from broker.tables.topics import TopicConfig, TopicTable
from remoting.errors import BodyError
from remoting.wire.codes import RequestCode
from remoting.wire.headers import client as headers
from tests.broker.peers import HandClock, Peer, request

if TYPE_CHECKING:
    from remoting.wire.bodies.queue_lock import MessageQueue

OPTIONS = BrokerOptions()


def subscription(topic: str = "T", expression: str = "*", version: int = 1) -> dict[str, Any]:
    return {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": expression,
        "subVersion": version,
        "tagsSet": [],
        "topic": topic,
    }


def consumer(group: str = "g", *subscriptions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": list(subscriptions or (subscription(),)),
        "unitMode": False,
        **fields,
    }


class Desk:
    """The processor with its tables; peers send to it."""

    def __init__(self, options: BrokerOptions = OPTIONS, **settings: Any) -> None:
        self.clock = HandClock()
        self.clients = ClientTable()
        self.groups = GroupTable(options)
        self.topics = TopicTable(options)
        self.locks: QueueLockTable[MessageQueue] = QueueLockTable()
        self.processor = ClientProcessor(
            clients=self.clients,
            groups=self.groups,
            topics=self.topics,
            locks=self.locks,
            clock=self.clock,
            **settings,
        )

    def peer(self) -> Any:
        peer = Peer()
        peer.on_close = self.processor.connection_closed
        return peer

    def beat(
        self,
        peer: Any,
        *consumers: dict[str, Any],
        producers: tuple[str, ...] = (),
        client_id: str = "10.0.0.1@123",
        **fields: Any,
    ) -> tuple[bool | None, bool | None]:
        """Send a heartbeat; (V2 is served, subscriptions are wanted in full)."""
        body = {
            "clientID": client_id,
            "consumerDataSet": list(consumers),
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": group} for group in producers],
            "withoutSub": False,
            **fields,
        }
        command = request(RequestCode.HEART_BEAT, json.dumps(body).encode())
        answer = self.processor.heartbeat(headers.Heartbeat(), command, peer)
        assert answer.code == 0
        assert answer.remark is None
        header = answer.header
        assert isinstance(header, headers.HeartbeatResponse)
        return header.is_support_heart_beat_v2, header.is_sub_change

    def members(self, group: str = "g") -> list[str]:
        header = headers.GetConsumerListByGroup(consumer_group=group)
        command = request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        peer: Any = Peer()
        answer = self.processor.consumer_list(header, command, peer)
        assert isinstance(answer.body, bytes)
        members: list[str] = json.loads(answer.body)["consumerIdList"]
        return members

    def lock(self, client_id: str, *queue_ids: int, give_back: bool = False) -> list[int]:
        body = {
            "clientId": client_id,
            "consumerGroup": "g",
            "mqSet": [
                {"brokerName": "b", "queueId": queue_id, "topic": "T"} for queue_id in queue_ids
            ],
            "onlyThisBroker": False,
        }
        content = json.dumps(body).encode()
        peer: Any = Peer()
        if give_back:
            command = request(RequestCode.UNLOCK_BATCH_MQ, content)
            answer = self.processor.unlock(headers.UnlockBatchMq(), command, peer)
            assert (answer.code, answer.body) == (0, b"")
            return []
        command = request(RequestCode.LOCK_BATCH_MQ, content)
        answer = self.processor.lock(headers.LockBatchMq(), command, peer)
        assert isinstance(answer.body, bytes)
        held = json.loads(answer.body)["lockOKMQSet"]
        assert all(queue["brokerName"] == "b" and queue["topic"] == "T" for queue in held)
        return [queue["queueId"] for queue in held]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def told(peer: Any) -> int:
    """How often this peer was told that its group changed."""
    assert all(code == 40 and header.consumer_group == "g" for code, header in peer.told)
    return len(peer.told)


def test_a_consumer_that_is_alone_finds_itself_right_after_its_heartbeat(desk: Desk) -> None:
    desk.beat(desk.peer(), consumer())
    assert desk.members() == ["10.0.0.1@123"]


def test_a_heartbeat_makes_the_group_and_its_retry_topic(desk: Desk) -> None:
    desk.beat(desk.peer(), consumer())
    assert desk.groups.get("g") is not None
    assert desk.topics.configs["%RETRY%g"].read_queue_nums == 1


def test_the_retry_topic_of_an_ordered_topic_is_ordered(desk: Desk) -> None:
    desk.topics.update(TopicConfig(topic_name="T", order=True), {}, 0)
    desk.beat(desk.peer(), consumer(unitMode=True))
    retry = desk.topics.configs["%RETRY%g"]
    assert (retry.order, retry.topic_sys_flag) == (True, 2)


def test_a_group_that_may_not_be_is_passed_over_in_silence() -> None:
    desk = Desk(dataclasses.replace(OPTIONS, auto_create_subscription_group=False))
    desk.beat(desk.peer(), consumer(), consumer("TOOLS_CONSUMER"))
    assert set(desk.clients.consumers) == {"TOOLS_CONSUMER"}


def test_pull_consumers_can_be_kept_out() -> None:
    desk = Desk(reject_pull_consumers=lambda: True)
    desk.beat(desk.peer(), consumer("p", consumeType="CONSUME_ACTIVELY"), consumer())
    assert set(desk.clients.consumers) == {"g"}


def test_a_producers_heartbeat_registers_it(desk: Desk) -> None:
    desk.beat(desk.peer(), producers=("pg",))
    found = desk.clients.producer("10.0.0.1@123")
    assert found is not None
    assert (found.language, found.version) == ("JAVA", 479)


def test_an_empty_heartbeat_is_fine(desk: Desk) -> None:
    assert desk.beat(desk.peer()) == (True, True)


def test_heartbeats_of_clients_in_other_languages_are_read(desk: Desk) -> None:
    body = (
        b'{"clientID":"1-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,'
        b'"consumeType":1,"groupName":"g","messageModel":1,"subscriptionDataSet":['
        b'{"subString":"A","subVersion":"1700000000000","topic":"T","codeSet":["65"]},'
        b'{"subString":"*","subVersion":"1700000000000","topic":"%RETRY%g"}]}],'
        b'"producerDataSet":[]}\n'
    )
    desk.processor.heartbeat(
        headers.Heartbeat(), request(RequestCode.HEART_BEAT, body), desk.peer()
    )
    entry = desk.clients.group("g")
    assert entry is not None
    assert (entry.message_model, entry.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    tag_filter = entry.subscriptions["T"].tag_filter
    assert tag_filter is not None
    assert tag_filter.codes == frozenset({65})
    assert entry.subscriptions["T"].sub_version == 1_700_000_000_000


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"consumerDataSet":5}'])
def test_a_heartbeat_that_does_not_decode_changes_nothing(desk: Desk, body: bytes) -> None:
    with pytest.raises(BodyError):
        desk.processor.heartbeat(
            headers.Heartbeat(), request(RequestCode.HEART_BEAT, body), desk.peer()
        )
    assert desk.clients.consumers == {}


# -- who is told ---------------------------------------------------------------------------------


def test_everyone_in_the_group_is_told_when_someone_comes(desk: Desk) -> None:
    first, second = desk.peer(), desk.peer()
    desk.beat(first, consumer(), client_id="a")
    assert told(first) == 1
    desk.beat(second, consumer(), client_id="b")
    assert (told(first), told(second)) == (2, 1)
    desk.beat(first, consumer(), client_id="a")
    assert (told(first), told(second)) == (2, 1)


def test_a_changed_set_of_topics_is_told_and_a_new_version_is_not(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer("g", subscription("T", version=1)))
    desk.beat(peer, consumer("g", subscription("T", version=2)))
    assert told(peer) == 1
    desk.beat(peer, consumer("g", subscription("T"), subscription("U")))
    assert told(peer) == 2


def test_a_broadcasting_group_is_not_told_who_comes(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer(messageModel="BROADCASTING"))
    assert told(peer) == 0


def test_a_group_that_does_not_want_to_be_told_is_not(desk: Desk) -> None:
    config = msgspec.structs.replace(
        desk.groups.require("g", 0), notify_consumer_ids_changed_enable=False
    )
    desk.groups.update(config, 0)
    first, second = desk.peer(), desk.peer()
    desk.beat(first, consumer(), client_id="a")
    desk.beat(second, consumer(), client_id="b")
    second.close("gone")
    assert told(first) == 0


def test_the_broker_can_be_set_to_tell_no_one() -> None:
    desk = Desk(notify_enabled=lambda: False)
    peer = desk.peer()
    desk.beat(peer, consumer())
    assert told(peer) == 0


def test_when_a_connection_closes_the_rest_is_told_at_once(desk: Desk) -> None:
    first, second = desk.peer(), desk.peer()
    desk.beat(first, consumer(), client_id="a")
    desk.beat(second, consumer(), client_id="b")
    second.close("gone")
    assert told(first) == 3
    assert desk.members() == ["a"]


def unregister(desk: Desk, peer: Any, **fields: Any) -> None:
    header = headers.UnregisterClient(client_id="x", **fields)
    command = request(RequestCode.UNREGISTER_CLIENT)
    assert desk.processor.unregister(header, command, peer).code == 0


def test_a_good_bye_takes_the_sending_connection_out_of_the_named_groups(desk: Desk) -> None:
    first, second = desk.peer(), desk.peer()
    desk.beat(first, consumer(), producers=("pg",), client_id="a")
    desk.beat(second, consumer(), client_id="b")
    unregister(desk, first, consumer_group="g")
    assert desk.members() == ["b"]
    assert told(second) == 2
    assert desk.clients.producer("a") is not None
    unregister(desk, first, producer_group="pg")
    assert desk.clients.producer("a") is None


def test_no_one_says_good_bye_for_another_connection(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer(), client_id="a")
    unregister(desk, desk.peer(), consumer_group="g")
    assert desk.members() == ["a"]
    assert told(peer) == 2
    unregister(desk, desk.peer(), consumer_group="unknown", producer_group="unknown")


def test_a_client_without_heartbeat_is_closed_and_the_rest_is_told(desk: Desk) -> None:
    silent, lively = desk.peer(), desk.peer()
    desk.beat(silent, consumer(), client_id="a")
    desk.clock.pass_ms(100_000)
    desk.beat(lively, consumer(), client_id="b")
    desk.clock.pass_ms(20_001)
    desk.processor.expire(120_000)
    assert silent.closed == "no heartbeat in time"
    assert lively.closed is None
    assert desk.members() == ["b"]
    assert told(lively) == 2


# -- heartbeats without subscriptions ------------------------------------------------------------


def test_a_plain_heartbeat_is_always_to_be_sent_in_full(desk: Desk) -> None:
    peer = desk.peer()
    assert desk.beat(peer, consumer()) == (True, True)
    assert desk.beat(peer, consumer()) == (True, True)


def test_equal_fingerprints_spare_the_subscriptions(desk: Desk) -> None:
    peer = desk.peer()
    assert desk.beat(peer, consumer(), heartbeatFingerprint=7) == (True, False)
    short = consumer(subscriptionDataSet=[])
    assert desk.beat(peer, short, heartbeatFingerprint=7, withoutSub=True) == (True, False)
    entry = desk.clients.group("g")
    assert entry is not None
    assert set(entry.subscriptions) == {"T"}


def test_another_fingerprint_asks_for_the_subscriptions(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer(), heartbeatFingerprint=7)
    short = consumer(subscriptionDataSet=[])
    assert desk.beat(peer, short, heartbeatFingerprint=8, withoutSub=True) == (True, True)
    entry = desk.clients.group("g")
    assert entry is not None
    assert set(entry.subscriptions) == {"T"}


def test_after_a_restart_a_short_heartbeat_is_asked_for_the_subscriptions(desk: Desk) -> None:
    peer = desk.peer()
    short = consumer(subscriptionDataSet=[])
    for _ in range(2):
        assert desk.beat(peer, short, heartbeatFingerprint=7, withoutSub=True) == (True, True)
    assert desk.members() == ["10.0.0.1@123"]
    assert desk.beat(peer, consumer(), heartbeatFingerprint=7) == (True, False)
    assert desk.beat(peer, short, heartbeatFingerprint=7, withoutSub=True) == (True, False)


# -- questions -----------------------------------------------------------------------------------


def test_a_group_without_members_has_no_list(desk: Desk) -> None:
    with pytest.raises(Refused, match="no consumer for this group, g") as caught:
        desk.members()
    assert caught.value.code == 1


def check(desk: Desk, **subscription_fields: Any) -> int:
    body = {
        "clientId": "c",
        "group": "g",
        "namespace": "",
        "subscriptionData": {**subscription(), **subscription_fields},
    }
    command = request(RequestCode.CHECK_CLIENT_CONFIG, json.dumps(body).encode())
    return desk.processor.check_config(headers.CheckClientConfig(), command, desk.peer()).code


def test_tags_can_be_served_and_sql_cannot(desk: Desk) -> None:
    assert check(desk) == 0
    assert check(desk, expressionType=None) == 0
    with pytest.raises(Refused, match="filter message by SQL92") as caught:
        check(desk, expressionType="SQL92", subString="a > 5")
    assert caught.value.code == 1


# -- locks ---------------------------------------------------------------------------------------


def test_a_lock_answer_lists_what_the_client_holds_now(desk: Desk) -> None:
    assert desk.lock("a", 0, 1) == [0, 1]
    assert desk.lock("b", 1, 2) == [2]
    assert desk.lock("a", 0, 1) == [0, 1]


def test_a_lock_moves_when_it_is_given_back_or_too_old(desk: Desk) -> None:
    desk.lock("a", 0, 1)
    desk.lock("b", 0, give_back=True)
    assert desk.lock("b", 0) == []
    desk.lock("a", 0, give_back=True)
    assert desk.lock("b", 0) == [0]
    desk.clock.pass_ms(LOCK_LIVES_MS + 1)
    assert desk.lock("b", 1) == [1]
