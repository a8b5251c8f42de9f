"""Heartbeats as clients of every kind write them."""

from __future__ import annotations

import pytest

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)

JAVA = (
    b'{"clientID":"10.0.0.1@123","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG",'
    b'"subString":"A","subVersion":1700000000000,"tagsSet":["A"],"topic":"T"}],"unitMode":false}],'
    b'"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"pg"}],"withoutSub":false}'
)
SAME = HeartbeatData(
    client_id="10.0.0.1@123",
    consumer_data_set=[
        ConsumerData(
            group_name="g",
            subscription_data_set=[
                SubscriptionData(
                    topic="T",
                    sub_string="A",
                    sub_version=1_700_000_000_000,
                    code_set=[65],
                    tags_set=["A"],
                    expression_type="TAG",
                )
            ],
        )
    ],
    producer_data_set=[ProducerData("pg")],
)


def test_java_s_heartbeat_is_read_and_written_as_it_is() -> None:
    assert HeartbeatData.from_bytes(JAVA) == SAME
    assert SAME.to_bytes() == JAVA


def test_go_sends_hash_codes_as_texts_and_empty_sets() -> None:
    data = JAVA.replace(b"[65]", b'["65","-7"]').replace(b'["A"]', b"[]")
    [subscription] = HeartbeatData.from_bytes(data).consumer_data_set[0].subscription_data_set
    assert (subscription.code_set, subscription.tags_set) == ([65, -7], [])


def test_go_may_send_a_name_that_no_enum_has() -> None:
    data = JAVA.replace(b"CONSUME_FROM_LAST_OFFSET", b"UNKNOWN")
    assert HeartbeatData.from_bytes(data).consumer_data_set[0].consume_from_where == "UNKNOWN"


def test_node_names_no_expression_type() -> None:
    for absent in (b"", b'"expressionType":null,'):
        data = JAVA.replace(b'"expressionType":"TAG",', absent)
        [subscription] = HeartbeatData.from_bytes(data).consumer_data_set[0].subscription_data_set
        assert subscription.expression_type is None


def test_cpp_sends_ordinals_texts_for_numbers_and_no_sets() -> None:
    data = (
        b'{"clientID":"1-127.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,'
        b'"consumeType":1,"groupName":"g","messageModel":0,"subscriptionDataSet":['
        b'{"subString":"*","subVersion":"1700000000000","topic":"T"},'
        b'{"codeSet":[0,0],"subString":"A || B","subVersion":"5","tagsSet":["A","B"],"topic":"U"}'
        b']}],"producerDataSet":[]}\n'
    )
    [consumer] = HeartbeatData.from_bytes(data).consumer_data_set
    assert (consumer.consume_type, consumer.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    first, second = consumer.subscription_data_set
    assert (first.sub_version, first.tags_set, first.code_set) == (1_700_000_000_000, [], [])
    assert (second.sub_string, second.code_set) == ("A || B", [0, 0])


@pytest.mark.parametrize("ordinal", [b"-1", b"3", b"true", b"[]"])
def test_an_ordinal_of_no_enum_is_refused(ordinal: bytes) -> None:
    with pytest.raises(BodyError, match="HeartbeatData"):
        HeartbeatData.from_bytes(JAVA.replace(b'"CONSUME_PASSIVELY"', ordinal))


def test_a_heartbeat_without_a_client_id_is_refused() -> None:
    with pytest.raises(BodyError, match="clientID"):
        HeartbeatData.from_bytes(b"{}")


def test_sets_may_be_missing_altogether() -> None:
    assert HeartbeatData.from_bytes(b'{"clientID":"c"}') == HeartbeatData(client_id="c")
