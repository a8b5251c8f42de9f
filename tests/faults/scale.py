"""What grows with the number of topics, connections, groups and members, measured from outside.

A broker of so many hundreds: each hundred is 100 connections with heartbeats and a held pull, 50
topics of 8 queues with a message in each queue and 20 groups with offsets; half of the connections
are broadcasting consumers of one topic. Beside it stands a broker of the same kind with nothing in
it. Counted are the longest step of the loop by the CPU clock of its thread, how long a small
request waited, what is taken of sends in turns with the empty one, how long a group with as many
members as there are connections takes to join, a stop that finds them all, and a start after a
kill. In a second life syncs take long, and all of them send a message at once that waits for one.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from tests.kit.campaign import Campaign
from tests.kit.crowd import Crowd, Member, more_descriptors
from tests.kit.health import cpu_s, slowness
from tests.kit.odd_broker import ODD_BROKER
from tests.kit.raw_client import RawConnection, request_frame, send_fields
from tests.kit.step_watch import SteppedBroker, StolenTime, steps_in
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.campaign import Run

CONNECTIONS, TOPICS, GROUPS = 100, 50, 20
"""Of each hundred."""
QUEUES = 8
NEWS_QUEUES = 4
SEND, MAX_OFFSET = 310, 30
MiB = 1 << 20
PING_PAUSE_S = 0.005
TURNS, TURN_S = 15, 1.0
SMALL_TURNS, SMALL_TURN_S = 3, 0.5
WINDOW = 64
SMALL = 10
"""Up to so many hundreds the run is short, and its limits are those of a busy machine."""
START_WITHIN_S = 180.0
REST_WITHIN_S, REST_S, REST_SHARE = 150.0, 3.0, 0.05
"""The files of queues are synced within a minute; and how much the other threads may still do."""
PING_MS = 20.0
SENDS_RATIO = 0.9
RECOVERY_S = 2.0
SYNC = {"flushDiskType": "SYNC_FLUSH"}
SLOW_SYNCS = {ODD_BROKER: "waits:500"}
SENDS = 3
"""How often all send at once."""
SENDERS = 90
"""Hundreds of them at most: the send pool takes 10,000 requests that wait."""
STEP_MS = 10.0
SMALL_STEP_MS = 50.0
JOIN_S = 10.0
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 * MiB,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}


@dataclass(slots=True)
class Figures:
    """What one run saw. Milliseconds are CPU where they speak of steps."""

    hundreds: int
    steps_ms: list[tuple[float, str]] = field(default_factory=list)
    """All above 2 ms outside the filling, the longest first, with their task; without those in
    which the host took time from the machine."""
    unjudged_ms: list[float] = field(default_factory=list)
    """Those."""
    pings_ms: list[float] = field(default_factory=list)
    full_per_s: list[float] = field(default_factory=list)
    empty_per_s: list[float] = field(default_factory=list)
    join: dict[str, float] = field(default_factory=dict)
    restart_s: float = 0.0
    empty_restart_s: float = 0.0

    @property
    def longest_ms(self) -> float:
        """The longest step of the loop."""
        return self.steps_ms[0][0] if self.steps_ms else 0.0

    @property
    def ratio(self) -> float:
        """Sends taken, beside those that an empty broker took in the turn before: the median."""
        pairs = zip(self.full_per_s, self.empty_per_s, strict=True)
        return median(full / empty for full, empty in pairs)

    def line(self) -> str:
        """What the loop did, in words."""
        longest = ", ".join(f"{cpu_ms:.1f} {task}" for cpu_ms, task in self.steps_ms[:5])
        long = sum(cpu_ms > STEP_MS for cpu_ms, _ in self.steps_ms)
        odd = sum(cpu_ms > STEP_MS for cpu_ms in self.unjudged_ms)
        return (
            f"longest steps {longest}; {long} above {STEP_MS:g} ms, {odd} more while the"
            f" host ran others · pings p50"
            f" {self.ping_ms(0.5):.1f} p99 {self.ping_ms(0.99):.1f} ms · sends/s"
            f" {median(self.full_per_s):,.0f} beside {median(self.empty_per_s):,.0f} · {self.join}"
        )

    def ping_ms(self, share: float) -> float:
        """So many of all pings were faster."""
        return sorted(self.pings_ms)[int(len(self.pings_ms) * share)]


def write_tables(data: Path, hundreds: int) -> None:
    """The tables of a broker of that size, as a clean stop leaves them."""
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    groups = [f"g{n}" for n in range(hundreds * GROUPS)] + ["everyone", "large"]
    topics = {f"t{n}": QUEUES for n in range(hundreds * TOPICS)} | {"news": NEWS_QUEUES}
    topics |= {f"%RETRY%{group}": 1 for group in groups}
    offsets = {
        f"t{number}@g{number * 7 % (hundreds * GROUPS)}": dict.fromkeys(map(str, range(QUEUES)), 0)
        for number in range(hundreds * TOPICS)
    }
    files: dict[str, dict[str, object]] = {
        "topics.json": {"topicConfigTable": {n: topic_of(n, q) for n, q in topics.items()}},
        "subscriptionGroup.json": {
            "subscriptionGroupTable": {name: {"groupName": name} for name in groups}
        },
        "consumerOffset.json": {"offsetTable": offsets},
    }
    (data / "config").mkdir(parents=True)
    for name, document in files.items():
        (data / "config" / name).write_text(json.dumps({"dataVersion": version, **document}))


def topic_of(name: str, queues: int) -> dict[str, object]:
    """One entry of topics.json."""
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}


def members_of(hundreds: int) -> list[Member]:
    """Half of them share out the topics in groups, half hear the news."""
    count = hundreds * CONNECTIONS
    news = [
        Member(f"10.1.0.1@{n}", "everyone", "news", (n % NEWS_QUEUES,), "BROADCASTING")
        for n in range(count // 2)
    ]
    shared = [
        Member(
            f"10.1.0.2@{n}",
            f"g{n % (hundreds * GROUPS)}",
            f"t{n % (hundreds * TOPICS)}",
            (n // (hundreds * TOPICS) % QUEUES,),
        )
        for n in range(count - count // 2)
    ]
    return news + shared


class Pings(threading.Thread):
    """Small requests one after the other, each timed, until the block ends."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.connection = RawConnection(address, timeout_s=60)
        self.over = threading.Event()
        self.took_ms: list[float] = []

    def run(self) -> None:
        while not self.over.wait(PING_PAUSE_S):
            began = time.perf_counter()
            self.connection.call(MAX_OFFSET, {"topic": "t0", "queueId": 0})
            self.took_ms.append((time.perf_counter() - began) * 1_000)


