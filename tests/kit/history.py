"""What was tried, what was acknowledged, what is there: the judge of every crash test.

Load writes down each send before it leaves and each acknowledgement when it arrives; after the
crash the test reads every queue and asks for a verdict. Nothing here knows a socket or a clock. Its
laws:

- acknowledged ⊆ stored, at the very queue and offset that was acknowledged;
- stored ⊆ attempted, and every stored body is the body that was sent;
- the offsets of a queue are dense and unique, from its minimum on;
- of one producer and one queue, what was acknowledged before the next was sent lies before it; and
  with `pipelined`, what was sent first lies first, acknowledged by then or not.

A message that was tried but never acknowledged may be there or not, but wholly, and once per
attempt. Transactions have laws of their own, see `TransactionHistory`.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

CRIMES = ("lost", "altered", "foreign", "doubled", "gap", "disordered")
"""The first words of what a verdict holds."""
SHOWN = 10


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a message lies for those who consume it."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """One message as it was read back."""

    place: Place
    uid: str
    body: bytes


@dataclass(slots=True)
class Attempt:
    """One send: unknown until it is acknowledged. `number` counts the sends of its producer."""

    uid: str
    producer: str
    number: int
    topic: str
    queue_id: int
    body: bytes
    acked_at: int | None = None
    """The queue offset that the broker named."""
    tried_tick: int = 0
    acked_tick: int = 0
    """Places of both events in the one order of all events."""


@dataclass(slots=True)
class History:
    """Every attempt of every producer. Safe to write from several threads."""

    pipelined: bool = True
    """Our broker serves a connection's requests in their order; Java's pools of threads do not."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: dict[str, int] = field(default_factory=dict)
    _tick: int = 0

    def tried(self, uid: str, producer: str, topic: str, queue_id: int, body: bytes) -> Attempt:
        """Write down a send; to be called before the first of its bytes leaves."""
        with self._lock:
            assert uid not in self.attempts, f"{uid} tried twice"
            number = self._numbers[producer] = self._numbers.get(producer, 0) + 1
            self._tick += 1
            attempt = Attempt(uid, producer, number, topic, queue_id, body, tried_tick=self._tick)
            self.attempts[uid] = attempt
        return attempt

    def acked(self, uid: str, queue_offset: int) -> None:
        """The broker said: stored, at this offset of its queue."""
        attempt = self.attempts[uid]
        with self._lock:
            self._tick += 1
            attempt.acked_tick = self._tick
        attempt.acked_at = queue_offset

    @property
    def tick(self) -> int:
        """A moment: what was acknowledged so far has a tick up to this one."""
        return self._tick

    def as_of(self, tick: int) -> "History":
        """What was known at that moment: every attempt, but only acknowledgements up to then."""
        with self._lock:
            attempts = list(self.attempts.values())
        earlier = History(pipelined=self.pipelined)
        for attempt in attempts:
            late = attempt.acked_tick > tick
            known = replace(attempt, acked_at=None, acked_tick=0) if late else attempt
            earlier.attempts[attempt.uid] = known
        return earlier

    @property
    def acknowledged(self) -> list[Attempt]:
        """The attempts that the broker answered with success."""
        return [attempt for attempt in self.attempts.values() if attempt.acked_at is not None]

    def verdict(self, stored: Sequence[Stored]) -> list[str]:
        """Every broken law in words, at most ten of each kind; empty when all hold."""
        judges = (self._lost, self._foreign, self._altered, _doubled, _gaps, self._disordered)
        return [line for judge in judges for line in _first(judge(stored))]

    def check(self, stored: Sequence[Stored]) -> None:
        """Raises: AssertionError with the verdict when a law is broken."""
        broken = self.verdict(stored)
        assert not broken, "\n".join([self.summary(stored), *broken])

    def summary(self, stored: Sequence[Stored]) -> str:
        """The counts, for people."""
        tried, acked = len(self.attempts), len(self.acknowledged)
        return f"tried {tried}, acknowledged {acked}, stored {len(stored)}"

    def _lost(self, stored: Sequence[Stored]) -> Iterator[str]:
        there = {(one.place, one.uid) for one in stored}
        for attempt in self.acknowledged:
            place = Place(attempt.topic, attempt.queue_id, attempt.acked_at or 0)
            if (place, attempt.uid) not in there:
                yield f"lost: {attempt.uid} was acknowledged at {place}"

    def _foreign(self, stored: Sequence[Stored]) -> Iterator[str]:
        for one in stored:
            if one.uid not in self.attempts:
                yield f"foreign: {one.uid!r} at {one.place} was never sent"

    def _altered(self, stored: Sequence[Stored]) -> Iterator[str]:
        for one in stored:
            attempt = self.attempts.get(one.uid)
            if attempt is None:
                continue
            sent = (attempt.topic, attempt.queue_id, attempt.body)
            if (one.place.topic, one.place.queue_id, one.body) != sent:
                yield f"altered: {one.uid} at {one.place}, {len(one.body)} of {len(sent[2])} bytes"

    def _disordered(self, stored: Sequence[Stored]) -> Iterator[str]:
        latest: dict[tuple[str, str, int], Attempt] = {}
        for attempt in sorted(self.acknowledged, key=lambda a: (a.topic, a.queue_id, a.acked_at)):
            line = (attempt.producer, attempt.topic, attempt.queue_id)
            before = latest.setdefault(line, attempt)
            end = attempt.tried_tick if self.pipelined else attempt.acked_tick
            if end < before.tried_tick:
                yield f"disordered: {attempt.uid} came before {before.uid} but lies behind it"
            if attempt.tried_tick > before.tried_tick:
                latest[line] = attempt


