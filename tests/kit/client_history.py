"""What the clients of a group of brokers did and saw, and what is wrong with it.

    python -m tests.kit.client_history FILE

`History` judges a broker by what is stored in the end. A group changes its master while clients
send, read and commit, so it is judged by all that any of them saw at any time. Each event is a line
of JSON, in the order of one clock. The kinds of anomalies:

- *lost*: acknowledged or read once, and missing in the end;
- *duplicate*: one send was read at two offsets;
- *inconsistent*: an offset had two messages, or a message was read elsewhere than acknowledged;
- *going back*: a reader got an offset again, the offset of a group fell, or a message lies before
  one that was known when it was sent;
- *skipped*: a reader jumped over an offset;
- *never sent*: a message that nobody sent, or an offset of a group that nobody committed.

A send without a good answer may be stored or not. The check takes one pass over the events.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Kind = Literal["lost", "duplicate", "inconsistent", "going back", "skipped", "never sent"]
KINDS: Final[tuple[Kind, ...]] = (
    "lost",
    "duplicate",
    "inconsistent",
    "going back",
    "skipped",
    "never sent",
)
What = Literal[
    "send",
    "stored",
    "failed",
    "read",
    "seek",
    "commit",
    "committed",
    "found",
    "end",
]
SHOWN = 5


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line.

    | what | a client | with |
    |---|---|---|
    | send | is about to send | message |
    | stored | was answered: stored | message, offset |
    | failed | was answered otherwise, or not at all | message |
    | read | was given | message, offset |
    | seek | reads on elsewhere | offset |
    | commit | is about to commit what its group reads next | offset |
    | committed | was answered: committed | offset |
    | found | was told the offset of its group, 0 for none; `at` is when it asked | offset |
    | end | has read everything from the begin on, in the end | offset |
    """

    what: What
    client: str
    queue: int
    offset: int = -1
    message: str = ""
    at: float = 0.0
    """Seconds of a clock that all clients share."""
    broker: str = ""
    """Who answered; for people."""


