"""The official Python SDK of RocketMQ 5 with others: our remoting SDK, accounts, a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import ConsumeFrom, Credentials
from aerobee.admin import GroupConfig, MessageType
from aerobee.blocking import AdminClient, Message, PopConsumer, Producer, PullConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_port
from tests.kit.python5_driver import Python5, SdkError
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

WITHIN_S = 60.0


class Line:
    """A broker with the port, and a process of the SDK."""

    def __init__(self, broker: BrokerProcess, port: int, sdk: Python5) -> None:
        self.broker = broker
        self.port = port
        self.sdk = sdk
        self.clients: list[str] = []

    def topic(self, name: str, kind: MessageType = MessageType.NORMAL, queues: int = 4) -> str:
        with AdminClient(self.broker.namesrv_address) as admin:
            admin.create_topic(name, queues=queues, message_type=kind)
        return name

    def group(self, name: str, **config: Any) -> str:
        with AdminClient(self.broker.namesrv_address) as admin:
            admin.create_group(GroupConfig(name=name, **config))
        return name

    def start(self, kind: str, name: str, **values: Any) -> str:
        self.sdk.start(kind, name, **values)
        self.clients.append(name)
        return name

    def send(self, producer: str, topic: str, body: str, **values: Any) -> Any:
        return self.sdk.call("send", name=producer, topic=topic, body=body, **values)

    def receive(self, consumer: str, count: int, *, settle: bool = True) -> list[Any]:
        """So many messages, in as many calls as it takes."""
        messages: list[Any] = []

        def enough() -> bool:
            try:
                came = self.sdk.call("receive", name=consumer)
            except SdkError as error:
                if "failed to fetch" not in str(error):
                    raise
                came = []  # the topic is not there yet
            for message in came:
                messages.append(message)
                if settle:
                    self.sdk.call("ack", name=consumer, message_id=message["id"])
            return len(messages) >= count

        eventually(enough, within_s=WITHIN_S, what=f"{count} messages")
        assert len(messages) == count
        return messages

    def pushed(self, consumer: str, count: int) -> list[Any]:
        def got() -> Any:
            messages = self.sdk.call("got", name=consumer)
            return messages if len(messages) >= count else None

        return list(eventually(got, within_s=WITHIN_S, what=f"{count} messages"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    root = tmp_path_factory.mktemp("grpc")
    port = free_port()
    with BrokerProcess(data=root / "data", settings={"grpcPort": port}) as broker:
        sdk = Python5(root, f"127.0.0.1:{port}")
        with sdk.child:
            yield Line(broker, port, sdk)


@pytest.fixture
def line(served: Line) -> Iterator[Line]:
    yield served
    while served.clients:
        served.sdk.call("close", name=served.clients.pop())


def test_a_message_comes_back_as_it_was_sent(line: Line) -> None:
    topic = line.topic("Content")
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("simple", "consumer", group="content", topics=[topic])
    sent = line.send(
        producer, topic, "größe", tag="t", keys=["k1", "k2"], properties={"a": "b", "c": "d e"}
    )
    (message,) = line.receive(consumer, 1)

    assert message["id"] == sent["id"]
    assert (message["topic"], message["body"], message["tag"]) == (topic, "größe", "t")
    assert message["keys"] == ["k1", "k2"]
    assert message["properties"] == {"a": "b", "c": "d e"}
    assert (message["attempt"], message["corrupted"]) == (1, False)


def test_messages_cross_between_the_two_protocols(line: Line) -> None:
    topic = line.topic("Crossing")
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("simple", "consumer", group="crossing", topics=[topic])
    long = "ours " * 2_000
    with Producer(line.broker.namesrv_address) as ours:
        ours.send(Message(topic, long.encode(), tag="t", keys=["k"], properties={"a": "b"}))
    (message,) = line.receive(consumer, 1)
    assert (message["body"], message["tag"], message["keys"]) == (long, "t", ["k"])
    assert message["properties"] == {"a": "b"}

    sent = line.send(producer, topic, "theirs", tag="u", keys=["l"], properties={"c": "d"})
    names = line.broker.namesrv_address
    with PullConsumer("ours", names, start_from=ConsumeFrom.FIRST) as reader:
        reader.subscribe(topic, "u")
        read = eventually(lambda: reader.poll(timeout=5), within_s=WITHIN_S, what="their message")
    assert (read[0].body, read[0].message_id, read[0].tag) == (b"theirs", sent["id"], "u")
    assert list(read[0].keys) == ["l"]
    assert read[0].properties["c"] == "d"


def test_the_highest_priority_comes_first_over_both_protocols(line: Line) -> None:
    topic = line.topic("Priorities", MessageType.PRIORITY, queues=3)
    producer = line.start("producer", "producer", topics=[topic])
    with Producer(line.broker.namesrv_address) as ours:
        ours.send_batch([Message(topic, b"%d ours" % n, priority=n) for n in range(3)])
        for priority in (0, 7, 1):
            line.send(producer, topic, f"{priority} theirs", priority=priority)
    with pytest.raises(SdkError, match="message type not match"):
        line.send(producer, topic, "without")
    consumer = line.start("simple", "consumer", group="priorities", topics=[topic])
    names = line.broker.namesrv_address
    order = [2, 7, 1, 1, 0, 0]
    for priority in order:
        (message,) = line.sdk.call("receive", name=consumer, count=1)
        assert (message["priority"], message["body"][0]) == (priority, f"{priority}")
        line.sdk.call("ack", name=consumer, message_id=message["id"])
    with PopConsumer("also", names, start_from=ConsumeFrom.FIRST) as popped:
        found = [popped.receive(topic, max_messages=1, wait=30)[0] for _ in order]
    assert [message.priority for message in found] == order


def test_a_push_consumer_gets_the_highest_priority_first(line: Line) -> None:
    topic = line.topic("Pushed", MessageType.PRIORITY, queues=3)
    producer = line.start("producer", "producer", topics=[topic])
    for number in range(6):
        line.send(producer, topic, f"{number % 3}", priority=number % 3)
    consumer = line.start("push", "pushed", group="pushed", topics=[topic])
    assert {message["priority"] for message in line.pushed(consumer, 6)} == {0, 1, 2}


def test_a_filter_by_tags(line: Line) -> None:
    topic = line.topic("Tags")
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("simple", "consumer", group="tags", topics=[topic], expression="a || b")
    for tag in "abcab":
        line.send(producer, topic, tag, tag=tag)

    assert sorted(message["body"] for message in line.receive(consumer, 4)) == [*"aabb"]


def test_what_is_not_acknowledged_comes_again_and_can_be_had_earlier(line: Line) -> None:
    topic = line.topic("Again")
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("simple", "consumer", group="again", topics=[topic])
    line.send(producer, topic, "once more")
    (message,) = line.receive(consumer, 1, settle=False)
    line.sdk.call("change", name=consumer, message_id=message["id"], invisible_s=1)
    (again,) = line.receive(consumer, 1)

    assert (again["id"], again["attempt"]) == (message["id"], 2)


def test_a_message_that_always_fails_is_a_dead_letter(line: Line) -> None:
    topic = line.topic("Dead")
    group = line.group("dead", retry_max=1)
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("push", "consumer", group=group, topics=[topic], succeeds_at=99)
    line.send(producer, topic, "fail", keys=["k"])
    line.pushed(consumer, 2)
    letters = line.start("simple", "letters", group="letters", topics=["%DLQ%dead"])
    (letter,) = line.receive(letters, 1)

    assert (letter["body"], letter["keys"]) == ("fail", ["k"])
    assert len(line.sdk.call("got", name=consumer)) == 2


def test_a_message_of_another_type_than_the_topic_is_refused(line: Line) -> None:
    topic = line.topic("Strict", MessageType.NORMAL)
    producer = line.start("producer", "producer", topics=[topic])
    with pytest.raises(SdkError, match="message type not match"):
        line.send(producer, topic, "fifo", group="a")


def test_an_unknown_topic_is_named(line: Line) -> None:
    producer = line.start("producer", "producer", topics=[])
    with pytest.raises(SdkError, match="Nowhere"):
        line.send(producer, "Nowhere", "body")


def test_clients_go_on_when_the_broker_was_restarted(line: Line) -> None:
    topic = line.topic("Restarted")
    producer = line.start("producer", "producer", topics=[topic])
    consumer = line.start("simple", "consumer", group="restarted", topics=[topic])
    push = line.start("push", "push", group="restarted-push", topics=[topic])
    line.send(producer, topic, "before")
    line.receive(consumer, 1)
    line.pushed(push, 1)
    line.broker.restart()

    def sends() -> bool:
        try:
            line.send(producer, topic, "after")
        except SdkError:
            return False
        return True

    eventually(sends, within_s=WITHIN_S, what="a send")

    def receives() -> bool:
        try:
            return any(one["body"] == "after" for one in line.sdk.call("receive", name=consumer))
        except SdkError:
            return False

    eventually(receives, within_s=WITHIN_S, what="a message")
    assert line.pushed(push, 2)[1]["body"] == "after"


SECRET = "a-long-secret"
ACL = f"""\
accounts:
- {{accessKey: the-admin, secretKey: {SECRET}, admin: true}}
- accessKey: one-shop
  secretKey: {SECRET}
  topicPerms: [orders=PUB|SUB]
  groupPerms: [readers=SUB]
