"""A broker that stops, dies and comes back while all three fronts send: no send fails."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import anyio
import pytest
import trio

import aerobee
import aerobee.blocking
from aerobee import ConsumeFrom, Message
from tests.conftest import AnyBroker, StartBroker
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

WILLING_S = 60.0
"""The time-out of each send: far more than a restart takes."""
DOWN_S = 4.0
TASKS = 20
PAUSE_S = 0.02
TOPIC = "Load"


class Load:
    """Bodies acknowledged, by front; what failed."""

    def __init__(self) -> None:
        self.acked: dict[str, list[bytes]] = {"asyncio": [], "trio": [], "blocking": []}
        self.failed: list[BaseException] = []
        self.enough = threading.Event()

    async def on_loop(self, front: str, namesrv: str) -> None:
        async with (
            aerobee.Producer(namesrv, group=front, timeout=WILLING_S) as producer,
            anyio.create_task_group() as tasks,
        ):
            for n in range(TASKS):
                tasks.start_soon(self._send_on, front, producer, n)

    async def _send_on(self, front: str, producer: aerobee.Producer, number: int) -> None:
        for body in self._bodies(front, number):
            try:
                await producer.send(Message(TOPIC, body))
                self.acked[front].append(body)
            except aerobee.errors.AerobeeError as error:
                self.failed.append(error)
            await anyio.sleep(PAUSE_S)

    def in_threads(self, namesrv: str) -> None:
        with (
            aerobee.blocking.Producer(namesrv, group="threads", timeout=WILLING_S) as producer,
            ThreadPoolExecutor(4) as threads,
        ):
            list(threads.map(lambda n: self._send_in_thread(producer, n), range(4)))

    def _send_in_thread(self, producer: aerobee.blocking.Producer, number: int) -> None:
        for body in self._bodies("blocking", number):
            try:
                producer.send(Message(TOPIC, body))
                self.acked["blocking"].append(body)
            except aerobee.errors.AerobeeError as error:
                self.failed.append(error)
            self.enough.wait(PAUSE_S)

    def _bodies(self, front: str, number: int) -> Iterator[bytes]:
        for n in range(1_000_000):
            if self.enough.is_set():
                return
            yield f"{front}-{number}-{n}".encode()

    def until_more(self) -> None:
        """Until every front has got ten more acknowledgements."""
        before = {front: len(bodies) for front, bodies in self.acked.items()}
        eventually(
            lambda: all(len(self.acked[front]) >= n + 10 for front, n in before.items()),
            within_s=WILLING_S,
            what="every front sends",
        )


@contextmanager
def sending(load: Load, namesrv: str) -> Iterator[None]:
    """All three fronts at work, each in a thread of its own."""
    mains: list[Callable[[], object]] = [
        lambda: asyncio.run(load.on_loop("asyncio", namesrv)),
        lambda: trio.run(load.on_loop, "trio", namesrv),
        lambda: load.in_threads(namesrv),
    ]
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(main) for main in mains]
        try:
            yield
        finally:
            load.enough.set()
            for one in running:
                one.result(WILLING_S)


def stored(broker: AnyBroker, count: int) -> set[bytes]:
    """The bodies of the topic, at least so many."""
    bodies: set[bytes] = set()
    with aerobee.blocking.PullConsumer(
        "check", broker.namesrv_address, start_from=ConsumeFrom.FIRST, pull_batch=1000
    ) as consumer:
        consumer.assign(consumer.queues(TOPIC))
        while len(bodies) < count and (messages := consumer.poll(max_messages=1000)):
            consumer.done(*messages)
            bodies |= {message.body for message in messages}
    return bodies


def test_restarts_under_load_fail_no_send_and_lose_nothing(start_broker: StartBroker) -> None:
    broker = start_broker()
    load = Load()
    with sending(load, broker.namesrv_address):
        load.until_more()
        broker.restart()
        load.until_more()
        broker.kill()
        # How long it is away is what the test is about.
        load.enough.wait(DOWN_S)
        broker.start()
        load.until_more()
    acked = {body for bodies in load.acked.values() for body in bodies}
    assert not load.failed
    assert acked <= stored(broker, len(acked))
