"""Where tests use private names of the product: they hold its code still instead of its promise."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.kit.source_tree import Module

PRIVATE: Final = re.compile(r"_[a-z]")
OF_NAMED_TUPLES: Final = frozenset({"_asdict", "_fields", "_make", "_replace"})


def private_uses(product: Iterable[Module], tests: Iterable[Module]) -> list[str]:
    """Places in the tests that use, patch or import a private name of the product.

    A name that a test module has on its own objects as well is taken for its own.
    """
    kept = {name for module in product for name in _defined(module)}
    found = []
    for module in tests:
        own = _defined(module)
        found += [
            f"{module.place}:{line} {name}"
            for line, name in _used(module)
            if name in kept and name not in own
        ]
    return found


def _defined(module: Module) -> set[str]:
    """Private functions, and attributes of `self`."""
    names = set()
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and _of_self(node):
            names.add(node.attr)
    return {name for name in names if PRIVATE.match(name)}


def _used(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name: attributes of others, names that are patched, imported names."""
    for node in module.nodes:
        names: list[str] = []
        if isinstance(node, ast.Attribute) and not _of_self(node):
            names = [node.attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("setattr", "delattr"):
                names = [
                    one.value
                    for one in node.args
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
        elif isinstance(node, ast.ImportFrom):
            names = [one.name for one in node.names]
        for name in names:
            if PRIVATE.match(name) and name not in OF_NAMED_TUPLES:
                yield getattr(node, "lineno", 0), name


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
