from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.grpc.head import (
    FIELD_BYTES,
    EncodingRefused,
    NotGrpc,
    RequestHead,
    timeout_ms,
)
from aerobee.remoting.grpc.status import CallRefused, StatusCode

HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/apache.rocketmq.v2.MessagingService/SendMessage"),
    (b":authority", b"127.0.0.1:8081"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
)


def without(name: bytes) -> tuple[tuple[bytes, bytes], ...]:
    return tuple(field for field in HEADERS if field[0] != name)


def test_a_head_says_what_is_called() -> None:
    head = RequestHead((*HEADERS, (b"grpc-timeout", b"3S"), (b"x-mq-client-id", b"host@1@0@a")))

    assert head.path == b"/apache.rocketmq.v2.MessagingService/SendMessage"
    assert head.method == "apache.rocketmq.v2.MessagingService/SendMessage"
    assert head.timeout_ms == 3_000
    assert head.text(b"x-mq-client-id") == "host@1@0@a"
    assert head.text(b"x-mq-language") == ""
    assert head.text(b"x-mq-language", "OTHER") == "OTHER"


def test_a_field_that_comes_twice_is_one_with_a_comma() -> None:
    head = RequestHead((*HEADERS, (b"a", b"1"), (b"b", b"2"), (b"a", b"3")))

    assert (head.text(b"a"), head.text(b"b")) == ("1,3", "2")


def test_the_memory_of_a_head_is_that_of_its_fields() -> None:
    head = RequestHead(HEADERS)
    assert RequestHead((*HEADERS, (b"name", b"value"))).size_bytes == (
        head.size_bytes + len(b"namevalue") + FIELD_BYTES
    )
    head.drop_fields()
    assert head.size_bytes == 0


def test_text_that_is_no_ascii_disturbs_nothing() -> None:
    assert RequestHead((*HEADERS, (b"a", b"\xff\x00b"))).text(b"a") == "\ufffd\0b"


@given(st.binary(max_size=50))
def test_binary_fields_are_decoded_with_and_without_padding(value: bytes) -> None:
    encoded = b64encode(value)
    for sent in (encoded, encoded.rstrip(b"=")):
        assert RequestHead((*HEADERS, (b"trace-bin", sent))).binary(b"trace-bin") == value


@pytest.mark.parametrize("value", [None, b"A"])
def test_a_binary_field_that_is_none_has_no_value(value: bytes | None) -> None:
    fields = () if value is None else ((b"trace-bin", value),)

    assert RequestHead((*HEADERS, *fields)).binary(b"trace-bin") is None


@pytest.mark.parametrize(
    "value", ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"]
)
def test_content_types_of_grpc(value: str) -> None:
    headers = (*without(b"content-type"), (b"content-type", value.encode()))

    assert RequestHead(headers).timeout_ms is None


@pytest.mark.parametrize(
    "value", ["", "text/html", "application/grpc-web", "application/grpc+json", "application/json"]
)
def test_other_content_types_are_not_grpc(value: str) -> None:
    headers = (*without(b"content-type"), (b"content-type", value.encode()))
    with pytest.raises(NotGrpc, match="application/grpc") as refused:
        RequestHead(headers)

    assert refused.value.http_status == 415


def test_a_browser_is_told_that_it_is_wrong_here() -> None:
    with pytest.raises(NotGrpc) as refused:
        RequestHead((*without(b":method"), (b":method", b"GET")))

    assert refused.value.http_status == 405


def test_compression_is_refused_with_a_name() -> None:
    assert RequestHead((*HEADERS, (b"grpc-encoding", b"identity"))).path
    with pytest.raises(EncodingRefused, match="grpc-encoding gzip is not supported") as refused:
        RequestHead((*HEADERS, (b"grpc-encoding", b"gzip")))

    assert refused.value.code == StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("1H", 3_600_000),
        ("2M", 120_000),
        ("3S", 3_000),
        ("4m", 4),
        ("5u", 0.005),
        ("6n", 0.000_006),
        ("0S", 0),
        ("99999999H", 99_999_999 * 3_600_000),
    ],
)
def test_units_of_time(value: str, ms: float) -> None:
    assert timeout_ms(value.encode()) == pytest.approx(ms)


@pytest.mark.parametrize(
    "value", ["", "S", "3", "-3S", "3s", "3 S", "123456789S", "1.5S", "\u0663S"]
)
def test_what_is_no_time_is_refused(value: str) -> None:
    with pytest.raises(CallRefused, match="grpc-timeout") as refused:
        timeout_ms(value.encode())

    assert refused.value.code == StatusCode.INTERNAL
