import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.consumers.client_processor import ClientProcessor
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.consumers.member_changes import MemberChanges
from aerobee.broker.consumers.queue_locks import LOCK_LIVES_MS
from aerobee.broker.consumers.tables import ConsumerTables
from aerobee.broker.errors import Refusal
from aerobee.broker.filters.consumer_filters import DEAD_KEPT_MS
from aerobee.broker.process.log import LineLimits
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.errors import BodyError
from aerobee.remoting.rate_limit import RateLimit
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers import client as headers
from tests.broker.peers import HandClock, Peer, request

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

    def __init__(
        self,
        options: BrokerOptions = OPTIONS,
        *,
        notify_enabled: Callable[[], bool] = lambda: True,
        **settings: Any,
    ) -> None:
        self.clock = HandClock()
        self.tables = ConsumerTables(GroupTable(options))
        self.clients, self.groups = self.tables.clients, self.tables.groups
        self.locks, self.filters = self.tables.locks, self.tables.filters
        self.compensation = self.tables.compensation
        self.topics = TopicTable(options)
        self.changes = MemberChanges(self.clients, enabled=notify_enabled)
        self.processor = ClientProcessor(
            dataclasses.replace(options, broker_name="b", **settings),
            tables=self.tables,
            topics=self.topics,
            clock=self.clock,
            changed=self.tell,
        )

    def tell(self, group: str) -> None:
        """What the service does that tells members, without its rests."""
        self.changes.changed(group)
        while self.changes.notify_due(math.inf) is not None:
            pass

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
        answer = finished(self.processor.heartbeat(headers.Heartbeat(), command, peer))
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

    def lock(
        self,
        client_id: str,
        *queue_ids: int,
        give_back: bool = False,
        topic: str = "T",
        broker: str = "b",
    ) -> list[int]:
        body = {
            "clientId": client_id,
            "consumerGroup": "g",
            "mqSet": [
                {"brokerName": broker, "queueId": queue_id, "topic": topic}
                for queue_id in queue_ids
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
    desk = Desk(reject_pull_consumer_enable=True)
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
    command = request(RequestCode.HEART_BEAT, body)
    finished(desk.processor.heartbeat(headers.Heartbeat(), command, desk.peer()))
    entry = desk.clients.group("g")
    assert entry is not None
    assert (entry.message_model, entry.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    tag_filter = entry.subscriptions["T"].tag_filter
    assert tag_filter is not None
    assert tag_filter.codes == frozenset({65})
    assert entry.subscriptions["T"].sub_version == 1_700_000_000_000


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"consumerDataSet":5}'])
def test_a_heartbeat_that_does_not_decode_changes_nothing(desk: Desk, body: bytes) -> None:
    command = request(RequestCode.HEART_BEAT, body)
    with pytest.raises(BodyError):
        finished(desk.processor.heartbeat(headers.Heartbeat(), command, desk.peer()))
    assert desk.clients.consumers == {}


# ── Who is told ──


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
    list(desk.processor.expire(120_000))
    assert silent.closed == "no heartbeat in time"
    assert lively.closed is None
    assert desk.members() == ["b"]
    assert told(lively) == 2


# ── Heartbeats without subscriptions ──


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


# ── Questions ──


def test_a_group_without_members_has_no_list(desk: Desk) -> None:
    with pytest.raises(Refusal, match="no consumer for this group, g") as caught:
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


def test_tags_can_be_served_and_sql_cannot_unless_it_is_turned_on(desk: Desk) -> None:
    assert check(desk) == 0
    assert check(desk, expressionType=None) == 0
    with pytest.raises(Refusal, match="filter message by SQL92") as caught:
        check(desk, expressionType="SQL92", subString="a > 5")
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("SQL92", "a >", "the end at character 4"),
        ("SQL92", "a > 'x'", "cannot be put in order"),
        ("SQL92", "", "empty"),
        ("XPATH", "//a", "XPATH is unknown"),
    ],
)
def test_what_cannot_be_filtered_by_is_refused_with_the_reason(
    kind: str, text: str, reason: str
) -> None:
    desk = Desk(enable_property_filter=True)
    assert check(desk, expressionType="SQL92", subString="a > 5 AND b IS NULL") == 0
    with pytest.raises(Refusal, match=reason) as caught:
        check(desk, expressionType=kind, subString=text)
    assert caught.value.code == 23


# ── Filters ──


def by_sql(text: str, topic: str = "T", version: int = 1) -> dict[str, Any]:
    return {**subscription(topic, text, version), "expressionType": "SQL92"}


