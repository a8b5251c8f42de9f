"""The whole port, with raw calls: answers, codes and texts as a proxy's, without its faults."""

from __future__ import annotations

import hmac
import json
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aerobee import Credentials
from aerobee.admin import GroupConfig
from aerobee.admin import MessageType as TopicType
from aerobee.blocking import AdminClient
from aerobee.broker.access.gate import GUESSES
from aerobee.remoting.grpc import calls
from aerobee.remoting.grpc.enums import (
    AddressScheme,
    ClientType,
    Code,
    FilterType,
    MessageType,
    Permission,
)
from aerobee.remoting.grpc.fields import PACKAGE, SERVICE
from aerobee.remoting.grpc.messages import (
    AckMessageEntry,
    Address,
    Endpoints,
    FilterExpression,
    Message,
    MessageQueue,
    Publishing,
    ReceiveMessageRequest,
    Resource,
    SendMessageRequest,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
)
from aerobee.remoting.server import turns
from aerobee.testing import broker as running_broker
from tests.kit.broker_process import BrokerProcess
from tests.kit.grpc_client import GrpcClient, NarrowClient
from tests.kit.ports import HOST, free_port, kept_port
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.service

PORT = kept_port()
NUMBERS = count()
KINDS = {
    "normal": "NORMAL",
    "fifo": "FIFO",
    "delay": "DELAY",
    "half": "TRANSACTION",
    "priority": "PRIORITY",
}
BACK_WITHIN_S = 40.0


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    broker = start_broker(grpcPort=PORT, recallMessageEnable="true")
    with AdminClient(broker.namesrv_address) as admin:
        for topic, kind in KINDS.items():
            admin.create_topic(topic, queues=2, message_type=TopicType[kind])
    return broker


@pytest.fixture
def client(broker: AnyBroker) -> Iterator[GrpcClient]:
    with GrpcClient(f"{HOST}:{PORT}", f"client-{next(NUMBERS)}") as client:
        yield client


@pytest.fixture
def topic(broker: AnyBroker) -> str:
    """A topic that no other test uses."""
    name = f"t{next(NUMBERS)}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(name, queues=1)
    return name


def named(name: str) -> Any:
    return Resource(name=name)


def message(topic: str, body: bytes = b"body", **system: Any) -> Any:
    system.setdefault("message_id", f"id-{next(NUMBERS)}")
    return Message(topic=named(topic), system_properties=SystemProperties(**system), body=body)


def send(client: GrpcClient, *sent: Any) -> Any:
    return client.call("SendMessage", messages=sent)


def receive(
    client: GrpcClient, topic: str, group: str = "g", *, hidden_s: float = 15, **fields: Any
) -> list[Any]:
    """The answers of one receive, which waits 5 s."""
    expression = fields.pop("expression", FilterExpression(type=FilterType.TAG, expression="*"))
    if "auto_renew" not in fields:
        fields["invisible_duration"] = {"seconds": int(hidden_s)}
    answers: list[Any] = client.call(
        "ReceiveMessage",
        group=named(group),
        message_queue=MessageQueue(topic=named(topic)),
        filter_expression=expression,
        batch_size=fields.pop("batch_size", 32),
        long_polling_timeout={"seconds": 5},
        **fields,
    )
    assert answers[-1].HasField("delivery_timestamp")
    return answers[:-1]


def received(client: GrpcClient, topic: str, group: str = "g", **fields: Any) -> list[Any]:
    status, *answers = receive(client, topic, group, **fields)
    assert status.status.code == Code.OK, status
    return [answer.message for answer in answers]


def ack(client: GrpcClient, topic: str, handle: str, group: str = "g") -> Any:
    entry = AckMessageEntry(message_id="id", receipt_handle=handle)
    return client.call("AckMessage", group=named(group), topic=named(topic), entries=[entry])


def change(client: GrpcClient, topic: str, handle: str, seconds: int, group: str = "g") -> Any:
    return client.call(
        "ChangeInvisibleDuration",
        group=named(group),
        topic=named(topic),
        receipt_handle=handle,
        invisible_duration={"seconds": seconds},
        message_id="id",
    )


def consumer_settings(group: str, topic: str, kind: ClientType = ClientType.PUSH_CONSUMER) -> Any:
    entry = SubscriptionEntry(topic=named(topic), expression=FilterExpression(expression="*"))
    return Settings(
        client_type=kind, subscription=Subscription(group=named(group), subscriptions=[entry])
    )


def producer_settings(*topics: str) -> Any:
    publishing = Publishing(topics=[named(topic) for topic in topics])
    return Settings(client_type=ClientType.PRODUCER, publishing=publishing)


# ── Every call ──


@pytest.mark.parametrize("name", ["QueryRoute", "SendMessage", "Heartbeat", "AckMessage"])
def test_a_call_without_a_client_id_is_refused(broker: AnyBroker, name: str) -> None:
    with GrpcClient(f"{HOST}:{PORT}", "") as nobody:
        assert nobody.call(name).status.code == Code.CLIENT_ID_REQUIRED


