"""A topic that is deduplicated against a dict, whatever happens to it and to its broker.

Real requests and a real store, in virtual time: sends, batches with a key twice, delays, timers
that are taken back, halves that are committed or not, the topic deleted and made, restarts, kills,
the wall clock set forth and back, windows that pass, a full table, segments deleted.
Laws: whatever is acknowledged can be pulled where the answer says; an old message is the answer
only within the window, and only if it was sent at once; what is repeated within the window in one
life of the topic is stored once; a send is refused only where there is no topic.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import trio
import trio.testing

from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.send import RecallMessage, SendBatchMessage
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.remoting.wire.headers.transaction import EndTransaction
from aerobee.store.format.properties import decode
from aerobee.store.format.record import read
from tests.broker.desk import body_of, open_desk, said, send_header
from tests.kit.campaign import Campaign
from tests.kit.running_store import TrioClock
from tests.kit.store_model import Sent, batch_body

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.broker.desk import Desk
    from tests.kit.campaign import Cycle, Run

TOPIC = "t"
QUEUES = 2
WINDOW_S = 600
KEYS = 5
LIVES, STEPS = 3, 40
KILL_CHANCE = 0.5
LEFT_OUT = shutil.ignore_patterns("*.new", "index")
WAITING: tuple[dict[str, str], ...] = (
    {"DELAY": "1"},
    {"TIMER_DELAY_SEC": "2"},
    {"TRAN_MSG": "true", "PGROUP": "g"},
)
MANY = 400
"""Messages of a batch with keys of their own: some of them fill the table."""
SETTINGS: dict[str, Any] = {
    "dedupe": f"{TOPIC}=KEYS@{WINDOW_S}s",
    "dedupe_max_entries": 1_000,
    "file_reserved_time_h": 1,
    "recall_message_enable": True,
    "mapped_file_size_commit_log_bytes": 1 << 17,
}


class Stored(NamedTuple):
    """A message that was sent at once, as it was answered."""

    key: str
    at_s: float
    """When, by the clock that does not jump."""
    place: tuple[int, int, str]
    """Queue, queue offset, id."""


@dataclass(slots=True)
class Reference:
    """What was sent to the topic as it is now, and what has to be known of it."""

    stored: dict[str, Stored] = field(default_factory=dict)
    """Body → the message."""
    known: dict[str, str] = field(default_factory=dict)
    """Key → the body that a repetition must be answered with."""

    def forget(self) -> None:
        """The topic is another one."""
        self.stored.clear()
        self.known.clear()


@dataclass(slots=True)
class Life:
    """One life of the broker."""

    desk: Desk
    clock: TrioClock
    rng: random.Random
    run: Run
    reference: Reference
    bodies: list[int]

    def body(self) -> str:
        self.bodies[0] += 1
        return f"m{self.bodies[0]}"

    # ── What happens ──

    async def send(self) -> None:
        key, body = self.key(), self.body()
        answer = await self.desk.send(
            TOPIC,
            body.encode(),
            default_topic="none",
            properties=f"KEYS\x01{key}\x02",
            queue_id=self.rng.randrange(QUEUES),
        )
        await self.heard(answer, [(key, body)])

    async def batch(self) -> None:
        items = [(self.key(), self.body()) for _ in range(self.rng.randint(1, 6))]
        await self.send_batch(items)

    async def fill(self) -> None:
        await self.send_batch([(f"own-{body}", body) for body in map(self._own, range(MANY))])
        self.reference.known.clear()

    def _own(self, _: int) -> str:
        return self.body()

    async def send_batch(self, items: list[tuple[str, str]]) -> None:
        data = batch_body(
            [Sent(body.encode(), f"KEYS\x01{key}\x02".encode()) for key, body in items]
        )
        header = send_header(
            TOPIC, SendBatchMessage, default_topic="none", queue_id=self.rng.randrange(QUEUES)
        )
        await self.heard(await self.desk.ask(header, data), items)

    async def wait_elsewhere(self) -> None:
        """A delay, a timer that may be taken back, a half that is ended or not."""
        waits, key = self.rng.choice(WAITING), self.key()
        text = "".join(f"{name}\x01{value}\x02" for name, value in waits.items())
        answer = await self.desk.send(
            TOPIC,
            b"late",
            default_topic="none",
            properties=f"UNIQ_KEY\x01{self.body()}\x02KEYS\x01{key}\x02{text}",
        )
        if answer.code != 0:
            assert TOPIC not in self.desk.topics.configs, answer
            return
        heard = said(answer)
        if "recallHandle" in heard and self.rng.random() < 0.7:
            handle = heard["recallHandle"]
            recall = RecallMessage(producer_group="g", topic=TOPIC, recall_handle=handle)
            assert (await self.desk.ask(recall)).code == 0
            self.run.counts["recalled"] += 1
        if "TRAN_MSG" in waits and self.rng.random() < 0.7:
            end = EndTransaction(
                producer_group="g",
                tran_state_table_offset=int(heard["queueOffset"]),
                commit_log_offset=int(heard["msgId"][16:], 16),
                commit_or_rollback=self.rng.choice([8, 12]),
                msg_id=heard["msgId"],
            )
            assert (await self.desk.ask(end)).code == 0
        self.run.counts["waited elsewhere"] += 1

    async def delete(self) -> None:
        if TOPIC in self.desk.topics.configs:
            assert (await self.desk.ask(DeleteTopicInBroker(topic=TOPIC))).code == 0
            self.run.counts["deleted"] += 1
        self.reference.forget()

    async def create(self) -> None:
        if TOPIC not in self.desk.topics.configs:
            self.desk.topic(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            await self.desk.saver.save_all()

    async def set_clock(self) -> None:
        self.clock.start_ms += self.rng.choice([-1, 1]) * self.rng.choice([1_000, 3_600_000])
        self.run.counts["clock set"] += 1

    async def pass_time(self) -> None:
        self.pass_s(self.rng.choice([1, 30, WINDOW_S / 2, WINDOW_S + 1]))

    async def lose_segments(self) -> None:
        """Three hours pass, and what is older is deleted."""
        self.desk.store.space.cleanup.request()
        self.pass_s(3 * 3_600)
        await self.desk.store.space.cleanup.clean()
        self.reference.known.clear()

    def pass_s(self, seconds: float) -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(seconds)

    def key(self) -> str:
        return f"key-{self.rng.randrange(KEYS)}"

    # ── The laws ──

    async def heard(self, answer: Any, items: list[tuple[str, str]]) -> None:
        """Each message can be pulled where the answer says."""
        if answer.code != 0:
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST, answer
            assert TOPIC not in self.desk.topics.configs
            return
        fields, ids = said(answer), said(answer)["msgId"].split(",")
        assert len(ids) == len(items)
        first = int(fields["queueId"]), int(fields["queueOffset"])
        mine = {body for _, body in items}
        now_s = trio.current_time()
        for number, ((key, body), name) in enumerate(zip(items, ids, strict=True)):
            place, found = await self.pulled(name)
            assert number or place == first, f"{key}: the answer says {first}, it is at {place}"
            if found in mine:
                # New; of two in a batch with one key it is the first.
                owner = {each: of for of, each in items}[found]
                assert owner == key
                if found == body:
                    self.is_new(key, body, Stored(key, now_s, (*place, name)))
                    continue
            self.is_repeated(key, found, (*place, name), now_s, own=found in mine)

    def is_new(self, key: str, body: str, stored: Stored) -> None:
        known = self.reference.known.get(key)
        if known is not None:
            age_s = stored.at_s - self.reference.stored[known].at_s
            assert age_s > WINDOW_S - 1, f"{key} was stored twice within {age_s} s"
        self.reference.stored[body] = stored
        self.reference.known[key] = body
        self.run.counts["stored"] += 1

    def is_repeated(
        self, key: str, found: str, place: tuple[int, int, str], now_s: float, *, own: bool
    ) -> None:
        first = self.reference.stored.get(found)
        assert first is not None, f"{key} is answered with {found}, which was not sent at once"
        assert (first.key, first.place) == (key, place)
        assert own or now_s - first.at_s <= WINDOW_S + 1, "an answer from behind the window"
        self.run.counts["repeated"] += 1

    async def pulled(self, name: str) -> tuple[tuple[int, int], str]:
        """Queue, offset and body of a message, as a consumer of the topic gets it."""
        record = self.desk.store.message(int(name[16:], 16))
        assert record is not None, "acknowledged, and not in the store"
        answer = await self.desk.pull(
            TOPIC, record.queue_offset, queue_id=record.queue_id, max_msg_nums=1
        )
        assert answer.code == 0, f"acknowledged, and not to be pulled: {answer}"
        found = read(body_of(answer), 0)
        assert found.physical_offset == record.physical_offset, "another message is there"
        assert decode(found.properties)["KEYS"]
        return (record.queue_id, record.queue_offset), bytes(found.body).decode()


STEPS_OF: tuple[tuple[int, Callable[[Life], Any]], ...] = (
    (40, Life.send),
    (20, Life.batch),
    (8, Life.wait_elsewhere),
    (4, Life.delete),
    (8, Life.create),
    (6, Life.pass_time),
    (3, Life.set_clock),
    (1, Life.fill),
    (1, Life.lose_segments),
)


async def lives(run: Run, cycle: Cycle, root: Path) -> None:
    """Some lives of one broker."""
    rng = cycle.rng
    clock, reference, bodies = TrioClock(), Reference(), [0]
    for number in range(LIVES):
        async with open_desk(root, clock=clock, **SETTINGS) as desk:
            await desk.dedupe.run()
            life = Life(desk, clock, rng, run, reference, bodies)
            if not number:
                await life.create()
            start_ms = clock.start_ms
            for step in rng.choices(
                [one for _, one in STEPS_OF], [w for w, _ in STEPS_OF], k=STEPS
            ):
                await step(life)
                desk.after_round()
            await desk.saver.save_all()
            if rng.random() < KILL_CHANCE:
                # What a process leaves that is killed now, but for what its threads may rename
                # just then: the index, which is built again.
                killed = root.with_name(f"{root.name}-{number}")
                shutil.copytree(root, killed, ignore=LEFT_OUT)
                root = killed
                run.counts["kills"] += 1
        if (
            clock.start_ms != start_ms
            or desk.store.commit_log.last_store_timestamp > clock.now_ms()
        ):
            # By their store times nobody can say how old these are.
            reference.known.clear()
        run.counts["lives"] += 1


def dedupe_model(run: Run) -> None:
    """Each cycle is one directory."""
    for cycle in run.cycles():
        root = run.directory / str(cycle.number)
        trio.run(lives, run, cycle, root, clock=trio.testing.MockClock(rate=1.0))


D1 = Campaign(
    key="D1",
    title="repeated sends against a model",
    unit="directories",
    t1=3,
    t2=2_000,
    run=dedupe_model,
)
