"""Builds of earlier days, to run beside this one: the last tags, and commits while there are none.

A build is unpacked from git once, into `.cache/older`, and runs with the libraries of this one.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kit.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".cache" / "older"
TAGS = 2
COMMITS = (
    "28249de1b9b51feca6938f445f3ae787a451cb49",
    "0d034dac90b9d7ba49f709345543398ffd0f90ba",
    "34e6a9df11e78124cd4b0216bf26392a5b3e98fe",
)
"""What people had on 2026-11-23, 2026-11-28 and 2026-11-30; they give way to the first tags."""

CONSOLE = "consolePort"


@cache
def builds() -> tuple[str, ...]:
    """Commits, the older ones first. Skips where git does not have them."""
    tags = _git("tag", "--list", "v*", "--sort=-version:refname").decode().split()[:TAGS]
    return tuple(_git("rev-parse", f"{one}^{{commit}}").decode().strip() for one in tags) or COMMITS


def text(build: str, path: str) -> str:
    """A file as that build has it."""
    return _git("show", f"{build}:{path}").decode()


@cache
def environment(build: str) -> dict[str, str]:
    """What makes `python -m aerobee` that build, wherever it is called."""
    place = KEPT / build
    if not place.exists():
        half = place.with_name(f"{build}.{os.getpid()}")
        with tarfile.open(fileobj=io.BytesIO(_git("archive", build))) as archive:
            archive.extractall(half, filter="data")
        try:
            half.rename(place)
        except OSError:  # another worker was quicker
            assert place.exists()
    return {"PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}


def knows(build: str, setting: str) -> bool:
    """Whether a build has a setting of that name."""
    return f"#{setting}:" in text(build, "conf/broker.yaml")


def give(broker: BrokerProcess, build: str | None) -> None:
    """Have a broker be that build from its next start on, or this one: None."""
    broker.env = environment(build) if build else {}
    # The kit keeps every console shut, and a build without a console refuses the setting.
    settings = {key: value for key, value in broker.settings.items() if key != CONSOLE}
    without = build is not None and not knows(build, "console_port")
    broker.settings = settings | ({CONSOLE: None} if without else {})


def _git(*arguments: str) -> bytes:
    done = subprocess.run(("git", "-C", ROOT, *arguments), capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"an earlier build is not in this clone: {done.stderr.decode().strip()}")
    return done.stdout
