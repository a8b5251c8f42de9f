"""Type 2: defaults left out, and nothing but arrays of scalars taken in."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped] # ships no types
import pytest

from aerobee.remoting.errors import FrameError
from aerobee.remoting.wire.codec.msgpack_header import decode, encode


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ((34, 7, 0, None, None, "PYTHON", 479), [34, 0, 7]),
        ((34, 7, 2, {}, None, "PYTHON", 479), [34, 2, 7]),
        ((34, 7, 0, {"a": "b"}, None, "PYTHON", 479), [34, 0, 7, {"a": "b"}]),
        ((34, 7, 0, ["b", None, 3], None, "PYTHON", 479), [34, 0, 7, ["b", None, 3]]),
        ((1, 7, 1, None, "why", "PYTHON", 479), [1, 1, 7, None, "why"]),
        ((34, 7, 0, None, None, "JAVA", 479), [34, 0, 7, None, None, 0]),
        ((34, 7, 0, None, None, "PYTHON", 401), [34, 0, 7, None, None, 3, 401]),
    ],
)
def test_what_equals_its_default_is_left_out(values: Any, written: list[Any]) -> None:
    header = encode(*values)
    assert msgpack.unpackb(header) == written
    code, opaque, flag, ext, remark, language, version = values
    assert decode(header) == (code, opaque, flag, language, version, remark, ext or {})


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "text",
        {"code": 1},
        [],
        [1, 2],
        [1, 0, 2, None, None, 3, 479, 8],
        ["1", 0, 2],
        [True, 0, 2],
        [1.0, 0, 2],
        [2**31, 0, 2],
        [1, 0, -(2**31) - 1],
        [1, 0, 2, "ext"],
        [1, 0, 2, {"a": 1.5}],
        [1, 0, 2, {"a": [1]}],
        [1, 0, 2, {"a": b"bin"}],
        [1, 0, 2, [["nested"]]],
        [1, 0, 2, [{"a": 1}]],
        [1, 0, 2, None, 5],
        [1, 0, 2, None, None, "JAVA"],
        [1, 0, 2, None, None, 3, "479"],
        [1, 0, 2, msgpack.ExtType(1, b"")],
        [1, 0, 2, msgpack.Timestamp(1)],
    ],
    ids=repr,
)
def test_anything_else_closes(value: Any) -> None:
    with pytest.raises(FrameError):
        decode(msgpack.packb(value))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\x93\x01\x00",
        b"\x93\x01\x00\x02\x00",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\x94\x01\x00\x02\xdf\xff\xff\xff\xff",
        b"\x94\x01\x00\x02\xdb\xff\xff\xff\xffabc",
        b"\x94\x01\x00\x02\x81\x01\x02",
        b"\x94\x01\x00\x02\x81\xc4\x00\x02",
        b"\x95\x01\x00\x02\xc0\xa1\xff",
        b"\x91" * 2000,
    ],
    ids=lambda data: data[:24].hex() or "nothing",
)
def test_bytes_that_are_no_such_header_close(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(header)
