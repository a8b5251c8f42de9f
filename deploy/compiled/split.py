"""Turns a module into what mypyc can compile, and what of it stays interpreted.

- Names that are imported for type checkers only are imported for good where they are classes of
  other compiled modules: compiled code checks types by them. Nothing else of it is needed.
- msgspec's structs and the rows of layouts are made by a metaclass and by annotations, both of
  which compiled classes do without. A module that declares some takes them from its
  *interpreted copy*, beside it.
- The fields of other named tuples are annotated in quotes: the type may be declared below, or be
  there for type checkers only. Of dataclasses quotes are not kept: no such module is compiled.

Text in, text out.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["INTERPRETED", "Split", "dotted", "modules", "split"]

INTERPRETED = "_interpreted"
"""What the name of an interpreted copy ends in."""
CONNECTION = "    from aerobee.remoting.server.connection import Connection\n"
ROW_TYPES = frozenset({"host4", "host6", "i8", "i16", "i32", "i64", "u32"})
"""The annotations of layouts: what follows from them is lost in compiled classes."""


def modules() -> list[str]:
    """The modules of `modules.txt`, as paths below `aerobee/`."""
    lines = Path(__file__).with_name("modules.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def dotted(path: str) -> str:
    """The name of a module."""
    return "aerobee." + path.removesuffix(".py").replace("/", ".")


class Split(NamedTuple):
    """One module for the compiler."""

    source: str
    declared: tuple[str, ...]
    """The classes that it takes from its interpreted copy; none: it needs no copy."""


def split(source: str, module: str, compiled: Collection[str]) -> Split:
    """Prepare `module`, one of `compiled`, all by their dotted names."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    declared = [node for node in classes if _is_struct(node) or _is_row(node)]
    if declared:
        # They may have named tuples as fields, which then have to be the same classes.
        declared = [node for node in classes if node in declared or _is_tuple(node)]
    for node in declared:
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        lines[first - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or 0) - first + 1)
    for node in classes:
        if _is_tuple(node) and node not in declared:
            _quote(node, lines)
    for block in _blocks(tree):
        # What an interpreted copy has in place of types.
        if block.orelse:
            start, end = block.body[-1].end_lineno or 0, block.orelse[-1].end_lineno or 0
            lines[start:end] = ["\n"] * (end - start)
    added = [f"import {name}\n" for name in sorted(_for_checkers(tree) & {*compiled} - {module})]
    names = tuple(node.name for node in declared)
    if names:
        added.append(f"from {module}{INTERPRETED} import {', '.join(names)}\n")
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    # On the line of the last import, so that the numbers of lines stay what they are.
    lines[(imports[-1].end_lineno or 0) - 1] = (
        "; ".join(
            [lines[(imports[-1].end_lineno or 0) - 1].rstrip("\n"), *(one.strip() for one in added)]
        )
        + "\n"
    )
    text = "".join(lines)
    if module.startswith("aerobee.broker."):
        # Handlers take whatever has a connection's methods: a compiled class is checked by itself.
        text = text.replace(CONNECTION, "    from typing import Any as Connection\n")
    return Split(text, names)


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base) for base in node.bases}


def _is_struct(node: ast.ClassDef) -> bool:
    return "msgspec.Struct" in _bases(node)


def _is_tuple(node: ast.ClassDef) -> bool:
    return "NamedTuple" in _bases(node)


def _is_row(node: ast.ClassDef) -> bool:
    return _is_tuple(node) and any(
        ast.unparse(one.annotation) in ROW_TYPES for one in _fields(node)
    )


def _fields(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    return (one for one in node.body if isinstance(one, ast.AnnAssign))


def _quote(node: ast.ClassDef, lines: list[str]) -> None:
    for field in _fields(node):
        note = field.annotation
        assert note.end_lineno == note.lineno, f"an annotation of {node.name} runs over a line"
        line = lines[note.lineno - 1].encode()
        at, end = note.col_offset, note.end_col_offset or 0
        lines[note.lineno - 1] = (line[:at] + b'"' + line[at:end] + b'"' + line[end:]).decode()


def _blocks(tree: ast.Module) -> list[ast.If]:
    """What is there for type checkers only."""
    ifs = [node for node in tree.body if isinstance(node, ast.If)]
    return [node for node in ifs if ast.unparse(node.test) == "TYPE_CHECKING"]


def _for_checkers(tree: ast.Module) -> set[str]:
    """The modules that are imported for type checkers only."""
    return {
        one.module or ""
        for block in _blocks(tree)
        for one in block.body
        if isinstance(one, ast.ImportFrom)
    }
