"""Classes and locals are named by nouns; what is not yet may only become less."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

from tests.kit.source_tree import packages
from tests.names import bound, left, pale_locals

PARTICIPLE: Final = re.compile(
    r"_?([A-Z][a-z]*(ed|[^aeiou]en)|Begun|Shown|Drawn|Lost|Found|Seen|Done|Gone|Held|Made|Sent"
    r"|Told|Said|Built|Kept)"
)
"""A class of one such word. With a subject before it the name of an error says what is true now."""
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


def test_locals_are_named_by_what_they_hold() -> None:
    more = pale_locals() - left()
    assert not more, f"more locals named found, one, said or asked: {dict(more)}"


def test_each_place_that_binds_a_name_counts() -> None:
    source = (
        "def f(one, *, said=None):\n"
        "    found = one\n"
        "    for asked in found: pass\n"
        "    return [one.found for one in said]\n"
    )
    names = Counter(bound(ast.parse(source)))
    assert names == {"one": 2, "said": 1, "found": 1, "asked": 1}
