"""One namespace of the name server's key-value store. Source: nameserver §4.1 (KVTable)."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body

__all__ = ["KVTable"]


class KVTable(Body, msgspec.Struct, rename="camel"):
    """Key → value."""

    table: dict[str, str] = {}