@contextmanager
def pinged(address: str, into: list[float]) -> Iterator[None]:
    """Pings while the block runs."""
    pings = Pings(address)
    pings.start()
    try:
        yield
    finally:
        pings.over.set()
        pings.join(timeout=60)
        pings.connection.close()
        into += pings.took_ms


def pump(address: str, frames: list[bytes], *, seconds: float = 0.0) -> float:
    """Send these, or go round in them for so long, a window at a time; answers per second."""
    with RawConnection(address, timeout_s=60) as connection:
        began = time.monotonic()
        sent = heard = 0
        pending = b""
        while True:
            wanted = time.monotonic() - began < seconds if seconds else sent < len(frames)
            if heard == sent and not wanted:
                break
            if wanted and sent - heard < WINDOW:
                some = [frames[n % len(frames)] for n in range(sent, sent + WINDOW)]
                some = some if seconds else some[: len(frames) - sent]
                connection.send_bytes(b"".join(some))
                sent += len(some)
            pending += connection.socket.recv(1 << 16)
            at = 0
            while len(pending) - at >= 4:
                (size,) = struct.unpack_from(">I", pending, at)
                if len(pending) - at < 4 + size:
                    break
                at += 4 + size
                heard += 1
            pending = pending[at:]
        return heard / (time.monotonic() - began)


def rates(full: SteppedBroker, empty: SteppedBroker, figures: Figures) -> None:
    """Sends to one queue, in turns."""
    frame = request_frame(SEND, 1, send_fields("t0", 0), bytes(128))
    small = figures.hundreds <= SMALL
    for _ in range(SMALL_TURNS if small else TURNS):
        for broker, into in ((empty, figures.empty_per_s), (full, figures.full_per_s)):
            into.append(pump(broker.address, [frame], seconds=SMALL_TURN_S if small else TURN_S))


