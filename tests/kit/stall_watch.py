"""The real broker with a second ticker in its loop, one that looks every 5 ms and keeps each gap.

`python -m tests.kit.stall_watch FILE broker run …` is `aerobee broker run …` that writes, when it
ends, one line per late turn to FILE: monotonic seconds, by how many ms it came late, and how many
of them the thread was ready and another process had the core, which is no standstill of ours.
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

__all__ = ["Gap", "WatchedBroker", "gaps_in"]

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
    """Of these, the time another process had our core."""

    @property
    def stall_ms(self) -> float:
        """By how much our own doing made it late."""
        return max(0.0, self.late_ms - self.robbed_ms)


def gaps_in(path: Path) -> list[Gap]:
    """The gaps a broker has written. Raises: OSError before it has ended."""
    return [Gap(*map(float, line.split())) for line in path.read_text().splitlines()]


@dataclass(slots=True, kw_only=True)
class WatchedBroker(BrokerProcess):
    """A broker process whose gaps can be read after it has stopped."""

    @property
    def gaps_path(self) -> Path:
        """Where the gaps of the last run are."""
        return self.data.parent / f"{self.data.name}.gaps"

    def command(self) -> list[str]:
        """As `BrokerProcess`, through this module."""
        python, _, _, *rest = super(WatchedBroker, self).command()
        return [python, "-m", "tests.kit.stall_watch", str(self.gaps_path), *rest]

    @contextmanager
    def watched(self) -> Iterator[list[Gap]]:
        """Run until the block ends, then stop; the list has the gaps of the block afterwards."""
        gaps: list[Gap] = []
        self.start()
        began = time.monotonic()
        try:
            yield gaps
        except BaseException:
            self.kill()
            raise
        ended = time.monotonic()
        code = self.stop()
        assert code == 0, f"stopped with {code}:\n{self.child.errors()}"
        gaps += [gap for gap in gaps_in(self.gaps_path) if began <= gap.at_s <= ended]


async def _watch(path: Path) -> NoReturn:
    gaps: list[Gap] = []
    fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    try:
        robbed_ns = _ready_ns(fd)
        slept_from = time.monotonic()
        while True:
            await trio.sleep(TICK_S)
            now = time.monotonic()
            late_ms = (now - slept_from - TICK_S) * 1_000
            if late_ms > KEEP_MS:
                gaps.append(Gap(now, late_ms, (_ready_ns(fd) - robbed_ns) / 1e6))
            robbed_ns = _ready_ns(fd)
            slept_from = time.monotonic()
    finally:
        lines = [f"{at:.6f} {late:.3f} {robbed:.3f}\n" for at, late, robbed in gaps]
        _keep(path, "".join(lines))


def _keep(path: Path, text: str) -> None:
    path.write_text(text)


def _ready_ns(fd: int) -> int:
    """How long this thread has waited for a core so far."""
    return int(os.pread(fd, 100, 0).split()[1])


def main() -> None:
    """Patch the ticker and run the command line."""
    from aerobee.cli.main import main as aerobee
    from broker import parts
    from broker.services.statistics import LoopTicker
    from store.services import cleanup

    path = Path(sys.argv.pop(1))

    class BothTickers(LoopTicker):
        async def run(
            self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        ) -> NoReturn:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch, path)
                await super().run(task_status=task_status)
            raise AssertionError("tickers never end")

    setattr(cleanup, "FIRST_PASS_S", FIRST_PASS_S)  # noqa: B010 - a constant, elsewhere
    setattr(parts, "LoopTicker", BothTickers)  # noqa: B010 - a name it only imports
    aerobee()


if __name__ == "__main__":
    main()
