"""The JSON of long lists and tables: encoded in steps, refused beyond the frame size of clients.

A client closes the connection over a longer frame and learns nothing; an error tells it why.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from aerobee.broker.errors import Refused
from aerobee.broker.saved.documents import names_in
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

__all__ = ["ANSWER_BYTES_MAX", "encoded", "encoded_table", "size_with"]

ANSWER_BYTES_MAX: Final = 15 << 20
"""The longest list in one answer. Clients accept frames of 16 MiB, headers included."""
ENTRIES_STEP: Final = 500
"""Entries per step."""

_encode = msgspec.json.Encoder(order="sorted").encode


def encoded(
    items: Iterable[Any], most_bytes: int = ANSWER_BYTES_MAX
) -> Generator[None, None, bytes]:
    """A list as JSON. Raises: Refused when it becomes too long. Others may run at each yield."""
    pieces: list[bytes] = []
    size, items = 0, iter(items)
    while step := list(islice(items, ENTRIES_STEP)):
        piece = _encode(step)[1:-1]
        size = size_with(size, piece, most_bytes)
        pieces.append(b"," + piece if pieces else b"[" + piece)
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
    size = 0
    for begin in range(0, len(names), ENTRIES_STEP):
        step = {name: table[name] for name in names[begin : begin + ENTRIES_STEP] if name in table}
        piece = _encode(step)[1:-1]
        if piece:
            size = size_with(size, piece, most_bytes)
            pieces.append(b"," + piece if pieces else b"{" + piece)
        yield
    return b"".join([*pieces, b"}"]) if pieces else b"{}"


def size_with(size: int, piece: bytes, most_bytes: int = ANSWER_BYTES_MAX) -> int:
    """The length of an answer with one more piece. Raises: Refused beyond `most_bytes`."""
    size += len(piece) + 1
    if size > most_bytes:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the answer would be longer than {most_bytes} bytes, which is more than clients take:"
            " ask for less, page by page or one by one",
        )
    return size
