"""A store directory goes from broker to broker, ours and Java's, with a kill at most hand-overs.

Whoever opens it shows all that was ever acknowledged, wherever and however the one before ended;
now and then starts are killed, too, so that one broker recovers what another had half recovered.
At the end a Java consumer reads everything.
"""

import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from aerobee.remoting.wire.relaxed_json import decode
from aerobee.store.tools.verify import Verification, verify
from tests.faults.kills import kill_a_start
from tests.kit.books import DELAYED, DELAYS_MS, Books
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign, Cycle, Run
from tests.kit.java import toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker
from tests.kit.load import Load, Shape, stored
from tests.kit.ports import free_block
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

OURS = "aerobee"
TURNS = (OURS, "4.9.7", OURS, "5.5.0")
"""Who serves the directory, one after the other."""
CLEAN_EVERY = 5
"""So does every turn end cleanly now and then; all other hand-overs are kills."""
SHAPE = Shape(
    topics=("moved-a", "moved-b"),
    max_body_bytes=8_192,
    tags=("red", "green", "blue"),
    text=True,
)
ACKS_MAX = 400
STOPS_WITHIN_S = 0.5
DELAYED_EACH = 6
KEYS_LOOKED_UP = 12
CYCLES_PER_DIRECTORY = 25
STARTS_KILLED_MAX = 2
JAVA_STARTS_WITHIN_S = 3.0
DELIVERED_WITHIN_S = 30.0
READ_WITHIN_S = 50.0
READER_HEAP_MIB = 256
"""It keeps all that it reads: some 40 MB, twice."""
SAVED_WITHIN_S = 5.0
OUR_SETTINGS = {"flushConsumerOffsetInterval": 200, "brokerName": "broker-a"}
JAVA_SETTINGS = {"messageIndexSafe": "true"}
"""Without it Java forgets keys when it recovers: it drops index files and begins behind them."""