def test_a_heartbeat_registers_filters_and_the_last_good_bye_leaves_them_dead(desk: Desk) -> None:
    one, two = desk.peer(), desk.peer()
    for peer in (one, two):
        desk.beat(peer, consumer("g", by_sql("a > 1"), by_sql("b = 2", "U"), subscription("V")))
    known = desk.filters.get("T", "g")
    assert known is not None
    assert known.sql is not None
    assert known.sql.matches(b"a\x012\x02")
    assert desk.filters.get("V", "g") is None, "tags need no filter data"
    desk.processor.connection_closed(one)
    assert not known.dead_ms
    desk.processor.connection_closed(two)
    assert known.dead_ms == desk.clock.now_ms()

    desk.beat(desk.peer(), consumer("g", by_sql("a > 1")))
    revived, other = desk.filters.get("T", "g"), desk.filters.get("U", "g")
    assert revived is not None
    assert other is not None
    assert not revived.dead_ms
    assert other.dead_ms, "no longer subscribed"
    desk.clock.pass_ms(DEAD_KEPT_MS)
    list(desk.processor.expire(DEAD_KEPT_MS + 1))
    assert desk.filters.get("U", "g") is None
    assert desk.filters.get("T", "g") is revived


def test_an_unregistered_group_leaves_its_filters_dead(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer("g", by_sql("a > 1")))
    header = headers.UnregisterClient(client_id="c", consumer_group="g")
    desk.processor.unregister(header, request(RequestCode.UNREGISTER_CLIENT), peer)
    known = desk.filters.get("T", "g")
    assert known is not None
    assert known.dead_ms


def test_a_heartbeat_without_subscriptions_keeps_the_filters(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, consumer("g", by_sql("a > 1")), heartbeatFingerprint=7)
    bare = consumer("g", subscriptionDataSet=[])
    desk.beat(peer, bare, heartbeatFingerprint=7, withoutSub=True)
    known = desk.filters.get("T", "g")
    assert known is not None
    assert not known.dead_ms


def test_what_pulls_told_is_forgotten_when_no_pull_renews_it(desk: Desk) -> None:
    desk.compensation.note("g", "T", int(desk.clock.monotonic() * 1000))
    desk.clock.pass_ms(600_000)
    list(desk.processor.expire(10**9))
    assert "T" in desk.compensation.topics("g")
    desk.clock.pass_ms(1)
    list(desk.processor.expire(10**9))
    assert not desk.compensation.topics("g")


# ── Locks ──


@pytest.fixture
def locking(desk: Desk) -> Desk:
    """There is a topic with queues to lock."""
    desk.topics.put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4))
    return desk


def test_a_lock_answer_lists_what_the_client_holds_now(locking: Desk) -> None:
    assert locking.lock("a", 0, 1) == [0, 1]
    assert locking.lock("b", 1, 2) == [2]
    assert locking.lock("a", 0, 1) == [0, 1]


def test_a_lock_moves_when_it_is_given_back_or_too_old(locking: Desk) -> None:
    locking.lock("a", 0, 1)
    locking.lock("b", 0, give_back=True)
    assert locking.lock("b", 0) == []
    locking.lock("a", 0, give_back=True)
    assert locking.lock("b", 0) == [0]
    locking.clock.pass_ms(LOCK_LIVES_MS + 1)
    assert locking.lock("b", 1) == [1]


def test_only_queues_that_are_here_can_be_locked(locking: Desk) -> None:
    assert locking.lock("a", -1, 0, 3, 4, 1_000_000) == [0, 3]
    assert locking.lock("a", 1, topic="invented") == []
    assert locking.lock("a", 1, broker="elsewhere") == []
    assert locking.locks.count == 2


def test_a_group_that_may_not_exist_locks_nothing() -> None:
    desk = Desk(dataclasses.replace(OPTIONS, auto_create_subscription_group=False))
    desk.topics.put(TopicConfig(topic_name="T"))
    assert desk.lock("a", 0) == []
    assert desk.locks.count == 0


# ── A client that says too much ──


def nothing_is_known(desk: Desk) -> bool:
    tables = (desk.clients.consumers, desk.clients.producers, desk.clients.groups_of)
    return not any(tables) and desk.groups.get("g0") is None and not desk.topics.group_topics


def many(count: int) -> list[dict[str, Any]]:
    return [consumer(f"g{number}") for number in range(count)]


def test_a_heartbeat_with_too_many_groups_is_refused_whole(desk: Desk) -> None:
    with pytest.raises(Refusal, match="group of one connection: 1024 is the limit"):
        desk.beat(desk.peer(), *many(1_000), producers=tuple(f"p{n}" for n in range(25)))
    assert nothing_is_known(desk)


def test_a_connection_does_not_get_into_more_groups_by_more_heartbeats(desk: Desk) -> None:
    peer = desk.peer()
    desk.beat(peer, producers=tuple(f"p{number}" for number in range(1_000)))
    desk.beat(peer, *many(24))
    with pytest.raises(Refusal, match="group of one connection"):
        desk.beat(peer, consumer("one more"))
    desk.beat(peer, *many(24))


