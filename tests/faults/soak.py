"""R12: everything at once for hours, in pieces that add up, and nothing grows.

Raw clients that send, pull, hold, pop, delay and end transactions, our SDK, a client of gRPC,
connections that come and go, and scrapes. Lives end by kills and clean stops, some begin with
another wall clock, and again and again the disk is so full that the oldest segments go. In every
window memory, descriptors, threads, space and the p99 of a steady sender are noted. What counts is
how they grow within a life, behind a time in which it warms up: `kit.slopes`. A third of a life is
that time, ten minutes. Until then caches fill, and each thread that runs beside others for the
first time gets an arena of malloc, some 0.2 MiB; for two thirds of it nothing may grow.

A run of minutes is one piece: it is added to those in `soak.json` beside this file, and the slopes
of all of them together are judged. So 12 hours are any pieces of this commit or others.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aerobee import ConsumeFrom, Message
from aerobee.blocking import Producer, PushConsumer
from aerobee.remoting.grpc import messages
from tests.faults import feature_kills
from tests.faults.mixed_run import Works
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.crowd import Crowd, Member
from tests.kit.grpc_client import GrpcClient
from tests.kit.health import events, metrics_of, open_descriptors, rss_anon
from tests.kit.mounts import small_file_system
from tests.kit.odd_broker import clock_ahead
from tests.kit.ports import HOST, free_port
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.slopes import Sums, of_life

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.kit.campaign import Run

MiB = 1 << 20
TOTALS = Path(__file__).with_name("soak.json")
CREATE_TOPIC, SEND, MAX_OFFSET, SUCCESS = 17, 310, 30, 0
STEADY, OURS, PHONES = "steady", "ours", "phones"
"""The topics of the steady sender and the held pulls, of the SDK, and of gRPC."""
QUEUES, HELD = 4, 20
DISK_BYTES = 192 * MiB
PRESSED_FROM = 0.1
FULL_PERCENT = 80
"""Above diskMaxUsedSpaceRatio and below the level at which sends are refused."""
OF_A_FULL_DISK = frozenset({"schedule.lost"})
"""Errors that tell of messages deleted while they waited: of the log some seconds are left."""
CLOCKS_S = (0, 0, 3_600, -3_600)
"""By how much the wall clock of a life is off."""
BODY = bytes(512)
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": MiB,
    "diskMaxUsedSpaceRatio": 60,
    "diskSpaceCleanForciblyRatio": 70,
    "cleanResourceInterval": 1_000,
    "deleteCommitLogFilesInterval": 10,
}


class Pace(NamedTuple):
    """How long things take, in seconds."""

    life: float
    warm: float
    """What is noted before is left out."""
    window: float


SMALL, LARGE = Pace(8.0, 2.0, 0.5), Pace(1_800.0, 600.0, 10.0)
LIMITS = {"memory MiB": 1.0, "descriptors": 1.0, "threads": 1.0, "disk MiB": 10.0, "p99 ms": 1.0}
"""By how much each may grow in an hour, beyond twice its error."""
JUDGED_H = 1.0
"""Less than so many hours say nothing."""


class Soak(feature_kills.Life):
    """One directory and everybody who works on it."""

    def __init__(self, run: Run, rng: random.Random, data: Path) -> None:
        super().__init__(run, rng)
        self.grpc = f"{HOST}:{free_port()}"
        settings = dict(self.broker.settings) | SETTINGS
        settings["grpcPort"] = int(self.grpc.rpartition(":")[2])
        self.broker = BrokerProcess(data=data, settings=settings, log_path=run.directory / "log")
        self.sums: dict[str, Sums] = {name: Sums() for name in LIMITS}
        self.filler = data.parent / "filler"
        self.pressed = os.path.ismount(data.parent)
        for client in self.clients:
            client.disk_fills = self.pressed
        self._took_ms: list[float] = []
        self._received = 0

    # ── Who works ──

    @contextmanager
    def everybody(self, rng: random.Random) -> Iterator[None]:
        """All clients work until the end of the block."""
        with ExitStack() as stack:
            steady = stack.enter_context(RawConnection(self.broker.address, timeout_s=60))
            names = self.broker.namesrv_address
            producer = stack.enter_context(Producer(names, group="soak"))
            consumer = PushConsumer("soaked", names, start_from=ConsumeFrom.LAST)
            consumer.subscribe(OURS)(self._take)
            stack.enter_context(consumer)
            phone = stack.enter_context(GrpcClient(self.grpc))
            crowd = stack.enter_context(
                Crowd(self.broker.address, log=self.run.directory / "crowd.log")
            )
            crowd.open(
                [Member(f"10.1.0.1@{n}", f"g{n}", STEADY, (n % QUEUES,)) for n in range(HELD)]
            )
            works = {
                "steady sends": Works(0.01, partial(self._send, steady)),
                "sends of the SDK": Works(0.02, partial(self._send_ours, producer)),
                "sends of gRPC": Works(0.05, partial(self._phone, phone)),
                "connections that came and went": Works(0.1, self._come_and_go),
                "scrapes": Works(1.0, self._scrape),
            }
            for work in works.values():
                work.start()
            try:
                with self.load(rng):
                    yield
            finally:
                for name, work in works.items():
                    self.run.counts[name] += work.end()
            crowd.leave()
        self.run.counts["received by the SDK"] = self._received

    def _take(self, received: object) -> None:
        self._received += 1

    def _send(self, connection: RawConnection) -> None:
        began = time.monotonic()
        answer = connection.call(SEND, send_fields(STEADY, 0), BODY)
        assert answer.code == SUCCESS, answer
        self._took_ms.append(1_000 * (time.monotonic() - began))

    def _phone(self, client: GrpcClient) -> None:
        message = messages.Message(
            topic=messages.Resource(name=PHONES),
            system_properties=messages.SystemProperties(message_id=os.urandom(8).hex()),
            body=BODY,
        )
        answer = client.call("SendMessage", messages=[message])
        assert answer.status.code == 20_000, answer

    def _send_ours(self, producer: Producer) -> None:
        assert producer.send(Message(OURS, BODY)).ok

    def _scrape(self) -> None:
        assert any(metrics_of(self.broker))

    def _come_and_go(self) -> None:
        with RawConnection(self.broker.address) as connection:
            answer = connection.call(MAX_OFFSET, {"topic": STEADY, "queueId": 0})
            assert answer.code == SUCCESS, answer

    # ── A life ──

    def live(self, rng: random.Random, pace: Pace) -> None:
        """One life: from its start to its end, noted in windows."""
        began = time.monotonic()
        notes: dict[str, list[tuple[float, float]]] = {name: [] for name in LIMITS}
        with self.everybody(rng):
            while (passed := time.monotonic() - began) < pace.life:
                self.press(passed / pace.life)
                self._took_ms.clear()
                self.broker.let_run(pace.window)
                assert self.broker.child.running, self.broker.child.errors()[-3_000:]
                if passed >= pace.warm:
                    for name, value in self.noted().items():
                        notes[name].append((passed / 3_600, value))
        self.filler.unlink(missing_ok=True)
        for name, points in notes.items():
            self.sums[name] = self.sums[name].plus(of_life(points))
        self.run.counts["windows"] += len(notes["p99 ms"])

    def noted(self) -> dict[str, float]:
        """What it holds now, and how long sends took in this window."""
        pid = self.broker.child.pid
        disk = os.statvfs(self.broker.data)
        took_ms = sorted(self._took_ms)
        return {
            "memory MiB": rss_anon(pid) / MiB,
            "descriptors": open_descriptors(pid).total(),
            "threads": len(os.listdir(f"/proc/{pid}/task")),
            "disk MiB": (disk.f_blocks - disk.f_bfree) * disk.f_frsize / MiB,
            "p99 ms": quantiles(took_ms, n=100)[98] if len(took_ms) > 1 else 0.0,
        }

    def press(self, share: float) -> None:
        """From a tenth of a life on others have taken what is left of the disk but a fifth.

        So it is as full in every window that counts.
        """
        if share < PRESSED_FROM or self.filler.exists() or not self.pressed:
            return
        disk = os.statvfs(self.filler.parent)
        used = disk.f_blocks - disk.f_bfree
        more = (disk.f_blocks * FULL_PERCENT // 100 - used) * disk.f_frsize
        with self.filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, more))
        self.run.counts["times of a full disk"] += 1

    def end_life(self, rng: random.Random) -> None:
        """A kill or a clean stop, and a start under some wall clock."""
        if rng.random() < 0.5:
            self.broker.kill()
            self.run.counts["kills"] += 1
        else:
            assert self.broker.stop() == 0, self.broker.child.errors()[-3_000:]
            self.run.counts["clean stops"] += 1
        ahead_s = rng.choice(CLOCKS_S)
        self.broker.module = clock_ahead(ahead_s) if ahead_s else ("aerobee",)
        self.run.counts["steps of the clock"] += bool(ahead_s)
        self.broker.start()
        self.waits.life += 1
        for client in self.clients:
            client.killed_at = time.monotonic()
            client.begin_life(self.waits.life)


def soak(run: Run) -> None:
    """Life after life; a run of minutes is added to what was run before."""
    pace = LARGE if run.until > time.monotonic() + LARGE.life else SMALL
    began = time.monotonic()
    with ExitStack() as stack:
        disk = run.directory / "disk"
        try:
            stack.enter_context(small_file_system(disk, size_bytes=DISK_BYTES))
        except pytest.skip.Exception as skipped:
            print(f"R12: no disk is filled: {skipped}")
        life = Soak(run, run.cycle().rng, disk / "data")
        with life.broker:
            life.make_topics()
            with RawConnection(life.broker.address) as connection:
                for topic in (STEADY, OURS, PHONES):
                    answer = connection.call(CREATE_TOPIC, topic_fields(topic, QUEUES))
                    assert answer.code == SUCCESS, answer
            for cycle in run.cycles():
                life.live(cycle.rng, pace)
                life.end_life(cycle.rng)
            assert life.broker.stop() == 0
        for event in events(life.broker.log.read_text("utf-8")):
            assert event["event"] != "request.failed", str(event)[:3_000]
            deleted = life.pressed and event["event"] in OF_A_FULL_DISK
            assert deleted or event["level"] != "error", str(event)[:3_000]
    hours = (time.monotonic() - began) / 3_600
    judge(run, *(added(life.sums, hours) if pace is LARGE else (life.sums, hours)))


def added(sums: dict[str, Sums], hours: float) -> tuple[dict[str, Sums], float]:
    """All pieces so far, with this one, which is kept."""
    if TOTALS.exists():
        kept = json.loads(TOTALS.read_bytes())
        sums = {name: Sums(*kept["sums"].get(name, ())).plus(one) for name, one in sums.items()}
        hours += kept["hours"]
    TOTALS.write_text(json.dumps({"hours": hours, "sums": sums}, indent=1) + "\n", "utf-8")
    return sums, hours


def judge(run: Run, sums: dict[str, Sums], hours: float) -> None:
    """Say each slope with its error; above `JUDGED_H` none may be above its limit."""
    run.counts["minutes in all"] = round(60 * hours)
    for name, one in sums.items():
        assert one.points, f"{name} was never noted"
        run.counts[f"{name} in an hour, thousandths"] = round(1_000 * one.slope)
        run.counts[f"error of {name}"] = round(1_000 * min(one.error, 1e6))
    wrong = [
        f"{name} grows by {one.slope:.2f} ± {one.error:.2f} in an hour"
        for name, one in sums.items()
        if hours >= JUDGED_H and one.grows(LIMITS[name])
    ]
    assert not wrong, "; ".join(wrong)


R12 = Campaign(
    key="R12",
    title="everything at once for hours: memory, descriptors, threads, disk and p99 do not grow",
    unit="lives",
    t1=2,
    t2=8,
    run=soak,
)
