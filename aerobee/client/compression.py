"""Compression and decompression of message bodies, and its bits in sysFlag. Pure.

zlib is always available; LZ4 frames and zstd need the extra `compression`. Source: client §5.5.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Literal, TypeAlias

from aerobee.errors import CompressionError, ConfigurationError

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]

COMPRESSED = 0x1
TYPE_MASK = 0x700
TYPE_BITS: dict[str, int] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
TYPE_NAMES = {bits: name for name, bits in TYPE_BITS.items()} | {0: "zlib"}
LEVEL = 5
UNPACKED_MAX = 16 << 20
"""The limit of a decompressed body, four times the largest that a broker takes unless told
otherwise: a few kilobytes can expand to gigabytes.
"""
PIECE = 256 << 10
"""Bytes that are decompressed between two looks at the size."""
ZSTD_WINDOW_MAX = 8 << 20
"""The most that a frame may ask a decoder to remember; RocketMQ's clients ask for 2 MiB."""


class TooLargeError(CompressionError):
    """The body would take more bytes than it may; no more than those were decompressed."""


def check(method: Compression | None) -> None:
    """Check that a method is known and installed. Raises: ConfigurationError."""
    if method is None:
        return
    if method not in TYPE_BITS:
        raise ConfigurationError(f"compression {method!r}: zlib, lz4, zstd or None")
    try:
        _compress(method, b"")
    except ImportError:
        raise ConfigurationError(f"compression {method!r} needs {MISSING}") from None


MISSING = "a package that is not installed: pip install lz4 zstandard"


def pack(body: bytes, method: Compression | None, above: int) -> tuple[bytes, int]:
    """Compress a body; returns it with its sysFlag bits.

    A body is left unchanged if it is shorter than `above` or does not shrink.
    """
    if method is None or len(body) < above:
        return body, 0
    packed = _compress(method, body)
    if len(packed) >= len(body):
        return body, 0
    return packed, COMPRESSED | TYPE_BITS[method]


def unpack(body: bytes | memoryview, sys_flag: int, most: int = UNPACKED_MAX) -> bytes:
    """Decompress a body to at most so many bytes. Raises: TooLargeError, CompressionError."""
    if not sys_flag & COMPRESSED:
        return bytes(body)
    method = TYPE_NAMES.get(sys_flag & TYPE_MASK)
    if method is None:
        raise CompressionError(f"compression type {(sys_flag & TYPE_MASK) >> 8} is not known")
    try:
        unpacked = UNPACKERS[method](bytes(body), most)
    except ImportError:
        raise CompressionError(f"the body is packed with {method}, which needs {MISSING}") from None
    except (zlib.error, RuntimeError, EOFError, ValueError, MemoryError) as error:
        raise CompressionError(f"the body does not unpack as {method}: {error}") from error
    if unpacked is None:
        raise CompressionError(f"the body ends in the middle of its {method} data")
    return unpacked


def _compress(method: str, body: bytes) -> bytes:
    """Compress a body. Raises: ImportError if the package is missing."""
    if method == "lz4":
        return bytes(import_module("lz4.frame").compress(body))
    if method == "zstd":
        return bytes(import_module("zstandard").ZstdCompressor(level=LEVEL).compress(body))
    return zlib.compress(body, LEVEL)


def _inflate(body: bytes, most: int) -> bytes | None:
    """A decompressed zlib body, None if it is cut. Raises: TooLargeError, zlib.error."""
    unpacker = zlib.decompressobj()
    kept, left, size = [], body, 0
    while not unpacker.eof and (piece := unpacker.decompress(left, PIECE)):
        left = unpacker.unconsumed_tail
        kept.append(piece)
        size = _counted(size, piece, most)
    return b"".join(kept) if unpacker.eof else None


def _unpack_lz4(body: bytes, most: int) -> bytes | None:
    """A decompressed LZ4 body, None if it is cut.

    Raises: TooLargeError, ImportError, RuntimeError.
    """
    unpacker = import_module("lz4.frame").LZ4FrameDecompressor()
    kept, left, size = [], body, 0
    while not unpacker.eof and (piece := unpacker.decompress(left, max_length=PIECE)):
        left = b""  # The decoder keeps the rest itself.
        kept.append(piece)
        size = _counted(size, piece, most)
    return b"".join(kept) if unpacker.eof else None


def _unpack_zstd(body: bytes, most: int) -> bytes | None:
    """A decompressed zstd body, None if it is cut.

    It is measured first, because what tells the end of a frame takes no limit of the output.
    Raises: TooLargeError, ImportError, ValueError.
    """
    zstandard = import_module("zstandard")
    unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX)
    try:
        size, measured = 0, unpacker.stream_reader(body)
        while piece := measured.read(PIECE):
            size = _counted(size, piece, most)
        whole = unpacker.decompressobj()
        unpacked = bytes(whole.decompress(body))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return unpacked if whole.eof else None


def _counted(size: int, piece: bytes, most: int) -> int:
    """The size with one more piece. Raises: TooLargeError when that is too much."""
    size += len(piece)
    if size > most:
        raise TooLargeError(f"the body unpacks to more than {most} bytes")
    return size


UNPACKERS = {"zlib": _inflate, "lz4": _unpack_lz4, "zstd": _unpack_zstd}
"""Method → decompressor; returns the body, or None if its data is cut."""
