"""Collects the state of one message from brokers and members.

The rules are in `message_history`. Brokers answer each of these requests in a bounded time, and
scans (of check points and transaction ends) have a limit.
Source: admin §4.4, §6, semantics §8 to §11, §15.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from aerobee.client.namespaces import plain
from aerobee.client.route import MASTER_ID
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.admin.brokers import ask, config_of, masters, stats_of
from aerobee.client.steps.admin.clients import MEMBER_S, SILENT_MAX, consumers, running_info
from aerobee.client.steps.admin.message_copies import (
    copies_of,
    group_topics_of,
    looked_up,
)
from aerobee.client.steps.asking import ask_broker
from aerobee.client.steps.messages import received
from aerobee.client.steps.offsets import Offsets
from aerobee.client.steps.pulling import NOTHING_THERE, pull_of_one
from aerobee.client.trace_records import records_in
from aerobee.diagnosis import CopyKind
from aerobee.errors import AerobeeError
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.body import Body
from aerobee.remoting.wire.bodies.topic import GroupList
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import QueryTopicConsumeByWho
from aerobee.remoting.wire.headers.pull import PullMessageResponse
from aerobee.store.format.system_names import (
    OP_TOPIC,
    TOOLS_GROUP,
    TRACE_TOPIC,
    TRANSACTION_GROUP,
    WHEEL_TOPIC,
)
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.admin import ConsumerConnections, RunningInfo
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.diagnosis import MessageCopy

GROUPS_MAX = 50
ACCOUNTS_MAX = 8
"""The most members of a group that are asked for their queues."""
SCANNED_MAX = 2_000
"""The most records scanned for transaction ends, and for check points of pops."""
PULL_AT_ONCE = 32
POPPED_TAGS = "ck || ack || bAck"
REFUSALS = (ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)


class PopRecord(Body, msgspec.Struct, kw_only=True):
    """A check point of a pop, or an acknowledgement of some of its messages.

    Source: semantics §11.2 (PopCheckPoint, AckMsg, BatchAckMsg).
    """

    topic: str = msgspec.field(name="t")
    group: str = msgspec.field(name="c")
    queue_id: int = msgspec.field(name="q")
    start: int = msgspec.field(name="so")
    popped_ms: int = msgspec.field(name="pt")
    hidden_ms: int = msgspec.field(name="it", default=0)
    count: int = msgspec.field(name="n", default=0)
    diffs: list[int] = msgspec.field(name="d", default_factory=list)
    acked: int = msgspec.field(name="ao", default=-1)
    all_acked: list[int] = msgspec.field(name="aol", default_factory=list)

    def hands(self, offset: int) -> bool:
        """Whether the pop delivered the message at this offset."""
        inside = offset - self.start
        return inside in self.diffs if self.diffs else 0 <= inside < self.count


@dataclass(slots=True)
class GroupView:
    """The state of a group that concerns one message."""

    name: str
    online: ConsumerConnections
    infos: list[RunningInfo] = field(default_factory=list)
    offset: int | None = None
    """The group's offset in the queue of the message."""
    wanted: bool | None = None
    """Whether the message passes the subscription's filter; None: unknown."""
    retry_offsets: dict[MessageQueue, int | None] = field(default_factory=dict)


class Progress(NamedTuple):
    """A broker's settings and runtime statistics."""

    settings: dict[str, str]
    stats: dict[str, str]


@dataclass(slots=True)
class MessageLook:
    """The collected state of a message. Brokers are given by name."""

    message_id: str
    topic: str | None
    at_ms: int
    brokers: dict[str, Progress] = field(default_factory=dict)
    copies: list[MessageCopy] = field(default_factory=list)
    groups: list[GroupView] = field(default_factory=list)
    ended: set[tuple[str, int]] = field(default_factory=set)
    """Broker and offset of half messages whose transaction has ended."""
    ends_unread: set[str] = field(default_factory=set)
    """Brokers on which transaction ends cannot be read: those before 5.0."""
    halves_done: dict[str, int] = field(default_factory=dict)
    """Broker → the offset below which all half messages are finished."""
    handed: list[tuple[str, str, PopRecord]] = field(default_factory=list)
    """Broker, tag and record of each check point or acknowledgement."""
    traces: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    silent_members: int = 0
    """So many members of all groups did not say what they hold."""

    @property
    def stored(self) -> MessageCopy | None:
        """The newest copy in its own topic."""
        copies = [copy for copy in self.copies if copy.kind is CopyKind.STORED]
        return copies[-1] if copies else None


