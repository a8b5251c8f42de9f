"""Type 0, the lenient way: what the Java decoders take beside the standard."""

from __future__ import annotations

import pytest

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.wire.codec.json_header import decode, encode, ext_fields


def test_an_envelope_is_read_with_all_its_fields_as_texts() -> None:
    found = decode(
        b'{"code":"30","opaque":-7,"flag":2,"version":121,"language":9,"remark":5,'
        b'"extFields":{"a":1.50,"b":true,"c":null,"\\ud800":"x\x01"}}\n'
    )
    assert found == (30, -7, 2, "9", 121, "5", {"a": "1.50", "b": "true", "?": "x\x01"})


@pytest.mark.parametrize("ext", [b"[1]", b"5", b'"x"', b"true"])
def test_ext_fields_that_are_no_object_are_refused(ext: bytes) -> None:
    with pytest.raises(FrameError, match="extFields is no JSON object"):
        decode(b'{"code":1,"extFields":%b}' % ext)
    with pytest.raises(HeaderError, match="extFields is no JSON object"):
        ext_fields(ext)


@pytest.mark.parametrize("ext", [b"", b"{", b"NaN", b"[" * 50_000], ids=lambda ext: str(ext[:3]))
def test_ext_fields_that_are_no_json_are_refused(ext: bytes) -> None:
    with pytest.raises(HeaderError, match="extFields is not JSON"):
        ext_fields(ext)


def test_null_ext_fields_are_none() -> None:
    assert ext_fields(b"null") == {}
    assert decode(b'{"code":"1","extFields":null}').ext == {}


def test_what_is_absent_is_not_written() -> None:
    assert encode(0, 7, 1, None, None, "JAVA", 479) == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"version":479}'
    )
    assert encode(1, 7, 1, {}, 'say "no"', "JAVA", 479) == (
        b'{"code":1,"flag":1,"language":"JAVA","opaque":7,"version":479,"extFields":{},'
        b'"remark":"say \\"no\\""}'
    )
