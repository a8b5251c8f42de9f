"""The messages that are still to be delivered, how often and when: delays, timers, retries, pops.

Clients write down what they ask for before they ask, and what was granted when they hear so; a kill
ends one life of the broker and begins the next. Nothing here knows a socket or a clock. Its laws:

- what waits for its time (delay levels, timers, hand-backs) comes at least once for each time that
  it was granted, never early, and at most once more for each kill since it was asked for;
- what is popped comes until it is acknowledged; of what was sent in this very life, nothing comes
  again in it after an acknowledgement in time; an orderly pop skips nothing;
- a committed offset is one that was committed, and no older than the period in which it is saved;
- nothing comes that nobody sent, and nothing altered.

Source: semantics §3.1, §8, §9, §11.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.kit.raw_client import RawRecord

SEPARATOR = b"|"
"""Between the unique id and the filling of a body."""


def uid_of(record: RawRecord) -> str:
    """The id that its body begins with."""
    return record.body.partition(SEPARATOR)[0].decode("ascii", "replace")


# ── What waits for its time ──


@dataclass(slots=True)
class Wait:
    """A message on its way to a topic. `due_ms`: it may come from then on."""

    body: bytes
    due_ms: int
    life: int
    """In which it was asked for first."""
    tries: int = 0
    granted: int = 0


@dataclass(slots=True)
class Waits:
    """Everything that was parked, by the topic where it comes and its id. `life`: kills so far."""

    life: int = 0
    asked: dict[tuple[str, str], Wait] = field(default_factory=dict)

    def tried(self, topic: str, uid: str, body: bytes, due_ms: int) -> Wait:
        """Write down one more time; to be called before the request leaves."""
        wait = self.asked.setdefault((topic, uid), Wait(body, due_ms, self.life))
        wait.due_ms = min(wait.due_ms, due_ms)
        wait.tries += 1
        return wait

    def missing(self, came: Iterable[RawRecord]) -> Iterator[str]:
        """What was granted and has not come so often."""
        times = Counter((record.topic, uid_of(record)) for record in came)
        for place, wait in list(self.asked.items()):
            if times[place] < wait.granted:
                yield f"lost: {place} came {times[place]} times of {wait.granted}"

    def verdict(self, came: Iterable[RawRecord]) -> list[str]:
        """Every broken law in words, once everything has had its time."""
        records = list(came)
        times: Counter[tuple[str, str]] = Counter()
        wrong = [*self.missing(records)]
        for record in records:
            place = record.topic, uid_of(record)
            times[place] += 1
            wait = self.asked.get(place)
            if wait is None:
                wrong.append(f"foreign: {place} was never asked for")
            elif record.body != wait.body:
                wrong.append(f"altered: {place}")
            elif record.store_timestamp < wait.due_ms:
                wrong.append(f"early: {place} by {wait.due_ms - record.store_timestamp} ms")
            elif times[place] > wait.tries * (1 + self.life - wait.life):
                wrong.append(f"doubled: {place} came {times[place]} times, asked {wait.tries}")
        return wrong


# ── What is popped ──


@dataclass(slots=True)
class Delivery:
    """A message handed out. `due_ms`: it comes again from then on unless it is acknowledged."""

    life: int
    due_ms: int
    tried: bool = False
    acked_ms: int | None = None
    """When the broker said that it heard the acknowledgement."""

    @property
    def done(self) -> bool:
        """Acknowledged, and in time."""
        return self.acked_ms is not None and self.acked_ms < self.due_ms


@dataclass(slots=True)
class Sent:
    """A message to be popped."""

    body: bytes
    life: int
    granted: bool = False
    deliveries: list[Delivery] = field(default_factory=list)


@dataclass(slots=True)
class Pops:
    """One topic and the group that pops it."""

    orderly: bool
    life: int = 0
    sent: dict[str, Sent] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Every broken law in words, noted as the messages came."""
    _next: Counter[int] = field(default_factory=Counter)
    """Queue → the first offset that never came."""

    def tried(self, uid: str, body: bytes) -> Sent:
        """Write down a send; to be called before it leaves."""
        assert uid not in self.sent, f"{uid} sent twice"
        return self.sent.setdefault(uid, Sent(body, self.life))

    def came(self, record: RawRecord, due_ms: int) -> Delivery:
        """It was handed out."""
        uid, delivery = uid_of(record), Delivery(self.life, due_ms)
        sent = self.sent.get(uid)
        if sent is None:
            self.wrong.append(f"foreign: {uid!r} was never sent")
            return delivery
        if record.body != sent.body:
            self.wrong.append(f"altered: {uid}")
        if self.orderly:
            self._in_order(record)
        elif sent.life == self.life and any(earlier.done for earlier in sent.deliveries):
            self.wrong.append(f"repeated: {uid} was acknowledged in this life")
        sent.deliveries.append(delivery)
        return delivery

    def _in_order(self, record: RawRecord) -> None:
        expected = self._next[record.queue_id]
        if record.queue_offset > expected:
            place = f"{record.queue_id}-{record.queue_offset}"
            self.wrong.append(f"skipped: {place} came before {expected}")
        self._next[record.queue_id] = max(expected, record.queue_offset + 1)

    def missing(self) -> Iterator[str]:
        """What was stored and nobody could acknowledge yet."""
        for uid, sent in list(self.sent.items()):
            if sent.granted and not any(delivery.tried for delivery in sent.deliveries):
                yield f"lost: {uid} came {len(sent.deliveries)} times, never acknowledged"


# ── Where a consumer stands ──


@dataclass(slots=True)
class Commits:
    """One queue. Times in s of one clock, whichever."""

    highest: int = 0
    """Ever asked for."""
    granted: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])
    """When, and what, in this life; the first is what was found at its begin."""

    def begin(self, at: float, found: int, saved_by: float) -> list[str]:
        """A life begins with this offset. `saved_by`: what was granted until then was saved."""
        least = max(offset for when, offset in self.granted if when <= saved_by or not when)
        self.granted = [(0.0, found), (at, found)]
        if least <= found <= self.highest:
            return []
        return [f"offset: {found} found, {least} was saved, {self.highest} committed at most"]