@dataclass(slots=True)
class Transaction:
    """A half, and what its producer says whenever it is asked: this commits, or it does not."""

    uid: str
    body: bytes
    commits: bool
    acked: bool = False
    """The broker said that the half is stored; a producer that never heard so rolls back."""


@dataclass(slots=True)
class TransactionHistory:
    """What producers of transactions did; `verdict` is for when all of them have been asked.

    - a half that was acknowledged and commits is visible, at least once (`once`: and no more);
    - what does not commit is never visible, acknowledged or not;
    - what is visible was begun, and is unaltered.
    """

    begun: dict[str, Transaction] = field(default_factory=dict)

    def began(self, uid: str, body: bytes, *, commits: bool) -> Transaction:
        """Write down a half; to be called before it is sent."""
        assert uid not in self.begun, f"{uid} begun twice"
        return self.begun.setdefault(uid, Transaction(uid, body, commits))

    def verdict(self, visible: Sequence[Stored], *, once: bool = False) -> list[str]:
        """Every broken law in words, at most ten of each kind; empty when all hold."""
        judges = [self._lost(visible), self._ghosts(visible), _doubled(visible) if once else ()]
        return [line for judge in judges for line in _first(judge)]

    def _lost(self, visible: Sequence[Stored]) -> Iterator[str]:
        there = {one.uid for one in visible}
        for uid, transaction in self.begun.items():
            if transaction.acked and transaction.commits and uid not in there:
                yield f"lost: {uid} commits and is not there"

    def _ghosts(self, visible: Sequence[Stored]) -> Iterator[str]:
        for one in visible:
            transaction = self.begun.get(one.uid)
            if transaction is None:
                yield f"foreign: {one.uid!r} at {one.place} was never begun"
            elif not (transaction.commits and transaction.acked):
                yield f"ghost: {one.uid} at {one.place} was not committed"
            elif one.body != transaction.body:
                yield f"altered: {one.uid} at {one.place}"


def _doubled(stored: Sequence[Stored]) -> Iterator[str]:
    first: dict[str, Place] = {}
    for one in stored:
        if first.setdefault(one.uid, one.place) != one.place:
            yield f"doubled: {one.uid} at {first[one.uid]} and at {one.place}"


def _gaps(stored: Sequence[Stored]) -> Iterator[str]:
    """Offsets of a queue must be minimum, minimum + 1, …; a doubled one breaks that as well."""
    places = sorted(one.place for one in stored)
    for before, after in pairwise(places):
        same_queue = (before.topic, before.queue_id) == (after.topic, after.queue_id)
        if same_queue and after.queue_offset != before.queue_offset + 1:
            yield f"gap: {before} is followed by offset {after.queue_offset}"


def _first(lines: Iterable[str]) -> list[str]:
    every = list(lines)
    if len(every) <= SHOWN:
        return every
    return [*every[:SHOWN], f"… and {len(every) - SHOWN} more"]
