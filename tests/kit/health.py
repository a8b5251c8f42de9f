"""How a broker process is, seen from outside: its log, its metrics, its descriptors, its memory."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.broker_process import BrokerProcess

SCRAPE_WITHIN_S = 30.0
LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def metrics_of(
    broker: BrokerProcess, within_s: float = SCRAPE_WITHIN_S
) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each series. Raises: OSError."""
    url = f"http://127.0.0.1:{broker.ports.metrics}/metrics"
    with urllib.request.urlopen(url, timeout=within_s) as page:
        text = page.read().decode()
    for line in text.splitlines():
        if not line.startswith("#") and (found := LINE.fullmatch(line)):
            yield found[1], dict(LABEL.findall(found[2] or "")), float(found[3])


def probed(url: str) -> dict[str, Any]:
    """The answer of a probe, with its status as `code`. Raises: OSError."""
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            return {"code": page.status, **json.load(page)}
    except urllib.error.HTTPError as error:
        with error:
            return {"code": error.code, **json.load(error)}


def waiting_in_pools(broker: BrokerProcess) -> dict[str, int]:
    """Pool → requests read and not answered, of those that have any."""
    return {
        labels["processor"]: int(value)
        for name, labels, value in metrics_of(broker)
        if name == "rocketmq_processor_watermark" and value
    }


def open_descriptors(pid: int) -> Counter[str]:
    """What its descriptors lead to: `socket`, `pipe`, or the path of a file.

    Those in reserve, which lead to nothing, are left out.
    """
    found: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            found[target.partition(":")[0] if ":[" in target else target] += 1
    del found[os.devnull]
    return found


def cpu_s(pid: int | str) -> float:
    """User and system time so far of a process, or of a thread as `PID/task/TID`."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waited_s(pid: int) -> float:
    """How long its first thread, which has the loop, was ready to run and others had the cores.

    What it waited for a core is the test machine's doing, and no time that a test may hold against
    it.
    """
    return float(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def rss_anon(pid: int | str) -> int:
    """Private memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no RssAnon")


def events(log: str) -> Iterator[dict[str, Any]]:
    """The lines of a log. Raises: AssertionError for what is no event, such as a traceback."""
    for line in log.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        fine = isinstance(event, dict) and "event" in event
        assert fine, f"no event in the log: {line[:300]}"
        yield event


def slowness() -> float:
    """How many times longer than usual a call takes on this machine now; 1 if it is no slower.

    What is limited in CPU time is limited in work: a host that lends its cores to others does less
    of it in a millisecond.
    """
    middle = median(_calls_s() for _ in range(30))
    return max(1.0, middle / CALLS / USUAL_CALL_S)


CALLS = 100_000
USUAL_CALL_S = 28e-9


def _calls_s() -> float:
    began = time.thread_time()
    for _ in range(CALLS):
        _nothing()
    return time.thread_time() - began


def _nothing() -> None:
    """A call."""
