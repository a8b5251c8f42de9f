"""The loop never stands still for long: not when segments roll, not when the oldest are deleted,
not when a consumer reads what only the disk has, all of that at once and under load.
"""

from pathlib import Path

import pytest

from bench.stall import measure

pytestmark = [pytest.mark.faults, pytest.mark.alone]

SECONDS = 8.0
STALL_MS = 20.0
ATTEMPTS = 3
"""Machines stand still by themselves; what we do wrong would be there each time."""


def test_the_loop_never_stands_still_for_long(tmp_path: Path) -> None:
    seen = []
    for number in range(ATTEMPTS):
        directory = tmp_path / str(number)
        directory.mkdir()
        report = measure(directory, SECONDS)
        print(report.line())
        assert report.rolled >= 1, "no segment rolled"
        assert report.deleted >= 1, "nothing was deleted"
        assert report.past_bytes > 0, "nothing cold was read"
        if report.longest_ms <= STALL_MS:
            return
        seen.append(report.line())
    raise AssertionError(f"{ATTEMPTS} times above {STALL_MS:g} ms: {seen}")
