"""The JSON of long lists and tables: encoded in steps, refused beyond the frame size of clients.

A client closes the connection over a longer frame and learns nothing; an error tells it why.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.errors import Refusal
from aerobee.broker.saved.documents import names_in
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

ANSWER_BYTES_MAX: Final = 15 << 20
"""The longest list in one answer. Clients accept frames of 16 MiB, headers included."""
ENTRIES_STEP: Final = 500
"""The most entries per step."""
FIRST_STEP: Final = 20
"""Entries of the first step, which tells how long they are."""
STEP_BYTES: Final = 256 << 10
"""About the bytes per step; one entry may have more."""

_encode = msgspec.json.Encoder(order="sorted").encode


def encoded(
    items: Iterable[Any], most_bytes: int = ANSWER_BYTES_MAX
) -> Generator[None, None, bytes]:
    """A list as JSON. Raises: Refusal when it becomes too long. Others may run at each yield."""
    pieces: list[bytes] = []
    size, items, count = 0, iter(items), FIRST_STEP
    while step := list(islice(items, count)):
        piece = _encode(step)[1:-1]
        size = size_with(size, piece, most_bytes)
        pieces.append(b"," + piece if pieces else b"[" + piece)
        count = next_step(count, len(piece))
        yield
    return b"".join([*pieces, b"]"]) if pieces else b"[]"


def encoded_table(
    table: Mapping[str, Any], most_bytes: int = ANSWER_BYTES_MAX
) -> Generator[None, None, bytes]:
    """A table as JSON, of the entries that exist when this begins and have not been removed
    since.
    """
    names = names_in(table)
    pieces: list[bytes] = []
    size, begin, count = 0, 0, FIRST_STEP
    while begin < len(names):
        step = {name: table[name] for name in names[begin : begin + count] if name in table}
        piece = _encode(step)[1:-1]
        if piece:
            size = size_with(size, piece, most_bytes)
            pieces.append(b"," + piece if pieces else b"{" + piece)
        begin += count
        count = next_step(count, len(piece))
        yield
    return b"".join([*pieces, b"}"]) if pieces else b"{}"


def next_step(count: int, size: int) -> int:
    """The entries of a step after one of `count` entries and `size` bytes."""
    fitting = count * STEP_BYTES // max(1, size)
    return max(1, min(fitting, 4 * count, ENTRIES_STEP))


def size_with(size: int, piece: bytes, most_bytes: int = ANSWER_BYTES_MAX) -> int:
    """The length of an answer with one more piece. Raises: Refusal beyond `most_bytes`."""
    size += len(piece) + 1
    if size > most_bytes:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the answer would be longer than {most_bytes} bytes, which is more than clients take:"
            " ask for less, page by page or one by one",
        )
    return size
