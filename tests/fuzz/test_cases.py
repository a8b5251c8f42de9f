"""Seeds and findings of the fuzzing, each tried once: what was mended stays mended."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import CASES, TARGETS, cases, checked


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_former_findings_break_no_promise(name: str) -> None:
    target = TARGETS[name]
    inputs = [*target.seeds(), *(path.read_bytes() for path in cases(name))]
    assert inputs
    for data in inputs:
        checked(target, data, memory=True)


def test_every_folder_of_cases_belongs_to_a_target() -> None:
    assert {path.name for path in CASES.iterdir()} <= TARGETS.keys()
