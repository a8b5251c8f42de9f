"""Power cuts under load, on a real file system that comes up again as it was at that instant.

SYNC_FLUSH: everything that was acknowledged is there. ASYNC_FLUSH: the log is a prefix of what it
was, and what is missing is not older than the two flush intervals together. Either way: topics and
groups that were made are there, and committed offsets went back by one save at most and never
beyond the log. Each run begins with a control: a broker whose syncs do nothing must lose messages,
or else the harness sees nothing.

Several cuts are taken of one life of a broker, while it works, and looked into when it is over.
"""

import json
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aerobee.store.errors import StoreRefused
from aerobee.testing import broker
from tests.faults.kills import (
    CREATE_TOPIC,
    NESTED,
    RECOVERY_CHANGES,
    SMALL_LOG,
    SUCCESS,
    judge,
    make_topics,
)
from tests.kit.broker_process import SMALL_FILES, BrokerProcess
from tests.kit.campaign import Campaign, Cycle, Run
from tests.kit.history import History, Place, Stored
from tests.kit.load import Load, Reader, Shape
from tests.kit.odd_broker import LIES, dies_at
from tests.kit.power_cut import Power, powered
from tests.kit.process import DidNotStart
from tests.kit.raw_client import Closed, RawConnection, pull_fields, topic_fields
from tests.kit.reading import committed_offsets, max_offset
from tests.kit.records import header_of
from tests.kit.store_model import log_records

CUTS_PER_LIFE = 10
CONTROL_CUTS = 3
ACKS_MAX = 300
"""Between two cuts."""
SHORT_S, LONG_S = (0.0, 0.03), (0.1, 1.5)
PAUSES_S = (SHORT_S,) * 9 + (LONG_S,)
"""Beyond the last of them: from and to, one of these."""
SHAPE = Shape(connections=3, window=4)
PULL_MESSAGE, UPDATE_OFFSET, GET_TOPIC_CONFIG = 11, 15, 351
CREATE_GROUP, GET_GROUP_CONFIG = 200, 352
RETRIES = 7
GROUP = "cut-off"
SAVE_MS = 1_000
SLACK_MS = 1_500
"""For a busy machine: how much later than planned a save or a sync may be over."""
TOPIC_PAUSE_S = 0.02
SYNC: dict[str, object] = {"flushDiskType": "SYNC_FLUSH"}
ASYNC: dict[str, object] = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": 200,
    "flushCommitLogThoroughInterval": 500,
}
SELDOM = {**ASYNC, "flushCommitLogLeastPages": 1_024, "mappedFileSizeCommitLog": 1 << 24}
"""Rarely because there is much to flush, mostly because it is time to."""
ASYNC_LOSS_MS = 700 + SLACK_MS
COMMON: dict[str, object] = {**SMALL_LOG, "flushConsumerOffsetInterval": SAVE_MS}


@dataclass(frozen=True, slots=True)
class Cut:
    """One power cut: the image, and what had been promised before it."""

    cycle: Cycle
    image: Path
    tick: int
    topics: int
    offsets: int
    """How many topics and offsets had been acknowledged, of those in `Admin`."""
    at_ms: int
    """When it was taken, or when the broker was killed before."""


class Admin:
    """Makes topics and groups and commits offsets until the power goes.

    Keeps what was acknowledged, in its order.
    """

    def __init__(self, address: str) -> None:
        self.topics: list[str] = []
        self.offsets: list[tuple[int, int]] = []
        """When, in ms, and the offset."""
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="admin")
        self._thread.start()

    def join(self) -> None:
        """Let it end."""
        self._over.set()
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with suppress(Closed, OSError), RawConnection(self._address) as connection:
            # The first pull makes the group.
            connection.call(PULL_MESSAGE, pull_fields(GROUP, SHAPE.topics[0], 0, 0))
            while not self._over.wait(TOPIC_PAUSE_S):
                self._make_pair(connection)
                self._commit(connection)

    def _make_pair(self, connection: RawConnection) -> None:
        """A topic and a group of its name."""
        topic = f"made-{len(self.topics)}"
        answer = connection.call(CREATE_TOPIC, topic_fields(topic))
        assert answer.code == SUCCESS, answer
        group = {"groupName": topic, "retryMaxTimes": RETRIES}
        answer = connection.call(CREATE_GROUP, body=json.dumps(group).encode())
        assert answer.code == SUCCESS, answer
        self.topics.append(topic)

    def _commit(self, connection: RawConnection) -> None:
        offset = max_offset(connection, SHAPE.topics[0], 0)
        place = {"consumerGroup": GROUP, "topic": SHAPE.topics[0], "queueId": 0}
        answer = connection.call(UPDATE_OFFSET, {**place, "commitOffset": offset})
        assert answer.code == SUCCESS, answer
        self.offsets.append((now_ms(), offset))


