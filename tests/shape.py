"""The shape of the source in one table: how much there is, what knows what, how a message travels.

    python -m tests.shape [--tree DIR]... [--static] [--detail]

Each `--tree` adds a column for another checkout, so that before and after stand side by side; the
last column is this one. `--static` leaves out the rows for which a broker has to run (some ten
seconds for each tree). `--detail` names what was counted. `python -m tests.metrics` holds limits;
this command only counts, and every row is counted from the source or from a running broker.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.message_way import KINDS, SENDERS
from tests.kit.source_tree import PACKAGES, ROOT, Module, folder_graphs, groups, packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROBE = ROOT / "tests" / "kit" / "message_way.py"
PROBE_WITHIN_S = 120.0

RECORD = "store.format.record"
"""Where the layouts of a record are declared."""
HEAD = "Layout(Head"
READS = {"frombuffer", "iter_unpack", "pick", "read", "unpack", "unpack_from", "view"}
"""Calls that make values of bytes."""
RECORD_OFFSETS = {28, 36, 56, 88}
"""Queue offset, system flag, store time and body of a record; 4 is too common to be counted."""

WAITING = (
    "ahead", "backlog", "deferred", "gathered", "held", "held_back", "left", "parked", "postponed",
    "queued", "unfinished",
)  # fmt: skip
"""What a request or a connection that waits was called in `remoting/server` at some time."""


class Row(NamedTuple):
    """One figure, and what was counted for it."""

    name: str
    value: float
    counted: tuple[str, ...] = ()


def rows(modules: Mapping[str, Module]) -> list[Row]:
    """All figures that the source alone tells."""
    code = [module for module in modules.values() if module.text.strip()]
    lines = Counter[str]()
    for module in code:
        lines += kinds_of_lines(module)
    found = [
        Row("modules", len(code)),
        Row("lines", sum(lines.values())),
        *(Row(f"  {kind}", lines[kind]) for kind in LINE_KINDS),
    ]
    graphs = folder_graphs(modules)
    for top in PACKAGES:
        inside = {folder: graph for folder, graph in graphs.items() if folder.split("/")[0] == top}
        pairs = [pair for folder, graph in inside.items() for pair in mutual(folder, graph)]
        knots = [
            f"{folder}: {len(knot)} folders ({' '.join(knot)})"
            for folder, graph in inside.items()
            for knot in groups(graph)
        ]
        found += [
            Row(f"folders of {top} that import each other", len(pairs), tuple(pairs)),
            Row(f"folder knots of {top}", len(knots), tuple(knots)),
        ]
    for name, lazy, typing in (
        ("import circles", False, False),
        ("import circles, type checkers", False, True),
        ("import circles, in functions too", True, True),
    ):
        circles = groups(module_graph(modules, lazy=lazy, typing=typing))
        found.append(Row(name, len(circles), tuple(" ".join(circle) for circle in circles)))
    whole, literal = decoders(modules), literal_offsets(modules)
    words = waiting_words(modules)
    return [
        *found,
        Row("functions that decode a record's head", len(whole), tuple(whole)),
        Row("  their files", len({name.partition(":")[0] for name in whole})),
        Row("files with literal offsets of a record", len(literal), tuple(literal)),
        Row("words for waiting in remoting/server", len(words),
            tuple(f"{word} {count}" for word, count in words.items())),
    ]  # fmt: skip


# ── Lines ──

LINE_KINDS = ("statements", "docstrings", "imports", "comments", "blank")


def kinds_of_lines(module: Module) -> Counter[str]:
    """How many lines are what: a line of a docstring is no statement, nor is an import."""
    kind: dict[int, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind.update(dict.fromkeys(span(node), "imports"))
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            kind.update(dict.fromkeys(span(node), "docstrings"))
    counts = Counter[str]()
    for number, line in enumerate(module.text.splitlines(), 1):
        text = line.strip()
        if number in kind:
            counts[kind[number]] += 1
        elif not text:
            counts["blank"] += 1
        else:
            counts["comments" if text.startswith("#") else "statements"] += 1
    return counts


def span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


# ── Imports ──


def module_graph(modules: Mapping[str, Module], *, lazy: bool, typing: bool) -> dict[str, set[str]]:
    """Which module imports which; those in functions and for type checkers when asked for."""
    return {
        name: {
            found.target
            for found in module.imports
            if (lazy or not found.lazy)
            and (typing or not found.typing)
            and found.target in modules
            and found.target != name
        }
        for name, module in modules.items()
    }


def mutual(folder: str, graph: Mapping[str, set[str]]) -> Iterator[str]:
    """Pairs of sub-folders that import each other."""
    for one, other in combinations(sorted(graph), 2):
        if other in graph[one] and one in graph[other]:
            yield f"{folder}: {one} ↔ {other}"


def decoders(modules: Mapping[str, Module]) -> list[str]:
    """Functions that make values of the head of a record by one of its declared layouts.

    A layout is a name at the top of `store/format/record.py` that is bound to a `Layout` of the
    head, a name that any module binds to something made of one, and a local that is bound so. A
    function that knows two offsets of a record as numbers decodes as well. A function that takes
    one field by its declared offset decodes no record, nor does a writer.
    """
    layouts = layout_names(modules)
    whole = {f"record.{one}" for one in layouts[RECORD]}
    return sorted(
        f"{module.place}: {function.name}"
        for name, module in modules.items()
        for function in module.functions
        if reads_by(function, layouts[name] | whole)
        or (module.top == "store" and len(RECORD_OFFSETS & numbers(function)) > 1)
    )


def numbers(node: ast.AST) -> set[int]:
    """The whole numbers that an expression or a function is written with."""
    return {
        found.value
        for found in ast.walk(node)
        if isinstance(found, ast.Constant) and type(found.value) is int
    }


def layout_names(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Module → the names in it that stand for a layout of a record, or for its reader."""
    named: dict[str, set[str]] = {name: set() for name in (*modules, RECORD)}
    changed = True
    while changed:
        before = sum(map(len, named.values()))
        for name, module in modules.items():
            for node in module.nodes:
                if isinstance(node, ast.ImportFrom):
                    source = (node.module or "").removeprefix("aerobee.")
                    named[name] |= {
                        alias.asname or alias.name
                        for alias in node.names
                        if alias.name in named.get(source, ())
                    }
            for statement in module.tree.body:
                targets, value = bound(statement)
                declared = name == RECORD and value is not None and HEAD in ast.unparse(value)
                known = named[name] | {f"record.{one}" for one in named[RECORD]}
                if value is not None and (declared or mentions(value, known)):
                    named[name] |= targets
        changed = sum(map(len, named.values())) != before
    return named