def test_what_is_not_offered_says_so(client: GrpcClient) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        client.call("SyncLiteSubscription")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "SyncLiteSubscription is unimplemented" in refused.value.details()


# ── Routes ──


def test_a_route_has_the_endpoints_that_were_asked_for(client: GrpcClient) -> None:
    asked = Endpoints(
        scheme=AddressScheme.DOMAIN_NAME, addresses=[Address(host="outside.example", port=9)]
    )
    answer = client.call("QueryRoute", topic=named("fifo"), endpoints=asked)
    assert answer.status.code == Code.OK
    assert len(answer.message_queues) == 2
    for queue in answer.message_queues:
        assert queue.broker.endpoints == asked
        assert list(queue.accept_message_types) == [MessageType.FIFO]
    ours = client.call("QueryRoute", topic=named("fifo")).message_queues[0].broker.endpoints
    assert ours.addresses[0].port == PORT


@pytest.mark.parametrize(
    ("topic", "code"),
    [("none", Code.TOPIC_NOT_FOUND), ("", Code.ILLEGAL_TOPIC), ("TBW102", Code.ILLEGAL_TOPIC)],
)
def test_a_topic_that_is_not_there_has_no_route(client: GrpcClient, topic: str, code: Code) -> None:
    assert client.call("QueryRoute", topic=named(topic)).status.code == code


def test_a_member_is_assigned_any_queue(client: GrpcClient) -> None:
    answer = client.call("QueryAssignment", topic=named("normal"), group=named("g"))
    assert [one.message_queue.id for one in answer.assignments] == [-1]


# ── Clients ──


def test_settings_register_a_client_whom_administrators_see(
    broker: AnyBroker, client: GrpcClient
) -> None:
    stream = client.telemetry()
    answer = stream.settings(consumer_settings("seen", "normal"))
    assert answer.status.code == Code.OK
    assert answer.settings.subscription.receive_batch_size == 32
    assert client.call("Heartbeat", client_type=ClientType.PUSH_CONSUMER).status.code == Code.OK
    with AdminClient(broker.namesrv_address) as admin:
        (member,) = admin.consumers("seen").members
    assert member.client_id == dict(client.metadata)["x-mq-client-id"]
    gone = client.call("NotifyClientTermination", group=named("seen"))
    assert gone.status.code == Code.OK
    after = client.call("Heartbeat", client_type=ClientType.PUSH_CONSUMER)
    assert after.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    stream.end()


def test_the_streams_of_a_connection_share_its_limit_of_groups(broker: AnyBroker) -> None:
    with GrpcClient(f"{HOST}:{PORT}", f"client-{next(NUMBERS)}") as client:
        names = [f"shared-{number}" for number in range(1_000)]
        first = client.telemetry()
        client.metadata = [("x-mq-client-id", "beside"), *client.metadata[1:]]
        second = client.telemetry()
        assert first.settings(producer_settings(*names)).status.code == Code.OK
        refused = second.settings(producer_settings(*(f"other-{name}" for name in names)))
        assert refused.status.code != Code.OK
        assert "group of one connection: 1024 is the limit" in refused.status.message
        assert first.settings(producer_settings(*names)).status.code == Code.OK
        first.end()


def test_a_consumer_is_diagnosed_and_asked_like_any_other(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g{next(NUMBERS)}"
    stream = client.telemetry()
    stream.settings(consumer_settings(group, topic))
    for _ in range(2):
        send(client, message(topic))
    received(client, topic, group, batch_size=1, auto_renew=True)
    client_id = dict(client.metadata)["x-mq-client-id"]
    with AdminClient(broker.namesrv_address) as admin:
        diagnosis = admin.diagnose_group(group)
        assert "queue_without_owner" not in {finding.kind for finding in diagnosis.findings}
        (member,) = diagnosis.members
        assert (member.client_id, member.answered, member.waiting_acks) == (client_id, True, 1)
        answering = Thread(target=answer_questions, args=[stream])
        answering.start()
        info = admin.running_info(group, client_id, stacks=True)
        assert info.stacks == "main: waits"
        answering.join(timeout=30)
    stream.end()


def test_a_client_works_on_its_messages_until_it_has_no_stream(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    """Neither a stream without settings nor the older one of two ends it."""
    group = f"g{next(NUMBERS)}"
    broken = client.telemetry()
    broken.settings(consumer_settings(group, topic))
    send(client, message(topic))
    received(client, topic, group, auto_renew=True)
    stray = client.telemetry()
    stray.end()
    with pytest.raises(StopIteration):
        stray.next()
    stream = client.telemetry()
    stream.settings(consumer_settings(group, topic))
    with pytest.raises(grpc.RpcError, match="the client has opened another stream"):
        broken.next()
    broken.end()
    with AdminClient(broker.namesrv_address) as admin:
        (member,) = admin.diagnose_group(group).members
    assert member.waiting_acks == 1
    client.call("NotifyClientTermination", group=named(group))
    stream.end()
    (again,) = until_received(client, topic, group)
    assert again.system_properties.delivery_attempt == 2


def answer_questions(stream: Any) -> None:
    """What a client does: it tells its stack."""
    nonce = stream.next().print_thread_stack_trace_command.nonce
    stream.send(thread_stack_trace={"nonce": nonce, "thread_stack_trace": "main: waits"})


def test_a_client_without_settings_has_no_heartbeat(client: GrpcClient) -> None:
    answer = client.call("Heartbeat", client_type=ClientType.PRODUCER)
    assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (producer_settings("a b"), grpc.StatusCode.INVALID_ARGUMENT),
        (Settings(client_type=ClientType.PRODUCER), grpc.StatusCode.INVALID_ARGUMENT),
        (consumer_settings("g", "t", ClientType.PULL_CONSUMER), grpc.StatusCode.INTERNAL),
    ],
)
def test_bad_settings_end_the_stream(client: GrpcClient, settings: Any, code: Any) -> None:
    stream = client.telemetry()
    with pytest.raises(grpc.RpcError) as refused:
        stream.settings(settings)
    assert refused.value.code() is code
    stream.end()


