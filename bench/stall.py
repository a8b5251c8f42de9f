"""How long the loop ever stands still while segments roll, clean-up deletes and a reader is cold.

    python -m bench.stall [--seconds 20] [--pause-ms 2] [--producers 4] [--set key=value]…

A real broker on an ext4 of its own, on a loop device whose reads are slowed down: an earlier run
filled the log, the cache is emptied, a consumer reads from the begin, producers send, segments are
small and the disk counts as full at 30 %, so the oldest go. A ticker in its loop looks every 5 ms;
what is counted is by how much it came late, without the time another process had its core. Prints
the longest of them with those of the producers. Needs root, loop devices and cgroup v1.
`tests/faults/test_stall.py` holds the limit.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.arguments import positive, positive_or_0, program, setting, whole
from bench.machine import describe
from tests.kit.slow_disk import slow_disk
from tests.kit.stall_watch import WatchedBroker
from tests.kit.steady import Past, Producers, fill, p99_ms

MiB = 1 << 20
DISK_BYTES = 192 * MiB
PAST_BYTES = 64 * MiB
READ_BPS = 4 * MiB
BODY_BYTES = 4_096
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 * MiB,
    "cleanResourceInterval": 500,
    "deleteCommitLogFilesInterval": 0,
    "diskSpaceCleanForciblyRatio": 30,
}


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run."""

    stalls_ms: list[float]
    """All gaps of the loop above 1 ms, the longest first."""
    latencies_ms: list[float]
    rolled: int
    deleted: int
    past_bytes: int
    cold_pull_ms: float

    @property
    def longest_ms(self) -> float:
        """p100."""
        return self.stalls_ms[0] if self.stalls_ms else 0.0

    def line(self) -> str:
        """All of it in words."""
        sends = sorted(self.latencies_ms)
        return (
            f"loop: longest {self.longest_ms:.1f} ms, next {_few(self.stalls_ms[1:6])} · "
            f"{len(sends)} sends: p99 {p99_ms(sends):.1f} ms, "
            f"p999 {sends[int(len(sends) * 0.999)]:.1f} ms, longest {sends[-1]:.1f} ms · "
            f"{self.rolled} rolls, {self.deleted} deletions, {self.past_bytes / MiB:.1f} MiB of "
            f"the past, slowest pull {self.cold_pull_ms:.0f} ms"
        )


def measure(
    directory: Path,
    seconds: float,
    *,
    producers: int = 2,
    pause_s: float = 0.002,
    settings: dict[str, object] | None = None,
) -> Report:
    """One run of so many seconds."""
    with slow_disk(directory, size_bytes=DISK_BYTES) as disk:
        log = directory / "broker.log"
        given = SETTINGS | (settings or {})
        broker = WatchedBroker(data=disk.at / "data", settings=given, log_path=log)
        with broker:
            fill(broker.address, "past", size_bytes=PAST_BYTES, body_bytes=BODY_BYTES)
            assert broker.stop() == 0
        earlier = len(log.read_text())
        disk.empty_cache()
        with broker.watched() as gaps:
            disk.limit_reads(READ_BPS)
            with (
                Past(broker.address, "past") as past,
                Producers(
                    broker.address, "now", count=producers, body_bytes=BODY_BYTES, pause_s=pause_s
                ) as sent,
            ):
                broker.let_run(seconds)
            disk.limit_reads(0)
    events = log.read_text()[earlier:]
    return Report(
        stalls_ms=sorted((gap.stall_ms for gap in gaps), reverse=True),
        latencies_ms=sent.latencies_ms,
        rolled=events.count("commit_log.rolled"),
        deleted=events.count("cleanup.file_deleted"),
        past_bytes=past.bytes,
        cold_pull_ms=past.slowest_ms,
    )


def _few(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values) or "none"


@program
def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(prog="python -m bench.stall")
    parser.add_argument("--seconds", type=positive, default=20)
    parser.add_argument("--pause-ms", type=positive_or_0, default=2)
    parser.add_argument("--producers", type=whole, default=4)
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    print(describe())
    with tempfile.TemporaryDirectory(prefix="aerobee-stall-") as directory:
        report = measure(
            Path(directory),
            arguments.seconds,
            producers=arguments.producers,
            pause_s=arguments.pause_ms / 1_000,
            settings=dict(arguments.set),
        )
    print(report.line())


if __name__ == "__main__":
    main()
