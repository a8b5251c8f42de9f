"""The longest stall of the loop in a mixed run, and four times the peak offered."""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from aerobee.remoting.wire.codes import ResponseCode
from bench.beside_java.figures import AT_LEAST, AT_MOST, OURS, Row, Target
from bench.beside_java.sides import DEFAULTS, attempt
from bench.load import BINARY
from bench.overload import measure as measure_overload
from bench.timers import send_timers
from tests.kit.broker_process import BrokerProcess
from tests.kit.crowd import Crowd, Member
from tests.kit.raw_client import RawConnection, batch_body, send_fields
from tests.kit.stall_watch import WatchedBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.beside_java.figures import Report
    from bench.beside_java.sides import Plan

SEND_BATCH = 320
TOPIC = "Mixed"
QUEUES = 4
SENDS_PER_S = 3_000
TINY = 40_000
TINY_EVERY_S = 0.5
READERS = 40
TIMERS, TIMERS_AHEAD_S = 500, 3
FIRST_S = 2.0
"""Not judged: the first segments and queues are made."""
TIMES, CONNECTIONS = 4, 64
OVERLOADS, OVERLOAD_S = 3, 8.0
"""Long enough that what waits has reached its limit: an answer counts for three seconds."""


def loop_stall(plan: Plan, report: Report) -> None:
    """The row of it."""
    row = Row(
        f"longest loop stall in a mixed run of {plan.stall_s:.0f} s",
        (Target("stall_ms", AT_MOST, 20, over=""),),
    )
    attempt(plan, report, row, partial(mixed_run, plan))


def mixed_run(plan: Plan, row: Row) -> None:
    """Sends, batches of tiny messages, held pulls that are woken, timers, all at once."""
    place = plan.place()
    broker = WatchedBroker(data=place / "data", settings=DEFAULTS, python=plan.pythons[OURS])
    over = threading.Event()
    with ExitStack() as stack:
        gaps = stack.enter_context(broker.watched())
        crowd = stack.enter_context(Crowd(broker.address, log=place / "crowd.log"))
        with RawConnection(broker.address) as connection:
            connection.call(SEND_BATCH - 10, send_fields(TOPIC, 0), b"first")
        crowd.open([Member(f"10.1.0.1@{n}", f"g{n}", TOPIC, (n % QUEUES,)) for n in range(READERS)])
        for work in (tiny_batches, timers):
            stack.enter_context(beside(work, broker.address, over))
        command = [str(BINARY), "-a", broker.address, "-m", "produce", "-c", "16", "-t", TOPIC]
        command += ["-q", str(QUEUES), "-r", str(SENDS_PER_S), "-W", "0", "-T", str(plan.stall_s)]
        began = time.monotonic()
        subprocess.run(command, capture_output=True, check=True, timeout=plan.stall_s + 60)
        over.set()
    judged = [gap for gap in gaps if gap.at_s > began + FIRST_S]
    late = [gap.stall_ms for gap in judged]
    found = {
        "stall_ms": max(late, default=0.0),
        "above_20": sum(ms > 20 for ms in late),
        "late_ms": max((gap.late_ms for gap in judged), default=0.0),
    }
    row.add(OURS, found)


class beside:  # noqa: N801 - a context manager
    """Work in a thread while the block runs."""

    def __init__(
        self, work: Callable[[str, threading.Event], None], address: str, over: threading.Event
    ) -> None:
        self.over = over
        self.thread = threading.Thread(target=work, args=(address, over), daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join(timeout=30)


def tiny_batches(address: str, over: threading.Event) -> None:
    """A batch of 40,000 messages of one byte, twice a second."""
    body = batch_body({b"x": ""}) * TINY
    queue = 0
    with RawConnection(address, timeout_s=30) as connection:
        while not over.wait(TINY_EVERY_S):
            queue = (queue + 1) % QUEUES
            answer = connection.call(SEND_BATCH, send_fields("Tiny", queue, m=True), body)
            # Where others have the machine, it waited too long: the next one may not.
            assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY), answer


def timers(address: str, over: threading.Event) -> None:
    """500 timers a second, due three seconds later."""
    while not over.wait(1.0):
        send_timers(address, [int((time.time() + TIMERS_AHEAD_S) * 1000)] * TIMERS)


def overload(plan: Plan, report: Report) -> None:
    """The row of it."""
    targets = (Target("good", AT_LEAST, 0.8, over=""),)
    row = Row(f"{TIMES} times the peak offered", targets)
    attempt(plan, report, row, partial(offered, plan))


def offered(plan: Plan, row: Row) -> None:
    """A fresh broker for each pair of closed and open loop."""
    python = plan.pythons[OURS]
    for _ in range(1 if plan.quick else OVERLOADS):
        data: Path = plan.place() / "data"
        with BrokerProcess(data=data, settings=DEFAULTS, python=python) as broker:
            seen = measure_overload(
                broker, times=TIMES, seconds=OVERLOAD_S, connections=CONNECTIONS
            )
        row.add(OURS, {"good": seen.goodput, "peak": seen.closed["msgs/s"]})
