"""The version of a table, as name servers and slaves compare it. Source: semantics §0."""

from __future__ import annotations

import msgspec

from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.header import I64


class DataVersion(Body, msgspec.Struct, rename="camel", frozen=True):
    """Three longs; two versions are equal only when all of them are. `timestamp` in ms."""

    state_version: I64 = 0
    timestamp: I64 = 0
    counter: I64 = 0
