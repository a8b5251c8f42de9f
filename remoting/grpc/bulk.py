"""How much of a message is beside its bulk, the one field that may be long.

A parser makes an object of every part, and two bytes are enough for one. So a long message is
looked through before it is parsed, from one field to the next: what is not its bulk has to be
short. Source: the encoding of Protocol Buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORT_BYTES_MAX: Final = 256 << 10
"""The longest message, or what it may have beside its bulk: to parse very many small parts takes 50
ns a byte, and nobody else has a turn meanwhile."""
FIELDS_MAX: Final = 8_192
"""The most fields that are looked at: some 4 ms."""
VARINT, FIXED_64, LENGTH, FIXED_32 = 0, 1, 2, 5
SIZES: Final = {FIXED_64: 8, FIXED_32: 4}
VARINT_BYTES_MAX: Final = 10


def is_short(message: bytes, bulk: Sequence[int]) -> bool:
    """Whether a message is short but for its bulk, and has few fields. `bulk`: the numbers of the
    fields that lead to it. Of what cannot be read it says no.
    """
    if len(message) <= SHORT_BYTES_MAX:
        return True
    try:
        return _is_short(message, bulk)
    except IndexError:
        return False


def _is_short(message: bytes, bulk: Sequence[int]) -> bool:
    size = fields = 0
    parts = [(0, len(message), 0)]
    while parts:
        at, end, depth = parts.pop()
        while at < end:
            begin = at
            key, at = varint(message, at)
            kind = key & 7
            if kind == LENGTH:
                length, inside = varint(message, at)
                at = inside + length
            elif kind == VARINT:
                _, at = varint(message, at)
            else:
                at += SIZES.get(kind, len(message))
            if kind == LENGTH and key >> 3 == bulk[depth]:
                size += inside - begin
                if depth + 1 < len(bulk):
                    parts.append((inside, at, depth + 1))
            else:
                size += at - begin
            fields += 1
            if at > end or size > SHORT_BYTES_MAX or fields > FIELDS_MAX:
                return False
    return True


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the place behind it. Raises: IndexError."""
    value = shift = 0
    for place in range(at, at + VARINT_BYTES_MAX):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise IndexError(at)
