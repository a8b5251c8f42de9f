"""POP consumers against a real broker, on every front."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from aerobee import ConsumeFrom, ReceivedMessage
from aerobee.client.pop_config import PopConfig
from aerobee.client.steps.popping import RECEIPT, Popper
from aerobee.errors import ConfigurationError
from aerobee.remoting.wire.bodies.pop import BatchAckRequest, offsets_in
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.pop import BatchAckMessage
from tests.aerobee.client.aio.test_pull_consumer import send
from tests.aerobee.client.aio.test_push_consumer import drained
from tests.aerobee.client.fronts import Front
from tests.aerobee.client.steps.stage import Stage, answer, route
from tests.aerobee.client.steps.test_held_queue import message

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


async def popped(consumer: Any, topic: str, count: int, **options: Any) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    with anyio.fail_after(WITHIN_S):
        while len(found) < count:
            found += await consumer.receive(topic, wait=1.0, **options)
    return found


async def test_what_is_acknowledged_stays_away_and_what_is_sent_back_comes_again(
    front: Front, front_name: str, fresh: Fresh
) -> None:
    topic = fresh("topic")
    await send(front, topic, *[b"%d" % n for n in range(20)])
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        messages = await popped(consumer, topic, 20)
        assert sorted(message.body for message in messages) == sorted(b"%d" % n for n in range(20))
        again = [message for message in messages if message.body == b"7"]
        await consumer.ack(*(message for message in messages if message.body != b"7"))
        await consumer.extend(again[0], 30)
        await consumer.nack(again[0], delay=1)
        if front_name == "asyncio":
            # Brokers take some seconds to bring it back, and do not know which front asked.
            [once_more] = await popped(consumer, topic, 1)
            assert (once_more.body, once_more.topic, once_more.reconsume_times) == (b"7", topic, 1)
            await consumer.ack(once_more)
        with pytest.raises(ConfigurationError, match="sent back"):
            await consumer.ack(again[0])


async def test_a_loop_acknowledges_and_what_is_rejected_is_a_dead_letter(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"good", b"bad", b"hopeless", b"last")
    seen: list[bytes] = []
    async with front.pop(group, start_from=FIRST, max_reconsume=0) as consumer:
        with anyio.fail_after(WITHIN_S):
            async for message in consumer.messages(topic):
                seen.append(message.body)
                if message.body == b"bad":
                    await consumer.reject(message)
                elif message.body == b"hopeless":
                    await consumer.nack(message)
                if len(seen) == 4:
                    break
    dead: list[bytes] = []
    with anyio.fail_after(WITHIN_S):
        while len(dead) < 2:
            dead = await drained(front, f"%DLQ%{group}")
    assert sorted(dead) == [b"bad", b"hopeless"]
    assert len(seen) == len(set(seen))


async def test_only_wanted_tags_come_and_the_others_are_no_obstacle(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    for tag in "AB":
        await send(front, topic, tag.encode(), tag=tag)
    async with front.pop(fresh("group"), start_from=FIRST) as consumer:
        [message] = await popped(consumer, topic, 1, expression="B")
        assert (message.body, message.tag) == (b"B", "B")
        await consumer.ack(message)
        assert not await consumer.receive(topic, wait=0.1, expression="B")
        with pytest.raises(ConfigurationError, match="1 to 32"):
            await consumer.receive(topic, max_messages=33)


# ── Without a network ──


def test_messages_of_two_topics_popped_in_one_millisecond_are_told_apart() -> None:
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a"))
    stage.perform(stage.instance.route("T", 1.0))
    stage.answers(BatchAckMessage, answer())
    popped = [
        replace(
            message(offset),
            topic=topic,
            properties={RECEIPT: f"0 1700000000000 60000 3 0 broker-a 2 {offset}"},
        )
        for topic, offset in (("T", 0), ("U", 1), ("T", 5))
    ]
    stage.perform(Popper(stage.instance, PopConfig(group="g")).acknowledge(popped))
    (ask,) = stage.asked(BatchAckMessage)
    acks = BatchAckRequest.from_bytes(ask.body).acks
    assert {ack.topic: offsets_in(ack.bits, ack.start_offset) for ack in acks} == {
        "T": [0, 5],
        "U": [1],
    }
