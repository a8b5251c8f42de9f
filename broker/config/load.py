"""Loads the broker's configuration from all sources, checked, as frozen values.

default → file → environment → overlay of runtime changes → command line; the later one wins. All
problems of all sources are reported at once. Only the named files are read.
Source: configuration §2.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.config.derive import Machine, derived, hints, objections
from aerobee.broker.config.files.entries import (
    ConfigurationError,
    Entry,
    Form,
    where,
)
from aerobee.broker.config.files.properties_file import read_properties
from aerobee.broker.config.layers import (
    Layer,
    Setting,
    command_line_entries,
    environment_entries,
    take,
)
from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.config.report import convert as convert_entries
from aerobee.broker.config.schema import SCHEMA, SECTIONS, canon
from aerobee.broker.config.settings.broker import NAME
from aerobee.broker.config.values import FreeSpace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.config.schema import Value

OFF = ("", "false")
"""Values that switch a key off."""
SHOWN_NAMES = 10
"""The most keys that one warning names."""
CONTAINER_SIGNS = ("AEROBEE_IMAGE", "KUBERNETES_SERVICE_HOST", "container")


def load_config(
    file: Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    namesrv: str | None = None,
    data: Path | None = None,
    cpu_count: int,
    host_addresses: Sequence[str],
    host_name: str = "",
    member: Sequence[str] = (),
) -> BrokerConfig:
    """Read all sources and return the configuration, with derived values.

    `overrides`: `key=value` in any spelling. `host_addresses`: of interfaces that are up, in order.
    `member`: `key=value` of what is of one broker alone, where a supervisor runs several.
    Raises: ConfigurationError with every problem, each with its location and key.
    """
    layers = [file_layer(file), environment_layer(environ)]
    command_line = command_line_layer(overrides, namesrv, data)
    home = home_of(environ)
    inside = any(environ.get(name) for name in CONTAINER_SIGNS)
    machine = Machine(
        cpu_count, host_addresses, proper_name(host_name), home, inside, conf_of(environ, file)
    )
    command_line.settings |= command_line_layer(member, None, None).settings
    path = overlay_path([*layers, command_line], machine)
    if file is not None and path.absolute() == file.absolute():
        text = f"{path} is the configuration itself, which is never written; name another file"
        layers[0].problems.append(f"{file}: configOverlayPath: {text}")
    overlay = overlay_layer(path)
    leave_out_clashes(layers, overlay, command_line, machine)
    note_hidden(layers, overlay, command_line)
    config = composed([*layers, overlay, command_line], machine, environ)
    return replace(config, member=bool(member))


def home_of(environ: Mapping[str, str]) -> str:
    """The home of this user, to which names are appended; empty for the root directory."""
    return (environ.get("HOME") or str(Path.home())).rstrip("/")


def conf_of(environ: Mapping[str, str], file: Path | None) -> str:
    """The directory of RocketMQ's further files: that of the installation, else of this file."""
    installed = environ.get("ROCKETMQ_HOME")
    if installed:
        return f"{installed.rstrip('/')}/conf"
    return "" if file is None else str(file.absolute().parent)


YAML: Final = (".yaml", ".yml")
SECTION: Final = re.compile(
    rb"^[a-z_]+:[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]+[a-z_]+:", re.MULTILINE
)
"""A section of YAML: a name, and an indented setting below it. No line of properties is so."""


