"""The official Python client of RocketMQ 5: a virtual environment of its own, installed once.

It comes from the package index by pip, at a version that is pinned here, into `.cache/python`; its
packages never meet ours. Without the network the test is skipped with the reason; with AEROBEE_CI=1
it fails.
"""

import fcntl
import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.java import CACHE, run_tool, unavailable

VERSION = "5.1.2"
INSTALL_WITHIN_S = 300
FEATURE_WITHIN_S = 120.0
MEMBER = Path(__file__).parents[1] / "interop" / "python" / "member.py"


@functools.cache
def interpreter(version: str = VERSION) -> Path:
    """The interpreter beside this version of the client; skips where that cannot be."""
    installed = CACHE.with_name("python") / f"client-{version}"
    python = installed / "bin" / "python"
    installed.parent.mkdir(parents=True, exist_ok=True)
    with (installed.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = installed / "done"
        if not done.exists():
            # Its path is in an environment, so a complete one cannot be moved to its place.
            shutil.rmtree(installed, ignore_errors=True)
            run_tool([sys.executable, "-m", "venv", str(installed)], INSTALL_WITHIN_S)
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            run_tool([*pip, f"rocketmq-python-client=={version}"], INSTALL_WITHIN_S)
            done.touch()
    if not python.exists():
        unavailable(f"{python} is gone: remove {installed}")
    return python


def told(endpoints: str, feature: str, *account: str, version: str = VERSION) -> list[list[Any]]:
    """What the client says of one feature (`tests/interop/python/member.py`)."""
    command = [str(interpreter(version)), str(MEMBER), endpoints, feature, *account]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=FEATURE_WITHIN_S, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines[-1] == ["end"], done.stdout
    return lines[:-1]
