"""Overload: four times the broker's capacity by the clock, and what becomes of it.

    python -m bench.overload [--seconds 10] [--times 4] [--connections 64] [--set key=value]…

First the peak of a closed loop, then an open one at a multiple of it: sends leave by the clock from
`bench/rawload` (Go), whatever has been answered. An answer counts as good within three seconds of
the time at which its send was to leave. `tests/faults/test_overload.py` holds the limits.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.load import BINARY, DEFAULT_SIZES, build
from bench.machine import describe
from tests.kit.broker_process import BrokerProcess

WARM_UP_S = 3.0
PEAK = re.compile(r"msgs/s=(\d+)")
GOOD = re.compile(r"good/s=(\d+)")


def load(broker: BrokerProcess, seconds: float, *options: str) -> str:
    """Run the generator once; the line it prints."""
    times = ("-W", str(WARM_UP_S), "-T", str(seconds), "-pid", str(broker.child.pid))
    command = [str(BINARY), "-a", broker.address, *times, *options]
    limit_s = 60 + WARM_UP_S + seconds
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit_s)
    return done.stdout.strip()


class Goodput(NamedTuple):
    """Per second: what a closed loop reached, and what was stored in time of a multiple of it."""

    peak: float
    good: float

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.good / self.peak


def measure(broker: BrokerProcess, seconds: float, times: float, connections: int) -> Goodput:
    """The closed loop, then the open one; prints what the generator says to stderr."""
    to = ("-c", str(connections))
    closed = load(broker, seconds, *to, "-d", "8")
    peak = PEAK.search(closed)
    assert peak, closed
    opened = load(broker, seconds, *to, "-r", f"{times * float(peak[1]):.0f}")
    good = GOOD.search(opened)
    assert good, opened
    print(f"{closed}\n{opened}", file=sys.stderr, flush=True)
    return Goodput(float(peak[1]), float(good[1]))


def main() -> None:
    """Print the two lines, and the ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench.overload")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--times", type=float, default=4)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    # A stopped bench must end its broker, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    build()
    given: dict[str, object] = dict(pair.split("=", 1) for pair in arguments.set)
    settings = DEFAULT_SIZES | {"waitTimeMillsInSendQueue": None} | given
    print(describe())
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="aerobee-bench-"))
        broker = BrokerProcess(data=Path(directory) / "data", settings=settings)
        stack.enter_context(broker)
        seen = measure(broker, arguments.seconds, arguments.times, arguments.connections)
    print(f"goodput: {seen.share:.0%} of the peak")


if __name__ == "__main__":
    main()
