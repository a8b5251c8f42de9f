"""The life of clients: where their tasks live, what ends them, what they survive."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

import aerobee
import aerobee.blocking
from aerobee import ConsumeFrom, Message, SendResult
from aerobee.client.route import TopicRoute
from aerobee.client.steps.asking import ask_address
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    ClientClosedError,
    ClientStateError,
    ForkedClientError,
    RequestTimeoutError,
)
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from tests.aerobee.client.fronts import Front
from tests.conftest import AnyBroker, StartBroker
from tests.kit.ports import HOST
from tests.remoting.client.peer import Peer

if TYPE_CHECKING:
    from outcome import Outcome

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
WITHIN_S = 30
on_loops = pytest.mark.parametrize("front_name", ["asyncio", "trio"], indirect=True)
"""Threads have neither cancellation nor task groups."""


async def test_client_ids_say_who_and_never_repeat(front: Front) -> None:
    async with front.client() as one, front.client(instance_name="mine") as two:
        assert one.client_id.startswith(f"127.0.0.1@{os.getpid()}#")
        assert two.client_id == "127.0.0.1@mine"


async def test_starting_twice_is_refused(front: Front) -> None:
    async with front.client() as client:
        with pytest.raises(ClientStateError, match="once"):
            await client.start()


async def test_closing_twice_is_nothing_new(front: Front) -> None:
    client = front.client()
    async with client:
        await client.aclose()
    await client.aclose()
    with pytest.raises(ClientClosedError):
        async with front.producer(client=client) as producer:
            await producer.queues("T")


async def to_thread(call: Callable[[], object]) -> None:
    await anyio.to_thread.run_sync(call)


def test_trio_may_be_a_guest_of_asyncio(broker: AnyBroker, fresh: Fresh) -> None:
    """As in a program whose main loop is asyncio's."""
    topic = fresh("topic")

    async def guest() -> SendResult:
        async with aerobee.Producer(broker.namesrv_address) as producer:
            return await producer.send(Message(topic, b"x"))

    async def host() -> SendResult:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Outcome[SendResult]] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
        )
        return (await ended).unwrap()

    assert asyncio.run(host()).ok


@on_loops
async def test_a_cancelled_call_leaves_the_client_as_it_was(
    broker: AnyBroker, fresh: Fresh
) -> None:
    topic = fresh("topic")
    async with aerobee.Producer(broker.namesrv_address) as producer:
        await producer.send(Message(topic, b"x"))
        for n in range(50):
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(producer.send, Message(topic, b"maybe"))
                    for _ in range(n % 10):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()
        results = [await producer.send(Message(topic, b"%d" % n)) for n in range(20)]
    assert len({result.message_id for result in results}) == 20


@on_loops
async def test_a_cancelled_block_still_takes_leave(broker: AnyBroker, fresh: Fresh) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with aerobee.Producer(broker.namesrv_address) as producer:
        queue = (await producer.queues(topic))[0]
        await producer.send(Message(topic, b"x"), queue=queue)
    options: dict[str, Any] = {"start_from": ConsumeFrom.FIRST}
    with anyio.CancelScope() as scope:
        async with aerobee.PullConsumer(group, broker.namesrv_address, **options) as consumer:
            await consumer.subscribe(topic)
            async for message in consumer:
                consumer.done(message)
                scope.cancel()
    async with aerobee.PullConsumer(group, broker.namesrv_address) as again:
        assert await again.committed(queue) == 1


@on_loops
async def test_tasks_may_live_in_a_group_of_the_caller(broker: AnyBroker, fresh: Fresh) -> None:
    async with anyio.create_task_group() as tasks:
        producer = aerobee.Producer(broker.namesrv_address)
        await producer.start(tasks)
        assert (await producer.send(Message(fresh("topic"), b"x"))).ok
        await producer.aclose()


@on_loops
async def test_start_alone_works_on_asyncio_and_explains_itself_on_trio(
    broker: AnyBroker, front_name: str, fresh: Fresh
) -> None:
    producer = aerobee.Producer(broker.namesrv_address)
    if front_name == "trio":
        with pytest.raises(ClientStateError, match="async with"):
            await producer.start()
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(producer.start)
    assert (await producer.send(Message(fresh("topic"), b"x"))).ok
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(producer.aclose)