def look_at_message(
    routes: Routes, look: MessageLook, known: Sequence[MessageCopy], topics: Sequence[str]
) -> Steps[None]:
    """Collect everything about a message; some copies may be known already.

    `topics` are further topics to search. Raises: BrokerError, BrokerNotFoundError, TransportError.
    """
    targets = yield from masters(routes)
    for target in targets:
        settings = yield from config_of(routes, target)
        # Not every broker registers its system topics, so they may have no route.
        routes.brokers.setdefault(target.name, {MASTER_ID: target.address})
        look.brokers[target.name] = Progress(settings, (yield from known_stats(routes, target)))
    groups: list[str] = []
    if look.topic is not None:
        groups = yield from groups_of(routes, targets, look.topic)
    if len(groups) > GROUPS_MAX:
        look.unknown.append(f"of {len(groups)} groups only {GROUPS_MAX} were looked at")
        groups = groups[:GROUPS_MAX]
    places = [*topics, *group_topics_of(look.topic or "", groups, routes.config.namespace)]
    copies = yield from copies_of(routes, targets, look.message_id, places)
    there = {(copy.message.queue, copy.message.queue_offset) for copy in copies}
    look.copies = copies + [
        copy for copy in known if (copy.message.queue, copy.message.queue_offset) not in there
    ]
    look.copies.sort(key=lambda copy: copy.message.stored_at)
    if look.copies:
        # The id in the case that the client wrote, which traces have, too.
        look.message_id = look.copies[-1].message.message_id
    for group in groups:
        yield from look_at_group(routes, look, group)
    yield from look_at_halves(routes, look)
    yield from look_at_pops(routes, look)
    yield from look_at_traces(routes, targets, look)


def known_stats(routes: Routes, target: Broker) -> Steps[dict[str, str]]:
    """A broker's statistics; empty for a Java broker that has none just after its start."""
    try:
        return (yield from stats_of(routes, target))
    except AerobeeError:
        return {}


def groups_of(routes: Routes, targets: Sequence[Broker], topic: str) -> Steps[list[str]]:
    """The groups that consume a topic or have offsets of it, sorted."""
    groups: set[str] = set()
    for target in targets:
        answered = yield from ask(
            routes, target, QueryTopicConsumeByWho(topic=topic), accept=REFUSALS
        )
        if answered.answer.code == ResponseCode.SUCCESS:
            groups |= set(answered.body(GroupList).group_list)
    return sorted(groups)


# ── Groups ──


def look_at_group(routes: Routes, look: MessageLook, group: str) -> Steps[None]:
    """Query the offset and subscription of a group, and the queues of its members."""
    view = GroupView(group, (yield from consumers(routes, group)))
    look.groups.append(view)
    offsets = Offsets(routes, group)
    for copy in look.copies:
        if copy.kind is CopyKind.RETRY and copy.group == group:
            queue = copy.message.queue
            if queue.topic.startswith("%") and queue not in view.retry_offsets:
                view.retry_offsets[queue] = yield from committed(offsets, queue)
    stored = look.stored
    if stored is None:
        return
    view.offset = yield from committed(offsets, stored.message.queue)
    for subscription in view.online.subscriptions:
        if subscription.topic == stored.message.topic:
            kind, text = subscription.expression_type, subscription.expression
            view.wanted = yield from is_wanted(routes, stored.message, text, kind)
    for member in view.online.members[:ACCOUNTS_MAX]:
        if look.silent_members >= SILENT_MAX:
            look.unknown.append(f"{member.client_id} was not asked what it holds")
            continue
        try:
            info = yield from running_info(routes, group, member.client_id, within_s=MEMBER_S)
            view.infos.append(info)
        except AerobeeError as error:
            look.silent_members += 1
            look.unknown.append(f"{member.client_id} did not say what it holds: {error}")


def committed(offsets: Offsets, queue: MessageQueue) -> Steps[int | None]:
    """The offset of a group in a queue; None if the broker refuses the request."""
    try:
        return (yield from offsets.committed(queue, zero=False))
    except AerobeeError:
        return None


