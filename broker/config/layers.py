"""Turns the entries of one source into a layer of settings; a later layer overrides an earlier one.

All problems are collected, so that one run shows them all. Source: configuration §2.2 to §2.4.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.config.files.entries import (
    COMMAND_LINE,
    ENVIRONMENT,
    Entry,
    Form,
    Scalar,
    join_tree,
)
from aerobee.broker.config.files.foreign import ENVIRONMENT_ONLY, known_name, objection
from aerobee.broker.config.schema import KNOWN, SCHEMA, SECRET, canon, env, nearest
from aerobee.broker.config.values import FreeSpace, read, rocketmq_takes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.config.schema import Key, Value

NAMESRV_TWINS = {"listenport": "namesrvlistenport"}
"""Keys that both of RocketMQ's daemons have → their key here in the section `namesrv`."""


class Setting(NamedTuple):
    """A value and the location where it was set."""

    value: Value | FreeSpace
    location: str


@dataclass(slots=True)
class Layer:
    """The content of one source: settings by canonical name, other keys, warnings and problems."""

    settings: dict[str, Setting] = field(default_factory=dict)
    without_effect: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def take(entries: Sequence[Entry], *, only_live: bool = False) -> Layer:
    """The layer of one source. `only_live`: for the overlay file, which may hold only live keys."""
    layer = Layer()
    for entry in entries:
        if is_absent(entry):
            continue
        key = find(entry, layer)
        if key is None:
            continue
        if only_live and not key.declaration.live:
            layer.problems.append(f"{entry.where}: can not change while running")
        else:
            put(layer, key, entry)
    return layer


def is_absent(entry: Entry) -> bool:
    """Whether the entry is YAML's null, which is the same as no entry."""
    return isinstance(entry.value, Scalar) and entry.value.kind == "null"


def find(entry: Entry, layer: Layer) -> Key | None:
    """The setting of an entry; an entry without a setting is noted in the layer."""
    name = canon(entry.name)
    if entry.section == "namesrv":
        name = NAMESRV_TWINS.get(name, name)
    key = SCHEMA.get(name)
    if key is not None and entry.section == "namesrv" and key.part == "remoting":
        text = "the network settings exist once; write it outside `namesrv`"
        layer.problems.append(f"{entry.where}: {text}")
        return None
    if entry.form is Form.PROPERTIES and not is_spelled_exactly(entry.name, key):
        note_spelling(layer, entry, key)
        return None
    if key is None:
        note_foreign(layer, entry)
    return key


def is_spelled_exactly(name: str, key: Key | None) -> bool:
    """Whether a RocketMQ broker would recognise the key as written (it is case-sensitive)."""
    return name == (key.name if key is not None else KNOWN.get(canon(name), name))


def note_spelling(layer: Layer, entry: Entry, key: Key | None) -> None:
    """Warn of a key that RocketMQ ignores because of its spelling; it is ignored here as well."""
    proper = key.name if key is not None else KNOWN[canon(entry.name)]
    text = f"ignored, as RocketMQ does; the key is spelled {proper}"
    layer.warnings.append(f"{entry.where}: {text}")
    layer.unknown[entry.name] = join_tree(entry.value)


def note_foreign(layer: Layer, entry: Entry) -> None:
    """Note a key without a setting: known without effect, refused, or unknown."""
    proper, text = known_name(entry.name), join_tree(entry.value)
    if proper:
        against = objection(proper, text)
        if against:
            layer.problems.append(f"{entry.where}: {against}")
        layer.without_effect[proper] = text
    elif entry.form is Form.PROPERTIES:
        layer.unknown[entry.name] = text
    else:
        near = nearest(entry.name)
        hint = f"; did you mean {near}?" if near else ""
        layer.problems.append(f"{entry.where}: no such setting{hint}")


def put(layer: Layer, key: Key, entry: Entry) -> None:
    """Put the parsed value into the layer, or the parse error into its problems."""
    try:
        value = read(key, entry)
    except ValueError as error:
        layer.problems.append(f"{entry.where}: {error}{java_note(key, entry)}")
        return
    if entry.form is Form.PROPERTIES:
        warn_of_blanks(layer, key, entry)
    if value == "" and key.declaration.derived:
        return  # RocketMQ writes unset keys as an empty value
    name = canon(key.name)
    before = layer.settings.get(name)
    if before is not None and entry.form is not Form.PROPERTIES:
        if entry.form is Form.YAML or before.value != value:
            text = f"set a second time; the first is {before.location}"
            layer.problems.append(f"{entry.where}: {text}")
        return
    layer.settings[name] = Setting(value, entry.location)


def java_note(key: Key, entry: Entry) -> str:
    """The meaning of the value in RocketMQ, for people who migrate from it."""
    if entry.form is not Form.PROPERTIES or key.name in SECRET:
        return ""
    value = rocketmq_takes(key, join_tree(entry.value)) or "an empty value"
    return f"; RocketMQ would silently use {value}"


def warn_of_blanks(layer: Layer, key: Key, entry: Entry) -> None:
    """Warn of a number or boolean with trailing blanks: it is accepted here, not by RocketMQ."""
    text = join_tree(entry.value)
    if key.type in (int, bool) and text != text.strip():
        layer.warnings.append(
            f"{entry.where}: has blanks around its value, for which RocketMQ ignores the line"
        )


def environment_entries(environ: Mapping[str, str]) -> tuple[list[Entry], list[str]]:
    """The entries of the environment, and warnings about unknown variables."""
    entries: list[Entry] = []
    warnings: list[str] = []
    for variable, text in sorted(environ.items()):
        name = variable.removeprefix("AEROBEE_") if variable.startswith("AEROBEE_") else ""
        if variable == "NAMESRV_ADDR" and text.strip():
            name = "namesrvAddr"
        elif variable == "AEROBEE_DATA":
            name = "storePathRootDir"
        if not name or canon(name) in ENVIRONMENT_ONLY:
            continue
        if canon(name) not in SCHEMA and not known_name(name):
            near = nearest(name)
            hint = f"; did you mean {env(near)}?" if near else ""
            warnings.append(f"environment: {variable}: no such setting{hint}")
            continue
        entries.append(Entry(name, Scalar(text, "str"), f"{ENVIRONMENT}{variable}", Form.TEXT))
    return entries, warnings


def command_line_entries(
    overrides: Sequence[str], namesrv: str | None, data: str | None
) -> tuple[list[Entry], list[str]]:
    """The entries of `--set key=value`, `-n` and `--data`, and problems of the first."""
    entries: list[Entry] = []
    problems: list[str] = []
    for option, name, text in (
        ("-n", "namesrvAddr", namesrv),
        ("--data", "storePathRootDir", data),
    ):
        if text is not None:
            entries.append(Entry(name, Scalar(text, "str"), f"{COMMAND_LINE}{option}", Form.TEXT))
    for override in overrides:
        name, equals, text = override.partition("=")
        if equals and name.strip():
            entry = Entry(name.strip(), Scalar(text, "str"), f"{COMMAND_LINE}--set", Form.TEXT)
            entries.append(entry)
        else:
            problems.append(f"{COMMAND_LINE}--set {override}: the form is key=value")
    return entries, problems
