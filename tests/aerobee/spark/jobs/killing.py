"""Archive jobs and their broker, killed at random moments while messages come in."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.spark.jobs.archive import Archive, Outcome, archive
from aerobee.spark.jobs.places import AlreadyRunningError
from tests.aerobee.spark.jobs.lakes import (
    Message,
    messages,
    sealed,
    text_of,
)
from tests.kit.process import Child
from tests.kit.raw_client import Closed, RawConnection, batch_body, send_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pyspark.sql import SparkSession

    from tests.conftest import AnyBroker

ROOT = Path(__file__).parents[4]
SEND_BATCH = 320
PER_REQUEST = 40
SEGMENTS_PER_CYCLE = 4
TOPIC = "orders"
START_WITHIN_S = 240.0
STEP_WITHIN_S = 240.0


class Feeder(threading.Thread):
    """Sends message after message to one queue; what was acknowledged must not be lost."""

    def __init__(self, broker: AnyBroker) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.acked: list[Message] = []
        self.unsure: list[Message] = []
        """Sent, but without an answer: they may be there."""
        self.enough = threading.Event()
        self.goal = threading.Semaphore(0)

    def run(self) -> None:
        numbers = count(step=PER_REQUEST)
        connection: RawConnection | None = None
        while not self.enough.is_set():
            if not self.goal.acquire(timeout=0.2):
                continue
            said = messages(TOPIC, 0, PER_REQUEST, first=next(numbers))
            body = batch_body({one.body: text_of(one) for one in said})
            try:
                connection = connection or RawConnection(self.broker.address)
                answer = connection.call(SEND_BATCH, send_fields(TOPIC, 0, m=True), body)
                (self.unsure if answer.code else self.acked).extend(said)
            except (Closed, OSError):
                self.unsure.extend(said)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def more(self, requests: int) -> None:
        """Let it send so many more."""
        self.goal.release(requests)


def start_victims(
    count: int, store: Path, output: str | Path, logs: Path, *more: str
) -> list[Child]:
    """Jobs that wait for the word; their JVMs start at the same time. `more`: as `victim` says."""
    module = "tests.aerobee.spark.jobs.victim"
    command = [sys.executable, "-m", module, str(store), str(output), *more]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return [
        Child(
            command,
            log=logs / f"victim-{number}.log",
            env=env | {"SPARK_LOCAL_DIRS": str(logs / f"local-{number}")},
        )
        for number in range(count)
    ]


def kill_all(feeder: Feeder, victims: Sequence[Child], lake: Path, random: Random) -> None:
    """Each job is killed at some moment of its work, and so is the broker, which comes back."""
    broker = feeder.broker
    for number, victim in enumerate(victims):
        grow(feeder, broker, (number + 1) * SEGMENTS_PER_CYCLE)
        victim.read_until("ready", within_s=START_WITHIN_S)
        victim.write_line("go")
        wait_for_progress(lake, broker.data, random)
        feeder.more(random.randrange(20))
        for kill in random.sample([victim.kill, broker.kill], 2):
            threading.Event().wait(random.random() / 3)
            kill()
        broker.start()


def grow(feeder: Feeder, broker: AnyBroker, segments: int) -> None:
    """Wait until so many segments are full."""

    def there() -> bool:
        feeder.more(2)
        return len(sealed(broker.data)) >= segments

    eventually(there, within_s=STEP_WITHIN_S, what=f"{segments} full segments")


def wait_for_progress(lake: Path, store: Path, random: Random) -> None:
    """Until the job has begun to write, or has marked one or two segments more."""
    before = len(list((store / "archive").glob("*.done")))
    more = random.randrange(3)

    def reached() -> bool:
        if more:
            return len(list((store / "archive").glob("*.done"))) >= before + more
        return any(lake.glob(".spark-staging*")) or any(lake.glob("_temporary*"))

    eventually(reached, within_s=STEP_WITHIN_S, what=f"{more} marks more", every_s=0.01)


def archive_if_free(spark: SparkSession, task: Archive) -> Outcome | None:
    """What came of it; None while the JVM of the last victim is on its way out."""
    with suppress(AlreadyRunningError):
        return archive(spark, task)
    return None
