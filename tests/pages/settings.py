"""Settings as pages: conf/broker.yaml, and the tables behind docs/config.md."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from aerobee.broker.config.explained import (
    TITLES,
    default_text,
    has_constant_default,
    meaning,
)
from aerobee.broker.config.files.families import why_inert
from aerobee.broker.config.schema import KNOWN, SCHEMA, SECTIONS, snake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.config.schema import Key

PAGE = Path(__file__).parents[2] / "docs" / "config.md"

YAML_HEAD = """\
# Every setting of Aerobee, with its default.
# Generated: python -m tests.pages --write
#
# Nothing here needs to be set. Take out the `#` before a key to change its value. The headings may
# be left out, and RocketMQ's spelling of a key (in brackets) is as good. Bare numbers are in the
# unit in brackets; 5s, 10m, 2h, 3d and 64KiB, 16MiB, 1GiB say their own. A key that does not exist
# stops the start. How files, environment and command line go together: docs/config.md
"""


def broker_yaml() -> str:
    """The text of `conf/broker.yaml`."""
    return YAML_HEAD + "".join(f"{line}\n" for line in yaml_lines())


def yaml_lines() -> Iterator[str]:
    """The lines of `conf/broker.yaml`: headings, each with its keys."""
    heading = ""
    for key in sorted(SCHEMA.values(), key=lambda key: SECTION_ORDER.index(key.section)):
        if key.section != heading:
            heading = key.section
            yield from ("", f"{heading}:")
        yield from yaml_lines_of(key)


def yaml_lines_of(key: Key) -> Iterator[str]:
    """The purpose of a key, its allowed values, and the key itself, commented out."""
    limits = key.range if key.range != "text" else ""
    live = "live" if key.declaration.live else ""
    yield f"  # {meaning(key)}"
    yield f"  # ({', '.join(part for part in (key.name, limits, live) if part)})"
    if has_constant_default(key):
        value = str(key.default) if isinstance(key.default, str) else key.default
        yield "  #" + yaml.safe_dump({snake(key.name): value}, width=1_000).rstrip()
    else:
        yield f"  #{snake(key.name)}:    # {default_text(key)}"


SECTION_ORDER = list(dict.fromkeys(key.section for key in SCHEMA.values()))


def config_md() -> str:
    """The hand-written page docs/config.md with a table for each part of the settings."""
    tables = "".join(f"\n## {TITLES[part]}\n\n{table(part)}" for part in SECTIONS)
    return PAGE.read_text("utf-8") + tables + foreign_text()


def table(part: str) -> str:
    """The Markdown table of one part of the settings."""
    head = "| key | RocketMQ | default | values | | meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(row(key) for key in SCHEMA.values() if key.part == part)


def row(key: Key) -> str:
    """The table row of a setting."""
    said = key.declaration
    theirs = "–" if said.own else key.name
    unit = f" {said.unit}" if said.unit and has_constant_default(key) else ""
    cells = (
        f"`{snake(key.name)}`",
        theirs,
        default_text(key) + unit or "empty",
        key.range,
        "live" if said.live else "",
        meaning(key),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def foreign_text() -> str:
    """The section about keys that are in no table."""
    foreign = [known for name, known in KNOWN.items() if name not in SCHEMA]
    families: dict[str, list[str]] = {}
    for known in foreign:
        families.setdefault(why_inert(known), []).append(known)
    rows = (
        f"| {why} | {', '.join(f'`{one}`' for one in ones)} |\n"
        for why, ones in sorted(families.items())
    )
    return (
        "\n## Keys without effect\n\n"
        f"{len(foreign)} more keys of RocketMQ 5.5.0, 5.4.0 and 4.9.7 are known by name: they are\n"
        "kept, shown to tools, and have no effect. A value that asks for something that is not\n"
        "there stops the start.\n\n| why | keys |\n|---|---|\n" + "".join(rows)
    )