"""


def test_a_signature_is_asked_for_where_accounts_are(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("guarded")
    (root / "plain_acl.yml").write_text(ACL)
    (root / "plain_acl.yml").chmod(0o600)
    port = free_port()
    settings = {"aclEnable": True, "aclConfigDir": root, "grpcPort": port}
    with BrokerProcess(data=root / "data", settings=settings) as broker:
        admin = Credentials("the-admin", SECRET)
        with AdminClient(broker.namesrv_address, credentials=admin) as client:
            client.create_topic("orders", message_type=MessageType.NORMAL)
            client.create_topic("secrets", message_type=MessageType.NORMAL)
        sdk = Python5(root, f"127.0.0.1:{port}")
        with sdk.child:
            shop = {"user": "one-shop", "secret": SECRET}
            sdk.start("producer", "shop", topics=["orders"], **shop)
            sdk.start("simple", "reader", group="readers", topics=["orders"], **shop)
            sdk.call("send", name="shop", topic="orders", body="paid")
            (message,) = sdk.call("receive", name="reader")
            sdk.call("ack", name="reader", message_id=message["id"])
            assert message["body"] == "paid"
            with pytest.raises(SdkError):
                sent(sdk, "forger", {"user": "one-shop", "secret": "another-secret"})
            with pytest.raises(SdkError):
                sent(sdk, "nobody", {"user": "", "secret": ""})
            with pytest.raises(SdkError):
                sdk.call("send", name="shop", topic="secrets", body="mine")


def sent(sdk: Python5, name: str, account: dict[str, str]) -> Any:
    """A send of a new producer."""
    sdk.start("producer", name, topics=["orders"], **account)
    return sdk.call("send", name=name, topic="orders", body="free")
