"""Builds the pages that are made from the source.

    python -m tests.pages [--out DIR] [--write]

Into `build/docs`, or where told, go the pages that the repository does not keep: the settings with
a table of each part, and every public name of the SDK. Pages that are kept are compared, with exit
code 1 for a stale one; `--write` renews them.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pages import metrics, sdk, settings, spark_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).parents[2]

BUILT: Mapping[str, Callable[[], str]] = {
    "config.md": settings.config_md,
    **{f"sdk/api/{name}.md": partial(sdk.module_md, name) for name in sdk.MODULES},
}
"""Page below the folder that is built → what makes its text."""

KEPT: Mapping[str, Callable[[], str]] = {
    "conf/broker.yaml": settings.broker_yaml,
    "docs/metrics.md": metrics.document,
    "docs/sdk/options.md": sdk.options_md,
    "docs/spark/options.md": spark_options.page,
}
"""Page of the repository → what makes its text. Why these are kept: decision 0013."""


def stale(root: Path = ROOT) -> list[str]:
    """The kept pages that are not what the source says."""
    return [
        name
        for name, text in KEPT.items()
        if not (root / name).is_file() or (root / name).read_text("utf-8") != text()
    ]


def write(folder: Path, pages: Mapping[str, Callable[[], str]]) -> None:
    """Write pages below a folder."""
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text(), "utf-8")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Build, and compare or renew what is kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("--out", type=Path, default=root / "build" / "docs")
    parser.add_argument("--write", action="store_true", help="renew the pages that are kept")
    options = parser.parse_args(arguments)
    write(options.out, BUILT)
    old = stale(root)
    if options.write:
        write(root, {name: KEPT[name] for name in old})
    for name in old:
        sys.stdout.write(f"{'written' if options.write else 'stale'}: {name}\n")
    return int(bool(old) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
