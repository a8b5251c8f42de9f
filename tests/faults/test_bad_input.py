"""Bytes that no honest client sends: the connection ends or the answer names the fault.

A frame that cannot be trusted closes its connection and nothing else; a request that is a whole
frame but wrong inside gets an answer, and the connection stays.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import rss_anon
from tests.kit.playbook import Playbook
from tests.kit.raw_client import (
    RawConnection,
    batch_body,
    pull_fields,
    request_frame,
    send_fields,
)

pytestmark = pytest.mark.faults

SEND, SEND_BATCH, PULL, SEND_V1 = 310, 320, 11, 10
QUERY_OFFSET, HEART_BEAT, ROUTE, CREATE_TOPIC, LOCK = 14, 34, 105, 17, 41
SYSTEM_ERROR, NOT_SUPPORTED, MESSAGE_ILLEGAL, NO_PERMISSION = 1, 3, 13, 16
NOT_EXIST, INVALID_PARAMETER = 17, 29

HOLD, OWN_SUBSCRIPTION = 2, 4

MiB = 1_048_576
MAX_LENGTH = 16 * MiB - 4
"""The largest length field: the frame with it is 16 MiB."""


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker()


@pytest.fixture
def bystander(broker: AnyBroker) -> Iterator[RawConnection]:
    """An honest client that must not notice anything: it works before and after."""
    with RawConnection(broker.address) as connection:
        work(connection)
        yield connection
        work(connection)


def work(connection: RawConnection) -> None:
    sent = connection.call(SEND, send_fields("bystander", 0), b"as always")
    assert sent.code == 0, sent
    at = int(sent.ext["queueOffset"])
    fields = pull_fields("bystanders", "bystander", 0, at, sysFlag=HOLD | OWN_SUBSCRIPTION)
    assert connection.call(PULL, fields).code == 0


def frame(length: int, header_word: int, rest: bytes) -> bytes:
    return struct.pack(">iI", length, header_word) + rest


def json_frame(header: bytes) -> bytes:
    return frame(4 + len(header), len(header), header)


def rocketmq_frame(rest: bytes) -> bytes:
    return frame(4 + len(rest), 1 << 24 | len(rest), rest)


GOOD = request_frame(SEND, 1, send_fields("T", 0), b"x")
ROCKETMQ_HEAD = struct.pack(">hBhii", SEND, 0, 479, 1, 0)

MALFORMED = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "random text": b"hello broker, how are you?\r\n" * 4,
    "a negative length": frame(-1, 10, b"{}"),
    "a length beyond the limit": frame(MAX_LENGTH + 1, 10, b"{}"),
    "a length of 2 GiB": frame(0x7FFFFFFF, 10, b"{}"),
    "a length too short for a header word": frame(2, 0, b""),
    "a header longer than its frame": frame(12, 9, b"{}      "),
    "a header far longer than its frame": frame(12, 0xFFFFFF, b"{}      "),
    "an unknown type byte": frame(6, 9 << 24 | 2, b"{}"),
    "JSON cut short": json_frame(b'{"code":310,"flag":0'),
    "JSON that is no object": json_frame(b"[310,0,1]"),
    "JSON nested without end": json_frame(b'{"code":1,"x":' + b"[" * 50_000),
    "a code that is no number": json_frame(b'{"code":"send","flag":0,"opaque":1}'),
    "an empty header": frame(4, 0, b""),
    "ROCKETMQ cut short": rocketmq_frame(ROCKETMQ_HEAD[:7]),
    "ROCKETMQ with a lying remark": rocketmq_frame(ROCKETMQ_HEAD + struct.pack(">i", 1 << 30)),
    "ROCKETMQ with lying fields": rocketmq_frame(ROCKETMQ_HEAD + struct.pack(">ii", 0, 1 << 30)),
    "ROCKETMQ with a negative remark": rocketmq_frame(ROCKETMQ_HEAD + struct.pack(">ii", -5, 0)),
    "ROCKETMQ with a negative key": rocketmq_frame(
        ROCKETMQ_HEAD + struct.pack(">iih", 0, 12, -3) + b"k" * 10
    ),
    "ROCKETMQ with a negative value": rocketmq_frame(
        ROCKETMQ_HEAD + struct.pack(">iih", 0, 8, 2) + b"kk" + struct.pack(">i", -7)
    ),
    "ROCKETMQ with a lying key": rocketmq_frame(
        ROCKETMQ_HEAD + struct.pack(">iih", 0, 6, 0x7FFF) + b"key!"
    ),
    "ROCKETMQ with a lying value": rocketmq_frame(
        ROCKETMQ_HEAD + struct.pack(">iih", 0, 9, 1) + b"k" + struct.pack(">i", 1 << 30) + b"v!"
    ),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.usefixtures("bystander")
def test_a_frame_that_cannot_be_trusted_closes_its_connection(
    broker: AnyBroker, data: bytes
) -> None:
    with Playbook(broker.address) as play:
        play.says_bytes(data.ljust(12, b"\0"))  # Java looks at 12 bytes before it decides.
        play.hears_close()


@pytest.mark.usefixtures("bystander")
def test_what_came_before_the_bad_frame_is_answered(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says_bytes(GOOD)
        play.hears(0)
        play.says_bytes(MALFORMED["an unknown type byte"] + GOOD)
        play.hears_close()


@pytest.mark.ours
def test_a_claimed_length_costs_no_memory(broker: AnyBroker, bystander: RawConnection) -> None:
    assert isinstance(broker, BrokerProcess)
    before = rss_anon(broker.child.pid)
    connections = [RawConnection(broker.address) for _ in range(50)]
    try:
        for connection in connections:
            connection.send_bytes(frame(MAX_LENGTH, 20_000, b"{"))
        work(bystander)
        assert rss_anon(broker.child.pid) - before < 20 * MiB, "50 claims of 16 MiB, 9 bytes sent"
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.ours
@pytest.mark.usefixtures("bystander")
def test_malformed_frames_by_the_thousand_leave_nothing_behind(broker: AnyBroker) -> None:
    assert isinstance(broker, BrokerProcess)
    corpus = list(MALFORMED.values())
    descriptors = Path(f"/proc/{broker.child.pid}/fd")
    abuse(broker, corpus * 5)
    before, open_before = rss_anon(broker.child.pid), len(list(descriptors.iterdir()))
    abuse(broker, corpus * 50)
    assert rss_anon(broker.child.pid) - before < 5 * MiB
    assert len(list(descriptors.iterdir())) <= open_before + 2


def abuse(broker: AnyBroker, corpus: list[bytes]) -> None:
    for data in corpus:
        with RawConnection(broker.address) as connection:
            connection.send_bytes(data)
            connection.hear_close()


REQUIRED = [
    (SEND, send_fields("T", 0), "b"),
    (SEND, send_fields("T", 0), "e"),
    (SEND, send_fields("T", 0), "d"),
    (PULL, pull_fields("g", "T", 0, 0), "queueOffset"),
    (PULL, pull_fields("g", "T", 0, 0), "consumerGroup"),
    (QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0}, "queueId"),
]


@pytest.mark.ours
@pytest.mark.parametrize(("code", "fields", "name"), REQUIRED)
def test_a_missing_field_is_named_and_the_connection_kept(
    broker: AnyBroker, code: int, fields: dict[str, object], name: str
) -> None:
    with Playbook(broker.address) as play:
        play.says(code, {key: value for key, value in fields.items() if key != name})
        play.hears(SYSTEM_ERROR, remark=name)
        play.says(SEND, send_fields("T", 0), b"still here")
        play.hears(0)


WRONG = [
    (SEND, send_fields("T", 0, e="first"), "e"),
    (SEND, send_fields("T", 0, g="yesterday"), "g"),
    (SEND, send_fields("T", 0, f=1 << 40), "f"),
    (PULL, pull_fields("g", "T", 0, 1 << 70), "queueOffset"),
    (QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": "1.5"}, "queueId"),
]


@pytest.mark.ours
@pytest.mark.parametrize(("code", "fields", "name"), WRONG)
def test_a_field_of_the_wrong_kind_is_named_and_the_connection_kept(
    broker: AnyBroker, code: int, fields: dict[str, object], name: str
) -> None:
    with Playbook(broker.address) as play:
        play.says(code, fields, b"x")
        play.hears(SYSTEM_ERROR, remark=name)
        play.says(SEND, send_fields("T", 0), b"still here")
        play.hears(0)


@pytest.mark.parametrize("code", [4, 999, 9_999, 32_767])
def test_an_unknown_code_is_answered_as_not_supported(broker: AnyBroker, code: int) -> None:
    with Playbook(broker.address) as play:
        play.says(code, {})
        answer = play.hears(NOT_SUPPORTED)
        assert answer.remark == f" request type {code} not supported"
        play.says(SEND, send_fields("T", 0), b"still here")
        play.hears(0)


@pytest.mark.ours
@pytest.mark.parametrize("code", [1_004, 2_003])
def test_what_a_later_release_serves_is_not_supported_yet(broker: AnyBroker, code: int) -> None:
    with Playbook(broker.address) as play:
        play.says(code, {})
        play.hears(NOT_SUPPORTED, remark=f"request type {code} not supported")


def test_a_one_way_request_gets_no_answer_not_even_an_error(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says(9_999, {}, oneway=True)
        play.says(SEND, {"b": "T"}, oneway=True)
        play.says(SEND, send_fields("T", 0), b"by the way", oneway=True)
        opaque = play.says(SEND, send_fields("T", 0), b"asked")
        play.hears(0, opaque=opaque)


def test_an_answer_nobody_waits_for_is_ignored(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says_bytes(request_frame(0, 77, {}, flag=1))
        play.says(SEND, send_fields("T", 0), b"asked")
        play.hears(0)


ILLEGAL_TOPICS = ["", " ", "a b", "a.b", "../../etc/passwd", "a/b", "thème", "a\x00b", "x" * 128]


@pytest.mark.parametrize("topic", ILLEGAL_TOPICS, ids=ascii)
def test_a_send_to_an_illegal_topic_is_refused(broker: AnyBroker, topic: str) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields(topic, 0), b"x")
        play.hears(INVALID_PARAMETER)
        play.says(SEND, send_fields("T", 0), b"still here")
        play.hears(0)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_system_topic_takes_no_messages_from_clients(broker: AnyBroker, topic: str) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields(topic, 0), b"x")
        play.hears(NO_PERMISSION)


@pytest.mark.parametrize("topic", ["a b", "../x", "x" * 128])
def test_an_illegal_topic_cannot_be_made(broker: AnyBroker, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4}
    more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
    with Playbook(broker.address) as play:
        play.says(CREATE_TOPIC, fields | more)
        assert play.connection.hear().code in (SYSTEM_ERROR, INVALID_PARAMETER)


@pytest.mark.parametrize("group", ["a b", "../x", "g" * 121])
def test_an_illegal_group_cannot_pull(broker: AnyBroker, group: str) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("T", 0), b"x")
        play.hears(0)
        play.says(PULL, pull_fields(group, "T", 0, 0))
        play.hears(26)


def test_a_queue_that_the_topic_lacks_is_an_invalid_parameter(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("T", 0), b"x")
        play.hears(0)
        play.says(SEND, send_fields("T", 99), b"x")
        play.hears(INVALID_PARAMETER)
        play.says(PULL, pull_fields("g", "T", 99, 0))
        play.hears(INVALID_PARAMETER)


def test_an_unknown_topic_is_not_found(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("never-made", 0, c="no-template"), b"x")
        play.hears(NOT_EXIST)
        play.says(PULL, pull_fields("g", "never-made", 0, 0))
        play.hears(NOT_EXIST)
    with Playbook(broker.namesrv_address) as play:
        play.says(ROUTE, {"topic": "never-made"})
        play.hears(NOT_EXIST)


@pytest.mark.ours
def test_an_empty_body_is_illegal(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("T", 0), b"")
        play.hears(MESSAGE_ILLEGAL)


def test_the_largest_body_is_stored_and_one_byte_more_is_illegal(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(mappedFileSizeCommitLog=8 * MiB)
    largest = bytes(range(256)) * (4 * MiB // 256)
    with Playbook(broker.address, timeout_s=30) as play:
        play.says(SEND, send_fields("T", 0), largest)
        play.hears(0)
        play.says(SEND, send_fields("T", 0), largest + b"!")
        play.hears(MESSAGE_ILLEGAL)
        play.says(PULL, pull_fields("g", "T", 0, 0))
        assert largest in play.hears(0).body
    broker.kill()


def test_properties_beyond_32767_bytes_are_illegal(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("T", 0, i=f"long\x01{'p' * 32_762}\x02"), b"x")
        play.hears(MESSAGE_ILLEGAL)
        play.says(SEND, send_fields("T", 0, i=f"long\x01{'p' * 32_000}\x02"), b"x")
        play.hears(0)


BAD_BATCHES = {
    "cut short": batch_body({b"one": "", b"two": ""})[:-3],
    "a lying size": struct.pack(">IIII", 1 << 30, 0, 0, 0) + b"x" * 20,
    "a negative size": struct.pack(">iIII", -1, 0, 0, 0) + b"x" * 20,
    "a lying body": struct.pack(">IIIII", 24, 0, 0, 0, 1 << 30) + b"\x00" * 4,
    "no items": b"",
    "garbage": b"\xff" * 64,
}


@pytest.mark.ours
@pytest.mark.parametrize("body", BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_batch_that_does_not_decode_stores_nothing(broker: AnyBroker, body: bytes) -> None:
    with Playbook(broker.address) as play:
        play.says(SEND, send_fields("batches", 0), b"before")
        before = int(play.hears(0).ext["queueOffset"])
        play.says(SEND_BATCH, send_fields("batches", 0, m=True), body)
        assert play.connection.hear().code in (SYSTEM_ERROR, MESSAGE_ILLEGAL)
        play.says(SEND, send_fields("batches", 0), b"after")
        play.hears(0, queueOffset=str(before + 1))


BAD_BODIES = [b"", b"not JSON", b"[1,2", b"\xff\xfe", b"[" * 10_000, b'{"clientID":5}', b"null"]


@pytest.mark.ours
@pytest.mark.parametrize("code", [HEART_BEAT, LOCK])
@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: ascii(body[:20]))
def test_a_json_body_that_does_not_decode_is_an_error_and_the_connection_stays(
    broker: AnyBroker, code: int, body: bytes
) -> None:
    with Playbook(broker.address) as play:
        play.says(code, {}, body)
        play.hears(SYSTEM_ERROR)
        play.says(SEND, send_fields("T", 0), b"still here")
        play.hears(0)


def test_numbers_and_booleans_as_json_values_are_taken_as_their_text(broker: AnyBroker) -> None:
    """Node sends them so."""
    fields = {**send_fields("T", 0), "k": False, "e": 0, "g": 1_700_000_000_000}
    header = {"code": SEND, "flag": 0, "opaque": 5, "version": 121, "extFields": fields}
    data = json.dumps(header).encode()
    with Playbook(broker.address) as play:
        play.says_bytes(struct.pack(">II", 5 + len(data), len(data)) + data + b"x")
        play.hears(0, opaque=5)


def test_a_frame_in_single_bytes_is_one_frame(broker: AnyBroker) -> None:
    with Playbook(broker.address) as play:
        for byte in request_frame(SEND, 9, send_fields("T", 0), b"slowly"):
            play.connection.send_bytes(bytes([byte]))
        play.hears(0, opaque=9)


def test_many_frames_at_once_are_all_answered(broker: AnyBroker) -> None:
    frames = [request_frame(SEND, n, send_fields("T", 0), b"x") for n in range(1, 501)]
    with Playbook(broker.address) as play:
        play.says_bytes(b"".join(frames))
        assert {play.connection.hear().opaque for _ in frames} == set(range(1, 501))
