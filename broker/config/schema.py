"""The table of all settings, built from their declarations, and the spellings of their names.

Every key has one RocketMQ name; all other spellings are computed from it: `snake` for YAML, `env`
for the environment, `canon` to compare names in any spelling. Source: configuration §2.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from msgspec import Meta

from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.config.settings.failover import FailoverConfig
from aerobee.broker.config.settings.metrics import MetricsConfig
from aerobee.broker.config.settings.namesrv import NamesrvConfig
from aerobee.broker.config.settings.process import ProcessConfig
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.tls_config import TlsConfig
from aerobee.setting import KEY, Declaration
from aerobee.store.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Value = int | str
"""The type of a setting's value; bool and the enums are subclasses of these."""

SECRET = frozenset(
    {
        "etcdPassword",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "metricsGrpcExporterHeader",
        "metricsToken",
        "tlsClientKeyPassword",
        "tlsServerKeyPassword",
    }
)
"""Keys whose value is never printed."""

SECRET_WORD: Final = re.compile("password|secret|token|credential|signature", re.IGNORECASE)
"""The words by which any other key, or its value, says that it may be a secret."""

YAML_SECTIONS = {
    "metrics": "broker",
    "console": "broker",
    "process": "broker",
    "replication": "store",
    "failover": "store",
}
"""The section of each part that has no section of its own in a file."""


def canon(name: str) -> str:
    """The canonical form of a key, common to all its spellings."""
    return name.replace("_", "").replace("-", "").replace(".", "").lower()


def snake(name: str) -> str:
    """The YAML spelling of a RocketMQ name."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", words).lower()


def env(name: str) -> str:
    """The environment variable of a RocketMQ name."""
    return "AEROBEE_" + snake(name).upper()


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its names, its type with range, its part and attribute, and its declaration."""

    part: str
    attribute: str
    type: type[Value]
    default: Value
    declaration: Declaration

    @property
    def name(self) -> str:
        """The name in RocketMQ's spelling."""
        return self.declaration.key

    @property
    def hint(self) -> Any:
        """The type with its range, as msgspec takes it."""
        declaration = self.declaration
        limits = (
            Meta(pattern=declaration.pattern)
            if declaration.ge is None
            else Meta(ge=declaration.ge, le=declaration.le)
        )
        return Annotated[self.type, limits]

    @property
    def section(self) -> str:
        """The section of the setting in a YAML file."""
        return YAML_SECTIONS.get(self.part, self.part)

    @property
    def choices(self) -> tuple[Value, ...]:
        """The allowed values, where they are listed one by one; else empty."""
        if issubclass(self.type, StrEnum):
            return tuple(member.value for member in self.type)
        return self.declaration.choices

    @property
    def range(self) -> str:
        """The allowed values as text for people."""
        if self.choices:
            return ", ".join(str(choice) for choice in self.choices)
        if self.type is bool:
            return "true, false"
        declaration = self.declaration
        if declaration.ge is None:
            return "text"
        unit = declaration.unit and f" {declaration.unit}"
        return f"{declaration.ge}\N{EN DASH}{declaration.le}{unit}"


def declared(part: str, cls: type[Any]) -> Iterator[Key]:
    """The keys of one class of settings, in the order of the declaration."""
    hints = get_type_hints(cls)
    for item in fields(cls):
        if KEY in item.metadata:
            default: Any = item.default
            yield Key(part, item.name, hints[item.name], default, item.metadata[KEY])


SECTIONS: Mapping[str, type[Any]] = {
    "broker": BrokerOptions,
    "store": StoreConfig,
    "replication": ReplicationConfig,
    "failover": FailoverConfig,
    "remoting": RemotingConfig,
    "tls": TlsConfig,
    "namesrv": NamesrvConfig,
    "metrics": MetricsConfig,
    "console": ConsoleConfig,
    "process": ProcessConfig,
    "auth": AuthConfig,
}
"""Part of `BrokerConfig` → the class of its settings."""

SCHEMA: Mapping[str, Key] = {
    canon(key.name): key for part, cls in SECTIONS.items() for key in declared(part, cls)
}
"""Canonical name → setting."""


def read_known() -> Iterator[str]:
    """RocketMQ's names, from the data file beside this module."""
    text = Path(__file__).with_name("known_keys.txt").read_text("utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))


KNOWN: Mapping[str, str] = {canon(name): name for name in read_known()}
"""Canonical name → RocketMQ's name, of every key of RocketMQ, with or without a setting here."""


def nearest(name: str) -> str:
    """The YAML spelling of the setting whose name is most similar to `name`; empty: none is.

    A setting of ours that has all of its words and some more comes first: `metrics_port`.
    """
    from difflib import get_close_matches  # only needed after a mistake

    words = {*snake(name).split("_")}
    longer = [own for key in SCHEMA.values() if words <= {*(own := snake(key.name)).split("_")}]
    if len(words) > 1 and longer:
        return min(longer, key=len)
    names = {key: setting.name for key, setting in SCHEMA.items()} | dict(KNOWN)
    matches = get_close_matches(canon(name), names, n=1, cutoff=0.7)
    return snake(names[matches[0]]) if matches else ""
