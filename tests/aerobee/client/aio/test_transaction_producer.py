"""Transactions against a real broker, on every front."""

import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from aerobee import (
    ConsumeFrom,
    Message,
    ReceivedMessage,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from aerobee.errors import ConfigurationError
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
COMMIT, ROLLBACK = TransactionState.COMMIT, TransactionState.ROLLBACK
UNKNOWN = TransactionState.UNKNOWN


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(transactionCheckInterval=1_000, transactionTimeOut=1_000)


def nobody_asks(message: ReceivedMessage) -> TransactionState:
    return UNKNOWN


async def delivered(front: Front, group: str, topic: str, wanted: set[bytes]) -> set[bytes]:
    """What consumers get, once all that is wanted is there."""
    got: set[bytes] = set()
    with anyio.fail_after(WITHIN_S):
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(topic)
            while not wanted <= got:
                got |= {message.body for message in await consumer.poll(timeout=0.2)}
    return got


async def test_consumers_get_what_commits_and_nothing_else(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    seen: list[Transaction] = []

    def execute(half: Transaction) -> TransactionState:
        seen.append(half)
        return ROLLBACK if half.message.body == b"no" else COMMIT

    async with front.transaction_producer(checker=nobody_asks, group=group) as producer:
        done = await producer.send_in_transaction(Message(topic, b"yes"), execute)
        not_done = await producer.send_in_transaction(Message(topic, b"no"), execute)
        async with producer.transaction(Message(topic, b"block")) as half:
            assert half.transaction_id
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"broken")):
                raise ZeroDivisionError
        async with producer.transaction(Message(topic, b"withdrawn")) as half:
            half.state = ROLLBACK
        await producer.send(Message(topic, b"plain"))
        got = await delivered(front, fresh("group"), topic, {b"yes", b"block", b"plain"})
    assert got == {b"yes", b"block", b"plain"}
    assert (done.state, not_done.state) == (COMMIT, ROLLBACK)
    assert seen[0].transaction_id == done.message_id == done.result.message_id


async def test_the_next_process_of_the_group_is_asked_what_the_first_left_open(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    asked: list[bytes] = []
    all_asked = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        if asked.count(b"no") >= 2 and b"fails" in asked:
            all_asked.set()
        assert (message.topic, message.tag) == (topic, "A")
        if message.body == b"fails":
            raise ZeroDivisionError
        return COMMIT if message.body == b"yes" else ROLLBACK

    async with front.transaction_producer(checker=nobody_asks, group=group) as first:
        for body in (b"yes", b"no", b"fails"):
            message = Message(topic, body, tag="A")
            result = await first.send_in_transaction(message, lambda _: UNKNOWN)
            assert result.state is UNKNOWN
        with pytest.raises(ZeroDivisionError):
            # An error in there decides nothing.
            await first.send_in_transaction(
                Message(topic, b"no", tag="A"), lambda _: TransactionState(1 // 0)
            )
    # It sends nothing, so only the cluster's list tells it whom to be known to.
    async with front.transaction_producer(checker=check, group=group):
        got = await delivered(front, fresh("group"), topic, {b"yes"})
        assert await anyio.to_thread.run_sync(all_asked.wait, WITHIN_S)
    assert got == {b"yes"}


async def test_a_delayed_half_is_refused(front: Front, fresh: Fresh) -> None:
    async with front.transaction_producer(checker=nobody_asks) as producer:
        with pytest.raises(ConfigurationError, match="no delay"):
            async with producer.transaction(Message(fresh("topic"), b"x", delay=1)):
                pass


@pytest.mark.parametrize("front_name", ["asyncio", "trio"], indirect=True)
async def test_coroutine_functions_execute_and_check(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    asked = anyio.Event()

    async def check(message: ReceivedMessage) -> TransactionState:
        await anyio.lowlevel.checkpoint()
        asked.set()
        return COMMIT

    async def execute(half: Transaction) -> TransactionState:
        await anyio.lowlevel.checkpoint()
        return COMMIT if half.message.body == b"now" else UNKNOWN

    async with TransactionProducer(front.namesrv, checker=check, group=fresh("group")) as producer:
        await producer.send_in_transaction(Message(topic, b"now"), execute)
        await producer.send_in_transaction(Message(topic, b"asked"), execute)
        got = await delivered(front, fresh("group"), topic, {b"now", b"asked"})
    assert got == {b"now", b"asked"}
    assert asked.is_set()
