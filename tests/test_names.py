"""Classes and locals are named by nouns; the classes that are not yet may only become fewer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.kit.source_tree import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTICIPLE: Final = re.compile(
    r"_?([A-Z][a-z]*(ed|[^aeiou]en)|Begun|Shown|Drawn|Lost|Found|Seen|Done|Gone|Held|Made|Sent"
    r"|Told|Said|Built|Kept)"
)
"""A class of one such word. With a subject before it the name of an error says what is true now."""
PALE: Final = frozenset({"found", "one", "said", "asked"})
"""They say how a local got its value, not what it holds: `record`, not `found`."""
NOUNS: Final = {"Token", "Need", "Seed", "Speed", "Feed", "Shed"}
CLASSES: Final = {
    "broker/grpc/receiving.py": {"Wanted"},
    "broker/grpc/translation/received.py": {"Popped", "Received"},
    "remoting/errors.py": {"Postponed"},
    "remoting/grpc/calls.py": {"Opened"},
    "remoting/http2/events.py": {"Drained"},
    "remoting/server/routes.py": {"Begun", "_Held", "_Parked"},
    "remoting/server/shared.py": {"Shared"},
    "remoting/server/tls_files.py": {"Loaded", "Shown"},
}
"""File → classes that are still named by what happened to them."""


def test_classes_are_named_by_nouns() -> None:
    wrong = {
        (module.place, node.name)
        for module in packages().values()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name not in NOUNS
    }
    allowed = {(place, name) for place, names in CLASSES.items() for name in names}
    assert wrong <= allowed, sorted(wrong - allowed)


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
