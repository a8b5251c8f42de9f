"""Overload: four times the broker's capacity in an open loop, and what becomes of it.

    python -m bench.overload [--seconds 10] [--times 4] [--connections 64] [--rounds 3]
                             [--set key=value]…

Each round: the peak of a closed loop, then an open one at a multiple of it: sends leave by the
clock from `bench/rawload` (Go), whatever has been answered. An answer counts as good within three
seconds of the time at which its send was to leave. The generator has one core, so that it takes
none from the broker. Campaign R23 (`tests/faults/overload.py`) holds the limits.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.arguments import positive, program, setting, whole
from bench.load import BINARY, DEFAULT_SIZES, build
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

SETTINGS: dict[str, object] = DEFAULT_SIZES | {"waitTimeMillsInSendQueue": None}
"""The sizes of a broker as it comes; the limit on waiting is its own, too."""
DEPTH = 8
"""Sends in flight on each connection of the closed loop."""
FIGURE = re.compile(r"([a-z0-9_/]+)=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Overload:
    """One round: what rawload said of the closed loop, and of the open one."""

    closed: dict[str, float]
    open: dict[str, float]

    @property
    def goodput(self) -> float:
        """Stored and told in time, as a part of the peak."""
        return self.open["good/s"] / self.closed["msgs/s"]

    @property
    def goodput_per_core(self) -> float:
        """The same for equal CPU time: others on the machine may have used some in one of them."""
        return self.goodput * self.closed["cores"] / self.open["cores"]


def load(broker: BrokerProcess, seconds: float, warm_up_s: float, *options: str) -> str:
    """Run the generator once; the line it prints."""
    times = ("-W", str(warm_up_s), "-T", str(seconds), "-pid", str(broker.child.pid))
    core = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, str(BINARY), "-a", broker.address, *times, *options]
    limit_s = 60 + warm_up_s + seconds
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit_s)
    return done.stdout.strip()


def measure(
    broker: BrokerProcess,
    *,
    times: float = 4,
    seconds: float = 10,
    warm_up_s: float = 3,
    connections: int = 64,
) -> Overload:
    """One round. Build the generator first (`bench.load.build`)."""
    count = ("-c", str(connections))
    closed = load(broker, seconds, warm_up_s, *count, "-d", str(DEPTH))
    peak = figures(closed)
    rate = f"{times * peak['msgs/s']:.0f}"
    return Overload(peak, figures(load(broker, seconds, warm_up_s, *count, "-r", rate)))


def figures(line: str) -> dict[str, float]:
    """The named figures in a line of rawload; times are milliseconds, memory is MiB."""
    found = {name: float(value) for name, value in FIGURE.findall(line)}
    assert "cores" in found, line
    return found


@program
def main() -> None:
    """Print each round, and the medians of the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.overload")
    parser.add_argument("--seconds", type=positive, default=10)
    parser.add_argument("--times", type=positive, default=4)
    parser.add_argument("--connections", type=whole, default=64)
    parser.add_argument("--rounds", type=whole, default=3)
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    build()
    settings: dict[str, object] = dict(given.set)
    print(describe())
    rounds: list[Overload] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="aerobee-bench-"))
        broker = BrokerProcess(data=Path(directory) / "data", settings=SETTINGS | settings)
        stack.enter_context(broker)
        for _ in range(given.rounds):
            one = measure(
                broker, times=given.times, seconds=given.seconds, connections=given.connections
            )
            rounds.append(one)
            print("peak", *(f"{name}={value:g}" for name, value in one.closed.items()))
            print("open", *(f"{name}={value:g}" for name, value in one.open.items()))
            print(f"goodput: {one.goodput:.0%} of the peak", flush=True)
    goodput = statistics.median(one.goodput for one in rounds)
    per_core = statistics.median(one.goodput_per_core for one in rounds)
    print(f"medians: goodput {goodput:.0%} of the peak, {per_core:.0%} for equal CPU time")


if __name__ == "__main__":
    main()