class Relay:
    """One directory, the brokers that take turns on it, and the books."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.run = run
        self.directory = directory
        self.data = directory / "store"
        self.books = Books(SHAPE, counts=run.counts)
        self.ports = free_block()
        self.brokers: dict[str, BrokerProcess | JavaBroker] = {
            name: self._java(name) for name in TURNS if name != OURS
        }
        self.ours = BrokerProcess(data=self.data, ports=self.ports, settings=OUR_SETTINGS)
        self.brokers[OURS] = self.ours
        self.name = OURS

    def _java(self, version: str) -> JavaBroker:
        return JavaBroker(
            toolkit=toolkit(version),
            data=self.data,
            home=self.directory / version,
            ports=self.ports,
            settings=JAVA_SETTINGS,
        )

    @property
    def broker(self) -> BrokerProcess | JavaBroker:
        """Whose turn it is."""
        return self.brokers[self.name]

    def kill_some_starts(self, rng: random.Random) -> None:
        """Of any of the brokers, while it recovers what the one before left."""
        for _ in range(rng.randint(1, STARTS_KILLED_MAX)):
            ours = rng.random() < 0.75
            self.books.starts(java=not ours)
            if ours:
                kill_a_start(self.ours, self.run, rng)
            else:
                java = self.brokers[rng.choice(TURNS[1::2])]
                java.launch().let_run(rng.uniform(1.0, JAVA_STARTS_WITHIN_S))
                java.kill()
                self.run.counts["kills of a Java start"] += 1
            self.books.killed()

    def start(self, name: str) -> None:
        """The next turn."""
        self.name = name
        self.ours.module = ("aerobee",)
        self.books.starts(java=name != OURS)
        began = time.monotonic()
        self.broker.start()
        if name == OURS:
            self.run.worst("slowest start of ours ms", round((time.monotonic() - began) * 1_000))

    def check(self, rng: random.Random) -> None:
        """Everything, and some keys: of the newest messages, and of any."""
        acked = self.books.history.acknowledged
        some = acked[-KEYS_LOOKED_UP // 2 :] + rng.sample(acked, min(len(acked), KEYS_LOOKED_UP))
        with RawConnection(self.broker.address) as connection:
            self.books.check(connection, rng.choice(SHAPE.tags), some)

    def prepare(self, cycle: Cycle) -> Shape:
        """A new topic and group, progress of consumers, messages for later; the load to come."""
        rng, books = cycle.rng, self.books
        topic, group = f"moved-{cycle.number}", f"group-{cycle.number}"
        with RawConnection(self.broker.address) as connection:
            if not books.topics:
                for name in (*SHAPE.topics, DELAYED):
                    books.make_topic(connection, name, SHAPE.queues)
            books.make_topic(connection, topic, SHAPE.queues)
            books.make_group(connection, group, rng.randint(0, 16))
            for queue in rng.sample(sorted(books.queues), min(8, len(books.queues))):
                for name in rng.sample(sorted(books.groups), min(2, len(books.groups))):
                    known = books.offsets.get((name, *queue))
                    least = known.committed if known else 0
                    books.commit(
                        connection, name, queue, rng.randint(least, len(books.queues[queue]))
                    )
            for number in range(DELAYED_EACH):
                level = rng.choice([*DELAYS_MS])
                books.send_later(connection, f"later{cycle.number}.{number}", number % 4, level)
        if self.name == OURS:
            self._wait_until_saved()
        return replace(SHAPE, topics=(*SHAPE.topics, topic))

    def _wait_until_saved(self) -> None:
        """Ours saves offsets from the first period on; Java only after its first ten seconds."""
        file = self.data / "config" / "consumerOffset.json"
        wanted = {
            (f"{topic}@{group}", str(queue_id)): offset.committed
            for (group, topic, queue_id), offset in self.books.offsets.items()
        }

        def saved() -> bool:
            table = decode(file.read_bytes())["offsetTable"] if file.exists() else {}
            return all(table.get(name, {}).get(q, 0) == at for (name, q), at in wanted.items())

        eventually(saved, within_s=SAVED_WITHIN_S, what="consumer offsets in their file")
        self.books.offsets_are_saved()

    def work_and_end(self, cycle: Cycle) -> None:
        """Load, and the end of it: mostly a kill in its midst, or in a stop, or a clean stop."""
        shape, rng = self.prepare(cycle), cycle.rng
        clean = cycle.number % CLEAN_EVERY == CLEAN_EVERY - 1
        load = Load(
            self.broker.address, self.books.history, seed=f"move{cycle.number}", shape=shape
        )
        try:
            load.wait_for_acks(rng.randint(1, ACKS_MAX), within_s=60)
            if clean:
                load.join()
                self.stop()
            elif rng.random() < 0.15:
                self.broker.child.signal(signal.SIGTERM)
                self.broker.child.let_run(rng.uniform(0, STOPS_WITHIN_S))
                self.run.counts["kills in a stop"] += 1
        finally:
            if not clean:
                self.broker.kill()
                self.books.killed()
                self.run.counts["kills"] += 1
            load.join()
        assert not load.refused or self.run.counts["kills in a stop"], load.refused[:5]

    def stop(self) -> None:
        """Cleanly, which is what its exit code and the abort file say."""
        self.broker.stop()
        assert not (self.data / "abort").exists(), f"{self.name} did not stop cleanly"
        self.books.offsets_are_saved()
        self.run.counts["clean stops"] += 1

    def end(self, rng: random.Random) -> None:
        """Ours once more: delayed messages come, a Java consumer reads all, the files are sound."""
        self.start(OURS)
        self.check(rng)
        with RawConnection(self.broker.address) as connection:
            eventually(
                lambda: not self.books.check_delayed(connection),
                within_s=DELIVERED_WITHIN_S,
                what="every delayed message",
            )
        self._second_opinion()
        self.stop()
        found = verify(self.data, read_json=decode)
        assert found.sound, found.damage[:5]
        self._count(found)

    def _count(self, found: Verification) -> None:
        delayed = sum(len(r) for (topic, _), r in self.books.queues.items() if topic == DELAYED)
        self.run.counts["acknowledged"] += len(self.books.history.acknowledged)
        self.run.counts["messages"] += sum(map(len, self.books.queues.values()))
        self.run.counts["delayed"] += len(self.books.delayed)
        self.run.counts["delayed that came again"] += delayed - len(self.books.delayed)
        self.run.counts["log files"] += found.segments
        self.run.counts["index files"] += found.index_files

    def _second_opinion(self) -> None:
        """A Java client gets each message once, as it is in the books."""
        kept = [record for records in self.books.queues.values() for record in records]
        client = JavaClient(toolkit("5.5.0"), self.directory / "client", heap_mib=READER_HEAP_MIB)
        client.consumer("c", self.ours.namesrv_address, "\n".join(self.books.topics))
        got = client.received("c", len(kept), within_s=READ_WITHIN_S)
        client.child.kill()
        seen = [
            (m.topic, m.queue_id, m.queue_offset, m.keys, m.tags, m.body)
            for m in got
            if (m.topic, m.queue_id, m.queue_offset) not in self.books.torn
        ]
        wanted = [
            (r.topic, r.queue_id, r.queue_offset, uid, SHAPE.tag(uid), r.body.decode())
            for r in kept
            if (r.topic, r.queue_id, r.queue_offset) not in self.books.torn
            for uid in [stored(r).uid]
        ]
        assert sorted(seen) == sorted(wanted), f"{len(seen)} of {len(wanted)} messages"
        self.run.counts["read by a Java consumer"] += len(got)


@contextmanager
def a_relay(run: Run) -> Iterator[Relay]:
    """Brokers on a directory of their own; what is running at the end is killed."""
    relay = Relay(run, run.directory / f"from-{run.number}")
    relay.directory.mkdir()
    with ExitStack() as running:
        for broker in relay.brokers.values():
            running.push(broker)
        yield relay


def exchanges(run: Run) -> None:
    """R20: hand over, look at everything, work, kill."""
    while run.more:
        with a_relay(run) as relay:
            for number in range(CYCLES_PER_DIRECTORY):
                cycle = run.cycle()
                if number and relay.books.kills_ms and cycle.rng.random() < 0.5:
                    relay.kill_some_starts(cycle.rng)
                relay.start(TURNS[cycle.number % len(TURNS)])
                if number:
                    relay.check(cycle.rng)
                relay.work_and_end(cycle)
                run.done()
                if not run.more:
                    break
            relay.end(run.rng)


R20 = Campaign(
    key="R20",
    title="hand-overs between our broker and Java's 4.9.7 and 5.5.0, most by kill -9",
    unit="alternations",
    t1=5,
    t2=50,
    run=exchanges,
    java=True,
)
