"""Declares one setting of the broker, the store or the network, as a field of a dataclass.

    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, ge=1, le=60_000, unit="ms")
    "Between two flushes of the commit log."

The text below a field says what the setting is for; the pages of settings are printed from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, Unpack

T = TypeVar("T", bound="int | str")
KEY = "setting"
"""The key of a declaration in the metadata of its field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration of a setting, in addition to its type, default and docstring."""

    key: str
    """Its name in RocketMQ's spelling."""
    ge: int | None = None
    """The least value of a number."""
    le: int | None = None
    """The greatest value of a number."""
    pattern: str | None = None
    """The pattern that a text must match."""
    unit: str = ""
    """The unit of a bare number in a file: ms, s, h, B, % or none."""
    live: bool = False
    """Whether it can be changed while the broker runs."""
    own: bool = False
    """Whether RocketMQ has no such key."""
    inert: str = ""
    """The reason of a setting without effect, which is accepted for RocketMQ's files."""
    choices: tuple[int, ...] = ()
    """The only valid values, if the range has others."""
    separator: str = ""
    """The separator of a text that is a list."""
    kind: str = ""
    """The name of the check of its text, in `broker.config.values`."""
    clamp: bool = False
    """Whether a Java broker clamps a value to the range instead of using it."""
    derived: str = ""
    """How the default is computed if the setting is not given."""
    cpus: tuple[int, int, int | None] | None = None
    """A default that grows with the machine: base, per CPU, maximum."""
    free: str = ""
    """The field with the limit, for a setting that gives it as space to keep free."""


class Marks(TypedDict, total=False):
    """The fields of `Declaration` as keywords."""

    ge: int
    le: int
    pattern: str
    unit: str
    live: bool
    own: bool
    inert: str
    choices: tuple[int, ...]
    separator: str
    kind: str
    clamp: bool
    derived: str
    cpus: tuple[int, int, int | None]
    free: str


def setting(key: str, default: T, **marks: Unpack[Marks]) -> T:
    """Make a dataclass field with this default, declared under RocketMQ's name for it."""
    return field(default=default, metadata={KEY: Declaration(key=key, **marks)})
