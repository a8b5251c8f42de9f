from __future__ import annotations

from urllib.parse import unquote_to_bytes

import grpc
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.grpc.status import TEXT_MAX, StatusCode, percent_encoded, trailers


def test_the_codes_are_those_of_grpc() -> None:
    assert {code.name: code.value for code in StatusCode} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


def test_a_status_without_a_text_has_one_trailer() -> None:
    assert trailers(StatusCode.OK) == ((b"grpc-status", b"0"),)
    assert trailers(StatusCode.UNAUTHENTICATED) == ((b"grpc-status", b"16"),)


def test_a_text_is_one_line_of_printable_characters() -> None:
    code, text = trailers(StatusCode.INTERNAL, "größer\r\n100 %")

    assert code == (b"grpc-status", b"13")
    assert text == (b"grpc-message", b"gr%C3%B6%C3%9Fer%0D%0A100 %25")


@given(st.text(max_size=100))
def test_every_text_comes_back(text: str) -> None:
    encoded = percent_encoded(text)

    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


def test_a_long_text_is_cut() -> None:
    assert len(percent_encoded("x" * 100_000)) == TEXT_MAX
