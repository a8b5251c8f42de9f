"""Type 1: RocketMQ's own binary header.

    i16 code | u8 language | i16 version | i32 opaque | i32 flag | i32 n, remark | i32 n, ext
    ext: i16 n, key | i32 n, value …

A length of 0 is an absent text. Codes are 16 bits, so the POP family arrives truncated.
Source: remoting §1.5 (RocketMQSerializable).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.codec.envelope import Envelope, check_ext_count
from aerobee.remoting.wire.codes import LANGUAGE_CODES, LANGUAGES, LanguageCode

if TYPE_CHECKING:
    from collections.abc import Mapping

FIXED = Struct(">hBhiii")
assert FIXED.size == 17
I16 = Struct(">h")
I32 = Struct(">i")

TRUNCATED = {
    code - 0x30000: code
    for code in (200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151)
}
assert TRUNCATED[3442] == 200050
"""The value of a 16-bit code before it was truncated."""


def decode(header: memoryview | bytes) -> Envelope:
    """The envelope that a header in the ROCKETMQ encoding holds. Raises: FrameError."""
    data = bytes(header)
    end = len(data)
    if end < FIXED.size + 4:
        raise FrameError(f"header of {end} bytes is shorter than its fixed part")
    code, language, version, opaque, flag, remark_length = FIXED.unpack_from(data)
    at = FIXED.size + remark_length
    if remark_length < 0 or at + 4 > end:
        raise FrameError(f"remark of {remark_length} bytes in a header of {end}")
    remark = data[FIXED.size : at].decode("utf-8", "replace") if remark_length > 0 else None
    (ext_length,) = I32.unpack_from(data, at)
    at += 4
    if ext_length > end - at:
        raise FrameError(f"ext fields of {ext_length} bytes in a header of {end}")
    ext = take_fields(data, at, at + max(ext_length, 0))
    name = LANGUAGES.get(language, language)
    return Envelope(TRUNCATED.get(code, code), opaque, flag, name, version, remark, ext)


def take_fields(header: bytes, at: int, end: int) -> dict[str, str]:
    """The ext fields between two positions. Raises: FrameError."""
    fields: dict[str, str] = {}
    short, long = I16.unpack_from, I32.unpack_from
    while at < end:
        key_at = at + 2
        value_at = key_at + 4 + short(header, at)[0] if key_at <= end else end + 1
        if not key_at + 4 <= value_at <= end:
            raise FrameError("ext fields end within a name")
        at = value_at + long(header, value_at - 4)[0]
        if not value_at <= at <= end:
            raise FrameError("ext fields end within a value")
        # A text of length 0 is an absent one.
        if at > value_at > key_at + 4:
            name = header[key_at : value_at - 4].decode("utf-8", "replace")
            fields[name] = header[value_at:at].decode("utf-8", "replace")
    check_ext_count(len(fields))
    return fields


def encode(
    code: int,
    opaque: int,
    flag: int,
    ext: Mapping[str, str],
    remark: str | None,
    language: str,
    version: int,
) -> bytes:
    """Encode a header. Codes beyond 16 bits are truncated, as in Java."""
    parts = []
    for name, value in ext.items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        parts.append(b"%b%b%b%b" % (I16.pack(len(key)), key, I32.pack(len(text)), text))
    fields = b"".join(parts)
    note = b"" if remark is None else remark.encode("utf-8", "replace")
    fixed = FIXED.pack(
        (code + 0x8000 & 0xFFFF) - 0x8000,
        LANGUAGE_CODES.get(language, LanguageCode.OTHER),
        version,
        opaque,
        flag,
        len(note),
    )
    return b"".join((fixed, note, I32.pack(len(fields)), fields))
