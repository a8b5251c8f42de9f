"""The cost of many brokers for a name server: CPU and bytes of a registration, of a route, memory.

    python -m bench.name_server [--brokers 100] [--topics 1000] [--asked 2000]

A real name server; each broker has a connection of its own and registers as RocketMQ's brokers do
every 30 s, with all of its topics. First every topic is on every broker, then each on four of them
(of all topics there are as many more then). CPU is that of the process. At the end it says what
share of a core the registrations of all brokers take, at one in 30 s, and how many routes a core
gives in a second.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.arguments import program, whole
from bench.machine import describe
from tests.kit.health import cpu_s, rss_anon
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.raw_client import RawConnection

REGISTER, ROUTE = 103, 105
QUEUES = 8
PERIOD_S = 30.0
FEW = 4
"""Brokers of a topic that is not on all of them."""
ROUNDS = 3
MiB = 1 << 20


def registration(topics: list[str], counter: int) -> bytes:
    """The body of a broker with these topics."""
    table = {
        topic: {
            "topicName": topic,
            "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic in topics
    }
    version = {"timestamp": 1_700_000_000_000, "counter": counter}
    tables = {"dataVersion": version, "topicConfigTable": table}
    return json.dumps({"topicConfigSerializeWrapper": tables, "filterServerList": []}).encode()


def broker_fields(number: int) -> dict[str, object]:
    """The fields that name a broker."""
    return {
        "brokerName": f"broker-{number}",
        "brokerAddr": f"10.0.{number // 250}.{number % 250}:10911",
        "clusterName": "large",
        "haServerAddr": f"10.0.{number // 250}.{number % 250}:10912",
        "brokerId": 0,
        "heartbeatTimeoutMillis": 120_000,
    }


class Brokers:
    """Their connections, and what each registers."""

    def __init__(self, server: NamesrvProcess, topics: list[list[str]], opened: ExitStack) -> None:
        self._server = server
        self._topics = topics
        self._links = [
            opened.enter_context(RawConnection(server.address, timeout_s=60.0)) for _ in topics
        ]
        self.bytes = 0

    def register(self, counter: int) -> float:
        """All of them; the CPU of the name server in ms for each."""
        bodies = [registration(topics, counter) for topics in self._topics]
        self.bytes = sum(map(len, bodies)) // len(bodies)
        before = cpu_s(self._server.child.pid)
        for number, (link, body) in enumerate(zip(self._links, bodies, strict=True)):
            answer = link.call(REGISTER, broker_fields(number), body)
            assert answer.code == 0, answer
        return 1_000 * (cpu_s(self._server.child.pid) - before) / len(bodies)

    def ask(self, asked: int) -> tuple[float, int]:
        """Routes, one after the other; CPU in ms for each, and its bytes."""
        names = sorted({topic for topics in self._topics for topic in topics})
        before, size = cpu_s(self._server.child.pid), 0
        for number in range(asked):
            topic = names[number * 7_919 % len(names)]
            answer = self._links[0].call(ROUTE, {"topic": topic})
            assert answer.code == 0, answer
            size += len(answer.body)
        return 1_000 * (cpu_s(self._server.child.pid) - before) / asked, size // asked


def on_all(brokers: int, topics: int) -> list[list[str]]:
    """Every topic on every broker."""
    return [[f"topic-{number}" for number in range(topics)]] * brokers


def on_few(brokers: int, topics: int) -> list[list[str]]:
    """Every topic on four brokers, and as many on each broker."""
    held: list[list[str]] = [[] for _ in range(brokers)]
    for number in range(brokers * topics // FEW):
        for copy in range(FEW):
            held[(number * FEW + copy) % brokers].append(f"topic-{number}")
    return held


def measured(name: str, topics: list[list[str]], asked: int) -> str:
    """A row of the table: a name server of its own."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as opened:
        server = opened.enter_context(NamesrvProcess(data=Path(place, "names")))
        empty = rss_anon(server.child.pid)
        brokers = Brokers(server, topics, opened)
        first = brokers.register(1)
        same = sum(brokers.register(1) for _ in range(ROUNDS)) / ROUNDS
        changed = sum(brokers.register(2 + number) for number in range(ROUNDS)) / ROUNDS
        route, size = brokers.ask(asked)
        more = (rss_anon(server.child.pid) - empty) / MiB
    core = 100 * changed * len(topics) / 1_000 / PERIOD_S
    return (
        f"| {name} | {brokers.bytes / 1_024:,.0f} | {first:.1f} | {same:.1f} | {changed:.1f} "
        f"| {core:.1f} | {size / 1_024:.1f} | {route:.2f} | {1_000 / route:,.0f} | {more:.0f} |"
    )


@program
def main() -> None:
    """Print a table of both ways to spread topics."""
    parser = argparse.ArgumentParser(prog="python -m bench.name_server", description=__doc__)
    parser.add_argument("--brokers", type=whole, default=100)
    parser.add_argument("--topics", type=whole, default=1_000, help="of each broker")
    parser.add_argument("--asked", type=whole, default=2_000, help="routes that are asked for")
    options = parser.parse_args()
    print(f"{describe()}; {options.brokers} brokers with {options.topics} topics each\n")
    print(
        "| each topic is on | KiB of a registration | ms, the first | ms, unchanged | ms, changed "
        "| % of a core, all in 30 s | KiB of a route | ms | routes/s | MiB |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )
    brokers, topics = options.brokers, options.topics
    print(measured("all brokers", on_all(brokers, topics), options.asked), flush=True)
    print(measured("four brokers", on_few(brokers, topics), options.asked), flush=True)


if __name__ == "__main__":
    main()
