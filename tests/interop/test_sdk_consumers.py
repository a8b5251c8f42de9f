"""The SDK's consumers beside Java's in one group, and with Java's broker."""

import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

from aerobee import ConsumeFrom
from aerobee.admin import GroupConfig
from aerobee.blocking import (
    AdminClient,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    RetryLater,
)
from tests.aerobee.client.steps.test_assigned import set_mode
from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.interop.test_directory_exchange import java_broker
from tests.interop.test_retries import dead_letters
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection
from tests.kit.reading import max_offset, read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

WITHIN_S = 45.0
FIRST = ConsumeFrom.FIRST
SHORT = {"messageDelayLevel": "1s 1s 3s 3s"}
FIRST_RETRY_QUEUE = 2
"""Of the topic where what a broker sends later waits: the level of a first retry, less one."""


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(**SHORT)


@pytest.fixture(scope="module")
def java_5(
    java_namesrv: JavaNamesrv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaBroker]:
    data = tmp_path_factory.mktemp("consumed") / "store"
    with java_broker("5.5.0", data, java_namesrv, **SHORT, timerWheelEnable="true") as broker:
        yield broker


@pytest.fixture
def java(java_client: GetClient) -> Iterator[JavaClient]:
    client = java_client("5.5.0", "JSON")
    yield client
    client.call("clear")


class Handler:
    """Keeps bodies and tries of what it gets; raises what it is told for a body."""

    def __init__(self, errors: dict[bytes, Exception] | None = None) -> None:
        self.errors = errors or {}
        self.calls: list[tuple[bytes, int]] = []
        self.topics: set[str] = set()

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.calls.append((message.body, message.reconsume_times))
            self.topics.add(message.topic)
        error = self.errors.get(messages[0].body)
        if error is not None and messages[0].reconsume_times == 0:
            raise error


def numbered(count: int) -> list[bytes]:
    return [b"m%d" % n for n in range(count)]


def send(broker: AnyBroker, topic: str, *bodies: bytes) -> None:
    with Producer(broker.namesrv_address) as producer:
        for body in bodies:
            producer.send(Message(topic, body))


def test_a_java_and_a_python_member_share_the_queues_and_get_each_message_once(
    java: JavaClient, broker: AnyBroker, topic: str
) -> None:
    names, handler = broker.namesrv_address, Handler()
    send(broker, topic, b"first")
    consumer = PushConsumer(topic, names)
    consumer.subscribe(topic, handler=handler)

    def ours() -> list[int]:
        return sorted(queue.queue_id for queue in consumer.assignment if queue.topic == topic)

    with consumer:
        java.consumer("c", names, topic, group=topic)
        eventually(
            lambda: (
                len(ours()) == 2 and sorted([*ours(), *java.assigned("c", topic)]) == [0, 1, 2, 3]
            ),
            within_s=WITHIN_S,
            what="two queues each",
        )
        before = len(java.received("c", 0)) + len(handler.calls)
        send(broker, topic, *numbered(40))
        eventually(
            lambda: len(java.received("c", 0)) + len(handler.calls) >= before + 40,
            within_s=WITHIN_S,
            what="all messages",
        )
        theirs = [one.body.encode() for one in java.received("c", 0)]
        got = sorted([*theirs, *(body for body, _ in handler.calls)])
        assert [body for body in got if body != b"first"] == sorted(numbered(40))
        java.stop(consumer="c")
        eventually(lambda: len(ours()) == 4, within_s=WITHIN_S, what="all queues")


@pytest.mark.parametrize(
    ("compression", "version"),
    [("zlib", "5.5.0"), ("zlib", "4.9.7"), ("lz4", "5.5.0"), ("zstd", "5.5.0")],
)
def test_java_reads_what_python_compressed(
    java_client: GetClient,
    broker: AnyBroker,
    topic: str,
    compression: Literal["zlib", "lz4", "zstd"],
    version: str,
) -> None:
    names, body = broker.namesrv_address, "words " * 1_000
    with Producer(names, compression=compression) as producer:
        sent = producer.send(Message(topic, body.encode()))
    with RawConnection(broker.address) as connection:
        [record] = read_topic(connection, topic, sent.queue.queue_id)
    assert len(record.body) < len(body) / 10, "it is stored as it was compressed"
    client = java_client(version, "JSON")
    [got] = client.pull(names, topic, f"{topic}-g", 1)
    assert (got.body, got.msg_id) == (body, sent.message_id)


