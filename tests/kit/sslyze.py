"""sslyze from PyPI as a separate program, in a virtual environment of its own in the cache."""

from __future__ import annotations

import fcntl
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kit.java import run_tool, unavailable

VERSION = "6.3.1"
CACHE = Path(__file__).parents[2] / ".cache" / "sslyze"
FETCH_WITHIN_S = 180.0
SCAN_WITHIN_S = 60.0
COMPLAINT = re.compile(r"^ +\* (\w+): (.*)$", re.MULTILINE)


@functools.cache
def program() -> str:
    """Its path; the test is skipped where it cannot be had."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = CACHE / VERSION
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            run_tool([sys.executable, "-m", "venv", str(home)], FETCH_WITHIN_S)
            pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
            run_tool([*pip, f"sslyze=={VERSION}"], FETCH_WITHIN_S)
            (home / "complete").touch()
    return str(home / "bin" / "sslyze")


def complaints(address: str) -> dict[str, str]:
    """What of a server is not as Mozilla's intermediate profile has it: kind → text."""
    command = [program(), "--mozilla_config=intermediate", address]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SCAN_WITHIN_S, check=False
    )
    _, checked, verdict = done.stdout.partition("COMPLIANCE AGAINST")
    if not checked:
        unavailable(f"sslyze did not scan: {(done.stdout + done.stderr)[-1_000:]}")
    return dict(COMPLAINT.findall(verdict))
