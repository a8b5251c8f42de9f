"""Turns a module into what mypyc can compile, and what of it stays interpreted.

- Names that are imported for type checkers only are imported for good where they are classes of
  other compiled modules: compiled code checks types by them. Nothing else of it is needed.
- msgspec's structs and the rows of layouts are made by a metaclass and by annotations, both of
  which compiled classes do without; of dataclasses quotes are not kept. A module that declares
  some takes them from its *interpreted copy*, beside it.
- The *native* structs are read and written by nobody but us: they become compiled classes.
- A constant is *final*: a place in memory instead of a look-up in the dict of a module.
- The fields of other named tuples are annotated in quotes: the type may be declared below, or be
  there for type checkers only.

Text in, text out.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

INTERPRETED = "_interpreted"
"""The end of the name of an interpreted copy."""
NATIVE = frozenset({"DispatchRequest", "MessageDraft"})
"""The structs that msgspec never reads or writes: two of each for each message."""
NOT_MADE_FINAL = ("Final", "TypeAlias", "tuple")
TYPES_BY_CALL = frozenset({"NewType", "ParamSpec", "TypeVar"})
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
    declared = [
        node
        for node in classes
        if node.name not in NATIVE and (_is_struct(node) or _is_row(node) or _is_data(node))
    ]
    if declared:
        # They may have named tuples as fields, which then have to be the same classes.
        declared = [node for node in classes if node in declared or _is_tuple(node)]
    constants = _constants(tree)
    for constant in constants:
        _make_final(constant, lines)
    for node in classes:
        if node.name in NATIVE:
            _make_native(node, lines)
            # For the compiler only: decorators of it are not called.
            at = _blocks(tree)[0].body[0].lineno - 1
            lines[at] = f"    from mypy_extensions import mypyc_attr; {lines[at].lstrip()}"
    for node in declared:
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        lines[first - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or 0) - first + 1)
    for node in classes:
        if _is_tuple(node) and node not in declared:
            _quote(node, lines)
    for block in _blocks(tree):
        # The names that an interpreted copy has in place of types.
        if block.orelse:
            start, end = block.body[-1].end_lineno or 0, block.orelse[-1].end_lineno or 0
            lines[start:end] = ["\n"] * (end - start)
    added = ["from typing import Final"] if constants else []
    added += [f"import {name}" for name in sorted(_for_checkers(tree) & {*compiled} - {module})]
    names = tuple(node.name for node in declared)
    if names:
        added.append(f"from {module}{INTERPRETED} import {', '.join(names)}")
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    # On the line of the last import, so that the numbers of lines stay what they are.
    at = (imports[-1].end_lineno or 0) - 1
    last = lines[at][: imports[-1].end_col_offset]
    lines[at] = "; ".join([last, *added]) + "\n"
    text = "".join(lines)
    if module.startswith("aerobee.broker."):
        # Handlers take whatever has a connection's methods: a compiled class is checked by itself.
        text = text.replace(CONNECTION, "    from typing import Any as Connection\n")
    return Split(text, names)


def _constants(tree: ast.Module) -> list[ast.Assign | ast.AnnAssign]:
    """The assignments at the top of a module to names that never have another value."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = Counter(name.id for name in names if isinstance(name.ctx, ast.Store))
    nodes = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    return [node for node in nodes if stored[_name(node)] == 1 and _is_constant(node)]


def _name(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def _is_constant(node: ast.Assign | ast.AnnAssign) -> bool:
    """Not a type, of which the name has both cases or which is made by a call; not final yet.

    Numbers and texts stay what they are, for tests replace limits: those that are read for each
    message are final in the sources. Of a tuple there would be a struct in C, and a new object at
    each use.
    """
    name, value = _name(node), node.value
    if name == "__all__" or name not in {name.lower(), name.upper()}:
        return False
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith(NOT_MADE_FINAL):
        return False
    if isinstance(value, ast.Call) and ast.unparse(value.func) in TYPES_BY_CALL:
        return False
    if value is None or isinstance(value, (ast.Subscript, ast.Tuple)):
        return False
    return any(isinstance(part, (ast.Attribute, ast.Call, ast.Dict)) for part in ast.walk(value))


def _make_final(node: ast.Assign | ast.AnnAssign, lines: list[str]) -> None:
    line, value, of = lines[node.lineno - 1], node.value, ""
    if isinstance(node, ast.AnnAssign):
        assert node.annotation.end_lineno == node.lineno
        of = ast.unparse(node.annotation)
    elif isinstance(value, ast.Attribute) and value.attr.isupper():
        # The enum, or the checker would think of what is compared with it as known from then on.
        of = ast.unparse(value.value)
    note = f"Final[{of}]" if of else "Final"
    # Values may stand in parentheses that begin on this line and are no part of them.
    _, equals, rest = line.partition(" = ")
    assert equals, f"a value of {_name(node)} begins on a line of its own"
    lines[node.lineno - 1] = f"{_name(node)}: {note} = {rest}"


def _make_native(node: ast.ClassDef, lines: list[str]) -> None:
    """Its fields become parameters and attributes; copies and comparisons are as a struct's."""
    fields = [*_fields(node)]
    names = [ast.unparse(field.target) for field in fields]
    notes = [ast.unparse(field.annotation) for field in fields]
    values = ["" if field.value is None else f" = {ast.unparse(field.value)}" for field in fields]
    pairs = [*zip(names, notes, values, strict=True)]
    taken = ", ".join(f"{name}: {note}{value}" for name, note, value in pairs)
    kept = "; ".join(f"self.{name}: {note} = {name}" for name, note, _ in pairs)
    ours, theirs = (", ".join(f"{of}.{name}" for name in names) for of in ("self", "other"))
    of_class, equal = f"isinstance(other, {node.name})", f"({ours}) == ({theirs})"
    end = fields[-1].end_lineno or 0
    for one in node.body[node.body.index(fields[-1]) + 1 :][:1]:
        # The docstring of the last field belongs to it.
        end = one.end_lineno or 0 if isinstance(one, ast.Expr) else end
    first = fields[0].lineno - 1
    lines[first:end] = ["\n"] * (end - first)
    lines[first] = f"    def __init__(self, {taken}) -> None: {kept}\n"
    lines[first + 1] = f"    def __copy__(self) -> {node.name}: return {node.name}({ours})\n"
    lines[first + 2] = (
        f"    def __eq__(self, other: object) -> bool: return {of_class} and {equal}\n"
    )
    lines[node.lineno - 1] = f"class {node.name}:\n"
    # The line before a class is empty. Acyclic: no work of the collector, as with gc=False.
    lines[node.lineno - 2] = "@mypyc_attr(acyclic=True)\n"


def _is_data(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(one) for one in node.decorator_list)


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
    """The blocks that are there for type checkers only."""
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