def test_what_python_sent_back_java_gets_and_gives_up(
    java: JavaClient, broker: AnyBroker, topic: str
) -> None:
    names = broker.namesrv_address
    send(broker, topic, b"hard")
    handler = Handler({b"hard": RetryLater(level=1)})
    consumer = PushConsumer(topic, names, start_from=FIRST)
    consumer.subscribe(topic, handler=handler)
    with consumer:
        eventually(lambda: handler.calls, within_s=WITHIN_S, what="the first try")
    java.consumer("c", names, topic, group=topic, failing=99, tries=1)
    got = java.received("c", 1, within_s=WITHIN_S)
    assert [(one.body, one.topic, one.reconsume_times) for one in got] == [("hard", topic, 1)]
    eventually(lambda: dead_letters(broker, topic) == [b"hard"], within_s=10, what="a dead letter")


def test_what_java_sent_back_python_gets_under_its_own_topic(
    java: JavaClient, broker: AnyBroker, topic: str
) -> None:
    names, handler = broker.namesrv_address, Handler()
    send(broker, topic, b"hard")

    def waiting() -> int:
        with RawConnection(broker.address) as connection:
            return max_offset(connection, "SCHEDULE_TOPIC_XXXX", FIRST_RETRY_QUEUE)

    before = waiting()
    java.consumer("c", names, topic, group=topic, failing=99)
    eventually(lambda: waiting() > before, within_s=WITHIN_S, what="a message sent back")
    java.stop(consumer="c")
    consumer = PushConsumer(topic, names, start_from=FIRST)
    consumer.subscribe(topic, handler=handler)
    with consumer:
        eventually(lambda: handler.calls, within_s=WITHIN_S, what="the retry")
    assert handler.calls[0] == (b"hard", 1)
    assert handler.topics == {topic}


def test_a_java_broker_takes_back_what_failed_and_keeps_what_is_given_up(
    java_5: JavaBroker, topic: str
) -> None:
    send(java_5, topic, b"good", b"hard", b"never")
    handler = Handler({b"hard": RetryLater(level=1), b"never": Reject()})
    consumer = PushConsumer(topic, java_5.namesrv_address, start_from=FIRST)
    consumer.subscribe(topic, handler=handler)
    with consumer:
        eventually(lambda: (b"hard", 1) in handler.calls, within_s=WITHIN_S, what="the retry")
        eventually(
            lambda: dead_letters(java_5, topic) == [b"never"], within_s=10, what="a dead letter"
        )
    assert sorted(handler.calls) == [(b"good", 0), (b"hard", 0), (b"hard", 1), (b"never", 0)]


