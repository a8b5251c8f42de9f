"""The SDK's producers in one process against a broker in another: what they send in a second.

    python -m bench.sdk_producer [--seconds 4] [--turns 25] [--only blocking]

Bodies of 128 B to eight queues. CPU is the client's for each message, and its share of one core;
the broker works on another one. Of several turns the best counts: it had least to share with. The
idle client is one producer that has sent one message. Everything talks over 127.0.0.1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from aerobee import Message, Producer, blocking
from bench.arguments import chosen, positive, program, whole
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

TOPIC = "SdkBench"
BODY = bytes(128)
IN_FLIGHT = 128
BATCH = 500
IDLE_S = 10.0
SIZES: dict[str, object] = {"mappedFileSizeCommitLog": 256 << 20}

Case = Callable[[str, float], int]


def one_by_one(namesrv: str, seconds: float) -> int:
    """Each send waits for the one before it."""
    return anyio.run(tasks, namesrv, seconds, 1)


def pipelined(namesrv: str, seconds: float) -> int:
    """Many tasks that each send one after the other."""
    return anyio.run(tasks, namesrv, seconds, IN_FLIGHT)


async def tasks(namesrv: str, seconds: float, count: int) -> int:
    """The number of messages that so many tasks send in that time."""
    sent = 0
    async with Producer(namesrv) as producer:
        until = time.perf_counter() + seconds

        async def send() -> None:
            nonlocal sent
            while time.perf_counter() < until:
                await producer.send(Message(TOPIC, BODY))
                sent += 1

        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(send)
    return sent


def batches(namesrv: str, seconds: float) -> int:
    """Two tasks with batches: one makes a request while the other waits."""

    async def run() -> int:
        sent = 0
        async with Producer(namesrv) as producer:
            until = time.perf_counter() + seconds

            async def send() -> None:
                nonlocal sent
                while time.perf_counter() < until:
                    await producer.send_batch(Message(TOPIC, BODY) for _ in range(BATCH))
                    sent += BATCH

            async with anyio.create_task_group() as group:
                group.start_soon(send)
                group.start_soon(send)
        return sent

    return anyio.run(run)


def soon(namesrv: str, seconds: float) -> int:
    """One task that hands over message by message; at the end all of them are stored."""

    async def run() -> int:
        sent = 0
        async with Producer(namesrv) as producer:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                await producer.send_soon(Message(TOPIC, BODY))
                sent += 1
            await producer.flush()
        return sent

    return anyio.run(run)


def one_thread_soon(namesrv: str, seconds: float) -> int:
    """The same on the blocking front."""
    sent = 0
    with blocking.Producer(namesrv) as producer:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            producer.send_soon(Message(TOPIC, BODY))
            sent += 1
        producer.flush()
    return sent


def one_thread(namesrv: str, seconds: float) -> int:
    """The blocking front."""
    sent = 0
    with blocking.Producer(namesrv) as producer:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            producer.send(Message(TOPIC, BODY))
            sent += 1
    return sent


CASES: dict[str, Case] = {
    "async, one by one": one_by_one,
    f"async, {IN_FLIGHT} tasks": pipelined,
    f"async, batches of {BATCH}": batches,
    "async, send_soon": soon,
    "blocking, one thread": one_thread,
    "blocking, send_soon": one_thread_soon,
}

IDLE = """
import asyncio, time
from aerobee import Message, Producer
async def main():
    async with Producer({namesrv!r}) as producer:
        await producer.send(Message({topic!r}, b"x"))
        began = time.process_time()
        await asyncio.sleep({idle_s})
        cpu = time.process_time() - began
        lines = open("/proc/self/status").read().splitlines()
        memory = next(int(one.split()[1]) for one in lines if one.startswith("RssAnon"))
        print(f"{{cpu / {idle_s}:.2%}} of a core, {{memory / 1024:.0f}} MiB RssAnon")
asyncio.run(main())
"""


def measure(name: str, case: Case, namesrv: str, seconds: float) -> tuple[float, str]:
    """Messages in a second, and one line of the table."""
    cpu_s, began = time.process_time(), time.perf_counter()
    sent = case(namesrv, seconds)
    took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    cpu = f"{cpu_s / sent * 1e6:>8.1f} µs CPU {cpu_s / took:>5.0%} of a core"
    return sent / took, f"{name:<28} {sent / took:>10,.0f} msg/s {cpu}"


def import_ms() -> float:
    """The quickest of five imports, without the start of the interpreter."""
    code = "import time; t = time.perf_counter(); import aerobee; print(time.perf_counter() - t)"
    runs = (subprocess.check_output([sys.executable, "-c", code]) for _ in range(5))
    return min(map(float, runs)) * 1000


def help_ms() -> float:
    """The quickest of five runs of `aerobee --help`, with the start of the interpreter."""
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.check_output([sys.executable, "-m", "aerobee", "--help"])
        taken.append(time.perf_counter() - began)
    return min(taken) * 1000


@program
def main() -> None:
    """Every case in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=positive, default=4.0)
    parser.add_argument("--turns", type=whole, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    given = parser.parse_args()
    names = chosen(given.only, CASES)
    print(describe())
    with (
        tempfile.TemporaryDirectory() as home,
        BrokerProcess(data=Path(home) / "data", settings=SIZES) as broker,
    ):
        namesrv = broker.namesrv_address
        with blocking.AdminClient(namesrv) as admin:
            admin.create_topic(TOPIC, queues=8)
        for name in names:
            turns = [measure(name, CASES[name], namesrv, given.seconds) for _ in range(given.turns)]
            print(max(turns)[1], flush=True)
        if not given.only:
            idle = IDLE.format(namesrv=namesrv, topic=TOPIC, idle_s=IDLE_S)
            said = subprocess.check_output([sys.executable, "-c", idle], text=True).strip()
            print(f"{'idle client':<28} {said}")
    print(f"{'import aerobee':<28} {import_ms():.0f} ms")
    print(f"{'aerobee --help':<28} {help_ms():.0f} ms")


if __name__ == "__main__":
    main()
