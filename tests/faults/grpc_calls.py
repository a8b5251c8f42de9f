"""Clients over gRPC whose calls end at any moment: cancelled, or by a deadline of milliseconds.

A life is some seconds of producers and consumers, of an ordinary topic and one in order, and ends
by a kill or a stop. In the end everybody is left in peace: every acknowledged message has come, the
first deliveries of each message group are in order, and nothing came that nobody sent. Of the
ordinary topic none comes again whose acknowledgement was answered in the same life; in order a
batch comes again from its first message on that was not acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import grpc

from aerobee.admin import GroupConfig
from aerobee.admin import MessageType as TopicType
from aerobee.blocking import AdminClient
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from tests.faults.mixed_run import Works
from tests.kit.broker_process import BrokerProcess
from tests.kit.campaign import Campaign
from tests.kit.grpc_client import GrpcClient
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.campaign import Run

LIFE_S: Final = 3.0
PLAIN, ORDERED = "plain", "ordered"
GROUPS: Final = {PLAIN: "plain-readers", ORDERED: "ordered-readers"}
CLIENTS: Final = 2
"""Producers, and consumers, of each topic."""
ORDERS: Final = 4
"""Message groups."""
SHORT_S: Final = (0.001, 0.005, 0.02)
LONG_S: Final = 30.0
BATCH_MAX: Final = 16
HIDDEN_S: Final = 10
"""The least that a receive may ask for."""
PROMPT_S: Final = 5.0
"""An acknowledgement that is answered so soon after the delivery was in time, whoever runs
beside."""
AGAIN_MAX: Final = 3
"""How often a message comes when all are acknowledged: late ones, on a busy machine, more than
once."""
CANCELLED, SHORT, LEFT, PUT_OFF = 0.05, 0.15, 0.05, 0.15
"""The shares of calls that are cancelled, and that have a short deadline; of messages that are left
without a word, and put off."""


class Books:
    """What was sent, came and was acknowledged; the threads share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.life = 0
        self.tried: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.came: dict[bytes, int] = {}
        """Body → how often it came."""
        self.done: dict[bytes, int] = {}
        """Body → the life in which its acknowledgement was answered."""
        self.order: dict[str, list[int]] = defaultdict(list)
        """Message group → the numbers of its messages, as each came first."""
        self.again: list[bytes] = []
        """The messages that came again in the life in which they were acknowledged."""

    def take(self, body: bytes, group: str, life: int) -> None:
        """Note a delivery."""
        with self.lock:
            assert body in self.tried, body
            if body not in self.came and group:
                self.order[group].append(int(body.rpartition(b".")[2]))
            self.came[body] = self.came.get(body, 0) + 1
            if not group and self.done.get(body) == life == self.life:
                self.again.append(body)

    @property
    def missing(self) -> set[bytes]:
        """What was acknowledged and has not come."""
        with self.lock:
            return self.acked - self.came.keys()

    def check(self) -> None:
        """Raises: AssertionError."""
        assert not self.missing, sorted(self.missing)[:10]
        assert not self.again, self.again[:10]
        for group, numbers in self.order.items():
            acked = [n for n in numbers if b"%s.%d" % (group.encode(), n) in self.acked]
            assert acked == sorted(acked), (group, acked)


class Caller:
    """One client, which may end its calls early."""

    def __init__(self, client: GrpcClient, books: Books, rng: random.Random) -> None:
        self.client, self.books, self.rng = client, books, rng
        self.patient = False
        """Whether every call is waited for."""

    def ask(self, name: str, **fields: Any) -> Any:
        """The answer of a call; None where it was not heard."""
        request = getattr(messages, f"{name}Request")(**fields)
        draw = 1.0 if self.patient else self.rng.random()
        within_s = self.rng.choice(SHORT_S) if draw < SHORT else LONG_S
        call = self.client.method(name)
        future = call.future(request, timeout=within_s, metadata=self.client.metadata)
        if SHORT <= draw < SHORT + CANCELLED:
            future.cancel()
        try:
            return future.result()
        except (grpc.RpcError, grpc.FutureCancelledError):
            return None


def send(caller: Caller, topic: str, group: str, numbers: count[int]) -> None:
    """Send the next message of a message group, or of none."""
    body = f"{group or topic}.{next(numbers)}".encode()
    system = messages.SystemProperties(message_id=body.decode(), message_group=group)
    message = messages.Message(topic=named(topic), system_properties=system, body=body)
    with caller.books.lock:
        caller.books.tried.add(body)
    answer = caller.ask("SendMessage", messages=[message])
    if answer is not None and answer.status.code == Code.OK:
        with caller.books.lock:
            caller.books.acked.add(body)


def receive(caller: Caller, topic: str) -> int:
    """Receive some messages, and do with each what consumers do; how many came."""
    rng = caller.rng
    request = messages.ReceiveMessageRequest(
        group=named(GROUPS[topic]),
        message_queue=messages.MessageQueue(topic=named(topic)),
        filter_expression=messages.FilterExpression(expression="*"),
        batch_size=BATCH_MAX if caller.patient else rng.randint(1, BATCH_MAX),
        invisible_duration={"seconds": HIDDEN_S},
        long_polling_timeout={"seconds": 1},
    )
    short = not caller.patient and rng.random() < SHORT
    life, taken = caller.books.life, 0
    began = time.monotonic()
    call = caller.client.method("ReceiveMessage")(
        request, timeout=rng.choice(SHORT_S) if short else LONG_S, metadata=caller.client.metadata
    )
    try:
        for answer in call:
            if answer.HasField("message"):
                taken += 1
                settle(caller, topic, answer.message, life, began)
                if not caller.patient and rng.random() < CANCELLED:
                    call.cancel()
    except grpc.RpcError:
        pass
    return taken


