"""Anything over the wire, in any order, with anything in each field, over many lives of a broker.

An episode is a script: lives of one directory with settings of their own, steps over several
connections, and an end by SIGTERM or SIGKILL. What must hold of the broker meanwhile: it is alive
and says nothing of errors; nothing waits in its pools once it is idle; descriptors and memory come
back; no turn of its loop takes longer than 50 ms of the processor; every message is where
`fuzz_books` says; and a stopped directory passes `store verify`.

A failure is played again with fewer and fewer steps, and shows the shortest script that still
fails. A step keeps its number and its source of chance when others are left out.
"""

from __future__ import annotations

import random
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aerobee.remoting.wire.relaxed_json import decode
from aerobee.store.tools.verify import verify
from tests.faults.fuzz_books import Books
from tests.faults.fuzz_peer import Peer, reset
from tests.faults.fuzz_steps import BROKER_NAME, DEDUPED, STEADY, STEPS, TOPICS, World, request_of
from tests.kit.campaign import Campaign
from tests.kit.health import events, open_descriptors, rss_anon, slowness, waiting_in_pools
from tests.kit.odd_broker import ODD_BROKER
from tests.kit.ports import free_block, free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.reading import read_topic
from tests.kit.stall_watch import WatchedBroker, gaps_in
from tests.kit.step_watch import StolenTime
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.faults.fuzz_peer import Request
    from tests.kit.campaign import Run
    from tests.kit.raw_client import RawRecord

MiB = 1_048_576
CREATE_TOPIC, ALL_TOPICS, CREATE_GROUP, GET_MAX_OFFSET, SUCCESS = 17, 21, 200, 30, 0
PEERS = 4
STEPS_IN_A_LIFE = (60, 160)
LIVES = (2, 3)
ANSWERED_WITHIN_S = 30.0
IDLE_WITHIN_S = 30.0
COME_WITHIN_S = 30.0
LOOP_MS = 50.0
"""Of the processor, for one turn of the loop."""
GROWN_MAX = 64 * MiB
OPEN_MAX = 3
"""Descriptors of one file."""
SHOWN = 6
SHRINK_S = 120.0
READ_QUEUES_MAX = 16
"""Of a topic that somebody made; more are not looked into."""

PORT_TAKEN = "Address already in use"
IDLE_SOCKETS = 14
"""Listeners, wake-ups, and what the broker itself has to its name server."""
SYSTEM = ("rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC", "OFFSET_MOVED", "SELF_TEST", "TRANS_CHECK")
"""Topics that consumers do not read begin so."""

EXPECTED: frozenset[str] = frozenset()
"""Events of level error that content may cause."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a client does. `waits`: for its answer, before anything else is done."""

    number: int
    name: str
    peer: int
    seed: int
    waits: bool
    binary: bool


@dataclass(frozen=True, slots=True)
class Life:
    """One run of the broker."""

    settings: Mapping[str, object]
    steps: Sequence[Step]
    kill: bool
    hot: bool
    """Whether it ends while requests are on their way."""
    saves: bool
    """Whether what its few queues reached is saved, so that the next start believes it."""


Script = tuple[Life, ...]


