"""What the fuzz asked for and what it was granted, and which records there may and must be.

Every body begins with an id of its own, so a record is known wherever it turns up. The laws:

- what was acknowledged as stored is where the answer said: topic, queue, number, place in the log,
  with its body, and with the properties it was sent with;
- what is to come later (delay levels, timers, hand-backs, commits) comes at least as often as it
  was granted and at most once more for each kill, never before its time; what was rolled back, or
  never ended, does not come;
- of messages with one key, a topic with a rule of dedupe has one;
- nothing is anywhere that nobody sent, and nothing altered; queue offsets are dense.

Source: reliability §8, with semantics §8 to §10.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from tests.faults.fuzz_values import HOOKED
from tests.kit.promises import SEPARATOR, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.kit.raw_client import RawRecord

OWN = {"CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "UNIQ_KEY"}
"""Properties that the broker sets."""

Queue = tuple[str, int]


class Way(Enum):
    """How a message gets where it goes."""

    AT_ONCE = auto()
    LATER = auto()
    HALF = auto()
    ANYHOW = auto()
    """It asked for so odd a thing that only its body is looked at."""


class Decision(Enum):
    """The end of a transaction, as its producer asked for it."""

    COMMIT = auto()
    ROLLBACK = auto()
    UNSURE = auto()
    """Both were asked for, or something odd was."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the answer said that a message is. `physical`: in the log."""

    topic: str
    queue_id: int
    queue_offset: int
    physical: int


@dataclass(slots=True, kw_only=True)
class Sent:
    """One message that was sent; `life` counts the kills before."""

    uid: str
    body: bytes
    topic: str
    way: Way
    life: int
    properties: str = ""
    due_ms: int = 0
    keys: frozenset[str] = frozenset()
    """Where a message with the same key is stored once: what its key may be."""
    place: Place | None = None
    """Once it was acknowledged, and is to be there."""
    granted: bool = False
    recalled: bool = False
    """Somebody asked for that; then it may come or not."""
    asked: Decision | None = None
    decided: Decision | None = None
    """Once the broker said yes to the first decision and no other was asked for."""


def pairs_of(text: str) -> list[tuple[str, str]] | None:
    """Name and value of each property; None where that is a matter of opinion."""
    pairs = []
    for part in text.split("\x02"):
        if part:
            name, mark, value = part.partition("\x01")
            if not (name and mark and value) or "\x01" in value:
                return None
            pairs.append((name, value))
    return None if len({name for name, _ in pairs}) < len(pairs) else pairs


def plainly(topic: object, text: object) -> bool:
    """Whether a message is stored where it is sent, whatever its properties say."""
    hooked = isinstance(text, str) and any(word in text for word in HOOKED)
    return isinstance(topic, str) and not topic.startswith("%") and not hooked


