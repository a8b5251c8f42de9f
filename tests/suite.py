"""The whole suite in its parts: what `make test` runs.

    python -m tests.suite

Every part runs, whatever those before it found. A test that failed beside others runs once more
with nothing beside it: processes, Java and disks that others keep busy can make it too late. When
it passes then, the suite passes, and the end names it, for it still wants to be mended. More than
`AGAIN_MAX` of them are no accident, and none is run again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Part", "main", "run"]

AGAIN_MAX = 3
CACHE = Path(".pytest_cache")
NO_TESTS_FAILED, TESTS_FAILED = 0, 1


class Part(NamedTuple):
    """Tests that run together; `workers` is 0 for one process that runs one after the other."""

    name: str
    marks: str
    workers: int


# Most of the suite waits: for Java, for time limits, for disks. Spark's tests share a JVM for each
# process, and more of those than cores gain nothing. What measures time runs by itself.
PARTS = (
    Part("beside each other", "not alone and not spark", 3),
    Part("spark", "spark", 2),
    Part("alone", "alone and not spark", 0),
)


class Outcome(NamedTuple):
    """What became of some tests: pytest's exit code, and the ids of those that failed."""

    code: int
    failed: tuple[str, ...]


def run(part: Part, *, paths: Sequence[str] = ()) -> Outcome:
    """Run one part: all of the suite, or what `paths` name of it."""
    beside = ["-n", str(part.workers), "--dist", "loadfile"] if part.workers else []
    return _pytest(part.name, [*beside, "-m", part.marks, *paths])


def again(tests: Sequence[str]) -> Outcome:
    """Run these once more, one after the other."""
    return _pytest("again", list(tests))


def _pytest(name: str, arguments: list[str]) -> Outcome:
    cache = CACHE / name.replace(" ", "-")
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    code = subprocess.run(command, check=False).returncode
    found = cache / "v" / "cache" / "lastfailed"
    return Outcome(code, tuple(json.loads(found.read_bytes())) if found.exists() else ())


def main(parts: Sequence[Part] = PARTS, *, paths: Sequence[str] = ()) -> int:
    """The exit code: 0 when every test passed, beside others or by itself."""
    outcomes = [run(part, paths=paths) for part in parts]
    failed = [test for outcome in outcomes for test in outcome.failed]
    # Anything else than failing tests (a module that cannot be imported, a stop) is no accident.
    if {outcome.code for outcome in outcomes} - {NO_TESTS_FAILED, TESTS_FAILED}:
        return 1
    if not failed:
        return max(outcome.code for outcome in outcomes)
    if len(failed) > AGAIN_MAX:
        return _tell(1, f"{len(failed)} tests failed:", failed)
    second = again(failed)
    if second.code != NO_TESTS_FAILED:
        return _tell(1, "failed again, with nothing beside them:", second.failed)
    return _tell(0, "passed by themselves only, and want to be mended:", failed)


def _tell(code: int, said: str, tests: Sequence[str]) -> int:
    print(f"\n{said}", *tests, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