def test_a_stream_without_a_client_id_is_told_so(broker: AnyBroker) -> None:
    with GrpcClient(f"{HOST}:{PORT}", "") as nobody:
        stream = nobody.telemetry()
        assert stream.next().status.code == Code.CLIENT_ID_REQUIRED
        with pytest.raises(StopIteration):
            stream.next()
        stream.end()


@pytest.mark.usefixtures("logged")
def test_a_stream_has_to_say_its_settings_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "REQUEST_MS", 1_500)
    port = free_port()
    with running_broker(settings={"grpcPort": port}), GrpcClient(f"{HOST}:{port}") as client:
        silent, talking = client.telemetry(), client.telemetry()
        assert talking.settings(consumer_settings("g", "t")).status.code == Code.OK
        silent.send(thread_stack_trace={"nonce": "1"})
        with pytest.raises(grpc.RpcError) as ended:
            silent.next()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert talking.settings(consumer_settings("g", "t")).status.code == Code.OK
        silent.end()
        talking.end()


@pytest.mark.usefixtures("logged")
def test_a_route_permits_what_topic_and_broker_do() -> None:
    """A broker that drains takes no messages: producers are to know before they send."""
    port = free_port()
    settings = {"grpcPort": port, "brokerPermission": 4}
    with (
        running_broker(settings=settings) as running,
        GrpcClient(f"{HOST}:{port}") as client,
    ):
        with AdminClient(running.namesrv) as admin:
            admin.create_topic("orders", queues=1)
        (queue,) = client.call("QueryRoute", topic=named("orders")).message_queues
        assert queue.permission == Permission.READ
        asked = {"topic": named("orders"), "group": named("g")}
        (part,) = client.call("QueryAssignment", **asked).assignments
        assert part.message_queue.permission == Permission.READ


# ── Requests that cost too much ──


def part(number: int, content: bytes) -> bytes:
    """A field of a message, as it is sent."""
    head, size = [number << 3 | 2], len(content)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + content


