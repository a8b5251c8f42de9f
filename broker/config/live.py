"""Changes of settings of a running broker: the new values, the differences, and conflicts.

This module only computes; `broker.live_settings` applies the result. Source: configuration §4.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.config.conflicts import oddities
from aerobee.broker.config.derive import objections
from aerobee.broker.config.report import shown, value_of
from aerobee.broker.config.schema import SCHEMA, SECRET, SECTIONS
from aerobee.broker.config.values import FreeSpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.broker.config.layers import Setting
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.config.schema import Key


class Difference(NamedTuple):
    """A setting with its value before and after, as text."""

    key: Key
    before: str
    after: str


def fields_of(key: Key, value: object) -> dict[str, object]:
    """The fields that a value sets: a disk limit is a used share or the bytes to keep free."""
    free = key.declaration.free
    if isinstance(value, FreeSpace):
        return {free: value.size_bytes}
    return {key.attribute: value} | ({free: 0} if free else {})


def changed(config: BrokerConfig, settings: Mapping[str, Setting]) -> BrokerConfig:
    """The configuration with these settings, by canonical name, replaced."""
    fields: dict[str, dict[str, object]] = {part: {} for part in SECTIONS}
    for name, setting in settings.items():
        key = SCHEMA[name]
        fields[key.part] |= fields_of(key, setting.value)
    parts = {part: replace(getattr(config, part), **values) for part, values in fields.items()}
    sources = {SCHEMA[name].name: setting.location for name, setting in settings.items()}
    return replace(config, **parts, sources={**config.sources, **sources})


def with_live(config: BrokerConfig, read: BrokerConfig) -> BrokerConfig:
    """The configuration with the live settings of `read`."""
    fields: dict[str, dict[str, object]] = {part: {} for part in SECTIONS}
    sources = dict(config.sources)
    for key in SCHEMA.values():
        if key.declaration.live:
            part = getattr(read, key.part)
            names = filter(None, (key.attribute, key.declaration.free))
            fields[key.part] |= {name: getattr(part, name) for name in names}
            sources.pop(key.name, None)
            if key.name in read.sources:
                sources[key.name] = read.sources[key.name]
    parts = {part: replace(getattr(config, part), **values) for part, values in fields.items()}
    return replace(
        config,
        **parts,
        sources=sources,
        unknown=read.unknown,
        without_effect=read.without_effect,
        warnings=read.warnings,
    )


def differences(before: BrokerConfig, after: BrokerConfig) -> Iterator[Difference]:
    """The settings whose values differ."""
    for key in SCHEMA.values():
        old, new = shown(before, key), shown(after, key)
        # A secret is shown as the same whatever it is.
        hidden = key.name in SECRET and value_of(before, key) != value_of(after, key)
        if hidden or old != new:
            yield Difference(key, old, new)


def clashes(before: BrokerConfig, after: BrokerConfig) -> list[str]:
    """The contradictions in `after` that `before` does not have."""
    known = set(objections(before))
    return [f"{name}: {text}" for name, text in objections(after) if (name, text) not in known]


def odd(before: BrokerConfig, after: BrokerConfig) -> list[str]:
    """The warnings about `after` that `before` does not have."""
    known = set(oddities(before.sources, before))
    present = oddities(after.sources, after)
    return [f"{name}: {text}" for name, text in present if (name, text) not in known]
