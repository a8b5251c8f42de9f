"""Parses the progress of consumer groups in responses of brokers. Pure: bytes in, tuples out.

Source: admin §4.1, the responses to GET_CONSUME_STATS (208) and GET_ALL_SUBSCRIPTIONGROUP_CONFIG
(201).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json
from aerobee.store.format.system_names import SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Progress(NamedTuple):
    """One queue of a group: its end, the group's offset, and the last message's store time."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    last_timestamp_ms: int
    """0 if unknown: nothing was consumed, or the message is deleted."""


class Lag(NamedTuple):
    """A row of the source, in the order of its columns; times in ms since 1970."""

    group: str
    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    last_timestamp_ms: int | None
    time_lag_ms: int | None
    snapshot_ms: int


class _Wrapper(msgspec.Struct, rename="camel"):
    broker_offset: int
    consumer_offset: int
    last_timestamp: int = 0


class _Stats(msgspec.Struct, rename="camel"):
    """ConsumeStats; the keys are message queues, as compact JSON texts."""

    offset_table: dict[str, _Wrapper] = {}


class _Queue(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


class _Groups(msgspec.Struct, rename="camel"):
    subscription_group_table: dict[str, Any] = {}


def progress_in(body: bytes | memoryview) -> list[Progress]:
    """The queues of a group, sorted. Raises: BodyError."""
    try:
        stats = msgspec.convert(relaxed_json.decode(body), _Stats)
        queues = [msgspec.json.decode(key, type=_Queue) for key in stats.offset_table]
    except msgspec.MsgspecError as error:
        raise BodyError(f"not the progress of a consumer group: {error}") from error
    return sorted(
        Progress(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            at.broker_offset,
            at.consumer_offset,
            max(0, at.last_timestamp),
        )
        for queue, at in zip(queues, stats.offset_table.values(), strict=True)
    )


def groups_in(body: bytes | memoryview) -> list[str]:
    """The names of a broker's consumer groups, sorted. Raises: BodyError."""
    try:
        table = msgspec.convert(relaxed_json.decode(body), _Groups)
    except msgspec.MsgspecError as error:
        raise BodyError(f"not a table of consumer groups: {error}") from error
    return sorted(table.subscription_group_table)


def is_system_group(name: str) -> bool:
    """Whether a group is one that brokers and their tools use themselves."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def lags(
    group: str, progresses: Iterable[Progress], topics: Collection[str], snapshot_ms: int
) -> list[Lag]:
    """The lag of a group in each queue, of these topics only if there are any.

    `lag` is negative where a queue lost messages that the group has consumed. The time lag is the
    age of the last message consumed, 0 without a backlog.
    """
    return [
        Lag(
            group,
            progress.topic,
            progress.broker,
            progress.queue_id,
            progress.broker_offset,
            progress.consumer_offset,
            progress.broker_offset - progress.consumer_offset,
            progress.last_timestamp_ms or None,
            _time_lag_ms(progress, snapshot_ms),
            snapshot_ms,
        )
        for progress in progresses
        if not topics or progress.topic in topics
    ]


def _time_lag_ms(progress: Progress, snapshot_ms: int) -> int | None:
    if progress.broker_offset <= progress.consumer_offset:
        return 0
    if not progress.last_timestamp_ms:
        return None
    return max(0, snapshot_ms - progress.last_timestamp_ms)