def bound(node: ast.AST) -> tuple[set[str], ast.expr | None]:
    """Names that a statement binds, and to what."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return set(), None
    names = {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }
    return names, node.value


PARTS = {"offset", "pick", "size", "itemsize", "pack", "pack_into"}
"""What a layout has that is no reader of a whole head."""


def mentions(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is made of a layout as a whole."""
    if isinstance(node, ast.Attribute) and node.attr in PARTS:
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute) and ast.unparse(node) in names:
        return True
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READS | PARTS
        and mentions(node.func.value, names)
    ):
        return False  # What was read is a value, not a layout.
    return any(mentions(child, names) for child in ast.iter_child_nodes(node))


def reads_by(function: ast.FunctionDef | ast.AsyncFunctionDef, names: set[str]) -> bool:
    """Whether a function reads bytes by one of these layouts."""
    local = set(names)
    for node in ast.walk(function):
        targets, value = bound(node)
        if value is not None and not isinstance(value, ast.Call) and mentions(value, local):
            local |= targets
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in local and called.id.islower():
            return True
        if isinstance(called, ast.Attribute) and called.attr in READS - {"pick"}:
            # `view(HEADS[family])` of an array reads by its argument.
            subjects = [called.value, *(node.args if called.attr in ("frombuffer", "view") else ())]
            if any(mentions(subject, local) for subject in subjects):
                return True
    return False


def literal_offsets(modules: Mapping[str, Module]) -> list[str]:
    """Files outside of the wire that have an offset of a record as a number."""
    return sorted(
        {
            module.place
            for module in modules.values()
            if module.top in ("store", "broker")
            or module.name.startswith(("aerobee.client", "aerobee.spark"))
            for node in module.nodes
            if isinstance(node, ast.BinOp | ast.Slice | ast.Assign)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.Constant)
            and type(child.value) is int
            and child.value in RECORD_OFFSETS
        }
    )


# ── Waiting ──


def waiting_words(modules: Mapping[str, Module]) -> dict[str, int]:
    """Which of the words for waiting stand in the names of `remoting/server`, and how often."""
    counts = Counter[str]()
    for module in modules.values():
        if not module.name.startswith("remoting.server"):
            continue
        for name in identifiers(module):
            parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            for word in WAITING:
                # "held back" is a word of its own, beside "held".
                behind = "(?!_back)" if word == "held" else ""
                if re.search(rf"(^|_){word}{behind}(_|$)", parts):
                    counts[word] += 1
    return {word: counts[word] for word in WAITING if counts[word]}


def identifiers(module: Module) -> Iterator[str]:
    """Every name in the code of a module, once for each place where it is written."""
    for node in module.nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


# ── A running broker ──


def way_rows(tree: Path) -> list[Row]:
    """Frames and files of each kind of request, measured in a broker of that checkout."""
    done = subprocess.run(
        [sys.executable, str(PROBE)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tree,
        timeout=PROBE_WITHIN_S,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), "")
    if not line:
        raise SystemExit(f"the broker of {tree} answered nothing:\n{done.stdout}\n{done.stderr}")
    found = []
    for kind in KINDS:
        way = json.loads(line)[kind]
        if way["at_write"]:
            found.append(Row(f"{kind}: frames at the write", way["at_write"]))
        messages = SENDERS if kind == "gathered sends" else 1
        found += [
            Row(f"{kind}: frames at the deepest", way["deepest"]),
            Row(f"{kind}: calls per request", round(way["calls"] / messages)),
            Row(f"{kind}: files", len(way["files"]), tuple(way["files"])),
        ]
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.shape", description=__doc__)
    parser.add_argument("--tree", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--static", action="store_true", help="start no broker")
    parser.add_argument("--detail", action="store_true", help="name what was counted")
    given = parser.parse_args()
    columns: dict[str, dict[str, Row]] = {}
    for tree in (*(path.resolve() for path in given.tree), ROOT):
        all_rows = rows(packages(tree)) + ([] if given.static else way_rows(tree))
        columns[str(tree)] = {row.name: row for row in all_rows}
    names = dict.fromkeys(name for column in columns.values() for name in column)
    for number, tree_name in enumerate(columns, 1):
        print(f"column {number}: {tree_name}")
    for name in names:
        cells = [column.get(name) for column in columns.values()]
        print(
            f"{name:<48}", *(f"{'–' if cell is None else f'{cell.value:g}':>8}" for cell in cells)
        )
        last = cells[-1]
        if given.detail and last is not None:
            print(
                *(f"      {counted}" for counted in last.counted),
                sep="\n",
                end="\n" * bool(last.counted),
            )
    return 0


if __name__ == "__main__":
    gc.disable()  # Of what is parsed all stays: looking through it takes longer than parsing.
    raise SystemExit(main())
