"""A checker that finds nothing proves nothing: each kind of anomaly is planted, and is found."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import client_history
from tests.kit.client_history import KINDS, Anomaly, Event, Recorder, What, anomalies, verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUEUES = 2


@dataclass
class Model:
    """A group that makes no mistakes, its clients, and all that they do, in one order."""

    rng: random.Random
    events: list[Event] = field(default_factory=list)
    logs: list[list[str]] = field(default_factory=lambda: [[] for _ in range(QUEUES)])
    confirmed: list[int] = field(default_factory=lambda: [0] * QUEUES)
    under_way: list[tuple[str, int, str]] = field(default_factory=list)
    """Sends that the group has not seen yet."""
    unanswered: list[tuple[str, int, str, int]] = field(default_factory=list)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: int = 0

    def note(
        self, what: What, client: str, queue: int, offset: int = -1, message: str = ""
    ) -> None:
        self.events.append(Event(what, client, queue, offset, message, len(self.events)))

    def run(self, steps: int) -> list[Event]:
        names = ("send", "arrive", "arrive", "answer", "answer", "read", "read", "read", "commit")
        for name in self.rng.choices((*names, "resume", "lose"), k=steps):
            getattr(self, name)()
        self.confirmed = [len(log) for log in self.logs]
        for member in ("end of m1", "end of m2"):
            for queue, log in enumerate(self.logs):
                for offset, message in enumerate(log):
                    self.note("read", member, queue, offset, message)
                self.note("end", member, queue, len(log))
        return self.events

    def send(self) -> None:
        client, queue = self.rng.choice(("p1", "p2", "p3")), self.rng.randrange(QUEUES)
        message = f"{client}.{self.sent}"
        self.sent += 1
        self.note("send", client, queue, message=message)
        self.under_way.append((client, queue, message))

    def arrive(self) -> None:
        if self.under_way:
            client, queue, message = self.under_way.pop(self.rng.randrange(len(self.under_way)))
            self.unanswered.append((client, queue, message, len(self.logs[queue])))
            self.logs[queue].append(message)

    def answer(self) -> None:
        if self.unanswered:
            at = self.rng.randrange(len(self.unanswered))
            client, queue, message, offset = self.unanswered.pop(at)
            self.confirmed[queue] = max(self.confirmed[queue], offset + 1)
            self.note("stored", client, queue, offset, message)

    def lose(self) -> None:
        """A request or its answer."""
        if self.under_way and self.rng.random() < 0.5:
            client, queue, message = self.under_way.pop()
            self.note("failed", client, queue, message=message)
        elif self.unanswered:
            client, queue, message, _ = self.unanswered.pop()
            self.note("failed", client, queue, message=message)

    def read(self) -> None:
        key = client, queue = self.rng.choice(("r1", "r2")), self.rng.randrange(QUEUES)
        offset = self.positions.get(key, 0)
        if offset < self.confirmed[queue]:
            self.note("read", client, queue, offset, self.logs[queue][offset])
            self.positions[key] = offset + 1

    def commit(self) -> None:
        key = client, queue = self.rng.choice(("r1", "r2")), self.rng.randrange(QUEUES)
        if key in self.positions:
            self.note("commit", client, queue, self.positions[key])
            if self.rng.random() < 0.8:
                self.commits[key] = self.positions[key]
                self.note("committed", client, queue, self.positions[key])

    def resume(self) -> None:
        key = client, queue = self.rng.choice(("r1", "r2")), self.rng.randrange(QUEUES)
        offset = self.commits.get(key, 0)
        self.note("found", client, queue, offset)
        if key in self.positions:
            self.note("seek", client, queue, offset)
            self.positions[key] = offset


def history(seed: int, steps: int = 400) -> list[Event]:
    return Model(random.Random(seed)).run(steps)


@given(st.integers(0, 1 << 32), st.integers(0, 400))
def test_a_history_without_mistakes_has_no_anomaly(seed: int, steps: int) -> None:
    assert anomalies(history(seed, steps)) == []


def places(events: list[Event], what: What, client: str = "") -> list[int]:
    """Where the events of a kind are in a history; `client`: how its name begins."""
    each = enumerate(events)
    return [at for at, one in each if one.what == what and one.client.startswith(client)]


def changed(event: Event, **fields: object) -> Event:
    return msgspec.structs.replace(event, **fields)


def lost(events: list[Event], rng: random.Random) -> None:
    """A member lacks the last message, which had been acknowledged."""
    last = max((e for e in events if e.what == "stored" and e.queue == 0), key=lambda e: e.offset)
    beyond = [
        at
        for at in places(events, "read", "end of m2")
        if events[at].queue == 0 and events[at].offset >= last.offset
    ]
    for at in reversed(beyond):
        del events[at]
    end = next(at for at in places(events, "end", "end of m2") if events[at].queue == 0)
    events[end] = changed(events[end], offset=last.offset)


def duplicate(events: list[Event], rng: random.Random) -> None:
    """A message lies at the end once more, on one member."""
    end = rng.choice(places(events, "end"))
    again = next(e for e in events if e.what == "read" and e.queue == events[end].queue)
    offset = events[end].offset
    events[end] = changed(events[end], offset=offset + 1)
    events.insert(end, changed(events[end], what="read", offset=offset, message=again.message))


def two_messages(events: list[Event], rng: random.Random) -> None:
    """Somebody reads another message at an offset."""
    at = rng.choice(places(events, "read"))
    others = [e.message for e in events[:at] if e.what == "send" and e.queue == events[at].queue]
    other = rng.choice([message for message in others if message != events[at].message])
    events[at] = changed(events[at], message=other)


def two_offsets(events: list[Event], rng: random.Random) -> None:
    """A message was acknowledged at another offset than it has."""
    at = rng.choice(places(events, "stored"))
    events[at] = changed(events[at], offset=events[at].offset + 1)


def read_again(events: list[Event], rng: random.Random) -> None:
    """A reader is given an offset again."""
    at = rng.choice(places(events, "read"))
    events.insert(at, events[at])


def forgotten(events: list[Event], rng: random.Random) -> None:
    """The offset of a group falls."""
    at = rng.choice([at for at in places(events, "committed") if events[at].offset > 0])
    found = changed(events[at], what="found", offset=events[at].offset - 1, at=events[at].at + 1)
    events.insert(at + 1, found)


def put_before(events: list[Event], rng: random.Random) -> None:
    """A message is acknowledged at an offset that was known when it was sent."""
    at = rng.choice(places(events, "stored")[:-1])
    queue = events[at].queue
    late = [Event("send", "p9", queue, message="p9.0", at=events[at].at)]
    late.append(Event("stored", "p9", queue, events[at].offset, "p9.0", events[at].at))
    events[at + 1 : at + 1] = late


def skipped(events: list[Event], rng: random.Random) -> None:
    """A reader is not given a message that lies between others."""
    inner = [
        at
        for at in places(events, "read", "end of")[1:]
        if events[at - 1].what == "read" and events[at + 1].what == "read"
    ]
    del events[rng.choice(inner)]


def sought_beyond(events: list[Event], rng: random.Random) -> None:
    """A reader goes on behind messages that it never read."""
    at = places(events, "read", "r1")[-1]
    own = [e.offset for e in events if (e.client, e.queue) == ("r1", events[at].queue)]
    events.insert(at + 1, changed(events[at], what="seek", offset=max(own) + 2, message=""))


def never_sent(events: list[Event], rng: random.Random) -> None:
    """A message comes from nowhere."""
    at = rng.choice(places(events, "read"))
    events[at] = changed(events[at], message="p1.altered")


def read_before_sent(events: list[Event], rng: random.Random) -> None:
    """A message was read before it was sent."""
    at = next(at for at, one in enumerate(events) if one.what == "read")
    events.insert(0, events.pop(at))


def never_committed(events: list[Event], rng: random.Random) -> None:
    """A group has an offset before it has ever committed one."""
    first = next(at for at in places(events, "commit") if events[at].offset > 0)
    events.insert(first, changed(events[first], what="found"))


PLANTED: tuple[tuple[str, Callable[[list[Event], random.Random], None]], ...] = (
    ("lost", lost),
    ("duplicate", duplicate),
    ("inconsistent", two_messages),
    ("inconsistent", two_offsets),
    ("going back", read_again),
    ("going back", forgotten),
    ("going back", put_before),
    ("skipped", skipped),
    ("skipped", sought_beyond),
    ("never sent", never_sent),
    ("never sent", read_before_sent),
    ("never sent", never_committed),
)


def test_each_kind_is_planted() -> None:
    assert {kind for kind, _ in PLANTED} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "plant"), [pytest.param(*row, id=row[1].__name__) for row in PLANTED]
)
def test_planted_anomalies_are_found(
    kind: str, plant: Callable[[list[Event], random.Random], None]
) -> None:
    for seed in range(25):
        events = history(seed)
        plant(events, random.Random(seed))
        assert kind in {one.kind for one in anomalies(events)}, seed


def test_the_last_commits_may_be_forgotten_and_earlier_ones_may_not() -> None:
    def told(found: int) -> list[Anomaly]:
        events = [
            Event("commit", "g", 0, 9),
            *(Event("committed", "g", 0, offset, at=float(offset)) for offset in range(1, 10)),
            Event("found", "g", 0, found, at=100.0),
        ]
        return anomalies(events, forgets_s=3.0)

    assert told(9) == told(6) == []
    assert [one.kind for one in told(5)] == ["going back"]


def test_what_was_read_once_is_not_lost_either() -> None:
    events = [
        Event("send", "p", 0, message="p.0"),
        Event("failed", "p", 0, message="p.0"),
        Event("read", "r", 0, 0, "p.0"),
        Event("end", "end of m1", 0, 0),
    ]
    assert [one.kind for one in anomalies(events)] == ["lost"]


def test_what_another_message_has_taken_the_place_of_is_lost() -> None:
    events = [
        *(Event("send", "p", 0, message=message) for message in ("p.0", "p.1")),
        Event("stored", "p", 0, 0, "p.0"),
        Event("stored", "p", 0, 0, "p.1"),
        Event("read", "end of m1", 0, 0, "p.0"),
        Event("end", "end of m1", 0, 1),
    ]
    [one] = [one for one in anomalies(events) if one.kind == "lost"]
    assert one.text.startswith("p.1, seen at")
    assert {one.kind for one in anomalies(events)} == {"lost", "inconsistent"}


def test_a_verdict_shows_the_first_of_each_kind() -> None:
    found = [Anomaly("lost", str(number)) for number in range(30)]
    lines = verdict([*found, Anomaly("skipped", "one")]).splitlines()
    assert lines[0] == "lost: 0"
    assert lines[-2:] == ["… and 25 more that are lost", "skipped: one"]
    assert verdict([]) == ""


def test_a_history_is_kept_in_a_file_and_judged_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        recorder.note("send", "p", 0, message="p.0")
        recorder.note("stored", "p", 0, offset=0, message="p.0", broker="m1")
        recorder.note("end", "end of m1", 0, offset=0)
        events = recorder.events()
    assert [one.what for one in events] == ["send", "stored", "end"]
    assert events[1].broker == "m1"
    assert 0 < events[0].at <= events[1].at
    monkeypatch.setattr("sys.argv", ["client_history", str(path)])
    assert client_history.main() == 1
    assert "lost: p.0" in capsys.readouterr().out
