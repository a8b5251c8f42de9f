"""Kill -9 of the real broker under a load of everything that is more than sending and pulling.

Delay levels, timers, hand-backs, transactions, pops, orderly pops and committed offsets go on over
all lives of a directory; before it ends, the clients finish what they began, and then their books
must agree with what is there: see `promises` and `TransactionHistory` for the laws.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.store.tools.verify import verify
from tests.faults.feature_clients import (
    BROKER_NAME,
    LEVELS_MS,
    PAID,
    PARKED,
    QUEUES,
    RETRY,
    Bank,
    Client,
    Consumer,
    Parker,
    Popper,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.load import stored
from tests.kit.promises import Waits
from tests.kit.raw_client import Closed, RawConnection, topic_fields
from tests.kit.reading import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.campaign import Cycle, Run
    from tests.kit.raw_client import RawRecord

CREATE_TOPIC, SUCCESS = 17, 0
POPPED, ORDERLY = "popped", "orderly"
CYCLES_PER_DIRECTORY = 10
LIVES_S = (0.3, 3.0)
"""A kill comes after so long."""
PAUSE_S = 0.02
"""Between two steps of a client, at most."""
FINISHED_WITHIN_S = 60.0
SHOWN = 5
CRIMES = ("lost", "early", "ghost", "altered", "foreign", "doubled", "repeated", "skipped")
"""The first words of what may be wrong."""
SAVED_MS = (500, 5_000)
"""Periods in which offsets and progress are saved: within a life, or in none but the last."""
SAVED = ("flushConsumerOffsetInterval", "flushDelayOffsetInterval", "timerFlushIntervalMs")
SETTINGS: dict[str, object] = {
    "brokerName": BROKER_NAME,
    "mappedFileSizeCommitLog": 1_048_576,
    "messageDelayLevel": " ".join(f"{level_ms // 1_000}s" for level_ms in LEVELS_MS),
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "transactionCheckMax": 100,
    "reviveInterval": 200,
}


class Life:
    """One directory, the brokers that served it, and the clients of all of them."""

    def __init__(self, run: Run, rng: random.Random) -> None:
        self.run = run
        saved_ms = rng.choice(SAVED_MS)
        flush = {"flushDiskType": rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])}
        data = run.directory / f"from-{run.number}"
        settings = SETTINGS | dict.fromkeys(SAVED, saved_ms) | flush
        self.broker = BrokerProcess(data=data, settings=settings)
        self.waits = Waits()
        self.bank = Bank()
        self.poppers = [Popper(POPPED, orderly=False), Popper(ORDERLY, orderly=True)]
        self.consumer = Consumer(self.waits, saved_ms)
        self.clients: list[Client] = [
            Parker(self.waits),
            self.consumer,
            self.bank,
            *self.poppers,
        ]
        self.came: dict[tuple[str, int], list[RawRecord]] = {}

    def make_topics(self) -> None:
        """Every topic of the load, so that reading one which nothing came to is no error."""
        with RawConnection(self.broker.address) as connection:
            for topic in (PARKED, PAID, POPPED, ORDERLY):
                assert connection.call(CREATE_TOPIC, topic_fields(topic, QUEUES)).code == SUCCESS
            assert connection.call(CREATE_TOPIC, topic_fields(RETRY, 1)).code == SUCCESS

    @contextmanager
    def load(self, rng: random.Random) -> Iterator[None]:
        """The clients work until the end of the block. Raises: what one of them found wrong."""
        over = threading.Event()
        with ThreadPoolExecutor(len(self.clients)) as pool:
            work = [
                pool.submit(self._work, client, random.Random(rng.random()), over)
                for client in self.clients
            ]
            try:
                yield
            finally:
                over.set()
        for done in work:
            done.result()

    def _work(self, client: Client, rng: random.Random, over: threading.Event) -> None:
        with suppress(Closed, ConnectionError), RawConnection(self.broker.address) as connection:
            client.connected(connection)
            while not over.is_set():
                client.step(connection, rng)
                over.wait(rng.uniform(0, PAUSE_S))

    def cycle(self, cycle: Cycle) -> None:
        """Some work, a kill, and the next start."""
        with self.load(cycle.rng):
            self._live(cycle.rng)
            self.broker.kill()
            killed_at = time.monotonic()
        self._live_again(killed_at)

    def clean_cycle(self, cycle: Cycle) -> None:
        """Some work, a clean stop behind it, and the next start."""
        with self.load(cycle.rng):
            self._live(cycle.rng)
        self.broker.stop()
        self._live_again(time.monotonic())

    def _live(self, rng: random.Random) -> None:
        self.broker.let_run(rng.uniform(*LIVES_S))
        assert self.broker.child.running, self.broker.child.errors()[-2_000:]

    def _live_again(self, killed_at: float) -> None:
        self.broker.start()
        self.waits.life += 1
        for client in self.clients:
            client.killed_at = killed_at
            client.begin_life(self.waits.life)
        wrong = self.wrong()
        assert not wrong, "\n".join(wrong[:SHOWN])

    def wrong(self) -> list[str]:
        """What poppers found out already."""
        return [line for popper in self.poppers for line in popper.pops.wrong]

    # ── the end ──

    def end(self) -> None:
        """Everybody finishes what they began; then the books are closed."""
        for client in self.clients:
            client.closing = True
        until = time.monotonic() + FINISHED_WITHIN_S
        with self.load(random.Random(0)):
            while self.missing() and time.monotonic() < until:
                self.broker.let_run(0.2)
        wrong = self.wrong() + self.verdict()
        self.run.counts.update(dict.fromkeys(CRIMES, 0))
        self.run.counts.update(line.partition(":")[0] for line in wrong if ":" in line)
        assert not wrong, "\n".join(wrong[:SHOWN])
        self.broker.stop()
        log = self.broker.settings.get("storePathCommitLog")
        found = verify(self.broker.data, log=None if log is None else Path(str(log)))
        assert found.sound, found.damage[:SHOWN]
        self.count()

    def missing(self) -> bool:
        """Whether something has not come yet."""
        return any(line.startswith("lost") for line in self.verdict())

    def verdict(self) -> list[str]:
        """Every broken law in words."""
        self.read_on()
        visible = [stored(record) for record in self.records(PAID)]
        parked = [*self.records(PARKED), *self.records(RETRY)]
        popped = [line for popper in self.poppers for line in popper.pops.missing()]
        return self.bank.history.verdict(visible) + self.waits.verdict(parked) + popped

    def read_on(self) -> None:
        """What came since, of what comes by itself."""
        with RawConnection(self.broker.address) as connection:
            for topic, queues in ((PARKED, QUEUES), (PAID, QUEUES), (RETRY, 1)):
                for queue_id in range(queues):
                    came = self.came.setdefault((topic, queue_id), [])
                    came += read_topic(connection, topic, queue_id, start=len(came))

    def records(self, topic: str) -> list[RawRecord]:
        """What was read of a topic."""
        return [one for (name, _), came in self.came.items() if name == topic for one in came]

    def count(self) -> None:
        """Add what was done to the counts of the run; each of it was, or the load is none."""
        counts = Counter[str]()
        for client in self.clients:
            counts += client.counts
        granted = sum(wait.granted for wait in self.waits.asked.values())
        came = len(self.records(PARKED)) + len(self.records(RETRY))
        counts["came once more after a kill"] = came - granted
        self.run.counts.update(counts)


def kills(run: Run) -> None:
    """Work, kill, start, again and again; a new directory every now and then."""
    while run.more:
        life = Life(run, run.cycle().rng)
        with life.broker:
            life.make_topics()
            for _ in range(CYCLES_PER_DIRECTORY):
                life.cycle(run.cycle())
                run.done()
                if not run.more:
                    break
            life.end()


R1F = Campaign(
    key="R1f",
    title="kill -9 under delays, timers, hand-backs, transactions, pops, offsets",
    unit="kills",
    t1=4,
    t2=200,
    run=kills,
)
