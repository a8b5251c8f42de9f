"""Queues, offsets and positions: the types, and their JSON. Pure.

An offset is a number per (topic, broker, queue), always of the next message to read; ends are
exclusive. Invariant: JSON has the offsets in one order (topic, broker, queue number), because Spark
compares it as text, and another order would look like new data.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = -2
LATEST = -1
STARTED = "@start"
"""The key, beside topics, for the start of a stream's first batch; no topic has such a name."""
RENEWED = "@renewed"
"""The key for queues whose topic was made anew, with the offsets where the batch begins there."""
LAST = "@last"
"""The key for when the messages in front of the offsets were stored, by some of the queues."""
NOTES = (STARTED, RENEWED, LAST)
"""The keys of offsets that are no topics."""
LONGEST_OFFSET = 2**63 - 1
LARGEST_QUEUE = 2**31 - 1
QUEUE_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class Queue(NamedTuple):
    """One queue of a topic on one broker, by the broker's name."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on broker {self.broker}"


Offsets: TypeAlias = dict[Queue, int]
"""The next offset of each queue."""
NestedOffsets: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Offsets in Spark's checkpoint: topic → broker → queue number as text → next offset."""


# ── Positions ──


@dataclass(frozen=True, slots=True)
class EarliestPosition:
    """The oldest message of each queue."""


@dataclass(frozen=True, slots=True)
class LatestPosition:
    """The end of each queue, after its newest message."""


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """The committed offset of the group; `fallback` for queues without one."""

    fallback: EarliestPosition | LatestPosition = field(default_factory=EarliestPosition)


@dataclass(frozen=True, slots=True)
class ExplicitPosition:
    """Explicit offsets; -2 stands for the earliest, -1 for the latest.

    `topics` holds -2 or -1 for all further queues of a topic.
    """

    offsets: Mapping[Queue, int]
    topics: Mapping[str, int] = field(default_factory=dict)

    def of(self, queue: Queue) -> int | None:
        """The offset of this queue; None without one."""
        return self.offsets.get(queue, self.topics.get(queue.topic))


@dataclass(frozen=True, slots=True)
class TimePosition:
    """The first message stored at a time or later, ms since the epoch.

    The most specific time applies: `queues`, then `topics`, then `ms`. `otherwise` says what to do
    if no message is that new: fail, or take the end of the queue.
    """

    ms: int | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    queues: Mapping[Queue, int] = field(default_factory=dict)
    otherwise: Literal["error", "latest"] = "error"

    def time_of(self, queue: Queue) -> int | None:
        """The time for this queue in ms; None without one."""
        return self.queues.get(queue, self.topics.get(queue.topic, self.ms))


Position: TypeAlias = (
    EarliestPosition | LatestPosition | CommittedPosition | ExplicitPosition | TimePosition
)


# ── Offsets as JSON ──


def to_nested(offsets: Mapping[Queue, int]) -> NestedOffsets:
    """Nest sorted offsets: brokers below topics, queue numbers as text."""
    nested: NestedOffsets = {}
    for queue in sorted(offsets):
        by_broker = nested.setdefault(queue.topic, {})
        by_broker.setdefault(queue.broker, {})[str(queue.queue_id)] = int(offsets[queue])
    return nested


def to_json(offsets: Mapping[Queue, int]) -> str:
    """The offsets as compact JSON; the same offsets give the same text."""
    return json.dumps(to_nested(offsets), separators=(",", ":"), ensure_ascii=False)


def from_json(text: str, what: str = "offsets", lowest: int = 0) -> Offsets:
    """Parse offsets in the form of `to_json`. Raises: as `from_nested`."""
    try:
        nested = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what}: not JSON ({error}): {text[:200]}") from None
    return from_nested(nested, what, lowest)


def from_nested(nested: object, what: str = "offsets", lowest: int = 0) -> Offsets:
    """The offsets of {"topic": {"broker": {"queue number": next}}}, sorted.

    `what` names them in errors. `lowest` -2 allows -2 (earliest) and -1 (latest). The
    entries of a stream under `NOTES` are left out.
    Raises: ConfigurationError that names the place.
    """
    offsets: Offsets = {}
    for topic, brokers in _object(nested, what, "topics").items():
        if topic in NOTES:
            continue
        for broker, queues in _object(brokers, f"{what}, topic {topic}", "broker names").items():
            place = f"{what}, topic {topic}, broker {broker}"
            for number, value in _object(queues, place, "queue numbers").items():
                if not QUEUE_NUMBER.fullmatch(number) or int(number) > LARGEST_QUEUE:
                    raise ConfigurationError(f"{place}: {number!r} is no queue number")
                if isinstance(value, bool) or not isinstance(value, int):
                    raise ConfigurationError(f"{place}, queue {number}: {value!r} is no integer")
                if not lowest <= value <= LONGEST_OFFSET:
                    allowed = "0 or more"
                    if lowest:
                        allowed = "0 or more, -1 (latest) or -2 (earliest)"
                    raise ConfigurationError(f"{place}, queue {number}: {value} is not {allowed}")
                offsets[Queue(topic, broker, int(number))] = value
    return dict(sorted(offsets.items()))


def _object(value: object, place: str, of: str) -> dict[str, object]:
    if not isinstance(value, dict):
        shape = '{"topic": {"broker": {"0": 23}}}'
        raise ConfigurationError(f"{place}: an object of {of} is needed, as in {shape}")
    return value
