"""Delay levels: the queue of each, due times, and the target of a message.

A message with a level is stored in the queue of its level, in SCHEDULE_TOPIC_XXXX, with its target
in its properties. Its unit there has the due time instead of a tags code. Source: semantics §8
(ScheduleMessageService, HookUtils.handleScheduleMessage).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aerobee.broker.core.drafts import Target, target
from aerobee.broker.errors import Refusal
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.format.properties import value_of
from aerobee.store.format.record import NOT_QUEUED
from aerobee.store.format.system_names import SCHEDULE_TOPIC
from aerobee.store.format.unit import is_due_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.store.format.record import MessageDraft
    from aerobee.store.format.unit import DelayLevels

REMOVED_MS: Final = 366 * 86_400_000
"""The longest wait of a message whose level was removed from the table."""
KEPT_BYTES: Final = 512
"""The target of longer properties is not cached."""
TARGETS_KEPT: Final = 1_024
"""As many targets as are cached: 0.3 MiB of usual topics."""


def level_of(text: str) -> int:
    """The DELAY property as a number. Raises: Refusal."""
    try:
        return int(text)
    except ValueError:
        remark = f"property DELAY is not a number: {text[:40]!r}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None


def delay_hook(levels: DelayLevels) -> Callable[[MessageDraft, dict[str, str], int, bool], None]:
    """The hook that redirects messages with a delay level; a level beyond the table counts as the
    last.
    """
    last = max(1, len(levels.delays_ms))

    def park(draft: MessageDraft, properties: dict[str, str], now_ms: int, accepted: bool) -> None:
        text = properties.get("DELAY")
        if text is None or draft.sys_flag & NOT_QUEUED:
            return
        level = level_of(text)
        if level <= 0:
            return
        level = min(level, last)
        properties["DELAY"] = str(level)
        properties["REAL_TOPIC"] = draft.topic
        properties["REAL_QID"] = str(draft.queue_id)
        draft.topic = SCHEDULE_TOPIC
        draft.queue_id = level - 1
        draft.tags_code = levels.deliver_at(level, now_ms)

    return park


def how_many_due(due_times_ms: Sequence[int], now_ms: int, waited: int | None) -> int:
    """How many messages from the first on are due.

    The first `waited` ones are due whatever their times say: they waited for the delay of their
    level while the clock went back, or the level became shorter. (Java delivers them at once: every
    retry of a message, in a row.) None for a level that the table no longer has: then a time that
    no level could make is no time. Counting stops at an invalid time, see `is_due_time`.
    """
    latest_ms = now_ms + REMOVED_MS
    for count, due_ms in enumerate(due_times_ms):
        if now_ms < due_ms and (due_ms <= latest_ms if waited is None else count >= waited):
            return count
        if not is_due_time(due_ms):
            return count
    return len(due_times_ms)


def target_of(properties: bytes) -> Target | None:
    """The target in the properties of a delayed message; None when they have none."""
    at = properties.rfind(b"\x02REAL_TOPIC\x01")
    queue_at = properties.rfind(b"\x02REAL_QID\x01")
    if 0 <= at < queue_at:
        # From one to the other messages of a queue are alike, and nothing else counts. Behind them
        # a retry has the id of its origin, which it shares with no other.
        end = properties.find(b"\x02", queue_at + 1)
        part = properties[at:end] if end >= 0 else properties[at:]
        if len(part) <= KEPT_BYTES:
            target = _kept(part)
            if target is not None:
                return target
    return _said(properties)


def _said(properties: bytes) -> Target | None:
    return target(value_of(properties, b"REAL_TOPIC"), value_of(properties, b"REAL_QID"))


_kept = lru_cache(maxsize=TARGETS_KEPT)(_said)