class Recorder:
    """Writes events down as they happen, for clients in several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(
        self,
        what: What,
        client: str,
        queue: int,
        *,
        offset: int = -1,
        message: str = "",
        broker: str = "",
        at: float | None = None,
    ) -> None:
        """`send` and `commit` before the first of their bytes leaves, all others afterwards."""
        with self._lock:
            moment = time.monotonic() if at is None else at
            event = Event(what, client, queue, offset, message, moment, broker)
            self._file.write(self._encoder.encode(event) + b"\n")

    def events(self) -> list[Event]:
        """All that was written so far."""
        with self._lock:
            self._file.flush()
        return list(read(self.path))


def read(path: Path) -> Iterator[Event]:
    """The events of a file. Raises: msgspec.DecodeError."""
    decoder = msgspec.json.Decoder(Event)
    with path.open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)


class Place(NamedTuple):
    """Where a message lies."""

    queue: int
    offset: int


class Anomaly(NamedTuple):
    """One that was found, in words."""

    kind: Kind
    text: str


@dataclass(slots=True)
class _Reader:
    """One client in one queue."""

    next: int
    """The offset that it must be given now."""
    furthest: int


@dataclass(slots=True)
class _Group:
    """What one client committed in one queue."""

    most_tried: int = 0
    most_kept: int = 0
    """What must not be forgotten."""
    fresh: deque[tuple[float, int]] = field(default_factory=deque)
    """Moments and offsets of commits that are not yet promised."""


def anomalies(events: Sequence[Event], *, forgets_s: float = 0.0) -> list[Anomaly]:
    """All that is wrong in a history.

    `forgets_s`: the last commits of a group may be forgotten, those of so many seconds.
    """
    check = _Check({event.client for event in events if event.what == "end"}, forgets_s)
    for event in events:
        getattr(check, event.what)(event)
    return list(check.result())


class _Check:
    """The pass over the events; a method for each kind of them."""

    def __init__(self, last: Iterable[str], forgets_s: float) -> None:
        """`last`: the clients that read everything in the end."""
        self.found_wrong: list[Anomaly] = []
        self.last: dict[str, dict[Place, str]] = {client: {} for client in last}
        self.forgets_s = forgets_s
        self.floors: dict[str, Place] = {}
        """Each message that was sent, with the highest offset then known in its queue."""
        self.known: dict[Place, str] = {}
        """The first message that was seen at each place."""
        self.rivals: dict[Place, set[str]] = {}
        """The others; there must be none."""
        self.highest: dict[int, int] = {}
        self.stored_at: dict[str, Place] = {}
        self.read_at: dict[str, Place] = {}
        self.read_again: dict[str, set[Place]] = {}
        """Of messages that were read at several places, the others."""
        self.readers: dict[tuple[str, int], _Reader] = {}
        self.groups: dict[tuple[str, int], _Group] = {}

    def wrong(self, kind: Kind, text: str) -> None:
        self.found_wrong.append(Anomaly(kind, text))

    # ── Messages ──

    def send(self, event: Event) -> None:
        assert event.message not in self.floors, f"{event.message} is sent twice: {event}"
        self.floors[event.message] = Place(event.queue, self.highest.get(event.queue, -1))

    def stored(self, event: Event) -> None:
        self.stored_at[event.message] = self.seen(event)

    def failed(self, event: Event) -> None:
        """It says nothing about the log."""

    def read(self, event: Event) -> None:
        place = self.seen(event)
        first = self.read_at.setdefault(event.message, place)
        if first != place:
            self.read_again.setdefault(event.message, set()).add(place)
        if event.client in self.last:
            self.last[event.client][place] = event.message
        self.advance(event)

    def seen(self, event: Event) -> Place:
        """A client knows now what is at a place."""
        place = Place(event.queue, event.offset)
        before = self.known.setdefault(place, event.message)
        if before != event.message:
            self.rivals.setdefault(place, set()).add(event.message)
            text = f"{place} had {before}, and has {event.message}: {event}"
            self.wrong("inconsistent", text)
        floor = self.floors.get(event.message)
        if floor is None or floor.queue != place.queue:
            self.wrong("never sent", f"{event.message!r} to {place}: {event}")
        elif place.offset <= floor.offset:
            text = f"{floor} was known when {event.message} was sent, which is at {place}"
            self.wrong("going back", text)
        self.highest[place.queue] = max(place.offset, self.highest.get(place.queue, -1))
        return place

    # ── Readers ──

    def advance(self, event: Event) -> None:
        key, offset = (event.client, event.queue), event.offset
        reader = self.readers.setdefault(key, _Reader(offset, offset))
        if offset < reader.next:
            text = f"{event.client} was to read {reader.next} and was given {offset}: {event}"
            self.wrong("going back", text)
        self.jumps(reader, event, max(reader.next, reader.furthest))
        reader.next = offset + 1
        reader.furthest = max(reader.furthest, reader.next)

    def seek(self, event: Event) -> None:
        key, offset = (event.client, event.queue), event.offset
        reader = self.readers.setdefault(key, _Reader(offset, offset))
        self.jumps(reader, event, reader.furthest)
        reader.next = offset

    def jumps(self, reader: _Reader, event: Event, expected: int) -> None:
        """The client goes on behind what it should have read."""
        if event.offset > expected:
            reader.furthest = max(reader.furthest, event.offset)
            text = f"{event.client} has not read {expected} to {event.offset - 1}: {event}"
            self.wrong("skipped", text)

    def end(self, event: Event) -> None:
        key = event.client, event.queue
        reader = self.readers.setdefault(key, _Reader(event.offset, event.offset))
        self.jumps(reader, event, reader.furthest)

    # ── Offsets of groups ──

    def group(self, event: Event) -> _Group:
        return self.groups.setdefault((event.client, event.queue), _Group())

    def commit(self, event: Event) -> None:
        group = self.group(event)
        group.most_tried = max(group.most_tried, event.offset)

    def committed(self, event: Event) -> None:
        self.group(event).fresh.append((event.at, event.offset))

    def found(self, event: Event) -> None:
        group = self.group(event)
        last = group.fresh[-1][0] if group.fresh else 0.0
        while group.fresh and group.fresh[0][0] <= last - self.forgets_s:
            group.most_kept = max(group.most_kept, group.fresh.popleft()[1])
        if event.offset < group.most_kept:
            text = f"{event.client} had committed {group.most_kept}: {event}"
            self.wrong("going back", text)
        if event.offset > group.most_tried:
            text = f"{event.client} committed {group.most_tried} at most: {event}"
            self.wrong("never sent", text)

    # ── The end ──

    def result(self) -> Iterator[Anomaly]:
        yield from self.found_wrong
        for message in self.read_at:
            yield from self.two_places(message)
        for client, read in sorted(self.last.items()):
            for place, message in self.known.items():
                for one in (message, *self.rivals.get(place, ())):
                    if read.get(place) != one:
                        text = f"{one}, seen at {place}, is not what {client} has there"
                        yield Anomaly("lost", text)

    def two_places(self, message: str) -> Iterator[Anomaly]:
        read = {self.read_at[message], *self.read_again.get(message, ())}
        stored = self.stored_at.get(message)
        if len(read) > 1:
            yield Anomaly("duplicate", f"{message} was read at {sorted(read)}")
        elif stored is not None and stored not in read:
            text = f"{message} was acknowledged at {stored}, and is at {min(read)}"
            yield Anomaly("inconsistent", text)


def verdict(found: Sequence[Anomaly]) -> str:
    """Anomalies for people, the first of each kind; empty without any."""
    counts = Counter(one.kind for one in found)
    lines: list[str] = []
    for kind in KINDS:
        texts = [f"{kind}: {one.text}" for one in found if one.kind == kind]
        lines += texts[:SHOWN]
        if len(texts) > SHOWN:
            lines.append(f"… and {counts[kind] - SHOWN} more that are {kind}")
    return "\n".join(lines)


def main() -> int:
    """Judge a file; 1 if something is wrong."""
    events = list(read(Path(sys.argv[1])))
    found = anomalies(events)
    counts = Counter(event.what for event in events)
    print(", ".join(f"{what} {count:,}" for what, count in sorted(counts.items())))
    print(verdict(found) or "no anomaly")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
