"""What clients take from the machine."""

import shutil
import subprocess
import sys

from tests.kit.skipping import skip

SLEEP_S = 3600
PROGRAM = """
import time
from aerobee.client.factory import CLOCK
print(CLOCK.monotonic() - time.monotonic())
"""


def test_the_clock_of_locks_runs_on_while_the_machine_sleeps() -> None:
    """In a time namespace, where it has slept for an hour."""
    if shutil.which("unshare") is None:
        skip("unshare is not installed")
    slept = ["unshare", "--time", "--boottime", str(SLEEP_S), "--fork"]
    if subprocess.run([*slept, "true"], capture_output=True, check=False, timeout=60).returncode:
        skip("this user may make no time namespace")
    command = [*slept, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert SLEEP_S - 1 < float(done.stdout) < SLEEP_S + 60
