"""Queries of messages by id, key, offset and time, and of the units of consume queues.

Source: admin §3 (queryMsgById, queryMsgByKey, queryMsgByOffset, printMsg, queryCq), client §13.2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aerobee.admin import QueueUnit, QueueUnits
from aerobee.client.settings.client import epoch_ms
from aerobee.client.steps.admin.brokers import Broker, ask, cluster_info, readers_of
from aerobee.client.steps.admin.clients import subscriptions
from aerobee.client.steps.answers import error_of, expect, header_of
from aerobee.client.steps.asking import ask_broker
from aerobee.client.steps.messages import host_text, received
from aerobee.client.steps.offsets import Offsets
from aerobee.client.steps.pulling import NOTHING_THERE, pull_of_one
from aerobee.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    MessageNotFoundError,
    PermissionDeniedError,
    TransportError,
)
from aerobee.remoting.wire.bodies import queue as units_body
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import QueryConsumeQueue
from aerobee.remoting.wire.headers.pull import PullMessageResponse
from aerobee.remoting.wire.headers.query import QueryMessage, ViewMessageById
from aerobee.store.format.message_id import read_offset_id
from aerobee.store.format.record import RecordDamaged, read
from aerobee.store.format.system_names import TOOLS_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.errors import AerobeeError
    from aerobee.remoting.wire.bodies.client import SubscriptionData

QUERY_WITHIN_S = 15.0
"""The timeout of queries by key: an index that is not cached is slow."""
ALWAYS_MS = 2**63 - 1
ALL_TAGS = ("*", "")
TAG_TYPES = ("TAG", "", None)
PULL_AT_ONCE = 32


# ── By id and key ──


def view_message(
    routes: Routes, message_id: str, topic: str | None = None
) -> Steps[ReceivedMessage]:
    """The message with an id, either a client's message id or an offset message id.

    For a client's message id `topic` must be given. An offset message id names a broker by the
    address that it had; any broker that has this record now answers. Raises:
    MessageNotFoundError, ConfigurationError, BrokerError, TransportError.
    """
    message = yield from by_place(routes, message_id)
    if message is not None and topic in (None, message.topic):
        return message
    if topic is None:
        raise ConfigurationError(
            f"no broker here has a message at {message_id}; if a client called it so, "
            "name its topic, too"
        )
    named = yield from look_up(routes, topic, message_id, unique=True)
    if not named:
        raise MessageNotFoundError(f"topic {topic} has no message {message_id}").about(topic=topic)
    return named[0]


def by_place(routes: Routes, message_id: str) -> Steps[ReceivedMessage | None]:
    """The message of an offset message id; None if the id is of the other kind."""
    message = yield from stored_at(routes, message_id)
    if message is None:
        return None
    return next(received(message[1], message[0], routes.config.namespace), None)


def stored_at(routes: Routes, message_id: str) -> Steps[tuple[str, bytes | memoryview] | None]:
    """Broker and stored record of an offset message id; None if no broker has it, or if the id is
    of the other kind.

    The broker at the address in the id is the first to be asked. The others follow, for a broker
    may be known here by another address than its own, or have had another one at that time. Only
    registered brokers are asked, because an id may contain any address.
    Raises: the error of a broker that does not tell, where no other has the message.
    """
    try:
        host, offset = read_offset_id(message_id)
    except ValueError:
        return None
    address = host_text(host)
    info = yield from cluster_info(routes)
    silent: AerobeeError | None = None
    for broker in sorted(info.brokers, key=lambda known: known.address != address):
        target = Broker(broker.name, broker.address)
        try:
            answered = yield from ask(routes, target, ViewMessageById(offset=offset))
        except (TransportError, PermissionDeniedError) as error:
            silent = silent or error
        except BrokerError:
            continue
        else:
            if _is_at(answered.answer.body, host, offset):
                return broker.name, answered.answer.body
    if silent is not None:
        raise silent
    return None


def _is_at(body: bytes | memoryview, host: bytes, offset: int) -> bool:
    """Whether this is the record that a broker stored at an offset, as this host."""
    try:
        record = read(memoryview(body))
    except RecordDamaged:
        return False
    return (record.store_host, record.physical_offset) == (host, offset)


def query_messages(
    routes: Routes,
    topic: str,
    key: str,
    *,
    max_messages: int = 32,
    begin: datetime | None = None,
    end: datetime | None = None,
    max_bytes: int | None = None,
) -> Steps[list[ReceivedMessage]]:
    """The newest messages with a key, oldest first, stored between `begin` and `end`.

    `max_bytes`: of their bodies; the newest message is there in any case.
    Raises: RouteNotFoundError, ConfigurationError, BrokerError, TransportError.
    """
    if not key.strip():
        raise ConfigurationError("a key to look for is not empty")
    messages = yield from look_up(
        routes,
        topic,
        key,
        most=max_messages,
        begin_ms=0 if begin is None else epoch_ms(begin),
        end_ms=ALWAYS_MS if end is None else epoch_ms(end),
    )
    newest = within(reversed(messages[-max_messages:]), max_bytes)
    return newest[::-1]


def look_up(
    routes: Routes,
    topic: str,
    key: str,
    *,
    unique: bool = False,
    most: int = PULL_AT_ONCE,
    begin_ms: int = 0,
    end_ms: int = ALWAYS_MS,
) -> Steps[list[ReceivedMessage]]:
    """The messages of a topic with a key on all its brokers, oldest first, each once.

    The index stores hashes, so the key of each message is compared again.
    """
    header = QueryMessage(
        topic=topic,
        key=key,
        max_num=most,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key=True if unique else None,
    )
    messages: dict[tuple[MessageQueue, int], ReceivedMessage] = {}
    for target in (yield from readers_of(routes, topic)):
        answered = yield from ask(
            routes,
            target,
            header,
            within_s=QUERY_WITHIN_S,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if answered.answer.code == ResponseCode.SUCCESS:
            records = received(answered.answer.body, target.name, routes.config.namespace)
            for message in records:
                if message.topic == topic and has_key(message, key, unique):
                    messages[message.queue, message.queue_offset] = message
    return sorted(messages.values(), key=log_order)


def log_order(message: ReceivedMessage) -> tuple[datetime, int, str]:
    """The sort key: store time, then offset in the log; no two messages have the same."""
    return message.stored_at, message.commit_log_offset, message.queue.broker_name


def has_key(message: ReceivedMessage, key: str, unique: bool) -> bool:
    """Whether a message has the key; ids are compared case-insensitively."""
    return message.message_id.upper() == key.upper() if unique else key in message.keys


# ── By offset and time ──


def message_at(routes: Routes, queue: MessageQueue, offset: int) -> Steps[ReceivedMessage]:
    """The message at an offset of a queue.

    Raises: MessageNotFoundError, RouteNotFoundError, BrokerError, TransportError.
    """
    _, messages = yield from pulled(routes, queue, offset, 1, "*")
    if not messages or messages[0].queue_offset != offset:
        raise MessageNotFoundError(f"{queue} has no message at {offset}").about(
            topic=queue.topic, broker=queue.broker_name
        )
    return messages[0]


def read_messages(
    routes: Routes,
    queue: MessageQueue,
    offset: int,
    *,
    max_messages: int = 32,
    tag: str = "*",
    before: datetime | None = None,
    after: ReceivedMessage | None = None,
    max_bytes: int | None = None,
) -> Steps[list[ReceivedMessage]]:
    """Messages of a queue from an offset on, stored before `before`; commits nothing.

    `after`: only those behind this message, by store time and offset in the log. `max_bytes`: of
    their bodies; the first message is there in any case.
    Raises: RouteNotFoundError, BrokerError, TransportError.
    """
    collected: list[ReceivedMessage] = []
    room = math.inf if max_bytes is None else max_bytes
    while len(collected) < max_messages:
        most = min(PULL_AT_ONCE, max_messages - len(collected))
        following, messages = yield from pulled(routes, queue, offset, most, tag)
        if after is not None:
            behind = log_order(after)
            messages = [message for message in messages if log_order(message) > behind]
        wanted = within(messages, room, before, first_anyway=not collected)
        collected += wanted
        if len(wanted) < len(messages) or following is None or following <= offset:
            break
        room -= sum(len(message.body) for message in wanted)
        offset = following
    return collected


def find_messages(
    routes: Routes,
    topic: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    tag: str = "*",
    after: ReceivedMessage | None = None,
    max_messages: int = 32,
    max_bytes: int | None = None,
) -> Steps[list[ReceivedMessage]]:
    """The first messages of a topic stored from `begin` on and before `end`, by store time.

    `after`: the last message of those that were found before; these go on behind it. `max_bytes`:
    of their bodies; the first message is there in any case.
    Raises: RouteNotFoundError, BrokerError, TransportError.
    """
    route = yield from routes.fetch_route(topic, routes.config.request_timeout)
    offsets = Offsets(routes, TOOLS_GROUP)
    messages: list[ReceivedMessage] = []
    if after is not None and (begin is None or begin < after.stored_at):
        begin = after.stored_at
    for queue in route.readable:
        at = offsets.lowest(queue) if begin is None else offsets.at_time(queue, begin)
        offset = yield from at
        of_queue = yield from read_messages(
            routes,
            queue,
            offset,
            max_messages=max_messages,
            tag=tag,
            before=end,
            after=after,
            max_bytes=max_bytes,
        )
        # No more of them stay in memory than are wanted, however many queues there are.
        messages = sorted([*messages, *of_queue], key=log_order)[:max_messages]
        messages = within(messages, max_bytes)
    return messages


def within(
    messages: Iterable[ReceivedMessage],
    max_bytes: float | None,
    before: datetime | None = None,
    *,
    first_anyway: bool = True,
) -> list[ReceivedMessage]:
    """The first messages stored before `before` whose bodies have no more bytes together; with
    `first_anyway` the first of them whatever its size is.
    """
    room = math.inf if max_bytes is None else max_bytes
    kept: list[ReceivedMessage] = []
    for message in messages:
        room -= len(message.body)
        late = before is not None and message.stored_at >= before
        if late or (room < 0 and (kept or not first_anyway)):
            break
        kept.append(message)
    return kept


def pulled(
    routes: Routes, queue: MessageQueue, offset: int, most: int, tag: str
) -> Steps[tuple[int | None, list[ReceivedMessage]]]:
    """Pull once; returns the next offset (None at the end), and the messages."""
    header = replace(pull_of_one(TOOLS_GROUP, queue, offset, tag), max_msg_nums=most)
    request, answer = yield from ask_broker(routes, queue, header)
    if answer.code == ResponseCode.PULL_NOT_FOUND:
        return None, []
    if answer.code not in NOTHING_THERE:
        expect(request, answer, queue.broker_name)
    following = header_of(request, answer, PullMessageResponse).next_begin_offset
    if answer.code != ResponseCode.SUCCESS:
        return following, []
    wanted = {part.strip() for part in tag.split("||")} - {"", "*"}
    messages = [
        message
        for message in received(answer.body, queue.broker_name, routes.config.namespace)
        if not wanted or message.tag in wanted
    ]
    return following, messages


# ── Consume queues ──


def queue_units(
    routes: Routes, queue: MessageQueue, offset: int, *, count: int = 10, group: str | None = None
) -> Steps[QueueUnits]:
    """Up to `count` units of a consume queue from an offset on, as the broker stores them.

    `group`: whose subscription they are compared with. Raises: RouteNotFoundError,
    BrokerNotFoundError, BrokerError for an offset outside of the queue, TransportError.
    """
    targets = yield from readers_of(routes, queue.topic)
    target = next((target for target in targets if target.name == queue.broker_name), None)
    if target is None:
        text = f"topic {queue.topic} has no queues on broker {queue.broker_name}"
        raise BrokerNotFoundError(text).about(topic=queue.topic, broker=queue.broker_name)
    header = QueryConsumeQueue(
        topic=queue.topic,
        queue_id=queue.queue_id,
        index=offset,
        count=count,
        consumer_group=group,
    )
    answered = yield from ask(routes, target, header)
    if not answered.answer.body:
        # Java answers an offset outside of the queue with success and a remark.
        raise error_of(answered.ask, answered.answer, answered.peer)
    units = answered.body(units_body.QueueUnits)
    subscription = units.subscription_data
    return QueueUnits(
        queue=queue,
        first=units.min_queue_index,
        end=units.max_queue_index,
        units=[
            QueueUnit(
                queue_offset=queue_offset,
                physical_offset=unit.physic_offset,
                size=unit.physic_size,
                tags_code=unit.tags_code,
                matches=matches(subscription, unit.tags_code),
            )
            for queue_offset, unit in enumerate(units.queue_data, offset)
        ],
        subscription=None if subscription is None else subscriptions([subscription])[0],
    )


def matches(subscription: SubscriptionData | None, tags_code: int) -> bool | None:
    """Whether a subscription by tags accepts a tags code; None for another kind.

    `eval` in the response says so of Aerobee's brokers only: Java's set it to false for units
    without an extension.
    """
    if subscription is None or subscription.sub_string in ALL_TAGS:
        return True
    if subscription.expression_type not in TAG_TYPES:
        return None
    return tags_code in subscription.code_set
