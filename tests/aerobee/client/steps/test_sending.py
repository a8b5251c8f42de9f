"""Sending as a play: what is asked of whom, and what the caller gets."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.message import Message
from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
from aerobee.client.settings.client import RetryPolicy
from aerobee.client.settings.producer import ProducerConfig
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.steps.messages import UniqIds
from aerobee.client.steps.producer_batch import split
from aerobee.client.steps.sending import Sender, hashed
from aerobee.errors import (
    BatchSendError,
    BrokerBusyError,
    BrokerError,
    ClientClosedError,
    ConfigurationError,
    ConnectError,
    MessageIllegalError,
    NoNameServerError,
    PermissionDeniedError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendFailedError,
)
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.frame import MAX_HEADER_BYTES
from aerobee.remoting.wire.headers.client import Heartbeat, UnregisterClient
from aerobee.remoting.wire.headers.namesrv import GetBrokerClusterInfo, GetRouteInfo
from aerobee.remoting.wire.headers.send import SendBatchMessage, SendMessageV2
from aerobee.store.format import properties
from aerobee.store.format.batch import batch_items
from tests.aerobee.client.steps.stage import Line, Stage, answer, moved, no_topic, route

FAST = RetryPolicy(attempts=3, per_try=3.0, backoff=0.0, patient=False)


def stored(ask: Ask, code: int = 0, **more: object) -> Command:
    """The broker takes it: offset 7, offset ids that count."""
    header = ask.header
    assert isinstance(header, SendMessageV2)
    count = len(list(batch_items(ask.body))) if header.batch else 1
    ids = ",".join(f"OID{n}" for n in range(count))
    place = {"msgId": ids, "queueId": header.queue_id, "queueOffset": 7}
    said: dict[str, Any] = {**place, "transactionId": "t", "MSG_REGION": "R", **more}
    return answer(code, **said)


def brokers_of(*names: str) -> Command:
    table = {name: {"brokerName": name, "brokerAddrs": {"0": f"{name}:1"}} for name in names}
    return answer(body=json.dumps({"brokerAddrTable": table, "clusterAddrTable": {}}).encode())


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", "broker-b", queues=2))
    stage.answers(GetBrokerClusterInfo, brokers_of("broker-a"))
    stage.answers(SendMessageV2, stored)
    stage.answers(SendBatchMessage, stored)
    return stage


def sender(stage: Stage, **options: object) -> Sender:
    config = ProducerConfig(**{"retry": FAST} | options)  # type: ignore[arg-type]  # by name
    return Sender(stage.instance, config, UniqIds(bytes(4), 1, 1))


def send(stage: Stage, message: Message, **options: object) -> SendResult:
    return stage.perform(sender(stage, **options).send(message, None, None, require_ok=False))


def test_a_message_is_sent_as_java_clients_send_it(stage: Stage) -> None:
    result = send(stage, Message("T", b"hello", tag="A", keys=["k"], flag=3), group="g")
    (ask,) = stage.asked(SendMessageV2)
    header = ask.header
    assert isinstance(header, SendMessageV2)
    assert ask.address.startswith(str(header.broker_name))
    assert ask.body == b"hello"
    assert (header.producer_group, header.topic, header.flag, header.sys_flag) == ("g", "T", 3, 0)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert properties.decode(header.properties or "") == {
        "UNIQ_KEY": result.message_id,
        "WAIT": "true",
        "TAGS": "A",
        "KEYS": "k",
    }
    assert result.ok
    assert (result.queue_offset, result.offset_message_id, result.attempts) == (7, "OID0", 1)
    assert result.region_id == "R"
    assert result.queue == MessageQueue("T", str(header.broker_name), header.queue_id)


def test_queues_take_turns(stage: Stage) -> None:
    one = sender(stage)
    sent = [stage.perform(one.send(Message("T", b"x"), None, None, False)) for _ in range(8)]
    assert len({result.queue for result in sent[:4]}) == 4
    assert [result.queue for result in sent[:4]] == [result.queue for result in sent[4:]]
    assert len(stage.asked(GetRouteInfo)) == 1


def test_a_retry_goes_to_another_broker_with_the_same_id(stage: Stage) -> None:
    stage.answers(SendMessageV2, ConnectError("refused"), stored)
    result = send(stage, Message("T", b"x"))
    first, second = stage.asked(SendMessageV2)
    assert first.address != second.address
    assert first.header.ext()["i"] == second.header.ext()["i"]
    assert result.attempts == 2


def test_a_slow_broker_is_left_alone_if_that_is_wanted(stage: Stage) -> None:
    tolerant = sender(stage, latency_fault_tolerance=True)
    stage.takes_s[SendMessageV2] = 0.6
    slow = stage.perform(tolerant.send(Message("T", b"x"), None, None, require_ok=False)).queue
    stage.takes_s[SendMessageV2] = 0.01
    others = [
        stage.perform(tolerant.send(Message("T", b"x"), None, None, require_ok=False)).queue
        for _ in range(4)
    ]
    assert {queue.broker_name for queue in others}.isdisjoint({slow.broker_name})
    stage.now_s += 2.0
    later = [
        stage.perform(tolerant.send(Message("T", b"x"), None, None, require_ok=False)).queue
        for _ in range(4)
    ]
    assert slow.broker_name in {queue.broker_name for queue in later}


def test_a_broker_that_failed_is_left_alone_by_the_next_sends(stage: Stage) -> None:
    for options, tries in (({}, 2), ({"latency_fault_tolerance": True}, 1)):
        one = sender(stage, **options)
        stage.answers(SendMessageV2, ConnectError("refused"), stored)
        failed = len(stage.asked(SendMessageV2))
        stage.perform(one.send(Message("T", b"x"), None, None, require_ok=False))
        down = stage.asked(SendMessageV2)[failed].address

        def refuse(ask: Ask, down: str = down) -> Command:
            if ask.address == down:
                raise ConnectError("refused")
            return stored(ask)

        stage.answers(SendMessageV2, refuse)
        sent = [
            stage.perform(one.send(Message("T", b"x"), None, None, require_ok=False))
            for _ in range(4)
        ]
        assert max(result.attempts for result in sent) == tries


def test_what_is_the_message_s_own_fault_is_not_its_broker_s(stage: Stage) -> None:
    tolerant = sender(stage, latency_fault_tolerance=True)
    stage.answers(SendMessageV2, answer(13, remark="illegal"), stored)
    with pytest.raises(MessageIllegalError):
        stage.perform(tolerant.send(Message("T", b"x"), None, None, require_ok=False))
    sent = [
        stage.perform(tolerant.send(Message("T", b"x"), None, None, require_ok=False)).queue
        for _ in range(4)
    ]
    assert len({queue.broker_name for queue in sent}) == 2


def test_the_only_broker_is_tried_again(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", queues=1))
    stage.answers(SendMessageV2, answer(2, remark="busy"), answer(2, remark="busy"), stored)
    assert send(stage, Message("T", b"x")).attempts == 3


def test_an_answer_that_no_try_changes_is_raised_at_once(stage: Stage) -> None:
    stage.answers(SendMessageV2, answer(13, remark="the message is illegal"))
    with pytest.raises(MessageIllegalError, match=r"SEND_MESSAGE_V2: broker-. at .*illegal"):
        send(stage, Message("T", b"x"))
    assert len(stage.asked(SendMessageV2)) == 1


def test_all_tries_are_told_of(stage: Stage) -> None:
    stage.answers(
        SendMessageV2, RequestTimeoutError("late"), answer(16, remark="no"), answer(14, remark="x")
    )
    with pytest.raises(SendFailedError, match="after 3 tries") as failed:
        send(stage, Message("T", b"x"))
    kinds = [type(attempt.error) for attempt in failed.value.attempts]
    assert kinds == [RequestTimeoutError, PermissionDeniedError, BrokerBusyError]
    assert failed.value.code == 14


def test_one_hanging_broker_does_not_eat_the_time_of_all_tries(stage: Stage) -> None:
    stage.takes_s[SendMessageV2] = 100.0
    stage.answers(SendMessageV2, RequestTimeoutError("late"))
    with pytest.raises(SendFailedError):
        send(stage, Message("T", b"x"), timeout=10.0)
    assert [ask.timeout_s for ask in stage.asked(SendMessageV2)] == [3, 3, 3]


def test_the_time_of_a_send_covers_all_its_tries(stage: Stage) -> None:
    stage.takes_s[SendMessageV2] = 100.0
    stage.answers(SendMessageV2, RequestTimeoutError("late"))
    begun = stage.now_s
    with pytest.raises(SendFailedError):
        send(stage, Message("T", b"x"), timeout=5.0, retry=RetryPolicy(attempts=9, per_try=4.0))
    assert stage.now_s - begun == 5.0


def test_tries_may_keep_a_distance(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", queues=2))
    stage.answers(SendMessageV2, *4 * [ConnectError("refused")], stored)
    send(stage, Message("T", b"x"), retry=RetryPolicy(backoff=0.4))
    for wait, longest in zip(stage.waits, (0.4, 0.8, 1.0, 1.0), strict=True):
        assert longest / 2 <= wait.seconds <= longest


def test_another_broker_is_tried_without_a_pause(stage: Stage) -> None:
    stage.answers(SendMessageV2, ConnectError("refused"), stored)
    assert send(stage, Message("T", b"x"), retry=RetryPolicy()).attempts == 2
    assert not stage.waits


def test_a_send_outlasts_a_broker_that_is_away(stage: Stage) -> None:
    down: list[Line] = [
        ConnectError("refused"),
        answer(14, remark="stops"),
        answer(1500, remark="go away"),
    ]
    stage.answers(SendMessageV2, *down, *down, *down, *down, *down, stored)
    begun = stage.now_s
    assert send(stage, Message("T", b"x"), retry=RetryPolicy()).attempts == 16
    assert 4.0 < stage.now_s - begun < 10.0


def test_it_gives_up_when_the_time_of_the_caller_is_over(stage: Stage) -> None:
    stage.answers(SendMessageV2, ConnectError("refused"))
    begun = stage.now_s
    with pytest.raises(SendFailedError, match=r"broker-a: refused \(\d+ times\)"):
        send(stage, Message("T", b"x"), retry=RetryPolicy(), timeout=5.0)
    assert stage.now_s - begun == pytest.approx(5.0)


def test_the_error_of_a_caller_is_not_repeated(stage: Stage) -> None:
    stage.answers(SendMessageV2, answer(16, remark="no permission"))
    with pytest.raises(PermissionDeniedError):
        send(stage, Message("T", b"x"), retry=RetryPolicy(attempts=9))
    assert {ask.address for ask in stage.asked(SendMessageV2)} == {
        "broker-a:10911",
        "broker-b:10911",
    }
    assert len(stage.asked(SendMessageV2)) == 2


def test_a_name_server_that_is_away_is_waited_for(stage: Stage) -> None:
    stage.answers(GetRouteInfo, *9 * [ConnectError("refused")], route("broker-a"))
    assert send(stage, Message("T", b"x"), retry=RetryPolicy()).ok
    stage.answers(GetRouteInfo, ConnectError("refused"))
    with pytest.raises(NoNameServerError, match="refused"):
        send(stage, Message("U", b"x"), retry=RetryPolicy())


def test_a_cluster_without_brokers_is_waited_for_but_not_a_topic(stage: Stage) -> None:
    nobody, somebody = brokers_of(), brokers_of("broker-a")
    stage.answers(GetRouteInfo, *8 * [no_topic()], route("broker-a"))
    stage.answers(GetBrokerClusterInfo, nobody, nobody, nobody, somebody)
    assert send(stage, Message("T", b"x"), retry=RetryPolicy()).ok
    stage.answers(GetRouteInfo, no_topic())
    begun = stage.now_s
    with pytest.raises(RouteNotFoundError, match="topic U"):
        send(stage, Message("U", b"x"), retry=RetryPolicy())
    assert stage.now_s == begun


def test_a_topic_whose_master_is_down_is_waited_for(stage: Stage) -> None:
    stage.answers(GetRouteInfo, *2 * [route("broker-a", broker_ids="1")], route("broker-a"))
    assert send(stage, Message("T", b"x"), retry=RetryPolicy(), timeout=9.0).ok


def test_stored_but_not_safe_is_a_result(stage: Stage) -> None:
    stage.answers(SendMessageV2, lambda ask: stored(ask, code=10))
    result = send(stage, Message("T", b"x"))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert not result.ok


def test_unless_the_caller_wants_it_safe(stage: Stage) -> None:
    stage.answers(SendMessageV2, lambda ask: stored(ask, code=10), stored)
    result = stage.perform(sender(stage).send(Message("T", b"x"), None, None, require_ok=True))
    assert (result.ok, result.attempts) == (True, 2)


def test_equal_keys_go_to_the_queue_that_java_chooses(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", queues=8))
    stage.answers(SendMessageV2, ConnectError("refused"), stored)
    result = send(stage, Message("T", b"x", ordering_key="order-1001"))
    assert result.queue.queue_id == 7
    assert {ask.header.ext()["e"] for ask in stage.asked(SendMessageV2)} == {"7"}


def test_a_queue_may_be_given_or_chosen(stage: Stage) -> None:
    one = sender(stage)
    queue = MessageQueue("T", "broker-b", 1)
    assert stage.perform(one.send(Message("T", b"x"), queue, None, False)).queue == queue
    last = stage.perform(one.send(Message("T", b"x"), lambda queues, _: queues[-1], None, False))
    assert last.queue == queue
    with pytest.raises(ConfigurationError, match="not of topic"):
        stage.perform(one.send(Message("U", b"x"), queue, None, False))


def test_long_bodies_are_packed_and_the_message_stays_as_it_was(stage: Stage) -> None:
    message = Message("T", b"x" * 4096)
    send(stage, message)
    (ask,) = stage.asked(SendMessageV2)
    assert len(ask.body) < 100
    assert ask.header.ext()["f"] == str(0x301)
    assert len(message.body) == 4096


def test_an_unknown_topic_is_sent_after_the_model_of_the_auto_create_topic(stage: Stage) -> None:
    def routes(ask: Ask) -> Command:
        known = ask.header.ext()["topic"] == "TBW102"
        return route("broker-a", queues=8) if known else no_topic()

    stage.answers(GetRouteInfo, routes)
    result = send(stage, Message("New", b"x"))
    assert result.queue.topic == "New"
    assert len(stage.instance.routes["New"].to_publish) == 4


def test_without_auto_create_the_error_names_the_usual_causes(stage: Stage) -> None:
    stage.answers(GetRouteInfo, no_topic())
    with pytest.raises(RouteNotFoundError, match=r"topic New: .*ns:1.*auto-create is off"):
        send(stage, Message("New", b"x"))


def test_a_topic_nobody_may_write_has_no_route_to_send(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a", perm=4))
    with pytest.raises(RouteNotFoundError, match="can be written"):
        send(stage, Message("T", b"x"))


def test_after_a_lost_connection_the_route_is_asked_again(stage: Stage) -> None:
    one = sender(stage)
    stage.perform(one.send(Message("T", b"x"), None, None, False))
    stage.now_s += 5
    stage.answers(GetRouteInfo, route("broker-b"))
    stage.answers(SendMessageV2, ConnectError("refused"), stored)
    result = stage.perform(one.send(Message("T", b"x"), None, None, False))
    assert len(stage.asked(GetRouteInfo)) == 2
    assert result.queue.broker_name == "broker-b"


@pytest.mark.parametrize("code", [2, 14, 16, 17])
def test_a_master_that_refuses_writes_is_looked_for_anew(stage: Stage, code: int) -> None:
    """It is a slave now, or its topic may be written elsewhere only."""
    stage.answers(GetRouteInfo, route("broker-a"))
    one = sender(stage, retry=RetryPolicy())
    stage.perform(one.send(Message("T", b"x"), None, None, False))
    stage.now_s += 5
    stage.answers(GetRouteInfo, moved())

    def refused_before(ask: Ask) -> Command:
        old = ask.address.startswith("broker-a:")
        return answer(code, remark="not here") if old else stored(ask)

    stage.answers(SendMessageV2, refused_before)
    with suppress(BrokerError):
        # What the same broker would repeat is raised, but asked about before the next send.
        stage.perform(one.send(Message("T", b"x"), None, None, False))
    assert stage.perform(one.send(Message("T", b"x"), None, None, False)).ok
    assert stage.asked(SendMessageV2)[-1].address == "new-host:10911"


def test_an_old_route_is_better_than_none(stage: Stage) -> None:
    one = sender(stage)
    stage.perform(one.send(Message("T", b"x"), None, None, False))
    stage.now_s += 5
    stage.answers(GetRouteInfo, ConnectError("refused"))
    stage.answers(SendMessageV2, ConnectError("refused"), stored)
    assert stage.perform(one.send(Message("T", b"x"), None, None, False)).ok


def test_the_next_name_server_is_asked_when_one_is_silent() -> None:
    stage = Stage("ns:1", "ns:2")
    stage.answers(GetRouteInfo, RequestTimeoutError("late"), route("broker-a"))
    stage.answers(SendMessageV2, stored)
    assert send(stage, Message("T", b"x")).ok
    assert [ask.address for ask in stage.asked(GetRouteInfo)] == ["ns:1", "ns:2"]
    stage.answers(GetRouteInfo, *3 * [ConnectError("one"), ConnectError("two")])
    with pytest.raises(NoNameServerError, match="one; two"):
        send(stage, Message("U", b"x"))


def test_a_oneway_send_wants_no_answer(stage: Stage) -> None:
    stage.perform(sender(stage).send_oneway(Message("T", b"x")))
    assert stage.asked(SendMessageV2)[0].oneway


# ── Batches ──


def test_a_batch_is_one_request_and_one_result_per_message(stage: Stage) -> None:
    messages = [Message("T", b"%d" % n) for n in range(3)]
    results = stage.perform(sender(stage).send_batch(messages, None))
    (ask,) = stage.asked(SendBatchMessage)
    assert [bytes(item[1]) for item in batch_items(ask.body)] == [b"0", b"1", b"2"]
    assert [result.queue_offset for result in results] == [7, 8, 9]
    assert [result.offset_message_id for result in results] == ["OID0", "OID1", "OID2"]
    assert len({result.message_id for result in results}) == 3


def test_results_come_in_the_order_of_the_messages_whatever_travelled_together(
    stage: Stage,
) -> None:
    messages = [Message(topic, b"x") for topic in "TUTUV"]
    results = stage.perform(sender(stage).send_batch(messages, None))
    assert [result.queue.topic for result in results] == list("TUTUV")
    assert len(stage.asked(SendBatchMessage)) == 2
    assert len(stage.asked(SendMessageV2)) == 1


def test_a_batch_that_fails_in_part_says_which(stage: Stage) -> None:
    stage.answers(SendBatchMessage, answer(13, remark="no"))
    messages = [Message("T", b"x"), Message("U", b"x"), Message("T", b"x")]
    with pytest.raises(BatchSendError, match="2 of 3") as failed:
        stage.perform(sender(stage).send_batch(messages, None))
    kinds = [type(result) for result in failed.value.results]
    assert kinds == [MessageIllegalError, SendResult, MessageIllegalError]


def test_nothing_of_a_batch_is_sent_when_one_message_can_never_be(stage: Stage) -> None:
    with pytest.raises(ConfigurationError):
        stage.perform(sender(stage).send_batch([Message("T", b"x"), Message("T", b"")], None))
    assert not stage.heard


def test_a_delayed_message_of_a_batch_travels_alone() -> None:
    messages = [Message("T", b"x", delay_level=level) for level in (0, 3, 0, 3)]
    assert split(messages, 1_000) == [[0, 2], [1], [3]]


def test_a_message_with_a_priority_travels_alone_too() -> None:
    messages = [Message("T", b"x", priority=priority) for priority in (None, 0, None, 3)]
    assert split(messages, 1_000) == [[0, 2], [1], [3]]


def test_a_delay_level_below_zero_is_refused(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="delay_level"):
        send(stage, Message("T", b"x", delay_level=-1))


def test_an_empty_batch_is_no_request(stage: Stage) -> None:
    assert stage.perform(sender(stage).send_batch([], None)) == []
    assert not stage.heard


@given(sizes=st.lists(st.integers(1, 3000), max_size=40), topics=st.integers(1, 3))
def test_chunks_keep_order_and_size_and_lose_nothing(sizes: list[int], topics: int) -> None:
    messages = [Message(f"T{n % topics}", b"x" * size) for n, size in enumerate(sizes)]
    chunks = split(messages, 4096)
    assert sorted(place for chunk in chunks for place in chunk) == list(range(len(messages)))
    for chunk in chunks:
        assert chunk == sorted(chunk)
        assert len({messages[place].topic for place in chunk}) == 1
        assert len(chunk) == 1 or sum(sizes[place] for place in chunk) <= 4096


def test_ids_of_a_whole_batch_fit_into_the_header_of_its_answer() -> None:
    """A broker at an IPv6 address names each message by 56 characters."""
    chunks = split([Message("T", b"x")] * 10_000, 1 << 30)
    assert sum(map(len, chunks)) == 10_000
    assert max(map(len, chunks)) * len("0" * 56 + ",") < MAX_HEADER_BYTES - 4096


def test_the_hash_drops_the_sign_as_java_does() -> None:
    assert hashed("order-1001", 8) == 7
    assert all(0 <= hashed(f"key-{n}", 7) < 7 for n in range(100))


OLD, NEW = 407, 413
"""The versions of 4.9.7 and of 5.0.0."""


def test_a_timer_is_refused_where_the_broker_is_too_old_to_know_it(stage: Stage) -> None:
    stage.answers(Heartbeat, answer(version=OLD))
    one = sender(stage)
    one.begin()
    with pytest.raises(ConfigurationError, match=r"broker-. at .* is V4_9_7 and has no timers"):
        stage.perform(one.send(Message("T", b"x", delay=5), None, None, False))
    assert stage.asked(SendMessageV2) == []
    assert stage.perform(one.send(Message("T", b"x", delay_level=5), None, None, False)).ok


def test_a_timer_is_not_sent_before_the_broker_has_said_its_version(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(Heartbeat, ConnectError("no"), answer(version=OLD))
    one = sender(stage)
    one.begin()
    with pytest.raises(ConfigurationError, match="no timers"):
        stage.perform(one.send(Message("T", b"x", delay=5), None, None, False))
    assert stage.asked(SendMessageV2) == []


def test_a_timer_waits_for_the_version_as_long_as_its_send_may_last(stage: Stage) -> None:
    stage.answers(Heartbeat, RequestTimeoutError("silent"))
    stage.takes_s[Heartbeat] = 60.0
    one = sender(stage)
    one.begin()
    began_s = stage.now_s
    with pytest.raises(SendFailedError, match="silent"):
        stage.perform(one.send(Message("T", b"x", delay=5), None, 0.5, False))
    assert stage.now_s == pytest.approx(began_s + 0.5)
    assert stage.asked(SendMessageV2) == []


def test_a_timer_takes_what_is_left_of_the_time_behind_the_question(stage: Stage) -> None:
    stage.answers(Heartbeat, answer(version=NEW))
    stage.takes_s[Heartbeat] = 1.0
    one = sender(stage)
    one.begin()
    assert stage.perform(one.send(Message("T", b"x", delay=5), None, 1.5, False)).ok
    assert [ask.timeout_s for ask in stage.asked(SendMessageV2)] == [pytest.approx(0.5)]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_who_refuses_heartbeats_says_its_version_all_the_same(stage: Stage, version: int) -> None:
    stage.answers(Heartbeat, answer(16, version=version))
    one = sender(stage)
    one.begin()
    steps = one.send(Message("T", b"x", delay=5), None, None, False)
    if version == NEW:
        assert stage.perform(steps).ok
    else:
        with pytest.raises(ConfigurationError, match="no timers"):
            stage.perform(steps)


def test_a_broker_of_another_version_may_answer_at_the_same_address(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(Heartbeat, answer(version=NEW), answer(version=OLD))
    one = sender(stage)
    one.begin()
    assert stage.perform(one.send(Message("T", b"x", delay=5), None, None, False)).ok
    stage.instance.connected("broker-a:10911")
    with pytest.raises(ConfigurationError, match="no timers"):
        stage.perform(one.send(Message("T", b"x", delay=5), None, None, False))


def test_a_timer_is_refused_one_way_too(stage: Stage) -> None:
    stage.answers(Heartbeat, answer(version=OLD))
    one = sender(stage)
    one.begin()
    with pytest.raises(ConfigurationError, match="no timers"):
        stage.perform(one.send_oneway(Message("T", b"x", delay=5)))
    assert stage.asked(SendMessageV2) == []


def test_a_timer_goes_to_brokers_that_know_it_and_comes_back_with_its_handle(stage: Stage) -> None:
    stage.answers(Heartbeat, answer(version=NEW))
    stage.answers(SendMessageV2, lambda ask: stored(ask, recallHandle="h"))
    one = sender(stage)
    one.begin()
    result = stage.perform(one.send(Message("T", b"x", delay=5), None, None, False))
    assert result.recall_handle == "h"
    (ask,) = stage.asked(SendMessageV2)
    assert "TIMER_DELAY_SEC\x015\x02" in ask.header.ext()["i"]
    stage.perform(one.send(Message("T", b"x", delay=0.5), None, None, False))
    assert len(stage.asked(Heartbeat)) <= 2, "each broker is asked once"


def test_javas_name_for_no_group_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="DEFAULT_PRODUCER"):
        ProducerConfig(group="DEFAULT_PRODUCER")


def test_every_error_of_a_send_says_what_it_was_about(stage: Stage) -> None:
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.answers(SendMessageV2, answer(13, remark="too odd"))
    with pytest.raises(MessageIllegalError, match="topic T") as refused:
        send(stage, Message("T", b"x"))
    error = refused.value
    assert (error.topic, error.broker, error.address) == ("T", "broker-a", "broker-a:10911")
    assert (error.code, error.remark) == (13, "too odd")
    stage.answers(SendMessageV2, answer(2, remark="busy"))
    with pytest.raises(SendFailedError) as failed:
        send(stage, Message("T", b"x"))
    last = failed.value
    assert (last.topic, last.broker, last.code, last.remark) == ("T", "broker-a", 2, "busy")


def test_closing_waits_for_sends_under_way(stage: Stage) -> None:
    stage.answers(UnregisterClient, answer())
    one = sender(stage)
    one.begin()
    sending = one.send(Message("T", b"x"), None, None, require_ok=False)
    ask = next(sending)
    while not (isinstance(ask, Ask) and isinstance(ask.header, SendMessageV2)):
        ask = sending.send(stage.carry_out(ask))
    closing = one.close()
    waits = next(closing)
    assert isinstance(waits, Wait)
    with pytest.raises(ClientClosedError, match="topic T"):
        stage.perform(one.send(Message("T", b"x"), None, None, require_ok=False))
    with pytest.raises(StopIteration):
        sending.send(stored(ask))
    assert waits.signal.is_set
    assert not stage.asked(UnregisterClient)
    stage.perform(closing)
    assert stage.asked(UnregisterClient)
