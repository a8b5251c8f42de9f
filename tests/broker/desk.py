"""A broker without its sockets: the real one on a small directory, asked as a worker asks."""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.broker.answers import refusal
from aerobee.broker.broker import Broker
from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.config.settings.broker import BrokerOptions
from aerobee.remoting.server.addresses import packed_host
from aerobee.remoting.server.routes import HELD, PendingAnswer, finished, is_steps
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.topic import TopicConfig
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import ONEWAY, Command
from aerobee.remoting.wire.headers.pull import PullMessage
from aerobee.remoting.wire.headers.send import SendMessageV2
from aerobee.store.format.record import Record, records
from tests.broker.peers import Peer
from tests.kit.quick_disk import QuickDisk
from tests.kit.running_store import TrioClock, roll_at_once, whole_steps
from tests.kit.store_model import small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

BORN_MS = 1_699_999_999_000
LOG_BYTES = 1 << 20
QUEUE_BYTES = 20 * 1000


class Caller(Peer):
    """A peer with an address for records, whose answers one may wait for."""

    def __init__(self, address: str = "127.0.0.1:50000") -> None:
        super().__init__(address)
        ip, _, port = address.rpartition(":")
        self.host = packed_host((ip, int(port)))
        self.came = trio.Event()

    def answer(self, command: Command, answer: Answer, *, held: bool = False) -> None:
        super().answer(command, answer, held=held)
        self.came.set()

    async def next_answer(self) -> Answer:
        while not self.answers:
            self.came = trio.Event()
            await self.came.wait()
        return self.answers.pop(0)


def broker_config(root: Path, **changes: Any) -> BrokerConfig:
    """Small files below `root`; a change goes to the part that has such a setting."""
    store: dict[str, Any] = {
        "mapped_file_size_commit_log_bytes": LOG_BYTES,
        "mapped_file_size_consume_queue_bytes": QUEUE_BYTES,
    }
    store |= {name: changes.pop(name) for name in [*changes] if name in STORE_SETTINGS}
    broker = {name: changes.pop(name) for name in [*changes] if name in BROKER_SETTINGS}
    return BrokerConfig(
        broker=BrokerOptions(**{"broker_name": "desk", **broker}),
        store=small_config(root, **store),
        **changes,
    )


STORE_SETTINGS = frozenset(BrokerConfig().store.__dataclass_fields__)
BROKER_SETTINGS = frozenset(BrokerConfig().broker.__dataclass_fields__)


def answered(call: Callable[[], Any]) -> Any:
    """What a call gives, or the answer that its refusal becomes."""
    try:
        return call()
    except Exception as error:
        answer = refusal(error)
        if answer is None:
            raise
        return answer


