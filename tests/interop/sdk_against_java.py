"""The tests of the SDK itself, with Java's broker in the place of ours.

A module for each version runs them, so that both can run beside each other.
"""

import subprocess
import sys
from pathlib import Path

from tests.kit.java import toolkit

__all__ = ["check_sdk"]

CLIENT = Path(__file__).parents[1] / "aerobee" / "client"
MODULES = ("aio/test_producer.py", "aio/test_pull_consumer.py")
WITHIN_S = 300


def check_sdk(version: str) -> None:
    """Run them against this version. Raises: AssertionError with the end of what they printed."""
    # Skips here where Java is missing: inside it would be all the same.
    toolkit(version)
    # What the three fronts do with a broker is decided in one place: one of them tells.
    which = ["-k", "asyncio", "-m", "service and not alone", *(str(CLIENT / m) for m in MODULES)]
    against = ["-p", "no:cacheprovider", "--against", f"java-{version}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *against, *which],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
