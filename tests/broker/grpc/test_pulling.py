"""Pulls and offsets over gRPC, with raw calls."""

from __future__ import annotations

from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient
from aerobee.remoting.grpc.enums import Code, QueryOffsetPolicy
from aerobee.remoting.grpc.messages import (
    FilterExpression,
    Message,
    MessageQueue,
    PullMessageRequest,
    ReceiveMessageRequest,
    Resource,
    SystemProperties,
)
from tests.kit.grpc_client import GrpcClient
from tests.kit.ports import HOST, kept_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import AnyBroker, StartBroker

pytestmark = pytest.mark.service

PORT = kept_port()
NUMBERS = count()
GROUP = Resource(name="pullers")


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    """It has the group: a pull makes one as well, but each test may be the first."""
    broker = start_broker(grpcPort=PORT)
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_group(GroupConfig(name=GROUP.name))
    return broker


@pytest.fixture
def client(broker: AnyBroker) -> Iterator[GrpcClient]:
    with GrpcClient(f"{HOST}:{PORT}", f"puller-{next(NUMBERS)}") as client:
        yield client


@pytest.fixture
def queue(broker: AnyBroker) -> Any:
    """The only queue of a topic that no other test uses."""
    name = f"t{next(NUMBERS)}"
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(name, queues=1)
    return MessageQueue(topic=Resource(name=name), id=0)


def send(client: GrpcClient, queue: Any, *tags: str, size: int = 4) -> None:
    for tag in tags:
        system = SystemProperties(message_id=f"id-{next(NUMBERS)}", tag=tag)
        message = Message(topic=queue.topic, system_properties=system, body=bytes(size))
        assert client.call("SendMessage", messages=[message]).status.code == Code.OK


def pull(client: GrpcClient, queue: Any, offset: int, wait_s: int = 0, **fields: Any) -> Any:
    """Status, messages and next offset (None: there is none) of one pull."""
    fields.setdefault("batch_size", 32)
    status, *answers = client.call(
        "PullMessage",
        group=GROUP,
        message_queue=queue,
        offset=offset,
        long_polling_timeout={"seconds": wait_s},
        **fields,
    )
    messages = [answer.message for answer in answers if answer.HasField("message")]
    ends = [answer.next_offset for answer in answers if answer.HasField("next_offset")]
    return status.status.code, messages, ends[0] if ends else None


def test_a_queue_is_read_from_any_offset(client: GrpcClient, queue: Any) -> None:
    send(client, queue, "a", "b", "c")
    code, messages, after = pull(client, queue, 1)
    assert (code, after) == (Code.OK, 3)
    assert [message.system_properties.tag for message in messages] == ["b", "c"]
    assert [message.system_properties.queue_offset for message in messages] == [1, 2]
    assert not messages[0].system_properties.HasField("receipt_handle")
    assert pull(client, queue, 3) == (Code.MESSAGE_NOT_FOUND, [], 3)


def test_only_wanted_tags_come(client: GrpcClient, queue: Any) -> None:
    send(client, queue, "a", "b", "a")
    wanted = FilterExpression(expression="b || c")
    code, messages, after = pull(client, queue, 0, filter_expression=wanted)
    assert (code, after) == (Code.OK, 3)
    assert [message.system_properties.tag for message in messages] == ["b"]


def test_a_pull_waits_for_a_message(client: GrpcClient, queue: Any) -> None:
    waiting = PullMessageRequest(
        group=GROUP, message_queue=queue, batch_size=1, long_polling_timeout={"seconds": 20}
    )
    answers = client.method("PullMessage")(waiting, timeout=30, metadata=client.metadata)
    send(client, queue, "late")
    status, message, end = answers
    assert status.status.code == Code.OK
    assert (message.message.system_properties.tag, end.next_offset) == ("late", 1)


def test_a_pull_and_a_receive_that_wait_hear_of_the_deletion_of_their_topic(
    broker: AnyBroker, client: GrpcClient, queue: Any
) -> None:
    """Before the end of their wait, which is that of the call."""
    shared = {"group": GROUP, "message_queue": queue, "batch_size": 1}
    shared["long_polling_timeout"] = {"seconds": 300}
    pulled = PullMessageRequest(**shared)
    received = ReceiveMessageRequest(**shared, invisible_duration={"seconds": 15})
    calls = [
        client.method(name)(request, timeout=600, metadata=client.metadata)
        for name, request in (("PullMessage", pulled), ("ReceiveMessage", received))
    ]
    with AdminClient(broker.namesrv_address) as admin:
        admin.delete_topic(queue.topic.name)
    began = monotonic()
    assert [next(call).status.code for call in calls] == [Code.TOPIC_NOT_FOUND] * 2
    assert monotonic() - began < 15


def test_more_than_a_stream_has_room_for_comes_all_the_same(client: GrpcClient, queue: Any) -> None:
    send(client, queue, *("large",) * 8, size=200_000)
    code, messages, after = pull(client, queue, 0)
    while after < 8:
        code, more, after = pull(client, queue, after)
        messages += more
    assert (code, [len(message.body) for message in messages]) == (Code.OK, [200_000] * 8)


def test_a_group_stores_how_far_it_has_read(client: GrpcClient, queue: Any) -> None:
    send(client, queue, "a", "b")
    there: dict[str, Any] = {"group": GROUP, "message_queue": queue}
    assert client.call("UpdateOffset", offset=1, **there).status.code == Code.OK
    answer = client.call("GetOffset", **there)
    assert (answer.status.code, answer.offset) == (Code.OK, 1)
    assert client.call("UpdateOffset", offset=-1, **there).status.code == Code.ILLEGAL_OFFSET


def test_the_ends_of_a_queue_and_the_offset_of_a_time(client: GrpcClient, queue: Any) -> None:
    send(client, queue, "a", "b")
    policies: list[tuple[QueryOffsetPolicy, dict[str, Any]]] = [
        (QueryOffsetPolicy.BEGINNING, {}),
        (QueryOffsetPolicy.END, {}),
        (QueryOffsetPolicy.TIMESTAMP, {"timestamp": {"seconds": 1}}),
    ]
    offsets = [
        client.call("QueryOffset", message_queue=queue, query_offset_policy=policy, **fields).offset
        for policy, fields in policies
    ]
    assert offsets == [0, 2, 0]
    no_time = client.call("QueryOffset", message_queue=queue, query_offset_policy=2)
    assert no_time.status.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"batch_size": 0}, Code.BAD_REQUEST),
        ({"offset": -1}, Code.ILLEGAL_OFFSET),
        ({"queue": MessageQueue(topic=Resource(name="nowhere"))}, Code.TOPIC_NOT_FOUND),
        ({"filter_expression": FilterExpression(expression="||")}, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_bad_pulls_are_refused(
    client: GrpcClient, queue: Any, fields: dict[str, Any], code: Code
) -> None:
    assert pull(client, **{"queue": queue, "offset": 0, **fields}) == (code, [], None)


def test_a_queue_that_is_not_there_is_refused(client: GrpcClient, queue: Any) -> None:
    other = MessageQueue(topic=queue.topic, id=7)
    assert pull(client, other, 0) == (Code.BAD_REQUEST, [], None)
