"""The real broker under load, killed with SIGKILL at a random moment, again and again on one
directory.

What it acknowledged must be there when it serves again: nothing lost, nothing altered, no gap, no
disorder. Kill -9 keeps the page cache, so this holds for ASYNC_FLUSH as it does for SYNC_FLUSH.
"""

import random

import pytest

from tests.conftest import OURS, AnyBroker, StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.history import History, Stored
from tests.kit.load import Load, Shape, stored
from tests.kit.raw_client import RawConnection
from tests.kit.reading import read_topic

pytestmark = pytest.mark.faults

SEED = "kill"
SHAPE = Shape()
ACKS_PER_CYCLE = (1, 2_000)
"""A kill comes after so many acknowledgements, drawn anew for every cycle."""

SMALL_LOG = {"mappedFileSizeCommitLog": 1_048_576}


class Readers:
    """What is in all queues; reads on where it stopped, so a cycle costs only its own messages."""

    def __init__(self) -> None:
        self.found: list[Stored] = []
        self._next: dict[tuple[str, int], int] = {}

    def read_on(self, address: str) -> list[Stored]:
        with RawConnection(address) as connection:
            for topic in SHAPE.topics:
                for queue_id in range(SHAPE.queues):
                    self._read_queue(connection, topic, queue_id)
        return self.found

    def _read_queue(self, connection: RawConnection, topic: str, queue_id: int) -> None:
        start = self._next.get((topic, queue_id), 0)
        for record in read_topic(connection, topic, queue_id, start=start):
            self.found.append(stored(record))
            self._next[topic, queue_id] = record.queue_offset + 1


def one_cycle(broker: AnyBroker, history: History, rng: random.Random, cycle: int) -> None:
    """Load, and in the middle of it the end."""
    load = Load(broker.address, history, seed=f"{SEED}{cycle}", shape=SHAPE)
    try:
        load.wait_for_acks(rng.randint(*ACKS_PER_CYCLE), within_s=30)
    finally:
        broker.kill()
        load.join()
    assert not load.refused, load.refused[:5]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_what_was_acknowledged_survives_kill_9(
    flush: str, start_broker: StartBroker, pytestconfig: pytest.Config
) -> None:
    cycles: int = pytestconfig.getoption("--cycles")
    history = History(pipelined=pytestconfig.getoption("--against") == OURS)
    readers = Readers()
    rng = random.Random(f"{SEED}-{flush}")
    broker = start_broker(flushDiskType=flush, **SMALL_LOG)
    for cycle in range(cycles):
        one_cycle(broker, history, rng, cycle)
        broker.start()
        expect_recovery(broker)
        history.check(readers.read_on(broker.address))
    everything = Readers().read_on(broker.address)
    history.check(everything)
    broker.kill()
    assert len(history.acknowledged) > cycles, "no load, no proof"


def expect_recovery(broker: AnyBroker) -> None:
    if isinstance(broker, BrokerProcess):
        assert broker.ready is not None
        assert broker.ready.recovered.startswith("abnormal"), broker.ready


@pytest.mark.ours
def test_kills_during_recovery_lose_nothing(start_broker: StartBroker) -> None:
    history, rng = History(), random.Random(SEED)
    broker = start_broker(flushDiskType="SYNC_FLUSH", **SMALL_LOG)
    assert isinstance(broker, BrokerProcess)
    one_cycle(broker, history, rng, 0)
    for _ in range(5):
        broker.launch()
        broker.let_run(rng.uniform(0.1, 1.0))
        broker.kill()
    broker.start()
    expect_recovery(broker)
    history.check(Readers().read_on(broker.address))
