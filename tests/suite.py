"""The whole suite in its parts: what `make test` runs.

    python -m tests.suite

The parts with workers run at the same time, those that measure time after them and by themselves.
Every part runs, whatever the others found. A test that failed beside others runs once more
with nothing beside it: processes, Java and disks that others keep busy can make it too late. When
it passes then, the suite passes, and the end names it, for it still wants to be mended. More than
`AGAIN_MAX` of them are no accident, and none is run again. One that hangs fails after some minutes
(tests/conftest.py); the threads it leaves end with its worker, so every part has one at least.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Part", "main", "run"]

AGAIN_MAX = 3
CACHE = Path(".pytest_cache")
NO_TESTS_FAILED, TESTS_FAILED = 0, 1


class Part(NamedTuple):
    """Tests that run together in so many workers, beside the other parts or after them."""

    name: str
    marks: str
    workers: int
    beside: bool = True


# Most of the suite waits: for Java, for time limits, for disks; so more workers than two cores run.
# Spark's tests share a JVM for each process, and one of those is enough: it ends before the others.
PARTS = (
    Part("beside each other", "not alone and not spark and not image", 4),
    Part("spark", "spark", 1),
    Part("alone", "alone and not spark", 1, beside=False),
)


class Outcome(NamedTuple):
    """What became of some tests: pytest's exit code, and the ids of those that failed."""

    code: int
    failed: tuple[str, ...]


def run(parts: Sequence[Part], *, paths: Sequence[str] = ()) -> list[Outcome]:
    """Run parts at the same time: all of the suite, or what `paths` name of it.

    What the first prints is seen at once, the rest when it has ended.
    """
    with ThreadPoolExecutor(max(1, len(parts))) as pool:
        runs = [pool.submit(_part, part, paths, later=part is not parts[0]) for part in parts]
        return [one.result() for one in runs]


def again(tests: Sequence[str]) -> Outcome:
    """Run these once more, one after the other."""
    return _pytest("again", ["-n", "1", *tests])


def _part(part: Part, paths: Sequence[str], *, later: bool) -> Outcome:
    # What waits longest begins first (tests/conftest.py), in an order that xdist keeps.
    workers = ["-n", str(part.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    return _pytest(part.name, [*workers, "-m", part.marks, *paths], later=later)


def _pytest(name: str, arguments: list[str], *, later: bool = False) -> Outcome:
    cache = CACHE / name.replace(" ", "-")
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE if later else None)
    if done.stdout is not None:
        print(done.stdout.decode(errors="replace"), flush=True)
    found = cache / "v" / "cache" / "lastfailed"
    return Outcome(done.returncode, tuple(json.loads(found.read_bytes())) if found.exists() else ())


def main(parts: Sequence[Part] = PARTS, *, paths: Sequence[str] = ()) -> int:
    """The exit code: 0 when every test passed, beside others or by itself."""
    outcomes = run([part for part in parts if part.beside], paths=paths)
    for part in parts:
        if not part.beside:
            outcomes += run([part], paths=paths)
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