async def test_a_client_of_the_parent_process_is_refused(
    front: Front, fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front.producer() as producer:
        await producer.send(Message(fresh("topic"), b"x"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(ForkedClientError):
                await producer.send(Message(fresh("topic"), b"x"))


async def test_a_silent_name_server_does_not_hold_up_a_start(front_name: str) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener:
        silent = Front(front_name, f"127.0.0.1:{port}")
        with anyio.fail_after(10), pytest.raises(AerobeeError, match="no name server answers"):
            async with silent.client(connect_timeout=0.3):
                pass


async def test_a_producer_survives_a_restart_of_its_broker(
    front_name: str, start_broker: StartBroker, fresh: Fresh
) -> None:
    broker = start_broker()
    front = Front(front_name, broker.namesrv_address)
    topic, group = fresh("topic"), fresh("group")
    patient = aerobee.RetryPolicy(attempts=100, backoff=0.1)
    options: dict[str, Any] = {"retry": patient, "timeout": float(WITHIN_S)}
    consumer = front.consumer(group, start_from=ConsumeFrom.FIRST)
    async with front.producer(**options) as producer, consumer:
        await consumer.subscribe(topic)
        await producer.send(Message(topic, b"before"))
        async with anyio.create_task_group() as restarting:
            restarting.start_soon(to_thread, broker.restart)
            for number in range(200):
                await producer.send_soon(Message(topic, b"%03d" % number, ordering_key="k"))
                await anyio.sleep(0.005)
        await producer.flush()
        result = await producer.send(Message(topic, b"after"))
        # A dictionary keeps the order of the first copies.
        bodies: dict[bytes, None] = {}
        with anyio.fail_after(WITHIN_S):
            while len(bodies) < 202:
                bodies |= {message.body: None for message in await consumer.poll(timeout=0.1)}
    assert result.ok
    ordered = [body for body in bodies if body.isdigit()]
    assert ordered == [b"%03d" % number for number in range(200)]
    await to_thread(broker.stop)


async def test_connections_to_where_a_broker_was_are_closed(
    front: Front, broker: AnyBroker
) -> None:
    ask = GetMaxOffset(topic="T", queue_id=0)
    with socket.create_server((HOST, 0)) as server:
        there = f"{HOST}:{server.getsockname()[1]}"
        async with front.client(request_timeout=0.3) as client:
            instance = getattr(client, "wrapped", client).instance
            instance.remember("T", TopicRoute((), (), {"b": {0: there}}))
            with pytest.raises(RequestTimeoutError):
                await client.perform(ask_address(instance, there, ask))
            peer, _ = server.accept()
            instance.remember("T", TopicRoute((), (), {"b": {0: broker.address}}))
            with suppress(RequestTimeoutError):
                await client.perform(ask_address(instance, broker.address, ask))
            peer.settimeout(WITHIN_S)
            with peer:
                while peer.recv(4_096):
                    pass


async def test_a_broker_that_goes_away_answers_what_is_in_flight(front: Front) -> None:
    """The connection stays for them: a send that failed there would be stored once more."""
    ask, answers = GetMaxOffset(topic="T", queue_id=0), []
    with Peer() as peer:
        async with front.client() as client, anyio.create_task_group() as group:
            instance = getattr(client, "wrapped", client).instance
            instance.remember("T", TopicRoute((), (), {"b": {0: peer.address}}))

            async def call() -> None:
                with suppress(BrokerError):
                    _, answer = await client.perform(
                        ask_address(instance, peer.address, ask, b"", 1)
                    )
                    answers.append(answer.body)

            group.start_soon(call)
            group.start_soon(call)
            heard = [await anyio.to_thread.run_sync(peer.hear) for _ in range(2)]
            await to_thread(partial(peer.answer, heard[0].opaque, code=ResponseCode.GO_AWAY))
            await to_thread(partial(peer.answer, heard[1].opaque, b"stored"))
        assert answers == [b"stored"]


def test_the_timeout_error_is_one_of_pythons() -> None:
    assert issubclass(RequestTimeoutError, TimeoutError)
