"""The documentation of settings: `conf/broker.yaml` and `docs/config.md`, made from declarations.

After a change run `python -m aerobee.broker.config.docs --write`; `--check` (exit 1) names the
stale files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from aerobee.broker.config.files.families import why_inert
from aerobee.broker.config.files.foreign import known_name
from aerobee.broker.config.report import shown, source_of
from aerobee.broker.config.schema import KNOWN, SCHEMA, SECTIONS, canon, nearest, snake
from aerobee.broker.config.values import text_of
from aerobee.field_docs import meanings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.config.schema import Key

TITLES = {
    "broker": "The broker",
    "store": "The store",
    "remoting": "The network",
    "tls": "TLS",
    "namesrv": "The name server",
    "metrics": "Metrics and health",
    "process": "The process",
    "auth": "Access control",
}

YAML_HEAD = """\
# Every setting of Aerobee, with its default.
# Generated: python -m aerobee.broker.config.docs --write
#
# Nothing here needs to be set. Take out the `#` before a key to change its value. The headings may
# be left out, and RocketMQ's spelling of a key (in brackets) is as good. Bare numbers are in the
# unit in brackets; 5s, 10m, 2h, 3d and 64KiB, 16MiB, 1GiB say their own. A key that does not exist
# stops the start. How files, environment and command line go together: docs/config.md
"""

PAGE_HEAD = """\
# Settings

Generated from the declarations by `python -m aerobee.broker.config.docs --write`; a test
compares.

A setting comes from, and the later one wins: its default · the file given by `-c` · the environment
(`AEROBEE_` and the key in capitals: `AEROBEE_FLUSH_DISK_TYPE`; short forms: `AEROBEE_DATA` for
`store_path_root_dir`, `NAMESRV_ADDR` as RocketMQ) · the changes made while an earlier run was up
(`config_overlay_path`) · the command line (`--set key=value`, `--data`, `-n`).

**YAML** (`.yaml`, `.yml`): flat, or under the headings `broker`, `store`, `remoting`, `tls`,
`namesrv`, `auth`, which mean nothing except that `listen_port` under `namesrv` is
`namesrv_listen_port`. Any spelling of a key will do. A number may say its unit: `ms s m h d`, `B
KiB MiB GiB`, `%`; a bare number is in the unit of the table. The three disk limits also take a
size, which is then the space to keep free. Names that look like numbers must be quoted. A list may
be written as a YAML list or as RocketMQ's text. A key that does not exist, or a value of the wrong
kind, unit or range, stops the start and is named with file and line.

**RocketMQ's `broker.conf`** (every other name): read as RocketMQ reads it, so the file of a Java
broker can be used as it is. Keys that have no effect here are kept, those that nobody knows are
kept and reported. A value that RocketMQ would silently replace by a default stops the start, and so
does one that asks for something this broker does not do.

`aerobee config check FILE` shows what differs from the defaults and where it comes from;
`aerobee config explain KEY` all about one setting; `aerobee config diff -c FILE --broker NAME` what
a running broker has otherwise, and whether SIGHUP is enough;
`aerobee config convert FILE` turns one form into the other.

## While the broker runs

What is marked *live* may change while the broker runs, and counts at once or in the next round of
what it is about; all else counts with the next start.

**By request**: `aerobee broker config set KEY=VALUE…`, `mqadmin updateBrokerConfig` (code 25), and
`mqadmin updateNamesrvConfig` (318) for the settings of the name server. One key that is not live
(code 16) or one bad value (29) refuses the whole request; paths, addresses and commands are never
live. The changed keys are written to `config_overlay_path` before they count, so they outlive a
restart and a kill. A key that the command line gives is refused, for that would win at the next
start. The operator's own file is never written. To undo a change, take its line out of that file
and send SIGHUP, or restart. `allow_runtime_config: false` refuses all changes.

**By signal**: on SIGHUP the broker reads all sources again, as at a start. Live settings change,
each with a line `config.changed` in the log; for the others a line `config.needs_restart` says what
is in use and what was read. A mistake anywhere, in that file of changes too, changes nothing and is
reported (`config.reload_refused`). A signal that comes during the start is obeyed after it.

