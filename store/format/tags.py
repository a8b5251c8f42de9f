"""Tag expression ↔ codes, and the string hash both the codes and the index are made of.

Source: store format §1.3 (MessageExtBrokerInner.tagsString2tagsCode, String.hashCode).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.store.format.properties import value_of

if TYPE_CHECKING:
    from collections.abc import Iterable

EXT_ADDRESS_MAX = -2_147_483_649
"""A code at or below this is an address in consumequeue_ext, never a hash or a time."""


SEPARATOR = "||"
KEPT_CHARS = 128
"""Of longer texts the hash is not kept: they are rare, and would be kept as well."""


def java_hash(text: str) -> int:
    """Hash over the UTF-16 units, h = 31·h + unit, as a signed 32-bit number."""
    return _kept(text) if len(text) <= KEPT_CHARS else _hashed(text)


def _hashed(text: str) -> int:
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(raw), 2):
            value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


_kept = lru_cache(maxsize=4_096)(_hashed)


def tags_code(tags: str | None) -> int:
    """The code of a tags string, hashed as it stands; 0 for none."""
    return java_hash(tags) if tags else 0


_CODES: dict[bytes, int] = {}
_CODES_MAX = 4_096


def tags_code_of(properties: bytes) -> int:
    """The code of the TAGS in an encoded property string. Hot."""
    before, mark, after = properties.rpartition(b"TAGS\x01")
    if not mark:
        return 0
    tags = after.partition(b"\x02")[0]
    if not tags or (before and before[-1] != 2):
        # Empty, or the end of another name: an earlier one may count.
        return tags_code(value_of(properties, b"TAGS"))
    code = _CODES.get(tags)
    if code is None:
        code = tags_code(tags.decode("utf-8", "replace"))
        if len(tags) <= KEPT_CHARS:
            if len(_CODES) >= _CODES_MAX:
                _CODES.clear()
            _CODES[tags] = code
    return code


def hash_of(code: int) -> int | None:
    """The hash of tags that a unit's tags code stands for; None: it is not known here.

    A unit of consumequeue_ext is not read, and a time loses its upper half.
    """
    if code <= EXT_ADDRESS_MAX:
        return None
    return ((code + 0x8000_0000) & 0xFFFFFFFF) - 0x8000_0000


def names_tags(expression: str) -> bool:
    """Whether an expression is more than separators; a blank counts, as in Java."""
    return any(expression.split(SEPARATOR))


class TagFilter:
    """The messages that a subscription expression lets through, by tags code.

    `codes` is None for everything. Equal hashes of different tags pass: the client compares
    strings.
    """

    __slots__ = ("codes",)

    def __init__(self, codes: Iterable[int] | None) -> None:
        self.codes = None if codes is None else frozenset(codes)

    @classmethod
    def parse(cls, expression: str | None) -> TagFilter:
        """`*` or nothing → everything; `a || b` → those two.

        Raises: ValueError for separators only.
        """
        if not expression or expression == "*":
            return ALL
        if not names_tags(expression):
            raise ValueError(f"subscription expression {expression!r} names no tag")
        pieces = expression.split(SEPARATOR)
        return cls(java_hash(tag) for piece in pieces if (tag := piece.strip()))

    def matches(self, code: int) -> bool:
        """Whether a unit with this tags code may be of interest."""
        codes = self.codes
        if codes is None or code in codes:
            return True
        if -0x8000_0000 <= code <= 0x7FFF_FFFF:
            return False
        hashed = hash_of(code)
        return hashed is None or hashed in codes


ALL = TagFilter(None)
"""Lets everything through."""
