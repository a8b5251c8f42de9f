"""Starts: ready on an empty directory, with 1,000 topics, and after a kill with 4 GiB of log.

Times run from the start of the process until it says that it is ready.
"""

from __future__ import annotations

import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.beside_java.figures import AT_MOST, Row, Target
from bench.beside_java.sides import attempt, standing
from bench.load import BINARY, Case, load
from tests.faults.scale import write_tables
from tests.kit.broker_process import BrokerProcess

if TYPE_CHECKING:
    from bench.beside_java.figures import Report
    from bench.beside_java.sides import Plan, Side

HUNDREDS = 20
"""Of `write_tables`: 1,000 topics of 8 queues, 400 groups."""
OVER_TOPICS = ("-m", "produce", "-c", "8", "-d", "32", "-t", "t", "-topics", "1000", "-q", "8")
START_WITHIN_S = 300.0
GiB = 1 << 30
RECORD_BYTES = 1_024 + 150
"""A body and what a record adds, without the length of its topic: not quite enough."""
FILL_S, AGAIN_S = 5.0, 2.0
FILLS_MAX = 60
JAVA_RUNS = 3
BATCHES = ("-m", "batch", "-c", "8", "-d", "4", "-s", "1024")


def start_s(side: Side) -> float:
    """Seconds until it says that it is ready."""
    words = "boot success" if not isinstance(side.broker, BrokerProcess) else "aerobee ready "
    began = time.monotonic()
    side.broker.launch().read_until(words, within_s=START_WITHIN_S)
    return time.monotonic() - began


def ready(plan: Plan, report: Report) -> None:
    """Both rows."""
    row = Row("ready from an empty directory", (Target("ready_s", AT_MOST, 0.4, over=""),))
    attempt(plan, report, row, partial(from_empty, plan))
    row = Row("ready with 1,000 topics × 8 queues", (Target("ready_s", AT_MOST, 0.8, over=""),))
    attempt(plan, report, row, partial(with_topics, plan))


def from_empty(plan: Plan, row: Row) -> None:
    """A new directory for each start of ours; Java's own first starts.

    A start before them compiles our modules, which an installation does.
    """
    for number in range(-1, plan.runs):
        with standing(plan, start=False, java=0 <= number < JAVA_RUNS) as sides:
            for side in sides:
                took_s = start_s(side)
                if number >= 0:
                    row.add(side.name, {"ready_s": took_s})
                side.broker.kill()


def with_topics(plan: Plan, row: Row) -> None:
    """A message in each of the 8,000 queues, a clean stop, a start."""
    with standing(plan, start=False, java=False) as sides:
        for side in sides:
            write_tables(side.broker.data, HUNDREDS)
            start_s(side)
            load(side.address, side.pid, Case("filling 1,000 topics", OVER_TOPICS), 2, warm_up_s=0)
            for _ in range(plan.runs):
                assert side.broker.stop() == 0
                row.add(side.name, {"ready_s": start_s(side)})
            side.broker.kill()


def recovery(plan: Plan, report: Report) -> None:
    """After a kill under load."""
    gib = 1 if plan.quick else 4
    row = Row(f"ready after a kill with {gib} GiB of log", (Target("ready_s", AT_MOST, 1.0),))
    attempt(plan, report, row, partial(after_kills, plan, log_bytes=gib * GiB))


def after_kills(plan: Plan, row: Row, log_bytes: int) -> None:
    """Fill the log, kill the broker while it takes batches, start it; again and again."""
    with standing(plan) as sides:
        for side in sides:
            fill(side, log_bytes)
        for _ in range(min(plan.runs, JAVA_RUNS)):
            for side in sides:
                kill_under_load(side)
                row.add(side.name, {"ready_s": start_s(side)})


def fill(side: Side, log_bytes: int) -> None:
    """Messages of 1 KiB until the log has so many bytes."""
    written = 0.0
    for _ in range(FILLS_MAX):
        seen = load(side.address, side.pid, Case("filling", BATCHES), FILL_S, warm_up_s=0)
        written += seen["rate"] * FILL_S * RECORD_BYTES
        if written > log_bytes:
            return
    raise AssertionError(f"{side.name} took only {written / GiB:.1f} GiB")


def kill_under_load(side: Side) -> None:
    """SIGKILL while the generator sends."""
    command = [str(BINARY), "-a", side.address, *BATCHES, "-W", "0", "-T", "60"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as running:
        time.sleep(AGAIN_S)
        side.broker.kill()
        running.kill()
