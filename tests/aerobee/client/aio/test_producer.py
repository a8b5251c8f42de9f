"""Producers against a real broker, on every front."""

from collections.abc import Callable

import pytest

from aerobee import Message, MessageQueue, SendStatus
from aerobee.errors import (
    ClientClosedError,
    ClientStateError,
    ConfigurationError,
    MessageIllegalError,
    NoNameServerError,
)
from tests.aerobee.client.fronts import Front
from tests.kit.ports import free_port

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]


async def test_a_sent_message_is_stored_where_the_result_says(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        result = await producer.send(Message(topic, b"hello", tag="A", keys=["k1"]))
        queues = await producer.queues(topic)
    assert result.status is SendStatus.OK
    assert result.queue in queues
    assert result.queue_offset == 0
    assert result.attempts == 1
    assert len(result.message_id) == 32
    assert len(result.offset_message_id) == 32


async def test_queues_take_turns_and_offsets_are_dense(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        results = [await producer.send(Message(topic, b"%d" % n)) for n in range(16)]
    by_queue: dict[MessageQueue, list[int]] = {}
    for result in results:
        by_queue.setdefault(result.queue, []).append(result.queue_offset)
    assert sorted(by_queue.values()) == [[0, 1, 2, 3]] * 4
    assert len({result.message_id for result in results}) == 16


async def test_a_batch_is_stored_in_order_with_a_result_each(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        results = await producer.send_batch(Message(topic, b"%d" % n) for n in range(100))
    assert [result.queue_offset for result in results] == list(range(100))
    assert len({result.queue for result in results}) == 1
    assert len({result.offset_message_id for result in results}) == 100


async def test_a_large_batch_is_split(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    messages = [Message(topic, b"x" * 100_000) for _ in range(25)]
    async with front.producer() as producer:
        results = await producer.send_batch(messages)
    assert len(results) == 25
    assert all(result.ok for result in results)
    assert len({result.queue for result in results}) > 1


async def test_equal_keys_share_a_queue(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        results = [
            await producer.send(Message(topic, b"x", ordering_key=f"order-{n % 3}"))
            for n in range(9)
        ]
    for n in range(3):
        assert len({result.queue for result in results[n::3]}) == 1


async def test_a_given_queue_is_used(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        queue = (await producer.queues(topic))[2]
        by_name = await producer.send(Message(topic, b"x"), queue=queue)
        by_choice = await producer.send(Message(topic, b"x"), queue=lambda queues, _: queues[2])
    assert by_name.queue == by_choice.queue == queue


async def test_a_oneway_send_arrives(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=4)
    async with front.producer() as producer, front.consumer(fresh("group")) as consumer:
        await producer.send(Message(topic, b"first"))
        await consumer.assign(await consumer.queues(topic))
        for queue in consumer.assignment:
            await consumer.seek(queue, 0)
        await producer.send_oneway(Message(topic, b"second"))
        bodies: set[bytes] = set()
        while len(bodies) < 2:
            bodies |= {message.body for message in await consumer.poll()}
    assert bodies == {b"first", b"second"}


async def test_what_the_broker_refuses_is_told_with_its_words(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer(max_message_size=8 << 20, compression=None) as producer:
        with pytest.raises(MessageIllegalError, match="SEND_MESSAGE_V2") as refused:
            await producer.send(Message(topic, bytes(5 << 20)))
    assert refused.value.code == 13


async def test_nobody_listening_is_said_plainly(front_name: str) -> None:
    nobody = Front(front_name, f"127.0.0.1:{free_port()}")
    with pytest.raises(NoNameServerError, match=nobody.namesrv):
        async with nobody.producer(connect_timeout=1.0):
            pass


async def test_a_producer_works_between_start_and_close(front: Front, fresh: Fresh) -> None:
    producer = front.producer()
    with pytest.raises(ClientStateError):
        await producer.send(Message(fresh("topic"), b"x"))
    async with producer:
        await producer.send(Message(fresh("topic"), b"x"))
    with pytest.raises(ClientClosedError):
        await producer.send(Message(fresh("topic"), b"x"))


async def test_two_producers_may_share_a_client_but_not_a_group(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.client() as client:
        async with (
            front.producer(group="one", client=client) as one,
            front.producer(group="two", client=client) as two,
        ):
            await one.send(Message(topic, b"x"))
            await two.send(Message(topic, b"x"))
            with pytest.raises(ConfigurationError, match="already has a producer"):
                async with front.producer(group="two", client=client):
                    pass
        async with front.producer(group="two", client=client) as again:
            assert (await again.send(Message(topic, b"x"))).ok


async def test_the_exception_of_a_block_comes_through_as_it_is(front: Front) -> None:
    with pytest.raises(ZeroDivisionError):
        async with front.producer():
            raise ZeroDivisionError
