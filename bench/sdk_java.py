"""The SDK and the official Java client 5.4.0: the same cases on the same broker, alternating.

    python -m bench.sdk_java [--seconds 1] [--messages 100000] [--turns 7]

Bodies of 128 B, eight queues; one process each for the broker, our client and theirs, which is
idle while ours works and the reverse. The first turn of each case warms up (Java's compiler needs
that) and does not count. Printed are the medians of the turns, and of their ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import sdk_producer
from bench.arguments import positive, program, whole
from bench.machine import describe
from bench.sdk import SIZES, TOPIC, WITHIN_S, Countdown, fill, push
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import OPENS, toolkit
from tests.kit.process import Child

VERSION = "5.4.0"
JVM = ("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
QUEUES = 8
OUTBOX = 10_000
"""The number of messages that `send_soon` lets wait by default."""


class Taken(NamedTuple):
    """The amounts of one turn."""

    messages: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.messages * 1e6


Side = Callable[[int], Taken]
Case = tuple[Side, Side]


class JavaLoad:
    """`tests/interop/java/Load.java` in a JVM with its usual compilers."""

    def __init__(self, home: Path, namesrv: str) -> None:
        tools = toolkit(VERSION)
        places = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}/logs")
        path = f"{tools.classes}:{tools.jars}/*"
        command = ["java", *JVM, *OPENS, *places, "-cp", path, "Load", namesrv, TOPIC]
        self.child = Child(command, log=home / "load.log", at=home)

    def run(self, *words: object) -> Taken:
        """One turn: the case and its amounts."""
        self.child.write_line(" ".join(map(str, words)))
        messages, seconds, cpu_s = self.child.read_line(within_s=WITHIN_S).split()
        return Taken(int(messages), float(seconds), float(cpu_s))


def sent(case: sdk_producer.Case, namesrv: str, seconds: float) -> Taken:
    """One turn of a case of the producers."""
    cpu_s, began = time.process_time(), time.perf_counter()
    messages = case(namesrv, seconds)
    return Taken(messages, time.perf_counter() - began, time.process_time() - cpu_s)


def pushed(namesrv: str, messages: int, group: str) -> Taken:
    """One turn of the push consumer, with a group of its own."""
    countdown = Countdown(messages)
    asyncio.run(push(namesrv, countdown, group))
    return Taken(messages, countdown.ended_s - countdown.began_s, countdown.cpu_s)


def line(name: str, turns: list[tuple[Taken, Taken]]) -> str:
    """One line of the table."""
    ours, theirs = zip(*turns, strict=True)
    rates = [median(one.rate for one in side) for side in (ours, theirs)]
    cpu = [median(one.cpu_us for one in side) for side in (ours, theirs)]
    ratio = median(our.rate / their.rate for our, their in turns)
    cpu_ratio = median(our.cpu_us / their.cpu_us for our, their in turns)
    return (
        f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {ratio:.2f} "
        f"| {cpu[0]:.1f} | {cpu[1]:.1f} | {cpu_ratio:.2f} |"
    )


def cases(java: JavaLoad, namesrv: str, seconds: float, messages: int) -> dict[str, Case]:
    """The two sides of each case, by the number of their turn."""

    def ours(case: sdk_producer.Case) -> Side:
        return lambda _turn: sent(case, namesrv, seconds)

    def theirs(*words: object) -> Side:
        return lambda _turn: java.run(*words)

    few = sdk_producer.IN_FLIGHT
    return {
        "push, one by one": (
            lambda turn: pushed(namesrv, messages, f"ours-{turn}"),
            lambda turn: java.run("push", messages, f"theirs-{turn}"),
        ),
        "blocking, one by one; sync": (ours(sdk_producer.one_thread), theirs("sync", seconds)),
        "async, one by one; sync": (ours(sdk_producer.one_by_one), theirs("sync", seconds)),
        f"{few} tasks; async, {few} in flight": (
            ours(sdk_producer.pipelined),
            theirs("async", seconds, few),
        ),
        f"`send_soon`; async, {OUTBOX} in flight": (
            ours(sdk_producer.soon),
            theirs("async", seconds, OUTBOX),
        ),
    }


@program
def main() -> None:
    """Every case in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=positive, default=1.0)
    parser.add_argument("--messages", type=whole, default=100_000)
    parser.add_argument("--turns", type=whole, default=7)
    given = parser.parse_args()
    print(describe())
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(data=Path(folder) / "data", settings=SIZES) as broker,
    ):
        namesrv = broker.namesrv_address
        fill(namesrv, given.messages, QUEUES)
        java = JavaLoad(Path(folder), namesrv)
        print("| case | msg/s | Java | ratio | µs CPU/msg | Java | ratio |")
        print("|---|---|---|---|---|---|---|", flush=True)
        with java.child:
            for name, case in cases(java, namesrv, given.seconds, given.messages).items():
                turns = [(case[0](turn), case[1](turn)) for turn in range(given.turns + 1)]
                print(line(name, turns[1:]), flush=True)


if __name__ == "__main__":
    main()
