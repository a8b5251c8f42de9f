"""Every benchmark, one after the other; the last compares the whole broker with Java's.

python -m bench    or one: python -m bench.overload, and so on (PARTS)
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from bench.arguments import program

PARTS = (
    "overload",
    "timers",
    "spark_store",
    "spark_write",
    "sdk",
    "grpc_port",
    "beside_java",
)


@program
def main() -> None:
    """Each in a process of its own, so that none sees what another left in memory."""
    argparse.ArgumentParser(prog="python -m bench").parse_args()
    for part in PARTS:
        print(f"\n== bench.{part}", flush=True)
        run(part)


def run(part: str) -> None:
    """Run one to its end; where this process is stopped, so is that. Raises: SystemExit."""
    command = [sys.executable, "-m", f"bench.{part}"]
    # Ctrl-C reaches this process only, so that the bench is stopped once.
    with subprocess.Popen(command, start_new_session=True) as running:
        try:
            code = running.wait()
        except BaseException:
            running.terminate()
            raise
    if code:
        sys.exit(f"bench.{part} ended with {code}")


if __name__ == "__main__":
    main()