class Wrong(AssertionError):
    """A law is broken. `kind`: the word by which two failures are the same."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


# ── Scripts ──

ALWAYS: dict[str, object] = {
    "brokerName": BROKER_NAME,
    "mappedFileSizeCommitLog": MiB,
    "mappedFileSizeConsumeQueue": 20 * 200,
    "dedupe": f"{DEDUPED}=KEYS@10m",
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
    "reviveInterval": 200,
}
SAVING: dict[str, object] = {
    "flushConsumeQueueThoroughInterval": 1_000,
    "flushIntervalConsumeQueue": 100,
}


def script_of(rng: random.Random) -> Script:
    """What happens in an episode."""
    flush = rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
    lives, number = [], 0
    for _ in range(rng.randint(*LIVES)):
        steps = []
        for _ in range(rng.randint(*STEPS_IN_A_LIFE)):
            number += 1
            name = rng.choices(list(STEPS), [often for often, _ in STEPS.values()])[0]
            peer, seed, waits = rng.randrange(PEERS), rng.getrandbits(32), rng.random() < 0.6
            steps.append(Step(number, name, peer, seed, waits, rng.random() < 0.3))
        settings = {
            "flushDiskType": flush if rng.random() < 0.8 else "ASYNC_FLUSH",
            "messageDelayLevel": rng.choice(["1s 2s", "2s 1s", "1s", "1s 2s 2s 1s"]),
            "maxMessageSize": rng.choice([4 * MiB, 4 * MiB, 8_000]),
            "maxHashSlotNum": rng.choice([1_000, 1_000, 500]),
            "maxIndexNum": rng.choice([4_000, 4_000, 100]),
            "flushConsumerOffsetInterval": rng.choice([500, 5_000]),
            "timerPrecisionMs": rng.choice([1_000, 1_000, 100]),
            "transactionCheckMax": rng.choice([100, 100, 1]),
        }
        kill, hot, saves = (rng.random() < 0.5 for _ in range(3))
        lives.append(Life(settings, steps, kill, hot, saves))
    return tuple(lives)


def told(script: Script, trace: Mapping[int, str]) -> str:
    """A script for people, with the requests as they were in the last play."""
    lines = []
    for life in script:
        lines.append(f"life with {dict(life.settings)}")
        for step in life.steps:
            way = "" if step.waits else ", not waited for"
            lines.append(
                f"  {step.number} [{step.peer}] {step.name}{way}: {trace.get(step.number)}"
            )
        lines.append(f"  {'SIGKILL' if life.kill else 'SIGTERM'}{' at once' if life.hot else ''}")
    return "\n".join(lines)


# ── A play ──


@dataclass(slots=True)
class Play:
    """One script on one directory."""

    directory: Path
    script: Script
    counts: Callable[[str, int], None]
    worst: Callable[[str, int], None]
    books: Books = field(default_factory=Books)
    trace: dict[int, str] = field(default_factory=dict)
    queues: dict[tuple[str, int], list[RawRecord]] = field(default_factory=dict)
    stolen: StolenTime = field(default_factory=StolenTime)

    def run(self) -> None:
        """Raises: Wrong."""
        self.directory.mkdir(parents=True)
        self.stolen.start()
        world = World(self.books)
        broker = WatchedBroker(data=self.directory / "data", settings=ALWAYS)
        try:
            for number, life in enumerate(self.script):
                self.live(broker, life, world, last=number == len(self.script) - 1)
        finally:
            self.stolen.over.set()
            if broker.ready is not None:
                broker.kill()
            for name, count in world.counts.items():
                self.counts(name, count)

    def live(self, broker: WatchedBroker, life: Life, world: World, *, last: bool) -> None:
        """One life, with everything that must hold in it and after it."""
        broker.settings = ALWAYS | dict(life.settings) | (SAVING if life.saves else {})
        broker.env = {ODD_BROKER: "saves"} if life.saves else {}
        size = life.settings["maxMessageSize"]
        assert isinstance(size, int)
        self.books.largest = min(self.books.largest, size)
        broker.log.unlink(missing_ok=True)
        self.start(broker)
        pid = broker.child.pid
        memory = rss_anon(pid)
        peers = [Peer(broker.address) for _ in range(PEERS)]
        try:
            self.make_topics(broker)
            self.check_books(broker, "at the start")
            self.work(broker, life, world, peers)
            if not life.hot or last:
                self.settle(broker, peers, memory, last=last)
        except OSError as error:
            self.check_alive(broker)
            raise Wrong("connection", repr(error)) from error
        finally:
            if not life.hot:
                for peer in peers:
                    peer.close()
        self.check_alive(broker)
        if life.kill and not last:
            broker.kill()
            self.books.kills += 1
            self.counts("kills", 1)
        else:
            self.stop(broker)
        for peer in peers:
            if peer.pending:
                with suppress(OSError):
                    peer.look()
            peer.close()
        self.check_log(broker)
        self.check_loop(broker)

    def start(self, broker: WatchedBroker) -> None:
        """On other ports where somebody has taken these since the last life."""
        try:
            broker.start()
        except DidNotStart as error:
            if PORT_TAKEN not in str(error):
                raise Wrong("start", str(error)) from error
            broker.ports, broker.namesrv_port = free_block(), free_port()
            broker.log.unlink()
            broker.start()

    def make_topics(self, broker: WatchedBroker) -> None:
        with RawConnection(broker.address) as connection:
            for topic, queues in TOPICS.items():
                assert connection.call(CREATE_TOPIC, topic_fields(topic, queues)).code == SUCCESS
            fields = topic_fields(f"%RETRY%{STEADY}", 1)
            assert connection.call(CREATE_TOPIC, fields).code == SUCCESS
            body = f'{{"groupName":"{STEADY}","retryMaxTimes":100}}'.encode()
            assert connection.call(CREATE_GROUP, None, body).code == SUCCESS

    def work(self, broker: WatchedBroker, life: Life, world: World, peers: Sequence[Peer]) -> None:
        for step in life.steps:
            peer, rng = peers[step.peer], random.Random(step.seed)
            if rng.random() < 0.01:
                reset(peer)
            request = request_of(step.name, world, rng, peer)
            if request is None:
                continue
            self.trace[step.number] = request.text()
            self.counts("requests", 1)
            opaque = peer.ask(request, binary=step.binary)
            if step.waits and not request.silent:
                if not peer.answered(opaque, ANSWERED_WITHIN_S):
                    self.check_alive(broker)
                    raise Wrong("silence", f"no answer to step {step.number}: {request.text()}")
            else:
                peer.look()
            if step.number % 20 == 0:
                self.check_alive(broker)

    def check_alive(self, broker: WatchedBroker) -> None:
        if not broker.child.running:
            raise Wrong("ended", broker.child.errors()[-3_000:])

    def settle(
        self, broker: WatchedBroker, peers: Sequence[Peer], memory: int, *, last: bool
    ) -> None:
        """Everybody is answered and leaves; then the broker is as empty as before."""
        unanswered: list[Request] = []
        for peer in peers:
            unanswered += peer.quiet(ANSWERED_WITHIN_S)
            self.counts("closed by the broker", peer.closes)
        if unanswered:
            self.check_alive(broker)
            raise Wrong("silence", "; ".join(one.text() for one in unanswered[:SHOWN]))
        if last:
            self.wait_for_the_rest(broker)
        self.check_books(broker, "at the end of a life")
        for peer in peers:
            peer.close()
        self.check_idle(broker)
        grown = rss_anon(broker.child.pid) - memory
        self.worst("grown KiB", grown // 1_024)
        if grown > GROWN_MAX:
            raise Wrong("memory", f"{grown / MiB:.0f} MiB more than at the start")

    def wait_for_the_rest(self, broker: WatchedBroker) -> None:
        """What is to come later comes now."""
        until = time.monotonic() + COME_WITHIN_S
        while True:
            self.queues = read_all(broker)
            missing = self.books.missing(self.queues)
            if not missing:
                return
            self.check_alive(broker)
            if time.monotonic() > until:
                raise Wrong("lost", "\n".join(missing[:SHOWN]))
            broker.let_run(0.3)

    def check_books(self, broker: WatchedBroker, when: str) -> None:
        self.queues = read_all(broker)
        wrong = self.books.verdict(self.queues)
        if wrong:
            kind = wrong[0].partition(":")[0]
            raise Wrong(kind, f"{when}:\n" + "\n".join(wrong[:SHOWN]))

    def check_idle(self, broker: WatchedBroker) -> None:
        """Pools are empty, and descriptors are those of files, once each."""
        pid = broker.child.pid

        def idle() -> bool:
            return not waiting_in_pools(broker) and open_descriptors(pid)["socket"] <= IDLE_SOCKETS

        try:
            eventually(idle, within_s=IDLE_WITHIN_S, what="an idle broker", every_s=0.2)
        except AssertionError:
            self.check_alive(broker)
            waiting, opened = waiting_in_pools(broker), open_descriptors(pid)
            if waiting:
                raise Wrong("pools", f"{waiting} wait when nobody is there") from None
            raise Wrong("sockets", f"{opened['socket']} when nobody is there") from None
        often = {path: count for path, count in open_descriptors(pid).items() if "/" in path}
        if max(often.values(), default=0) > OPEN_MAX:
            raise Wrong("descriptors", f"{sorted(often.items(), key=lambda p: -p[1])[:SHOWN]}")

    def stop(self, broker: WatchedBroker) -> None:
        try:
            code = broker.stop()
        except Exception as error:
            raise Wrong("stop", repr(error)) from error
        if code != 0:
            raise Wrong("stop", f"ended with {code}: {broker.child.errors()[-2_000:]}")
        found = verify(broker.data)
        if not found.sound:
            raise Wrong("verify", f"{found.counts} {found.damage[:SHOWN]}")
        self.counts("stops", 1)

    def check_log(self, broker: WatchedBroker) -> None:
        text = broker.log.read_text(encoding="utf-8", errors="replace")
        self.worst("log KiB of a life", len(text) // 1_024)
        for event in events(text):
            if event["level"] == "error" and event["event"] not in EXPECTED:
                raise Wrong("error", str(event)[:3_000])

    def check_loop(self, broker: WatchedBroker) -> None:
        self.stolen.look()
        # The CPU clock of the broker goes on while the host runs others.
        gaps = [gap for gap in gaps_in(broker.gaps_path) if not self.stolen.within(gap.step)]
        self.worst("longest turn ms", round(max((gap.cpu_ms for gap in gaps), default=0)))
        late = [gap for gap in gaps if gap.cpu_ms > LOOP_MS]
        if late and max(gap.cpu_ms for gap in late) > LOOP_MS * slowness():
            raise Wrong("loop", f"a turn took {max(gap.cpu_ms for gap in late):.0f} ms: {late[:3]}")


def read_all(broker: WatchedBroker) -> dict[tuple[str, int], list[RawRecord]]:
    """Every queue of every topic that clients may read."""
    found = {}
    with RawConnection(broker.address, timeout_s=ANSWERED_WITHIN_S) as connection:
        answer = connection.call(ALL_TOPICS)
        for topic, config in decode(answer.body)["topicConfigTable"].items():
            if topic.startswith(SYSTEM) or not config["perm"] & 4:
                continue
            for queue_id in range(min(config["readQueueNums"], READ_QUEUES_MAX)):
                found[topic, queue_id] = read_topic(connection, topic, queue_id)
    return found


# ── The campaign ──


def fuzz(run: Run) -> None:
    """Episode after episode."""
    for cycle in run.cycles():
        script = script_of(cycle.rng)
        directory = run.directory / f"episode-{cycle.number}"
        play = Play(directory, script, lambda n, c: _count(run, n, c), run.worst)
        try:
            play.run()
        except Wrong as wrong:
            shorter, trace = shrunk(directory, script, play.trace, wrong.kind)
            wrong.add_note(told(shorter, trace))
            raise
        shutil.rmtree(directory)


def _count(run: Run, name: str, more: int) -> None:
    run.counts[name] += more


def shrunk(
    directory: Path, script: Script, trace: dict[int, str], kind: str
) -> tuple[Script, dict[int, str]]:
    """The shortest script found in time that fails in the same way."""
    until = time.monotonic() + SHRINK_S
    best, plays = (script, trace), 0
    size = max(1, sum(len(life.steps) for life in script) // 2)
    while size and time.monotonic() < until:
        for shorter in without(best[0], size):
            if time.monotonic() > until:
                break
            plays += 1
            play = Play(directory / f"shorter-{plays}", shorter, _nothing, _nothing)
            try:
                play.run()
            except Wrong as wrong:
                if wrong.kind == kind:
                    best = shorter, play.trace
                    break
        else:
            size //= 2
    return best


def _nothing(_name: str, _value: int) -> None:
    """Counts of plays for the sake of a shorter script are nobody's."""


def without(script: Script, size: int) -> list[Script]:
    """The script without so many neighbouring steps, at each place; empty lives but the last go."""
    numbers = [step.number for life in script for step in life.steps]
    shorter = []
    for at in range(0, len(numbers), size):
        gone = set(numbers[at : at + size])
        lives = [
            replace(life, steps=[step for step in life.steps if step.number not in gone])
            for life in script
        ]
        shorter.append(tuple(lives))
    return shorter


W1 = Campaign(
    key="W1",
    title="anything over the wire, over lives ended by kills and stops",
    unit="episodes",
    t1=1,
    t2=300,
    run=fuzz,
)