def test_a_java_broker_locks_queues_for_an_orderly_consumer(java_5: JavaBroker, topic: str) -> None:
    with Producer(java_5.namesrv_address) as producer:
        for n in range(10):
            producer.send(Message(topic, b"%d" % n, ordering_key="k"))
    handler = Handler({b"4": RetryLater(suspend=0.1)})
    consumer = PushConsumer(topic, java_5.namesrv_address, start_from=FIRST, orderly=True)
    consumer.subscribe(topic, handler=handler)
    with consumer:
        eventually(lambda: (b"9", 0) in handler.calls, within_s=WITHIN_S, what="all messages")
    expected = [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    assert [int(body) for body, _ in handler.calls] == expected


def test_a_java_broker_hands_out_and_takes_acknowledgements(java_5: JavaBroker, topic: str) -> None:
    bodies = numbered(10)
    send(java_5, topic, *bodies)
    found: list[ReceivedMessage] = []
    over = threading.Timer(WITHIN_S, lambda: None)
    over.start()
    with PopConsumer(topic, java_5.namesrv_address, start_from=FIRST) as consumer:
        while len(found) < 10 and over.is_alive():
            found += consumer.receive(topic, wait=1.0)
        assert sorted(message.body for message in found) == sorted(bodies)
        consumer.ack(*found[1:])
        consumer.extend(found[0], 20.0)
        consumer.nack(found[0], delay=1.0)
        again: list[ReceivedMessage] = []
        while not again and over.is_alive():
            again = consumer.receive(topic, wait=1.0)
        assert [(one.body, one.topic, one.reconsume_times) for one in again] == [
            (found[0].body, topic, 1)
        ]
        consumer.ack(*again)
    over.cancel()


def test_a_java_broker_shares_out_and_has_messages_popped(java_5: JavaBroker, topic: str) -> None:
    names, handler = java_5.namesrv_address, Handler({b"never": Reject()})
    bodies = numbered(20)
    send(java_5, topic, *bodies, b"never")
    with AdminClient(names) as admin:
        admin.create_group(GroupConfig(name=topic))
    set_mode(java_5, topic, topic, "POP")
    consumer = PushConsumer(topic, names, start_from=FIRST, server_assignment=True)
    consumer.subscribe(topic, handler=handler)

    def held() -> set[int]:
        return {queue.queue_id for queue in consumer.assignment if queue.topic == topic}

    with consumer:
        eventually(lambda: len(handler.calls) >= 21, within_s=WITHIN_S, what="all messages")
        assert held() == {-1}
        eventually(
            lambda: dead_letters(java_5, topic) == [b"never"], within_s=10, what="a dead letter"
        )
    assert sorted(body for body, _ in handler.calls) == sorted([b"never", *bodies])
    with PopConsumer(topic, names, invisible=10.0) as other:
        assert not other.receive(topic, wait=1.0), "all was acknowledged"


@pytest.mark.parametrize("whose", ["broker", "java_5"])
def test_java_and_python_members_pop_what_the_broker_gives_each(
    java: JavaClient, request: pytest.FixtureRequest, whose: str, topic: str
) -> None:
    broker: AnyBroker = request.getfixturevalue(whose)
    names, bodies = broker.namesrv_address, numbered(60)
    with AdminClient(names) as admin:
        admin.create_topic(topic, queues=4)
        admin.create_group(GroupConfig(name=topic))
    # Each queue has a second member: of three, none has all queues.
    set_mode(broker, topic, topic, "POP", share=1)
    java.consumer("c", names, topic, group=topic, pop=1)
    with (
        PopConsumer(topic, names, start_from=FIRST, server_assignment=True) as one,
        PopConsumer(topic, names, start_from=FIRST, server_assignment=True) as other,
    ):
        ours = (one, other)

        def shared() -> bool:
            for consumer in ours:
                assert not consumer.receive(topic, wait=0)
            return all(1 < len(given(consumer, topic)) < 4 for consumer in ours)

        eventually(shared, within_s=WITHIN_S, what="two or three queues each")
        send(broker, topic, *bodies)
        got: list[bytes] = []

        def all_came() -> bool:
            for consumer in ours:
                messages = consumer.receive(topic, wait=0.1)
                assert {message.queue.queue_id for message in messages} <= given(consumer, topic)
                consumer.ack(*messages)
                got.extend(message.body for message in messages)
            return len(got) + len(java.received("c", 0)) >= len(bodies)

        eventually(all_came, within_s=WITHIN_S, what="all messages")
        theirs = [message.body.encode() for message in java.received("c", 0)]
        assert got, "Python got none"
        assert sorted([*got, *theirs]) == sorted(bodies)
        java.stop(consumer="c")
    with AdminClient(names) as admin:
        assert not admin.consumers(topic).members


def given(consumer: PopConsumer, topic: str) -> set[int]:
    """The queues that a POP consumer was given last."""
    return {queue.queue_id for queue in consumer.assignment if queue.topic == topic}
