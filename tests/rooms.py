"""Which test module covers which product module, where their names do not say so.

    python -m tests.rooms [--write]

A module is covered by the test module of its mirrored name (`store/log/commit_log.py` by
`tests/store/log/test_commit_log.py`). Each other one has a row in `tests/covered_by.txt`: its path,
and the test module that covers it. Without `--write` the exit code says whether the list is whole;
`--write` keeps the rows that are right, drops those of modules that are gone, and proposes a test
module for each new one: one of the same folder that imports it or names what it defines, or else
the test of the nearest module that imports it.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import deque
from typing import TYPE_CHECKING

from tests.kit.source_tree import ROOT, modules, packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tests.kit.source_tree import Module

LIST = ROOT / "tests" / "covered_by.txt"
HEAD = """\
# Product modules without a test module of their name, and the test module that covers each.
# `python -m tests.rooms --write` keeps this list up; a row may also be chosen by hand.
"""
MAIN_PLACES = ("tests/faults/", "tests/interop/", "tests/container/", "tests/fuzz/")
"""Tests of the whole: proposed when there is no other."""


def has_code(module: Module) -> bool:
    """Whether a module has more than a docstring and imports."""
    return any(
        not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in module.tree.body
    )


def own_test(module: Module) -> Path:
    """The test module of its mirrored name, whether it is there or not."""
    path = module.path.relative_to(module.root)
    return module.root / "tests" / path.with_name(f"test_{path.name}")


def without_own_test(product: Iterable[Module]) -> dict[str, Module]:
    """Place → module, of those that need a row."""
    return {
        module.place: module
        for module in product
        if has_code(module) and not own_test(module).is_file()
    }


def listed(text: str) -> dict[str, str]:
    """The rows: place of a module → place of a test module."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {row[0]: row[-1] for row in rows}


def faults(rows: Mapping[str, str], needed: Mapping[str, Module]) -> list[str]:
    """What is wrong with the rows."""
    return [
        *(f"no row: {place}" for place in needed if place not in rows),
        *(f"needs no row, or is gone: {place}" for place in rows if place not in needed),
        *(f"no such test: {test}" for test in rows.values() if not (ROOT / test).is_file()),
    ]


class Proposals:
    """Test modules for product modules, from who imports what."""

    def __init__(self, product: Mapping[str, Module], tests: Iterable[Module]) -> None:
        self._product = product
        self._words: dict[str, set[str]] = {}
        self._tests: dict[str, set[str]] = {}
        for test in tests:
            if test.path.name.startswith("test_"):
                self._words[test.place] = set(re.findall(r"\w+", test.text))
                for found in test.imports:
                    self._tests.setdefault(found.target, set()).add(test.place)
        self._importers: dict[str, set[str]] = {}
        for module in product.values():
            for found in module.imports:
                self._importers.setdefault(found.target, set()).add(module.name)

    def of(self, module: Module) -> str:
        """The place of the test module; empty when nothing that is tested imports the module."""
        seen, queue = {module.name}, deque([module.name])
        while queue:
            name = queue.popleft()
            best = self._best(module, name)
            if best:
                return best
            nearest = sorted(self._importers.get(name, ()), key=lambda one: self._far(module, one))
            queue += [one for one in nearest if one not in seen]
            seen.update(nearest)
        return ""

    def _best(self, module: Module, name: str) -> str:
        folder = f"tests/{module.path.parent.relative_to(module.root)}/"
        defined = {node.name for node in module.public_definitions()}
        found = set(self._tests.get(name, ()))
        target = self._product.get(name)
        if name == module.name:
            found |= {
                place
                for place, words in self._words.items()
                if place.rpartition("/")[0] + "/" == folder and defined & words
            }
        elif target is not None and own_test(target).is_file():
            found.add(str(own_test(target).relative_to(target.root)))
        return min(
            found,
            key=lambda place: (
                place.startswith(MAIN_PLACES),
                -shared(place, folder),
                -len(defined & self._words.get(place, set())),
                -len(set(place.rpartition("test_")[2][:-3].split("_")) & parts(module)),
                place,
            ),
            default="",
        )

    def _far(self, module: Module, name: str) -> tuple[int, str]:
        return -shared(module.name.replace(".", "/"), name.replace(".", "/")), name


def parts(module: Module) -> set[str]:
    """The words of a module's name."""
    return set(module.path.stem.split("_"))


def shared(one: str, other: str) -> int:
    """How many folders two paths begin with together."""
    count = 0
    for left, right in zip(one.split("/"), other.split("/"), strict=False):
        if left != right:
            break
        count += 1
    return count


def renewed(rows: Mapping[str, str]) -> dict[str, str]:
    """The rows that are right, and proposals for the others; `–` has to be replaced by hand."""
    product = packages()
    needed = without_own_test(product.values())
    proposals = Proposals(product, modules("tests"))
    kept = {place: test for place, test in rows.items() if (ROOT / test).is_file()}
    return {
        place: kept.get(place) or proposals.of(module) or "–"
        for place, module in sorted(needed.items())
    }


def main() -> int:
    """Check or write the list."""
    rows = listed(LIST.read_text("utf-8")) if LIST.is_file() else {}
    if "--write" in sys.argv[1:]:
        rows = renewed(rows)
        width = max(map(len, rows), default=0)
        LIST.write_text(HEAD + "".join(f"{at:<{width}} {test}\n" for at, test in rows.items()))
    wrong = faults(rows, without_own_test(packages().values()))
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    gc.disable()  # Of what is parsed all stays: looking through it takes longer than parsing.
    raise SystemExit(main())
