"""The tests of the SDK itself, with Java's broker in the place of ours.

The campaign runs all of them on the three fronts against each version. Every test run has a choice:
a module for each kind of client, its tests on one front, and on another one with the other version;
what restarts brokers, or asks for one of its own, is left to the campaign.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

from tests.aerobee.client.fronts import FRONTS
from tests.kit.campaign import Campaign
from tests.kit.java import VERSIONS, toolkit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kit.campaign import Run

ROOT = Path(__file__).parents[2]
CLIENT = Path("tests/aerobee/client")
CHOSEN = (
    "aio/test_producer.py",
    "aio/test_pull_consumer.py",
    "aio/test_push_consumer.py",
    "steps/test_orderly.py",
    "steps/test_offsets.py",
    "steps/test_popping.py",
    "aio/test_admin.py",
)
NOT_CHOSEN = ("killed", "condition_in_sql")
WHOLE = (str(CLIENT), "tests/aerobee/test_otel.py")
CHOICE_WITHIN_S = 300
WHOLE_WITHIN_S = 3_600
WORKERS = 2
AGAIN_MAX = 6


def check_choice(version: str, report: Path) -> None:
    """Run the choice against this version. Raises: AssertionError with the end of the output."""
    shift = VERSIONS.index(version)
    names = []
    for number, module in enumerate(CHOSEN):
        front = FRONTS[(number + shift) % len(FRONTS)]
        names.append(f"({Path(module).stem} and {front})")
    wanted = f"({' or '.join(names)}) and not ({' or '.join(NOT_CHOSEN)})"
    where = [str(CLIENT / module) for module in CHOSEN]
    done = run_tests(version, ["-k", wanted, *where], report, CHOICE_WITHIN_S)
    assert done.returncode == 0, done.stdout[-4_000:]


def everything(run: Run) -> None:
    """A cycle is a version. What failed beside others runs once more by itself."""
    for cycle in run.cycles():
        version = VERSIONS[cycle.number % len(VERSIONS)]
        report = run.directory / f"{version}.xml"
        options = ["-n", str(WORKERS), "--dist", "loadfile"]
        done = run_tests(version, [*options, *WHOLE], report, WHOLE_WITHIN_S)
        failed = count(run, report)
        assert bool(failed) == bool(done.returncode), done.stdout[-4_000:]
        assert len(failed) <= AGAIN_MAX, "\n".join(failed)
        if failed:
            done = run_tests(version, failed, report, WHOLE_WITHIN_S)
            assert done.returncode == 0, done.stdout[-4_000:]
            run.counts["passed by themselves only"] += len(failed)


def count(run: Run, report: Path) -> list[str]:
    """Count the tests of each front; returns those that failed."""
    failed = []
    for case in ET.parse(report).getroot().iter("testcase"):
        name = case.get("name", "")
        front = next((one for one in FRONTS if f"[{one}" in name), "of no front")
        skipped = case.find("skipped") is not None
        run.counts["not of this version" if skipped else front] += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '').replace('.', '/')}.py::{name}")
    return failed


def run_tests(
    version: str, which: Sequence[str], report: Path, within_s: float
) -> subprocess.CompletedProcess[str]:
    """Run these tests against a version of Java's broker."""
    # Skips here where Java is missing: inside it would be all the same.
    toolkit(version)
    options = ["-p", "no:cacheprovider", f"--junitxml={report}", "--against", f"java-{version}"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "service and not alone", *which],
        capture_output=True,
        text=True,
        check=False,
        timeout=within_s,
        cwd=ROOT,
    )


J1 = Campaign(
    key="J1",
    title="the SDK's tests on asyncio, trio and threads, with Java's brokers 5.5.0 and 4.9.7",
    unit="versions",
    t1=2,
    t2=2,
    run=everything,
    java=True,
)
