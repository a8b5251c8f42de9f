"""Pull consumers against a real broker, on every front."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from aerobee import ConsumeFrom, Filter, Message, MessageQueue, ReceivedMessage
from aerobee.errors import (
    ClientClosedError,
    ConfigurationError,
    QueueNotAssignedError,
    SubscriptionError,
)
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30


@pytest.fixture(scope="module")
def filtering(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker(enablePropertyFilter=True)


async def send(front: Front, topic: str, *bodies: bytes, **options: Any) -> None:
    async with front.producer() as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **options))


async def take(consumer: Any, count: int) -> list[ReceivedMessage]:
    """So many messages, done."""
    taken: list[ReceivedMessage] = []
    with anyio.fail_after(WITHIN_S):
        while len(taken) < count:
            messages = await consumer.poll(max_messages=count - len(taken), timeout=1.0)
            consumer.done(*messages)
            taken += messages
    return taken


async def until(true: Callable[[], bool], consumer: Any) -> None:
    """Until a state of the consumer is reached; its polls are what makes time pass."""
    with anyio.fail_after(WITHIN_S):
        while not true():
            await consumer.poll(timeout=0.05)


async def test_a_subscriber_gets_every_message_once_and_as_it_was_sent(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    bodies = [b"%d" % n for n in range(20)]
    await send(front, topic, *bodies, tag="A", keys=["k1", "k2"], properties={"p": "ü"}, flag=7)
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic)
        messages = await take(consumer, 20)
        assert not await consumer.poll(timeout=0.2)
    assert sorted(message.body for message in messages) == sorted(bodies)
    one = messages[0]
    assert (one.topic, one.tag, one.keys, one.flag) == (topic, "A", ("k1", "k2"), 7)
    assert one.properties["p"] == "ü"
    assert abs(datetime.now(UTC) - one.stored_at) < timedelta(minutes=1)
    assert one.message_id == one.properties["UNIQ_KEY"]


async def test_a_message_sent_while_waiting_arrives_at_once(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"first")
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic)
        await take(consumer, 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send, front, topic, b"second")
            messages = await consumer.poll(timeout=WITHIN_S)
    assert [message.body for message in messages] == [b"second"]


async def test_iteration_finishes_a_message_when_the_next_is_asked_for(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.producer() as producer:
        queue = (await producer.queues(topic))[0]
        for n in range(5):
            await producer.send(Message(topic, b"%d" % n), queue=queue)
    async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic)
        seen = []
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 3:
                break
    assert seen == [b"0", b"1", b"2"]
    async with front.consumer(group) as consumer:
        assert await consumer.committed(queue) == 2
        await consumer.subscribe(topic)
        assert [message.body for message in await take(consumer, 3)] == [b"2", b"3", b"4"]


async def test_only_the_wanted_tags_come(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    for tag in "ABC":
        await send(front, topic, tag.encode(), tag=tag)
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic, "A || C")
        messages = await take(consumer, 2)
        assert not await consumer.poll(timeout=0.2)
    assert {message.body for message in messages} == {b"A", b"C"}


async def test_other_tags_may_be_wanted_from_now_on(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"first", tag="A")
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic, "A")
        await take(consumer, 1)
        await consumer.subscribe(topic, "B")
        for tag in "ABAB":
            await send(front, topic, tag.encode(), tag=tag)
        messages = await take(consumer, 2)
        assert not await consumer.poll(timeout=0.2)
    assert [message.body for message in messages] == [b"B", b"B"]


async def test_packed_bodies_come_unpacked(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    body = b"long " * 2000
    for compression in ("zlib", "lz4", "zstd", None):
        async with front.producer(compression=compression) as producer:
            await producer.send(Message(topic, body))
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic)
        assert [message.body for message in await take(consumer, 4)] == [body] * 4


async def test_two_members_share_the_queues_and_one_inherits(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"x"] * 8)
    first = front.consumer(group, start_from=ConsumeFrom.FIRST)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(first)
        await first.subscribe(topic)
        assert len(first.assignment) == 4
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as second:
            await second.subscribe(topic)
            await until(lambda: len(first.assignment) == 2, first)
            await until(lambda: len(second.assignment) == 2, second)
            assert not first.assignment & second.assignment
        await until(lambda: len(first.assignment) == 4, first)


async def test_what_is_done_is_not_delivered_to_the_next_run(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"%d" % n for n in range(12)])
    seen: list[bytes] = []
    for _ in range(3):
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(topic)
            seen += [message.body for message in await take(consumer, 4)]
    assert sorted(seen) == sorted(b"%d" % n for n in range(12))


async def test_what_is_not_done_is_delivered_again(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"once more")
    for _ in range(2):
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(topic)
            with anyio.fail_after(WITHIN_S):
                while not (messages := await consumer.poll()):
                    pass
            assert messages[0].body == b"once more"


async def test_assigned_queues_can_be_sought(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        queue = (await producer.queues(topic))[1]
        for n in range(10):
            await producer.send(Message(topic, b"%d" % n), queue=queue)
    async with front.consumer(fresh("group"), auto_commit=False) as consumer:
        await consumer.assign([queue])
        assert consumer.assignment == {queue}
        # A Java broker acknowledges before readers can see it.
        with anyio.fail_after(WITHIN_S):
            while (await consumer.end_offsets())[queue] < 10:
                await consumer.poll(timeout=0.01)
        await consumer.seek(queue, 7)
        assert consumer.position(queue) == 7
        assert [message.body for message in await take(consumer, 3)] == [b"7", b"8", b"9"]
        # A seek must not wait for the pull that the broker is holding.
        with anyio.fail_after(10):
            await consumer.seek(queue, ConsumeFrom.FIRST)
            assert (await take(consumer, 1))[0].body == b"0"
        await consumer.seek(queue, ConsumeFrom.LAST)
        assert consumer.position(queue) == 10


async def test_offsets_are_found_by_time(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=4)
    await send(front, topic, *[b"x"] * 4)
    hour = timedelta(hours=1)
    async with front.consumer(fresh("group")) as consumer:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        before = await consumer.offsets_for_time(datetime.now(UTC) - hour)
        for queue in queues:
            await consumer.seek(queue, datetime.now(UTC) - hour)
        assert len(await take(consumer, 4)) == 4
        ends = await consumer.end_offsets()
    assert set(before.values()) == {0}
    assert sum(ends.values()) == 4


async def test_offsets_are_committed_when_told(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"x"] * 8)
    async with front.consumer(group, start_from=ConsumeFrom.FIRST, auto_commit=False) as consumer:
        await consumer.subscribe(topic)
        await take(consumer, 8)
        await consumer.commit()
        for queue in consumer.assignment:
            assert await consumer.committed(queue) == 2
        queue = min(consumer.assignment)
        await consumer.commit({queue: 1})
        assert await consumer.committed(queue) == 1


async def test_a_topic_that_comes_later_is_found(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    options = {"start_from": ConsumeFrom.FIRST, "route_interval": 0.2}
    async with front.consumer(fresh("group"), **options) as consumer:
        await consumer.subscribe(topic)
        assert not consumer.assignment
        await send(front, topic, b"late")
        assert (await take(consumer, 1))[0].body == b"late"


async def test_closing_ends_an_iteration(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"x")
    seen = []
    consumer = front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST)
    with anyio.fail_after(WITHIN_S):
        async with consumer, anyio.create_task_group() as tasks:
            await consumer.subscribe(topic)

            async def read() -> None:
                async for message in consumer:
                    seen.append(message.body)
                    tasks.start_soon(consumer.aclose)

            tasks.start_soon(read)
    assert seen == [b"x"]
    with pytest.raises(ClientClosedError):
        await consumer.poll()


async def test_a_queue_of_others_has_no_place_here(front: Front, fresh: Fresh) -> None:
    async with front.consumer(fresh("group")) as consumer:
        with pytest.raises(QueueNotAssignedError):
            consumer.position(MessageQueue("T", "b", 0))


async def test_a_condition_in_sql_is_served_by_the_broker(
    front_name: str, filtering: AnyBroker, fresh: Fresh
) -> None:
    front = Front(front_name, filtering.namesrv_address)
    topic = fresh("topic")
    async with front.producer() as producer:
        for n in range(8):
            await producer.send(Message(topic, b"%d" % n, properties={"n": str(n)}))
    async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
        await consumer.subscribe(topic, Filter.sql("n > 5"))
        messages = await take(consumer, 2)
        assert not await consumer.poll(timeout=0.2)
    assert {message.body for message in messages} == {b"6", b"7"}


async def test_a_broker_without_sql_says_so_at_once(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"x")
    async with front.consumer(fresh("group")) as consumer:
        with pytest.raises(SubscriptionError, match="enablePropertyFilter"):
            await consumer.subscribe(topic, Filter.sql("n > 5"))
        with pytest.raises(ConfigurationError, match=r"Filter\.sql"):
            await consumer.subscribe(topic, "n > 5")