def measure(directory: Path, hundreds: int, *, rest_s: float) -> Figures:
    """One run."""
    more_descriptors()
    figures = Figures(hundreds)
    for name, size in (("full", hundreds), ("empty", 1)):
        write_tables(directory / name, size)
    full = SteppedBroker(data=directory / "full", settings=SETTINGS)
    empty = SteppedBroker(data=directory / "empty", settings=SETTINGS)
    stolen = StolenTime()
    stolen.start()
    with full, empty, Crowd(full.address, log=directory / "crowd.log") as crowd:
        topics = hundreds * TOPICS
        fill = [
            request_frame(SEND, 1, send_fields(f"t{n % topics}", n // topics), bytes(128))
            for n in range(topics * QUEUES)
        ]
        pump(full.address, fill)
        began = time.monotonic()
        with pinged(full.address, figures.pings_ms):
            opened = crowd.open(members_of(hundreds))
            assert not opened["missing"], opened
            full.let_run(rest_s)
            with RawConnection(full.address) as producer:
                for number in range(NEWS_QUEUES):
                    answer = producer.call(SEND, send_fields("news", number), b"news")
                    assert answer.code == 0, answer
            full.let_run(rest_s / 2)
        if hundreds > SMALL:
            eventually(
                lambda: only_the_loop_works(full),
                within_s=REST_WITHIN_S,
                what="the files of the queues are on disk",
            )
        rates(full, empty, figures)
        counts = crowd.counts()
        assert not counts["closed"], counts
        assert counts["found"] >= hundreds * CONNECTIONS // 2, counts
        # A process may not have as many descriptors as both would take.
        crowd.leave()
        figures.join = crowd.join("large", "t0", hundreds * CONNECTIONS)
        stopped(full, began, figures, stolen)
        full.settings, full.env = SETTINGS | SYNC, SLOW_SYNCS
        started(full)
        began = time.monotonic()
        send_at_once(crowd, min(hundreds, SENDERS))
        stopped(full, began, figures, stolen)
        full.settings, full.env = SETTINGS, {}
        print(figures.line())
        started(full)
        pump(full.address, fill[: len(fill) // 4])
        for broker in (full, empty):
            broker.kill()
        figures.restart_s = started(full)
        figures.empty_restart_s = started(empty)
    stolen.over.set()
    return figures


def only_the_loop_works(broker: SteppedBroker) -> bool:
    """Whether its other threads rest: nothing of what was filled in is synced any more.

    While they sync a file for each of 40,000 queues, each with a turn of the interpreter, a send
    takes nearly twice its CPU, with connections or without.
    """

    def others_s() -> float:
        pid = broker.child.pid
        return cpu_s(pid) - cpu_s(f"{pid}/task/{pid}")

    before = others_s()
    broker.let_run(REST_S)
    return others_s() - before < REST_SHARE * REST_S


def send_at_once(crowd: Crowd, hundreds: int) -> None:
    """Clients of a topic send, and go on when the slow disk has it."""
    crowd.open([Member(f"10.1.0.3@{n}", "large", "t0") for n in range(hundreds * CONNECTIONS)])
    for _ in range(SENDS):
        sent = crowd.send("t0", QUEUES)
        assert not sent["missing"], sent
        assert not sent["refused"], sent


def stopped(broker: SteppedBroker, began: float, figures: Figures, stolen: StolenTime) -> None:
    """Stop it, with all its clients, and note its long steps since then."""
    assert broker.stop() == 0
    stolen.look()
    for step in steps_in(broker.steps_path):
        if step.at_s < began:
            continue
        if not stolen.within(step):
            figures.steps_ms.append((step.cpu_ms, step.task))
        else:
            figures.unjudged_ms.append(step.cpu_ms)
    figures.steps_ms.sort(reverse=True)


def started(broker: SteppedBroker) -> float:
    """Start it, however long that takes; seconds until the ready line."""
    began = time.monotonic()
    broker.launch().read_until("aerobee ready ", within_s=START_WITHIN_S)
    return time.monotonic() - began


def scale(run: Run) -> None:
    """One broker with as many hundreds as there are cycles."""
    large = run.wanted > SMALL
    figures = measure(run.directory, run.wanted, rest_s=20.0 if large else 1.5)
    join = figures.join
    run.counts.update(
        {
            "longest step of the loop us": round(figures.longest_ms * 1_000),
            "steps judged": len(figures.steps_ms),
            "not judged, as the host ran others": len(figures.unjudged_ms),
            "ping p50 us": round(figures.ping_ms(0.5) * 1_000),
            "ping p99 us": round(figures.ping_ms(0.99) * 1_000),
            "sends beside an empty broker %": round(figures.ratio * 100),
            "joined ms": round(join["seconds"] * 1_000),
            "all know all ms": round(join["settled_s"] * 1_000),
            "start after a kill ms": round(figures.restart_s * 1_000),
            "of an empty one ms": round(figures.empty_restart_s * 1_000),
        }
    )
    limit_ms = (STEP_MS if large else SMALL_STEP_MS) * slowness()
    assert figures.longest_ms <= limit_ms, figures.steps_ms[:8]
    assert len(figures.unjudged_ms) <= len(figures.steps_ms), "the host runs too much else"
    assert not join["missing"], join
    assert join["seconds"] <= JOIN_S, join
    if large:
        assert figures.ping_ms(0.99) <= PING_MS, figures.line()
        assert figures.ratio >= SENDS_RATIO, figures.line()
        assert figures.restart_s - figures.empty_restart_s <= RECOVERY_S, figures.restart_s
    run.done(run.wanted)


S1 = Campaign(
    key="S1",
    title="size: topics, connections, groups, members",
    unit="hundreds of connections",
    t1=3,
    t2=100,
    run=scale,
)