def is_wanted(
    routes: Routes, message: ReceivedMessage, expression: str, kind: str
) -> Steps[bool | None]:
    """Whether a message passes the broker's filter of the group; None if it is unknown."""
    header = pull_of_one(TOOLS_GROUP, message.queue, message.queue_offset, expression, kind)
    try:
        _, answer = yield from ask_broker(routes, message.queue, header)
    except AerobeeError:
        return None
    if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return False
    if answer.code != ResponseCode.SUCCESS:
        return None
    for there in received(answer.body, message.queue.broker_name, routes.config.namespace):
        # Brokers compare hashes of tags.
        tags = {part.strip() for part in expression.split("||")} - {"", "*"}
        same = there.queue_offset == message.queue_offset
        return same and (kind != "TAG" or not tags or there.tag in tags)
    return False


# ── Transactions, pops, traces ──


def look_at_halves(routes: Routes, look: MessageLook) -> Steps[None]:
    """Query which half messages of it have ended."""
    halves = [copy.message for copy in look.copies if copy.kind is CopyKind.HALF]
    for half in halves[:1]:
        broker = half.queue.broker_name
        done = yield from committed(Offsets(routes, TRANSACTION_GROUP), half.queue)
        look.halves_done[broker] = done or 0
        ends = MessageQueue(OP_TOPIC, broker, half.queue.queue_id)
        begin_ms = int(half.stored_at.timestamp() * 1000)
        read = yield from scanned(routes, look, ends, "*", begin_ms)
        if read is None:
            look.ends_unread.add(broker)
        for end in read or ():
            pieces = end.body.decode(errors="replace").split(",")
            offsets = (whole_number(piece.strip()) for piece in pieces)
            look.ended |= {(broker, offset) for offset in offsets if offset is not None}


def look_at_pops(routes: Routes, look: MessageLook) -> Steps[None]:
    """Query the pops that delivered it and wait for acknowledgements."""
    stored = look.stored
    if stored is None:
        return
    message = stored.message
    wheel = MessageQueue(WHEEL_TOPIC, message.queue.broker_name, 0)
    begin_ms = int(message.stored_at.timestamp() * 1000)
    for popped in (yield from scanned(routes, look, wheel, POPPED_TAGS, begin_ms)) or ():
        try:
            record = PopRecord.from_bytes(popped.body)
        except BodyError:
            continue
        record.topic = plain(record.topic, routes.config.namespace)
        record.group = plain(record.group, routes.config.namespace)
        if (record.topic, record.queue_id) == (message.topic, message.queue.queue_id):
            look.handed.append((wheel.broker_name, popped.tag or "", record))


def scanned(
    routes: Routes, look: MessageLook, queue: MessageQueue, tags: str, begin_ms: int
) -> Steps[list[ReceivedMessage] | None]:
    """The newest records of a queue with these tags, since a time; None if it cannot be read."""
    offsets = Offsets(routes, TOOLS_GROUP)
    try:
        begin = yield from offsets.at_ms(queue, begin_ms)
        end = yield from offsets.end(queue)
        if end - begin > SCANNED_MAX:
            look.unknown.append(f"of {end - begin} records in {queue} the last {SCANNED_MAX} count")
            begin = end - SCANNED_MAX
        messages: list[ReceivedMessage] = []
        while begin < end:
            pull = replace(pull_of_one(TOOLS_GROUP, queue, begin, tags), max_msg_nums=PULL_AT_ONCE)
            _, answer = yield from ask_broker(routes, queue, pull)
            if answer.code == ResponseCode.SUCCESS:
                messages += received(answer.body, queue.broker_name, routes.config.namespace)
            elif answer.code not in NOTHING_THERE:
                return None
            elif answer.code == ResponseCode.PULL_NOT_FOUND:
                break
            following = answer.header(PullMessageResponse).next_begin_offset
            begin = max(begin + 1, following)
    except AerobeeError:
        return None
    return messages


def look_at_traces(routes: Routes, targets: Sequence[Broker], look: MessageLook) -> Steps[None]:
    """Query the message trace, if clients wrote one."""
    for copy in (
        yield from looked_up(routes, targets, look.message_id, [TRACE_TOPIC], unique=False)
    ):
        for kind, fields in records_in(copy.message.body):
            if look.message_id in fields.get("msgId", "").split(","):
                look.traces.append((kind, fields))
