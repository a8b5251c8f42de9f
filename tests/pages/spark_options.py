"""Prints the tables of docs/spark/options.md from the classes of `options`.

`python -m tests.pages --write` updates them; the docstring of a field is its description.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from aerobee.field_docs import meanings
from aerobee.spark.cluster_options import ClusterOptions
from aerobee.spark.offsets import LatestPosition
from aerobee.spark.option_values import BYTES, SECONDS, UNITS, Options, declared
from aerobee.spark.options import (
    LagOptions,
    ReadOptions,
    StoreOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from aerobee.spark.option_values import OptionDeclaration

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark" / "options.md"
BEGIN: Final = "<!-- options: printed by python -m tests.pages -->"
END: Final = "<!-- end of options -->"
SECTIONS: Final[dict[str, type[Options]]] = {
    "The cluster, for all formats but `aerobee.store`": ClusterOptions,
    "Reading with `aerobee`": ReadOptions,
    "Writing with `aerobee`": WriteOptions,
    "Reading a store directory with `aerobee.store`": StoreOptions,
    "Lag with `aerobee.lag`": LagOptions,
}


def shown(option: OptionDeclaration) -> str:
    """The default in the form of an option; empty without one."""
    match option.default:
        case None | ():
            return ""
        case bool() as switch:
            return f"`{str(switch).lower()}`"
        case LatestPosition():
            return "`latest`"
    text = str(option.default)
    for unit in {BYTES, SECONDS}.intersection(map(str, get_args(option.hint))):
        largest = {factor: name for name, factor in UNITS[unit].items() if name in ("m", "k", "")}
        factor = next(one for one in sorted(largest, reverse=True) if option.default % one == 0)
        text = f"{option.default / factor:.0f}{largest[factor]}"
    return f"`{text}`"


def tables() -> str:
    """The tables, with the marks around them."""
    parts = [BEGIN]
    shared = {option.field for option in declared(ClusterOptions)}
    for title, cls in SECTIONS.items():
        told, wide = meanings(cls), cls is ReadOptions
        parts += ["", f"### {title}", ""]
        parts.append(f"| option | default |{' use |' if wide else ''} meaning |")
        parts.append("|---" * (4 if wide else 3) + "|")
        for option in declared(cls):
            if option.field in shared and cls is not ClusterOptions and cls is not StoreOptions:
                continue
            cells = [", ".join(f"`{name}`" for name in option.names), shown(option)]
            if wide:
                cells.append("stream" if option.stream_only else "batch, stream")
            cells.append(told[option.field].replace("|", "\\|"))
            parts.append(f"| {' | '.join(cells)} |")
    parts += ["", END]
    return "\n".join(parts)


def renewed(page: str) -> str:
    """The page with up-to-date tables. Raises: ValueError without the marks."""
    before, after = page.index(BEGIN), page.index(END) + len(END)
    return page[:before] + tables() + page[after:]


def page() -> str:
    """The text of docs/spark/options.md."""
    return renewed(PAGE.read_text(encoding="utf-8"))
