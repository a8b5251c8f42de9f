"""The queues of a topic, as clients are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.routes import (
    assignments_of,
    broker_of,
    endpoints_of,
    queues_of,
)
from aerobee.remoting.grpc.enums import AddressScheme, Code, MessageType, Permission
from aerobee.remoting.grpc.messages import Resource
from aerobee.remoting.wire.bodies.topic import TopicConfig

ASKED = Resource(resource_namespace="ns", name="T")
BROKER = broker_of("broker-a", endpoints_of("10.0.0.1:8081"))


def topic(read: int, write: int, perm: int = 6, kind: str = "NORMAL") -> TopicConfig:
    return TopicConfig(
        topic_name="T",
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        attributes={"message.type": kind},
    )


@pytest.mark.parametrize(
    ("config", "permissions"),
    [
        (topic(2, 2), ["READ_WRITE"] * 2),
        (topic(3, 1), ["READ"] * 2 + ["READ_WRITE"]),
        (topic(1, 3), ["WRITE"] * 2 + ["READ_WRITE"]),
        (topic(2, 3, perm=4), ["READ"] * 2),
        (topic(2, 3, perm=2), ["WRITE"] * 3),
        (topic(2, 3, perm=0), ["NONE"] * 3),
        (topic(0, 0, perm=0), ["NONE"]),
    ],
)
def test_each_queue_says_what_may_be_done_with_it(
    config: TopicConfig, permissions: list[str]
) -> None:
    queues = queues_of(config, ASKED, BROKER)
    assert [Permission(queue.permission).name for queue in queues] == permissions
    assert [queue.id for queue in queues] == list(range(len(queues)))
    for queue in queues:
        assert (queue.topic, queue.broker) == (ASKED, BROKER)
        assert list(queue.accept_message_types) == [MessageType.NORMAL]


@pytest.mark.parametrize(
    ("address", "scheme", "host"),
    [
        ("10.0.0.1:8081", AddressScheme.IPv4, "10.0.0.1"),
        ("[fe80::1]:8081", AddressScheme.IPv6, "fe80::1"),
        ("broker.example.org:8081", AddressScheme.DOMAIN_NAME, "broker.example.org"),
    ],
)
def test_the_kind_of_an_address_is_told(address: str, scheme: AddressScheme, host: str) -> None:
    endpoints = endpoints_of(address)
    (only,) = endpoints.addresses
    assert (endpoints.scheme, only.host, only.port) == (scheme, host, 8081)


def ids(assignments: list[Any]) -> list[int]:
    return [assignment.message_queue.id for assignment in assignments]


def test_members_share_any_queue_and_in_order_each_one() -> None:
    assert ids(assignments_of(topic(3, 1), ASKED, BROKER, fifo=False)) == [-1]
    assert ids(assignments_of(topic(3, 1), ASKED, BROKER, fifo=True)) == [0, 1, 2]


def test_a_topic_that_cannot_be_read_is_assigned_to_nobody() -> None:
    for config in (topic(2, 2, perm=2), topic(0, 2)):
        with pytest.raises(RpcRefused, match="no readable queue") as refused:
            assignments_of(config, ASKED, BROKER, fifo=False)
        assert refused.value.code is Code.FORBIDDEN