MANY_BYTES = 4 << 20
TOPIC = part(1, part(2, b"normal"))
KEYS = part(1, TOPIC + part(3, part(3, b"id") + part(2, b"k") * (MANY_BYTES // 3)) + part(4, b"b"))
TOO_MUCH = {
    "SendMessage": [part(1, b"") * (MANY_BYTES // 2), KEYS],
    "AckMessage": [part(3, b"") * (MANY_BYTES // 2)],
    "QueryRoute": [
        TOPIC + part(2, part(2, b"") * (MANY_BYTES // 2)),
        part(1, part(1, b"n" * MANY_BYTES) + part(2, b"normal")),
    ],
}


@pytest.mark.parametrize(
    ("name", "request_bytes"), [(name, one) for name, each in TOO_MUCH.items() for one in each]
)
def test_a_request_of_very_many_parts_is_not_even_parsed(
    client: GrpcClient, name: str, request_bytes: bytes
) -> None:
    """Each took the loop for half a second, and the answer to a route 2 GB."""
    path = f"/{PACKAGE}.{SERVICE}/{name}"
    call = client.channel.unary_unary(path, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError) as refused:
        call(request_bytes, timeout=30, metadata=client.metadata)
    codes = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
    assert refused.value.code() in codes
    assert "bytes" in str(refused.value.details())


def test_long_stacks_and_a_long_body_are_taken(client: GrpcClient) -> None:
    stream = client.telemetry()
    stream.send(thread_stack_trace={"nonce": "1", "thread_stack_trace": "s" * MANY_BYTES})
    assert stream.settings(producer_settings("normal")).status.code == Code.OK
    stream.end()
    assert send(client, message("normal", bytes(1 << 20))).status.code == Code.OK


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": Resource(name="normal", resource_namespace="n" * 256)},
        {"endpoints": Endpoints(addresses=[Address(host="h", port=1)] * 17)},
        {"endpoints": Endpoints(addresses=[Address(host="h" * 513, port=1)] * 2)},
    ],
)
def test_what_an_answer_has_for_each_queue_is_short(
    client: GrpcClient, fields: dict[str, Any]
) -> None:
    asked = {"topic": named("normal"), **fields}
    for name, more in (("QueryRoute", {}), ("QueryAssignment", {"group": named("g")})):
        assert client.call(name, **asked, **more).status.code in (
            Code.ILLEGAL_TOPIC,
            Code.ILLEGAL_ACCESS_POINT,
        )


def test_many_receives_of_one_connection_keep_no_other_from_waiting(tmp_path: Path) -> None:
    """What all may hold is used up by one: the oldest of its receives ends for that of another."""
    port, most = free_port(), 20
    settings = {"grpcPort": port, "maxPopPollingSize": most}
    request = ReceiveMessageRequest(
        group=named("g"),
        message_queue=MessageQueue(topic=named("orders")),
        filter_expression=FilterExpression(expression="*"),
        batch_size=1,
        invisible_duration={"seconds": 15},
        long_polling_timeout={"seconds": 20},
    )
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        GrpcClient(f"{HOST}:{port}", "greedy") as greedy,
        GrpcClient(f"{HOST}:{port}", "modest") as modest,
    ):
        with AdminClient(broker.namesrv_address) as admin:
            admin.create_topic("orders", queues=1)
        call = greedy.method("ReceiveMessage")
        waiting = [call(request, timeout=60, metadata=greedy.metadata) for _ in range(most + 1)]
        with ThreadPoolExecutor(most + 1) as readers:
            firsts = [readers.submit(next, each) for each in waiting]
            over, _ = wait(firsts, 30, FIRST_COMPLETED)
            assert [first.result().status.code for first in over] == [Code.TOO_MANY_REQUESTS]
            status, *_ = receive(modest, "orders", "other")
            assert status.status.code == Code.MESSAGE_NOT_FOUND, status
            for each in waiting:
                each.cancel()


@pytest.mark.usefixtures("logged")
def test_messages_of_one_receive_come_in_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that is over at once is the worst that may happen to them."""
    monkeypatch.setattr(turns, "TURN_S", -1.0)
    port = free_port()
    with (
        running_broker(settings={"grpcPort": port}) as running,
        GrpcClient(f"{HOST}:{port}") as client,
    ):
        with AdminClient(running.namesrv) as admin:
            admin.create_topic("orders", queues=1)
        for number in range(20):
            send(client, message("orders", b"%d" % number))
        bodies = [one.body for one in received(client, "orders")]
        assert bodies == [b"%d" % number for number in range(20)]
        queue = MessageQueue(topic=named("orders"), id=0)
        _, *pulled, end = client.call(
            "PullMessage", group=named("g"), message_queue=queue, batch_size=20
        )
        assert [one.message.body for one in pulled] == bodies
        assert end.next_offset == 20


# ── Messages ──


def test_a_message_comes_as_it_was_sent(client: GrpcClient, topic: str) -> None:
    sent = message(topic, b"hello", tag="a", keys=["k1", "k2"])
    sent.user_properties["colour"] = "red"
    answer = send(client, sent)
    assert answer.status.code == Code.OK
    (entry,) = answer.entries
    assert entry.message_id == entry.transaction_id == sent.system_properties.message_id
    (got,) = received(client, topic)
    assert (got.body, dict(got.user_properties)) == (b"hello", {"colour": "red"})
    assert (got.system_properties.tag, list(got.system_properties.keys)) == ("a", ["k1", "k2"])
    assert ack(client, topic, got.system_properties.receipt_handle).status.code == Code.OK


def test_several_messages_have_a_result_each(client: GrpcClient, topic: str) -> None:
    answer = send(client, message(topic, b"1"), message(topic, b"2"))
    assert [entry.offset for entry in answer.entries] == [0, 1]


def test_each_message_of_a_request_goes_to_the_queue_of_its_priority(client: GrpcClient) -> None:
    route = client.call("QueryRoute", topic=named("priority"))
    assert {kind for queue in route.message_queues for kind in queue.accept_message_types} == {
        MessageType.PRIORITY
    }
    sent = [message("priority", b"%d" % priority, priority=priority) for priority in (0, 7, 1)]
    answer = send(client, *sent)
    assert [entry.status.code for entry in answer.entries] == [Code.OK] * 3
    told = {
        got.body: (got.system_properties.queue_id, got.system_properties.priority)
        for got in received(client, "priority", "by-priority")
    }
    assert told == {b"0": (0, 0), b"7": (1, 7), b"1": (1, 1)}


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], Code.MESSAGE_CORRUPTED),
        ([message("normal"), message("fifo")], Code.MESSAGE_CORRUPTED),
        ([message("normal", b"")], Code.MESSAGE_BODY_EMPTY),
        ([message("normal", message_id="")], Code.ILLEGAL_MESSAGE_ID),
        ([message("fifo")], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("normal", priority=1)], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("priority")], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("priority", priority=-1)], Code.BAD_REQUEST),
        ([message("unknown")], Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ([message("RMQ_SYS_TRACE_TOPIC")], Code.ILLEGAL_TOPIC),
    ],
)
def test_bad_sends_are_refused(client: GrpcClient, messages: list[Any], code: Code) -> None:
    answer = send(client, *messages)
    assert (answer.status.code, len(answer.entries)) == (code, 0)


def test_only_wanted_tags_come(client: GrpcClient, topic: str) -> None:
    send(client, message(topic, b"1", tag="a"), message(topic, b"2", tag="b"))
    wanted = FilterExpression(type=FilterType.TAG, expression="b || c")
    assert [one.body for one in received(client, topic, expression=wanted)] == [b"2"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, Code.TOPIC_NOT_FOUND),
        ({"group": "a b"}, Code.ILLEGAL_CONSUMER_GROUP),
        ({"hidden_s": 9}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"timeout_s": 4}, Code.ILLEGAL_POLLING_TIME),
        (
            {"expression": FilterExpression(type=FilterType.TAG, expression="||")},
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
        (
            {"expression": FilterExpression(type=FilterType.SQL, expression="a >")},
            Code.ILLEGAL_FILTER_EXPRESSION,
        ),
    ],
)
def test_bad_receives_are_refused(client: GrpcClient, fields: dict[str, Any], code: Code) -> None:
    (refused,) = receive(client, **{"topic": "normal", **fields})
    assert refused.status.code == code


def test_a_receive_does_not_wait_for_ever(client: GrpcClient, topic: str) -> None:
    (nothing,) = receive(client, topic)
    assert (nothing.status.code, nothing.status.message) == (
        Code.MESSAGE_NOT_FOUND,
        "no new message",
    )


def test_an_acknowledged_handle_may_come_again_and_a_wrong_one_may_not(
    client: GrpcClient, topic: str
) -> None:
    send(client, message(topic))
    (got,) = received(client, topic)
    handle = got.system_properties.receipt_handle
    assert ack(client, topic, handle).status.code == Code.OK
    assert ack(client, topic, handle).status.code == Code.OK
    assert ack(client, topic, "nonsense").status.code == Code.INVALID_RECEIPT_HANDLE
    old = handle.split(" ")
    old[1] = str(int(old[1]) - 100_000)
    expired = ack(client, topic, " ".join(old))
    # As RocketMQ's proxy: clients show the status of the whole alone, and know it by its name.
    assert expired.status.message == "INVALID_RECEIPT_HANDLE: receipt handle is expired"
    assert expired.entries[0].status.message == "receipt handle is expired"
    empty = client.call("AckMessage", group=named("g"), topic=named(topic))
    assert empty.status.code == Code.BAD_REQUEST


def test_a_change_gives_a_new_handle_and_the_old_one_is_the_same_message(
    client: GrpcClient, topic: str
) -> None:
    send(client, message(topic))
    (got,) = received(client, topic)
    first = got.system_properties.receipt_handle
    second = change(client, topic, first, 30)
    assert second.status.code == Code.OK
    assert second.receipt_handle != first
    third = change(client, topic, first, 1)
    assert third.status.code == Code.OK
    again = until_received(client, topic)
    assert [one.system_properties.delivery_attempt for one in again] == [2]
    assert change(client, topic, first, 50_000).status.code == Code.ILLEGAL_INVISIBLE_TIME


def test_what_a_client_has_not_got_when_it_cancels_comes_soon(
    client: GrpcClient, topic: str
) -> None:
    """All of it waits in the stream, whose call has ended for us; hidden again and again it would
    come back when its client ends.
    """
    for _ in range(30):
        send(client, message(topic, bytes(6_000)))
    request = ReceiveMessageRequest(
        group=named("g"),
        message_queue=MessageQueue(topic=named(topic)),
        filter_expression=FilterExpression(expression="*"),
        batch_size=32,
        auto_renew=True,
        long_polling_timeout={"seconds": 5},
    )
    with NarrowClient(f"{HOST}:{PORT}", "leaves early") as leaving:
        call = leaving.method("ReceiveMessage")(request, timeout=30, metadata=leaving.metadata)
        assert next(call).status.code == Code.OK
        call.cancel()
    again: list[Any] = []
    while len(again) < 30:
        again += until_received(client, topic)
    assert {one.system_properties.delivery_attempt for one in again} == {2}


def until_received(client: GrpcClient, topic: str, group: str = "g") -> list[Any]:
    """What comes, when it comes."""
    end = time.monotonic() + BACK_WITHIN_S
    while time.monotonic() < end:
        status, *answers = receive(client, topic, group)
        if answers:
            return [answer.message for answer in answers]
        assert status.status.code == Code.MESSAGE_NOT_FOUND, status
    raise AssertionError("nothing has come")


def test_a_message_that_failed_too_often_is_a_dead_letter(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g{next(NUMBERS)}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_group(GroupConfig(name=group, retry_max=1))
    send(client, message(topic, b"bad"))
    for attempt in (1, 2):
        (got,) = until_received(client, topic, group)
        assert got.system_properties.delivery_attempt == attempt
        change(client, topic, got.system_properties.receipt_handle, 1, group)
    end = time.monotonic() + BACK_WITHIN_S
    dead: list[Any] = []
    while not dead and time.monotonic() < end:
        assert not receive(client, topic, group)[1:], "it was delivered once more"
        answers = receive(client, f"%DLQ%{group}", "undertaker")
        dead = [answer.message for answer in answers[1:]]
    assert [one.body for one in dead] == [b"bad"]


def test_a_group_without_a_limit_of_retries_gets_its_messages_again_and_again(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    group = f"g{next(NUMBERS)}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_group(GroupConfig(name=group, retry_max=-1))
    send(client, message(topic, b"never given up"))
    for attempt in (1, 2):
        (got,) = until_received(client, topic, group)
        assert got.system_properties.delivery_attempt == attempt
        change(client, topic, got.system_properties.receipt_handle, 1, group)


def test_the_handle_of_a_message_at_another_broker_ends_nothing_here(
    client: GrpcClient, topic: str
) -> None:
    """#4953. By its place alone another message of this broker would become a dead letter."""
    send(client, message(topic))
    (got,) = received(client, topic)
    parts = got.system_properties.receipt_handle.split(" ")
    parts[5] = "elsewhere"
    theirs = " ".join(parts)
    answers = (
        ack(client, topic, theirs),
        change(client, topic, theirs, 30),
        client.call(
            "ForwardMessageToDeadLetterQueue",
            group=named("g"),
            topic=named(topic),
            receipt_handle=theirs,
            message_id="id",
        ),
    )
    for answer in answers:
        assert answer.status.code == Code.INVALID_RECEIPT_HANDLE
        assert "lies at broker 'elsewhere'" in answer.status.message


def test_a_message_may_be_made_a_dead_letter(client: GrpcClient, topic: str) -> None:
    group = f"g{next(NUMBERS)}"
    send(client, message(topic, b"given up"))
    (got,) = received(client, topic, group)
    answer = client.call(
        "ForwardMessageToDeadLetterQueue",
        group=named(group),
        topic=named(topic),
        receipt_handle=got.system_properties.receipt_handle,
        message_id=got.system_properties.message_id,
        delivery_attempt=1,
        max_delivery_attempts=16,
    )
    assert answer.status.code == Code.OK
    (dead,) = until_received(client, f"%DLQ%{group}", "undertaker")
    assert dead.body == b"given up"


def test_a_transaction_is_ended_by_its_id_and_again(client: GrpcClient) -> None:
    half = message("half", message_type=MessageType.TRANSACTION)
    (entry,) = send(client, half).entries
    for _ in range(2):
        ended = client.call(
            "EndTransaction",
            topic=named("half"),
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=1,
            source=1,
        )
        assert ended.status.code == Code.OK
    assert [one.body for one in until_received(client, "half")] == [b"body"]
    unknown = client.call("EndTransaction", topic=named("half"), transaction_id="x", resolution=1)
    assert unknown.status.code == Code.INVALID_TRANSACTION_ID


def test_a_topic_that_a_producer_cannot_join_takes_it_out_of_no_other(tmp_path: Path) -> None:
    port, topics = free_port(), ["first", "second", "third"]
    settings = {"grpcPort": port, "maxConsumerGroups": 2}
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        GrpcClient(f"{HOST}:{port}") as client,
        AdminClient(broker.namesrv_address) as admin,
    ):
        for topic in topics:
            admin.create_topic(topic, queues=1, message_type=TopicType.TRANSACTION)
        stream = client.telemetry()
        assert stream.settings(producer_settings("first")).status.code == Code.OK
        for topic in topics:
            half = message(topic, message_type=MessageType.TRANSACTION)
            assert send(client, half).status.code == Code.OK
        assert set(admin.all_producers()) & set(topics) == {"first", "second"}
        # It leaves the groups that it knows of.
        client.call("NotifyClientTermination")
        assert not set(admin.all_producers()) & set(topics)
        stream.end()


def test_a_client_with_other_settings_than_before_stays_for_as_long_as_it_sends_heartbeats() -> (
    None
):
    """What its settings named no more was not renewed, and ended its stream two minutes later."""
    port = free_port()
    address = f"{HOST}:{port}"
    with (
        running_broker(settings={"grpcPort": port}, virtual_time=True) as broker,
        AdminClient(broker.namesrv) as admin,
        GrpcClient(address, "producer") as producer,
        GrpcClient(address, "consumer") as consumer,
    ):
        admin.create_topic("half", queues=1, message_type=TopicType.TRANSACTION)
        talking, reading = producer.telemetry(), consumer.telemetry()
        assert talking.settings(producer_settings()).status.code == Code.OK
        half = message("half", message_type=MessageType.TRANSACTION)
        assert send(producer, half).status.code == Code.OK
        assert talking.settings(producer_settings()).status.code == Code.OK
        for group in ("first", "second"):
            subscription = Subscription(group=named(group))
            settings = Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
            assert reading.settings(settings).status.code == Code.OK
        assert not admin.consumers("first").members
        for _ in range(15):
            broker.advance(10)
            for client in (producer, consumer):
                assert client.call("Heartbeat").status.code == Code.OK
        assert "half" in admin.all_producers(), "it is asked about its open transaction"
        assert [one.client_id for one in admin.consumers("second").members] == ["consumer"]
        talking.end()
        reading.end()


def test_a_delay_is_a_day_long_at_most_and_longer_by_a_setting(
    client: GrpcClient, tmp_path: Path
) -> None:
    """As by RocketMQ's proxy, whose own tests look for it."""
    day_s = 86_400
    late = message("delay")
    late.system_properties.delivery_timestamp.FromSeconds(int(time.time()) + day_s + 60)
    assert send(client, late).status.code == Code.ILLEGAL_DELIVERY_TIME
    port = free_port()
    settings = {"grpcPort": port, "maxDelayTimeMills": 2 * day_s * 1_000}
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        GrpcClient(f"{HOST}:{port}") as longer,
        AdminClient(broker.namesrv_address) as admin,
    ):
        admin.create_topic("delay", queues=1, message_type=TopicType.DELAY)
        assert send(longer, late).status.code == Code.OK


def test_a_delayed_message_may_be_recalled(client: GrpcClient) -> None:
    late = message("delay")
    late.system_properties.delivery_timestamp.FromMilliseconds(int(time.time() * 1000) + 60_000)
    (entry,) = send(client, late).entries
    for _ in range(2):
        recalled = client.call(
            "RecallMessage", topic=named("delay"), recall_handle=entry.recall_handle
        )
        assert recalled.status.code == Code.OK
        assert recalled.message_id == entry.message_id
    wrong = client.call("RecallMessage", topic=named("delay"), recall_handle="x")
    assert wrong.status.code == Code.INTERNAL_SERVER_ERROR
    other = client.call("RecallMessage", topic=named("normal"), recall_handle="x")
    assert other.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_time_out_of_range_is_refused_and_ends_nothing(client: GrpcClient) -> None:
    one = message("normal")
    one.system_properties.born_timestamp.seconds = 1 << 60
    with pytest.raises(grpc.RpcError) as refused:
        send(client, one)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert send(client, message("normal")).status.code == Code.OK


def test_an_address_that_sends_too_many_bytes_is_told_to_back_off(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        admin.update_broker_config({"maxByteRateOfAddress": "1"})
        assert send(client, message(topic, bytes(3_600))).status.code == Code.OK
        assert send(client, message(topic)).status.code == Code.TOO_MANY_REQUESTS
        admin.update_broker_config({"maxByteRateOfAddress": "0"})


def test_a_producer_that_is_too_fast_for_its_topic_is_told_to_back_off(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        admin.change_topic(topic, max_bytes_per_s=1)
    assert send(client, message(topic, bytes(3_600))).status.code == Code.OK
    refused = send(client, message(topic)).status
    assert refused.code == Code.TOO_MANY_REQUESTS
    assert "takes 1 bytes per second" in refused.message


def test_a_group_that_receives_too_much_is_told_to_back_off(
    broker: AnyBroker, client: GrpcClient, topic: str
) -> None:
    group = f"slow-{topic}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_group(GroupConfig(name=group, max_bytes_per_s=1))
    assert send(client, message(topic, bytes(3_600))).status.code == Code.OK
    assert len(received(client, topic, group)) == 1
    refused, *_ = receive(client, topic, group)
    assert refused.status.code == Code.TOO_MANY_REQUESTS
    assert "gets 1 bytes per second" in refused.status.message


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sends_of_one_moment_are_each_stored_and_answered(tmp_path: Path, flush: str) -> None:
    """They are appended together; what is not plain among them is what it is."""
    port = free_port()
    settings = {"grpcPort": port, "flushDiskType": flush}
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        GrpcClient(f"{HOST}:{port}") as client,
    ):
        with AdminClient(broker.namesrv_address) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_topic("halves", queues=1, message_type=TopicType.TRANSACTION)
        call = client.method("SendMessage")
        sent = [message("orders", b"%d" % number) for number in range(80)]
        sent[40] = message("orders", b"fifo", message_group="g")
        sent[50] = message("orders", b"")
        sent[60] = message("halves", b"half", message_type=MessageType.TRANSACTION)
        waiting = [
            call.future(SendMessageRequest(messages=[one]), timeout=30, metadata=client.metadata)
            for one in sent
        ]
        answers = [each.result() for each in waiting]
        codes = {number: answer.status.code for number, answer in enumerate(answers)}
        assert {number: code for number, code in codes.items() if code != Code.OK} == {
            40: Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            50: Code.MESSAGE_BODY_EMPTY,
        }
        ids = {answer.entries[0].message_id for answer in answers if answer.entries}
        stored = [one for number, one in enumerate(sent) if number not in (40, 50)]
        assert ids == {one.system_properties.message_id for one in stored}
        bodies = {one.body for one in stored} - {b"half"}
        got: list[bytes] = []
        while len(got) < len(bodies):
            got += [one.body for one in received(client, "orders")]
        assert sorted(got) == sorted(bodies)


ACL = """\
accounts:
- {accessKey: the-admin, secretKey: a-long-secret, admin: true}
- {accessKey: one-shop, secretKey: a-long-secret, topicPerms: [orders=PUB]}
"""


ADMIN = Credentials("the-admin", "a-long-secret")


def signed(secret: bytes = b"a-long-secret", account: str = "one-shop") -> dict[str, str]:
    """The metadata of a client that signs."""
    now = "20261122T035000Z"
    signature = hmac.new(secret, now.encode(), "sha1").hexdigest()
    return {
        "x-mq-date-time": now,
        "authorization": f"MQv2-HMAC-SHA1 Credential={account}, SignedHeaders=x-mq-date-time,"
        f" Signature={signature}",
    }


@contextmanager
def guarded(tmp_path: Path) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker with access control and two topics, and the address of its port."""
    (tmp_path / "plain_acl.yml").write_text(ACL)
    (tmp_path / "plain_acl.yml").chmod(0o600)
    port = free_port()
    settings = {"aclEnable": True, "aclConfigDir": tmp_path, "grpcPort": port}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        with AdminClient(broker.namesrv_address, credentials=ADMIN) as admin:
            admin.create_topic("orders")
            admin.create_topic("secrets")
        yield broker, f"{HOST}:{port}"


def test_a_client_is_told_of_by_calls_of_its_own_account_alone(tmp_path: Path) -> None:
    """Its id and the name of its account are no secrets: a signature shows who calls."""
    with (
        guarded(tmp_path) as (_, address),
        GrpcClient(address, "shop", **signed()) as shop,
        GrpcClient(address, "shop", **signed(b"a guess")) as guesser,
        GrpcClient(address, "shop", authorization="Credential=one-shop") as silent,
    ):
        stream = shop.telemetry()
        assert stream.settings(producer_settings("orders")).status.code == Code.OK
        for stranger in (guesser, silent):
            for name in ("Heartbeat", "NotifyClientTermination"):
                assert stranger.call(name).status.code == Code.UNAUTHORIZED, name
        assert shop.call("Heartbeat").status.code == Code.OK
        assert shop.call("NotifyClientTermination").status.code == Code.OK
        assert shop.call("Heartbeat").status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        stream.end()


def test_who_has_not_signed_does_not_learn_which_topics_there_are(tmp_path: Path) -> None:
    with guarded(tmp_path) as (_, address), GrpcClient(address, "nobody") as nobody:
        for topic in ("secrets", "none"):
            status, *_ = receive(nobody, topic)
            queue = MessageQueue(topic=named(topic), id=1_000)
            statuses = [
                status.status,
                nobody.call("PullMessage", group=named("g"), message_queue=queue, batch_size=1)[
                    0
                ].status,
                *(
                    nobody.call(name, group=named("g"), message_queue=queue).status
                    for name in ("UpdateOffset", "GetOffset")
                ),
                nobody.call("QueryOffset", message_queue=queue).status,
                send(nobody, message(topic, message_group="g")).status,
                nobody.call("RecallMessage", topic=named(topic)).status,
                nobody.call("QueryRoute", topic=named(topic)).status,
                nobody.call("QueryAssignment", topic=named(topic), group=named("g")).status,
            ]
            assert {status.code for status in statuses} == {Code.UNAUTHORIZED}, topic


def test_a_connection_has_one_guess_a_second_whatever_the_number_of_its_calls(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as (_, address):
        with GrpcClient(address, "guesser", **signed(b"a guess")) as guesser:
            call = guesser.method("SendMessage")
            request = SendMessageRequest(messages=[message("orders")])
            began = time.monotonic()
            guesses = [
                call.future(request, timeout=300, metadata=guesser.metadata) for _ in range(100)
            ]
            eventually(lambda: answered(guesses) > GUESSES + 2, within_s=60, what="guesses")
            assert answered(guesses) < GUESSES + 3 + (time.monotonic() - began)
        with GrpcClient(address, "shop", **signed()) as shop:
            assert send(shop, message("orders")).status.code == Code.OK


def answered(guesses: list[Any]) -> int:
    """How many have an answer, which is a refusal."""
    answers = [guess.result() for guess in guesses if guess.done()]
    assert all(answer.status.code == Code.UNAUTHORIZED for answer in answers)
    return len(answers)


def test_what_access_control_refuses_is_logged_with_its_client(tmp_path: Path) -> None:
    """One line each, as for clients of remoting: who has not signed, and who may not."""
    with (
        guarded(tmp_path) as (broker, address),
        GrpcClient(address, "nobody") as nobody,
        GrpcClient(address, "shop", **signed()) as shop,
    ):
        assert send(shop, message("orders")).status.code == Code.OK
        assert send(nobody, message("orders")).status.code == Code.UNAUTHORIZED
        assert send(shop, message("secrets")).status.code == Code.FORBIDDEN
        lines = [
            json.loads(line) for line in broker.log.read_text().splitlines() if line[:1] == "{"
        ]
    refused = [line for line in lines if line["event"] == "access.refused"]
    assert [line["code"] for line in refused] == [310, 310]
    assert all(line["address"].startswith(f"{HOST}:") for line in refused)
    assert "secrets" in refused[1]["reason"]
