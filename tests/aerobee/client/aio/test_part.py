"""Starts that fail, closes from anywhere, and clients that end by themselves, on every front."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest

import aerobee
import aerobee.blocking
from aerobee import ConsumeFrom, Message, ReceivedMessage
from aerobee.client.steps.effects import Ask, Signal, Steps, Wait
from aerobee.errors import (
    ClientClosedError,
    ClientStateError,
    ConfigurationError,
    NoNameServerError,
    SubscriptionError,
)
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker
from tests.kit.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
FIRST = ConsumeFrom.FIRST
on_loops = pytest.mark.parametrize("front_name", ["asyncio", "trio"], indirect=True)
on_asyncio = pytest.mark.parametrize("front_name", ["asyncio"], indirect=True)


async def send(front: Front, topic: str, *bodies: bytes) -> None:
    async with front.producer() as producer:
        await producer.send_batch([Message(topic, body) for body in bodies])


async def unfinished(front: Front, group: str, topic: str) -> int:
    """How many messages of the topic the group has not finished."""
    async with front.admin() as admin:
        lag = await admin.consumer_lag(group, topic)
    return sum(one.broker_offset - one.consumer_offset for one in lag.queues)


# ── Starts ──


async def test_a_start_that_failed_can_be_repeated(front: Front, broker: AnyBroker) -> None:
    """Nobody listens at first; then the same object finds its name server."""
    proxy = TcpProxy(broker.namesrv_address)
    later = Front("blocking" if front.blocking else "asyncio", proxy.address)
    parts = (later.producer(), later.push("g"), later.pop("g"), later.admin())
    for part, _ in product(parts, range(2)):
        with pytest.raises(NoNameServerError):
            async with part:
                pass
    with proxy:
        for part in parts:
            async with part:
                pass
    for part in parts:
        with pytest.raises(ClientClosedError):
            async with part:
                pass


async def test_a_condition_that_is_not_served_leaves_a_push_consumer_that_can_start(
    front: Front, fresh: Fresh
) -> None:
    topic = fresh("topic")
    await send(front, topic, b"x")
    consumer = front.push(fresh("group"))
    consumer.subscribe(topic, aerobee.Filter.sql("a > 1"), handler=front.handler(lambda _: None))
    for _ in range(2):
        with pytest.raises(SubscriptionError):
            async with consumer:
                pass


@on_loops
async def test_a_start_that_is_given_up_leaves_nothing_behind(broker: AnyBroker) -> None:
    """The name server accepts and says nothing; tasks and connections end with the start."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    accepted = anyio.Event()
    ended = anyio.Event()

    async def accept(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            accepted.set()
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while await stream.receive():
                    pass
        ended.set()

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, accept)
        producer = aerobee.Producer(f"127.0.0.1:{port}")

        async def start(scope: anyio.CancelScope) -> None:
            with scope:
                async with producer:
                    raise AssertionError("it cannot have started")

        with anyio.fail_after(WITHIN_S):
            for _ in range(2):
                scope = anyio.CancelScope()
                async with anyio.create_task_group() as starting:
                    starting.start_soon(start, scope)
                    await accepted.wait()
                    scope.cancel()
                assert scope.cancelled_caught
                await ended.wait()
                accepted, ended = anyio.Event(), anyio.Event()
        await producer.aclose()
        tasks.cancel_scope.cancel()


@on_asyncio
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_start_that_is_cancelled_as_it_succeeds_can_be_repeated(
    broker: AnyBroker, grouped: bool
) -> None:
    """As by `asyncio.wait_for`, whose time is over in that very moment."""
    client = aerobee.Client(broker.namesrv_address)
    async with anyio.create_task_group() as tasks:
        group = tasks if grouped else None
        starting = asyncio.create_task(client.start(group))
        with anyio.fail_after(WITHIN_S):
            while not runs(client):
                await anyio.lowlevel.checkpoint()
            starting.cancel()
            await asyncio.wait({starting})
            assert starting.cancelled()
            await client.start(group)
            await client.aclose()


@on_asyncio
async def test_a_start_that_is_cancelled_again_and_again_can_be_repeated(
    broker: AnyBroker,
) -> None:
    """What it has begun ends before it returns, so that the next start meets nothing of it."""
    client = aerobee.Client(broker.namesrv_address)
    starting = asyncio.create_task(client.start())
    while not starting.done():
        await anyio.lowlevel.checkpoint()
        starting.cancel()
    assert starting.cancelled()
    await client.start()
    await client.aclose()


