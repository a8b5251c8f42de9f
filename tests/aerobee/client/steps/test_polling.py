"""Pull consumers that send back, rest and are told of their queues, on every front."""

from collections.abc import Callable

import anyio
import pytest

from aerobee import ConsumeFrom, MessageQueue, ReceivedMessage
from aerobee.errors import ClientStateError, QueueNotAssignedError
from tests.aerobee.client.aio.test_pull_consumer import send, take
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker(messageDelayLevel="1s 1s 1s 1s")


async def test_a_poisonous_message_comes_again_and_the_others_go_on(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"poison", b"a", b"b", b"c")
    assigned: list[frozenset[MessageQueue]] = []
    seen: list[ReceivedMessage] = []
    async with front.consumer(
        group, start_from=FIRST, retry=True, on_assigned=assigned.append
    ) as consumer:
        await consumer.subscribe(topic)
        with anyio.fail_after(WITHIN_S):
            async for message in consumer:
                seen.append(message)
                if message.body == b"poison" and not message.reconsume_times:
                    await consumer.nack(message, level=1)
                if len(seen) == 5:
                    break
        assert {queue.topic for queue in consumer.assignment} == {topic}
        assert frozenset().union(*assigned) == consumer.assignment
    assert {message.topic for message in seen} == {topic}
    assert (seen[4].body, seen[4].reconsume_times) == (b"poison", 1)
    assert sorted(message.body for message in seen[:4]) == [b"a", b"b", b"c", b"poison"]


async def test_without_retry_nothing_is_sent_back_to_nobody(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"x")
    async with front.consumer(fresh("group"), start_from=FIRST) as consumer:
        await consumer.subscribe(topic)
        [message] = await take(consumer, 1)
        with pytest.raises(ClientStateError, match="retry=True"):
            await consumer.nack(message)


async def test_what_rests_is_not_handed_out_before_it_may(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, *[b"x"] * 8)
    async with front.consumer(fresh("group"), start_from=FIRST) as consumer:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        consumer.pause(*queues[1:])
        only = {message.queue for message in await take(consumer, 2)}
        assert only == {queues[0]}
        assert not await consumer.poll(timeout=0.1)
        consumer.resume()
        assert {message.queue for message in await take(consumer, 6)} == set(queues[1:])
        with pytest.raises(QueueNotAssignedError):
            consumer.pause(queues[0]._replace(queue_id=99))


@pytest.mark.parametrize("early", [False, True])
async def test_a_left_loop_leaves_its_last_message_as_it_was_told(
    early: bool, front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"x")
    async with front.consumer(group, start_from=FIRST, finish_early=early) as consumer:
        await consumer.subscribe(topic)
        async for _ in consumer:
            break
    async with front.consumer(group) as consumer:
        queues = await consumer.queues(topic)
        assert sum([await consumer.committed(queue) or 0 for queue in queues]) == early
