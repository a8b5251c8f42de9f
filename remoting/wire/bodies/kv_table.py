"""One namespace of the name server's key-value store. Source: nameserver §4.1 (KVTable)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.body import Body

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE: Final = 500
"""Entries that are read before others run: half a millisecond."""
SMALL_BYTES: Final = 64 << 10
"""A body up to this size may be decoded at once."""

_TEXT = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_BEGIN = re.compile(rb'\s*\{\s*"table"\s*:\s*\{\s*')
_ENTRY = re.compile(_TEXT + rb"\s*:\s*" + _TEXT + rb"\s*([,}])\s*", re.DOTALL)


class KVTable(Body, msgspec.Struct, rename="camel"):
    """Key → value."""

    table: dict[str, str] = {}

    @classmethod
    def keys(cls, data: bytes) -> Iterator[list[str]]:
        """The keys of a table, a few at a time: of 100,000 entries a decoder takes 70 ms.

        Raises: BodyError, for what is no table of texts; some keys may have been given then.
        """
        begin = _BEGIN.match(data)
        if begin is None or len(data) <= SMALL_BYTES:
            if len(data) > SMALL_BYTES:
                raise BodyError("KVTable: does not begin with its table")
            yield list(cls.from_bytes(data).table)
            return
        at, more = begin.end(), data[begin.end() : begin.end() + 1] != b"}"
        while more:
            keys: list[str] = []
            while more and len(keys) < AT_ONCE:
                entry = _ENTRY.match(data, at)
                if entry is None:
                    raise BodyError(f"KVTable: no entry at byte {at}")
                keys.append(_text(entry[1]))
                at, more = entry.end(), entry[3] == b","
            yield keys


def _text(escaped: bytes) -> str:
    try:
        if b"\\" in escaped:
            return msgspec.json.decode(b'"' + escaped + b'"', type=str)
        return escaped.decode()
    except ValueError as error:
        raise BodyError(f"KVTable: {error}") from error
