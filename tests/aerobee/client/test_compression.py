"""Bodies come back as they were, and what claims too much does not come back at all."""

import subprocess
import sys
import zlib
from importlib import import_module
from typing import get_args

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client import compression
from aerobee.client.compression import Compression, pack, unpack
from aerobee.errors import CompressionError, ConfigurationError

METHODS: tuple[Compression, ...] = get_args(Compression)


@pytest.mark.parametrize("method", METHODS)
@given(body=st.binary(max_size=200).map(lambda part: part * 50))
def test_a_packed_body_unpacks_to_itself(method: Compression, body: bytes) -> None:
    packed, flags = pack(body, method, above=0)
    assert unpack(packed, flags) == body
    assert len(packed) <= len(body)


def test_the_flags_are_those_of_the_java_client() -> None:
    body = b"a" * 5000
    assert {method: pack(body, method, 4096)[1] for method in METHODS} == {
        "zlib": 0x301,
        "lz4": 0x101,
        "zstd": 0x201,
    }


def test_short_bodies_and_bodies_that_do_not_shrink_stay_plain() -> None:
    noise = bytes(range(256))
    assert pack(b"a" * 4095, "zlib", 4096) == (b"a" * 4095, 0)
    assert pack(noise, "zlib", 1) == (noise, 0)
    assert pack(noise, None, 1) == (noise, 0)


def test_a_body_of_an_old_client_is_zlib() -> None:
    assert unpack(zlib.compress(b"hello"), 0x1) == b"hello"


@pytest.mark.parametrize("method", METHODS)
def test_a_bomb_is_refused(method: Compression) -> None:
    packed, flags = pack(bytes(4_000_000), method, 0)
    with pytest.raises(CompressionError, match="more than 1000000"):
        unpack(packed, flags, 1_000_000)


WEIGH = """
import resource, sys, zlib, zstandard, lz4.frame
from aerobee.client.compression import TYPE_BITS, unpack
from aerobee.errors import CompressionError

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

method, bomb = sys.argv[1], sys.stdin.buffer.read()
unpack(zlib.compress(b"x"), 1)
before = peak_kib()
try:
    unpack(bomb, 1 | TYPE_BITS[method])
except CompressionError as refused:
    print(peak_kib() - before, refused)
"""
BOMB_BYTES = 100 << 20
GROWTH_MAX_KIB = 17 << 10
"""The limit of a body, and the window of a decoder."""


def bomb(method: Compression, declared: bool) -> bytes:
    """100 MiB of zeros; zstd says so in its head, or leaves it to be found out."""
    if method == "zstd" and not declared:
        packer = zstandard.ZstdCompressor(level=5).compressobj()
        return bytes(packer.compress(bytes(BOMB_BYTES)) + packer.flush())
    return pack(bytes(BOMB_BYTES), method, above=0)[0]


@pytest.mark.parametrize(
    ("method", "declared"), [("zlib", True), ("lz4", True), ("zstd", True), ("zstd", False)]
)
def test_s8_a_bomb_costs_no_memory_beyond_the_limit(method: Compression, declared: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WEIGH, method],
        input=bomb(method, declared),
        capture_output=True,
        check=True,
        timeout=60,
    )
    growth, _, refused = done.stdout.decode().partition(" ")
    assert "unpacks to more than" in refused
    assert int(growth) <= GROWTH_MAX_KIB


def test_s8_a_window_beyond_that_of_any_client_is_refused() -> None:
    asked = zstandard.ZstdCompressionParameters(window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=asked).compressobj()
    with pytest.raises(CompressionError, match="memory"):
        unpack(packer.compress(b"x") + packer.flush(), 0x201)


@pytest.mark.parametrize("method", METHODS)
@given(cut=st.integers(1, 30))
def test_a_cut_body_is_refused(method: Compression, cut: int) -> None:
    packed, flags = pack(b"hello " * 1000, method, 0)
    with pytest.raises(CompressionError):
        unpack(packed[:-cut], flags)


@pytest.mark.parametrize("method", METHODS)
def test_garbage_is_refused(method: Compression) -> None:
    _, flags = pack(bytes(5000), method, 0)
    with pytest.raises(CompressionError, match=method):
        unpack(b"this is not packed", flags)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(CompressionError, match="type 7"):
        unpack(b"x", 0x701)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, flags = pack(bytes(5000), "lz4", 0)

    def missing(name: str) -> object:
        if name == "lz4.frame":
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(compression, "import_module", missing)
    with pytest.raises(ConfigurationError, match="pip install lz4 zstandard"):
        compression.check("lz4")
    with pytest.raises(CompressionError, match="pip install lz4 zstandard"):
        unpack(packed, flags)
