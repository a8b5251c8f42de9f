"""The history of a message, from the collected state. Pure.

Source: semantics §7 (retries), §8 (delays), §9 (timers), §10 (transactions), §11 (POP).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aerobee.client.steps.admin.group_progress import progress_of
from aerobee.client.steps.admin.topics import instant
from aerobee.client.steps.messages import host_text, month_of
from aerobee.diagnosis import CopyKind, MessageHistory, TraceRecord
from aerobee.store.format.message_id import read_offset_id, read_uniq_id
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.unit import DelayLevels
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.client.steps.admin.message_look import MessageLook
    from aerobee.diagnosis import MessageCopy

NUMBERS = ("AEROBEE_HALF_OFFSET", "TRAN_PREPARED_QUEUE_OFFSET")
"""Properties with the original offset of a half message."""
EARLIEST, INDEXED, LEVELS = "earliestMessageTimeStamp", "messageIndexEnable", "messageDelayLevel"
NOTHING_TRACED = "no client traced it: who handled it and how long that took is not known"
HANDLED = (
    "brokers know how far a group is, not what a handler did: passed means consumed, skipped by a "
    "reset of offsets, or left out by a consumer"
)
BUFFERED = "check points that a broker still has in memory, and pops in order, are not seen"


def history_of(look: MessageLook) -> MessageHistory:
    """The history: verdict, copies, groups and trace."""
    copies = look.copies = [dated(look, copy) for copy in look.copies]
    unknown = list(look.unknown)
    if look.groups:
        unknown += [HANDLED, BUFFERED]
    if not look.traces:
        unknown.append(NOTHING_TRACED)
    return MessageHistory(
        message_id=look.message_id,
        topic=look.topic,
        found=bool(copies),
        text=verdict(look) if copies else absent(look),
        copies=copies,
        groups=[progress_of(look, view) for view in look.groups],
        traces=sorted(
            (trace_of(kind, record) for kind, record in look.traces),
            key=lambda record: record.at or datetime.min.replace(tzinfo=UTC),
        ),
        unknown=unknown,
    )


# ── Messages with copies ──


def verdict(look: MessageLook) -> str:
    """The location of a message with copies, as a sentence."""
    for judge in (in_topic, in_wheel, in_levels, in_transaction):
        for text in judge(look):
            return text
    last = look.copies[-1]
    whose = f" of group {last.group}" if last.group else ""
    return (
        f"the message itself is not stored any more, clean-up has taken it; what is left is "
        f"{'a retry' if last.kind is CopyKind.RETRY else 'a dead letter'}{whose}"
    )


def of_kind(look: MessageLook, kind: CopyKind) -> list[MessageCopy]:
    """The copies of one kind, oldest first."""
    return [copy for copy in look.copies if copy.kind is kind]


def in_topic(look: MessageLook) -> Iterator[str]:
    """The message is in its topic."""
    stored = of_kind(look, CopyKind.STORED)
    if not stored:
        return
    last = stored[-1].message
    text = f"stored in {last.queue}@{last.queue_offset}"
    if "TIMER_OUT_MS" in last.properties:
        text += ", delivered by a timer"
    elif last.properties.get("REAL_TOPIC") and "DELAY" in last.properties:
        text += ", delivered after its delay"
    if last.properties.get("TRAN_MSG") == "true":
        text += ", its transaction was committed"
    if len(stored) > 1:
        text += f"; {len(stored)} times: a send was repeated, or it was replayed"
    yield text


def in_wheel(look: MessageLook) -> Iterator[str]:
    """The message has a timer that is not due yet, or it was recalled."""
    timed = of_kind(look, CopyKind.TIMED)
    if not timed:
        return
    if of_kind(look, CopyKind.RECALL):
        yield "taken back by its producer before its time: it is not delivered"
    elif timed[-1].waits:
        yield f"waits for its time, {told(timed[-1].due_at)}, in {timed[-1].message.queue.topic}"
    else:
        yield (
            f"its time was {told(timed[-1].due_at)}, and its topic does not have it: clean-up has "
            "taken it since, or it is about to be delivered"
        )


def in_levels(look: MessageLook) -> Iterator[str]:
    """The message has a delay level."""
    delayed = of_kind(look, CopyKind.DELAYED)
    if not delayed:
        return
    last = delayed[-1]
    level = last.message.properties.get("DELAY", "?")
    if last.waits:
        yield f"delayed by level {level} until {told(last.due_at)}, in {SCHEDULE_TOPIC}"
    else:
        yield (
            f"its delay of level {level} was over at {told(last.due_at)}, and its topic does not "
            "have it: clean-up has taken it since"
        )


def in_transaction(look: MessageLook) -> Iterator[str]:
    """The message is the half message of a transaction."""
    halves = of_kind(look, CopyKind.HALF)
    given_up = of_kind(look, CopyKind.GIVEN_UP)
    if given_up:
        yield (
            "half of a transaction that nobody ended: it was given up after the last check and "
            f"lies in {given_up[-1].message.queue}@{given_up[-1].message.queue_offset}"
        )
    elif halves:
        last = halves[-1].message
        checks = last.properties.get("TRANSACTION_CHECK_TIMES", "0")
        if any(has_ended(look, half) for half in halves):
            yield "half of a transaction that was rolled back: it is not delivered"
        elif last.queue_offset < look.halves_done.get(last.queue.broker_name, 0):
            yield "half of a transaction that has ended, and how cannot be told any more"
        elif last.queue.broker_name in look.ends_unread:
            yield (
                "half of a transaction: whether it is open or was rolled back cannot be told, "
                f"since {last.queue.broker_name} does not let ends of transactions be read"
            )
        else:
            yield (
                "half of a transaction that is open: consumers do not see it, and its producer "
                f"group {last.properties.get('PGROUP')} was asked {checks} times what became of it"
            )


def has_ended(look: MessageLook, half: MessageCopy) -> bool:
    """Whether a transaction end names this half message, by its offset or its first copy's."""
    message = half.message
    offsets = {
        message.queue_offset,
        *(whole_number(message.properties.get(name, "")) for name in NUMBERS),
    }
    return any((message.queue.broker_name, offset) in look.ended for offset in offsets)


