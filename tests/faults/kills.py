"""Kill -9 of the real broker: under load, around the end of a segment, in a stop, in a recovery.

What it acknowledged is there when it serves again: nothing lost, nothing altered, no gap, no
disorder, and found by its key as well. Kill -9 keeps the page cache, so this holds for ASYNC_FLUSH
as it does for SYNC_FLUSH. Every few cycles a new directory begins, which bounds what is remembered.
"""

import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aerobee.store.tools.verify import verify
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign, Cycle, Run
from tests.kit.health import slowness, waited_s
from tests.kit.history import CRIMES, Attempt, History, Stored
from tests.kit.load import SEPARATOR, Load, Reader, Shape
from tests.kit.odd_broker import dies_at
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, properties_text, send_fields, topic_fields
from tests.kit.reading import find_by_key
from tests.kit.waiting import eventually

SHAPE = Shape()
SEGMENT_BYTES = 1_048_576
SMALL_LOG = {"mappedFileSizeCommitLog": SEGMENT_BYTES}
ACKS_MAX = 1_000
"""A kill under load comes after so many acknowledgements at most."""
CYCLES_PER_DIRECTORY = 40
READY_WITHIN_S = 2.0
STOPS_WITHIN_S = 0.4
"""A kill in a stop comes within this time, a little more than a stop takes."""
NEAR = 5
"""How many records from the end of a segment a kill around it comes, at most."""
ROLL_BODY_BYTES = 1_000
FILLING_MAX_BYTES = 200_000
NESTED = 5
RECOVERY_CHANGES = 100
"""About as many changes of files as a start makes that recovers a kill."""
SEND_MESSAGE_V2, CREATE_TOPIC, SUCCESS = 310, 17, 0
KEYS_LOOKED_UP = 3
INDEXED_WITHIN_S = 10.0


class Life:
    """One directory, the brokers that served it, and all that was sent to them."""

    def __init__(self, run: Run, data: Path, flush: str) -> None:
        self.run = run
        self.broker = BrokerProcess(data=data, settings={"flushDiskType": flush, **SMALL_LOG})
        self.history = History()
        self.reader = Reader(SHAPE)
        self._attempts = 0
        self._acknowledged = 0

    def load(self, cycle: Cycle) -> Load:
        """Producers begin to send."""
        return Load(self.broker.address, self.history, seed=f"kill{cycle.number}", shape=SHAPE)

    def start(self) -> None:
        """Start again, in time, and look whether everything is there."""
        began = time.monotonic()
        ready = self.broker.start()
        took_s = time.monotonic() - began - waited_s(self.broker.child.pid)
        self.run.worst("slowest start ms", round(took_s * 1_000))
        in_time = took_s <= READY_WITHIN_S or took_s <= READY_WITHIN_S * slowness()
        assert in_time, f"ready after {took_s:.2f} s"
        if not ready.recovered.startswith("abnormal"):
            self.run.counts["clean"] += 1
        self.check(self.reader)

    def check(self, reader: Reader) -> None:
        """Everything that was acknowledged is there, and nothing else but what was sent."""
        judge(self.run, self.history, reader.read_on(self.broker.address))

    def look_up(self, attempts: list[Attempt]) -> None:
        """These are found by their keys."""
        with RawConnection(self.broker.address) as connection:
            for attempt in attempts:
                look = partial(find_by_key, connection, attempt.topic, attempt.uid)
                found = eventually(
                    look,
                    within_s=INDEXED_WITHIN_S,
                    what=f"{attempt.uid}, acknowledged at {attempt.acked_at}, found by its key",
                )
                assert [one.body for one in found] == [attempt.body], attempt.uid
                self.run.counts["found by key"] += 1

    def count(self) -> None:
        """Add what the last cycle did to the counts of the run."""
        tried, acked = len(self.history.attempts), len(self.history.acknowledged)
        self.run.counts["sent"] += tried - self._attempts
        self.run.counts["acknowledged"] += acked - self._acknowledged
        self._attempts, self._acknowledged = tried, acked

    def end(self) -> None:
        """The last look: everything again from the begin, and the files by themselves."""
        self.check(Reader(SHAPE))
        self.broker.stop()
        found = verify(self.broker.data)
        assert found.sound, found.damage[:5]
        assert len(self.history.acknowledged) > self.run.executed % CYCLES_PER_DIRECTORY, "no load"


def judge(run: Run, history: History, stored: Sequence[Stored]) -> None:
    """Count what is wrong by its kind, none of it as well. Raises: AssertionError."""
    run.counts.update(dict.fromkeys(CRIMES, 0))
    broken = history.verdict(stored)
    run.counts.update(line.partition(":")[0] for line in broken)
    assert not broken, "\n".join([history.summary(stored), *broken])


def under_load(life: Life, cycle: Cycle) -> None:
    """Kill it in the middle of its work."""
    load = life.load(cycle)
    try:
        load.wait_for_acks(cycle.rng.randint(1, ACKS_MAX), within_s=60)
    finally:
        life.broker.kill()
        load.join()
    assert not load.refused, load.refused[:5]


def in_a_stop(life: Life, cycle: Cycle) -> None:
    """Ask it to stop, and do not wait for the end of it."""
    load = life.load(cycle)
    try:
        load.wait_for_acks(cycle.rng.randint(1, ACKS_MAX), within_s=60)
        life.broker.child.signal(signal.SIGTERM)
        life.broker.let_run(cycle.rng.uniform(0, STOPS_WITHIN_S))
    finally:
        life.broker.kill()
        load.join()
    life.run.counts["kills in a stop"] += 1


