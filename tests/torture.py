"""Campaigns at full size, and the record of it.

python -m tests.torture                      every campaign, at the size of a recorded run
python -m tests.torture --only R2 --cycles 100 --seed 7
python -m tests.torture --only R1 --minutes 10     at least ten minutes, and at least a cycle

Prints seeds, counts and durations, keeps them in docs/torture.md (the rows of campaigns that did
not run stay as they are), and ends with 1 if one failed. A failure prints how to repeat its cycle.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import subprocess
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
import structlog
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.machine import describe
from tests.faults.campaigns import CAMPAIGNS
from tests.kit.campaign import Campaign, Outcome, Run, execute
from tests.kit.virtual_time import let_threads_finish

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "torture.md"
HEAD = """# Torture

What `make torture` did last, campaign by campaign: faults injected into the real broker and its
store. `make test` runs the same campaigns, small. Everything random comes from the seed, so that a
cycle which failed can be repeated by itself: the failure says how. Written by
`python -m tests.torture`; `make torture ONLY=R2 CYCLES=100 SEED=7` runs one of them again.

| | campaign | executed | result | seen | took | seed | when, and with what |
|---|---|---|---|---|---|---|---|
"""


class Shown:
    """The lines of a campaign that runs."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self.task = self.progress.add_task("", total=None)

    def heard(self, run: Run) -> None:
        """A cycle is over."""
        counts = " ".join(f"{name} {count:,}" for name, count in run.counts.items())
        words = f"{run.key} {run.executed:,} of {run.wanted:,}: {counts}"
        self.progress.update(self.task, description=words)
        if not self.console.is_terminal and run.executed % max(1, run.wanted // 20) == 0:
            self.console.print(words)


def torture(
    campaign: Campaign, cycles: int, seed: int, first: int, minutes: float, console: Console
) -> Outcome | None:
    """Run it in a directory of its own, kept when it fails; None when it cannot run here."""
    directory = Path(tempfile.mkdtemp(prefix=f"torture-{campaign.key}-"))
    console.print(
        f"[bold]{campaign.key}[/] {campaign.title}: {cycles:,} {campaign.unit}, seed {seed}"
    )
    shown = Shown(console)
    try:
        with shown.progress:
            outcome = execute(
                campaign, cycles, seed, directory, first=first, minutes=minutes, heard=shown.heard
            )
    except pytest.skip.Exception as skipped:
        console.print(f"{campaign.key} skipped: {skipped}")
        shutil.rmtree(directory)
        return None
    if outcome.failure is None:
        shutil.rmtree(directory)
    else:
        console.print("".join(traceback.format_exception(outcome.failure)), markup=False)
        console.print(f"{campaign.key} FAILED; its files are in {directory}", style="red")
    return outcome


def row(outcome: Outcome) -> str:
    """One line of the report."""
    took_s = outcome.duration_s
    campaign = outcome.campaign
    return " | ".join(
        [
            f"| {campaign.key}",
            campaign.title,
            f"{outcome.executed:,} {campaign.unit}",
            "passed" if outcome.failure is None else "**failed**",
            outcome.summary(),
            f"{took_s:,.0f} s, {took_s / max(1, outcome.executed):.2f} s each",
            str(outcome.seed),
            f"{datetime.now(UTC):%Y-%m-%d}, {commit()}, {describe()} |",
        ]
    )


def commit() -> str:
    """The commit that ran, and whether that is all that ran: rows of the report are not code."""
    changed = git("status", "--porcelain", "--", ".", f":!{REPORT.relative_to(ROOT)}")
    head = git("describe", "--always", "--exclude=*")
    return f"{head}-dirty" if head and changed else head or "no commit"


def git(*arguments: str) -> str:
    """What git says in the project; empty where there is none."""
    done = subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.stdout.strip()


def report(old: str, outcomes: list[Outcome]) -> str:
    """The report with these rows in the place of older ones, in the order of the campaigns."""
    rows = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("| ")}
    rows |= {outcome.campaign.key: row(outcome) for outcome in outcomes}
    return HEAD + "".join(f"{rows[one.key]}\n" for one in CAMPAIGNS if one.key in rows)


def table(outcomes: list[Outcome]) -> Table:
    """What people see at the end."""
    shown = Table("", "executed", "result", "seconds", "each", "seed", "seen")
    for one in outcomes:
        shown.add_row(
            one.campaign.key,
            f"{one.executed:,} {one.campaign.unit}",
            "[green]passed" if one.failure is None else "[red]FAILED",
            f"{one.duration_s:.1f}",
            f"{one.duration_s / max(1, one.executed):.2f}",
            str(one.seed),
            one.summary(),
        )
    return shown


@click.command(help=__doc__)
@click.option("--only", help="Campaigns to run, by key, with commas between.")
@click.option("--cycles", type=click.IntRange(min=1), help="Cycles of each; else a recorded run's.")
@click.option("--minutes", type=float, default=0.0, help="Go on for at least so long, each.")
@click.option("--seed", type=int, help="Of all that is random; else a new one.")
@click.option("--first", type=int, default=0, help="Number of the first cycle.")
@click.option("--report/--no-report", "keep", default=True, help="Write docs/torture.md.")
def main(
    only: str | None, cycles: int | None, minutes: float, seed: int | None, first: int, keep: bool
) -> None:
    """Run campaigns, one after the other."""
    console = Console()
    # What brokers in this process have to say belongs to their cycles, and nobody reads it.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    let_threads_finish()
    keys = only.split(",") if only else [one.key for one in CAMPAIGNS]
    unknown = set(keys) - {one.key for one in CAMPAIGNS}
    if unknown:
        raise click.UsageError(f"no such campaign: {', '.join(sorted(unknown))}")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    console.print(describe())
    outcomes: list[Outcome] = []
    for campaign in (one for one in CAMPAIGNS if one.key in keys):
        size = cycles or (1 if minutes else campaign.t2)
        outcome = torture(campaign, size, seed, first, minutes, console)
        if outcome is None:
            continue
        outcomes.append(outcome)
        if keep:
            old = REPORT.read_text(encoding="utf-8") if REPORT.exists() else ""
            REPORT.write_text(report(old, outcomes), encoding="utf-8")
    console.print(table(outcomes))
    if any(outcome.failure is not None for outcome in outcomes):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
