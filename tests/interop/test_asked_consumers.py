"""What `mqadmin` asks running consumers by way of a Java broker, and what ours say to it."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from anyio.from_thread import start_blocking_portal

import aerobee
from aerobee import ConsumeFrom
from aerobee.blocking import (
    AdminClient,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
)
from tests.interop.conftest import GetClient
from tests.interop.test_directory_exchange import java_broker
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection
from tests.kit.reading import committed_offsets
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from aerobee.client.settings.consumers import PushOptions

pytestmark = pytest.mark.interop

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def broker(
    java_namesrv: JavaNamesrv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaBroker]:
    data = tmp_path_factory.mktemp("asked") / "store"
    # The way of 4.9: the broker tells the clients, and keeps nothing for their next pulls.
    asks = {"useServerSideResetOffset": "false"}
    with java_broker("5.5.0", data, java_namesrv, **asks) as broker:
        yield broker


@pytest.fixture
def tools(java_client: GetClient) -> JavaClient:
    return java_client("5.5.0", "JSON")


@contextmanager
def consuming(
    broker: JavaBroker,
    topic: str,
    handle: Callable[[ReceivedMessage], object],
    *,
    front: str = "blocking",
    orderly: bool = False,
) -> Iterator[None]:
    """A push consumer of three messages in one queue, which it has all handled."""
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(broker.namesrv_address) as producer:
        for n in range(3):
            producer.send(Message(topic, b"%d" % n))
    options: PushOptions = {
        "start_from": ConsumeFrom.FIRST,
        "commit_interval": 1.0,
        "orderly": orderly,
    }

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        handle(messages[0])

    with ExitStack() as stack:
        if front == "blocking":
            blocking = PushConsumer(topic, broker.namesrv_address, **options)
            blocking.subscribe(topic, handler=handler)
            stack.enter_context(blocking)
        else:
            portal = stack.enter_context(start_blocking_portal(front))
            consumer = aerobee.PushConsumer(topic, broker.namesrv_address, **options)
            consumer.subscribe(topic, handler=handler)
            stack.enter_context(portal.wrap_async_context_manager(consumer))
        eventually(
            lambda: committed(broker, topic) == {0: 3}, within_s=WITHIN_S, what="three messages"
        )
        yield


def committed(broker: JavaBroker, group: str) -> dict[int, int]:
    with RawConnection(broker.address) as connection:
        return committed_offsets(connection, group, group, 1)


def nothing(message: ReceivedMessage) -> None:
    """A handler that is done at once."""


def client_id(broker: JavaBroker, group: str) -> str:
    with AdminClient(broker.namesrv_address) as admin:
        [member] = admin.consumers(group).members
    return member.client_id


@pytest.mark.parametrize("orderly", [False, True])
def test_a_running_consumer_tells_what_it_holds_and_does(
    broker: JavaBroker, tools: JavaClient, topic: str, orderly: bool
) -> None:
    names = broker.namesrv_address
    with consuming(broker, topic, nothing, orderly=orderly):
        member = client_id(broker, topic)
        printed = tools.mqadmin(names, "consumerStatus", "-g", topic, "-i", member, "-s")
        assert re.search(rf"^{topic} +broker-a +0 +3 *$", printed, re.MULTILINE)
        assert re.search(
            rf"^PROP_CONSUMEORDERLY *: *{str(orderly).lower()}$", printed, re.MULTILINE
        )
        assert re.search(rf"^{topic} +\d", printed.split("Consumer RT&TPS")[1], re.MULTILINE)
        assert "test_asked_consumers.py" in printed.split("Consumer jstack")[1]
        with AdminClient(names) as admin:
            running = admin.running_info(topic, member)
        [queue] = [one for one in running.queues if one.queue.topic == topic]
        assert (queue.commit_offset, queue.locked, queue.dropped) == (3, orderly, False)
        assert queue.last_pulled_at is not None
        [figures] = [one for one in running.topics if one.topic == topic]
        assert figures.consume_ok_tps > 0
        assert figures.pull_tps > 0


def test_a_consumer_tells_its_offsets(broker: JavaBroker, tools: JavaClient, topic: str) -> None:
    with consuming(broker, topic, nothing):
        names, member = broker.namesrv_address, client_id(broker, topic)
        [row] = tools.call("consumer-offsets", namesrv=names, topic=topic, group=topic)
    assert row == {"member": member, "queue": "0", "offset": "3"}


@pytest.mark.parametrize(
    ("front", "orderly"), [("blocking", False), ("asyncio", True), ("trio", False)]
)
def test_a_running_group_is_put_back(
    broker: JavaBroker, tools: JavaClient, topic: str, front: str, orderly: bool
) -> None:
    seen: list[bytes] = []
    names = broker.namesrv_address
    with consuming(broker, topic, lambda one: seen.append(one.body), front=front, orderly=orderly):
        tools.mqadmin(names, "resetOffsetByTime", "-g", topic, "-t", topic, "-s", "0")
        eventually(lambda: len(seen) >= 6, within_s=30.0, what="all messages again")
    assert sorted(seen[3:]) == [b"0", b"1", b"2"]
    assert seen == [b"0", b"1", b"2"] * 2 or not orderly
    assert committed(broker, topic) == {0: 3}


def test_a_pull_consumer_is_put_back(broker: JavaBroker, tools: JavaClient, topic: str) -> None:
    names = broker.namesrv_address
    with AdminClient(names) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(names) as producer:
        producer.send(Message(topic, b"x"))
    with PullConsumer(topic, names, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        [first] = consumer.poll(timeout=WITHIN_S)
        consumer.done(first)
        consumer.commit()
        tools.mqadmin(names, "resetOffsetByTime", "-g", topic, "-t", topic, "-s", "0")
        [again] = consumer.poll(timeout=WITHIN_S)
        assert again.message_id == first.message_id


@pytest.mark.parametrize("front", ["blocking", "asyncio", "trio"])
def test_a_consumer_handles_the_message_that_it_is_given(
    broker: JavaBroker, tools: JavaClient, topic: str, front: str
) -> None:
    names = broker.namesrv_address
    seen: list[ReceivedMessage] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message)
        if len(seen) == 5:
            raise RetryLater
        if len(seen) == 6:
            raise ValueError("not this one")

    def again(word: str) -> str:
        given = ("-t", topic, "-i", seen[0].offset_message_id, "-g", topic, "-d", member)
        return tools.mqadmin(names, word, *given)

    with consuming(broker, topic, handle, front=front):
        member = client_id(broker, topic)
        assert "consumeResult=CR_SUCCESS" in again("queryMsgById")
        assert "consumeResult=CR_LATER" in again("queryMsgById")
        assert "CR_THROW_EXCEPTION, remark=ValueError: not this one" in again("queryMsgById")
        with AdminClient(names) as admin:
            [queue] = [
                one for one in admin.running_info(topic, member).queues if one.queue.topic == topic
            ]
        assert queue.commit_offset == 3, "what is handled directly moves no offset"
    assert len({one.message_id for one in seen[3:]}) == 1
    assert len(seen) == 6
    assert {one.topic for one in seen} == {topic}