@dataclass(slots=True)
class Books:
    """Everything that was sent to one directory. `kills`: lives that ended by a kill so far."""

    kills: int = 0
    sent: dict[str, Sent] = field(default_factory=dict)
    keyed: dict[str, set[str]] = field(default_factory=dict)
    """Key → ids that were sent with it to the topic with a rule."""
    back: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Group and id → hand-backs granted."""
    loose: list[bytes] = field(default_factory=list)
    """Whole bodies of requests that were damaged on purpose."""
    made: set[str] = field(default_factory=set)
    """Topics that an administrator was told are made."""
    largest: int = 1 << 62
    """The smallest maxMessageSize of all lives: what is larger may have been set aside."""

    def tried(self, message: Sent) -> Sent:
        """Write it down; to be called before it leaves."""
        assert message.uid not in self.sent, message.uid
        self.sent[message.uid] = message
        for key in message.keys:
            self.keyed.setdefault(key, set()).add(message.uid)
        return message

    # ── Verdict ──

    def missing(self, queues: Mapping[Queue, Sequence[RawRecord]]) -> list[str]:
        """What must come yet."""
        times = Counter(
            (record.topic, uid_of(record)) for records in queues.values() for record in records
        )
        return [*self._not_come(times), *self._not_back(times)]

    def verdict(self, queues: Mapping[Queue, Sequence[RawRecord]]) -> list[str]:
        """Every broken law of what is there, in words."""
        wrong: list[str] = []
        times: Counter[tuple[str, str]] = Counter()
        for (topic, queue_id), records in queues.items():
            for number, record in enumerate(records):
                if (record.topic, record.queue_id) != (topic, queue_id):
                    wrong.append(f"misplaced: {record} in {topic}-{queue_id}")
                if record.queue_offset != number:
                    wrong.append(f"gap: {topic}-{queue_id} has {record.queue_offset} at {number}")
                times[topic, uid_of(record)] += 1
                wrong += self._about(record)
        wrong += self._not_there(queues)
        wrong += self._too_often(times)
        wrong += self._repeated(times)
        return wrong

    def _about(self, record: RawRecord) -> Iterator[str]:
        uid = uid_of(record)
        message = self.sent.get(uid)
        at = f"{record.topic}-{record.queue_id}-{record.queue_offset} @{record.physical_offset}"
        if message is None:
            if not any(record.body in raw for raw in self.loose):
                yield f"foreign: {at} holds {record.body[:60]!r}"
            return
        if record.body != message.body:
            if not any(record.body in raw for raw in self.loose):
                yield f"altered: {uid} at {at}"
        elif record.topic != message.topic:
            return
        elif message.way is Way.LATER and record.store_timestamp < message.due_ms:
            yield f"early: {uid} by {message.due_ms - record.store_timestamp} ms at {at}"
        elif message.way is Way.HALF and message.asked is None:
            yield f"ghost: {uid} was never committed, and is at {at}"
        elif message.way is Way.HALF and message.decided is Decision.ROLLBACK:
            yield f"ghost: {uid} was rolled back, and is at {at}"

    def _not_there(self, queues: Mapping[Queue, Sequence[RawRecord]]) -> Iterator[str]:
        for message in self.sent.values():
            place = message.place
            if place is None or (place.topic, place.queue_id) not in queues:
                if place is not None:
                    yield f"lost: the queue of {message.uid}: {place}"
                continue
            records = queues[place.topic, place.queue_id]
            if place.queue_offset >= len(records):
                yield f"lost: {message.uid} at {place}, the queue ends at {len(records)}"
                continue
            record = records[place.queue_offset]
            keyed = self._twins(message)
            odd = bool(keyed) and any(record.body in raw for raw in self.loose)
            if uid_of(record) != message.uid and uid_of(record) not in keyed and not odd:
                yield f"lost: {message.uid} at {place} is {uid_of(record)!r}"
            elif record.physical_offset != place.physical:
                yield f"moved: {message.uid} at {place} is at {record.physical_offset}"
            elif uid_of(record) == message.uid:
                yield from _changed(message, record)

    def _twins(self, message: Sent) -> set[str]:
        """Ids with the same key, where one of them is stored for all."""
        return {uid for key in message.keys for uid in self.keyed[key]}

    def _not_come(self, times: Counter[tuple[str, str]]) -> Iterator[str]:
        for message in self.sent.values():
            due = (message.way is Way.LATER and message.granted and not message.recalled) or (
                message.way is Way.HALF and message.decided is Decision.COMMIT
            )
            large = len(message.body) + len(message.properties) + 2_000 > self.largest
            if due and not large and not times[message.topic, message.uid]:
                yield f"lost: {message.uid} has not come to {message.topic}"

    def _not_back(self, times: Counter[tuple[str, str]]) -> Iterator[str]:
        for (group, uid), granted in self.back.items():
            came = times[f"%RETRY%{group}", uid] + times[f"%DLQ%{group}", uid]
            large = len(self.sent[uid].body) + 2_000 > self.largest
            if came < granted and not large:
                yield f"lost: {uid} came back to {group} {came} times of {granted}"

    def _too_often(self, times: Counter[tuple[str, str]]) -> Iterator[str]:
        for message in self.sent.values():
            most = 1
            if message.way is not Way.AT_ONCE:
                most += self.kills - message.life
            came = times[message.topic, message.uid]
            if came > most and message.way is not Way.ANYHOW:
                yield f"doubled: {message.uid} came {came} times, {most} at most"

    def _repeated(self, times: Counter[tuple[str, str]]) -> Iterator[str]:
        for key, uids in self.keyed.items():
            sure = [self.sent[uid] for uid in sorted(uids) if len(self.sent[uid].keys) == 1]
            came = [message.uid for message in sure if times[message.topic, message.uid]]
            if key and len(came) > 1:
                yield f"doubled: {came} are there, of one key {key!r}"


def _changed(message: Sent, record: RawRecord) -> Iterable[str]:
    wanted = pairs_of(message.properties)
    if wanted is None or SEPARATOR not in message.body:
        return
    found = dict(pairs_of(record.properties) or ())
    for name, value in wanted:
        if name not in OWN and found.get(name) != value:
            yield f"altered: property {name!r} of {message.uid} is {found.get(name)!r:.80}"
