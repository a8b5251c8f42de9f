"""What a client is told in answer to its settings, and what it registers as."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.filters.subscription import TAGS_CHARS_MAX
from aerobee.broker.grpc.translation.received import INT32_MAX
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.broker.grpc.translation.settings import (
    CUSTOMIZED_MS,
    ENTRIES_MAX,
    attempts_of,
    check_kind,
    expression_of,
    heartbeat_of,
    merged,
)
from aerobee.remoting.grpc.enums import ClientType, Code, FilterType, Language
from aerobee.remoting.grpc.messages import (
    FilterExpression,
    Metric,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig


def producer(*topics: str) -> Any:
    return Settings(
        client_type=ClientType.PRODUCER,
        publishing=Publishing(topics=[Resource(name=topic) for topic in topics]),
        metric=Metric(on=True),
    )


def consumer(expression: str = "a || b", kind: int = FilterType.TAG) -> Any:
    entry = SubscriptionEntry(
        topic=Resource(name="T"), expression=FilterExpression(type=kind, expression=expression)
    )
    return Settings(
        client_type=ClientType.SIMPLE_CONSUMER,
        subscription=Subscription(group=Resource(name="g"), subscriptions=[entry]),
    )


def group(**fields: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(group_name="g", **fields)


def waits(settings: Any) -> list[int]:
    return [one.ToMilliseconds() for one in settings.backoff_policy.customized_backoff.next]


def test_a_producer_is_told_how_to_send() -> None:
    answer = merged(producer("T"), None, body_bytes_max=4_194_304)
    backoff = answer.backoff_policy.exponential_backoff
    assert answer.publishing.max_body_size == 4_194_304
    assert answer.publishing.validate_message_type
    assert answer.backoff_policy.max_attempts == 3
    assert backoff.initial.ToMilliseconds() == 10
    assert backoff.max.ToMilliseconds() == 1_000
    assert backoff.multiplier == 2
    assert [topic.name for topic in answer.publishing.topics] == ["T"]


def test_metrics_are_there_and_off() -> None:
    answer = merged(producer(), None, body_bytes_max=1)
    assert answer.HasField("metric")
    assert not answer.metric.on


def test_a_consumer_is_told_the_policy_of_its_group() -> None:
    answer = merged(consumer(), None, body_bytes_max=1)
    assert not answer.subscription.fifo
    assert answer.subscription.receive_batch_size == 32
    assert answer.subscription.long_polling_timeout.ToMilliseconds() == 20_000
    assert answer.backoff_policy.max_attempts == 17
    assert waits(answer) == list(CUSTOMIZED_MS)
    known = group(consume_message_orderly=True, retry_max_times=2)
    answer = merged(consumer(), known, body_bytes_max=1)
    assert answer.subscription.fifo
    assert answer.backoff_policy.max_attempts == attempts_of(known) == 3


@pytest.mark.parametrize("retries", [-1, INT32_MAX])
def test_a_group_without_a_limit_of_retries_has_as_many_attempts_as_there_are(
    retries: int,
) -> None:
    """#7842: with −1 every message was a dead letter before anybody had got it."""
    answer = merged(consumer(), group(retry_max_times=retries), body_bytes_max=1)
    assert answer.backoff_policy.max_attempts == INT32_MAX


def test_the_waits_of_a_group_are_its_own() -> None:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_000, "x", 2_000]}}
    assert waits(merged(consumer(), group(group_retry_policy=policy), body_bytes_max=1)) == [
        1_000,
        2_000,
    ]
    exponential = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 7_000, "multiplier": "x"},
    }
    answer = merged(consumer(), group(group_retry_policy=exponential), body_bytes_max=1)
    backoff = answer.backoff_policy.exponential_backoff
    assert (backoff.initial.ToMilliseconds(), backoff.multiplier) == (7_000, 2)
    assert answer.backoff_policy.WhichOneof("strategy") == "exponential_backoff"


