"""Orderly push consumers against a real broker, on every front."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from aerobee import ConsumeFrom, Message, ReceivedMessage, Reject, RetryLater
from aerobee.client.settings.consumers import PushConfig
from aerobee.client.steps.effects import Ask
from aerobee.client.steps.orderly import LOCK_LIVES_S, OrderlyMember
from aerobee.errors import ConnectError
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.client import GetConsumerListByGroup, Heartbeat, LockBatchMq
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import QueryConsumerOffset
from tests.aerobee.client.aio.test_push_consumer import Seen, drained, until, well
from tests.aerobee.client.fronts import Front
from tests.aerobee.client.steps.stage import Stage, answer, moved, route
from tests.aerobee.client.steps.test_member import members

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST


async def send_in_order(front: Front, topic: str, keys: int, count: int) -> None:
    async with front.producer() as producer:
        for n in range(count):
            for key in range(keys):
                message = Message(topic, b"%d:%d" % (key, n), ordering_key=str(key))
                await producer.send(message)


def in_order(bodies: list[bytes], keys: int, count: int) -> bool:
    return all(
        [body for body in bodies if body.startswith(b"%d:" % key)]
        == [b"%d:%d" % (key, n) for n in range(count)]
        for key in range(keys)
    )


async def test_a_failure_holds_its_queue_and_no_other_and_breaks_no_order(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    await send_in_order(front, topic, 3, 10)

    def failing(message: ReceivedMessage) -> Exception | None:
        if message.body == b"1:4" and message.reconsume_times < 2:
            return RetryLater(suspend=0.05)
        return None

    seen = Seen(failing=failing)
    consumer = front.push(fresh("group"), start_from=FIRST, orderly=True)
    consumer.subscribe(topic, handler=front.handler(seen))
    async with consumer:
        await until(lambda: len(seen.calls) == 32)
    assert [tries for body, tries in seen.calls if body == b"1:4"] == [0, 1, 2]
    assert in_order(list(dict.fromkeys(body for body, _ in seen.calls)), 3, 10)


async def test_a_handler_that_wants_no_pause_gets_the_least(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send_in_order(front, topic, 1, 1)

    def failing(message: ReceivedMessage) -> Exception | None:
        return RetryLater(suspend=0) if message.reconsume_times < 3 else None

    seen = Seen(failing=failing)
    # The pause of its own would end this test.
    consumer = front.push(fresh("group"), start_from=FIRST, orderly=True, suspend=30.0)
    consumer.subscribe(topic, handler=front.handler(seen))
    async with consumer:
        await until(lambda: len(seen.calls) == 4)


async def test_what_is_given_up_in_order_is_a_dead_letter(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send_in_order(front, topic, 1, 4)
    errors = {b"0:1": ValueError("always"), b"0:2": Reject("never")}
    seen = Seen(failing=lambda message: errors.get(message.body))
    consumer = front.push(group, start_from=FIRST, orderly=True, max_reconsume=1, suspend=0.05)
    consumer.subscribe(topic, handler=front.handler(seen))
    async with consumer:
        await until(lambda: (b"0:3", 0) in seen.calls)
        assert await drained(front, f"%DLQ%{group}") == [b"0:1", b"0:2"]
    assert [body for body, _ in seen.calls] == [b"0:0", b"0:1", b"0:1", b"0:2", b"0:3"]


async def test_a_queue_changes_hands_in_order(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send_in_order(front, topic, 8, 2)
    seen = Seen(failing=well)
    at_work: set[tuple[str, int]] = set()

    async def handle(name: str, messages: list[ReceivedMessage]) -> None:
        queue = (topic, messages[0].queue.queue_id)
        assert queue not in at_work
        at_work.add(queue)
        await anyio.sleep(0.01)
        seen(messages)
        at_work.remove(queue)

    def member(name: str) -> Any:
        consumer = front.push(group, start_from=FIRST, orderly=True)
        handler = front.handler(seen) if front.blocking else partial(handle, name)
        consumer.subscribe(topic, handler=handler)
        return consumer

    def mine(consumer: Any) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment)

    async with member("first") as first:
        await until(lambda: mine(first) == 4)
        async with member("second") as second:
            await until(lambda: mine(first) == mine(second) == 2)
            async with front.producer() as producer:
                for n in range(2, 6):
                    for key in range(8):
                        body = b"%d:%d" % (key, n)
                        await producer.send(Message(topic, body, ordering_key=str(key)))
        # It was unlocked, so nobody has to wait a minute for the end of a lock.
        await until(lambda: mine(first) == 4)
        await until(lambda: len(seen.calls) >= 48)
    assert in_order([body for body, _ in seen.calls], 8, 6)


@pytest.mark.parametrize("refusal", [ConnectError("refused"), answer(1, remark="a slave")])
def test_a_switch_does_not_cost_the_locks(refusal: Command | ConnectError) -> None:
    """A slave serves pulls, so nothing else tells that the master is another one."""
    stage = Stage()
    stage.answers(GetRouteInfo, route("broker-a", queues=1))
    stage.answers(Heartbeat, answer())
    stage.answers(GetConsumerListByGroup, members("me@1"))
    stage.answers(QueryConsumerOffset, answer(offset=7))
    wire = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
    locked = answer(body=json.dumps({"lockOKMQSet": [wire]}).encode())
    stage.answers(LockBatchMq, locked)
    config = PushConfig(group="g", orderly=True)
    member = OrderlyMember(stage.instance, config, lambda held: None)
    member.add_subscription("T", "*")
    assert stage.perform(member.rebalance())
    (held,) = member.held.values()

    def last(ask: Ask) -> Command:
        member.closing.set()
        return locked

    stage.answers(GetRouteInfo, moved())
    stage.answers(LockBatchMq, refusal, refusal, last)
    stage.perform(member.watch_over())
    assert list(member.held.values()) == [held]
    assert not held.dropped
    assert held.locked_at > stage.now_s - LOCK_LIVES_S
    assert stage.asked(LockBatchMq)[-1].address == "new-host:10911"
