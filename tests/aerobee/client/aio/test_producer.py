"""Producers against a real broker, on every front."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from aerobee import (
    ConsumeFrom,
    Message,
    MessageQueue,
    ReceivedMessage,
    RetryPolicy,
    SendStatus,
)
from aerobee.client.aio import part
from aerobee.client.steps import outbox, sending
from aerobee.errors import (
    BrokerError,
    ClientClosedError,
    ClientStateError,
    ConfigurationError,
    ForkedClientError,
    MessageIllegalError,
    NoNameServerError,
    ReplyTimeoutError,
    UndeliveredError,
)
from tests.aerobee.client.fronts import Front, outcome_of
from tests.conftest import AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import free_port

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30


@pytest.fixture(scope="module")
def broker(shared_broker: StartBroker) -> AnyBroker:
    return shared_broker(recallMessageEnable=True, timerWheelEnable=True)


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


async def test_a_batch_of_many_tiny_messages_is_stored_once(front: Front, fresh: Fresh) -> None:
    """The answer to a batch names each message: of too many its header would be refused."""
    topic = fresh("topic")
    async with front.producer() as producer, front.admin() as admin:
        results = await producer.send_batch([Message(topic, b"x")] * 8_100)
        assert all(result.ok for result in results)
        places = {(result.queue, result.queue_offset) for result in results}
        assert len(places) == 8_100
        stored = 0
        with anyio.fail_after(WITHIN_S):
            # Java's queues follow its log.
            while stored < 8_100:
                stored = sum(q.end for q in (await admin.describe_topic(topic)).queues)
    assert stored == 8_100


async def test_what_is_sent_soon_is_stored_in_the_order_of_each_key(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    count, keys = 1_000, 3
    async with front.producer(outbox_messages=200) as producer:
        pending = [
            await producer.send_soon(Message(topic, b"%d" % n, ordering_key=f"key-{n % keys}"))
            for n in range(count)
        ]
        last = await outcome_of(pending[-1])
        await producer.flush()
        assert all(one.done for one in pending)
        results = [await outcome_of(one) for one in pending]
    assert pending[7].message.body == b"7"
    assert results[-1] == last
    assert len({result.message_id for result in results}) == count
    for key in range(keys):
        mine = results[key::keys]
        assert len({result.queue for result in mine}) == 1
        assert [r.queue_offset for r in mine] == sorted(r.queue_offset for r in mine)


async def test_what_is_sent_soon_is_there_after_the_close(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        pending = [await producer.send_soon(Message(topic, b"%d" % n)) for n in range(300)]
    assert all(one.done for one in pending)
    async with front.admin() as admin:
        assert (await admin.describe_topic(topic)).messages == 300


async def test_a_close_raises_what_is_not_stored_and_nobody_asked_for(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    producer = front.producer(max_message_size=8 << 20, compression=None)
    await producer.__aenter__()
    refused = await producer.send_soon(Message(topic, bytes(5 << 20)))
    stored = await producer.send_soon(Message(topic, b"x"))
    with pytest.raises(UndeliveredError, match="1 message not sent") as raised:
        await producer.__aexit__(None, None, None)
    assert [message for message, _ in raised.value.failed] == [refused.message]
    assert (await outcome_of(stored)).ok
    with pytest.raises(MessageIllegalError):
        await outcome_of(refused)
    with pytest.raises(ClientClosedError):
        await producer.send_soon(Message(topic, b"late"))


@pytest.mark.parametrize("own", [ValueError, KeyboardInterrupt], ids=lambda own: own.__name__)
async def test_the_exception_of_a_block_comes_out_with_a_note_of_what_is_not_sent(
    own: type[BaseException], front: Front, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    producer = front.producer(max_message_size=8 << 20, compression=None)
    raised = own("the block's own")
    with pytest.raises(own, match="the block's own") as caught:  # noqa: PT012  (a block of it)
        async with producer:
            await producer.send_soon(Message(fresh("topic"), bytes(5 << 20)))
            raise raised
    assert caught.value is raised
    [note] = raised.__notes__
    assert note.startswith("and closing failed: UndeliveredError: 1 message not sent")
    logged = [one.message for one in caplog.records if "closing failed" in one.message]
    assert len(logged) == (own is KeyboardInterrupt)


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


async def collected(
    front: Front, group: str, topic: str, wanted: set[bytes]
) -> list[ReceivedMessage]:
    """What arrives until the wanted bodies are there."""
    got: list[ReceivedMessage] = []
    with anyio.fail_after(WITHIN_S):
        async with front.consumer(group, start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(topic)
            while not wanted <= {message.body for message in got}:
                got += await consumer.poll(timeout=0.2)
    return got


async def test_messages_arrive_when_they_say_and_not_if_they_are_taken_back(
    front: Front, fresh: Fresh, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--against") == "java-4.9.7":
        pytest.skip("4.9 has no timers")
    topic = fresh("topic")
    at = datetime.now(UTC) + timedelta(seconds=2)
    async with front.producer() as producer:
        plain = await producer.send(Message(topic, b"now"))
        gone = await producer.send(Message(topic, b"gone", deliver_at=at))
        timed = await producer.send(Message(topic, b"at", deliver_at=at))
        await producer.send(Message(topic, b"later", delay=1.5))
        assert await producer.recall(topic, gone.recall_handle) == gone.message_id
        got = await collected(front, fresh("group"), topic, {b"now", b"at", b"later"})
        with pytest.raises(BrokerError, match="RECALL_MESSAGE"):
            await producer.recall(topic, timed.recall_handle)
    assert plain.recall_handle is None
    assert sorted(message.body for message in got) == [b"at", b"later", b"now"]
    (there,) = (message for message in got if message.body == b"at")
    # A timer has the precision of the wheel: a second.
    assert there.stored_at >= at - timedelta(seconds=1)
    assert there.message_id == timed.message_id


async def test_a_request_gets_its_reply_and_none_ends_in_time(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with (
        front.producer(group=fresh("asks")) as asks,
        front.producer(group=fresh("replies")) as replies,
        front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer,
    ):
        await asks.send(Message(topic, b"makes the topic"))
        await consumer.subscribe(topic)

        async def answer() -> None:
            done = 0
            while done < 2:
                for message in await consumer.poll(timeout=0.2):
                    if message.body == b"?":
                        done += 1
                        body = message.body * (3_000 * done)
                        await replies.reply(message, body, properties={"n": str(done)})

        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer)
                first = await asks.request(Message(topic, b"?"), timeout=float(WITHIN_S))
                second = await asks.request(Message(topic, b"?"), timeout=float(WITHIN_S))
        with pytest.raises(ReplyTimeoutError, match=topic):
            await asks.request(Message(topic, b"anybody"), timeout=0.3)
        with pytest.raises(ConfigurationError, match="is no request"):
            await replies.reply(first, b"x")
    assert (first.body, second.body) == (b"?" * 3_000, b"?" * 6_000), "the second was compressed"
    assert second.properties["n"] == "2"


async def test_a_traced_send_is_told_in_the_trace_topic(front: Front, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with front.producer(trace=True, trace_topic=f"{topic}-trace", group=group) as producer:
        result = await producer.send(Message(topic, b"x", tag="A", keys=["k"]))
    traces: list[ReceivedMessage] = []
    with anyio.fail_after(WITHIN_S):
        async with front.consumer(fresh("group"), start_from=ConsumeFrom.FIRST) as consumer:
            await consumer.subscribe(f"{topic}-trace")
            while not traces:
                traces += await consumer.poll(timeout=0.2)
    (trace,) = traces
    assert trace.keys == (result.message_id, "k")
    kind, _, _, *rest = trace.body.decode().rstrip("\x02").split("\x01")
    assert [kind, *rest[:5]] == ["Pub", group, topic, result.message_id, "A", "k"]
    assert rest[-2:] == [result.offset_message_id, "true"]


@pytest.fixture(scope="module")
def second(
    start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """The second of two brokers of a cluster of their own."""
    first = start_broker()
    data = tmp_path_factory.mktemp("second") / "data"
    settings = {"brokerName": "broker-second"}
    with BrokerProcess(data=data, settings=settings, namesrv=first.namesrv_address) as second:
        yield second


@pytest.mark.ours
async def test_sends_leave_a_broker_alone_that_stands_still(
    front_name: str, second: BrokerProcess
) -> None:
    front = Front(front_name, str(second.namesrv))
    quick = RetryPolicy(per_try=0.3, backoff=0.0)
    async with front.admin() as admin:
        await admin.create_topic("Spread", queues=2)
    async with front.producer(latency_fault_tolerance=True, retry=quick) as producer:
        first = [await producer.send(Message("Spread", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in first} >= {"broker-second"}
        second.child.signal(signal.SIGSTOP)
        try:
            sent = [await producer.send(Message("Spread", b"x")) for _ in range(8)]
        finally:
            second.child.signal(signal.SIGCONT)
    assert {result.queue.broker_name for result in sent}.isdisjoint({"broker-second"})
    # One send had to find out.
    assert sorted(result.attempts for result in sent) == [1] * 7 + [2]


@pytest.mark.ours
async def test_an_end_that_runs_out_of_time_still_says_what_is_not_stored(
    front_name: str, second: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "CLOSE_WITHIN_S", 0.5)
    monkeypatch.setattr(outbox, "SETTLE_WITHIN_S", 0.2)
    monkeypatch.setattr(sending, "SETTLE_WITHIN_S", 0.5)
    front = Front(front_name, str(second.namesrv))
    queue = MessageQueue("Kept", "broker-second", 0)
    async with front.admin() as admin:
        await admin.create_topic("Kept")
    producer = front.producer()
    await producer.__aenter__()
    await producer.send(Message("Kept", b"x"), queue=queue)
    second.child.signal(signal.SIGSTOP)
    try:
        pending = await producer.send_soon(Message("Kept", b"y"), queue=queue)
        with pytest.raises(UndeliveredError, match="closed before the broker answered") as raised:
            await producer.__aexit__(None, None, None)
    finally:
        second.child.signal(signal.SIGCONT)
    assert [message for message, _ in raised.value.failed] == [pending.message]


async def test_a_result_under_way_is_not_waited_for_in_a_child_process(
    front: Front, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Callable[[], None]] = []
    holding = False
    client = front.module.Client
    spawn = client.spawn

    def hold(self: Any, steps: Any) -> None:
        if holding:
            jobs.append(partial(spawn, self, steps))
        else:
            spawn(self, steps)

    monkeypatch.setattr(client, "spawn", hold)
    async with front.producer() as producer:
        holding = True
        pending = await producer.send_soon(Message(fresh("topic"), b"x"))
        holding = False
        with monkeypatch.context() as patch, anyio.fail_after(WITHIN_S):
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(ForkedClientError):
                await outcome_of(pending)
        jobs.pop()()
        assert (await outcome_of(pending)).ok
