"""How one setting of the broker, the store or the network is declared: a field of a dataclass.

    flush_interval_ms: int = setting("flushIntervalCommitLog", 500, ge=1, le=60_000, unit="ms")
    "Between two flushes of the commit log."

The text below a field says what the setting is for; the pages of settings are printed from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, Unpack

__all__ = ["KEY", "Declaration", "setting"]

T = TypeVar("T", bound="int | str")
KEY = "setting"
"""Where the metadata of a field carries its declaration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is said of a setting beside its type, default and meaning."""

    key: str
    """Its name in RocketMQ's spelling."""
    ge: int | None = None
    """The least value of a number."""
    le: int | None = None
    """The greatest value of a number."""
    pattern: str | None = None
    """What a text must match."""
    unit: str = ""
    """Of the bare number in a file: ms, s, h, B, % or none."""
    live: bool = False
    """It may change while the broker runs."""
    own: bool = False
    """RocketMQ has no such key."""
    inert: str = ""
    """Why it has no effect, where it has none: it is taken for the sake of files of RocketMQ."""
    choices: tuple[int, ...] = ()
    """The only values, where the range holds others."""
    separator: str = ""
    """Between the items of a text that is a list."""
    kind: str = ""
    """The check of its text, by name; `broker.config.values` has them."""
    clamp: bool = False
    """A Java broker bends a value into the range instead of taking it."""
    derived: str = ""
    """How the default comes about when nobody sets it."""
    cpus: tuple[int, int, int | None] | None = None
    """The default grows with the machine: base, for each CPU, at most."""
    free: str = ""
    """The field that holds the limit when it is given as space to keep free."""


class Marks(TypedDict, total=False):
    """`Declaration` as keywords."""

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
    """A field of a dataclass with this default, declared under RocketMQ's name for it."""
    return field(default=default, metadata={KEY: Declaration(key=key, **marks)})
