"""Finds all stored records of one message by the index.

A message keeps its UNIQ_KEY when it is delayed, timed, retried or a dead letter, and each record is
indexed under its current topic: so every such topic is queried. Source: semantics §7 to §11,
store format §7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.namespaces import plain, wrapped
from aerobee.client.steps.admin.brokers import Broker, ask
from aerobee.client.steps.admin.messages import (
    ALWAYS_MS,
    QUERY_WITHIN_S,
    has_key,
    log_order,
    stored_at,
)
from aerobee.client.steps.messages import received
from aerobee.diagnosis import CopyKind, MessageCopy
from aerobee.errors import TransportError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.query import QueryMessage
from aerobee.store.format.record import RecordDamaged, records
from aerobee.store.format.system_names import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    WHEEL_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

WAITING_TOPICS = (SCHEDULE_TOPIC, WHEEL_TOPIC, HALF_TOPIC, GIVEN_UP_TOPIC)
"""The topics in which brokers keep messages that are not delivered to their topic yet."""
MOST = 32
NOTHING_THERE = (
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
)
REAL_TOPIC, DELETES = "REAL_TOPIC", "TIMER_DEL_UNIQKEY"


def group_topics_of(topic: str, groups: Iterable[str], namespace: str | None) -> list[str]:
    """The retry and dead-letter topics of these groups, including POP retry topics."""
    within = wrapped(topic, namespace)
    return [
        name
        for group in groups
        for name in (
            f"{RETRY_PREFIX}{group}",
            f"{DLQ_PREFIX}{group}",
            f"{RETRY_PREFIX}{group}_{within}",
            f"{RETRY_PREFIX}{group}+{within}",
        )
    ]


def own_topic(message: ReceivedMessage, namespace: str | None) -> str:
    """The topic to which a copy was sent originally."""
    properties = message.properties
    for name in ("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"):
        if name in properties:
            return plain(properties[name], namespace)
    if message.topic not in WAITING_TOPICS:
        return message.topic
    return plain(properties.get(REAL_TOPIC, message.topic), namespace)


def copies_of(
    routes: Routes, targets: Sequence[Broker], message_id: str, topics: Iterable[str]
) -> Steps[list[MessageCopy]]:
    """The copies with this id in some topics, in the order of the log.

    Raises: BrokerError, TransportError.
    """
    topics = list(topics)
    copies = yield from looked_up(routes, targets, message_id, topics, unique=True)
    if not copies and message_id != message_id.upper():
        # Clients write ids in upper case, and the index is case-sensitive.
        copies = yield from looked_up(routes, targets, message_id.upper(), topics, unique=True)
    return copies


def copy_at_place(routes: Routes, message_id: str) -> Steps[MessageCopy | None]:
    """The copy at the physical offset in an id; None if the id has none."""
    answer = yield from stored_at(routes, message_id)
    return (
        None
        if answer is None
        else next(copies_in(answer[1], answer[0], routes.config.namespace), None)
    )


def copies_with_key(
    routes: Routes, targets: Sequence[Broker], topic: str, key: str
) -> Steps[list[MessageCopy]]:
    """The newest copies with this key in a topic, including messages not delivered to it yet."""
    copies = yield from looked_up(routes, targets, key, (topic, *WAITING_TOPICS), unique=False)
    return [copy for copy in copies if own_topic(copy.message, routes.config.namespace) == topic]


def looked_up(
    routes: Routes, targets: Sequence[Broker], key: str, topics: Iterable[str], *, unique: bool
) -> Steps[list[MessageCopy]]:
    """The records found by the indexes of these brokers."""
    copies: dict[tuple[MessageQueue, int], MessageCopy] = {}
    for topic in dict.fromkeys(topics):
        header = QueryMessage(
            topic=topic,
            key=key,
            max_num=MOST,
            begin_timestamp=0,
            end_timestamp=ALWAYS_MS,
            unique_key=True if unique else None,
        )
        for target in targets:
            answered = yield from ask(
                routes, target, header, within_s=QUERY_WITHIN_S, accept=NOTHING_THERE
            )
            if answered.answer.code != ResponseCode.SUCCESS:
                continue
            for copy in copies_in(answered.answer.body, target.name, routes.config.namespace):
                message = copy.message
                if message.topic == topic and has_key(message, key, unique):
                    copies[message.queue, message.queue_offset] = copy
    return sorted(copies.values(), key=lambda copy: log_order(copy.message))


def copies_in(
    body: bytes | memoryview, broker: str, namespace: str | None
) -> Iterator[MessageCopy]:
    """The copies in a response."""
    messages = received(body, broker, namespace)
    try:
        for record, message in zip(records([body]), messages, strict=True):
            kind, group = kind_of(message, namespace)
            yield MessageCopy(
                kind=kind,
                message=message,
                size_bytes=record.size,
                sys_flag=record.sys_flag,
                group=group,
            )
    except RecordDamaged as error:
        text = f"broker {broker} sent a broken record: {error}"
        raise TransportError(text).about(broker=broker) from error


def kind_of(message: ReceivedMessage, namespace: str | None) -> tuple[CopyKind, str | None]:
    """The kind of a copy, and the group if it is a retry or dead letter."""
    topic = message.topic
    target = plain(message.properties.get(REAL_TOPIC, ""), namespace)
    if topic == HALF_TOPIC:
        return CopyKind.HALF, None
    if topic == GIVEN_UP_TOPIC:
        return CopyKind.GIVEN_UP, None
    if topic == WHEEL_TOPIC:
        return (CopyKind.RECALL if DELETES in message.properties else CopyKind.TIMED), None
    place = target if topic == SCHEDULE_TOPIC else topic
    if place.startswith(DLQ_PREFIX):
        return CopyKind.DEAD, place.removeprefix(DLQ_PREFIX)
    if place.startswith(RETRY_PREFIX):
        return CopyKind.RETRY, retried_by(message, place.removeprefix(RETRY_PREFIX), namespace)
    return (CopyKind.DELAYED if topic == SCHEDULE_TOPIC else CopyKind.STORED), None


def retried_by(message: ReceivedMessage, name: str, namespace: str | None) -> str:
    """The group of a retry topic; the name of a POP retry topic ends with the topic."""
    group = message.properties.get("ORIGIN_GROUP")
    if group:
        return plain(group, namespace)
    own = message.properties.get("RETRY_TOPIC", "")
    for sign in "_+":
        if own and name.endswith(f"{sign}{own}"):
            return name.removesuffix(f"{sign}{own}")
    return name