def test_a_producer_is_a_member_of_the_group_of_each_topic() -> None:
    data = heartbeat_of(producer("T", "U", "T"), "client", 7)
    assert [one.group_name for one in data.producer_data_set] == ["T", "U"]
    assert (data.client_id, data.consumer_data_set) == ("client", [])


def test_a_consumer_is_a_member_with_its_subscriptions() -> None:
    data = heartbeat_of(consumer(), "client", 7)
    (one,) = data.consumer_data_set
    (subscription,) = one.subscription_data_set
    assert (one.group_name, one.consume_type) == ("g", "CONSUME_ACTIVELY")
    assert (subscription.topic, subscription.sub_string) == ("T", "a || b")
    assert (subscription.expression_type, subscription.sub_version) == ("TAG", 7)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings(), "no publishing or subscription"),
        (producer("a b"), "illegal characters"),
        (producer("TBW102"), "system topic"),
        (consumer("||"), "expression format is not correct"),
        (consumer(kind=7), "filter type 7"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(RpcRefused, match=why):
        heartbeat_of(settings, "client", 7)


def test_an_expression_of_nothing_is_for_everything_and_sql_is_taken_as_it_is() -> None:
    assert expression_of(FilterExpression()) == ("TAG", "*")
    sql = FilterExpression(type=FilterType.SQL, expression="a > ")
    assert expression_of(sql) == ("SQL92", "a > ")


def test_tags_beyond_measure_are_refused_before_anybody_hashes_them() -> None:
    longest = FilterExpression(type=FilterType.TAG, expression="x" * TAGS_CHARS_MAX)
    assert expression_of(longest) == ("TAG", longest.expression)
    longer = FilterExpression(type=FilterType.TAG, expression=f"{longest.expression}y")
    with pytest.raises(RpcRefused, match="tags of 16385 characters") as refused:
        expression_of(longer)
    assert refused.value.code is Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize(
    "kind", [ClientType.PULL_CONSUMER, ClientType.LITE_PUSH_CONSUMER, 99, None]
)
def test_other_kinds_of_clients_are_not_served(kind: int | None) -> None:
    with pytest.raises(RpcRefused, match="is not served") as refused:
        check_kind(Settings(client_type=kind))
    assert refused.value.code is Code.UNRECOGNIZED_CLIENT_TYPE
    check_kind(producer())


@pytest.mark.parametrize(
    ("version", "on"), [("5.0.9", True), ("5.1.0", True), ("5.1.1", False), ("", False)]
)
def test_old_push_consumers_of_python_send_metrics_for_without_they_do_not_consume(
    version: str, on: bool
) -> None:
    settings = consumer()
    settings.client_type = ClientType.PUSH_CONSUMER
    settings.user_agent.language, settings.user_agent.version = Language.PYTHON, version
    settings.access_point.addresses.add(host="a", port=1)
    answer = merged(settings, None, body_bytes_max=1)
    assert answer.HasField("metric")
    assert answer.metric.on is on
    assert [one.host for one in answer.metric.endpoints.addresses] == ["a"] * on


@pytest.mark.parametrize("kind", [ClientType.PRODUCER, ClientType.SIMPLE_CONSUMER])
def test_other_clients_send_no_metrics(kind: ClientType) -> None:
    settings = consumer() if kind is ClientType.SIMPLE_CONSUMER else producer("T")
    settings.user_agent.language, settings.user_agent.version = Language.PYTHON, "5.0.9"
    assert not merged(settings, None, body_bytes_max=1).metric.on


def test_settings_name_few_topics() -> None:
    many = producer(*["T"] * (ENTRIES_MAX + 1))
    with pytest.raises(RpcRefused, match="1025 topics, 1024 are taken"):
        heartbeat_of(many, "c", 0)
    subscribed = consumer()
    subscribed.subscription.subscriptions.extend([SubscriptionEntry()] * ENTRIES_MAX)
    with pytest.raises(RpcRefused, match="1025 subscriptions"):
        heartbeat_of(subscribed, "c", 0)
