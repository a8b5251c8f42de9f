"""Names in resources: the same rules as everywhere, and nothing of RocketMQ's own."""

from __future__ import annotations

import pytest

from aerobee.broker.grpc.translation.names import found, group_of, is_internal, topic_of
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.messages import Resource


@pytest.mark.parametrize("name", ["T", "a-b_c|d%1", "%DLQ%g", "%RETRY%g", "x" * 127])
def test_a_topic_is_its_name_whatever_its_namespace(name: str) -> None:
    assert topic_of(Resource(name=name, resource_namespace="somewhere")) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "blank"),
        ("  ", "blank"),
        ("a b", "illegal characters"),
        ("ü", "illegal characters"),
        ("x" * 128, "longer"),
        ("TBW102", "system topic"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "system topic"),
        ("rmq_sys_wheel_timer", "system topic"),
        ("SCHEDULE_TOPIC_XXXX", "system topic"),
    ],
)
def test_a_topic_that_cannot_be_used_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(RpcRefused, match=why) as refused:
        topic_of(Resource(name=name))
    assert refused.value.code is Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["g", "TOOLS_CONSUMER", "x" * 120])
def test_a_group_is_its_name(name: str) -> None:
    assert group_of(Resource(name=name)) == name


@pytest.mark.parametrize("name", ["", "a.b", "x" * 121, "CID_RMQ_SYS_TRANS"])
def test_a_group_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(RpcRefused) as refused:
        group_of(Resource(name=name))
    assert refused.value.code is Code.ILLEGAL_CONSUMER_GROUP


def test_topics_of_groups_are_not_internal() -> None:
    assert not is_internal("%RETRY%g")
    assert is_internal("rmq_sys_REVIVE_LOG_c")


def test_an_unknown_topic_says_that_it_must_be_created() -> None:
    with pytest.raises(RpcRefused, match=r"No topic route info.*Create it first") as refused:
        found("T", None)
    assert refused.value.code is Code.TOPIC_NOT_FOUND
