"""`docs/security.md`: a row for every attack, and each test and campaign that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.faults.campaigns import CAMPAIGNS

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (S\d+) \|.*\| (done|in part|open|not applicable) \| (.+) \|$", re.MULTILINE)
CAMPAIGN = re.compile(r"campaign (\w+)")
NAMED = re.compile(r"`(tests/\S+?\.py)::(test_\w+)`")
ROWS = {row[0]: row[1:] for row in ROW.findall((ROOT / "docs" / "security.md").read_text("utf-8"))}


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_attack_has_its_row() -> None:
    assert list(ROWS) == [f"S{number}" for number in range(1, 19)]


@pytest.mark.parametrize("attack", ROWS)
def test_what_is_done_is_tested_and_what_is_not_says_why(attack: str) -> None:
    state, proof = ROWS[attack]
    named = NAMED.findall(proof)
    if state == "done":
        assert named, f"{attack} names no test"
    elif not named:
        assert len(proof) > 20, f"{attack} gives no reason"
    for path, name in named:
        assert name in functions(path), f"{path} has no {name}"
    assert set(CAMPAIGN.findall(proof)) <= {one.key for one in CAMPAIGNS}
