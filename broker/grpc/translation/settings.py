"""The settings that a client is told in answer to its own, and the heartbeat as which it registers.

Source: grpc §2.3 (ClientActivity, GrpcClientSettingsManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.filters.subscription import TAGS_CHARS_MAX
from aerobee.broker.grpc.translation.names import group_of, topic_of
from aerobee.broker.grpc.translation.polling import version_of
from aerobee.broker.grpc.translation.received import INT32_MAX, set_time
from aerobee.broker.grpc.translation.refusal import RpcRefused, quoted
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import ClientType, Code, FilterType, Language
from aerobee.remoting.wire.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from aerobee.store.format.tags import names_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.remoting.wire.bodies.group import SubscriptionGroupConfig

ENTRIES_MAX: Final = 1_024
"""Topics or subscriptions of one client."""
CUSTOMIZED_MS: Final = tuple(
    1_000 * seconds
    for seconds in (
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800),
        *(3_600, 7_200),
    )
)
"""After how long a message is delivered again, for the first time, the second, and so on."""
RETRIES: Final = 16
"""Of a group without settings."""
EXPONENTIAL_MS: Final = (5_000, 7_200_000, 2)
"""The first wait, the longest, and by what each is multiplied."""
PRODUCER_ATTEMPTS: Final = 3
PRODUCER_BACKOFF_MS: Final = (10, 1_000, 2)
RECEIVE_BATCH: Final = 32
LONG_POLLING_MS: Final = 20_000
CONSUMERS: Final = {
    ClientType.PUSH_CONSUMER: "CONSUME_PASSIVELY",
    ClientType.SIMPLE_CONSUMER: "CONSUME_ACTIVELY",
}
"""The kinds as which consumers are shown."""
CONSUMES_WITHOUT_METRICS: Final = (5, 1, 1)
"""Python's push consumers before this version fail over settings that turn their metrics off, read
their stream no further, and never consume (rocketmq-clients #1168)."""
SERVED: Final = frozenset({ClientType.PRODUCER, *CONSUMERS})
EXPRESSIONS: Final = {
    FilterType.FILTER_TYPE_UNSPECIFIED: "TAG",
    FilterType.TAG: "TAG",
    FilterType.SQL: "SQL92",
}


# ── What is sent back ──


def merged(settings: Any, group: SubscriptionGroupConfig | None, *, body_bytes_max: int) -> Any:
    """The settings of a client with what the broker decides. `group` None: it has defaults."""
    answer = messages.Settings()
    answer.CopyFrom(settings)
    answer.metric.on = consumes_with_metrics(settings)
    answer.metric.ClearField("endpoints")
    if answer.metric.on:
        answer.metric.endpoints.CopyFrom(settings.access_point)
    if answer.HasField("publishing"):
        answer.publishing.max_body_size = body_bytes_max
        answer.publishing.validate_message_type = True
        answer.backoff_policy.max_attempts = PRODUCER_ATTEMPTS
        set_backoff(answer.backoff_policy.exponential_backoff, *PRODUCER_BACKOFF_MS)
    elif answer.HasField("subscription"):
        subscription = answer.subscription
        subscription.fifo = group is not None and group.consume_message_orderly
        subscription.receive_batch_size = RECEIVE_BATCH
        set_time(subscription.long_polling_timeout, LONG_POLLING_MS)
        set_policy(answer.backoff_policy, group)
    return answer


def timeout_of(settings: Any) -> int:
    """How long a call may take, in milliseconds; 0: they say nothing. Raises: RpcRefused."""
    try:
        timeout_ms: int = settings.request_timeout.ToMilliseconds()
    except ValueError as error:
        raise RpcRefused(
            Code.BAD_REQUEST, f"the request timeout is out of range: {error}"
        ) from None
    return timeout_ms


def consumes_with_metrics(settings: Any) -> bool:
    """Whether a client has to send its metrics, to us, so that it consumes."""
    agent = settings.user_agent
    return (
        settings.client_type == ClientType.PUSH_CONSUMER
        and agent.language == Language.PYTHON
        and (5,) <= version_of(agent.version) < CONSUMES_WITHOUT_METRICS
    )


def attempts_of(group: SubscriptionGroupConfig | None) -> int:
    """How often a message is delivered, before it is a dead letter. A group with a negative number
    of retries has no limit: with one of zero nothing would ever be delivered.
    """
    retries = RETRIES if group is None else group.retry_max_times
    return retries + 1 if 0 <= retries < INT32_MAX else INT32_MAX


def set_policy(policy: Any, group: SubscriptionGroupConfig | None) -> None:
    """When messages that were not consumed are delivered again: the policy of the group."""
    policy.ClearField("strategy")
    policy.max_attempts = attempts_of(group)
    declared = {} if group is None else group.group_retry_policy
    exponential = declared.get("exponentialRetryPolicy")
    if declared.get("type") == "EXPONENTIAL":
        numbers = exponential if isinstance(exponential, dict) else {}
        names = ("initial", "max", "multiplier")
        limits = (numbers.get(name) for name in names)
        chosen = (
            number if isinstance(number, int | float) and number > 0 else default
            for number, default in zip(limits, EXPONENTIAL_MS, strict=True)
        )
        set_backoff(policy.exponential_backoff, *chosen)
        return
    customized = declared.get("customizedRetryPolicy")
    listed = customized.get("next") if isinstance(customized, dict) else None
    waits: Sequence[Any] = listed if isinstance(listed, list) and listed else CUSTOMIZED_MS
    for wait_ms in waits:
        if isinstance(wait_ms, int) and wait_ms >= 0:
            set_time(policy.customized_backoff.next.add(), wait_ms)


def set_backoff(backoff: Any, initial_ms: float, max_ms: float, multiplier: float) -> None:
    """Set an exponential back-off."""
    set_time(backoff.initial, int(initial_ms))
    set_time(backoff.max, int(max_ms))
    backoff.multiplier = multiplier


# ── What is registered ──


def check_kind(settings: Any) -> None:
    """Refuse a kind of client that is not served. Raises: RpcRefused."""
    kind = settings.client_type
    if kind not in SERVED:
        name = ClientType(kind).name if kind in set(ClientType) else kind
        raise RpcRefused(
            Code.UNRECOGNIZED_CLIENT_TYPE,
            f"client type {name} is not served: use a producer, a push consumer or a simple"
            " consumer",
        )


def heartbeat_of(settings: Any, client_id: str, now_ms: int) -> HeartbeatData:
    """The heartbeat of a client with these settings, with the groups of which it is a member.
    Producers have the group of each topic that they send to. Raises: RpcRefused.
    """
    if settings.HasField("publishing"):
        check_count(len(settings.publishing.topics), "topics")
        topics = dict.fromkeys(topic_of(topic) for topic in settings.publishing.topics)
        return HeartbeatData(
            client_id=client_id, producer_data_set=[ProducerData(topic) for topic in topics]
        )
    if not settings.HasField("subscription"):
        raise RpcRefused(
            Code.BAD_REQUEST, "there is no publishing or subscription data in settings"
        )
    subscription = settings.subscription
    check_count(len(subscription.subscriptions), "subscriptions")
    consumer = ConsumerData(
        consume_type=CONSUMERS.get(settings.client_type, "CONSUME_PASSIVELY"),
        group_name=group_of(subscription.group),
        subscription_data_set=[subscribed(entry, now_ms) for entry in subscription.subscriptions],
    )
    return HeartbeatData(client_id=client_id, consumer_data_set=[consumer])


def with_topics_of(data: HeartbeatData, before: HeartbeatData | None) -> HeartbeatData:
    """The heartbeat by new settings of a client that had others `before`: as a producer it stays in
    the groups of all its topics, for some clients name none, and is asked about what it has sent.
    """
    producers = () if before is None else before.producer_data_set
    named = {producer.group_name for producer in data.producer_data_set}
    data.producer_data_set += [entry for entry in producers if entry.group_name not in named]
    return data


def check_count(count: int, what: str) -> None:
    """Refuse settings with more of something than is looked at. Raises: RpcRefused."""
    if count > ENTRIES_MAX:
        raise RpcRefused(Code.BAD_REQUEST, f"{count} {what}, {ENTRIES_MAX} are taken")


def subscribed(entry: Any, now_ms: int) -> SubscriptionData:
    """One subscription. Raises: RpcRefused."""
    kind, text = expression_of(entry.expression)
    return SubscriptionData(
        topic=topic_of(entry.topic), expression_type=kind, sub_string=text, sub_version=now_ms
    )


def expression_of(expression: Any) -> tuple[str, str]:
    """Kind and text of a filter expression; an empty one is for everything. Raises: RpcRefused."""
    kind = EXPRESSIONS.get(expression.type)
    text: str = expression.expression or "*"
    if kind is None:
        raise RpcRefused(
            Code.ILLEGAL_FILTER_EXPRESSION, f"filter type {expression.type} is not known"
        )
    if kind == "TAG":
        check_tags(text)
    return kind, text


def check_tags(text: str) -> None:
    """Refuse tags that are none, or too long: their hashes take a while, and nobody has shown an
    account yet. Raises: RpcRefused.
    """
    if len(text) > TAGS_CHARS_MAX:
        raise RpcRefused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"tags of {len(text)} characters, at most {TAGS_CHARS_MAX} are read",
        )
    if not names_tags(text):
        raise RpcRefused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"subString split error: {quoted(text)} names no tag, expression format is not correct",
        )