class Desk:
    """A broker whose parts have names; `ask` is what happens to one request, waits included."""

    def __init__(self, broker: Broker, *, prepares: bool = False) -> None:
        """With `prepares` log segments are made ahead, and a send may find one late."""
        self.broker = broker
        self.load = broker.load
        self.saver = broker.saver
        self._name_core(broker)
        self._name_tables(broker)
        self._name_services(broker)
        if not prepares:
            roll_at_once(self.store)
        self.peer = Caller()
        self.handlers = {int(route.header.code): route.handler for route in broker.routes}

    def _name_core(self, broker: Broker) -> None:
        core = broker.core
        self.config, self.clock, self.stats = core.config, core.clock, core.stats
        self.store, self.puts = core.store, core.puts
        self.address, self.store_host = core.address, core.store_host
        rounds = core.rounds
        self.reactor, self.slow_rounds = rounds.reactor, rounds.slow
        self.after_round, self.finish_round = rounds.after_round, rounds.finish
        self.connected = rounds.connected

    def _name_tables(self, broker: Broker) -> None:
        self.topics, self.topic_file = broker.topics.table, broker.topics.file
        tables = broker.consumers.tables
        self.groups, self.offsets, self.clients = tables.groups, tables.offsets, tables.clients
        self.locks, self.filters = tables.locks, tables.filters
        self.compensation = tables.compensation
        self.group_file = broker.consumers.group_file
        self.offset_file = broker.consumers.offset_file
        self.delays, self.delay_file = broker.delay.offsets, broker.delay.file
        self.request_modes, self.mode_file = broker.assignment.modes, broker.assignment.file
        self.transactions = broker.transactions.table

    def _name_services(self, broker: Broker) -> None:
        self.half_messages = broker.transactions.half_messages
        self.schedule = broker.delay.schedule
        self.destinations = broker.send.destinations
        self.access, self.hold = broker.pull.access, broker.pull.hold
        self.pull_requests, self.protection = broker.pull.requests, broker.pull.protection
        self.sampling = broker.metrics.sampling
        if broker.dedupe is not None:
            self.dedupe = broker.dedupe.dedupe
        if broker.timers is not None:
            self.timers, self.timing = broker.timers.wheel, broker.timers.counts
        if broker.pop is not None:
            self.pop_hold, self.pop_reader = broker.pop.hold, broker.pop.reader
            self.revive, self.revive_log = broker.pop.revive, broker.pop.revive_log

    def topic(self, name: str = "t", **fields: Any) -> None:
        """There is such a topic, and it is on disk."""
        self.topics.put(TopicConfig(topic_name=name, **fields))

    def begin(
        self, header: Header, body: bytes = b"", *, oneway: bool = False, by: str | None = None
    ) -> Any:
        """Call the handler; what it gives, or the answer that its refusal becomes.

        `by`: the user that the gate has found to have signed it.
        """
        code = int(header.code)
        command = Command(code=code, body=body, flag=ONEWAY * oneway, language="JAVA", version=479)
        if by is not None:
            command.ext = {"AccessKey": by}
        return answered(lambda: self.handlers[code](header, command, self.peer))

    async def ask(self, header: Header, body: bytes = b"", **how: Any) -> Answer:
        """The answer, whenever it comes."""
        outcome = self.begin(header, body, **how)
        if is_steps(steps := outcome):
            outcome = answered(lambda: finished(steps))
        self.after_round()
        if isinstance(outcome, PendingAnswer):
            outcome = outcome.work
        if inspect.isawaitable(outcome):
            outcome = await outcome
            self.after_round()
        if outcome is HELD or outcome is None:
            outcome = await self.peer.next_answer()
        assert isinstance(outcome, Answer), outcome
        return outcome

    async def send(self, topic: str = "t", body: bytes = b"hello", **fields: Any) -> Answer:
        """Send one message."""
        return await self.ask(send_header(topic, **fields), body)

    async def pull(self, topic: str = "t", queue_offset: int = 0, **fields: Any) -> Answer:
        """Pull with a subscription of its own, not to be held."""
        return await self.ask(pull_header(topic, queue_offset, **fields))

    def records(self, topic: str = "t", queue_id: int = 0) -> list[Record]:
        """Everything in a queue, in its order."""
        found: list[Record] = []
        at = self.store.min_offset(topic, queue_id)
        while at < self.store.max_offset(topic, queue_id):
            result = self.store.get(topic, queue_id, at, 1_000)
            found += records(result.views)
            at = result.next_begin_offset
        return found

    def bodies(self, topic: str = "t") -> list[bytes]:
        """Those of queue 0."""
        return [bytes(record.body) for record in self.records(topic)]

    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def pass_s(self, seconds: float, step_s: float = 0.5) -> None:
        """Let virtual time pass in steps; what each of them wakes runs, and has its disk."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        end = trio.current_time() + seconds
        while (left := end - trio.current_time()) > 0:
            clock.jump(min(left, step_s))
            await wait_all_tasks_blocked()
            await self.puts.durable()
            if (timers := self.broker.timers) is not None and timers.wheel is not None:
                async with timers.wheel.saving:
                    pass
            await wait_all_tasks_blocked()


def spoil(root: Path, body: bytes) -> None:
    """Alter one bit of a stored body, as a disk does, also while a store is open."""
    (segment,) = (root / "commitlog").glob("0*")
    with segment.open("r+b") as file:
        at = file.read().index(body)
        file.seek(at)
        file.write(bytes([body[0] ^ 1]))


def send_header(topic: str = "t", cls: type[Any] = SendMessageV2, **fields: Any) -> Any:
    """A send to queue 0 without properties; `fields` replace."""
    given = {
        "producer_group": "p",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        **fields,
    }
    return cls(**given)


def pull_header(
    topic: str = "t", queue_offset: int = 0, cls: type[Any] = PullMessage, **fields: Any
) -> Any:
    """A pull of everything in queue 0; `fields` replace."""
    given = {
        "consumer_group": "g",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": "*",
        "sub_version": 0,
        "expression_type": "TAG",
        **fields,
    }
    return cls(**given)


def said(answer: Answer) -> dict[str, str]:
    """The ext fields of an answer, as a peer reads them."""
    assert answer.header is not None
    return {name: str(value) for name, value in answer.header.ext().items()}


def body_of(answer: Answer) -> bytes:
    """The body of an answer, in one piece."""
    return answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)


def document_of(answer: Answer) -> Any:
    """The JSON in the body of an answer, which must be a success."""
    assert answer.code == ResponseCode.SUCCESS, answer
    return relaxed_json.decode(body_of(answer))


@asynccontextmanager
async def open_desk(
    root: Path,
    disk: Disk | None = None,
    *,
    clock: Clock | None = None,
    prepares: bool = False,
    **changes: Any,
) -> AsyncIterator[Desk]:
    """A desk with the services of store, saver, hold and key queries, ended as the broker ends."""
    clock = clock or TrioClock()
    broker = Broker(broker_config(root, **changes), disk=disk or QuickDisk(), clock=clock)
    desk = Desk(broker, prepares=prepares)
    desk.load()
    try:
        with whole_steps():
            async with trio.open_nursery() as nursery:
                await nursery.start(desk.store.run)
                await nursery.start(desk.saver.run)
                await nursery.start(desk.hold.run)
                for service in broker.query.services:
                    await nursery.start(service.run)
                yield desk
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await desk.store.close()
