"""A member of a group as a play: which queues it takes, where it begins, what it commits."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aerobee.client.filters import Filter
from aerobee.client.message import ReceivedMessage
from aerobee.client.send_result import MessageQueue
from aerobee.client.settings.client import ConsumeFrom
from aerobee.client.settings.consumers import PullConfig
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.polling import PullMember
from aerobee.errors import (
    BrokerError,
    ClientStateError,
    ConfigurationError,
    ConnectError,
    MessageUnreadableError,
    QueueNotAssignedError,
    RouteNotFoundError,
    SubscriptionError,
    TopicNotFoundError,
)
from aerobee.remoting.wire.bodies.client import HeartbeatData
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import (
    CheckClientConfig,
    GetConsumerListByGroup,
    Heartbeat,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pull import LitePullMessage, PullMessage
from aerobee.remoting.wire.headers.send import ConsumerSendMsgBack
from aerobee.store.format import properties, record
from tests.aerobee.client.steps.stage import Stage, answer, moved, no_topic, route

if TYPE_CHECKING:
    from aerobee.client.steps.held_queue import HeldQueue

T0, T1, T2, T3 = (MessageQueue("T", "broker-a", n) for n in range(4))


def members(*ids: str) -> Command:
    return answer(body=json.dumps({"consumerIdList": ids}).encode())


def pulled(*offsets: int, then: int, tag: str = "", sys_flag: int = 0) -> Command:
    """A pull answer with messages at these offsets."""
    records = [
        record.encode(
            record.MessageDraft(
                topic="T",
                queue_id=0,
                body=b"body %d" % offset,
                properties=properties.encode({"TAGS": tag}).encode(),
                born_host=bytes(8),
                store_host=bytes(8),
                sys_flag=sys_flag,
            ),
            offset,
            1000 * offset,
            1,
        )
        for offset in offsets
    ]
    return pull_answer(0, then, b"".join(records))


def pull_answer(
    code: int, then: int, body: bytes = b"", *, least: int = 0, end: int = 1000
) -> Command:
    """With the fields that every such answer carries."""
    return answer(
        code,
        body,
        suggestWhichBrokerId=0,
        nextBeginOffset=then,
        minOffset=least,
        maxOffset=end,
        topicSysFlag=0,
        groupSysFlag=0,
    )


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(Heartbeat, answer())
    stage.answers(GetConsumerListByGroup, members("me@1"))
    stage.answers(QueryConsumerOffset, answer(22))
    stage.answers(GetMaxOffset, answer(offset=100))
    stage.answers(GetMinOffset, answer(offset=10))
    stage.answers(SearchOffset, answer(offset=55))
    stage.answers(UpdateConsumerOffset, answer())
    stage.answers(UnregisterClient, answer())
    return stage


class Consumer:
    """A member, and the queues it wants pulled."""

    def __init__(self, stage: Stage, **options: object) -> None:
        self.stage = stage
        self.begun: list[HeldQueue] = []
        config = PullConfig(group="g", **options)  # type: ignore[arg-type]  # by name
        self.member = PullMember(stage.instance, config, self.begun.append)
        self.member.begin()

    def subscribe(self, topic: str = "T", expression: str | Filter = "*") -> None:
        self.stage.perform(self.member.subscribe(topic, expression))

    def assign(self, *queues: MessageQueue, expression: str | Filter = "*") -> None:
        self.stage.perform(self.member.assign(queues, expression))

    def pull(self, queue: MessageQueue) -> float:
        held = self.member.held[queue]
        subscription = self.member.subscription_of(queue.topic)
        return self.stage.perform(self.member.puller.pull(held, subscription))

    def poll(self, most: int = 10) -> list[ReceivedMessage]:
        return self.stage.perform(self.member.poll(most, 0.0))

    def committed(self) -> dict[str, str]:
        asks = self.stage.asked(UpdateConsumerOffset)
        return {ask.header.ext()["queueId"]: ask.header.ext()["commitOffset"] for ask in asks}


@pytest.fixture
def consumer(stage: Stage) -> Consumer:
    return Consumer(stage)


# ── Which queues ──


def test_a_member_alone_takes_all_queues(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    assert set(consumer.member.held) == {T0, T1, T2, T3}
    assert [held.queue for held in consumer.begun] == [T0, T1, T2, T3]
    assert [type(ask.header) for ask in stage.heard[:3]] == [
        GetRouteInfo,
        Heartbeat,
        GetConsumerListByGroup,
    ]


def test_the_heartbeat_tells_of_the_group_and_its_subscriptions(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.subscribe(expression="A || B")
    body = HeartbeatData.from_bytes(stage.asked(Heartbeat)[0].body)
    (told,) = body.consumer_data_set
    assert body.client_id == "me@1"
    assert (told.group_name, told.consume_type) == ("g", "CONSUME_ACTIVELY")
    (subscription,) = told.subscription_data_set
    assert (subscription.topic, subscription.sub_string) == ("T", "A || B")
    assert set(subscription.tags_set) == {"A", "B"}
    assert set(subscription.code_set) == {65, 66}


def test_members_share_and_hand_over_what_is_finished(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    stage.answers(LitePullMessage, pulled(100, 101, then=102))
    consumer.pull(T0)
    first, _ = consumer.poll()
    consumer.member.done([first])
    stage.answers(GetConsumerListByGroup, members("me@1", "her@1"))
    consumer.member.rebalance_now.set()
    assert stage.perform(consumer.member.rebalance())
    assert set(consumer.member.held) == {T2, T3}
    assert consumer.committed() == {"0": "101", "1": "100"}
    assert consumer.begun[0].dropped


def test_each_loss_of_a_commit_is_logged(
    stage: Stage, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    refused = answer(1, remark="error")
    stage.answers(UpdateConsumerOffset, refused, answer(), refused, refused)
    for _ in range(4):
        consumer.assign(T0)
        consumer.assign()
    assert len(caplog.records) == 2, "the second one after it was committed again"


def test_a_member_whose_close_was_cut_off_takes_no_queue_on_again(stage: Stage) -> None:
    member = PullMember(stage.instance, PullConfig(group="g"), lambda held: None)
    steps = member.begin()
    member.let_go()
    for some in steps:
        with pytest.raises(StopIteration):
            next(some)


def test_a_change_of_the_group_calls_for_a_rebalance(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    assert not consumer.member.rebalance_now.is_set
    told = Command(40, flag=2, ext=NotifyConsumerIdsChanged(consumer_group="g").ext())
    assert stage.instance.serve(told) is None
    assert consumer.member.rebalance_now.is_set


def test_requests_we_do_not_know_are_refused(stage: Stage) -> None:
    assert stage.instance.serve(Command(399)) == 3
    assert stage.instance.serve(Command(399, flag=2)) is None


def test_without_the_list_of_members_nothing_changes_hands(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.subscribe()
    for silence in (answer(1, remark="no consumer"), ConnectError("gone"), members()):
        stage.answers(GetConsumerListByGroup, silence)
        assert not stage.perform(consumer.member.rebalance())
        assert len(consumer.member.held) == 4


def test_a_queue_whose_start_is_not_known_is_left_out_for_now(
    stage: Stage, consumer: Consumer
) -> None:
    stage.answers(QueryConsumerOffset, answer(22), answer(1, remark="error"))
    consumer.subscribe()
    assert set(consumer.member.held) == {T0}
    stage.answers(QueryConsumerOffset, answer(22))
    assert stage.perform(consumer.member.rebalance())
    assert len(consumer.member.held) == 4


def test_a_topic_that_is_not_there_yet_is_waited_for(stage: Stage, consumer: Consumer) -> None:
    stage.answers(GetRouteInfo, no_topic())
    consumer.subscribe()
    assert not consumer.member.held
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.perform(stage.instance.refresh_routes())
    assert consumer.member.rebalance_now.is_set
    assert stage.perform(consumer.member.rebalance())
    assert len(consumer.member.held) == 4


def test_assigned_queues_are_held_whatever_the_group_does(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T1, T2)
    assert set(consumer.member.held) == {T1, T2}
    consumer.assign(T2, T3)
    assert set(consumer.member.held) == {T2, T3}
    assert not stage.asked(GetConsumerListByGroup)
    assert stage.asked(Heartbeat)


def test_subscribing_and_assigning_exclude_each_other(stage: Stage) -> None:
    one = Consumer(stage)
    one.assign(T0)
    with pytest.raises(ClientStateError):
        one.subscribe()
    stage.instance.consumers.clear()
    other = Consumer(stage)
    other.subscribe()
    with pytest.raises(ClientStateError):
        other.assign(T0)


def test_assigning_needs_the_topic(stage: Stage, consumer: Consumer) -> None:
    stage.answers(GetRouteInfo, no_topic())
    with pytest.raises(RouteNotFoundError):
        consumer.assign(T0)


def test_an_expression_of_separators_is_refused(consumer: Consumer) -> None:
    with pytest.raises(ConfigurationError, match="names no tag"):
        consumer.subscribe(expression=" || ")


def test_a_condition_is_checked_with_a_broker_first(stage: Stage, consumer: Consumer) -> None:
    stage.answers(CheckClientConfig, answer(23, remark="no such column"))
    with pytest.raises(SubscriptionError, match=r"broker-a at .*no such column; filter 'a > 5'"):
        consumer.subscribe(expression=Filter.sql("a > 5"))
    assert not consumer.member.subscriptions
    off = "The broker does not support consumer to filter message by SQL92"
    stage.answers(CheckClientConfig, answer(1, remark=off))
    with pytest.raises(SubscriptionError, match="enablePropertyFilter=true"):
        consumer.assign(T0, expression=Filter.sql("a > 5"))


def test_a_condition_is_told_in_heartbeats_and_pulls(stage: Stage, consumer: Consumer) -> None:
    stage.answers(CheckClientConfig, answer())
    consumer.subscribe(expression=Filter.sql("a > 5"))
    (told,) = HeartbeatData.from_bytes(stage.asked(Heartbeat)[0].body).consumer_data_set
    (subscription,) = told.subscription_data_set
    assert (subscription.expression_type, subscription.sub_string) == ("SQL92", "a > 5")
    assert not subscription.tags_set
    assert not subscription.code_set
    stage.answers(LitePullMessage, pulled(100, then=101, tag="any"))
    consumer.pull(T0)
    fields = stage.asked(LitePullMessage)[0].header.ext()
    assert (fields["expressionType"], fields["subscription"]) == ("SQL92", "a > 5")
    assert len(consumer.poll()) == 1


def test_a_condition_that_a_pull_is_refused_for_is_raised(stage: Stage, consumer: Consumer) -> None:
    stage.answers(CheckClientConfig, answer())
    consumer.assign(T0, expression=Filter.sql("a > 5"))
    stage.answers(LitePullMessage, answer(23, remark="parse failed"))
    consumer.pull(T0)
    with pytest.raises(SubscriptionError, match="parse failed"):
        consumer.poll()


@pytest.mark.parametrize("assigned", [False, True])
def test_another_expression_counts_for_what_is_not_delivered_yet(
    stage: Stage, consumer: Consumer, *, assigned: bool
) -> None:
    choose = partial(consumer.assign, T0) if assigned else consumer.subscribe
    choose(expression="A")
    stage.answers(LitePullMessage, pulled(100, 101, then=110, tag="A"))
    consumer.pull(T0)
    assert len(consumer.poll(most=1)) == 1
    pulls = consumer.member.pull_on(consumer.member.holding(T0))
    first = next(pulls)
    choose(expression="B")
    assert isinstance(first, Ask)
    assert first.until is not None
    assert first.until.is_set, "the pull with the old expression is over"
    again = pulls.send(None)
    assert isinstance(again, Ask)
    assert isinstance(again.header, LitePullMessage)
    assert (again.header.subscription, again.header.queue_offset) == ("B", 101)


def test_the_same_expression_once_more_changes_nothing(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe(expression="A")
    stage.answers(LitePullMessage, pulled(100, 101, then=110, tag="A"))
    consumer.pull(T0)
    consumer.subscribe(expression="A")
    assert len(consumer.poll()) == 2


def test_a_reset_does_not_resume_a_paused_queue(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    consumer.member.pause([T0])
    stage.perform(consumer.member.reset({T0: 50}))
    held = consumer.member.holding(T0)
    assert (held.next_offset, held.paused) == (50, True)


def test_a_group_is_consumed_once_per_client(stage: Stage, consumer: Consumer) -> None:
    with pytest.raises(ConfigurationError, match="already has a consumer"):
        Consumer(stage)


def test_a_master_that_takes_no_commit_is_looked_for_anew(stage: Stage, consumer: Consumer) -> None:
    """It is a slave now, and still serves pulls."""
    consumer.subscribe()
    stage.answers(UpdateConsumerOffset, answer(1, remark="a slave"))
    stage.answers(GetRouteInfo, moved())
    stage.now_s += 5
    with pytest.raises(BrokerError, match="a slave"):
        stage.perform(consumer.member.commit({T0: 1}))
    stage.answers(UpdateConsumerOffset, answer())
    stage.perform(consumer.member.commit({T0: 1}))
    assert stage.asked(UpdateConsumerOffset)[-1].address == "new-host:10911"


def test_a_broker_that_is_away_does_not_keep_the_queues_of_others(
    stage: Stage, consumer: Consumer
) -> None:
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", queues=2))
    asked_of_a: list[Ask] = []

    def start(ask: Ask) -> Command:
        if ask.address.startswith("broker-a"):
            asked_of_a.append(ask)
            raise ConnectError("refused")
        return answer(offset=42)

    stage.answers(QueryConsumerOffset, start)
    consumer.subscribe()
    assert {queue.broker_name for queue in consumer.member.held} == {"broker-b"}
    assert len(consumer.member.held) == 2
    assert len(asked_of_a) == 1, "each further request would wait for its timeout"
    assert consumer.member.rebalance_now.is_set, "the rest is tried again soon"


def test_a_broker_that_is_away_is_not_asked_for_the_members(
    stage: Stage, consumer: Consumer
) -> None:
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", "broker-c"))

    def beat(ask: Ask) -> Command:
        if ask.address.startswith("broker-b"):
            return answer()
        raise ConnectError("refused")

    stage.answers(Heartbeat, beat)
    consumer.subscribe()
    for _ in range(5):
        assert stage.perform(consumer.member.rebalance())
    asked = {ask.address for ask in stage.asked(GetConsumerListByGroup)}
    assert asked == {"broker-b:10911"}
    stage.heard.clear()
    consumer.member.instance.subscriptions_changed()
    stage.perform(stage.instance.send_heartbeats())
    assert [ask.address for ask in stage.asked(Heartbeat)] == [
        "broker-b:10911",
        "broker-a:10911",
        "broker-c:10911",
    ]


# ── Where it begins ──


@pytest.mark.parametrize(
    ("start_from", "offset"),
    [
        (ConsumeFrom.LAST, 100),
        (ConsumeFrom.FIRST, 10),
        (datetime(2025, 1, 1, tzinfo=UTC), 55),
    ],
)
def test_a_new_group_begins_where_it_was_told(
    stage: Stage, start_from: ConsumeFrom | datetime, offset: int
) -> None:
    consumer = Consumer(stage, start_from=start_from)
    consumer.assign(T0)
    assert consumer.member.holding(T0).position == offset


def test_a_stored_offset_wins(stage: Stage) -> None:
    stage.answers(QueryConsumerOffset, answer(offset=42))
    consumer = Consumer(stage, start_from=ConsumeFrom.FIRST)
    consumer.assign(T0)
    assert consumer.member.holding(T0).position == 42


def test_a_negative_stored_offset_is_none(stage: Stage, consumer: Consumer) -> None:
    stage.answers(QueryConsumerOffset, answer(offset=-1))
    assert stage.perform(consumer.member.offsets.committed(T0)) is None


def test_a_start_time_needs_a_zone(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Consumer(stage, start_from=datetime(2025, 1, 1))  # noqa: DTZ001 (that is the point)


# ── Pulling ──


def test_messages_are_pulled_and_handed_out_in_order(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, 101, then=102), pulled(102, then=103))
    assert consumer.pull(T0) == 0
    assert consumer.pull(T0) == 0
    assert [message.body for message in consumer.poll()] == [b"body 100", b"body 101", b"body 102"]
    asked = [ask.header.ext() for ask in stage.asked(LitePullMessage)]
    assert [ext["queueOffset"] for ext in asked] == ["100", "102"]
    assert asked[0]["sysFlag"] == "22"
    assert asked[0]["subscription"] == "*"


def test_other_tags_of_the_same_hash_are_left_out(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0, expression="Aa")
    stage.answers(LitePullMessage, pulled(100, then=101, tag="BB"))
    consumer.pull(T0)
    assert consumer.poll() == []
    assert consumer.member.holding(T0).position == 101


@pytest.mark.parametrize("code", [19, 20])
def test_nothing_new_moves_on_to_where_the_broker_says(
    stage: Stage, consumer: Consumer, code: int
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pull_answer(code, 120))
    assert consumer.pull(T0) == 0
    assert consumer.member.holding(T0).commit_point == 120


def test_an_offset_that_is_gone_moves_to_one_that_is_there(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pull_answer(21, 7))
    assert consumer.pull(T0) == 0
    assert consumer.member.holding(T0).position == 7


def test_a_slave_that_is_behind_is_not_asked_without_a_pause(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pull_answer(20, 110), pull_answer(20, 110))
    assert consumer.pull(T0) == 0
    assert consumer.pull(T0) == 0.05


def test_expired_messages_are_passed_over_and_pulled_ones_are_not(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    expired = pull_answer(21, 500, least=500)
    stage.answers(LitePullMessage, pulled(100, 101, then=102), expired, pulled(500, then=501))
    for _ in range(3):
        consumer.pull(T0)
    assert [message.queue_offset for message in consumer.poll()] == [100, 101, 500]


def test_each_loss_of_messages_is_logged(
    stage: Stage, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.assign(T0)
    stage.answers(
        LitePullMessage,
        pull_answer(21, 500, least=500),
        pull_answer(21, 600, least=600),
        pulled(600, then=601),
        pull_answer(21, 900, least=900),
        pulled(900, then=901),
    )
    for _ in range(5):
        consumer.pull(T0)
    losses = [record.getMessage() for record in caplog.records]
    assert losses == [
        f"{T0}: offset 100 is not there, going on at 500",
        f"{T0}: offset 601 is not there, going on at 900",
    ]


def test_a_broker_that_lost_its_end_gets_no_unfinished_message_skipped(
    stage: Stage, consumer: Consumer
) -> None:
    """It had 100 to 101 when it became master; 102 was lost, and another 102 came since."""
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, 101, 102, then=103), pull_answer(21, 102, end=102))
    stage.answers(SearchOffset, answer(offset=102))
    consumer.pull(T0)
    assert len(consumer.poll(most=1)) == 1
    consumer.pull(T0)
    assert consumer.member.holding(T0).next_offset == 100


def test_a_broker_that_lost_its_end_gets_no_new_message_skipped(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(
        LitePullMessage, pulled(*range(100, 110), then=110), pull_answer(21, 107, end=107)
    )
    stage.answers(SearchOffset, answer(offset=104))
    consumer.pull(T0)
    consumer.member.done(consumer.poll())
    consumer.pull(T0)
    assert consumer.member.holding(T0).next_offset == 104
    (search,) = stage.asked(SearchOffset)
    assert search.header.ext()["timestamp"] == "1", "when the last pulled one was stored"


def test_a_topic_made_anew_is_read_from_its_begin(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, 101, then=102), pull_answer(21, 2, end=2))
    stage.answers(SearchOffset, ConnectError("refused"), answer(offset=0))
    consumer.pull(T0)
    consumer.member.done(consumer.poll())
    assert consumer.pull(T0) == 1.0
    assert consumer.member.holding(T0).next_offset == 102, "it is asked again"
    assert consumer.pull(T0) == 0.0
    assert consumer.member.holding(T0).next_offset == 0
    stage.perform(consumer.member.commit(None))
    assert consumer.committed() == {"0": "0"}


def test_a_seek_while_the_end_of_a_queue_is_asked_for_wins(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, then=101), pull_answer(21, 2, end=2))

    def meanwhile(ask: Ask) -> Command:
        consumer.member.holding(T0).move_to(1)
        return answer(offset=0)

    stage.answers(SearchOffset, meanwhile)
    consumer.pull(T0)
    consumer.pull(T0)
    assert consumer.member.holding(T0).next_offset == 1


def test_an_old_broker_is_asked_in_its_own_words(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, answer(3, remark=" request type 361 not supported"))
    stage.answers(PullMessage, pulled(100, then=101))
    consumer.pull(T0)
    consumer.pull(T0)
    assert len(consumer.poll()) == 1
    assert stage.asked(PullMessage)[0].header.ext()["sysFlag"] == "6"


@pytest.mark.parametrize(
    "trouble", [ConnectError("refused"), answer(1, remark="error"), answer(0, body=b"nonsense")]
)
def test_after_trouble_the_next_pull_waits(
    stage: Stage, consumer: Consumer, trouble: Command | ConnectError
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, trouble)
    assert consumer.pull(T0) == 1.0
    assert consumer.member.holding(T0).position == 100


def test_a_queue_that_is_refused_is_logged_once_while_others_are_pulled(
    stage: Stage, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    consumer.assign(T0, T1)
    refused, nothing = answer(16, remark="no permission"), pull_answer(19, 100)
    stage.answers(LitePullMessage, refused, nothing, refused, nothing, nothing, nothing, refused)
    for queue in (T0, T1, T0, T1, T0, T1, T0):
        consumer.pull(queue)
    assert len(caplog.records) == 2, "the second one after it was pulled again"


def test_a_pull_finds_a_broker_that_has_moved(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    begun = stage.now_s
    consumer.member.rebalance_now.clear()
    stage.answers(GetRouteInfo, route("broker-a", broker_ids="9"), route("broker-b"))
    stage.answers(LitePullMessage, ConnectError("refused"))
    for _ in range(7):
        assert consumer.pull(T0) == 1.0
        stage.now_s += 1.0
    asked = {ask.address for ask in stage.asked(LitePullMessage)}
    assert asked == {"broker-a:10911", "broker-a:10920"}
    assert len(stage.asked(GetRouteInfo)) == 2, "one at the begin, then every 5 seconds"
    assert stage.now_s - begun < 10
    assert consumer.member.rebalance_now.is_set, "the queues are those of another broker now"


def test_another_expression_counts_while_a_pull_looks_for_its_broker(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.subscribe(expression="A")
    subscription = consumer.member.subscription_of("T")
    stage.instance.routes.clear()
    stage.instance.suspect("T")
    steps = consumer.member.puller.pull(consumer.member.holding(T0), subscription)
    ask = next(steps)
    assert isinstance(ask, Ask)
    assert isinstance(ask.header, GetRouteInfo)
    consumer.subscribe(expression="B")
    stage.answers(LitePullMessage, pulled(100, then=101))
    with pytest.raises(StopIteration):
        steps.send(route("broker-a"))
    assert consumer.member.holding(T0).next_offset == 100


def test_a_name_server_that_is_away_does_not_end_the_pulls(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(GetRouteInfo, ConnectError("refused"))
    stage.answers(LitePullMessage, ConnectError("refused"), pulled(100, then=101))
    stage.now_s += 60.0
    assert consumer.pull(T0) == 1.0
    assert consumer.pull(T0) == 0.0
    stage.instance.routes.clear()
    stage.instance.suspect("T", 0.0)
    assert consumer.pull(T0) == 1.0


def test_what_arrives_after_a_seek_is_not_for_us(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)

    def meanwhile(ask: Ask) -> Command:
        consumer.member.holding(T0).move_to(50)
        assert ask.until is not None
        assert ask.until.is_set
        return pulled(100, then=101)

    stage.answers(LitePullMessage, meanwhile)
    consumer.pull(T0)
    assert consumer.poll() == []
    assert consumer.member.holding(T0).position == 50


def test_a_body_that_does_not_unpack_stops_there_and_a_seek_goes_on(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, then=101), pulled(101, then=102, sys_flag=0x301))
    consumer.pull(T0)
    consumer.pull(T0)
    assert len(consumer.poll(most=10)) == 1
    with pytest.raises(MessageUnreadableError, match="T/broker-a/0 at 101") as raised:
        stage.perform(consumer.member.poll(10, 1.0))
    unread = raised.value.message
    stage.answers(GetMaxOffset, answer(offset=200))
    stage.perform(consumer.member.seek(unread.queue, unread.queue_offset + 1))
    assert consumer.member.holding(T0).broken is None


def unread_behind_one(stage: Stage, consumer: Consumer) -> ReceivedMessage:
    """The unreadable message at 101 of a queue, of which the one at 100 is delivered."""
    consumer.assign(T0)
    unreadable = pulled(101, then=102, sys_flag=0x301)
    stage.answers(LitePullMessage, pulled(100, then=101), unreadable, pulled(102, then=103))
    consumer.pull(T0)
    consumer.pull(T0)
    assert len(consumer.poll()) == 1
    with pytest.raises(MessageUnreadableError) as raised:
        consumer.poll()
    message: ReceivedMessage = raised.value.message
    return message


def test_to_be_done_with_what_does_not_unpack_finishes_nothing_else(
    stage: Stage, consumer: Consumer
) -> None:
    """What was delivered before it may still be at work, and the queue may have expired."""
    unread = unread_behind_one(stage, consumer)
    stage.answers(GetMinOffset, answer(offset=500))
    held = consumer.member.holding(T0)
    waits = held.interrupt
    consumer.member.done([unread])
    assert waits.is_set, "the pull goes on at once"
    assert (held.commit_point, held.position) == (100, 102)
    consumer.pull(T0)
    assert [message.queue_offset for message in consumer.poll()] == [102]
    consumer.member.done([unread])
    assert held.position == 103


def test_what_does_not_unpack_is_handed_back_and_never_sent_as_a_new_message(
    stage: Stage,
) -> None:
    consumer = Consumer(stage, retry=True)
    unread = unread_behind_one(stage, consumer)
    stage.answers(ConsumerSendMsgBack, ConnectError("no"), answer())
    with pytest.raises(ConnectError):
        stage.perform(consumer.member.nack([unread], 0))
    assert consumer.member.holding(T0).position == 101
    stage.perform(consumer.member.nack([unread], 0))
    assert consumer.member.holding(T0).position == 102


def test_a_body_that_does_not_unpack_is_no_obstacle_where_its_tag_is_not_wanted(
    stage: Stage, consumer: Consumer
) -> None:
    """Brokers compare hashes of tags."""
    consumer.assign(T0, expression="A")
    stage.answers(
        LitePullMessage, pulled(100, then=101, sys_flag=0x301), pulled(101, then=102, tag="A")
    )
    consumer.pull(T0)
    consumer.pull(T0)
    assert [message.queue_offset for message in consumer.poll()] == [101]


def test_queues_take_turns_in_a_poll(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0, T1)
    stage.answers(LitePullMessage, pulled(100, 101, 102, then=103))
    for queue in (T0, T1):
        consumer.pull(queue)
    held = consumer.member.held
    consumer.poll(most=1)
    consumer.poll(most=1)
    assert [len(held[queue].waiting) for queue in (T0, T1)] == [2, 2]


def test_pulling_goes_on_until_the_queue_is_dropped(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    held = consumer.member.holding(T0)

    def last(ask: Ask) -> Command:
        held.drop()
        return pull_answer(19, 103)

    lines = (pulled(100, then=101), ConnectError("refused"), pulled(101, then=102), last)
    stage.answers(LitePullMessage, *lines)
    stage.perform(consumer.member.pull_on(held))
    assert len(stage.asked(LitePullMessage)) == 4
    assert [wait.seconds for wait in stage.waits] == [1.0]


# ── Offsets ──


def test_only_what_is_finished_is_committed(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    stage.answers(LitePullMessage, pulled(100, 101, 102, then=103))
    consumer.pull(T0)
    first, second, _ = consumer.poll()
    consumer.member.done([second])
    stage.perform(consumer.member.commit(None))
    assert consumer.committed() == {"0": "100"}
    consumer.member.done([first])
    stage.perform(consumer.member.commit(None))
    assert consumer.committed() == {"0": "102"}
    stage.perform(consumer.member.commit(None))
    assert len(stage.asked(UpdateConsumerOffset)) == 2


def test_a_silent_broker_is_the_last_to_get_commits_and_the_farewell(
    stage: Stage, consumer: Consumer
) -> None:
    """With one that hangs, the time of a close was over before the others had their offsets."""
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", queues=1))
    stage.perform(stage.instance.fetch_route("T", 1.0))

    def beat(ask: Ask) -> Command:
        if ask.address.startswith("broker-a"):
            raise ConnectError("silent")
        return answer()

    stage.answers(Heartbeat, beat)
    stage.perform(stage.instance.send_heartbeats())
    consumer.assign(T0, MessageQueue("T", "broker-b", 0))
    stage.perform(consumer.member.commit({T0: 5, MessageQueue("T", "broker-b", 0): 6}))
    asked = [ask.address for ask in stage.asked(UpdateConsumerOffset)]
    assert asked == ["broker-b:10911", "broker-a:10911"]
    stage.perform(stage.instance.leave(consumer="g", within_s=5.0))
    assert [ask.address for ask in stage.asked(UnregisterClient)] == asked


def test_offsets_may_be_given(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    stage.perform(consumer.member.commit({T0: 5, T1: 6}))
    assert consumer.committed() == {"0": "5", "1": "6"}


def refused_at(*places: tuple[str, str]) -> Callable[[Ask], Command]:
    """What brokers say to commits: these topics are gone from these brokers."""

    def say(ask: Ask) -> Command:
        topic = ask.header.ext()["topic"]
        gone = (topic, ask.address.partition(":")[0]) in places
        return answer(17, remark=f"topic[{topic}] not exist") if gone else answer()

    return say


def test_a_deleted_topic_does_not_keep_others_from_being_committed(
    stage: Stage, consumer: Consumer
) -> None:
    other = MessageQueue("U", "broker-a", 0)
    consumer.assign(T0, other)
    stage.answers(UpdateConsumerOffset, refused_at(("T", "broker-a")))
    with pytest.raises(TopicNotFoundError):
        stage.perform(consumer.member.commit(None))
    assert consumer.member.holding(other).committed == 100
    for queue in (T0, other):
        consumer.member.holding(queue).move_to(50)
    stage.perform(consumer.member.close(4.0))
    topics = [ask.header.ext()["topic"] for ask in stage.asked(UpdateConsumerOffset)]
    assert topics == ["T", "U", "T", "U"]


def test_a_broker_that_is_away_is_not_asked_to_commit_queue_by_queue(
    stage: Stage, consumer: Consumer
) -> None:
    consumer.assign(T0, T1, T2)
    stage.answers(UpdateConsumerOffset, ConnectError("refused"))
    with pytest.raises(ConnectError):
        stage.perform(consumer.member.commit(None))
    assert len(stage.asked(UpdateConsumerOffset)) == 1


def test_seeking_stays_within_the_queue(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0)
    for offset in (9, 101):
        with pytest.raises(ConfigurationError, match="10 to 100"):
            stage.perform(consumer.member.seek(T0, offset))
    for place, offset in (
        (10, 10),
        (100, 100),
        (ConsumeFrom.FIRST, 10),
        (ConsumeFrom.LAST, 100),
        (datetime(2025, 1, 1, tzinfo=UTC), 55),
    ):
        stage.perform(consumer.member.seek(T0, place))
        assert consumer.member.holding(T0).position == offset
    with pytest.raises(TypeError, match="not True"):
        stage.perform(consumer.member.seek(T0, True))


def test_only_held_queues_have_a_place(stage: Stage, consumer: Consumer) -> None:
    with pytest.raises(QueueNotAssignedError, match="T/broker-a/1"):
        consumer.member.holding(T1)
    with pytest.raises(QueueNotAssignedError):
        stage.perform(consumer.member.seek(T1, 10))


def test_offsets_by_time_are_those_of_the_held_queues(stage: Stage, consumer: Consumer) -> None:
    consumer.assign(T0, T1)
    at = datetime(2025, 1, 1, tzinfo=UTC)
    assert stage.perform(consumer.member.offsets_for_time(at)) == {T0: 55, T1: 55}
    assert stage.asked(SearchOffset)[0].header.ext()["timestamp"] == "1735689600000"


# ── Leaving ──


def test_leaving_commits_unregisters_and_drops(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    stage.heard.clear()
    stage.perform(consumer.member.close(4.0))
    kinds = [type(ask.header) for ask in stage.heard]
    assert kinds == [UpdateConsumerOffset] * 4 + [UnregisterClient]
    assert stage.heard[-1].header.ext() == {"clientID": "me@1", "consumerGroup": "g"}
    assert not consumer.member.held
    assert consumer.poll() == []


def test_a_broker_that_is_gone_keeps_no_offset_from_the_others(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", "broker-b"))
    consumer = Consumer(stage)
    others = [MessageQueue("T", "broker-b", n) for n in range(2)]
    consumer.assign(T0, T1, *others)

    def of_living(ask: Ask) -> Command:
        if ask.address.startswith("broker-a"):
            raise ConnectError("gone")
        return answer()

    stage.answers(UpdateConsumerOffset, of_living)
    stage.perform(consumer.member.close(4.0))
    asked = [ask.address for ask in stage.asked(UpdateConsumerOffset)]
    assert asked == ["broker-a:10911", "broker-b:10911", "broker-b:10911"]


def test_without_auto_commit_nothing_is_committed_on_leaving(stage: Stage) -> None:
    consumer = Consumer(stage, auto_commit=False)
    consumer.subscribe()
    stage.perform(consumer.member.close(4.0))
    assert not stage.asked(UpdateConsumerOffset)
    assert stage.asked(UnregisterClient)


def test_leaving_does_not_wait_for_the_dead(stage: Stage, consumer: Consumer) -> None:
    consumer.subscribe()
    stage.takes_s[UpdateConsumerOffset] = 100.0
    stage.takes_s[UnregisterClient] = 100.0
    begun = stage.now_s
    stage.answers(UpdateConsumerOffset, ConnectError("gone"))
    stage.answers(UnregisterClient, ConnectError("gone"))
    stage.perform(consumer.member.close(4.0))
    assert stage.now_s - begun <= 7.0
