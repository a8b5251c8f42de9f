"""No descriptor to be had, at any moment: a flood of connections over everything that opens files.

A broker with few descriptors serves sends that roll segments, queues and index files, saves its
tables and timers, reads what is cold and is scraped, while waves of connections take every
descriptor that is left. When they are gone it works as before and without a restart: sends and
pulls go on, nothing acknowledged is lost, timers come, its descriptors are back, and it stops
cleanly or survives a kill.
"""

from __future__ import annotations

import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aerobee.store.tools.verify import verify
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.health import events, metrics_of, open_descriptors, waiting_in_pools
from tests.kit.history import History
from tests.kit.load import Load, Reader, Shape
from tests.kit.odd_broker import few_files
from tests.kit.ports import HOST
from tests.kit.raw_client import (
    Closed,
    RawConnection,
    properties_text,
    pull_fields,
    send_fields,
    topic_fields,
)
from tests.kit.reading import read_topic
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.kit.campaign import Run

MiB = 1_048_576
SEND, PULL, UPDATE_OFFSET, CREATE_TOPIC, SUCCESS = 310, 11, 15, 17, 0
TIMED, NEW = "timed", "new"
SHAPE = Shape(
    topics=("flood-a", "flood-b"),
    queues=4,
    connections=2,
    window=4,
    max_body_bytes=2_048,
    rest_s=0.01,
)
LIMITS = (120, 200)
"""Descriptors that the broker may have."""
BEYOND = 120
"""Connections of a wave beyond those."""
WAVES = (2, 4)
WAVE_S = (0.1, 1.2)
CALM_S = (0.0, 0.3)
ACKED_MIN = 50
ASKED_FOR_S = 0.3
"""How long a scrape waits in a flood, where the listener may have no descriptor for it."""
WORKS_WITHIN_S = 20.0
OPEN_MAX = 3
"""Descriptors of one file."""
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 2 * MiB,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxMessageSize": 65_536,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "flushConsumerOffsetInterval": 200,
    "timerFlushIntervalMs": 200,
}
EXPECTED = frozenset(
    {
        "cleanup.disk_full",
        "commit_log.segment_refused",
        "flush.queue_write_failed",
        "table.save_failed",
        "timer.read_failed",
        "timer.save_failed",
    }
)
"""Errors that pass when there are descriptors again."""
NOT_OURS = "accept returned EMFILE"
"""Begins what the listener of the probes says of the same."""


def wave(broker: BrokerProcess, count: int) -> list[socket.socket]:
    """So many connections that say nothing, as far as they get."""
    sockets = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((HOST, broker.ports.listen))
        sockets.append(one)
    return sockets


@dataclass(slots=True)
class Chores:
    """Everything beside the load that opens files, over connections made before the flood."""

    broker: BrokerProcess
    connection: RawConnection
    number: int = 0
    timers: set[bytes] = field(default_factory=set)
    """Bodies of those that were granted."""
    tried: set[bytes] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    """Topics that were granted."""

    def one(self, rng: random.Random) -> None:
        """Any of them. What is refused now is not done."""
        self.number += 1
        steps: list[Callable[[random.Random], None]] = [
            self._scrape, self._timer, self._timer, self._read, self._commit, self._topic,
        ]  # fmt: skip
        rng.choice(steps)(rng)

    def _scrape(self, rng: random.Random) -> None:
        with suppress(OSError):
            list(metrics_of(self.broker, within_s=ASKED_FOR_S))

    def _timer(self, rng: random.Random) -> None:
        body = b"timer %d" % self.number
        self.tried.add(body)
        text = properties_text(TIMER_DELAY_MS=str(rng.randrange(500, 2_000)))
        if self.connection.call(SEND, send_fields(TIMED, 0, i=text), body).code == SUCCESS:
            self.timers.add(body)

    def _read(self, rng: random.Random) -> None:
        """From the begin, which is cold by now."""
        fields = pull_fields("readers", rng.choice(SHAPE.topics), rng.randrange(SHAPE.queues), 0)
        self.connection.call(PULL, fields)

    def _commit(self, rng: random.Random) -> None:
        where = {"consumerGroup": "readers", "topic": SHAPE.topics[0], "queueId": 0}
        self.connection.call(UPDATE_OFFSET, {**where, "commitOffset": self.number})

    def _topic(self, rng: random.Random) -> None:
        """A new one, with new queues."""
        topic = f"{NEW}-{self.number}"
        if self.connection.call(CREATE_TOPIC, topic_fields(topic, 8)).code == SUCCESS:
            self.made.add(topic)
            self.connection.call(SEND, send_fields(topic, rng.randrange(8)), b"first")


