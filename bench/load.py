"""The load generator, and what one run of it says.

`bench/rawload` (Go) speaks raw frames, so that a broker is measured and not a client. It loads in
two ways, a goroutine for each connection or, with `-pace`, one thread over one epoll object, so
that a ratio of two brokers is not a habit of either. Both print the same line of figures.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache"
BINARY = CACHE / "rawload"

ERRORS_MAX = 0.05
"""Of the requests; an overloaded machine makes either broker answer "busy" now and then."""
WARM_UP_S = 10.0
"""Java's compiler needs it; before that it is far slower than after."""
PATIENCE_S = 60.0

DEFAULT_SIZES: dict[str, object] = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": None,
    "mappedFileSizeConsumeQueue": None,
    "maxHashSlotNum": None,
    "maxIndexNum": None,
}
"""The tests' small files are no measure of anything; the name is that of the Java broker."""

FIGURES = re.compile(
    r"msgs/s=(?P<rate>[\d.]+) p50=(?P<p50>[\d.]+)ms p99=(?P<p99>[\d.]+)ms p999=(?P<p999>[\d.]+)ms "
    r"max=(?P<max>[\d.]+)ms cpu_us/msg=(?P<cpu>[\d.]+) cores=(?P<cores>[\d.]+) "
    r"rss_anon_mb=(?P<rss>\d+) errs=(?P<errors>\d+)"
)

SENDS = ("-m", "produce", "-c", "64", "-d", "1", "-s", "128")


@dataclass(frozen=True, slots=True)
class Case:
    """One load: its name, what the generator is told, and whether the broker flushes at once."""

    name: str
    options: tuple[str, ...]
    sync: bool = False
    access: Mapping[str, object] | None = None
    """Settings of access control; its account is `bench.broker.NAME`."""


class LoadFailed(Exception):
    """The broker answered too much with errors, or the generator ended early."""


class Figures(dict[str, float]):
    """The figures of one run of a generator: `rate` in messages/s, times in ms, `cpu` in µs."""


def build() -> Path:
    """Compile the load generator once. Raises: SystemExit without Go."""
    if not shutil.which("go"):
        raise SystemExit("the benches need Go for their load generator (bench/rawload)")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "bench" / "rawload"
    subprocess.run(["go", "build", "-o", str(BINARY), "."], cwd=source, check=True)
    return BINARY


def load(
    address: str,
    pid: int,
    case: Case,
    seconds: float,
    *,
    warm_up_s: float = WARM_UP_S,
    errors_max: float = ERRORS_MAX,
) -> Figures:
    """Run one case. Raises: LoadFailed, also when more than this share was answered by errors."""
    times = ("-W", str(warm_up_s), "-T", str(seconds))
    command = [str(BINARY), "-a", address, "-pid", str(pid), *times, *case.options]
    limit_s = warm_up_s + seconds + PATIENCE_S
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=limit_s
    )
    found = FIGURES.search(done.stdout)
    if not found:
        raise LoadFailed(f"{case.name}: {done.stdout.strip()} {done.stderr.strip()[-500:]}")
    figures = Figures({name: float(value) for name, value in found.groupdict().items()})
    if figures["errors"] > errors_max * figures["rate"] * seconds:
        raise LoadFailed(f"{case.name}: {done.stdout.strip()}")
    return figures
