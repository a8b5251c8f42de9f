"""JSON as Java writes it, and everything that must not get through or take for ever."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.relaxed_json import MAX_DEPTH, decode
from tests.kit.strategies import texts

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_standard_json_is_read_as_it_is(document: Any) -> None:
    assert decode(json.dumps(document).encode()) == document
    assert decode(json.dumps(document, ensure_ascii=False).encode()) == document


@given(st.dictionaries(st.integers(-(2**31), 2**31 - 1), texts, max_size=5))
def test_bare_integer_keys_are_texts(table: dict[int, str]) -> None:
    members = ",".join(f"{key} : {json.dumps(value)}" for key, value in table.items())
    expected = {"t": {str(key): value for key, value in table.items()}, "n": [1, 2]}
    assert decode(f'{{"t":{{ {members} }}, "n":[1,2]}}'.encode()) == expected


@given(st.binary(max_size=80) | st.text('{}[]",:\\0 1-aé$refud8').map(str.encode))
def test_arbitrary_bytes_raise_nothing_but_a_body_error(data: bytes) -> None:
    try:
        document = decode(data)
    except BodyError:
        return
    json.dumps(document, ensure_ascii=False).encode()


@pytest.mark.parametrize("half", [r"\ud800", r"\uDfff", r"\udc00\ud800"])
def test_half_a_surrogate_pair_becomes_a_question_mark(half: str) -> None:
    whole = r"\ud83d\ude00"
    document = decode(f'{{"{half}":["{half}","{whole}"]}}'.encode())
    lost = "?" * half.count("u")
    assert document == {lost: [lost, "\U0001f600"]}


def test_consumer_offsets_of_a_java_broker_are_read() -> None:
    text = b'{\n\t"offsetTable":{"T@G":{0:17,1:4\n\t\t},"%RETRY%G@G":{0:0}}\n}'
    assert decode(text) == {"offsetTable": {"T@G": {"0": 17, "1": 4}, "%RETRY%G@G": {"0": 0}}}


def test_objects_as_keys_are_their_compact_text() -> None:
    text = (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,'
        b'{"topic":"T", "queueId":1, "brokerName":"b{"} : 6}}'
    )
    assert decode(text)["offsetTable"] == {
        '{"brokerName":"broker-a","queueId":0,"topic":"T"}': 5,
        '{"brokerName":"b{","queueId":1,"topic":"T"}': 6,
    }


@pytest.mark.parametrize("text", ["{0:1", '{,0:"{1:2}"', "a\\", 'q"', "[[[[", "{0:1}"])
def test_what_looks_odd_within_a_string_stays_as_it_is(text: str) -> None:
    document = json.dumps({"text": text})[:-1] + ",0:1}"
    assert decode(document.encode()) == {"text": text, "0": 1}


def test_control_characters_may_stand_unescaped() -> None:
    assert decode(b'{"p":"a\x01b\x02\n"}') == {"p": "a\x01b\x02\n"}


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    assert decode(b'{"p":"\xff"}') == {"p": "\ufffd"}


# ── References ──


def test_a_reference_stands_for_what_appeared_before() -> None:
    text = b'{"a":{"b":[{"x":1},{"$ref":"$.a.b[0]"}]},"c":{"$ref":"$.a.b[0].x"}}'
    assert decode(text) == {"a": {"b": [{"x": 1}, {"x": 1}]}, "c": 1}


@pytest.mark.parametrize(
    "path", ["..", "$", "$.a", "$.nothing", "$.list[9]", "$.a[0]", "$.list.a", "@", "$.a..b", "$x"]
)
def test_a_reference_that_leads_nowhere_or_in_a_circle_is_refused(path: str) -> None:
    text = json.dumps({"list": [1], "a": {"b": {"$ref": path}}})
    with pytest.raises(BodyError):
        decode(text.encode())


# ── What must not get through ──


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "{'a':1}",
        '{"a":NaN}',
        '{"a":Infinity}',
        "{0:-Infinity}",
        "{0:NaN}",
        "{1.5:2}",
        "{a:1}",
        '{"a":1,}',
        '{"a":1} {}',
        '{"a":01}',
        "{0:" + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:20] or "nothing",
)
def test_other_liberties_are_refused(text: str) -> None:
    with pytest.raises(BodyError):
        decode(text.encode())


@pytest.mark.parametrize("form", ["[{}]", '{{"a":{}}}', "{{0:{}}}"])
def test_nesting_is_bounded(form: str) -> None:
    document = "1"
    for _ in range(MAX_DEPTH):
        document = form.format(document)
    decode(document.encode())
    with pytest.raises(BodyError, match="nested"):
        decode(form.format(document).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 1_000_000,
        b"[" * 500_000 + b"]" * 500_000,
        b'{"a":' * 200_000,
        b'"' * 300_000,
        b'"' + b'\\"' * 300_000,
        b"{0:" * 300_000,
        b",{" * 300_000,
        b",{a" * 300_000,
        b"{," * 300_000,
        b'{0:"' + b"{" * 600_000,
        b"{" + b" " * 600_000,
        b",{" + b"," * 600_000,
        b"{0:[" + b'{"$ref":"$.b"},' * 40_000 + b'{}],"b":[' + b"1," * 200_000 + b"1]}",
    ],
    ids=lambda text: text[:12].decode(),
)
def test_no_document_takes_longer_than_its_length_warrants(text: bytes) -> None:
    began = process_time()
    with pytest.raises(BodyError):
        decode(text)
    # The slowest takes a tenth of this; what grows with the square takes minutes.
    assert process_time() - began < 5
