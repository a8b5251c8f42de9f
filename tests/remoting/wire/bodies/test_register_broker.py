"""Registrations of brokers of every age, and bodies that try to become too much."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies import register_broker
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.bodies.topic import TopicConfig

VERSION = DataVersion(state_version=0, timestamp=1, counter=4)
T1 = TopicConfig(topic_name="T1", read_queue_nums=4, write_queue_nums=4)
INFLATED = bytes.fromhex(
    "0000002c7b22636f756e746572223a342c22737461746556657273696f6e223a302c2274696d657374616d70223a31"
    "7d0000000100000016543120342034203620"
    "53494e474c455f544147207b7d000000025b5d00000000"
)


def part(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def compressed(*topics: str, servers: str = "[]", tail: bytes = b"") -> bytes:
    head = part('{"counter":4,"stateVersion":0,"timestamp":1}') + struct.pack(">i", len(topics))
    return zlib.compress(head + b"".join(map(part, topics)) + part(servers) + tail, 9)


def read(body: bytes, version: int = 493, compressed: bool | None = None) -> RegisterBrokerBody:
    steps = RegisterBrokerBody.in_steps(body, version=version, compressed=compressed)
    return finished(steps)


def test_what_our_broker_sends_is_read_back() -> None:
    body = RegisterBrokerBody.of({"T1": T1}, VERSION)
    found = read(body.to_bytes())
    assert found == body
    assert (found.topics, found.data_version) == ({"T1": T1}, VERSION)
    assert body.to_bytes().startswith(b'{"filterServerList":[],"topicConfigSerializeWrapper":{')


@pytest.mark.parametrize("count", [0, 1, 3])
def test_queue_mappings_are_noticed_whatever_they_say(count: int) -> None:
    tail = struct.pack(">i", count) + b"".join(part("{}") for _ in range(count))
    assert read(compressed("T1 4 4 6 SINGLE_TAG", tail=tail)).mapped is bool(count)
    body = RegisterBrokerBody.of({"T1": T1}, VERSION)
    body.wrapper.topic_queue_mapping_info_map = {f"T{number}": {} for number in range(count)}
    assert read(body.to_bytes()).mapped is bool(count)


def test_no_body_is_an_empty_table_of_version_zero() -> None:
    found = read(b"")
    assert (found.topics, found.data_version, found.filter_server_list) == ({}, DataVersion(), [])


def test_before_3_0_11_the_body_is_the_wrapper_alone() -> None:
    wrapper = RegisterBrokerBody.of({"T1": T1}, VERSION).wrapper
    assert read(wrapper.to_bytes(), version=36).topics == {"T1": T1}


@pytest.mark.parametrize("flag", [True, False, None])
def test_a_compressed_body_is_known_by_its_first_byte(flag: bool | None) -> None:
    found = read(zlib.compress(INFLATED, 9), compressed=flag)
    assert (found.topics, found.data_version) == ({"T1": T1}, VERSION)


def test_a_compressed_body_of_4_9_has_no_attributes() -> None:
    found = read(compressed("T1 4 4 6 SINGLE_TAG", "T2 1 2 7 MULTI_TAG", servers='["s:1"]'))
    assert found.topics["T1"] == T1
    assert found.topics["T2"].perm == 7
    assert found.filter_server_list == ["s:1"]


def test_attributes_may_hold_blanks() -> None:
    found = read(compressed('T1 4 4 6 SINGLE_TAG {"+message.type": "a b"}'))
    assert found.topics["T1"].attributes == {"+message.type": "a b"}


@pytest.mark.parametrize(
    "body",
    [
        b"\x78\xda garbage",
        zlib.compress(INFLATED, 9)[:-8],
        zlib.compress(b""),
        zlib.compress(INFLATED[:60]),
        zlib.compress(struct.pack(">i", 2**31 - 1)),
        zlib.compress(struct.pack(">i", -5)),
        compressed("T1 4 4"),
        compressed("T1 four 4 6 SINGLE_TAG {}"),
        compressed("T1 4 4 6 SINGLE_TAG [1]"),
        compressed("T1 4 4 6 SINGLE_TAG {"),
        compressed(servers="{}"),
        compressed(servers="[1]"),
    ],
    ids=lambda body: body[:12].hex(),
)
def test_a_broken_compressed_body_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        read(body)


def test_a_plain_body_under_the_compressed_flag_is_refused() -> None:
    with pytest.raises(BodyError, match="no zlib stream"):
        read(b"{}", compressed=True)


def test_a_body_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_broker, "BYTES_MAX", 10_000)
    monkeypatch.setattr(register_broker, "INFLATED_STEP", 1_000)
    with pytest.raises(BodyError, match="too long"):
        read(zlib.compress(bytes(20_000)))


@pytest.mark.parametrize("step", [1, 2, 3, 257, 258, 259, 1_000])
def test_what_is_inflated_in_steps_is_the_whole(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(register_broker, "INFLATED_STEP", step)
    topics = [f"T{number} 4 4 6 SINGLE_TAG {{}}" for number in range(100)]
    assert len(read(compressed(*topics)).topics) == 100


def test_twenty_thousand_topics_are_taken_and_packed_ones_in_steps() -> None:
    topics = {f"TopicNumber{number:06}": T1 for number in range(20_000)}
    body = RegisterBrokerBody.of(topics, VERSION).to_bytes()
    assert len(body) > 3 << 20
    assert len(read(body).topics) == 20_000
    packed = compressed(*(f"{name} 4 4 6 SINGLE_TAG {{}}" for name in topics))
    steps = RegisterBrokerBody.in_steps(packed, version=493)
    assert sum(1 for _ in steps) >= 100


def test_a_registration_of_more_than_can_be_read_at_once_is_refused() -> None:
    body = RegisterBrokerBody.of({f"T{number}": T1 for number in range(30_000)}, VERSION)
    with pytest.raises(BodyError, match="at most 400000 are taken"):
        read(body.to_bytes())


@given(st.binary(max_size=60))
def test_arbitrary_parts_raise_nothing_but_a_body_error(data: bytes) -> None:
    try:
        read(zlib.compress(data))
    except BodyError:
        return