def flood(run: Run) -> None:
    """Wave after wave, then the promises."""
    for cycle in run.cycles():
        rng = cycle.rng
        limit = rng.randint(*LIMITS)
        flush = {"flushDiskType": rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])}
        data = run.directory / f"flood-{cycle.number}" / "data"
        data.parent.mkdir()
        broker = BrokerProcess(data=data, settings=SETTINGS | flush, module=few_files(limit))
        history = History(pipelined=False)
        with broker, RawConnection(broker.address, timeout_s=30) as connection:
            for topic in (*SHAPE.topics, TIMED):
                made = connection.call(CREATE_TOPIC, topic_fields(topic, SHAPE.queues))
                assert made.code == SUCCESS, made
            chores = Chores(broker, connection)
            load = Load(broker.address, history, seed=str(rng.random()), shape=SHAPE)
            # Its connections, too, were made before the flood.
            load.wait_for_acks(ACKED_MIN, within_s=WORKS_WITHIN_S)
            _waves(run, rng, chores, limit)
            load.join()
            run.counts["acknowledged"] += len(history.acknowledged)
            run.counts["refused meanwhile"] += len(load.refused)
            _works(broker, chores, history, load)
            _is_back(broker)
            if rng.random() < 0.5:
                broker.kill()
                broker.start()
                _works(broker, chores, history, load)
            code = broker.stop()
            assert code == 0, broker.child.errors()[-3_000:]
        found = verify(data)
        assert found.sound, found.damage[:5]
        log = list(events(broker.log.read_text()))
        run.counts["floods that the broker noticed"] += any(
            one["event"] == "connection.refused" for one in log
        )
        errors = [one for one in log if one["level"] == "error" and one["event"] not in EXPECTED]
        wrong = [one for one in errors if not one["event"].startswith(NOT_OURS)]
        assert not wrong, wrong[:3]
        shutil.rmtree(data.parent)


def _waves(run: Run, rng: random.Random, chores: Chores, limit: int) -> None:
    """Connections come and go while the chores are done."""
    broker = chores.broker
    for _ in range(rng.randint(*WAVES)):
        sockets = wave(broker, limit + BEYOND)
        run.counts["connections"] += len(sockets)
        run.worst("descriptors", open_descriptors(broker.child.pid).total())
        try:
            for _ in range(rng.randrange(3, 12)):
                chores.one(rng)
            broker.let_run(rng.uniform(*WAVE_S))
        except Closed as closed:
            broker.let_run(1.0)
            state = "runs" if broker.child.running else "has ended"
            log = broker.child.errors()[-3_000:]
            raise AssertionError(f"cut off: {closed}; the broker {state}: {log}") from None
        finally:
            for one in sockets:
                one.close()
        broker.let_run(rng.uniform(*CALM_S))
        assert broker.child.running, broker.child.errors()[-3_000:]


def _works(broker: BrokerProcess, chores: Chores, history: History, load: Load) -> None:
    """Every queue takes and gives, and everything is there."""
    for topic in SHAPE.topics:
        for queue_id in range(SHAPE.queues):
            eventually(
                partial(_send, broker, history, topic, queue_id),
                within_s=WORKS_WITHIN_S,
                what=f"{topic}-{queue_id} takes messages",
            )
    history.check(Reader(SHAPE).read_on(broker.address))
    acked = len(history.acknowledged)
    assert acked >= ACKED_MIN, f"{acked} acknowledged; {load.refused[:3]} {load.ended}"
    with RawConnection(broker.address, timeout_s=30) as connection:
        came: set[bytes] = set()

        def complete() -> bool:
            came.update(record.body for record in read_topic(connection, TIMED, 0))
            return chores.timers <= came

        eventually(complete, within_s=WORKS_WITHIN_S, what="all timers", every_s=0.2)
        assert came <= chores.tried, came - chores.tried
        for topic in chores.made:
            assert connection.call(351, {"topic": topic}).code == SUCCESS, f"lost: topic {topic}"
    assert list(metrics_of(broker))


def _send(broker: BrokerProcess, history: History, topic: str, queue_id: int) -> bool:
    """One message over a new connection; whether it was taken."""
    uid = f"after.{len(history.attempts)}"
    body = uid.encode() + b"|"
    try:
        with RawConnection(broker.address) as connection:
            history.tried(uid, uid, topic, queue_id, body)
            answer = connection.call(SEND, send_fields(topic, queue_id), body)
    except (Closed, OSError):
        return False
    if answer.code == SUCCESS:
        history.acked(uid, int(answer.ext["queueOffset"]))
    return answer.code == SUCCESS


def _is_back(broker: BrokerProcess) -> None:
    """Nobody waits, and each file is open once or twice."""
    eventually(
        lambda: not waiting_in_pools(broker), within_s=WORKS_WITHIN_S, what="pools are empty"
    )
    eventually(
        lambda: open_descriptors(broker.child.pid)["socket"] <= IDLE_SOCKETS,
        within_s=WORKS_WITHIN_S,
        what="connections are gone",
    )
    opened = open_descriptors(broker.child.pid)
    often = {path: count for path, count in opened.items() if "/" in path and count > OPEN_MAX}
    assert not often, often


IDLE_SOCKETS = 15
"""Listeners, wake-ups, the broker's own to its name server, and one that is ours."""

W3 = Campaign(
    key="W3",
    title="no descriptor to be had, while everything opens files",
    unit="floods",
    t1=1,
    t2=200,
    run=flood,
)
