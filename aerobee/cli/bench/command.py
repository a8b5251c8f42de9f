"""Commands `aerobee bench produce|consume|roundtrip|fanout|idle`."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.connection import Connection, connection_options, tell_outages
from aerobee.cli.lazy import CommandGroup
from aerobee.cli.options import COUNT, RATE, SECONDS_MAX, SIZE_MAX, Number
from aerobee.cli.output import Output, echo, output_options, progress
from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.cli.bench.load import Load, Outcome

TOPIC = "aerobee_bench"
QUEUES = 8
SIZE_MIN = 32
"""The size of the mark in a body."""


@click.group(cls=CommandGroup, short_help="Measure sending and consuming.")
def bench() -> None:
    """Measure how fast and how late messages are, and whether any is lost, doubled or reordered.

    With --rate messages are sent by the clock, whatever was answered, and latencies count from the
    time at which a message was to be sent.
    """


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all benches; the command gets a `load`."""

    @wraps(command)
    def run(*args: Any, **named: Any) -> Any:
        import os
        from dataclasses import fields

        from aerobee.cli.bench.load import Load

        names = {field.name for field in fields(Load)} & named.keys()
        chosen = {name: named.pop(name) for name in names}
        load = Load(run=int.from_bytes(os.urandom(4), "big"), **chosen)
        return command(*args, load=load, **named)

    topic = click.option("--topic", default=TOPIC, show_default=True, help="Made where missing.")
    count = click.option("--count", type=COUNT, help="So many messages.")
    duration = click.option(
        "--duration", "duration_s", type=Number(0.1, SECONDS_MAX), default=10.0, show_default=True,
        help="Seconds, where no --count is given.",
    )  # fmt: skip
    return topic(count(duration(connection_options(output_options(run)))))


def sending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of benches that send."""
    for option in reversed(
        (
            click.option("--rate", type=RATE, help="Per second."),
            click.option(
                "--size",
                type=click.IntRange(SIZE_MIN, SIZE_MAX),
                default=128,
                show_default=True,
                help="Bytes of a body.",
            ),
            click.option(
                "--workers",
                type=click.IntRange(1, 10_000),
                default=64,
                show_default=True,
                help="Senders; each waits for its answer before the next send.",
            ),
            click.option(
                "--warmup",
                "warmup_s",
                type=Number(0, SECONDS_MAX),
                default=0.0,
                help="Seconds at the start whose latencies do not count.",
            ),
        )
    ):
        command = option(command)
    return command


consumers_option = click.option(
    "--consumers",
    type=click.IntRange(1, 1_000),
    default=4,
    show_default=True,
    help="How many consumers there are.",
)


@bench.command()
@sending_options
@load_options
def produce(load: Load, connection: Connection, output: Output) -> int:
    """Measure sends: how many, and how long until the broker answers."""
    outcome = run_bench("produce", load, connection)
    return report(outcome, output, outcome.sending(load.size), send_latency=True)


@bench.command()
@load_options
def consume(load: Load, connection: Connection, output: Output) -> int:
    """Measure reading what lies in the topic, from its first message on."""
    outcome = run_bench("consume", load, connection)
    return report(outcome, output, {"seconds": outcome.seconds, **outcome.receiving()})


@bench.command()
@sending_options
@load_options
def roundtrip(load: Load, connection: Connection, output: Output) -> int:
    """Measure from the send to the consumer, and check that all of it comes, once and in order."""
    outcome = run_bench("roundtrip", load, connection)
    return report(outcome, output, whole(outcome, load), send_latency=True, receive_latency=True)


@bench.command()
@sending_options
@consumers_option
@load_options
def fanout(load: Load, connection: Connection, output: Output) -> int:
    """The same with several consumers, of which each gets every message."""
    outcome = run_bench("roundtrip", load, connection)
    return report(outcome, output, whole(outcome, load), send_latency=True, receive_latency=True)


@bench.command()
@consumers_option
@load_options
def idle(load: Load, connection: Connection, output: Output) -> int:
    """Measure what waiting costs this process: its CPU time and its memory."""
    outcome = run_bench("idle", load, connection)
    figures = {
        "consumers": load.consumers,
        "seconds": outcome.seconds,
        "cpu_percent": 100 * outcome.cpu_s / outcome.seconds,
        "memory_mib": private_mib(),
    }
    return report(outcome, output, figures)


def whole(outcome: Outcome, load: Load) -> dict[str, Any]:
    """The figures of sends and receipts."""
    return outcome.sending(load.size) | outcome.receiving() | outcome.checked()


def run_bench(kind: str, load: Load, connection: Connection) -> Outcome:
    """Run a bench, by Ctrl-C a shorter one."""
    import anyio

    from aerobee.cli.bench import runs
    from aerobee.cli.bench.load import Outcome

    tell_outages()
    with connection.admin() as admin:
        if load.topic not in admin.topics():
            admin.create_topic(load.topic, queues=QUEUES)
    outcome = Outcome()
    with progress(load.count, kind) as advance:
        try:
            anyio.run(getattr(runs, kind), load, outcome, connection, advance)
        except KeyboardInterrupt:
            echo("aerobee: stopped; this is what was measured until then", err=True)
    return outcome


def report(
    outcome: Outcome,
    output: Output,
    figures: dict[str, Any],
    *,
    send_latency: bool = False,
    receive_latency: bool = False,
) -> int:
    """Print the figures; the exit code says whether anything failed or was lost."""
    from aerobee.cli.border import DONE, FAILED, complain

    latencies = {
        name: histogram.in_ms()
        for name, histogram, wanted in (
            ("send_latency", outcome.send_latency, send_latency),
            ("receive_latency", outcome.receive_latency, receive_latency),
        )
        if wanted
    }
    if output.for_programs:
        output.record(figures | latencies)
    else:
        output.record(figures)
        output.rows({"of": name, **values} for name, values in latencies.items())
    for failed in outcome.failed.values():
        complain(f"{counted(failed.times, 'send')} failed: {failed.text}")
    if outcome.unsent:
        unsent = counted(outcome.unsent, "message was", "messages were")
        complain(f"{unsent} not sent: the rate was not reached")
    return FAILED if outcome.failures or outcome.unsent or outcome.lost else DONE


def private_mib() -> float | None:
    """The memory of this process; None if the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None
