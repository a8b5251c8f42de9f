"""Type 1: lengths that lie, texts of length 0, codes that do not fit."""

from __future__ import annotations

import struct

import pytest

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.codec.rocketmq_header import decode, encode

FIXED = struct.pack(">hBhii", 30, 0, 479, 7, 0)


def field(name: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def header(remark: bytes, ext: bytes) -> bytes:
    return FIXED + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(ext)) + ext


def test_remark_and_fields_are_read() -> None:
    found = decode(header("é".encode(), field(b"topic", b"T") + field(b"queueId", b"1")))
    assert found == (30, 7, 0, "JAVA", 479, "é", {"topic": "T", "queueId": "1"})


def test_texts_of_length_0_are_absent() -> None:
    found = decode(header(b"", field(b"a", b"") + field(b"", b"b") + field(b"c", b"d")))
    assert found.remark is None
    assert found.ext == {"c": "d"}


def test_an_unknown_language_is_its_number() -> None:
    assert decode(b"\0\x1e\x7f" + FIXED[3:] + bytes(8)).language == 127


def test_what_follows_the_fields_is_ignored() -> None:
    assert decode(header(b"", field(b"a", b"b")) + b"more").ext == {"a": "b"}


@pytest.mark.parametrize(
    ("cut", "code"),
    [
        (3442, 200050),
        (3443, 200051),
        (3444, 200052),
        (3445, 200053),
        (3446, 200054),
        (3447, 200055),
        (3448, 200056),
        (3543, 200151),
    ],
)
def test_codes_cut_to_16_bits_are_restored(cut: int, code: int) -> None:
    written = encode(code, 1, 0, {}, None, "JAVA", 479)
    assert int.from_bytes(written[:2], "big") == cut
    assert decode(written).code == code


@pytest.mark.parametrize(
    "data",
    [
        b"",
        FIXED,
        FIXED + bytes(7),
        FIXED + struct.pack(">i", 1) + bytes(4),
        FIXED + struct.pack(">i", -1) + bytes(4),
        FIXED + struct.pack(">i", 2**31 - 1) + bytes(4),
        FIXED + struct.pack(">ii", 0, 1),
        FIXED + struct.pack(">ii", 0, 2**31 - 1),
        header(b"", b"\0"),
        header(b"", b"\0\1a"),
        header(b"", struct.pack(">h", -1) + bytes(4)),
        header(b"", struct.pack(">h", 9) + b"abc"),
        header(b"", struct.pack(">h", 1) + b"a" + struct.pack(">i", -1)),
        header(b"", struct.pack(">h", 1) + b"a" + struct.pack(">i", 2) + b"x"),
        header(b"", field(b"a", b"b"))[:-1],
    ],
    ids=lambda data: data[:24].hex() or "nothing",
)
def test_a_length_that_lies_closes(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode(data)
