"""The configuration of a name server that runs alone: its own keys, and those of the network.

From the same sources as a broker's, in the same order. A file is YAML, or the properties of
RocketMQ's name server; `listenPort` is the port of the name server. A setting about brokers is
refused in YAML and on the command line, and ignored elsewhere: an environment may be shared.
Source: configuration §3.6 (NamesrvConfig).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aerobee.broker.config.derive import Machine
from aerobee.broker.config.files.entries import Entry, Form, Scalar
from aerobee.broker.config.layers import Layer, take
from aerobee.broker.config.load import (
    command_line_layer,
    composed,
    conf_of,
    environment_layer,
    file_layer,
    home_of,
    leave_out_clashes,
    note_hidden,
    overlay_layer,
    overlay_path,
)
from aerobee.broker.config.schema import SCHEMA, canon

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig

PARTS: Final = ("namesrv", "remoting", "tls", "metrics", "process", "auth")
OTHERS: Final = ("insecure", "storePathRootDir", "configOverlayPath", "allowRuntimeConfig")
LOCATION: Final = "name server"
DEFAULTS: Final = {
    "listenPort": "9876",
    "namesrvListenPort": "9876",
    "vipListenPort": "0",
    "embeddedNamesrv": "false",
}
PORT, OWN_PORT = canon("listenPort"), canon("namesrvListenPort")


def load_namesrv_config(
    file: Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    data: Path | None = None,
    cpu_count: int,
    host_addresses: Sequence[str] = (),
) -> BrokerConfig:
    """The configuration that all sources give; what it says of a broker means nothing.

    Raises: ConfigurationError with every problem, each with its location and key.
    """
    home = home_of(environ)
    properties = file is not None and file.suffix.lower() not in (".yaml", ".yml")
    layers = [
        take(defaults(home)),
        of_namesrv(file_layer(file), strict=not properties),
        of_namesrv(environment_layer(environ)),
    ]
    command_line = of_namesrv(command_line_layer(overrides, None, data), strict=True)
    machine = Machine(cpu_count, host_addresses, "", home, conf=conf_of(environ, file))
    overlay = of_namesrv(overlay_layer(overlay_path([*layers, command_line], machine)))
    leave_out_clashes(layers, overlay, command_line, machine)
    note_hidden(layers, overlay, command_line)
    config = composed([*layers, overlay, command_line], machine, environ)
    # A value that would be odd in a broker is a default here.
    warnings = (text for text in config.warnings if not text.startswith(LOCATION))
    return replace(config, warnings=tuple(warnings))


def defaults(home: str) -> list[Entry]:
    """The defaults that differ from a broker's."""
    values = {**DEFAULTS, "storePathRootDir": f"{home}/namesrv"}
    return [Entry(name, Scalar(text, "str"), LOCATION, Form.TEXT) for name, text in values.items()]


def of_namesrv(layer: Layer, *, strict: bool = False) -> Layer:
    """The settings of a source that a name server has; `strict`: others are problems."""
    for name in list(layer.settings):
        key = SCHEMA[name]
        if key.part not in PARTS and key.name not in OTHERS:
            setting = layer.settings.pop(name)
            if strict:
                text = "is a setting of a broker; a name server alone has none of it"
                layer.problems.append(f"{setting.location}: {key.name} {text}")
    # Under a heading `namesrv`, and where a broker has one inside, it has the second name.
    port = layer.settings.get(OWN_PORT) or layer.settings.get(PORT)
    if port is not None:
        layer.settings[PORT] = layer.settings[OWN_PORT] = port
    return layer
