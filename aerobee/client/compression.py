"""Compression and decompression of message bodies, and its bits in sysFlag. Pure.

zlib is always available; LZ4 frames and zstd need the extra `compression`. Source: client §5.5.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Literal, TypeAlias

from aerobee.errors import CompressionError, ConfigurationError

__all__ = ["Compression", "check", "pack", "unpack"]

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]

COMPRESSED = 0x1
TYPE_MASK = 0x700
TYPE_BITS: dict[str, int] = {"lz4": 0x100, "zstd": 0x200, "zlib": 0x300}
TYPE_NAMES = {bits: name for name, bits in TYPE_BITS.items()} | {0: "zlib"}
LEVEL = 5
UNPACKED_MAX = 64 << 20
"""The limit of a decompressed body: a few kilobytes can expand to gigabytes."""


def check(method: Compression | None) -> None:
    """Check that a method is known and installed. Raises: ConfigurationError."""
    if method is None:
        return
    if method not in TYPE_BITS:
        raise ConfigurationError(f"compression {method!r}: zlib, lz4, zstd or None")
    try:
        _compress(method, b"")
    except ImportError:
        raise ConfigurationError(f"compression {method!r} needs {EXTRA}") from None


EXTRA = "a package that is not installed: pip install 'aerobee[compression]'"


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


def unpack(body: bytes | memoryview, sys_flag: int) -> bytes:
    """Decompress a body. Raises: CompressionError."""
    if not sys_flag & COMPRESSED:
        return bytes(body)
    method = TYPE_NAMES.get(sys_flag & TYPE_MASK)
    if method is None:
        raise CompressionError(f"compression type {(sys_flag & TYPE_MASK) >> 8} is not known")
    try:
        unpacked, whole = UNPACKERS[method](bytes(body))
    except ImportError:
        raise CompressionError(f"the body is packed with {method}, which needs {EXTRA}") from None
    except (zlib.error, RuntimeError, EOFError, ValueError, MemoryError) as error:
        raise CompressionError(f"the body does not unpack as {method}: {error}") from error
    if len(unpacked) > UNPACKED_MAX:
        raise CompressionError(f"the body unpacks to more than {UNPACKED_MAX} bytes")
    if not whole:
        raise CompressionError(f"the body ends in the middle of its {method} data")
    return unpacked


def _compress(method: str, body: bytes) -> bytes:
    """Compress a body. Raises: ImportError if the package is missing."""
    if method == "lz4":
        return bytes(import_module("lz4.frame").compress(body))
    if method == "zstd":
        return bytes(import_module("zstandard").ZstdCompressor(level=LEVEL).compress(body))
    return zlib.compress(body, LEVEL)


def _inflate(body: bytes) -> tuple[bytes, bool]:
    """The start of a decompressed zlib body, and whether it is complete. Raises: zlib.error."""
    unpacker = zlib.decompressobj()
    return unpacker.decompress(body, UNPACKED_MAX + 1), unpacker.eof


def _unpack_lz4(body: bytes) -> tuple[bytes, bool]:
    """The start of a decompressed LZ4 body, and whether it is complete.

    Raises: ImportError, RuntimeError.
    """
    unpacker = import_module("lz4.frame").LZ4FrameDecompressor()
    unpacked = unpacker.decompress(body, max_length=UNPACKED_MAX + 1)
    return bytes(unpacked), bool(unpacker.eof)


def _unpack_zstd(body: bytes) -> tuple[bytes, bool]:
    """The start of a decompressed zstd body, and whether it is complete.

    It is fed in pieces, because the decompressor takes no limit. Raises: ImportError, ValueError.
    """
    zstandard = import_module("zstandard")
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    unpacked = bytearray()
    try:
        for at in range(0, len(body), ZSTD_PIECE):
            unpacked += unpacker.decompress(body[at : at + ZSTD_PIECE])
            if unpacker.eof or len(unpacked) > UNPACKED_MAX:
                break
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    return bytes(unpacked), bool(unpacker.eof)


ZSTD_PIECE = 1024
UNPACKERS = {"zlib": _inflate, "lz4": _unpack_lz4, "zstd": _unpack_zstd}
"""Method → decompressor; returns the body, cut just above UNPACKED_MAX, and if it is complete."""
