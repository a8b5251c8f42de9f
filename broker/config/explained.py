"""The facts about one setting: its purpose, default, range, value and source.

`aerobee config explain` shows it, and the pages of the documentation are printed with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.config.files.families import why_inert
from aerobee.broker.config.files.foreign import known_name
from aerobee.broker.config.report import shown, source_of
from aerobee.broker.config.schema import SCHEMA, SECTIONS, canon, nearest, snake
from aerobee.broker.config.values import text_of
from aerobee.field_docs import meanings

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.config.schema import Key

TITLES = {
    "broker": "The broker",
    "store": "The store",
    "replication": "Replication",
    "failover": "Failover",
    "remoting": "The network",
    "tls": "TLS",
    "namesrv": "The name server",
    "metrics": "Metrics and health",
    "console": "The console",
    "process": "The process",
    "auth": "Access control",
}


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


TYPES = {bool: "switch", int: "whole number", str: "text"}
CHANGES = {True: "while running", False: "with a restart"}
"""Whether a setting is live → when a change takes effect."""
