"""M1: everything at once for minutes, and no step of the loop that anybody would notice.

Sends of all sizes whose history is kept, batches of 40,000 messages of one byte, timers, held pulls
that are woken, scrapes, and a stranger with frames that are wrong. A step of the loop takes 20 ms
of CPU at most; nothing acknowledged is lost, altered or out of order; nothing fails, nothing waits
in the pools afterwards, no socket is left, and the directory is sound.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from aerobee.store.tools.verify import verify
from bench.timers import send_timers
from tests.faults.frame_storm import changed, stranger
from tests.kit.campaign import Campaign
from tests.kit.crowd import Crowd, Member
from tests.kit.health import (
    events,
    metrics_of,
    open_descriptors,
    rss_anon,
    slowness,
    waiting_in_pools,
)
from tests.kit.history import History
from tests.kit.load import Load, Reader, Shape
from tests.kit.raw_client import RawConnection, batch_body, send_fields
from tests.kit.step_watch import SteppedBroker, StolenTime, steps_in
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.campaign import Run

MiB = 1 << 20
SEND, SEND_BATCH, SUCCESS = 310, 320, 0
TOPIC = "mixed"
QUEUES = 4
SHAPE = Shape(topics=(TOPIC,), queues=QUEUES, connections=4, window=16, max_body_bytes=2_048)
TINY, TINY_EVERY_S = 40_000, 0.5
TIMERS, TIMERS_EVERY_S, TIMERS_AHEAD_MS = 200, 1.0, 3_000
READERS = 40
BAD_FRAMES, BAD_EVERY_S = 20, 0.2
SCRAPES_EVERY_S = 2.0
FIRST_S = 2.0
"""Not judged: the first segments and queues are made."""
STEP_MS = 20.0
LARGE = 60
"""From so many seconds on it is a recorded run; a short one has the limit of a busy machine."""
SMALL_STEP_MS = 50.0
IDLE_SOCKETS = 15
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 64 * MiB,
    "mappedFileSizeConsumeQueue": None,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "maxMessageSize": None,
}


class Works(threading.Thread):
    """Does something again and again until it is over; what it fails with is raised at the end."""

    def __init__(self, every_s: float, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.every_s, self.work = every_s, work
        self.over = threading.Event()
        self.done = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.wait(self.every_s):
                self.work()
                self.done += 1
        except BaseException as error:
            self.failure = error

    def end(self) -> int:
        """Stop it; how often it was done."""
        self.over.set()
        self.join(timeout=60)
        if self.failure is not None:
            raise self.failure
        return self.done


def mixed(run: Run) -> None:
    """One broker for as many seconds as there are cycles."""
    large = run.wanted >= LARGE
    broker = SteppedBroker(data=run.directory / "data", settings=SETTINGS)
    stolen = StolenTime()
    stolen.start()
    history = History()
    with broker, ExitStack() as stack:
        tiny = stack.enter_context(RawConnection(broker.address, timeout_s=30))
        body = batch_body({b"x": ""}) * TINY

        def send_tiny() -> None:
            answer = tiny.call(SEND_BATCH, send_fields("tiny", 0, m=True), body)
            assert answer.code == SUCCESS, answer

        def send_timed() -> None:
            send_timers(broker.address, [int(time.time() * 1_000) + TIMERS_AHEAD_MS] * TIMERS)

        def send_bad() -> None:
            frames = [changed(run.rng, run.seed) for _ in range(BAD_FRAMES)]
            with suppress(TimeoutError):
                stranger(broker, frames)

        def scrape() -> None:
            assert list(metrics_of(broker))

        works = {
            "tiny batches": Works(TINY_EVERY_S, send_tiny),
            "hundreds of timers": Works(TIMERS_EVERY_S, send_timed),
            "scores of bad frames": Works(BAD_EVERY_S, send_bad),
            "scrapes": Works(SCRAPES_EVERY_S, scrape),
        }
        tiny.call(SEND, send_fields(TOPIC, 0), b"")
        crowd = stack.enter_context(Crowd(broker.address, log=run.directory / "crowd.log"))
        crowd.open([Member(f"10.1.0.1@{n}", f"g{n}", TOPIC, (n % QUEUES,)) for n in range(READERS)])
        load = Load(broker.address, history, seed=str(run.seed), shape=SHAPE)
        for work in works.values():
            work.start()
        broker.let_run(FIRST_S)
        began, before = time.monotonic(), rss_anon(broker.child.pid)
        for _ in run.cycles():
            broker.let_run(1.0)
        for name, work in works.items():
            run.counts[name] = work.end()
        load.join()
        run.counts["KiB of RSS more"] = (rss_anon(broker.child.pid) - before) >> 10
        found = [one for one in Reader(SHAPE).read_on(broker.address) if one.uid]
        history.check(found)
        run.counts["acknowledged"] = len(history.acknowledged)
        crowd.leave()
        tiny.close()
        eventually(lambda: not waiting_in_pools(broker), within_s=30, what="pools are empty")
        eventually(
            lambda: open_descriptors(broker.child.pid)["socket"] <= IDLE_SOCKETS,
            within_s=30,
            what="their sockets are gone",
        )
        assert broker.stop() == 0
    stolen.look()
    stolen.over.set()
    check_log(broker)
    found_wrong = verify(broker.data)
    assert found_wrong.sound, found_wrong.damage[:5]
    steps = [one for one in steps_in(broker.steps_path) if one.at_s >= began]
    judged = sorted((one for one in steps if not stolen.within(one)), key=lambda one: -one.cpu_ms)
    run.counts["steps judged"] = len(judged)
    run.counts["longest step us"] = round(1_000 * judged[0].cpu_ms) if judged else 0
    limit_ms = (STEP_MS if large else SMALL_STEP_MS) * slowness()
    assert not judged or judged[0].cpu_ms <= limit_ms, judged[:5]


def check_log(broker: SteppedBroker) -> None:
    """Nothing failed."""
    for event in events(broker.log.read_text(encoding="utf-8", errors="replace")):
        assert event["level"] != "error", str(event)[:3_000]
        assert event["event"] != "request.failed", str(event)[:3_000]


M1 = Campaign(
    key="M1",
    title="everything at once: sends, tiny batches, timers, held pulls, scrapes, bad frames",
    unit="seconds",
    t1=4,
    t2=600,
    run=mixed,
)