def runs(client: aerobee.Client) -> bool:
    with suppress(ClientStateError):
        return client.working_group() is not None
    return False


# ── Closes ──


@on_loops
async def test_a_close_that_takes_too_long_leaves_the_groups_all_the_same(
    front: Front, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with several brokers that are silent. The client goes on, and so would its heartbeats."""

    async def hang(steps: Steps[Any]) -> None:
        steps.close()
        await anyio.sleep_forever()

    monkeypatch.setattr("aerobee.client.aio.part.CLOSE_WITHIN_S", 0.01)
    group = fresh("group")
    async with front.client() as client:
        for made in (
            front.producer(client=client, group=group),
            front.consumer(group, client=client),
        ):
            await made.start()
            with monkeypatch.context() as patch, anyio.fail_after(WITHIN_S):
                patch.setattr(client, "perform", hang)
                await made.aclose()
            assert not client.instance.producers | client.instance.consumers.keys()


def test_a_blocking_close_that_is_interrupted_leaves_the_groups_all_the_same(
    broker: AnyBroker, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C in a notebook, whose client goes on."""

    def interrupted(steps: Steps[Any]) -> None:
        steps.close()
        raise KeyboardInterrupt

    group = fresh("group")
    with aerobee.blocking.Client(broker.namesrv_address) as client:
        for made in (
            aerobee.blocking.Producer(client=client, group=group),
            aerobee.blocking.PullConsumer(group, client=client),
        ):
            made.start()
            with monkeypatch.context() as patch:
                patch.setattr(client, "perform", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    made.close()
            assert not client.instance.producers | client.instance.consumers.keys()


def test_a_blocking_wait_for_handlers_that_is_interrupted_leaves_the_group_all_the_same(
    broker: AnyBroker, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> float:
        raise KeyboardInterrupt

    with aerobee.blocking.Client(broker.namesrv_address) as client:
        consumer = aerobee.blocking.PushConsumer(fresh("group"), client=client)
        consumer.start()
        with monkeypatch.context() as patch:
            patch.setattr("aerobee.client.blocking.part.monotonic", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.close()
        assert not client.instance.consumers


@on_asyncio
async def test_a_close_that_is_cancelled_leaves_the_group_all_the_same(
    front: Front, fresh: Fresh
) -> None:
    """As by `asyncio.wait_for`, at a client that goes on: its heartbeats would name the group."""
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"once")
    async with front.client() as client, front.admin(client=client) as admin:
        consumer = front.consumer(group, client=client, start_from=FIRST)
        await consumer.start()
        await consumer.subscribe(topic)
        [message] = await consumer.poll(timeout=WITHIN_S)
        consumer.done(message)
        closing = asyncio.create_task(consumer.aclose())
        await anyio.lowlevel.checkpoint()
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        with anyio.fail_after(WITHIN_S):
            while group in client.instance.consumers:
                await anyio.lowlevel.checkpoint()
            while await unfinished(front, group, topic):
                await anyio.lowlevel.checkpoint()
            while (await admin.consumers(group)).members:
                await anyio.lowlevel.checkpoint()
        async with front.consumer(group, client=client):
            pass


@pytest.mark.parametrize("runs", [True, False])
async def test_a_handler_may_close_its_consumer_and_its_message_is_finished(
    front: Front, fresh: Fresh, runs: bool
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"stop")
    consumer = front.push(group, start_from=FIRST)
    calls: list[bytes] = []
    returned = anyio.Event()
    token = anyio.lowlevel.current_token()

    def close(messages: Sequence[ReceivedMessage]) -> None:
        calls.extend(one.body for one in messages)
        consumer.wrapped.close()
        anyio.from_thread.run_sync(returned.set, token=token)

    async def aclose(messages: Sequence[ReceivedMessage]) -> None:
        calls.extend(one.body for one in messages)
        await consumer.aclose()
        await anyio.lowlevel.checkpoint()
        returned.set()

    consumer.subscribe(topic, handler=close if front.blocking else aclose)
    with anyio.fail_after(WITHIN_S):
        if runs:
            await consumer.run()
        else:
            async with consumer:
                await returned.wait()
        assert returned.is_set()
    assert calls == [b"stop"]
    assert await unfinished(front, group, topic) == 0


@on_loops
async def test_a_plain_handler_may_close_its_consumer_from_its_thread(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"stop")
    consumer = front.push(group, start_from=FIRST)
    consumer.subscribe(topic, handler=lambda _: anyio.from_thread.run(consumer.aclose))
    with anyio.fail_after(WITHIN_S):
        await consumer.run()
    assert await unfinished(front, group, topic) == 0


@on_loops
async def test_a_handler_may_close_the_client_that_it_shares(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    await send(front, topic, b"stop")
    client = front.client()
    with anyio.fail_after(WITHIN_S):
        async with client:
            consumer = front.push(fresh("group"), client=client, start_from=FIRST)

            async def handler(messages: Sequence[ReceivedMessage]) -> None:
                await client.aclose()

            consumer.subscribe(topic, handler=handler)
            await consumer.run()


@on_loops
async def test_a_checker_may_close_its_producer(front: Front, broker: AnyBroker) -> None:
    """What calls the checker is a task of the client, as a worker is."""
    asked = anyio.Event()
    async with front.client() as client:
        producer = front.transaction_producer(checker=lambda _: None, client=client)
        await producer.start()

        async def close() -> None:
            await producer.aclose()
            asked.set()

        client.start_worker(close)
        with anyio.fail_after(WITHIN_S):
            await asked.wait()
            # A second close ends with the first.
            await producer.aclose()


@pytest.mark.parametrize("handle_signals", [True, False])
async def test_a_run_ends_when_it_is_closed_from_outside(
    front: Front, fresh: Fresh, handle_signals: bool
) -> None:
    await send(front, topic := fresh("topic"), b"x")
    consumer = front.push(fresh("group"), start_from=FIRST)
    taken = threading.Event()
    consumer.subscribe(topic, handler=front.handler(lambda _: taken.set()))
    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: consumer.run(handle_signals=handle_signals))
            assert await anyio.to_thread.run_sync(taken.wait, WITHIN_S)
            await consumer.aclose()


async def test_two_closes_at_once_end_together(front: Front, fresh: Fresh) -> None:
    """The second waits for the handler that the first waits for."""
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"slow")
    consumer = front.push(group, start_from=FIRST)
    running, go_on = threading.Event(), threading.Event()

    def handler(_: Sequence[ReceivedMessage]) -> None:
        running.set()
        assert go_on.wait(WITHIN_S)

    consumer.subscribe(topic, handler=handler)
    async with consumer:
        await anyio.to_thread.run_sync(running.wait)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consumer.aclose)
            tasks.start_soon(consumer.aclose)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert await unfinished(front, group, topic) == 0


PROGRAM = """
import sys
from aerobee.blocking import PushConsumer
consumer = PushConsumer(sys.argv[1], sys.argv[2])
consumer.subscribe(sys.argv[3], handler=lambda messages: None)
begin = consumer._begin
consumer._begin = lambda: (begin(), print("begun", flush=True))
consumer.run()
print("drained", flush=True)
"""


@pytest.mark.parametrize("front_name", ["blocking"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_blocking_run_ends_by_a_signal_in_good_order(
    front: Front, fresh: Fresh, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", PROGRAM, fresh("group"), front.namesrv, fresh("topic")]

    def run() -> str:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            process.send_signal(number)
            said += process.stdout.read()
        assert process.returncode == 0
        return said

    assert await anyio.to_thread.run_sync(run) == "begun\ndrained\n"


# ── Ends that nobody asked for ──


@pytest.mark.since("5.0.0")
@on_asyncio
async def test_whoever_waits_for_a_client_that_was_cancelled_is_told(
    front: Front, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    await send(front, topic := fresh("topic"), b"x")
    taken = asyncio.Event()
    push = front.push(fresh("group"), start_from=FIRST)
    push.subscribe(topic, handler=front.handler(lambda _: taken.set()))
    pull = front.consumer(fresh("group"))
    pop = front.pop(fresh("group"))
    producer = front.producer()
    for part in (pull, pop, producer):
        await part.start()
    await pull.subscribe(fresh("topic"))

    async def loop() -> None:
        async for _ in pull:
            pass

    async def receive() -> None:
        while True:
            await pop.receive(topic)

    await pop.receive(topic, wait=0)
    waiting = [asyncio.create_task(one) for one in (push.run(), loop(), receive())]
    with anyio.fail_after(WITHIN_S):
        await taken.wait()
        hosts = [task for task in asyncio.all_tasks() if task.get_name().startswith("aerobee ")]
        assert len(hosts) == 4
        for host in hosts:
            host.cancel()
        done, _ = await asyncio.wait(waiting)
    for task in done:
        assert isinstance(task.exception(), ClientClosedError)
    with pytest.raises(ClientClosedError, match="nobody closed it"):
        await producer.send(Message(topic, b"x"))
    for part in (push, pull, pop, producer):
        await part.aclose()
    ended = [one for one in caplog.messages if one.endswith("has ended although nobody closed it")]
    assert len(ended) == 4


@pytest.mark.parametrize("front_name", ["blocking"], indirect=True)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_whoever_waits_for_a_client_that_a_bug_ended_is_told(
    front: Front, fresh: Fresh
) -> None:
    def bug() -> Any:
        raise ZeroDivisionError
        yield

    async with (
        front.client() as client,
        front.consumer(fresh("group"), client=client) as consumer,
    ):
        await consumer.subscribe(fresh("topic"))

        async def poll() -> None:
            with pytest.raises(ClientClosedError, match="closed"):
                await consumer.poll(timeout=3600)

        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(poll)
                client.wrapped.spawn(bug())


@on_asyncio
async def test_use_from_another_event_loop_is_refused_at_once(front: Front, fresh: Fresh) -> None:
    topic = fresh("topic")
    async with front.producer() as producer:
        await producer.send(Message(topic, b"x"))

        def elsewhere() -> None:
            for call in (partial(producer.send, Message(topic, b"y")), producer.aclose):
                with pytest.raises(ClientStateError, match="another event loop"):
                    asyncio.run(asyncio.wait_for(call(), WITHIN_S))

        await anyio.to_thread.run_sync(elsewhere)
        assert (await producer.send(Message(topic, b"z"))).ok


def test_a_client_that_one_run_of_asyncio_has_left_open_is_closed_in_the_next(
    broker: AnyBroker, fresh: Fresh
) -> None:
    parts = (
        aerobee.Client(broker.namesrv_address),
        aerobee.Producer(broker.namesrv_address),
        aerobee.PullConsumer(fresh("group"), broker.namesrv_address),
        aerobee.PopConsumer(fresh("group"), broker.namesrv_address),
        aerobee.PushConsumer(fresh("group"), broker.namesrv_address),
    )
    for part in parts:
        asyncio.run(part.start())
        asyncio.run(asyncio.wait_for(part.aclose(), WITHIN_S))


@on_loops
async def test_a_close_in_a_forked_process_closes_nothing(
    front: Front, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections are the parent's, and the tasks of the client do not run there."""
    async with front.client() as client, front.producer(client=client) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            await producer.aclose()
            await client.aclose()
        assert (await producer.send(Message(fresh("topic"), b"x"))).ok


# ── What users hand over ──


async def coroutine(*_: object) -> None:
    raise AssertionError("nobody awaits it")


def generator(*_: object) -> Any:
    yield


async def async_generator(*_: object) -> Any:
    yield


class Later:
    async def __call__(self, *_: object) -> None:
        raise AssertionError("nobody awaits it")


async def test_what_would_never_run_is_refused_where_it_is_given(
    front: Front, fresh: Fresh
) -> None:
    refused = [generator, async_generator, *([coroutine, Later()] if front.blocking else [])]
    for function in (*refused, 5):
        with pytest.raises(ConfigurationError):
            front.push(fresh("group")).subscribe(fresh("topic"), handler=function)
        with pytest.raises(ConfigurationError):
            front.transaction_producer(checker=function)
        async with front.transaction_producer(checker=lambda _: None) as producer:
            with pytest.raises(ConfigurationError):
                await producer.send_in_transaction(Message(fresh("topic"), b"x"), function)
    with pytest.raises(ConfigurationError, match="a text or a Filter"):
        # It looks like the handler, which is the third.
        front.push(fresh("group")).subscribe(fresh("topic"), print)
    for function in (generator, async_generator, coroutine, Later()):
        for option in ("on_assigned", "on_revoked", "strategy"):
            with pytest.raises(ConfigurationError):
                front.push(fresh("group"), **{option: function})
        with pytest.raises(ConfigurationError):
            front.producer(credentials=function)


@pytest.mark.parametrize("made", [coroutine, generator, async_generator])
async def test_a_handler_whose_result_would_have_to_be_awaited_has_failed(
    front: Front, fresh: Fresh, made: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A plain function hides it; async consumers await a coroutine, which fails here by itself."""
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, b"x")
    called = threading.Event()

    def handler(_: Sequence[ReceivedMessage]) -> object:
        called.set()
        return made()

    consumer = front.push(group, start_from=FIRST, max_reconsume=0)
    consumer.subscribe(topic, handler=handler)
    async with consumer:
        await anyio.to_thread.run_sync(called.wait, WITHIN_S)
    assert "the handler failed" in caplog.text


async def test_a_selector_must_select_a_queue(front: Front, fresh: Fresh) -> None:
    async with front.producer() as producer:
        for wrong in (coroutine, lambda *_: 1, lambda *_: None):
            with pytest.raises(TypeError, match="selector"):
                await producer.send(Message(fresh("topic"), b"x"), queue=wrong)


@pytest.mark.parametrize("front_name", ["blocking"], indirect=True)
async def test_a_handler_that_would_end_its_thread_has_failed_and_the_thread_goes_on(
    front: Front, fresh: Fresh
) -> None:
    topic, group = fresh("topic"), fresh("group")
    await send(front, topic, *[b"%d" % n for n in range(6)])
    seen: list[bytes] = []
    done = threading.Event()

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].body)
        if len(seen) == 6:
            done.set()
        if len(seen) == 2:
            sys.exit(3)

    consumer = front.push(group, start_from=FIRST, concurrency=1)
    consumer.subscribe(topic, handler=handler)
    async with consumer:
        assert await anyio.to_thread.run_sync(done.wait, WITHIN_S)
    assert await unfinished(front, group, topic) == 0


# ── What a cancelled call was about to get ──


async def topic_of_one_queue(front: Front, fresh: Fresh) -> str:
    """A new topic, whose messages all come in their order."""
    topic = fresh("topic")
    async with front.admin() as admin:
        await admin.create_topic(topic, queues=1)
    return topic


@pytest.mark.since("5.0.0")
@on_loops
async def test_messages_for_a_cancelled_receive_are_given_back_at_once(
    front: Front, fresh: Fresh
) -> None:
    """The request stays at the broker, which hands it the message after the cancellation."""
    topic, group = await topic_of_one_queue(front, fresh), fresh("group")
    async with front.pop(group, start_from=FIRST) as consumer, front.pop(group) as other:
        assert await consumer.receive(topic, wait=0) == []

        async def receive(scope: anyio.CancelScope) -> None:
            with scope:
                await consumer.receive(topic, wait=30)

        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive, scope)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
        assert scope.cancelled_caught
        await send(front, topic, b"x")
        with anyio.fail_after(WITHIN_S):
            while not (messages := await other.receive(topic, wait=5)):
                pass
        assert [one.body for one in messages] == [b"x"]
        await other.ack(*messages)


@pytest.mark.since("5.0.0")
@on_loops
async def test_messages_for_a_cancelled_receive_go_to_the_next(front: Front, fresh: Fresh) -> None:
    """A broker answers the oldest request first; given back, the message would be tried again."""
    topic, group = await topic_of_one_queue(front, fresh), fresh("group")
    async with front.producer() as producer, front.pop(group, start_from=FIRST) as consumer:
        assert await consumer.receive(topic, wait=0) == []
        for body in (b"1", b"2"):
            for _ in range(5):
                with anyio.move_on_after(0.05) as scope:
                    await consumer.receive(topic, wait=30)
                assert scope.cancelled_caught
            assert await consumer.receive(topic, wait=0.05) == []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(producer.send, Message(topic, body))
                (message,) = await consumer.receive(topic, wait=WITHIN_S)
            assert (message.body, message.reconsume_times) == (body, 0)
            await consumer.ack(message)


@pytest.mark.since("5.0.0")
@on_loops
async def test_of_several_cancelled_receives_the_oldest_goes_on(front: Front, fresh: Fresh) -> None:
    """Its request is the one that the broker answers first."""
    topic, group = await topic_of_one_queue(front, fresh), fresh("group")
    async with front.producer() as producer, front.pop(group, start_from=FIRST) as consumer:
        assert await consumer.receive(topic, wait=0) == []
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(partial(consumer.receive, topic, wait=30))
                await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(producer.send, Message(topic, b"1"))
            (message,) = await consumer.receive(topic, wait=WITHIN_S)
        assert message.reconsume_times == 0
        await consumer.ack(message)


@on_asyncio
async def test_steps_that_meet_the_close_of_their_client_end_with_it(front: Front) -> None:
    """They go on once more between the close, in a task of the client, and their cancellation."""
    client = front.client()
    woken = Signal()
    met = []

    def steps() -> Steps[None]:
        yield Wait(woken, WITHIN_S)
        try:
            yield Ask(address="127.0.0.1:1", header=GetRouteInfo(topic="t"), timeout_s=1.0)
        except ClientClosedError:
            met.append("closed")
            raise

    async def closes() -> None:
        woken.set()
        await client.aclose()

    with anyio.fail_after(WITHIN_S):
        async with client:
            client.spawn(steps())
            await anyio.lowlevel.checkpoint()
            client.start_worker(closes)
            while not met:
                await anyio.lowlevel.checkpoint()
