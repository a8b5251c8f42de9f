"""Reading what a table's file holds, without trust: the shape is checked before a table changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["mapping", "unknown_fields"]


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