A start never fails for what was changed in an earlier run: a line that this version does not know,
that another setting forbids by now, or that nobody can read is left out with a warning, and so is
told what does not count because a later source says otherwise.
"""


def default_text(key: Key) -> str:
    """The default as text for people."""
    if key.declaration.cpus:
        base, factor, limit = key.declaration.cpus
        count = "CPUs" if factor == 1 else f"{factor} × CPUs"
        text = f"{base} + {count}" if base else count
        return f"{text}, at most {limit}" if limit else text
    return key.declaration.derived or text_of(key.default)


def has_constant_default(key: Key) -> bool:
    """Whether the default is a fixed value, not derived."""
    return not (key.declaration.cpus or key.declaration.derived)


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


MEANINGS = {
    (part, attribute): text
    for part, cls in SECTIONS.items()
    for attribute, text in meanings(cls).items()
}
"""Part and attribute → the purpose of the setting."""


def meaning(key: Key) -> str:
    """The purpose of a setting, and the reason where it has no effect."""
    text = MEANINGS[key.part, key.attribute]
    return f"{text} Without effect: {key.declaration.inert}." if key.declaration.inert else text


SECTION_ORDER = list(dict.fromkeys(key.section for key in SCHEMA.values()))


def config_md() -> str:
    """The text of `docs/config.md`."""
    tables = "".join(f"\n## {TITLES[part]}\n\n{table(part)}" for part in SECTIONS)
    return PAGE_HEAD + tables + foreign_text()


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


def explained(config: BrokerConfig, name: str) -> dict[str, object]:
    """Everything known about a setting, and its current value. `name`: in any spelling.

    Raises: ValueError for an unknown name.
    """
    key = SCHEMA.get(canon(name))
    if key is not None:
        return {
            "key": snake(key.name),
            "rocketmq_key": "" if key.declaration.own else key.name,
            "about": TITLES[key.part],
            "effect": meaning(key),
            "type": TYPES.get(key.type, "one of a few words"),
            "unit": key.declaration.unit,
            "default": default_text(key),
            "values": key.range,
            "changes": CHANGES[key.declaration.live],
            "value": shown(config, key),
            "source": source_of(config, key),
        }
    known = known_name(name)
    if not known:
        near = nearest(name)
        raise ValueError(f"no such setting: {name}" + (f"; did you mean {near}?" if near else ""))
    return {
        "key": snake(known),
        "rocketmq_key": known,
        "effect": f"none here: {why_inert(known) or 'a later version will have it'}",
    }


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
        f"{len(foreign)} more keys of RocketMQ 5.4.0 and 4.9.7 are known by name: they are kept,\n"
        "shown to tools, and have no effect. A value that asks for something that is not there\n"
        "stops the start.\n\n| why | keys |\n|---|---|\n" + "".join(rows)
    )


TYPES = {bool: "switch", int: "whole number", str: "text"}
CHANGES = {True: "while running", False: "with a restart"}
"""Whether a setting is live → when a change takes effect."""

PAGES: Mapping[str, Callable[[], str]] = {
    "conf/broker.yaml": broker_yaml,
    "docs/config.md": config_md,
}
"""File below the project's root → the function that generates its text."""


def stale(root: Path) -> list[str]:
    """The files that differ from the declarations."""
    return [name for name, text in PAGES.items() if read(root / name) != text()]


def read(file: Path) -> str:
    """The text of a file; empty if there is none."""
    return file.read_text("utf-8") if file.is_file() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the generated files. Exit code: 1 if `--check` found a stale one."""
    program = "python -m aerobee.broker.config.docs"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    options = parser.parse_args(arguments)
    found = stale(options.root)
    for name in found:
        sys.stdout.write(f"{'written' if options.write else 'stale'}: {name}\n")
        if options.write:
            (options.root / name).write_text(PAGES[name](), "utf-8")
    return int(bool(found) and options.check)


if __name__ == "__main__":
    sys.exit(main())
