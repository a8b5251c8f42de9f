"""Produce and consume at once with the official Java client, and how old a message is on arrival.

The client is `tests/interop/java/Flow.java`: 64 threads that send synchronously, as RocketMQ's own
benchmark does, but at a fixed rate, and a push consumer. One JVM for each broker, same cores.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.beside_java.figures import AT_MOST, Row, Target
from bench.beside_java.sides import attempt, standing, take_turns
from bench.java_peer import VERSION
from tests.kit.health import cpu_s
from tests.kit.java import OPENS, toolkit
from tests.kit.process import Child

if TYPE_CHECKING:
    from bench.beside_java.figures import Report, Turn
    from bench.beside_java.sides import Plan, Side

RATE = 10_000
TOPIC = "Flow"
JVM = ("-server", "-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
ANSWER_WITHIN_S = 60.0
ALL_BUT = 0.999
"""Fewer than these of the messages is no measurement."""


def end_to_end(plan: Plan, report: Report) -> None:
    """The row of it; needs Java for the client, whatever is measured."""
    row = Row(
        f"produce and push-consume at once, {RATE:,}/s, Java client",
        (Target("p99", AT_MOST, 0.7), Target("p50", AT_MOST), Target("cpu", AT_MOST)),
    )
    attempt(plan, report, row, partial(measure, plan))


def measure(plan: Plan, row: Row) -> None:
    """Both brokers with a client each, alternating."""
    if not shutil.which("java"):
        raise FileNotFoundError("java is not installed")
    with ExitStack() as stack:
        sides = stack.enter_context(standing(plan))
        clients: dict[str, Child] = {}
        for side in sides:
            client = stack.enter_context(client_of(side))
            clients[side.name] = client
            client.read_until("ready", within_s=ANSWER_WITHIN_S)
            ask(client, plan.warm_up_s, 0.5)

        def one(side: Side) -> Turn:
            before = cpu_s(side.pid)
            turn = ask(clients[side.name], 1.0, plan.seconds)
            sent = RATE * (1.0 + plan.seconds)
            return turn | {"cpu": (cpu_s(side.pid) - before) / sent * 1e6}

        take_turns(plan, sides, row, one)


def client_of(side: Side) -> Child:
    """The JVM with the client, connected by the name server of its broker."""
    tools = toolkit(VERSION)
    home = Path(tempfile.mkdtemp(dir=side.broker.data.parent))
    places = (f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}/logs")
    path = f"{tools.classes}:{tools.jars}/*"
    command = ["java", *JVM, *OPENS, *places, "-cp", path, "Flow"]
    return Child([*command, side.broker.namesrv_address, TOPIC], log=home / "flow.log", at=home)


def ask(client: Child, warm_up_s: float, seconds: float) -> Turn:
    """One turn. Raises: AssertionError when messages did not come."""
    client.write_line(f"{RATE} {warm_up_s} {seconds}")
    line = client.read_line(within_s=warm_up_s + seconds + ANSWER_WITHIN_S)
    due, came, p50, p99, longest = map(float, line.split())
    assert came >= ALL_BUT * due, f"{came:,.0f} of {due:,.0f} messages came: {client.errors()}"
    return {"rate": came / seconds, "p50": p50, "p99": p99, "max": longest}
