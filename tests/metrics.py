"""Figures of the source that say how easy it is to read, and the limits that `make lint` holds.

    python -m tests.metrics [--check]

Prints one line for each figure: what it is now, its limit, and where the worst stand. A figure that
is within its limit is held; `--check` fails when one of those is beyond it. What is not reached yet
is listed. A limit may be lowered, never raised; when a figure is reached it is moved to the held.
Lines of a module have a guide and no limit: a module ends where its concept ends.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.private_names import private_uses
from tests.kit.source_tree import groups, import_graph, length, modules, packages

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Mapping, Sequence

    from tests.kit.source_tree import Module

WORST = 3
"""So many of the worst are named."""


class Figure(NamedTuple):
    """One number about the source; `worst` names what is largest, `held` what `--check` holds."""

    name: str
    value: float
    limit: float
    held: bool
    worst: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "held" if self.held else "reached" if self.reached else "open"
        worst = f"   {', '.join(self.worst)}" if self.worst else ""
        return f"{self.name:<46} {self.value:>8g}  ≤ {self.limit:<7g} {mark:<8}{worst}"


def figures(modules: Mapping[str, Module], tests: Sequence[Module] = ()) -> list[Figure]:
    """All of them, from the product's modules by name, and those of its tests."""
    code = [module for module in modules.values() if module.text.strip()]
    files = {module.place: module.text.count("\n") for module in code}
    functions = {
        f"{module.place}:{node.lineno} {node.name}": length(node)
        for module in code
        for node in module.functions
    }
    constructors = {
        f"{module.place}:{node.lineno}": _parameters(node)
        for module in code
        for node in module.functions
        if node.name == "__init__"
    }
    features = Counter(
        module.path.parent.name
        for module in code
        if module.top == "broker" and module.room and module.path.name != "__init__.py"
    )
    circles = groups(import_graph(modules))
    many = {place: count for place, count in constructors.items() if count > 7}
    private = private_uses(modules.values(), tests)
    return [
        *_sizes("module lines", files, (140, 400, 800), (False, False, False)),
        *_sizes("function lines", functions, (6, 18, 60), (True, True, True)),
        Figure("import circles, also of types and in functions", len(circles), 0, True,
               _shown(circles)),
        Figure("constructors with more than 7 parameters", len(many), 0, True, _worst(many)),
        Figure("files of a broker folder, most", max(features.values(), default=0), 16, True,
               _worst(features)),
        Figure("private names that tests use", len(private), 0, True, tuple(private[:WORST])),
    ]  # fmt: skip


def _sizes(
    name: str,
    sizes: Mapping[str, int],
    limits: tuple[int, int, int],
    held: tuple[bool, bool, bool],
) -> list[Figure]:
    values = sorted(sizes.values())
    p90 = quantiles(values, n=10)[-1]
    return [
        Figure(f"{name}, median", median(values), limits[0], held[0]),
        Figure(f"{name}, nine of ten at most", round(p90), limits[1], held[1]),
        Figure(f"{name}, longest", values[-1], limits[2], held[2], _worst(sizes)),
    ]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without `self`."""
    found = node.args
    return len(found.posonlyargs) + len(found.args) + len(found.kwonlyargs) - 1


def _worst(values: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{name}: {value}" for name, value in Counter(values).most_common(WORST) if value)


def _shown(groups: Iterable[list[str]]) -> tuple[str, ...]:
    return tuple(f"{len(group)}: {' '.join(group[:WORST])} …" for group in list(groups)[:WORST])


def main() -> int:
    """Print the figures; with `--check`, 1 when one that is held is beyond its limit."""
    found = figures(packages(), modules("tests"))
    for figure in found:
        print(figure)
    broken = [figure for figure in found if figure.held and not figure.reached]
    if broken and "--check" in sys.argv[1:]:
        print("beyond their limits:", *(figure.name for figure in broken), sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # Of what is parsed all stays: looking through it takes longer than parsing.
    raise SystemExit(main())
