"""The whole comparison.

    python -m bench.beside_java [--quick] [--only WORDS] [--result FILE] [--alone] [--keep]
        [--runs 5] [--seconds 2.5] [--minutes 25] [--stall-seconds 60] [--note WORDS]
        [--python PATH]… [--strangers]

First the floor of the machine (`bench.floor`), then every row of the table: all brokers are up,
and one is loaded while the others idle, in alternating turns; medians. Each row has fresh brokers,
and each of them 10 s of the row's load before its first turn; with `--keep` they stay for all rows
of a kind, and Java's compiler has had minutes. It prints the table as it goes, in Markdown, and
writes FILE after every row from the first with figures on; after `--minutes` the rest is left out
and said so. `--quick` keeps the brokers, too, and takes shorter turns and fewer, for a look in 8
minutes. `--strangers` adds Redis Streams and NATS JetStream to the rows of plain sends.

`--python` names the interpreter for Aerobee's broker (with its dependencies installed) and for the
floor's server; given several times, each of the others is a side of its own and held to the same
targets, in the rows about sends, pulls, pops, flows and due messages. Where a compiled build is
installed for it (`make compiled`), the broker is that, and its name says so.
`python -m bench.plots FILE` draws what is in FILE, `python -m bench.tables FILE` prints the tables
of bench/README.md from it.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from bench import floor
from bench.arguments import chosen, interpreter, positive, program, whole
from bench.beside_java import due, flow, lives, sends, sizes, strain
from bench.beside_java.figures import OURS, STRANGERS, Report, Row
from bench.beside_java.sides import Plan
from bench.load import build
from bench.machine import describe, interpreter_of
from tests.kit.broker_process import is_compiled

GROUPS = (
    sends.async_flush,
    sends.sync_flush,
    flow.end_to_end,
    lives.ready,
    sizes.sizes,
    strain.overload,
    strain.loop_stall,
    lives.recovery,
    due.due_at_once,
)
QUICK_MINUTES = 8


def interpreters(paths: list[str]) -> dict[str, str]:
    """Name of the side → interpreter; the first is the one that the targets speak of."""
    names = [OURS, *(f"python-{version_of(path)}" for path in paths[1:])]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        names = [f"{name}-{at}" if name in twice else name for at, name in enumerate(names, 1)]
    return dict(zip(names, paths or [sys.executable], strict=True))


def version_of(python: str) -> str:
    """As `3.13.0`, or `3.13.0-compiled` where a compiled build is installed."""
    code = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip() + ("-compiled" if is_compiled(python) else "")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.beside_java")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", metavar="WORDS", help="rows with these in their name")
    parser.add_argument("--result", type=Path, default=Path(".cache/beside_java.json"))
    parser.add_argument("--runs", type=whole)
    parser.add_argument("--seconds", type=positive)
    parser.add_argument("--minutes", type=positive)
    parser.add_argument("--alone", action="store_true", help="without the Java broker")
    parser.add_argument("--strangers", action="store_true", help="Redis and NATS too, for scale")
    parser.add_argument("--keep", action="store_true", help="no fresh brokers for each row")
    parser.add_argument("--python", type=interpreter, action="append", default=[], metavar="PATH")
    parser.add_argument("--stall-seconds", type=positive)
    parser.add_argument("--note", default="", help="goes into the file and the plots")
    return parser.parse_args()


class Silent(Report):
    """Keeps rows and writes nothing."""

    def add(self, row: Row) -> None:
        """Keep it."""
        self.rows.append(row)


def rows_of(plan: Plan) -> list[Row]:
    """Every row of a comparison with its targets, and nothing measured."""
    report = Silent(Path(), {})
    for group in GROUPS:
        group(replace(plan, ends_at=time.monotonic() - 1, only="", keep=False), report)
    return report.rows


def plan_of(given: argparse.Namespace, directory: Path) -> Plan:
    """The plan of the command line, with the defaults of a whole or a quick comparison."""
    quick = given.quick
    minutes = given.minutes or (QUICK_MINUTES if quick else 25)
    return Plan(
        runs=given.runs or (2 if quick else 5),
        seconds=given.seconds or (1.0 if quick else 2.5),
        warm_up_s=4.0 if quick else 10.0,
        quick=quick,
        java=not given.alone and bool(shutil.which("java")),
        pythons=interpreters(given.python),
        directory=directory,
        ends_at=time.monotonic() + 60 * minutes,
        only=given.only,
        strangers=STRANGERS if given.strangers else (),
        keep=given.keep or quick,
        stall_s=given.stall_seconds or (10.0 if quick else 60.0),
    )


@program
def main() -> None:
    """Every group of rows, one after the other."""
    given = arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.monotonic()
    given.result.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-") as directory:
        plan = plan_of(given, Path(directory))
        chosen(plan.only, [row.name for row in rows_of(plan)])
        build()
        machine = describe(plan.pythons[OURS])
        others = {name: interpreter_of(plan.pythons[name]) for name in plan.others}
        print(
            machine, *(f"{name}: {other}" for name, other in others.items()), sep="\n", flush=True
        )
        facts: dict[str, Any] = {
            "note": given.note,
            "machine": machine,
            "date": datetime.now(UTC).date().isoformat(),
            "others": others,
            "runs": plan.runs,
            "seconds": plan.seconds,
        }
        facts["floor"] = floor.measure(plan.place(), python=plan.pythons[OURS])
        print(floor.lines(facts["floor"]), flush=True)
        report = Report(given.result, facts, plan.others)
        report.begin()
        for group in GROUPS:
            group(plan, report)
        report.facts["took_s"] = round(time.monotonic() - began)
        report.save()
    print(f"\n{report.verdict()}, {time.monotonic() - began:.0f} s, results in {given.result}")


if __name__ == "__main__":
    main()
