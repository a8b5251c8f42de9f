"""The whole suite in its parts: what `make test` runs.

    python -m tests.suite

The parts with workers run at the same time, those that measure time after them and by themselves.
Every part runs, whatever the others found. A test that failed beside others runs once more
with nothing beside it: processes, Java and disks that others keep busy can make it too late. When
it passes then, the suite passes, and the end names it, for it still wants to be mended. Files with
failed tests are counted, as one fixture fails all of its file: more than `AGAIN_MAX` of them are no
accident, and none is run again. One test that hangs fails after some minutes (tests/conftest.py);
the threads it leaves end with its worker, so every part has one at least.

A signal (Ctrl-C, SIGTERM, SIGHUP) ends the suite with all it started: it is handed on as Ctrl-C, so
that every test ends what it began, and after `STOP_WITHIN_S` all that is left of it is killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

AGAIN_MAX = 10
"""In an hour in which the host lends its cores to others a dozen of 9,000 tests are late."""
FAILED_AGAIN_MAX = 3
"""So many are proof enough: a test may take minutes to fail."""
CACHE = Path(".pytest_cache")
NO_TESTS_FAILED, TESTS_FAILED = 0, 1
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FULL_PERCENT = 80
"""From 85 % on Java's brokers delete, from 90 % on they refuse sends; a run writes some 2 GB."""
STOP_WITHIN_S = 60.0
"""Brokers of Java take 20 of them to stop."""


class Part(NamedTuple):
    """Tests that run together in so many workers, beside the other parts or after them."""

    name: str
    marks: str
    workers: int
    beside: bool = True
    only: str = ""
    """A mark that all of its tests have: files that do not name it are not even read."""


# Most of the suite waits: for Java, for time limits, for disks; so more workers than two cores run.
# Spark's tests share a JVM for each process, and one of those is enough: it ends before the others.
PARTS = (
    Part("beside each other", "not alone and not spark and not image", 4),
    Part("spark", "spark", 1, only="spark"),
    Part("alone", "alone and not spark", 1, beside=False, only="alone"),
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
    return _pytest("again", ["-n", "1", "--maxfail", str(FAILED_AGAIN_MAX), *tests])


def _part(part: Part, paths: Sequence[str], *, later: bool) -> Outcome:
    # What waits longest begins first (tests/conftest.py), in an order that xdist keeps.
    workers = ["-n", str(part.workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    if part.only and not paths:
        paths = naming(part.only)
    return _pytest(part.name, [*workers, "-m", part.marks, *paths], later=later)


def naming(mark: str, tests: Path = Path("tests")) -> list[str]:
    """The test files that name a mark; one with the mark is in one of them (tests/conftest.py)."""
    named = re.compile(rf"\bmark\.{mark}\b")
    files = sorted(tests.rglob("test_*.py"))
    return [str(file) for file in files if named.search(file.read_text(encoding="utf-8"))]


def _pytest(name: str, arguments: list[str], *, later: bool = False) -> Outcome:
    cache = CACHE / name.replace(" ", "-")
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    code, printed = _RUNNING.run(command, stdout=subprocess.PIPE if later else None)
    if printed is not None:
        print(printed.decode(errors="replace"), flush=True)
    found = cache / "v" / "cache" / "lastfailed"
    return Outcome(code, tuple(json.loads(found.read_bytes())) if found.exists() else ())


class _Running:
    """The processes that run now, each the head of a group of all that it starts."""

    def __init__(self) -> None:
        self._groups: list[int] = []
        self.stopped_by = 0

    def run(self, command: Sequence[str], *, stdout: int | None) -> tuple[int, bytes | None]:
        """Its exit code, and what it printed when that is kept."""
        with subprocess.Popen(command, stdout=stdout, start_new_session=True) as process:
            self._groups.append(process.pid)
            if self.stopped_by:
                _signal(process.pid, signal.SIGINT)
            printed, _ = process.communicate()
            self._groups.remove(process.pid)
            if self.stopped_by:
                _signal(process.pid, signal.SIGKILL)
        return process.returncode, printed

    def stop(self, number: int, _frame: object) -> None:
        """End them: those at work first say what they found."""
        self.stopped_by = number
        for group in list(self._groups):
            _signal(group, signal.SIGINT)
            late = Timer(STOP_WITHIN_S, _signal, (group, signal.SIGKILL))
            late.daemon = True
            late.start()


_RUNNING = _Running()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def main(parts: Sequence[Part] = PARTS, *, paths: Sequence[str] = ()) -> int:
    """The exit code: 0 when every test passed, beside others or by itself."""
    print(room(gettempdir()), end="", flush=True)
    outcomes = run([part for part in parts if part.beside], paths=paths)
    for part in parts:
        if not part.beside and not _RUNNING.stopped_by:
            outcomes += run([part], paths=paths)
    if _RUNNING.stopped_by:
        return 128 + _RUNNING.stopped_by
    failed = [test for outcome in outcomes for test in outcome.failed]
    # Anything else than failing tests (a module that cannot be imported, a stop) is no accident.
    if {outcome.code for outcome in outcomes} - {NO_TESTS_FAILED, TESTS_FAILED}:
        return 1
    if not failed:
        return max(outcome.code for outcome in outcomes)
    if len({test.partition("::")[0] for test in failed}) > AGAIN_MAX:
        return _tell(1, f"{len(failed)} tests failed:", failed)
    second = again(failed)
    if second.code != NO_TESTS_FAILED:
        return _tell(1, "failed again, with nothing beside them:", second.failed)
    return _tell(0, "passed by themselves only, and want to be mended:", failed)


def room(directory: str) -> str:
    """What is to be said of the disk that tests write to; nothing of one with room."""
    disk = shutil.disk_usage(directory)
    percent = 100 * disk.used // max(1, disk.used + disk.free)
    if percent < FULL_PERCENT:
        return ""
    return f"{directory}: {percent} % of its disk is used, and above 85 % Java's brokers delete\n"


def _tell(code: int, said: str, tests: Sequence[str]) -> int:
    print(f"\n{said}", *tests, sep="\n  ", flush=True)
    return code


if __name__ == "__main__":
    for number in STOPS:
        signal.signal(number, _RUNNING.stop)
    sys.exit(main())