@dataclass(slots=True)
class Life:
    """A directory on the powered file system, from its first message to its last cut."""

    run: Run
    power: Power
    broker: BrokerProcess
    history: History = field(default_factory=History)
    cuts: list[Cut] = field(default_factory=list)
    admin: Admin | None = None
    died_ms: int | None = None
    """When it was killed; offsets committed before were saved until then."""

    def live(self, cuts: int) -> None:
        """Load, and so many cuts while it works."""
        with self.broker:
            make_topics(self.broker.address, SHAPE)
            seed = f"cut{self.run.number}"
            load = Load(self.broker.address, self.history, seed=seed, shape=SHAPE)
            self.admin = Admin(self.broker.address)
            acks = 0
            try:
                for ahead in range(cuts):
                    cycle = self.run.cycle(ahead)
                    acks += cycle.rng.randint(1, ACKS_MAX)
                    load.wait_for_acks(acks, within_s=60)
                    load.over.wait(cycle.rng.uniform(*cycle.rng.choice(PAUSES_S)))
                    self.cut(cycle)
            finally:
                self.died_ms = now_ms()
                self.broker.kill()
                load.join()
                self.admin.join()
        assert not load.refused, load.refused[:5]

    def cut(self, cycle: Cycle, why: str = "cut") -> Cut:
        """What was promised is read first; more may be promised until the cut."""
        assert self.admin is not None
        at_ms = self.died_ms or now_ms()
        promised = (self.history.tick, len(self.admin.topics), len(self.admin.offsets), at_ms)
        image = self.power.cut(f"{self.broker.data.name}-{why}-{cycle.number}")
        cut = Cut(cycle, image, *promised)
        self.cuts.append(cut)
        return cut

    def look_into(self, cut: Cut) -> list[Stored]:
        """Start on what was left; what is stored there. Tables are looked at here."""
        with self.power.again(cut.image) as root:
            data = root / self.broker.data.name
            with broker(data, settings=settings_of(self.broker)) as running:
                stored = Reader(SHAPE).read_on(running.address)
                with RawConnection(running.address) as connection:
                    self._check_tables(connection, cut)
        return stored

    def _check_tables(self, connection: RawConnection, cut: Cut) -> None:
        assert self.admin is not None
        for topic in self.admin.topics[: cut.topics]:
            answer = connection.call(GET_TOPIC_CONFIG, {"topic": topic})
            assert answer.code == SUCCESS, f"{topic} was acknowledged and is not there: {answer}"
            answer = connection.call(GET_GROUP_CONFIG, {"group": topic})
            assert answer.code == SUCCESS, f"group {topic}: {answer}"
            # Asking for a group makes it, but not with these retries.
            retries = json.loads(answer.body)["retryMaxTimes"]
            assert retries == RETRIES, f"group {topic} was acknowledged and is not there: {answer}"
        self.run.counts["topics and groups found"] += 2 * cut.topics
        kept = committed_offsets(connection, GROUP, SHAPE.topics[0], 1).get(0, 0)
        end = max_offset(connection, SHAPE.topics[0], 0)
        assert kept <= end, f"committed offset {kept} lies beyond the end {end}"
        latest_ms = cut.at_ms - SAVE_MS - SLACK_MS
        old = [
            offset for when_ms, offset in self.admin.offsets[: cut.offsets] if when_ms <= latest_ms
        ]
        assert kept >= min(end, max(old, default=0)), f"{kept} is committed, and {max(old)} was"

    def end(self) -> None:
        """Remove what it left on the file system."""
        for cut in self.cuts:
            cut.image.unlink()
        shutil.rmtree(self.broker.data)


def now_ms() -> int:
    """What the broker's clock shows as well."""
    return time.time_ns() // 1_000_000


def settings_of(process: BrokerProcess) -> dict[str, object]:
    """Those that `aerobee.testing` does not choose by itself."""
    return {**SMALL_FILES, **process.settings}


def begin(run: Run, power: Power, settings: Mapping[str, object], name: str = "store") -> Life:
    """A new directory."""
    data = power.root / f"{name}-{run.number}"
    log = run.directory / f"{data.name}.log"
    settings = {**COMMON, **settings}
    return Life(run, power, BrokerProcess(data=data, settings=settings, log_path=log))


def control(run: Run, power: Power) -> None:
    """A broker that only says that it syncs loses what it acknowledged, and we see it."""
    life = begin(run, power, SYNC, "control")
    life.broker.module = LIES
    life.live(CONTROL_CUTS)
    for cut in life.cuts:
        known = life.history.as_of(cut.tick)
        stored: Sequence[Stored] = ()
        with suppress(StoreRefused, AssertionError):
            stored = life.look_into(cut)
        there = {one.uid for one in stored}
        lost = sum(attempt.uid not in there for attempt in known.acknowledged)
        run.counts["lost without syncs"] += lost
    life.end()
    assert run.counts["lost without syncs"], "nothing was lost without syncs: the cuts cut nothing"


