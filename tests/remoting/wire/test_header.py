"""Typed headers: what is read is what Java reads, what is written every client reads."""

from __future__ import annotations

import re
import traceback
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.remoting.errors import HeaderError
from aerobee.remoting.wire.codec import json_header
from aerobee.remoting.wire.header import (
    I32,
    I64,
    Header,
    Scalar,
    by_position,
    fields_of,
    read_fields,
    reader,
    text_writer,
    wire,
)
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from aerobee.remoting.wire.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from tests.kit.strategies import HEADERS, headers, texts


class Sample(Header, kw_only=True):
    """One field of each kind, required and not."""

    text: str
    number: I32
    long: I64 = wire("L")
    on: bool
    maybe_text: str | None = None
    maybe_number: I32 | None = None
    maybe_on: bool | None = None


GOOD: dict[str, Any] = {"text": "t", "number": "7", "L": "8", "on": "true"}


@given(headers())
def test_every_header_reads_back_from_its_own_texts(header: Header) -> None:
    assert read_fields(type(header), header.ext()) == header
    assert reader(type(header))(msgspec.json.encode(text_writer(type(header))(header))) == header


@given(headers())
def test_every_header_reads_back_from_its_positions(header: Header) -> None:
    values = header.positional()
    assert not values or values[-1] is not None
    assert read_fields(type(header), by_position(type(header), values)) == header


@given(headers())
def test_an_answer_carries_texts_only_and_no_nulls(header: Header) -> None:
    written = msgspec.json.decode(msgspec.json.encode(text_writer(type(header))(header)))
    assert written == header.ext()
    assert all(type(value) is str for value in written.values())


def test_positions_of_a_newer_peer_are_ignored() -> None:
    values: list[Scalar] = ["topic", 3, True, "from the future", 5]
    header = read_fields(GetMaxOffset, by_position(GetMaxOffset, values))
    assert header == GetMaxOffset(topic="topic", queue_id=3, committed=True)


def test_v1_and_v2_of_a_send_have_the_same_attributes() -> None:
    assert [f.attribute for f in fields_of(SendMessage)] == [
        f.attribute for f in fields_of(SendMessageV2)
    ]
    assert "".join(f.name for f in fields_of(SendMessageV2)) == "abcdefghijklmn"


@pytest.mark.parametrize("cls", HEADERS, ids=lambda cls: cls.__name__)
def test_no_two_fields_share_a_name(cls: type[Header]) -> None:
    names = [field.name for field in fields_of(cls)]
    assert len(set(names)) == len(names)


def test_request_codes_are_not_declared_twice() -> None:
    codes = [int(cls.code) for cls in HEADERS if int(cls.code) >= 0]
    assert len(set(codes)) == len(codes)


# ── Reading: fast and slow agree ──

numbers = st.integers(-(2**40), 2**40).map(str)
odd_texts = st.sampled_from(
    ["", " 1", "1 ", "+1", "-0", "007", "1_0", "٣", "0x1", "true", "TRUE", "tRuE", "1", "0", "no"]
)
odd_values = (
    texts | numbers | odd_texts | st.integers(-(2**70), 2**70) | st.booleans() | st.none()
    # The one place where msgspec takes more than Java: it has its own test below.
).filter(lambda value: not (isinstance(value, str) and looser(value)))


def looser(text: str) -> bool:
    return (
        bool(re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text))
        != bool(re.fullmatch(r"-?\d+", text))
        or text.lower() == "null"
    )


@given(
    st.fixed_dictionaries(dict.fromkeys([*GOOD, "maybeText", "maybeNumber", "maybeOn"], odd_values))
)
@example({**GOOD, "number": 2**31})
@example({**GOOD, "L": "9223372036854775808"})
@example({**GOOD, "on": 1, "maybeOn": "1"})
def test_what_msgspec_reads_is_what_the_rule_reads(fields: dict[str, Any]) -> None:
    raw = msgspec.json.encode(fields)
    try:
        fast = reader(Sample)(raw)
    except ValueError:
        return
    slow: dict[str, Any] = {}
    for field in fields_of(Sample):
        value = json_header.ext_fields(raw).get(field.name)
        slow[field.attribute] = None if value is None else field.parse(value)
    assert fast == Sample(**slow)


@pytest.mark.parametrize(
    ("text", "number"),
    [("+3", 3), ("007", 7), ("-0", 0), ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)],
)
def test_numbers_are_read_as_java_parses_them(text: str, number: int) -> None:
    assert read_fields(Sample, {**GOOD, "number": text}).number == number


@pytest.mark.parametrize(
    "text", ["", " 3", "3 ", "1_0", "٣", "0x1", "true", "3.", "--3", "9" * 5000]
)
def test_what_java_cannot_parse_is_refused_by_name(text: str) -> None:
    with pytest.raises(HeaderError, match="header field L is") as caught:
        read_fields(Sample, {**GOOD, "L": text})
    assert caught.value.field == "L"
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 2**31),
        ("number", str(-(2**31) - 1)),
        ("L", 2**63),
        ("L", str(-(2**63) - 1)),
    ],
)
def test_numbers_out_of_javas_ranges_are_refused(field: str, value: object) -> None:
    with pytest.raises(HeaderError, match=f"header field {field} is out of range"):
        read_fields(Sample, {**GOOD, field: value})  # type: ignore[dict-item] # any scalar


@pytest.mark.parametrize("field", list(GOOD))
@pytest.mark.parametrize("absent", [True, False], ids=["absent", "null"])
def test_a_missing_field_is_named(field: str, absent: bool) -> None:
    fields = dict(GOOD)
    fields[field] = None
    if absent:
        del fields[field]
    with pytest.raises(HeaderError, match=f"header field {field} is missing"):
        read_fields(Sample, fields)


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("true", True),
        ("TRUE", True),
        ("1", True),
        (1, True),
        (True, True),
        ("false", False),
        ("0", False),
        ("yes", False),
        ("", False),
        (2, False),
        (False, False),
    ],
)
def test_booleans_are_true_by_javas_word_or_by_the_one_of_cpp(value: Any, meant: bool) -> None:
    assert read_fields(Sample, {**GOOD, "on": value}).on is meant


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (True, "true"), (False, "false"), ("", "")])
def test_scalars_in_a_text_field_are_their_text(value: Any, text: str) -> None:
    assert read_fields(Sample, {**GOOD, "text": value}).text == text


def test_a_number_may_come_as_a_decimal_fraction_of_zero() -> None:
    assert read_fields(Sample, {**GOOD, "number": "3.0"}).number == 3


def test_unknown_fields_are_ignored() -> None:
    assert read_fields(Sample, {**GOOD, "nsd": "x"}) == read_fields(Sample, GOOD)


# ── Writing ──


def test_generated_code_shows_in_tracebacks() -> None:
    class Broken:
        def __str__(self) -> str:
            raise ZeroDivisionError

    answer = SendMessageResponse("id", Broken(), 0)  # type: ignore[arg-type] # no number
    with pytest.raises(ZeroDivisionError) as caught:
        answer.ext()
    shown = "".join(traceback.format_tb(caught.value.__traceback__))
    assert "queue_id=str(h.queue_id)" in shown
    assert "<texts of SendMessageResponse>" in shown