def read_file(file: Path) -> list[Entry]:
    """The entries of a file: YAML by its suffix, else properties. Raises: ConfigurationError."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror or error}"]) from error
    if file.suffix.lower() in YAML:
        return entries_of_yaml(content, file)
    if SECTION.search(content):
        # As properties its settings would be keys that nobody knows, and the defaults count.
        raise ConfigurationError([f"{file}: it is YAML: name it {file.name}.yaml"])
    return read_properties(content, str(file))


def entries_of_yaml(content: bytes, file: Path) -> list[Entry]:
    """The entries of a YAML text; the YAML parser is imported only here."""
    from aerobee.broker.config.files.yaml_file import read_yaml

    return read_yaml(content, str(file))


def convert(file: Path) -> str:
    """A properties file as YAML, or a YAML file as properties. Raises: ConfigurationError."""
    return convert_entries(read_file(file))


def file_layer(file: Path | None) -> Layer:
    """The layer of the file; an unreadable file is its one problem."""
    try:
        return take(read_file(file) if file is not None else [])
    except ConfigurationError as error:
        return Layer(problems=list(error.problems))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """The layer of the environment."""
    entries, warnings = environment_entries(environ)
    layer = take(entries)
    layer.warnings += warnings
    return layer


def command_line_layer(overrides: Sequence[str], namesrv: str | None, data: Path | None) -> Layer:
    """The layer of the command line."""
    entries, problems = command_line_entries(
        overrides, namesrv, None if data is None else str(data)
    )
    layer = take(entries)
    layer.problems += problems
    return layer


def overlay_layer(file: Path) -> Layer:
    """The layer of changes made while an earlier run was up; usually empty.

    Its problems never stop a start: a bad entry is left out, with a warning.
    """
    entries, unreadable = overlay_entries(file)
    layer = take(entries, only_live=True)
    layer.warnings += [*unreadable, *(f"{problem}; left out" for problem in layer.problems)]
    layer.problems.clear()
    layer.without_effect.clear()
    return layer


def overlay_entries(file: Path) -> tuple[list[Entry], list[str]]:
    """The entries of the overlay file, and errors of reading it; then its backup is used.

    Without the file there are no entries: deleting it undoes all changes.
    """
    warnings: list[str] = []
    backup = file.with_name(f"{file.name}.bak")
    for damaged, then in (
        (file, "its backup stands in"),
        (backup, "what was changed while running is lost"),
    ):
        try:
            return entries_of_yaml(damaged.read_bytes(), damaged), warnings
        except FileNotFoundError:
            break
        except OSError as error:
            warnings.append(f"{damaged}: {error.strerror or error}; {then}")
        except ConfigurationError as error:
            warnings += [f"{problem}; {then}" for problem in error.problems]
    return [], warnings


def overlay_mistakes(file: Path) -> list[str]:
    """The mistakes of somebody who edited that file; lines of other versions are none.

    A start leaves these lines out, or takes the backup; a running broker keeps what it has.
    """
    try:
        entries = entries_of_yaml(file.read_bytes(), file)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{file}: {error.strerror or error}"]
    except ConfigurationError as error:
        return list(error.problems)
    keys = ((SCHEMA.get(canon(entry.name)), entry) for entry in entries)
    return take([entry for key, entry in keys if key is not None and key.declaration.live]).problems


def leave_out_clashes(
    layers: Sequence[Layer], overlay: Layer, command_line: Layer, machine: Machine
) -> None:
    """Remove overlay settings that contradict the current settings of the other sources."""

    def broken(overlay: Layer) -> set[tuple[str, str]]:
        return set(objections(built([*layers, overlay, command_line], machine)))

    known = broken(Layer())
    if broken(overlay) <= known:
        return
    every, overlay.settings = overlay.settings, {}
    for name, setting in every.items():
        overlay.settings[name] = setting
        clash = broken(overlay) - known
        if clash:
            del overlay.settings[name]
            key, text = min(clash)
            place = where(setting.location, SCHEMA[name].name)
            overlay.warnings.append(f"{place}: left out, for then {key}: {text}")


def note_hidden(layers: Sequence[Layer], overlay: Layer, command_line: Layer) -> None:
    """Warn where an overlay setting hides that of another source, or is hidden itself."""
    below = merged(layers)
    for name, setting in overlay.settings.items():
        over, under = command_line.settings.get(name), below.get(name)
        if over is not None and over.value != setting.value:
            place = where(setting.location, SCHEMA[name].name)
            overlay.warnings.append(f"{place}: does not count, the command line says otherwise")
        elif over is None and under is not None and under.value != setting.value:
            place = where(under.location, SCHEMA[name].name)
            overlay.warnings.append(
                f"{place}: does not count, it was changed while running ({setting.location})"
            )


def overlay_path(layers: Sequence[Layer], machine: Machine) -> Path:
    """The overlay file; its path cannot be set in the overlay itself."""
    values = given(merged(layers))
    return Path(str((values | derived(values, machine))["configOverlayPath"]))


def merged(layers: Sequence[Layer]) -> dict[str, Setting]:
    """Canonical name → the setting of the last source that has it."""
    return {name: setting for layer in layers for name, setting in layer.settings.items()}


def given(settings: Mapping[str, Setting]) -> dict[str, Value]:
    """RocketMQ name → value, without disk limits given as free space."""
    return {
        SCHEMA[name].name: setting.value
        for name, setting in settings.items()
        if not isinstance(setting.value, FreeSpace)
    }


def composed(layers: Sequence[Layer], machine: Machine, environ: Mapping[str, str]) -> BrokerConfig:
    """The checked configuration. Raises: ConfigurationError."""
    layers = [rocketmq_tls(layers), *layers]
    config = replace(
        built(layers, machine),
        unknown={name: text for layer in layers for name, text in layer.unknown.items()},
        without_effect={k: text for layer in layers for k, text in layer.without_effect.items()},
        in_image=environ.get("AEROBEE_IMAGE", "") not in ("", "0"),
    )
    problems = [problem for layer in layers for problem in layer.problems]
    problems += [sentence(config, *objection) for objection in objections(config)]
    if problems:
        raise ConfigurationError(problems)
    warnings = [warning for layer in layers for warning in layer.warnings]
    asking = [name for name, text in config.without_effect.items() if text.strip() not in OFF]
    if asking:
        warnings.append(f"kept, but without effect here: {some(asking)}")
    if config.unknown:
        warnings.append(f"kept, but nobody here knows them: {', '.join(sorted(config.unknown))}")
    explicit = given(merged(layers))
    warnings += [sentence(config, *hint) for hint in hints(explicit, config, machine)]
    return replace(config, warnings=tuple(warnings))


def rocketmq_tls(layers: Sequence[Layer]) -> Layer:
    """The settings of TLS in the file of `tlsConfigFile`; others are for RocketMQ's clients."""
    file = str(given(merged(layers)).get("tlsConfigFile", ""))
    if not file:
        return Layer()
    try:
        read = read_properties(Path(file).read_bytes(), file)
    except OSError as error:
        return Layer(problems=[f"tlsConfigFile: {file}: {error.strerror or error}"])
    except ConfigurationError as error:
        return Layer(problems=list(error.problems))
    keys = ((SCHEMA.get(canon(entry.name)), entry) for entry in read)
    own = [entry for key, entry in keys if key is not None and key.part == "tls"]
    return take([entry._replace(form=Form.TEXT) for entry in own])


