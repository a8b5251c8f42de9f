"""Commands in three encodings: the same out as in, and nothing but our errors on any bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import FrameError, HeaderError
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.command import (
    Command,
    answer_head,
    decode,
    encode_request,
    typed_decoder,
)
from aerobee.remoting.wire.frame import MAX_FRAME_BYTES, FrameDecoder
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.offset import GetMaxOffset, OffsetResponse
from aerobee.remoting.wire.headers.send import (
    SendMessageRefused,
    SendMessageResponse,
    SendMessageV2,
)
from tests.kit.strategies import HEADERS, headers, int32, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.wire.header import Header

encodings = st.sampled_from([0, 1, 2])


def read(frame: bytes) -> Command:
    [(encoding, header, body)] = FrameDecoder().feed(frame)
    return decode(encoding, header, body)


def read_json(**members: Any) -> Command:
    return decode(0, json.dumps(members).encode(), b"")


@given(
    header=headers(empty_texts=False),
    encoding=encodings,
    code=st.integers(-(2**15), 2**15 - 1).filter(lambda code: not 3442 <= code <= 3543),
    opaque=int32,
    body=st.binary(max_size=50),
    oneway=st.booleans(),
    remark=st.none() | texts.filter(bool),
    language=st.sampled_from(["JAVA", "GO", "PYTHON", "CPP"]),
    version=st.integers(0, 2**15 - 1),
)
def test_a_request_is_read_as_it_was_written(
    header: Header,
    encoding: int,
    code: int,
    opaque: int,
    body: bytes,
    oneway: bool,
    remark: str | None,
    language: str,
    version: int,
) -> None:
    command = read(
        encode_request(
            code,
            opaque,
            header,
            body,
            encoding=encoding,
            oneway=oneway,
            remark=remark,
            language=language,
            version=version,
        )
    )
    assert (command.code, command.opaque, command.oneway) == (code, opaque, oneway)
    assert (command.remark, command.language, command.version) == (remark, language, version)
    assert (command.encoding, command.body, command.is_response) == (encoding, body, False)
    assert command.header(type(header)) == header
    if encoding != 2:
        assert command.ext_fields() == header.ext()


@given(
    header=headers(empty_texts=False),
    encoding=encodings,
    opaque=int32,
    code=st.sampled_from([0, 1, 2, 10, 16, 21, 1500]),
    remark=st.none() | texts.filter(bool),
    body=st.binary(max_size=50),
)
def test_an_answer_is_read_as_it_was_written_in_the_type_of_its_request(
    header: Header, encoding: int, opaque: int, code: int, remark: str | None, body: bytes
) -> None:
    request = Command(opaque=opaque, encoding=encoding)
    answer = read(answer_head(request, code, header, remark, len(body)) + body)
    assert (answer.code, answer.opaque, answer.flag) == (code, opaque, 1)
    assert (answer.encoding, answer.remark, answer.body) == (encoding, remark, body)
    assert answer.version == 479
    assert answer.header(type(header)) == header


@given(encoding=st.integers(0, 255), header=st.binary(max_size=120), at=st.integers(0, 119))
def test_arbitrary_bytes_raise_nothing_but_our_errors(
    encoding: int, header: bytes, at: int
) -> None:
    for found in (encoding, 0, 1, 2):
        check_any(found, header)
    good = encode_request(310, 7, SEND)[8:]
    check_any(0, good[:at] + header[:3] + good[at + 3 :])


@given(header=headers(), encoding=encodings, data=st.data())
def test_a_damaged_header_raises_nothing_but_our_errors(
    header: Header, encoding: int, data: st.DataObject
) -> None:
    whole = bytearray(encode_request(310, 7, header, encoding=encoding)[8:])
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    check_any(encoding, bytes(whole))
    check_any(encoding, bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def check_any(encoding: int, header: bytes) -> None:
    try:
        command = decode(encoding, header, b"")
    except FrameError:
        return
    for cls in HEADERS:
        try:
            found = command.header(cls)
        except HeaderError:
            continue
        # What was taken in can be given out again.
        for answer_encoding in (0, 1, 2):
            answer_head(Command(encoding=answer_encoding), 0, found, command.remark, 0)
    try:
        command.ext_fields()
    except HeaderError:
        return


SEND = SendMessageV2(
    producer_group="pg",
    topic="T",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=1,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties="TAGS\x01A\x02",
)


# ── What only the server may set ──


def test_a_header_cannot_set_what_is_ours() -> None:
    command = read_json(code=34, encoding=2, body="aGk=", pool={"depth": 1}, arrived=5)
    assert (command.code, command.encoding, command.body, command.pool) == (34, 0, b"", None)


def test_a_detached_command_does_not_change_with_the_receive_buffer() -> None:
    buffer = bytearray(encode_request(30, 7, GetMaxOffset("topic", 1), b"body"))
    [(encoding, header, body)] = FrameDecoder().feed(memoryview(buffer))
    command = decode(encoding, header, body).detached()
    buffer[:] = bytes(len(buffer))
    assert command.header(GetMaxOffset) == GetMaxOffset("topic", 1)
    assert command.body == b"body"


# ── The lenient way ──


def test_numbers_and_booleans_among_ext_fields_are_their_texts() -> None:
    fields = {"a": 3, "b": True, "c": False, "d": None, "e": -0.5, "f": "text", "g": [1, {"h": 2}]}
    command = read_json(code=1, extFields=fields)
    assert command.ext_fields() == {
        "a": "3",
        "b": "true",
        "c": "false",
        "e": "-0.5",
        "f": "text",
        "g": '["1",{"h":"2"}]',
    }


def test_a_node_client_s_header_is_read() -> None:
    header = (
        b'{"code":310,"language":"JAVA","opaque":1,"flag":0,"version":121,"extFields":{"a":"pg",'
        b'"b":"T","c":"TBW102","d":4,"e":0,"f":0,"g":1700000000000,"h":0,"i":"TAGS\\u0001A",'
        b'"j":0,"k":false,"l":null}}'
    )
    sent = decode(0, header, b"").header(SendMessageV2)
    assert (sent.queue_id, sent.born_timestamp, sent.unit_mode) == (0, 1_700_000_000_000, False)
    assert (sent.properties, sent.max_reconsume_times) == ("TAGS\x01A", None)


def test_control_characters_may_stand_unescaped() -> None:
    header = b'{"code":30,"opaque":5,"extFields":{"topic":"a\x01b\x02","queueId":"1"}}\n'
    command = decode(0, header, b"")
    assert command.opaque == 5
    assert command.header(GetMaxOffset) == GetMaxOffset("a\x01b\x02", 1)


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    command = decode(0, b'{"code":30,"extFields":{"topic":"\xff","queueId":"1"}}', b"")
    assert command.header(GetMaxOffset).topic == "\ufffd"


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    command = decode(0, b'{"code":30,"extFields":{"topic":"\\ud800","queueId":"1"}}', b"")
    assert command.header(GetMaxOffset).topic == "?"
    assert read_json(remark="\ud800").remark == "?"


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"extFields": None},
        {"remark": None, "language": None},
        {"language": 9},
        {"language": "KLINGON"},
        {"unknown": [1, 2]},
        {"serializeTypeCurrentRPC": "JSON"},
    ],
)
def test_nothing_of_the_envelope_is_required(members: dict[str, Any]) -> None:
    command = read_json(code=34, opaque=3, **members)
    assert (command.code, command.opaque) == (34, 3)
    assert command.header(Heartbeat) == Heartbeat()


def test_numbers_of_the_envelope_may_be_texts() -> None:
    assert read_json(code="34", opaque="-5").opaque == -5


@pytest.mark.parametrize("member", ["code", "opaque", "flag", "version", "language"])
@pytest.mark.parametrize("value", ["1e2", "3.0", "-0.0", '"1e1"', "1.5", "1e10", "true", '"x"'])
def test_a_send_is_read_alike_alone_and_behind_others(member: str, value: str) -> None:
    ext = SendMessageV2("g", "t", "TBW102", 4, 0, 0, 1, 0).ext()
    members = {"code": "310", "opaque": "5", "extFields": json.dumps(ext), member: value}
    header = ("{" + ",".join(f'"{name}":{text}' for name, text in members.items()) + "}").encode()

    def outcome(reading: Callable[[], tuple[Command, SendMessageV2]]) -> object:
        try:
            command, fields = reading()
        except FrameError as error:
            return str(error)
        line = command.code, command.opaque, command.flag, command.version, command.language
        return line, fields

    def alone() -> tuple[Command, SendMessageV2]:
        command = decode(0, header, b"")
        return command, command.header(SendMessageV2)

    assert outcome(alone) == outcome(lambda: typed_decoder(SendMessageV2)(header, b""))
    if member == "opaque" and value == "1e2":
        assert alone()[0].opaque == 100


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[310,0,1]",
        b'"text"',
        b"null",
        b'{"code":"send"}',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":NaN}',
        b'{"remark":[]}',
        b'{"flag":{}}',
        b'{"x":' + b"[" * 50_000,
        # Deeper than the stack that Python 3.14 counts by; before it counted calls.
        b'{"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        b'{"code":1} {"code":2}',
        b'{"code":1e999}',
        b'{"code":' + b"9" * 10_000 + b"}",
    ],
    ids=lambda data: data[:24].hex() or "nothing",
)
def test_a_json_header_that_java_does_not_read_closes(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(0, header, b"")


@pytest.mark.parametrize("ext", [b"5", b'"text"', b"[1]", b'{"a":"\x01"}x'])
def test_ext_fields_that_are_no_object_are_refused(ext: bytes) -> None:
    with pytest.raises((FrameError, HeaderError)):
        decode(0, b'{"code":34,"extFields":%b}' % ext, b"").header(Heartbeat)


def test_more_ext_fields_than_any_request_has_are_refused() -> None:
    many = {f"f{number}": "x" for number in range(129)}
    for encoding in (1, 2):
        with pytest.raises(FrameError, match="128"):
            read(encode_request(34, 1, many, encoding=encoding))
    with pytest.raises(HeaderError, match="128"):
        read(encode_request(34, 1, many)).ext_fields()


def test_an_unknown_encoding_closes() -> None:
    with pytest.raises(FrameError, match="type 3"):
        decode(3, b"{}", b"")


# ── Answers ──


def test_an_error_answer_in_msgpack_names_its_fields() -> None:
    request = Command(opaque=7, encoding=2)
    refused = SendMessageRefused("DefaultRegion", "true")
    answer = read(answer_head(request, 14, refused, "full", 0))
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    stored = SendMessageResponse("id", 1, 2, region="DefaultRegion")
    answer = read(answer_head(request, ResponseCode.FLUSH_DISK_TIMEOUT, stored, None, 0))
    assert answer.header(SendMessageResponse) == stored


@pytest.mark.parametrize("encoding", [0, 1, 2])
def test_an_answer_without_fields_has_none(encoding: int) -> None:
    answer = read(answer_head(Command(opaque=7, encoding=encoding), 1, None, "why", 0))
    assert (answer.code, answer.remark, answer.ext_fields()) == (1, "why", {})


@pytest.mark.parametrize("encoding", [0, 1, 2])
def test_fields_may_be_given_as_a_map(encoding: int) -> None:
    answer = read(answer_head(Command(encoding=encoding), 0, {"aeroSer": "2"}, None, 0))
    assert answer.ext_fields() == {"aeroSer": "2"}


def test_the_length_prefix_counts_the_body_that_follows() -> None:
    head = answer_head(Command(), 0, OffsetResponse(1), None, 1000)
    assert int.from_bytes(head[:4], "big") == len(head) - 4 + 1000


def test_enum_members_are_written_as_their_numbers() -> None:
    code = RequestCode.HEART_BEAT
    for encoding in (0, 1, 2):
        assert read(encode_request(code, 1, None, encoding=encoding)).code == 34
        head = answer_head(Command(encoding=encoding), ResponseCode.SYSTEM_ERROR, None, None, 0)
        assert read(head).code == 1


def test_a_frame_longer_than_any_peer_takes_is_not_written() -> None:
    with pytest.raises(FrameError, match="peers take at most"):
        encode_request(310, 1, SEND, bytes(MAX_FRAME_BYTES))