def test_a_heartbeat_with_too_many_subscriptions_is_refused_whole(desk: Desk) -> None:
    greedy = consumer("g1", *(subscription(f"t{number}") for number in range(1_025)))
    with pytest.raises(Refusal, match="subscription of group g1: maxSubscriptionsOfGroup is 1024"):
        desk.beat(desk.peer(), consumer("g0"), greedy)
    assert nothing_is_known(desk)


def test_a_heartbeat_for_which_a_table_has_no_room_is_refused_whole(desk: Desk) -> None:
    desk.groups.max_groups = len(desk.groups.configs) + 1
    with pytest.raises(Refusal, match="no room for another consumer group"):
        desk.beat(desk.peer(), *many(2))
    assert nothing_is_known(desk)
    desk.beat(desk.peer(), *many(1))


def test_a_heartbeat_whose_retry_topics_have_no_room_is_refused_whole(desk: Desk) -> None:
    desk.topics.max_topics = 1
    with pytest.raises(Refusal, match="no room for another topic"):
        desk.beat(desk.peer(), *many(2))
    assert nothing_is_known(desk)


def test_groups_are_made_only_so_fast_and_known_ones_go_on(desk: Desk) -> None:
    desk.groups.rate = RateLimit(5, 1)
    peer = desk.peer()
    desk.beat(peer, *many(5))
    with pytest.raises(Refusal, match="no new consumer group now") as refused:
        desk.beat(peer, *many(6))
    assert refused.value.code == 2
    desk.beat(peer, *many(5))
    desk.clock.pass_ms(1_000)
    desk.beat(peer, *many(6))
    assert desk.groups.get("g5") is not None


def test_a_heartbeat_of_a_megabyte_is_refused_before_it_is_read(desk: Desk) -> None:
    with pytest.raises(BodyError, match="at most 1048576 are taken"):
        desk.beat(desk.peer(), client_id="x" * (1 << 20))
    assert nothing_is_known(desk)


def test_clients_that_come_and_go_write_a_few_lines(desk: Desk) -> None:
    with capture_logs(processors=[LineLimits()]) as lines:
        for _ in range(50):
            peer = desk.peer()
            desk.beat(peer, consumer())
            peer.close("gone")
    changes = [line for line in lines if line["event"] == "group.changed"]
    assert len(changes) == 20


def test_a_heartbeat_of_many_groups_gives_way_between_them() -> None:
    desk = Desk()
    body = {
        "clientID": "c",
        "consumerDataSet": [{"groupName": f"g{number}"} for number in range(500)],
        "producerDataSet": [{"groupName": f"p{number}"} for number in range(500)],
    }
    command = request(RequestCode.HEART_BEAT, json.dumps(body).encode())
    steps = desk.processor.heartbeat(headers.Heartbeat(), command, desk.peer())
    assert sum(1 for _ in steps) == 1_000


def sql_heartbeat(texts: list[str]) -> Command:
    """A heartbeat of one group with a filter in SQL on each of some topics."""
    wanted = [
        {"topic": f"t{at}", "subString": text, "expressionType": "SQL92", "subVersion": 1}
        for at, text in enumerate(texts)
    ]
    consumers = [{"groupName": "g", "subscriptionDataSet": wanted}]
    body = {"clientID": "c", "consumerDataSet": consumers, "producerDataSet": []}
    return request(RequestCode.HEART_BEAT, json.dumps(body).encode())


def test_the_filters_of_a_heartbeat_are_compiled_one_by_one_and_registered_together() -> None:
    desk = Desk()
    peer = desk.peer()
    texts = [f"a > {number}" for number in range(8)] + ["a >"] * 2
    steps = desk.processor.heartbeat(headers.Heartbeat(), sql_heartbeat(texts), peer)
    for _ in range(len(texts) + 9):
        # One for each text, and one for each different filter.
        next(steps)
        assert nothing_is_known(desk)
    with capture_logs() as lines:
        next(steps)
    assert [line["reason"] for line in lines if line["event"] == "filter.refused"] == [
        "t8: the end at character 4",
        "t9: the end at character 4",
    ]
    assert desk.clients.group("g") is not None
    assert desk.processor.filters.count == 8
    finished(steps)
    again = desk.processor.heartbeat(headers.Heartbeat(), sql_heartbeat(texts[:8]), peer)
    assert sum(1 for _ in again) == 8 + 1


@pytest.mark.parametrize(
    "subscription",
    [
        {"subString": "t || " * 5_000},
        {"tagsSet": ["t"] * 3_000},
        {"tagsSet": ["t" * 20_000]},
        {"codeSet": [1] * 3_000},
    ],
)
def test_a_heartbeat_with_tags_beyond_measure_is_refused_and_nothing_of_it_stays(
    subscription: dict[str, Any],
) -> None:
    desk = Desk()
    topics = [{"topic": "t"}, {"topic": "u", **subscription}]
    with pytest.raises(Refusal, match="the subscription of group g on topic u is too long"):
        desk.beat(desk.peer(), {"groupName": "g", "subscriptionDataSet": topics})
    assert desk.clients.group("g") is None