def built(layers: Sequence[Layer], machine: Machine) -> BrokerConfig:
    """The settings of all layers and the derived ones, unchecked."""
    settings = merged(layers)
    explicit = given(settings)
    return BrokerConfig(
        **parts(explicit | derived(explicit, machine), settings),
        sources={SCHEMA[name].name: setting.location for name, setting in settings.items()},
    )


def some(names: Sequence[str]) -> str:
    """The names, or the first of many: a file written by RocketMQ has hundreds."""
    shown = sorted(names)[:SHOWN_NAMES]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more; config check shows all" if more else "")


def parts(values: Mapping[str, Value], settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The parts of the configuration, each built from its settings."""
    attributes: dict[str, dict[str, Value]] = {part: {} for part in SECTIONS}
    for name, value in values.items():
        key = SCHEMA[canon(name)]
        attributes[key.part][key.attribute] = value
    for name, setting in settings.items():
        if isinstance(setting.value, FreeSpace):
            free = str(SCHEMA[name].declaration.free)
            attributes[SCHEMA[name].part][free] = setting.value.size_bytes
    return {part: cls(**attributes[part]) for part, cls in SECTIONS.items()}


def sentence(config: BrokerConfig, name: str, text: str) -> str:
    """A message about a key, with the location where it was set."""
    return f"{where(config.sources.get(name, 'default'), name)}: {text}"


def proper_name(host_name: str) -> str:
    """The host name, if it is valid as a broker name."""
    return host_name if re.fullmatch(NAME, host_name) else ""