def settle(caller: Caller, topic: str, message: Any, life: int, began: float) -> None:
    """Acknowledge a message, put it off, or leave it alone."""
    books, body = caller.books, bytes(message.body)
    books.take(body, message.system_properties.message_group, life)
    draw = 1.0 if caller.patient else caller.rng.random()
    handle = message.system_properties.receipt_handle
    names = {"group": named(GROUPS[topic]), "topic": named(topic)}
    if draw < LEFT:
        return
    if draw < LEFT + PUT_OFF:
        caller.ask(
            "ChangeInvisibleDuration",
            **names,
            receipt_handle=handle,
            invisible_duration={"seconds": 1},
            message_id=body.decode(),
        )
        return
    entry = messages.AckMessageEntry(message_id=body.decode(), receipt_handle=handle)
    answer = caller.ask("AckMessage", **names, entries=[entry])
    prompt = time.monotonic() - began < PROMPT_S
    if answer is not None and answer.status.code == Code.OK and prompt:
        with books.lock:
            books.done[body] = life


def named(name: str) -> Any:
    """The resource of this name."""
    return messages.Resource(name=name)


class Crowd:
    """The clients of one run."""

    def __init__(self, stack: ExitStack, address: str, run: Run) -> None:
        self.books = Books()
        self.callers: dict[str, list[Caller]] = {PLAIN: [], ORDERED: []}
        sends: list[Callable[[], None]] = []
        receives: list[Callable[[], Any]] = []
        for number, topic in enumerate([PLAIN, ORDERED] * CLIENTS):
            for kind in ("producer", "consumer"):
                name = f"{kind}-{number}"
                client = stack.enter_context(GrpcClient(address, name))
                caller = Caller(client, self.books, random.Random(f"{run.seed} {name}"))
                if kind == "consumer":
                    self.callers[topic].append(caller)
                    receives.append(partial(receive, caller, topic))
                elif topic == PLAIN:
                    sends.append(partial(send, caller, topic, "", count(number, CLIENTS * 2)))
                else:
                    groups = [f"order-{number}-{n}" for n in range(ORDERS)]
                    sends += [partial(send, caller, topic, group, count()) for group in groups]
        # Fewer than are taken, so that there is little left in the end.
        self.works = [Works(0.1, work) for work in sends]
        self.works += [Works(0.01, work) for work in receives]

    def work(self) -> None:
        """Begin."""
        for work in self.works:
            work.start()

    def end(self) -> int:
        """Stop working; how many calls were made."""
        return sum(work.end() for work in self.works)

    def read_on(self) -> None:
        """Have the consumers take all that is there, and acknowledge it."""
        readers = {topic: callers[0] for topic, callers in self.callers.items()}
        for reader in readers.values():
            reader.patient = True
        before = dict(self.books.came)
        quiet_since = time.monotonic()
        # Whatever is hidden now comes within that time.
        while time.monotonic() < quiet_since + HIDDEN_S + 2:
            for topic, reader in readers.items():
                while receive(reader, topic):
                    quiet_since = time.monotonic()
            often = {
                body: times
                for body, times in self.books.came.items()
                if times > before.get(body, 0) + AGAIN_MAX
            }
            assert not often, often


def calls(run: Run) -> None:
    """Life after life of one directory."""
    port = free_port()
    settings = {"grpcPort": port}
    broker = BrokerProcess(data=run.directory / "data", settings=settings)
    with broker, ExitStack() as stack:
        with AdminClient(broker.namesrv_address) as admin:
            admin.create_topic(PLAIN, queues=4)
            admin.create_topic(ORDERED, queues=2, message_type=TopicType.FIFO)
            admin.create_group(GroupConfig(name=GROUPS[ORDERED], orderly=True))
        crowd = Crowd(stack, f"{HOST}:{port}", run)
        crowd.work()
        try:
            for cycle in run.cycles():
                broker.let_run(LIFE_S)
                assert broker.child.running, broker.child.errors()[-3_000:]
                crowd.books.life += 1
                if cycle.rng.random() < 0.6:
                    broker.kill()
                    run.counts["kills"] += 1
                else:
                    assert broker.stop() == 0, broker.child.errors()[-3_000:]
                    run.counts["clean stops"] += 1
                broker.start()
        finally:
            run.counts["calls"] += crowd.end()
        crowd.read_on()
        books = crowd.books
        books.check()
        run.counts["acknowledged"] += len(books.acked)
        run.counts["deliveries"] += sum(books.came.values())
        run.worst("of one message", max(books.came.values(), default=0))
        assert broker.stop() == 0
    assert "request.failed" not in broker.log.read_text("utf-8")


P1 = Campaign(
    key="P1",
    title="gRPC: calls that are cancelled or have no time, over kills and stops",
    unit="lives",
    t1=2,
    t2=60,
    run=calls,
)
