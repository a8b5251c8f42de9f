"""What all bodies share: lenient reading, one kind of error, compact writing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.body import REQUEST_BYTES_MAX, Body, without_nulls
from aerobee.remoting.wire.bodies.client import ConsumerList, HeartbeatData
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.queue import LockBatchRequest
from aerobee.remoting.wire.bodies.register_broker import RegisterBrokerBody
from aerobee.remoting.wire.bodies.route import ClusterInfo, TopicRouteData
from aerobee.remoting.wire.bodies.topic import TopicConfigSerializeWrapper, TopicList

BODIES: list[type[Body]] = [
    ClusterInfo,
    ConsumerList,
    DataVersion,
    HeartbeatData,
    KVTable,
    LockBatchRequest,
    RegisterBrokerBody,
    SubscriptionGroupConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
]


class Sample(Body, msgspec.Struct, rename="camel", kw_only=True):
    z_text: str = ""
    a_number: int = 0
    by_id: dict[int, str] = {}


@given(st.binary(max_size=60) | st.text('{}[]",: 01abN').map(str.encode))
def test_arbitrary_bytes_raise_nothing_but_a_body_error(data: bytes) -> None:
    for cls in BODIES:
        try:
            cls.from_bytes(data)
        except BodyError:
            continue


@pytest.mark.parametrize("cls", BODIES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "data", [b"", b"[]", b"5", b"null", b'"x"', b'{"x":' + b"[" * 50_000], ids=lambda data: data[:9]
)
def test_what_is_no_object_is_refused(cls: type[Body], data: bytes) -> None:
    with pytest.raises(BodyError):
        cls.from_bytes(data)


def test_members_are_written_compactly_in_their_order() -> None:
    assert (
        Sample(z_text="é", a_number=1).to_bytes() == '{"aNumber":1,"byId":{},"zText":"é"}'.encode()
    )


def test_nulls_are_absent_and_unknown_members_ignored() -> None:
    assert Sample.from_bytes(b'{"zText":null,"aNumber":null,"x":[{"y":null}]}') == Sample()


def test_numbers_may_come_as_texts_and_keys_bare() -> None:
    read = Sample.from_bytes(b'{"aNumber":"7","byId":{0:"a","1":"b"}}')
    assert read == Sample(a_number=7, by_id={0: "a", 1: "b"})


def test_nulls_leave_objects_but_not_arrays() -> None:
    assert without_nulls({"a": None, "b": [None, {"c": None}]}) == {"b": [None, {}]}


def test_what_a_client_sends_is_read_up_to_a_length() -> None:
    text = b'{"counter":7}'
    assert DataVersion.from_client(text.ljust(REQUEST_BYTES_MAX)).counter == 7
    with pytest.raises(BodyError, match="1048577 bytes, at most 1048576 are taken"):
        DataVersion.from_client(text.ljust(REQUEST_BYTES_MAX + 1))
    assert DataVersion.from_bytes(text.ljust(REQUEST_BYTES_MAX + 1)).counter == 7


LOCK = b'{"clientId":"c","consumerGroup":"g","mqSet":[%s]}'
QUEUE = b'{"brokerName":"b","queueId":0,"topic":"t"}'
BARE = b'{"brokerName":"b","queueId":0,"topic":"t",1:2}'


def test_a_request_is_read_like_any_body() -> None:
    for queue in (QUEUE, BARE):
        body = LOCK % b",".join([queue] * 100)
        assert LockBatchRequest.from_client(body) == LockBatchRequest.from_bytes(body)


@pytest.mark.parametrize(
    ("body", "most_bytes", "why"),
    [
        (LOCK % QUEUE, 50, "bytes, at most 50 are taken"),
        (LOCK % b",".join([QUEUE] * 20_000), 1 << 20, "commas and colons, at most 100000"),
        (LOCK % b",".join([BARE] * 3_000), 1 << 20, "not as declared, at most 20000"),
        (LOCK % b'"' + b"x" * 300_000, 1 << 20, "not as declared, at most 262144"),
    ],
    ids=["long", "many values", "many values of the relaxed kind", "long and relaxed"],
)
def test_a_request_that_would_take_long_is_not_read(body: bytes, most_bytes: int, why: str) -> None:
    with pytest.raises(BodyError, match=why):
        LockBatchRequest.from_client(body, most_bytes)
