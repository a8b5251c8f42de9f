"""The version of a table: three longs that name servers and slaves compare, new with every change.

Two versions are equal only when all three numbers are; there is no order. Source: semantics §0
(DataVersion).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.broker.saved.documents import mapping
from aerobee.remoting.wire.bodies.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping


def first_version(now_ms: int) -> DataVersion:
    """The version of a table without changes."""
    return DataVersion(timestamp=now_ms)


def bumped(version: DataVersion, now_ms: int) -> DataVersion:
    """The version after one more change, at `now_ms` of the wall clock."""
    return DataVersion(version.state_version, now_ms, version.counter + 1)


def version_document(version: DataVersion) -> dict[str, int]:
    """The version in the form of the tables' files."""
    return {
        "counter": version.counter,
        "stateVersion": version.state_version,
        "timestamp": version.timestamp,
    }


def version_of(document: Mapping[str, Any]) -> DataVersion:
    """The `dataVersion` of a table's file; all zero when absent, and without `stateVersion` in 4.9.

    Raises: ValueError when it is malformed.
    """
    return msgspec.convert(mapping(document, "dataVersion"), DataVersion, strict=False)
