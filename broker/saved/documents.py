"""What a table's file holds: read without trust, since a table changes only when all of it has the
right shape; and written a little at a time, since a large table must not stop everybody else.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["mapping", "object_pieces", "unknown_fields"]

PIECE_ENTRIES: Final = 64
"""Entries of an object that are written in one go, about 50 µs where each has eight numbers."""


def mapping(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under `name`, empty when absent or null. Raises: ValueError for another type."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no object")
    return value


def unknown_fields(document: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What somebody newer wrote: kept, and written again."""
    return {name: value for name, value in document.items() if name not in known}


def object_pieces(entries: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """The text of a JSON object. Each entry is asked for only when its piece is."""
    entries = iter(entries)
    yield b"{"
    comma = b""
    while piece := dict(islice(entries, PIECE_ENTRIES)):
        yield comma + msgspec.json.encode(piece)[1:-1]
        comma = b","
    yield b"}"
