"""The configuration as text: for `config check`, `config convert` and administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.files.entries import ConfigurationError, Form, join_tree
from aerobee.broker.config.files.properties_file import escape
from aerobee.broker.config.layers import take
from aerobee.broker.config.schema import SCHEMA, SECRET, SECRET_WORD, canon, snake
from aerobee.broker.config.values import FreeSpace, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aerobee.broker.config.files.entries import Entry
    from aerobee.broker.config.layers import Layer, Setting
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.config.schema import Key, Value

MASK = "********"
NEVER_HERE = {"filterServerNums": "0"}
"""Keys without a setting that `exportConfigs` of RocketMQ 4.9 requires."""
TAKES = {True: "SIGHUP", False: "restart"}
"""Whether a setting is live → what applies a change of its file."""


def value_of(config: BrokerConfig, key: Key) -> Value:
    """The value of a setting."""
    value: Value = getattr(getattr(config, key.part), key.attribute)
    return value


def free_bytes(config: BrokerConfig, key: Key) -> int:
    """The space to keep free that replaces a disk limit; 0: the limit itself holds."""
    free = key.declaration.free
    return int(getattr(getattr(config, key.part), free)) if free else 0


def beyond_disk(config: BrokerConfig, keys: Iterable[Key], disk_bytes: int) -> list[str]:
    """Limits that keep more free than the disk has: for them all messages would be deleted."""
    return [
        f"{key.name}: {shown(config, key)} free is more than the whole disk has, {disk_bytes} bytes"
        for key in keys
        if free_bytes(config, key) > disk_bytes
    ]


def shown(config: BrokerConfig, key: Key) -> str:
    """The value of a setting as text; a secret is masked."""
    free = free_bytes(config, key)
    if free:
        return written_free(FreeSpace(free))
    text = text_of(value_of(config, key))
    return MASK if text and key.name in SECRET else text


def exported(config: BrokerConfig) -> dict[str, str]:
    """Every key with its value, and the kept keys of RocketMQ, sorted by RocketMQ name.

    Secrets are masked where they are set, and so is a kept value that may be one: in RocketMQ's
    files a key counts for nothing when a letter of it has another case.
    """
    ours = {key.name: shown(config, key) for key in SCHEMA.values()}
    kept = NEVER_HERE | dict(config.without_effect) | dict(config.unknown)
    kept = {name: MASK if may_be_secret(name, text) else text for name, text in kept.items()}
    return dict(sorted((kept | ours).items()))


def may_be_secret(name: str, text: str) -> bool:
    """Whether the value of a key without a setting is to be masked."""
    ours = canon(name) in map(canon, SECRET)
    return bool(text) and (ours or SECRET_WORD.search(f"{name}={text}") is not None)


def as_properties(config: BrokerConfig) -> str:
    """The result of `exported` as properties, the format of RocketMQ's tools."""
    return "".join(f"{escape(name)}={escape(text)}\n" for name, text in exported(config).items())


def namesrv_properties(config: BrokerConfig) -> str:
    """The settings of the name server as properties, under the names of RocketMQ's."""
    ours = {key.name: shown(config, key) for key in SCHEMA.values() if key.part == "namesrv"}
    ours["listenPort"] = ours.pop("namesrvListenPort")
    return "".join(f"{name}={escape(text)}\n" for name, text in sorted(ours.items()))


def overlay_lines(entries: Sequence[Entry], settings: Mapping[str, Setting]) -> Iterator[str]:
    """The overlay file as YAML lines: the existing entries, replaced or extended by `settings`."""
    for entry in entries:
        if canon(entry.name) not in settings:
            yield plain_line(entry.name, join_tree(entry.value))
    for name, setting in settings.items():
        value = setting.value
        plain = written_free(value) if isinstance(value, FreeSpace) else plain_value(value)
        yield yaml_line(SCHEMA[name].name, plain)


