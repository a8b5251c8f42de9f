"""Content of tables' files: read with validation, since a table changes only when all of it has the
right shape; and written in pieces, since a large table must not block the loop.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

PIECE_ENTRIES: Final = 64
"""Entries of an object that are written in one step, about 50 µs where each has eight numbers."""

SORTED_MAX: Final = 10_000
"""Longer lists are in order of registration: one sort of them would take too long for a step."""


def mapping(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under `name`, empty when absent or null. Raises: ValueError for another type."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    return value


def unknown_fields(document: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Fields written by a newer version: kept, and written again."""
    return {name: value for name, value in document.items() if name not in known}


class KeptFields:
    """Fields that a newer version wrote into the entries of a table, with those entries.

    Entries are never changed in place, so one is merged once and not at every save.
    """

    def __init__(self) -> None:
        self._fields: dict[str, dict[str, Any]] = {}
        self._merged: dict[str, tuple[msgspec.Struct, dict[str, Any]]] = {}

    def put(self, name: str, fields: dict[str, Any], entry: msgspec.Struct) -> None:
        """Keep unknown fields of an entry."""
        if fields:
            self._fields[name] = fields
            self._merge(name, entry)

    def drop(self, name: str) -> None:
        """Drop the fields of a removed entry."""
        self._fields.pop(name, None)
        self._merged.pop(name, None)

    def table(self, entries: Mapping[str, msgspec.Struct]) -> dict[str, Any]:
        """All entries as they are written."""
        table: dict[str, Any] = dict(entries)
        for name, (entry, merged) in list(self._merged.items()):
            now = entries[name]
            table[name] = merged if now is entry else self._merge(name, now)
        return table

    def _merge(self, name: str, entry: msgspec.Struct) -> dict[str, Any]:
        merged = {**self._fields[name], **msgspec.to_builtins(entry)}
        self._merged[name] = (entry, merged)
        return merged


def object_pieces(entries: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """The text of a JSON object. Each entry is read only when its piece is written."""
    entries = iter(entries)
    yield b"{"
    comma = b""
    while piece := dict(islice(entries, PIECE_ENTRIES)):
        yield comma + msgspec.json.encode(piece)[1:-1]
        comma = b","
    yield b"}"


def list_pieces(name: str, items: Iterable[msgspec.Struct]) -> Iterator[bytes]:
    """The text of a JSON object whose one member is a list; an item is made and encoded in its
    turn.
    """
    yield msgspec.json.encode(name).join((b"{", b":["))
    for number, item in enumerate(items):
        yield (b"," if number else b"") + msgspec.json.encode(item)
    yield b"]}"


def names_in(table: Collection[str]) -> list[str]:
    """The names of a table as they are now, sorted unless that would take too long for one step."""
    return sorted(table) if len(table) <= SORTED_MAX else list(table)
