"""Every benchmark, one after the other; the last compares the whole broker with Java's.

python -m bench    or one: python -m bench.codec, and so on (PARTS)
"""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "codec",
    "append",
    "dispatch",
    "index",
    "filters",
    "decode",
    "overload",
    "schedule",
    "timers",
    "spark_store",
    "spark_write",
    "spark_kafka",
    "sdk",
    "beside_java",
)


def main() -> None:
    """Each in a process of its own, so that none sees what another left in memory."""
    for part in PARTS:
        print(f"\n== bench.{part}", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{part}"], check=True)


if __name__ == "__main__":
    main()