def check_report(config: BrokerConfig, *, every: bool = False) -> str:
    """The settings that differ from the declared default, with their source; then warnings.

    Pool sizes derive from the number of CPUs, so they are shown only where they were set. `every`:
    all settings, whether they differ or not.
    """
    lines = [
        f"{snake(key.name)}: {shown(config, key)}    # {source_of(config, key)}"
        for key in SCHEMA.values()
        if every or deserves_a_line(config, key)
    ]
    lines += [f"warning: {warning}" for warning in config.warnings]
    if config.without_effect:
        lines.append(f"kept, without effect: {', '.join(sorted(config.without_effect))}")
    if config.unknown:
        lines.append(f"kept, unknown: {', '.join(sorted(config.unknown))}")
    return "\n".join(lines)


def differing(config: BrokerConfig) -> list[dict[str, str]]:
    """The settings that differ from the declared default, as rows: key, default, value, source."""
    return [
        {
            "key": snake(key.name),
            "default": text_of(key.default),
            "value": shown(config, key),
            "source": source_of(config, key),
        }
        for key in SCHEMA.values()
        if deserves_a_line(config, key)
    ]


def compared(config: BrokerConfig, running: Mapping[str, str]) -> list[dict[str, str]]:
    """The differences from the settings of a running broker, by RocketMQ name, as rows.

    A setting that is missing in the broker's response is of another version.
    """
    return [
        {
            "key": snake(key.name),
            "running": running.get(key.name, ""),
            "configured": shown(config, key),
            "source": source_of(config, key),
            "takes": TAKES[key.declaration.live],
        }
        for key in SCHEMA.values()
        if running.get(key.name, "") != shown(config, key)
    ]


def differs(config: BrokerConfig, key: Key) -> bool:
    """Whether the value differs from the declared default."""
    return value_of(config, key) != key.default or bool(free_bytes(config, key))


def deserves_a_line(config: BrokerConfig, key: Key) -> bool:
    """Whether the short report shows the setting."""
    return differs(config, key) and (key.name in config.sources or not key.declaration.cpus)


def source_of(config: BrokerConfig, key: Key) -> str:
    """The source of a setting's value."""
    return config.sources.get(key.name, "derived" if differs(config, key) else "default")


def convert(entries: Sequence[Entry]) -> str:
    """Convert the entries of a YAML file to properties, or the reverse, keys in their order.

    Raises: ConfigurationError for entries with which a start would fail.
    """
    layer = take(entries)
    if layer.problems:
        raise ConfigurationError(layer.problems)
    from_yaml = any(entry.form is Form.YAML for entry in entries)
    lines = properties_lines(layer) if from_yaml else yaml_lines(layer)
    return "".join(f"{line}\n" for line in lines)


def yaml_lines(layer: Layer) -> Iterator[str]:
    """The layer as YAML. An unknown key would stop the start, so it becomes a comment."""
    for name, setting in layer.settings.items():
        value = setting.value
        plain = written_free(value) if isinstance(value, FreeSpace) else plain_value(value)
        yield yaml_line(SCHEMA[name].name, plain)
    for name, text in layer.without_effect.items():
        yield yaml_line(name, text) + "    # without effect"
    for name, text in layer.unknown.items():
        yield f"# unknown here: {escape(name)}={escape(text)}"


def yaml_line(name: str, value: Value) -> str:
    """One setting as a YAML line, quoted where YAML would read another value."""
    return plain_line(snake(name), value)


def plain_line(name: str, value: Value) -> str:
    """As `yaml_line`, with the name unchanged."""
    import yaml  # not needed at start

    return yaml.safe_dump({name: value}, width=1_000_000, allow_unicode=True).rstrip()


def plain_value(value: Value) -> Value:
    """The value without the enum around it."""
    return str(value) if isinstance(value, str) else value


def written_free(value: FreeSpace) -> str:
    """Space to keep free as text, in the largest unit that divides it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value.size_bytes % factor == 0:
            return f"{value.size_bytes // factor}{unit}"
    return f"{value.size_bytes}B"


def properties_lines(layer: Layer) -> Iterator[str]:
    """The layer as properties, which cannot express a disk limit in bytes."""
    for name, setting in layer.settings.items():
        key, value = SCHEMA[name], setting.value
        if isinstance(value, FreeSpace):
            yield f"# {key.name}: a RocketMQ file cannot say {written_free(value)} of free space"
        else:
            yield f"{key.name}={escape(text_of(value))}"
    for name, text in (layer.without_effect | layer.unknown).items():
        yield f"{escape(name)}={escape(text)}"
