"""Bodies as the 5.x clients read them: plain, or gzip, which is all that their protocol knows.

Remoting producers compress with zlib, LZ4 and zstd; some clients unpack only real gzip. Source:
grpc §2.10.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Final

from aerobee.remoting.grpc.enums import Encoding
from aerobee.store.format.record import COMPRESSED

TYPE_MASK: Final = 0x700
LZ4: Final = 0x100
ZSTD: Final = 0x200
GZIP_MAGIC: Final = b"\x1f\x8b"
PLAIN_BYTES_MAX: Final = 4 << 20
"""The longest body that a client packs, unless it is told otherwise. A body that unpacks to more
stays packed: a few kilobytes can expand to gigabytes, and nobody else has a turn meanwhile."""
PIECE_BYTES: Final = 256 << 10
WINDOW_BYTES_MAX: Final = 8 << 20
"""The most that a zstd frame may ask a decoder to remember."""


def as_read(body: bytes | memoryview, sys_flag: int) -> tuple[bytes, Encoding]:
    """A stored body and its encoding. A body that does not unpack is sent as gzip, as it lies: its
    consumer finds it corrupted, and deals with it.
    """
    stored = bytes(body)
    if not sys_flag & COMPRESSED:
        return stored, Encoding.IDENTITY
    if stored[:2] == GZIP_MAGIC:
        return stored, Encoding.GZIP
    plain = unpacked(stored, sys_flag & TYPE_MASK)
    return (stored, Encoding.GZIP) if plain is None else (plain, Encoding.IDENTITY)


def unpacked(body: bytes, kind: int) -> bytes | None:
    """A body without its compression of this kind; None where it is damaged or too long."""
    try:
        if kind == LZ4:
            return all_of(import_module("lz4.frame").LZ4FrameDecompressor(), body)
        if kind == ZSTD:
            return of_zstd(body)
        return all_of(zlib.decompressobj(), body)
    except (zlib.error, RuntimeError, EOFError, ValueError, MemoryError):
        return None


def all_of(unpacker: Any, body: bytes) -> bytes | None:
    """The whole body that zlib or LZ4 unpack, piece by piece. Raises: zlib.error, RuntimeError."""
    pieces, left, size = [], body, 0
    while not unpacker.eof and (piece := unpacker.decompress(left, PIECE_BYTES)):
        # LZ4 keeps the rest itself.
        left = getattr(unpacker, "unconsumed_tail", b"")
        pieces.append(piece)
        size += len(piece)
        if size > PLAIN_BYTES_MAX:
            return None
    return b"".join(pieces) if unpacker.eof else None


def of_zstd(body: bytes) -> bytes | None:
    """The body that zstd unpacks. It is measured first: what tells the end of a frame takes no
    limit of the output. Raises: ValueError.
    """
    zstandard = import_module("zstandard")
    unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    try:
        size, measured = 0, unpacker.stream_reader(body)
        while piece := measured.read(PIECE_BYTES):
            size += len(piece)
            if size > PLAIN_BYTES_MAX:
                return None
        whole = unpacker.decompressobj()
        plain = bytes(whole.decompress(body))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return plain if whole.eof else None