def sync_cuts(run: Run, *, nested: int = 0) -> None:
    """R2 and R21b: nothing that was acknowledged is lost, whatever else happens on the way up."""
    with powered(run.directory / "power") as power:
        control(run, power)
        while run.more:
            life = begin(run, power, SYNC)
            life.live(cuts_left(run))
            for cut in life.cuts:
                for _ in range(nested):
                    cut_the_recovery(life, cut)
                stored = life.look_into(cut)
                known = life.history.as_of(cut.tick)
                run.counts["acknowledged"] += len(known.acknowledged)
                judge(run, known, stored)
                run.done()
            life.end()


def cut_the_recovery(life: Life, cut: Cut) -> None:
    """Power comes back, and goes again while the broker recovers, at some change of a file."""
    image = cut.image.with_name(f"{cut.image.name}-again")
    with life.power.again(cut.image) as root:
        data = root / life.broker.data.name
        again = BrokerProcess(data=data, settings=life.broker.settings, log_path=life.broker.log)
        again.module = dies_at(cut.cycle.rng.randint(1, RECOVERY_CHANGES))
        try:
            with again:
                life.run.counts["cuts behind a recovery"] += 1
        except DidNotStart:
            life.run.counts["cuts in a recovery"] += 1
        life.power.cut_again(cut.image, image.name)
    image.replace(cut.image)


def async_cuts(run: Run) -> None:
    """R2b: the log is a prefix, and what is missing is young."""
    with powered(run.directory / "power") as power:
        while run.more:
            life = begin(run, power, run.cycle().rng.choice((ASYNC, SELDOM)))
            life.live(cuts_left(run))
            with broker(life.broker.data, settings=settings_of(life.broker)):
                pass  # The kill may have come in the middle of a record; a start cuts that off.
            whole = log_records(life.broker.data)
            stored_at = {}
            for position, data in whole:
                header = header_of(data, 0, position)
                stored_at[Place(header.topic, header.queue_id, header.queue_offset)] = (
                    header.store_timestamp
                )
            for cut in life.cuts:
                check_async(life, cut, dict(whole), stored_at)
                run.done()
            life.end()


def check_async(
    life: Life, cut: Cut, whole: Mapping[int, bytes], stored_at: Mapping[Place, int]
) -> None:
    """One cut against the log as it was when its broker was killed, much later."""
    stored = life.look_into(cut)
    # Which ones may be missing is looked at below; all other laws hold.
    judge(life.run, life.history.as_of(-1), stored)
    with life.power.again(cut.image) as root:
        kept = log_records(root / life.broker.data.name)
    assert dict(kept).items() <= whole.items(), "not a prefix: other bytes"
    assert [*dict(kept)] == sorted(whole)[: len(kept)], "not a prefix: a hole"
    acknowledged = life.history.as_of(cut.tick).acknowledged
    there = {one.uid for one in stored}
    lost = [attempt for attempt in acknowledged if attempt.uid not in there]
    life.run.counts["acknowledged"] += len(acknowledged)
    life.run.counts["taken by the cut"] += len(lost)
    for attempt in lost:
        place = Place(attempt.topic, attempt.queue_id, attempt.acked_at or 0)
        age_ms = cut.at_ms - stored_at[place]
        life.run.worst("oldest lost ms", age_ms)
        assert age_ms <= ASYNC_LOSS_MS, f"{place} was lost {age_ms} ms after it was stored"


def cuts_behind_a_kill(run: Run) -> None:
    """R2c: what is served after a kill was in the page cache only, and must not be any more."""
    with powered(run.directory / "power") as power:
        for cycle in run.cycles():
            life = begin(run, power, cycle.rng.choice((SYNC, SELDOM)))
            life.live(1)
            with life.broker:
                served = Reader(SHAPE).read_on(life.broker.address)
                cut = life.cut(cycle, "behind-a-kill")
            judge(run, life.history, served)
            kept = life.look_into(cut)
            gone = set(served) - set(kept)
            run.counts["served"] += len(served)
            assert not gone, f"{len(gone)} were served and are gone: {[*gone][:3]}"
            life.end()


def cuts_left(run: Run) -> int:
    """Of the life that begins."""
    return max(1, min(CUTS_PER_LIFE, run.wanted - run.executed))


R2 = Campaign(
    key="R2",
    title="power cut under load, SYNC_FLUSH",
    unit="power cuts",
    t1=30,
    t2=1_000,
    run=sync_cuts,
)
R2B = Campaign(
    key="R2b",
    title="power cut under load, ASYNC_FLUSH",
    unit="power cuts",
    t1=6,
    t2=1_000,
    run=async_cuts,
)
R2C = Campaign(
    key="R2c",
    title="kill -9, and a power cut when it serves again",
    unit="rounds",
    t1=3,
    t2=200,
    run=cuts_behind_a_kill,
)
R21B = Campaign(
    key="R21b",
    title=f"power cut under load, then {NESTED} in the recoveries from it",
    unit="rounds",
    t1=2,
    t2=200,
    run=lambda run: sync_cuts(run, nested=NESTED),
)
