"""What the counting of a send costs: the part of the metrics that every message pays for.

`python -m bench.counting` prints nanoseconds per request, the best of many short bursts, as the
machine is shared: for requests that end alone, and 8 or 32 together as in a round under load.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from aerobee.broker.counters.broker_stats import BrokerStats
from aerobee.broker.send.stages import SendStages
from aerobee.remoting.latency import SUCCESS_RESULT
from aerobee.remoting.stats import RemotingStats
from aerobee.remoting.wire.command import Command
from bench.arguments import program
from bench.machine import describe

if TYPE_CHECKING:
    from collections.abc import Callable

BURSTS = 3_000
REQUESTS = 256
"""In a burst."""


def best(burst: Callable[[], None]) -> float:
    """Nanoseconds per request of the fastest burst."""
    fastest = float("inf")
    for _ in range(BURSTS):
        began = time.perf_counter_ns()
        burst()
        fastest = min(fastest, time.perf_counter_ns() - began)
    return fastest / REQUESTS


def latencies(together: int) -> Callable[[], None]:
    """As in `Connection.answer`, and at the end of each round of so many requests."""
    counted = RemotingStats()
    command = Command(code=310)

    def burst() -> None:
        now = time.monotonic()
        for _ in range(REQUESTS // together):
            for _ in range(together):
                command.arrived = now
                ended = counted.latencies.ended
                ended[command.code, 0, False, SUCCESS_RESULT].append(command.arrived)
            if counted.latencies.ended:
                counted.latencies.sent(time.monotonic())

    return burst


def stages(together: int) -> Callable[[], None]:
    """As in `Send`: one request of each round is followed."""
    counted = RemotingStats().latencies
    followed = SendStages({}, counted, time.monotonic)

    def burst() -> None:
        now = time.monotonic()
        for _ in range(REQUESTS // together):
            for _ in range(together):
                if followed.idle:
                    followed.appended(now, now)
            counted.sent(now)

    return burst


def topics(together: int) -> Callable[[], None]:
    """Messages and bytes by topic, which the statistics of `mqadmin` need as well."""
    stats = BrokerStats()

    def burst() -> None:
        for _ in range(REQUESTS):
            stats.topic_in("BenchTopic", "normal").put(1, 300)

    return burst


def nothing(together: int) -> Callable[[], None]:
    """The loops themselves."""

    def burst() -> None:
        for _ in range(REQUESTS // together):
            for _ in range(together):
                pass

    return burst


@program
def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m bench.counting").parse_args()
    print(describe())
    print(f"{'ns per request':<24}{'alone':>8}{'8':>8}{'32':>8}")
    for part in (nothing, topics, latencies, stages):
        row = "".join(f"{best(part(together)):>8.0f}" for together in (1, 8, 32))
        print(f"{part.__name__:<24}{row}", flush=True)


if __name__ == "__main__":
    main()
