"""The real broker with a second ticker in its loop, one that looks every 5 ms and keeps each gap.

`python -m tests.kit.stall_watch FILE broker run …` is `aerobee broker run …` that writes one line
per late turn to FILE: monotonic seconds, by how many ms it came late, how many of them the thread
was ready and another process had the core, which is no standstill of ours, and how many it ran.
What the host took from all processors meanwhile is none of ours either.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

import trio

from tests.kit.broker_process import BrokerProcess
from tests.kit.odd_broker import ODD_BROKER, become
from tests.kit.step_watch import Step, StolenTime

TICK_S = 0.005
FIRST_PASS_S = 1.0
"""The first clean-up comes while somebody watches."""
KEEP_MS = 1.0
"""Gaps below this are not worth a line."""


class Gap(NamedTuple):
    """One late turn of the loop."""

    at_s: float
    """Monotonic seconds of the late turn."""
    late_ms: float
    robbed_ms: float
    """Of these, the time another process had our core, or the host."""
    cpu_ms: float
    """How long the thread of the loop ran since the turn before."""

    @property
    def stall_ms(self) -> float:
        """By how much our own doing made it late."""
        return max(0.0, self.late_ms - self.robbed_ms)

    @property
    def step(self) -> Step:
        """The same time, for whoever looks what the host took in it."""
        return Step(self.at_s, self.late_ms, "")


def gaps_in(path: Path) -> list[Gap]:
    """The gaps a broker has written so far. Raises: OSError before it runs."""
    return [Gap(*map(float, line.split())) for line in path.read_text().splitlines()]


@dataclass(slots=True, kw_only=True)
class WatchedBroker(BrokerProcess):
    """A broker process whose gaps can be read after it has stopped."""

    @property
    def gaps_path(self) -> Path:
        """Where the gaps of the last run are: beside its log, whatever disk its data are on."""
        return self.log.with_suffix(".gaps")

    def command(self) -> list[str]:
        """As `BrokerProcess`, through this module."""
        python, _, _, *rest = super(WatchedBroker, self).command()
        return [python, "-m", "tests.kit.stall_watch", str(self.gaps_path), *rest]

    @contextmanager
    def watched(self) -> Iterator[list[Gap]]:
        """Run until the block ends, then stop; the list has the gaps of the block afterwards."""
        gaps: list[Gap] = []
        stolen = StolenTime()
        stolen.start()
        self.start()
        began = time.monotonic()
        try:
            yield gaps
        except BaseException:
            self.kill()
            raise
        finally:
            stolen.over.set()
        ended = time.monotonic()
        code = self.stop()
        assert code == 0, f"stopped with {code}:\n{self.child.errors()}"
        stolen.look()
        for gap in gaps_in(self.gaps_path):
            if began <= gap.at_s <= ended:
                host_ms = stolen.within(gap.step)
                gaps.append(gap._replace(robbed_ms=gap.robbed_ms + host_ms))


async def _watch(path: Path) -> NoReturn:
    ready = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    gaps = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    robbed_ns, ran_s = _ready_ns(ready), time.thread_time()
    slept_from = time.monotonic()
    while True:
        await trio.sleep(TICK_S)
        now = time.monotonic()
        late_ms = (now - slept_from - TICK_S) * 1_000
        if late_ms > KEEP_MS:
            robbed_ms = (_ready_ns(ready) - robbed_ns) / 1e6
            cpu_ms = (time.thread_time() - ran_s) * 1_000
            os.write(gaps, f"{now:.6f} {late_ms:.3f} {robbed_ms:.3f} {cpu_ms:.3f}\n".encode())
        robbed_ns, ran_s = _ready_ns(ready), time.thread_time()
        slept_from = time.monotonic()


def _ready_ns(fd: int) -> int:
    """How long this thread has waited for a core so far."""
    return int(os.pread(fd, 100, 0).split()[1])


def main() -> None:
    """Patch the ticker and run the command line."""
    from aerobee.broker import controller
    from aerobee.broker.process.loop_ticker import LoopTicker
    from aerobee.cli.main import main as aerobee
    from aerobee.store.space import cleanup

    path = Path(sys.argv.pop(1))
    if way := os.environ.get(ODD_BROKER):
        become(way)

    class BothTickers(LoopTicker):
        async def run(
            self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        ) -> NoReturn:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, path)
                await super().run(task_status=task_status)
            raise AssertionError("tickers never end")

    setattr(cleanup, "FIRST_PASS_S", FIRST_PASS_S)  # noqa: B010 - a constant, elsewhere
    setattr(controller, "LoopTicker", BothTickers)  # noqa: B010 - a name it only imports
    aerobee()


if __name__ == "__main__":
    main()
