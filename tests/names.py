"""Locals whose name says nothing: how many are left, by file. `python -m tests.names --write`

A local is named by a noun of what it holds (`record`, not `found`). What is left stands in
`tests/names_left.txt`, and `--write` lowers its numbers; none of them may grow.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.kit.source_tree import ROOT, packages

if TYPE_CHECKING:
    from collections.abc import Iterator

PALE: Final = frozenset({"found", "one", "said", "asked"})
LEFT: Final = ROOT / "tests" / "names_left.txt"
HEAD: Final = (
    "# Locals and parameters of the product named found, one, said or asked, by file.\n"
    "# A number may only become smaller: `python -m tests.names --write` lowers it.\n"
)


def bound(tree: ast.AST) -> Iterator[str]:
    """Each name that an assignment, a loop, a pattern or a parameter binds, once per place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.name


def pale_locals() -> Counter[str]:
    """File of the product → how many places bind such a name."""
    counts = {
        module.place: sum(name in PALE for name in bound(module.tree))
        for module in packages().values()
    }
    return Counter({place: count for place, count in counts.items() if count})


def left() -> Counter[str]:
    """The numbers in the list."""
    lines = LEFT.read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return Counter({place: int(count) for place, count in rows})


def written(counts: Counter[str]) -> str:
    """The list as text."""
    return HEAD + "".join(f"{place} {count}\n" for place, count in sorted(counts.items()))


def main() -> None:
    """Print how many are left; with `--write` lower the numbers of the list."""
    counts = pale_locals()
    if "--write" in sys.argv[1:]:
        counts &= left()
        LEFT.write_text(written(counts), "utf-8")
    print(f"{counts.total()} in {len(counts)} files")


if __name__ == "__main__":
    main()