def around_a_roll(life: Life, cycle: Cycle) -> None:
    """Kill it a few records before or behind the end of a segment, some sends still under way."""
    sender = Sender(life, cycle)
    with RawConnection(life.broker.address) as connection:
        ends = [sender.send(connection, ROLL_BODY_BYTES) for _ in range(2)]
        size = ends[1] - ends[0]
        left = SEGMENT_BYTES - ends[1] % SEGMENT_BYTES - size
        while left > 3 * NEAR * size:
            filling = min(left - 2 * NEAR * size, FILLING_MAX_BYTES)
            sender.send(connection, filling)
            left -= size - ROLL_BODY_BYTES + filling
        for _ in range(left // size + cycle.rng.randint(-NEAR, NEAR)):
            sender.send(connection, ROLL_BODY_BYTES)
        for _ in range(cycle.rng.randint(0, 3)):
            sender.ask(connection, ROLL_BODY_BYTES)
        life.broker.kill()
    life.run.counts["kills around a roll"] += 1


class Sender:
    """Sends one message after the other, and knows where the last one lies in the log."""

    def __init__(self, life: Life, cycle: Cycle) -> None:
        self.history = life.history
        self.name = f"roll{cycle.number}"
        self.topic = cycle.rng.choice(SHAPE.topics)
        self.number = 0

    def ask(self, connection: RawConnection, size: int) -> str:
        """Send the next message, with so many bytes; its id."""
        self.number += 1
        uid = f"{self.name}.{self.number:04}"
        body = (uid.encode() + SEPARATOR).ljust(size, b".")
        self.history.tried(uid, self.name, self.topic, 0, body)
        connection.ask(
            SEND_MESSAGE_V2, send_fields(self.topic, 0, i=properties_text(KEYS=uid)), body
        )
        return uid

    def send(self, connection: RawConnection, size: int) -> int:
        """Send the next one and wait for its answer; its place in the log."""
        uid = self.ask(connection, size)
        answer = connection.hear()
        assert answer.code == SUCCESS, answer
        self.history.acked(uid, int(answer.ext["queueOffset"]))
        return int(answer.ext["msgId"][16:], 16)


KINDS = {under_load: 70, around_a_roll: 20, in_a_stop: 10}
"""How a cycle ends, and how often of a hundred."""


def lives(run: Run, flush: str) -> Iterator[tuple[Life, Cycle]]:
    """A running broker for each cycle, on a new directory every now and then."""
    while run.more:
        with a_life(run, flush) as life:
            for _ in range(CYCLES_PER_DIRECTORY):
                yield life, run.cycle()
                life.count()
                run.done()
                if not run.more:
                    break
            life.end()


@contextmanager
def a_life(run: Run, flush: str) -> Iterator[Life]:
    """A broker on a directory of its own; what is running at the end is killed."""
    life = Life(run, run.directory / f"from-{run.number}", flush)
    with life.broker:
        make_topics(life.broker.address, SHAPE)
        yield life


def make_topics(address: str, shape: Shape) -> None:
    """Every topic of the load, so that reading one which nobody wrote to is no error."""
    with RawConnection(address) as connection:
        for topic in shape.topics:
            answer = connection.call(CREATE_TOPIC, topic_fields(topic, shape.queues))
            assert answer.code == SUCCESS, answer


def kills(run: Run, flush: str) -> None:
    """R1 and R1b: kill, start, look at everything, again and again."""
    for life, cycle in lives(run, flush):
        kind = cycle.rng.choices([*KINDS], [*KINDS.values()])[0]
        before = len(life.history.attempts)
        kind(life, cycle)
        life.start()
        sent = [*life.history.attempts.values()][before:]
        acked = [attempt for attempt in sent if attempt.acked_at is not None]
        last = acked[-NEAR:] if kind is around_a_roll else []
        life.look_up(last + cycle.rng.sample(acked, min(KEYS_LOOKED_UP, len(acked))))


def kills_in_recovery(run: Run) -> None:
    """R21: a kill, and then kills of the starts that were to recover from it."""
    for life, cycle in lives(run, "SYNC_FLUSH"):
        under_load(life, cycle)
        for _ in range(NESTED):
            kill_a_start(life.broker, run, cycle.rng)
        life.broker.module = ("aerobee",)
        life.start()


def kill_a_start(broker: BrokerProcess, run: Run, rng: random.Random) -> None:
    """Half of the kills come at a change of a file, half at some time."""
    run.counts["kills of a start"] += 1
    if rng.random() < 0.5:
        broker.module = ("aerobee",)
        broker.launch()
        broker.let_run(rng.uniform(0.1, 1.0))
    else:
        broker.module = dies_at(rng.randint(1, RECOVERY_CHANGES))
        try:
            broker.start()
        except DidNotStart:
            run.counts["kills at a change of the disk"] += 1
    broker.kill()


R1 = Campaign(
    key="R1",
    title="kill -9 under load, SYNC_FLUSH",
    unit="kills",
    t1=8,
    t2=1_000,
    run=lambda run: kills(run, "SYNC_FLUSH"),
)
R1B = Campaign(
    key="R1b",
    title="kill -9 under load, ASYNC_FLUSH",
    unit="kills",
    t1=5,
    t2=1_000,
    run=lambda run: kills(run, "ASYNC_FLUSH"),
)
R21 = Campaign(
    key="R21",
    title=f"kill -9 under load, then of {NESTED} starts that recover",
    unit="rounds",
    t1=2,
    t2=200,
    run=kills_in_recovery,
)
