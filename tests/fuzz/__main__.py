"""Coverage-guided fuzzing of one target, or of all of them in turn.

    python -m tests.fuzz [--target NAME] [--seconds 60] [--corpus DIRECTORY]

Needs atheris (`pip install '.[fuzz]'`). The first finding of a target ends it: its traceback is
printed and its input is written into tests/fuzz/cases, where `make test` will find it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

RUNS = re.compile(r"Done (\d+) (?:runs )?in|stat::number_of_executed_units:\s*(\d+)")
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")
MEMORY_EVERY = 64
"""Of so many inputs one is tried with an eye on its memory, which is slow."""
INSTRUMENTED = (
    "aerobee.remoting.wire",
    "aerobee.store.format",
    "aerobee.store.recovery",
    "aerobee.broker.access",
    "aerobee.broker.config",
    "aerobee.broker.filters",
)
"""Whose branches guide the fuzzing; the whole product would take a minute to begin."""


def main() -> int:
    """Run, and print a line for each target. Exit code 1: something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--target", action="append")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("--corpus", type=Path, help="where inputs are kept for the next time")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        fuzz(arguments.inside, arguments.seconds, arguments.corpus)
        return 0
    from tests.fuzz.targets import TARGETS

    if unknown := set(arguments.target or ()) - TARGETS.keys():
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    found = 0
    for name in arguments.target or TARGETS:
        found += not ran(name, arguments.seconds, arguments.corpus)
    return 1 if found else 0


def ran(name: str, seconds: int, kept: Path | None) -> bool:
    """Fuzz one target in a process of its own, which libFuzzer ends; whether it found nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch if kept is None else kept) / name
        corpus.mkdir(parents=True, exist_ok=True)
        words = ["--inside", name, "--seconds", str(seconds), "--corpus", str(corpus)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", *words],
            stderr=subprocess.STDOUT,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        runs = next((a or b for a, b in RUNS.findall(done.stdout)), "?")
        reached = COVERAGE.findall(done.stdout)
        print(
            f"{name:<16}{runs:>12} executions in {seconds} s,"
            f" branches and edges reached: {reached[-1] if reached else '?'},"
            f" corpus {len(list(corpus.iterdir()))},"
            f" {'nothing found' if not done.returncode else 'FOUND'}",
            flush=True,
        )
        if done.returncode:
            print("\n".join(done.stdout.splitlines()[-60:]))
    return not done.returncode


def fuzz(name: str, seconds: int, corpus: Path) -> None:
    """In the process of one target: seeds into the corpus, then libFuzzer. Does not return."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is missing: pip install '.[fuzz]'")
    # Only what is imported here is instrumented.
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        from tests.fuzz.targets import CASES, TARGETS, cases, checked
    target: Target = TARGETS[name]
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:04}").write_bytes(seed[: target.longest])
    for path in cases(name):
        (corpus / f"case-{path.name}").write_bytes(path.read_bytes())
    number = 0

    def once(data: bytes) -> None:
        nonlocal number
        number += 1
        checked(target, data, memory=number % MEMORY_EVERY == 0)

    artifacts = CASES / name
    artifacts.mkdir(parents=True, exist_ok=True)
    options = (
        f"-max_total_time={seconds}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={artifacts}/",
        "-timeout=20",
        "-print_final_stats=1",
        "-verbosity=1",
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