def told(at: datetime | None) -> str:
    """A time as text."""
    return "a time that is not known" if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"


# ── Messages without copies ──


def absent(look: MessageLook) -> str:
    """The possible reasons why no broker has a copy of a message."""
    text = "no broker has a message of this id"
    if place := place_in(look.message_id):
        return f"{text}, which is {place}: clean-up has taken it, or another cluster has it"
    without_index = [
        name for name, broker in look.brokers.items() if broker.settings.get(INDEXED) == "false"
    ]
    if without_index:
        return f"{text}, and {', '.join(without_index)} keeps no index to find one by ({INDEXED})"
    times = [broker.stats.get(EARLIEST, "") for broker in look.brokers.values()]
    oldest_ms = min(filter(None, map(whole_number, times)), default=0)
    born_ms = born(look.message_id, look.at_ms)
    if born_ms is None:
        return f"{text}, and it is no id that a client makes: nothing can be told from it"
    when = f"{text}; its client made the id at {told(instant(born_ms))} (or a month before)"
    if born_ms < oldest_ms:
        return (
            f"{when}, before the oldest message that is left ({told(instant(oldest_ms))}): "
            "clean-up has taken it, if it was ever stored"
        )
    return (
        f"{when}: its send failed or went elsewhere (another cluster or topic), or the index does "
        "not have it yet"
    )


def place_in(message_id: str) -> str:
    """The place that an offset message id names; empty for an id that a client makes."""
    try:
        host, offset = read_offset_id(message_id)
    except ValueError:
        return ""
    return f"offset {offset} in the log of {host_text(host)}"


def born(message_id: str, now_ms: int) -> int | None:
    """The creation time in an id, in this machine's time zone; None for an id without one."""
    try:
        since = read_uniq_id(message_id).month_ms
    except ValueError:
        return None
    first, _ = month_of(now_ms)
    if first + since <= now_ms:
        return first + since
    return month_of(first - 1)[0] + since


# ── Copies and traces ──


def dated(look: MessageLook, copy: MessageCopy) -> MessageCopy:
    """A copy with its delivery time, if it is known."""
    message = copy.message
    if message.topic == SCHEDULE_TOPIC:
        due_ms, waits = delay_of(look, copy)
    elif copy.kind is CopyKind.TIMED:
        due_ms = whole_number(message.properties.get("TIMER_OUT_MS", "")) or 0
        waits = due_ms + 1_000 > look.at_ms
    else:
        return copy
    return replace(copy, due_at=instant(due_ms), waits=waits)


def delay_of(look: MessageLook, copy: MessageCopy) -> tuple[int, bool]:
    """The time when a delayed copy is due, in ms, and whether it still waits."""
    message = copy.message
    level = message.queue.queue_id + 1
    broker = look.brokers.get(message.queue.broker_name)
    settings: Mapping[str, str] = broker.settings if broker else {}
    levels = DelayLevels(settings[LEVELS]) if settings.get(LEVELS) else DelayLevels()
    due_ms = levels.deliver_at(level, int(message.stored_at.timestamp() * 1000))
    stats = broker.stats if broker else {}
    told_offset = stats.get(f"scheduleMessageOffset_{level}", "").partition(",")[0]
    delivered = whole_number(told_offset)
    if delivered is not None:
        return due_ms, message.queue_offset >= delivered
    return due_ms, due_ms > look.at_ms


def trace_of(kind: str, fields: Mapping[str, str]) -> TraceRecord:
    """A record of the trace, as a public value."""
    time_ms = whole_number(fields.get("time", ""))
    succeeded = fields.get("success")
    return TraceRecord(
        kind=kind,
        at=None if time_ms is None else instant(time_ms),
        group=fields.get("group"),
        succeeded=None if succeeded is None else succeeded == "true",
        fields=dict(fields),
    )
