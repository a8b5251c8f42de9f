"""Bodies that remoting producers compressed, as the 5.x clients can read them."""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module

import pytest
import zstandard

from aerobee.broker.grpc.translation.bodies import PLAIN_BYTES_MAX, as_read
from aerobee.remoting.grpc.enums import Encoding

BODY = b"a body of some length, " * 500
pack_lz4 = import_module("lz4.frame").compress
PACKED = {
    0x001: zlib.compress(BODY),
    0x101: pack_lz4(BODY),
    0x201: zstandard.ZstdCompressor().compress(BODY),
    0x301: zlib.compress(BODY),
}


def test_a_plain_body_and_gzip_go_as_they_lie() -> None:
    assert as_read(memoryview(BODY), 0) == (BODY, Encoding.IDENTITY)
    packed = gzip.compress(BODY)
    assert as_read(packed, 1) == (packed, Encoding.GZIP)


@pytest.mark.parametrize("sys_flag", PACKED)
def test_what_the_protocol_does_not_know_is_unpacked(sys_flag: int) -> None:
    assert as_read(PACKED[sys_flag], sys_flag) == (BODY, Encoding.IDENTITY)


@pytest.mark.parametrize("sys_flag", PACKED)
@pytest.mark.parametrize("damage", ["cut", "noise", "bomb"])
def test_what_does_not_unpack_is_left_to_its_consumer(sys_flag: int, damage: str) -> None:
    body = PACKED[sys_flag]
    if damage == "cut":
        body = body[: len(body) // 2]
    elif damage == "noise":
        body = b"\xff" + body[1:]
    else:
        much = bytes(PLAIN_BYTES_MAX + 1)
        pack = {
            0x101: pack_lz4,
            0x201: zstandard.ZstdCompressor().compress,
        }.get(sys_flag, zlib.compress)
        body = pack(much)
    assert as_read(body, sys_flag) == (body, Encoding.GZIP)
