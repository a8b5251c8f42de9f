"""Clients behind a network that cuts, delays and fragments, on every front."""

import time
from collections.abc import Callable, Iterator, Sequence

import anyio
import anyio.to_thread
import pytest

from aerobee import ConsumeFrom, Message, MessageQueue, ReceivedMessage, RetryPolicy
from aerobee.errors import SendFailedError
from tests.aerobee.client.aio.test_push_consumer import until
from tests.aerobee.client.fronts import Front
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST, PortBlock, free_block
from tests.kit.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.service, pytest.mark.anyio]

Fresh = Callable[[str], str]
FIRST = ConsumeFrom.FIRST
RESUMES_WITHIN_S = 5.0
SEND_S = 30.0
COMMIT_S = 1.0


@pytest.fixture(scope="module")
def ports() -> PortBlock:
    return free_block()


@pytest.fixture(scope="module")
def network(ports: PortBlock) -> Iterator[TcpProxy]:
    with TcpProxy(f"{HOST}:{ports.listen}") as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker(
    ports: PortBlock, network: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker that clients reach through the proxy alone."""
    settings = {"advertised": f"0.0.0.0/0={network.address}"}
    data = tmp_path_factory.mktemp("behind") / "data"
    with BrokerProcess(data=data, settings=settings, ports=ports) as broker:
        yield broker


@pytest.fixture(autouse=True)
def fair_weather(network: TcpProxy) -> Iterator[None]:
    yield
    network.delay_s, network.piece_bytes = 0.0, 0


class Diary:
    """What a handler was given, and when."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()
        self.places: dict[tuple[MessageQueue, int], list[float]] = {}

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.bodies.add(message.body)
            place = (message.queue, message.queue_offset)
            self.places.setdefault(place, []).append(time.monotonic())

    async def goes_on(self) -> None:
        """Until something new came."""
        known = len(self.bodies)
        await until(lambda: len(self.bodies) > known)


async def test_cuts_and_a_kill_under_load_lose_nothing_that_was_acknowledged(
    front: Front, broker: BrokerProcess, network: TcpProxy, fresh: Fresh
) -> None:
    topic, diary = fresh("topic"), Diary()
    trouble_at: list[float] = []
    acknowledged: set[bytes] = set()
    in_thread = anyio.to_thread.run_sync

    async def trouble() -> None:
        for what in (network.cut, broker.kill, network.cut):
            await anyio.sleep(0.3)
            await in_thread(what)
            if what == broker.kill:
                await in_thread(broker.start)
            trouble_at.append(time.monotonic())
            await diary.goes_on()
            assert time.monotonic() - trouble_at[-1] < RESUMES_WITHIN_S
        done.cancel()

    async def send_on() -> None:
        number = 0
        while True:
            number += 1
            body = b"%d" % number
            await producer.send(Message(topic, body))
            acknowledged.add(body)

    consumer = front.push(fresh("group"), start_from=FIRST, commit_interval=COMMIT_S)
    consumer.subscribe(topic, handler=front.handler(diary))
    async with consumer, front.producer(timeout=30.0) as producer:
        with anyio.CancelScope() as done:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send_on)
                tasks.start_soon(trouble)
        await until(lambda: diary.bodies >= acknowledged)
    assert len(acknowledged) > 10
    for place, times in diary.places.items():
        # Twice is allowed for what was handled and not committed yet when trouble came.
        assert len(times) <= 1 + len(trouble_at), place
        for first in times[:-1]:
            assert any(-COMMIT_S < first - at < RESUMES_WITHIN_S for at in trouble_at), place


async def test_a_connection_that_went_silent_is_left_within_the_time_of_a_send(
    front: Front, broker: BrokerProcess, network: TcpProxy, fresh: Fresh
) -> None:
    topic, diary = fresh("topic"), Diary()
    retry = RetryPolicy(per_try=1.0)
    consumer = front.push(fresh("group"), start_from=FIRST)
    consumer.subscribe(topic, handler=front.handler(diary))
    async with front.client() as client, front.producer(client=client, retry=retry) as producer:
        await producer.send(Message(topic, b"before"))
        known = network.accepted
        await anyio.to_thread.run_sync(network.silence)
        # Whatever waits for the silent connection waits for all of this time, and then fails.
        await producer.send(Message(topic, b"behind"), timeout=SEND_S)
        assert network.accepted > known
        async with consumer:
            await until(lambda: diary.bodies == {b"before", b"behind"})


async def test_frames_may_come_in_single_bytes(
    front: Front, broker: BrokerProcess, network: TcpProxy, fresh: Fresh
) -> None:
    topic, diary = fresh("topic"), Diary()
    network.piece_bytes = 1
    bodies = {b"%d" % n * 300 for n in range(10)}
    consumer = front.push(fresh("group"), start_from=FIRST)
    consumer.subscribe(topic, handler=front.handler(diary))
    async with front.producer(compression=None) as producer, consumer:
        await producer.send_batch([Message(topic, body) for body in bodies])
        await until(lambda: diary.bodies == bodies)
    assert all(len(times) == 1 for times in diary.places.values())


async def test_an_answer_that_comes_too_late_is_for_nobody_else(
    front: Front, broker: BrokerProcess, network: TcpProxy, fresh: Fresh
) -> None:
    topic = fresh("topic")
    once = RetryPolicy(attempts=1, patient=False)
    async with front.producer(retry=once) as producer:
        await producer.send(Message(topic, b"quick"))
        connections = network.accepted
        network.delay_s = 0.2
        with pytest.raises(SendFailedError, match=r"no answer within 0\.\d+ s"):
            await producer.send(Message(topic, b"late"), timeout=0.1)
        results = [await producer.send(Message(topic, b"slow")) for _ in range(2)]
        assert network.accepted == connections, "one slow call does not cost the others"
    assert len({result.message_id for result in results}) == 2
    assert len({(result.queue, result.queue_offset) for result in results}) == 2
