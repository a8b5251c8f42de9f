"""Classes and locals are named by nouns."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.kit.source_tree import packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PARTICIPLE: Final = re.compile(
    r"_?([A-Z][a-z]*(ed|[^aeiou]en)|Begun|Shown|Drawn|Lost|Found|Seen|Done|Gone|Held|Made|Sent"
    r"|Told|Said|Built|Kept)"
)
"""A class of one such word. With a subject before it the name of an error says what is true now."""
PALE: Final = frozenset({"asked", "found", "given", "had", "one", "said", "taken", "told"})
"""They say how a local got its value, not what it holds: `record`, not `found`."""
NOUNS: Final = {"Token", "Need", "Seed", "Speed", "Feed", "Shed"}


def test_classes_are_named_by_nouns() -> None:
    wrong = {
        (module.place, name)
        for module in packages().values()
        for name in types(module.nodes)
        if PARTICIPLE.fullmatch(name) and name not in NOUNS
    }
    assert not wrong, sorted(wrong)


def types(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names of classes, and of what may be an alias of a type."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that an assignment, a loop, a pattern or a parameter binds, with its line.

    A field of a class is no local.
    """
    fields = {
        node.target
        for body in ast.walk(tree)
        if isinstance(body, ast.ClassDef)
        for node in body.body
        if isinstance(node, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler) and node.name:
            yield node.name, node.lineno


def test_locals_are_named_by_what_they_hold() -> None:
    pale = [
        f"{module.place}:{line} {name}"
        for module in packages().values()
        for name, line in bound(module.tree)
        if name in PALE
    ]
    assert not pale, pale


def test_each_place_that_binds_a_name_counts() -> None:
    source = (
        "class C:\n"
        "    found: int\n"
        "    def f(one, *, said=None):\n"
        "        found = one\n"
        "        for asked in found: pass\n"
        "        return [one.found for one in said]\n"
    )
    names = Counter(name for name, _ in bound(ast.parse(source)) if name in PALE)
    assert names == {"one": 2, "said": 1, "found": 1, "asked": 1}
