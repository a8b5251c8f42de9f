"""Bytes out of the description of the wire: each reader and writer must agree with them."""

from __future__ import annotations

import pytest

from aerobee.remoting.wire.command import Command, answer_head, decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder
from aerobee.remoting.wire.headers.namesrv import GetRouteInfo
from aerobee.remoting.wire.headers.offset import OffsetResponse, QueryConsumerOffset

ROUTE_JSON = bytes.fromhex(
    "00000085 00000081 7b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f7069"
    "6354657374227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a372c22"
    "73657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a307d"
)
ROUTE_ROCKETMQ = bytes.fromhex(
    "0000002d 01000029 0069 00 0000 00000007 00000000 00000000 00000014"
    "0005 746f706963 00000009 546f70696354657374"
)
ANSWER_ROCKETMQ = bytes.fromhex(
    "00000027 01000023 0000 00 01df 00000007 00000001 00000000 0000000e"
    "0006 6f6666736574 00000002 3432"
)
QUERY_MSGPACK_MAP = bytes.fromhex(
    "0000002a 02000026 94 0e 00 07 83 ad636f6e73756d657247726f7570 a167 a5746f706963 a154"
    "a771756575654964 00"
)
QUERY_MSGPACK = bytes.fromhex("0000000e 0200000a 94 0e 00 07 93 a167 a154 00")
ANSWER_MSGPACK = bytes.fromhex("0000000a 02000006 94 00 01 07 91 2a")


def read(frame: bytes) -> Command:
    [(encoding, header, body)] = FrameDecoder().feed(frame)
    return decode(encoding, header, body)


@pytest.mark.parametrize("frame", [ROUTE_JSON, ROUTE_ROCKETMQ], ids=["json", "rocketmq"])
def test_a_route_request_of_java_is_read(frame: bytes) -> None:
    command = read(frame)
    assert (command.code, command.opaque, command.flag, command.version) == (105, 7, 0, 0)
    assert (command.language, command.remark, command.body) == ("JAVA", None, b"")
    assert command.header(GetRouteInfo) == GetRouteInfo(topic="TopicTest")


def test_a_route_request_is_written_as_java_writes_it() -> None:
    header = GetRouteInfo(topic="TopicTest")
    assert encode_request(105, 7, header, encoding=1, version=0) == ROUTE_ROCKETMQ


@pytest.mark.parametrize(
    ("encoding", "frame"), [(1, ANSWER_ROCKETMQ), (2, ANSWER_MSGPACK)], ids=["rocketmq", "msgpack"]
)
def test_an_answer_is_written_and_read_as_the_example(encoding: int, frame: bytes) -> None:
    request = Command(code=14, opaque=7, encoding=encoding)
    assert answer_head(request, 0, OffsetResponse(42), None, 0) == frame
    answer = read(frame)
    assert (answer.code, answer.opaque, answer.is_response, answer.version) == (0, 7, True, 479)
    assert answer.header(OffsetResponse) == OffsetResponse(42)


def test_a_json_answer_has_our_version_and_texts_only() -> None:
    assert answer_head(Command(opaque=7), 0, OffsetResponse(42), None, 3)[8:] == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"version":479,"extFields":{"offset":"42"}}'
    )


@pytest.mark.parametrize("frame", [QUERY_MSGPACK_MAP, QUERY_MSGPACK], ids=["map", "positional"])
def test_both_forms_of_a_msgpack_header_are_read(frame: bytes) -> None:
    command = read(frame)
    assert (command.code, command.opaque, command.flag, command.language) == (14, 7, 0, "PYTHON")
    header = QueryConsumerOffset(consumer_group="g", topic="T", queue_id=0)
    assert command.header(QueryConsumerOffset) == header


def test_a_msgpack_request_is_written_by_position() -> None:
    header = QueryConsumerOffset(consumer_group="g", topic="T", queue_id=0)
    assert encode_request(14, 7, header, encoding=2, language="PYTHON") == QUERY_MSGPACK
