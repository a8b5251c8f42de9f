"""The source as data: modules, imports, functions and comments, for the rules of the house."""

from __future__ import annotations

import ast
import gc
import io
import tokenize
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
PACKAGES = ("aerobee", "broker", "remoting", "store")
LINKED = ("broker", "remoting", "store")
"""Folders that are imported as packages of `aerobee`; here modules go by their folder."""


class Import(NamedTuple):
    """One imported module; `target` is the longest dotted name that is a module of ours, else the
    name as it stands."""

    module: str
    target: str
    line: int
    lazy: bool
    """Inside a function."""
    typing: bool
    """Under TYPE_CHECKING: read by type checkers and by nobody else."""

    @property
    def top(self) -> str:
        """The first name of the target."""
        return self.target.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


@dataclass(frozen=True)
class Module:
    """One file, parsed once."""

    name: str
    path: Path
    root: Path = ROOT
    """The tree that it is part of."""

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        tree = ast.parse(self.text, str(self.path))
        # It stays to the end: to look through it for what is free takes as long as the parsing.
        gc.freeze()
        return tree

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree, walked once, as `ast.walk` does in twice the time."""
        nodes: list[ast.AST] = [self.tree]
        for node in nodes:
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, list):
                    nodes += [child for child in value if isinstance(child, ast.AST)]
                elif isinstance(value, ast.AST):
                    nodes.append(value)
        return nodes

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Every call, with the dotted name of what is called; "" where that is no name."""
        return [(dotted(node.func), node) for node in self.nodes if isinstance(node, ast.Call)]

    @property
    def top(self) -> str:
        """The package of ours that it is in."""
        return self.name.partition(".")[0]

    @property
    def room(self) -> str:
        """The sub-package it is in, "" for the root modules of a package."""
        parts = self.name.split(".")
        is_package = self.path.name == "__init__.py"
        return parts[1] if len(parts) > 2 or (is_package and len(parts) == 2) else ""

    @property
    def place(self) -> str:
        """The path from the root of the tree."""
        return str(self.path.relative_to(self.root))

    @cached_property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, self, lazy=False, typing=False))

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [
            node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Line number and text of every comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [
            (token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT
        ]

    def public_definitions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
        """Public functions and classes of the module, and public methods of those classes."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if node.name.startswith("_"):
                    continue
                yield node
                if isinstance(node, ast.ClassDef):
                    yield from (
                        inner
                        for inner in node.body
                        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
                        and not inner.name.startswith("_")
                    )


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring left out."""
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        whole -= (first.end_lineno or first.lineno) - first.lineno + 1
    return whole


@cache
def packages(root: Path = ROOT) -> dict[str, Module]:
    """Every module of the four packages by its dotted name."""
    return {module.name: module for top in PACKAGES for module in modules(top, root)}


@cache
def modules(folder: str, root: Path = ROOT) -> tuple[Module, ...]:
    """Every module below a folder of the tree."""
    return tuple(Module(_name(path, root), path, root) for path in python_files(folder, root))


def python_files(folder: str, root: Path = ROOT) -> list[Path]:
    """Every Python file below a folder of the tree, sorted."""
    return sorted(path for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts)


def import_graph(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Which module imports which, in functions and for type checkers as well."""
    return {
        name: {
            found.target
            for found in module.imports
            if found.target in modules and found.target != name
        }
        for name, module in modules.items()
    }


def folder_graphs(modules: Mapping[str, Module]) -> dict[str, dict[str, set[str]]]:
    """For each folder with sub-folders: which of these imports which, in whatever way.

    Modules that lie in the folder itself stand above or below all of its sub-folders: they count
    for none of them.
    """
    graphs: dict[str, dict[str, set[str]]] = {}
    for module in modules.values():
        home = module.path.relative_to(module.root).parent.parts
        for found in module.imports:
            target = modules.get(found.target)
            if target is None:
                continue
            other = target.path.relative_to(target.root).parent.parts
            same = 0
            while same < min(len(home), len(other)) and home[same] == other[same]:
                same += 1
            if 0 < same < min(len(home), len(other)):
                graph = graphs.setdefault("/".join(home[:same]), {})
                graph.setdefault(home[same], set()).add(other[same])
                graph.setdefault(other[same], set())
    return graphs


def groups(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of more than one of which each reaches each other (Tarjan), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def folder_name(imported: str) -> str:
    """The name of a module by its folder: `aerobee.store.format` lies in `store/format`."""
    top, _, rest = imported.partition(".")
    linked = top == "aerobee" and rest.partition(".")[0] in LINKED
    return rest if linked else imported


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_WITH_STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Imports are statements, so no expression has one."""


@cache
def _is_module(name: str, root: Path) -> bool:
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def dotted(node: ast.expr) -> str:
    """The text of a name with its attributes, such as `os.path.join`; "" for anything else."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(names))) if isinstance(node, ast.Name) else ""


def _imports(node: ast.AST, module: Module, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module.name, folder_name(alias.name), child.lineno, lazy, typing)
        elif isinstance(child, ast.ImportFrom):
            for target in _from_targets(child, module.root):
                yield Import(module.name, folder_name(target), child.lineno, lazy, typing)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for inner in child.body:
                yield from _imports(_wrap(inner), module, lazy=lazy, typing=True)
            for inner in child.orelse:
                yield from _imports(_wrap(inner), module, lazy=lazy, typing=typing)
        elif isinstance(child, _WITH_STATEMENTS):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, module, lazy=lazy or inside, typing=typing)


def _wrap(statement: ast.stmt) -> ast.Module:
    return ast.Module(body=[statement], type_ignores=[])


def _from_targets(node: ast.ImportFrom, root: Path) -> set[str]:
    base = node.module or ""
    if node.level:
        return {"." * node.level + base}
    return {
        full if _is_module(folder_name(full := f"{base}.{alias.name}"), root) else base
        for alias in node.names
    }
