"""The SDK in one process against a broker in another: what its consumers take in a second.

    python -m bench.sdk [--messages 200000] [--queues 8] [--only push]

Each case reads the same messages of 128 B with a group of its own. CPU is the client's for each
message; the broker works on another core. Everything talks over 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import anyio

from aerobee import ConsumeFrom, Message, PopConsumer, PushConsumer, ReceivedMessage, blocking
from bench.arguments import chosen, program, whole
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

TOPIC = "SdkBench"
BODY = bytes(128)
BATCH = 500
POPPERS = 8
FIRST = ConsumeFrom.FIRST
WITHIN_S = 300.0

SIZES: dict[str, object] = {"mappedFileSizeCommitLog": 256 << 20}


class Countdown:
    """Counts messages until there were so many, and says how long that took."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.began_s = 0.0
        self.ended_s = 0.0
        self.cpu_s = 0.0
        self.over = threading.Event()

    def count(self, messages: Sequence[ReceivedMessage]) -> None:
        """These were handled; the clock starts with the first."""
        if not self.began_s:
            self.began_s = time.perf_counter()
            self.cpu_s = -time.process_time()
        self.left -= len(messages)
        if self.left <= 0 and not self.ended_s:
            self.ended_s = time.perf_counter()
            self.cpu_s += time.process_time()
            self.over.set()


Case = Callable[[str, Countdown], Coroutine[None, None, None]]


async def push(namesrv: str, countdown: Countdown, group: str = "push") -> None:
    """An async handler that does nothing."""
    consumer = PushConsumer(group, namesrv, start_from=FIRST, commit_interval=1.0)

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        countdown.count(messages)

    consumer.subscribe(TOPIC, handler=handler)
    async with consumer:
        await over(countdown)


async def push_batches(namesrv: str, countdown: Countdown) -> None:
    """The same, 32 messages at a time."""
    consumer = PushConsumer("batches", namesrv, start_from=FIRST, batch_size=32)

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        countdown.count(messages)

    consumer.subscribe(TOPIC, handler=handler)
    async with consumer:
        await over(countdown)


async def push_threads(namesrv: str, countdown: Countdown) -> None:
    """A plain handler on four threads."""
    lock = threading.Lock()

    def handler(messages: Sequence[ReceivedMessage]) -> None:
        with lock:
            countdown.count(messages)

    consumer = blocking.PushConsumer("threads", namesrv, start_from=FIRST, concurrency=4)
    consumer.subscribe(TOPIC, handler=handler)
    with consumer:
        await over(countdown)


async def pop(namesrv: str, countdown: Countdown) -> None:
    """Eight tasks that take 32 and acknowledge them together."""

    async def work(consumer: PopConsumer) -> None:
        while not countdown.over.is_set():
            messages = await consumer.receive(TOPIC, wait=1.0)
            countdown.count(messages)
            await consumer.ack(*messages)

    async with (
        PopConsumer("pop", namesrv, start_from=FIRST) as consumer,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(POPPERS):
            tasks.start_soon(work, consumer)


async def over(countdown: Countdown) -> None:
    """Until all messages were handled."""
    with anyio.fail_after(WITHIN_S):
        while not countdown.over.is_set():  # noqa: ASYNC110  (set from any thread)
            await anyio.sleep(0.05)


CASES: dict[str, Case] = {
    "push, async handler, one by one": push,
    "push, async handler, 32 at a time": push_batches,
    "push, 4 threads, one by one": push_threads,
    "pop of 32, acknowledged together": pop,
}


def fill(namesrv: str, messages: int, queues: int) -> None:
    """So many messages, evenly in the queues of the topic."""
    with blocking.AdminClient(namesrv) as admin:
        admin.create_topic(TOPIC, queues=queues)
    with blocking.Producer(namesrv) as producer:
        for _ in range(messages // BATCH):
            producer.send_batch([Message(TOPIC, BODY)] * BATCH)


def measure(name: str, case: Case, namesrv: str, messages: int) -> str:
    """One line of the table."""
    countdown = Countdown(messages)
    asyncio.run(case(namesrv, countdown))
    cpu_us = countdown.cpu_s / messages * 1e6
    rate = messages / (countdown.ended_s - countdown.began_s)
    return f"{name:<40} {rate:>10,.0f} msg/s {cpu_us:>8.1f} µs CPU/msg"


@program
def main() -> None:
    """All cases, or those whose name holds `--only`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=whole, default=200_000)
    parser.add_argument("--queues", type=whole, default=8)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    names = chosen(given.only, CASES)
    print(describe(), flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(data=Path(folder) / "data", settings=SIZES) as broker,
    ):
        fill(broker.namesrv_address, given.messages, given.queues)
        for name in names:
            print(measure(name, CASES[name], broker.namesrv_address, given.messages), flush=True)


if __name__ == "__main__":
    main()
