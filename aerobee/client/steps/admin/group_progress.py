"""The progress of one message in one consumer group, from the collected state. Pure.

Source: semantics §3 (offsets), §7 (retries and dead letters), §11.2 (check points).
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.topics import instant
from aerobee.counted import counted
from aerobee.diagnosis import CopyKind, GroupProgress, GroupState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from aerobee.admin import RunningQueue
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.steps.admin.message_look import GroupView, MessageLook, PopRecord
    from aerobee.diagnosis import MessageCopy

CHECK_POINT = "ck"
BROADCASTING = "BROADCASTING"
Verdict = tuple[GroupState, str, "datetime | None"]


def progress_of(look: MessageLook, view: GroupView) -> GroupProgress:
    """The progress, from the first rule that applies."""
    state, text, until = next(verdicts(look, view))
    own = [copy for copy in look.copies if copy.group == view.name]
    expressions = [
        subscription.expression
        for subscription in view.online.subscriptions
        if look.stored is not None and subscription.topic == look.stored.message.topic
    ]
    return GroupProgress(
        group=view.name,
        state=state,
        text=text,
        consumer_offset=view.offset,
        expression=next(iter(expressions), None),
        tries=max((copy.message.reconsume_times for copy in own), default=0),
        until=until,
    )


def verdicts(look: MessageLook, view: GroupView) -> Iterator[Verdict]:
    """The verdicts of all rules, the most specific first."""
    yield from given_up(look, view)
    yield from retried(look, view)
    stored = look.stored
    if stored is None:
        yield GroupState.NOT_REACHED, "it is not in the topic, so the group has not seen it", None
        return
    yield from popped(look, view, stored.message)
    yield from by_offset(view, stored.message)


def given_up(look: MessageLook, view: GroupView) -> Iterator[Verdict]:
    """The message is a dead letter."""
    dead = [copy for copy in copies_of(look, view) if copy.kind is CopyKind.DEAD]
    if dead:
        last = dead[-1].message
        text = (
            f"given up after {last.reconsume_times} tries: a dead letter at "
            f"{last.queue}@{last.queue_offset} (aerobee dlq redrive {quote(view.name)})"
        )
        yield GroupState.DEAD, text, None


def retried(look: MessageLook, view: GroupView) -> Iterator[Verdict]:
    """The message failed, and will be delivered again."""
    retries = [copy for copy in copies_of(look, view) if copy.kind is CopyKind.RETRY]
    if not retries:
        return
    last = max(retries, key=lambda copy: (copy.message.reconsume_times, not copy.waits))
    number = last.message.reconsume_times
    if last.waits:
        text = f"failed {number} times; it waits to be tried again"
        yield GroupState.RETRYING, text, last.due_at
        return
    landed = [retry for retry in retries if retry.message.queue in view.retry_offsets]
    for newest in landed[-1:]:
        place = f"{newest.message.queue}@{newest.message.queue_offset}"
        offset = view.retry_offsets[newest.message.queue]
        if offset is None or offset <= newest.message.queue_offset:
            text = f"failed {number} times; the next try lies at {place} and is not done"
            yield GroupState.RETRYING, text, None
        else:
            yield GroupState.PASSED, f"consumed at try {number} after the first, at {place}", None


def copies_of(look: MessageLook, view: GroupView) -> list[MessageCopy]:
    """The copies in the group's retry and dead-letter topics."""
    return [copy for copy in look.copies if copy.group == view.name]


# ── POP ──


def popped(look: MessageLook, view: GroupView, message: ReceivedMessage) -> Iterator[Verdict]:
    """The message was popped: a check point says until when it is invisible."""
    points = [
        record
        for broker, tag, record in look.handed
        if tag == CHECK_POINT
        and (broker, record.group) == (message.queue.broker_name, view.name)
        and record.hands(message.queue_offset)
    ]
    if not points:
        return
    last = max(points, key=lambda point: point.popped_ms)
    if any(acknowledges(record, last, message.queue_offset) for _, _, record in look.handed):
        yield GroupState.PASSED, "popped and acknowledged", None
    due_ms = last.popped_ms + last.hidden_ms
    if due_ms > look.at_ms:
        text = "popped and not acknowledged: nobody else sees it until its time is over"
        yield GroupState.INVISIBLE, text, instant(due_ms)


def acknowledges(ack: PopRecord, point: PopRecord, offset: int) -> bool:
    """Whether a record acknowledges the message of a check point."""
    same = (ack.group, ack.start, ack.popped_ms) == (point.group, point.start, point.popped_ms)
    return same and ack is not point and (ack.acked == offset or offset in ack.all_acked)


# ── Offsets ──


def by_offset(view: GroupView, message: ReceivedMessage) -> Iterator[Verdict]:
    """The message compared with the group's offset in its queue."""
    place, offset = message.queue_offset, view.offset
    if view.online.message_model == BROADCASTING:
        text = "the group broadcasts: each member keeps its own offset, and brokers do not know it"
        yield GroupState.UNKNOWN, text, None
    if view.wanted is False:
        when = "was passed over" if offset is not None and offset > place else "will be passed over"
        text = f"it {when}: the subscription does not want a message with tag {message.tag or '-'}"
        yield GroupState.FILTERED, text, None
    if offset is not None and offset > place:
        text = f"passed: the group is at {offset}"
        if view.wanted is None:
            text += "; what it subscribed to then is not known"
        yield GroupState.PASSED, text, None
    for info in view.infos:
        if any(holds(queue, message) for queue in info.queues):
            yield GroupState.IN_FLIGHT, f"in the hands of {info.client_id}, not done yet", None
    who = (
        "nobody is online"
        if not view.online.members
        else counted(len(view.online.members), "member")
    )
    if offset is None:
        text = f"the group has no offset in this queue: it has not begun there ({who})"
    else:
        before = counted(place - offset, "message is", "messages are")
        text = f"not reached yet: {before} before it ({who})"
    yield GroupState.NOT_REACHED, text, None


def holds(queue: RunningQueue, message: ReceivedMessage) -> bool:
    """Whether a member has pulled the message and not finished it."""
    inside = queue.cached_first <= message.queue_offset <= queue.cached_last
    return queue.queue == message.queue and bool(queue.cached_messages) and inside
