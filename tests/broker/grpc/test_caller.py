"""Accounts at the gRPC port: the same users and policies as everywhere; answers with faults."""

from __future__ import annotations

import hmac
from collections import deque
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from aerobee import Credentials
from aerobee.blocking import AdminClient
from aerobee.broker.config.model import BrokerConfig
from aerobee.broker.consumers.clients import ClientTable
from aerobee.broker.grpc import clients
from aerobee.broker.grpc.assembly import OwnChannel
from aerobee.broker.grpc.caller import GrpcCaller
from aerobee.broker.grpc.clients import Client, Clients
from aerobee.broker.grpc.door import Door
from aerobee.broker.grpc.rpc import Rpc
from aerobee.broker.grpc.service import MessagingService
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS
from aerobee.remoting.errors import RequestPostponed
from aerobee.remoting.grpc.calls import Method, Shape
from aerobee.remoting.grpc.enums import ClientType, Code
from aerobee.remoting.grpc.head import RequestHead
from aerobee.remoting.grpc.messages import (
    FilterExpression,
    Message,
    MessageQueue,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
)
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.server.route_table import resolve
from aerobee.remoting.server.routes import Route
from aerobee.remoting.server.worker import Worker
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.client import HeartbeatData
from aerobee.remoting.wire.bodies.queue import ConsumerRunningInfo
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.client import Heartbeat
from aerobee.remoting.wire.headers.offset import GetMaxOffset
from aerobee.remoting.wire.headers.transaction import CheckTransactionState
from aerobee.remoting.wire.typed_command import TypedCommand
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.grpc_client import GrpcClient
from tests.kit.ports import HOST, kept_port
from tests.remoting.server.stage import LIMITS, Stage, echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    import trio

    from aerobee.remoting.server.guard import Gate
    from aerobee.remoting.wire.command import Command

pytestmark = pytest.mark.service

PORT = kept_port()
SECRET = "a-long-secret"
DATE = "20261122T035000Z"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = with_accounts("the-admin", SECRET) | {"grpcPort": PORT}
    data = tmp_path_factory.mktemp("guarded") / "data"
    with BrokerProcess(data=data, settings=settings) as broker:
        account = Credentials("the-admin", SECRET)
        with AdminClient(broker.namesrv_address, credentials=account) as admin:
            admin.create_topic("mine", queues=1)
            admin.create_topic("other", queues=1)
            admin.create_user("shop", SECRET)
            admin.grant("shop", "Topic:mine", ["Pub", "Sub"])
            admin.grant("shop", "Group:shoppers", ["Sub"])
            admin.create_user("thief", SECRET)
            admin.grant("thief", "Topic:other", ["Sub"])
            admin.grant("thief", "Group:thieves", ["Sub"])
        yield broker


def client(user: str, secret: str = SECRET, client_id: str = "") -> GrpcClient:
    """A client that signs as this user; without a name it does not sign."""
    signature = hmac.digest(secret.encode(), DATE.encode(), "sha1").hex()
    signed = (
        f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    )
    metadata = {"x-mq-date-time": DATE, "authorization": signed if user else ""}
    return GrpcClient(f"{HOST}:{PORT}", client_id or f"client-{user}", **metadata)


def sent(client: GrpcClient, topic: str) -> Any:
    message = Message(
        topic=Resource(name=topic), system_properties=SystemProperties(message_id="1"), body=b"x"
    )
    return client.call("SendMessage", messages=[message]).status


def test_an_account_with_the_rights_is_served(broker: BrokerProcess) -> None:
    with client("shop") as shop:
        assert shop.call("QueryRoute", topic=Resource(name="mine")).status.code == Code.OK
        assert sent(shop, "mine").code == Code.OK
        status, got, _ = shop.call(
            "ReceiveMessage",
            group=Resource(name="shoppers"),
            message_queue=MessageQueue(topic=Resource(name="mine")),
            filter_expression=FilterExpression(expression="*"),
            batch_size=1,
            invisible_duration={"seconds": 10},
            long_polling_timeout={"seconds": 5},
        )
        assert (status.status.code, got.message.body) == (Code.OK, b"x")


def test_rights_end_where_they_end(broker: BrokerProcess) -> None:
    with client("shop") as shop:
        refused = sent(shop, "other")
        assert refused.code == Code.FORBIDDEN
        assert "User:shop has no permission to access Topic:other" in refused.message


@pytest.mark.parametrize(
    ("user", "secret", "why"),
    [
        ("", "", "username cannot be null."),
        ("shop", "wrong", "check signature failed."),
        ("nobody", SECRET, "check signature failed."),
    ],
)
def test_a_stranger_is_refused_and_told_why(
    broker: BrokerProcess, user: str, secret: str, why: str
) -> None:
    with client(user, secret) as stranger:
        for status in (
            sent(stranger, "mine"),
            stranger.call("QueryRoute", topic=Resource(name="mine")).status,
        ):
            assert (status.code, status.message) == (Code.UNAUTHORIZED, why)
        stream = stranger.telemetry()
        publishing = Publishing(topics=[Resource(name="mine")])
        answer = stream.settings(Settings(client_type=ClientType.PRODUCER, publishing=publishing))
        assert (answer.status.code, answer.HasField("settings")) == (Code.UNAUTHORIZED, False)
        stream.end()


def test_a_client_id_of_another_account_ends_no_stream(broker: BrokerProcess) -> None:
    """Whose stream it ends, their messages go to others: a right on any group would do."""
    with client("shop") as shop, client("thief", client_id="client-shop") as thief:
        theirs = shop.telemetry()
        assert theirs.settings(consumer("shoppers", "mine")).status.code == Code.OK
        stream = thief.telemetry()
        refused = stream.settings(consumer("thieves", "other"))
        assert (refused.status.code, refused.HasField("settings")) == (Code.FORBIDDEN, False)
        assert "'client-shop' is that of an open stream of another account" in (
            refused.status.message
        )
        with pytest.raises(StopIteration):
            stream.next()
        account = Credentials("the-admin", SECRET)
        with AdminClient(broker.namesrv_address, credentials=account) as admin:
            assert not admin.consumers("thieves").members
            (member,) = admin.consumers("shoppers").members
        assert member.client_id == "client-shop"
        again = theirs.settings(consumer("shoppers", "mine"))
        assert again.status.code == Code.OK
        theirs.end()


def consumer(group: str, topic: str) -> Settings:
    subscription = Subscription(
        group=Resource(name=group),
        subscriptions=[
            SubscriptionEntry(
                topic=Resource(name=topic), expression=FilterExpression(expression="*")
            )
        ],
    )
    return Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)


# ── Faults of ours, outside of any round ──


class Ended:
    """A stream that only says how it has ended."""

    def __init__(self) -> None:
        self.status: object = None

    def finish(self, code: StatusCode, text: str) -> None:
        self.status = code, text


def caller() -> GrpcCaller:
    door = Door([], lambda: None)
    return GrpcCaller(door, OwnChannel(Stage().reactor.shared))


def nobody() -> Clients:
    return Clients(lambda _: None, lambda _: None, lambda client, data: ConsumerRunningInfo())


def zero_division(answer: Answer) -> None:
    raise ZeroDivisionError("a fault of ours")


def test_an_answer_that_cannot_be_told_does_not_end_what_woke_its_request() -> None:
    """Such as the task that wakes all receives: with it the broker would end."""
    stream: Any = Ended()
    client = Client(nobody(), caller(), stream)
    command = TypedCommand(
        code=int(RequestCode.HEART_BEAT), typed=Heartbeat(), reply=zero_division, arrived=0.0
    )
    with capture_logs() as logs:
        client.answer(command, Answer(), held=True)
    assert [entry["event"] for entry in logs] == ["grpc.answer_failed"]
    assert stream.status == (StatusCode.INTERNAL, "ZeroDivisionError in the broker")
    assert client.context.stats.requests_failed == 1


def test_a_half_message_that_cannot_be_told_does_not_end_the_checks() -> None:
    stream: Any = Ended()
    client = Client(nobody(), caller(), stream)
    header = CheckTransactionState(commit_log_offset=1, tran_state_table_offset=2)
    with capture_logs() as logs:
        client.notify(int(RequestCode.CHECK_TRANSACTION_STATE), header, b"no record")
    assert [entry["event"] for entry in logs] == ["grpc.notice_failed"]
    assert stream.status is None


# ── Clients without their stream ──


def test_a_client_whose_stream_has_ended_is_there_while_it_sends_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stands between ends a silent stream; Python's client begins another after 5 minutes."""
    now, gone = [1_000.0], list[str]()
    monkeypatch.setattr(clients, "monotonic", lambda: now[0])
    table = Clients(
        lambda _: None,
        lambda client: gone.append(client.client_id),
        lambda client, data: ConsumerRunningInfo(),
    )
    stream: Any = Ended()
    for name in ("silent", "alive"):
        client = Client(table, caller(), stream)
        client.client_id, client.data = name, HeartbeatData(client_id=name)
        table.entered(client)
        table.lost(client)
    for _ in range(5):
        table.heard(table.by_id["alive"])
        now[0] += 10.5
        for _ in table.expire():
            pass
        assert gone == ["silent"]
    assert table.by_id["alive"].paused, "nothing can be told to it"
    now[0] += clients.HEARD_WITHIN_S
    for _ in table.expire():
        pass
    assert gone == ["silent", "alive"]


class Held:
    """A door behind which requests wait."""

    def __init__(self) -> None:
        self.commands: list[TypedCommand] = []

    def request(self, caller: GrpcCaller, command: TypedCommand, *, own: bool = False) -> None:
        self.commands.append(command)

    def drop_held(self, caller: GrpcCaller) -> None:
        """Nothing is held for it."""


def test_nothing_is_kept_of_a_client_that_left_before_it_was_refused() -> None:
    """One of many wrong signatures is refused a second later: its stream may be gone by then."""
    table, held = nobody(), Held()
    door: Any = held
    core: Any = SimpleNamespace(config=BrokerConfig(), clock=SimpleNamespace(now_ms=lambda: 0))
    consumers: Any = SimpleNamespace(groups=None, clients=ClientTable())
    parts: Any = MagicMock(clients=table)
    service = MessagingService(
        core, topics=MagicMock(), consumers=consumers, door=door, parts=parts, address=""
    )
    channel: Any = OwnChannel(Stage().reactor.shared)
    head = RequestHead(
        (
            (b":method", b"POST"),
            (b":path", b"/any/Telemetry"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            (b"x-mq-client-id", b"stranger"),
        )
    )
    method = Method("Telemetry", Shape.BOTH_STREAM)
    stream: Any = MagicMock(head=head, method=method, owner=None)
    service.opened(channel, stream)
    publishing = Publishing(topics=[Resource(name="mine")])
    settings = Settings(client_type=ClientType.PRODUCER, publishing=publishing)
    service.received(channel, stream, TelemetryCommand(settings=settings).SerializeToString())
    assert [len(clients) for clients in table.beside.values()] == [1]
    service.over(stream)
    (command,) = held.commands
    command.reply(Answer(ResponseCode.NO_PERMISSION, remark="check signature failed."))
    assert not table.beside
    assert not table.by_id


def test_answers_to_a_call_that_is_over_are_left_for_others() -> None:
    """Messages come between a cancellation and the turn in which its call is told of it."""
    call: Any = SimpleNamespace(over=False, send=lambda data: True)
    channel: Any = OwnChannel(Stage().reactor.shared)
    rpc = Rpc(Door([], lambda: None), channel, NOBODY_SIGNS, call, None)

    def answer(number: int) -> bytes:
        call.over = number == 2
        return b"answer"

    left = deque([1, 2, 3])
    with pytest.raises(StopIteration) as ended:
        next(rpc.send_in_turns(left, answer))
    assert (ended.value.value, list(left)) == (False, [3])


# ── Requests of ours ──


def test_requests_of_ours_take_nothing_of_the_rate_of_clients_on_this_machine() -> None:
    stage = Stage(limits=LIMITS._replace(requests_per_s_of_address=2))
    door = Door([], lambda: None)
    door.worker = stage.worker
    ours, codes = GrpcCaller(door, OwnChannel(stage.reactor.shared)), list[int]()

    def ask(*, own: bool) -> None:
        header = GetMaxOffset(topic="t", queue_id=0)
        ours.ask(header, lambda answer: codes.append(answer.code), own=own)

    for _ in range(5):
        ask(own=True)
    assert codes == [0] * 5
    for _ in range(3):
        ask(own=False)
    assert codes[5:7] == [0, 0]
    assert codes[7], "a client of this machine has its limit"


def test_the_time_of_our_requests_goes_on() -> None:
    context = caller().context
    before = monotonic()
    first = context.now
    assert before <= first <= context.now <= monotonic()


# ── Several requests of one caller ──


class Slow:
    """A worker whose requests do not end at once, behind a door that is open."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.gated: list[Command] = []
        self.told: list[Any] = []
        gate: Gate = self.gate
        self.stage = Stage(gate=gate)
        shared, nursery = self.stage.reactor.shared, cast("trio.Nursery", None)
        routes = [Route(GetMaxOffset, self.alone, "admin", self.together)]
        table = resolve(routes, self.stage.reactor.pools)
        self.door = Door([], lambda: None)
        self.door.worker = Worker(table, lambda _: None, nursery, shared, gate)
        channel: Any = OwnChannel(shared)
        channel.context = self.stage.selector.context
        self.caller = GrpcCaller(self.door, channel)

    def ask(self, body: bytes, *, own: bool) -> None:
        header = GetMaxOffset(topic="t", queue_id=0)
        self.caller.ask(header, lambda answer: self.told.append(answer.body), body=body, own=own)

    def gate(self, command: Command, caller: Any) -> None:
        if self.way == "held back" and command not in self.gated:
            self.gated.append(command)
            caller.postpone(to_sweep=True)

    def alone(self, header: GetMaxOffset, command: Command, caller: Any) -> Any:
        if self.way == "late":
            raise RequestPostponed
        return (
            self.steps(header, command, caller)
            if self.way == "in steps"
            else echo(header, command, caller)
        )

    def steps(self, header: GetMaxOffset, command: Command, caller: Any) -> Any:
        yield
        yield
        return echo(header, command, caller)

    def together(self, header: GetMaxOffset, command: Command, caller: Any, rest: Any) -> Any:
        answer = self.alone(header, command, caller)
        if not isinstance(answer, Answer):
            return answer
        caller.answer(command, answer)
        return 1


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("way", ["at once", "late", "in steps", "held back"])
@pytest.mark.trio
async def test_each_of_several_requests_of_one_caller_is_served(
    nursery: trio.Nursery, way: str, own: bool
) -> None:
    slow = Slow(way)
    await nursery.start(slow.door.run)
    bodies = [b"one", b"two", b"three"]
    for body in bodies:
        slow.ask(body, own=own)
    slow.caller.context.serve_run()
    assert way != "late" or not slow.told
    await ended(slow, way, bodies)


async def ended(slow: Slow, way: str, bodies: list[bytes]) -> None:
    """All of them are answered, in their order."""
    slow.way = "at once" if way == "late" else way
    slow.stage.reactor.resume()
    for _ in bodies:
        await wait_all_tasks_blocked()
        for _ in slow.stage.reactor.resume_of_sweep():
            pass
    await wait_all_tasks_blocked()
    assert slow.told == bodies
    assert slow.caller.current is None


def asks(slow: Slow, bodies: list[bytes]) -> Iterator[None]:
    """Requests that are made step by step."""
    for body in bodies:
        slow.ask(body, own=False)
        yield


@pytest.mark.parametrize("turn_s", [0, 60])
@pytest.mark.parametrize("way", ["at once", "late", "in steps", "held back"])
@pytest.mark.trio
async def test_many_requests_of_one_caller_are_made_in_turns(
    nursery: trio.Nursery, way: str, turn_s: int
) -> None:
    slow = Slow(way)
    slow.caller.context.turn_ends = monotonic() + turn_s
    await nursery.start(slow.door.run)
    bodies = [b"%d" % number for number in range(20)]
    slow.caller.ask_in_turns(asks(slow, bodies))
    slow.caller.context.serve_run()
    if way == "at once":
        assert len(slow.told) == (20 if turn_s else 1)
    await ended(slow, way, bodies)


@pytest.mark.trio
async def test_a_fault_between_two_requests_ends_their_caller_alone(nursery: trio.Nursery) -> None:
    slow, other = Slow("at once"), Slow("at once")
    other.door = other.caller.door = slow.door
    await nursery.start(slow.door.run)

    def faulty() -> Iterator[None]:
        slow.ask(b"one", own=False)
        yield
        raise ZeroDivisionError("a fault of ours")

    with capture_logs() as logs:
        slow.caller.ask_in_turns(faulty())
        other.caller.ask_in_turns(asks(other, [b"1", b"2", b"3"]))
        await wait_all_tasks_blocked()
    assert [entry["event"] for entry in logs] == ["grpc.step_failed"]
    assert other.told == [b"1", b"2", b"3"]


@pytest.mark.trio
async def test_what_a_caller_has_still_to_ask_ends_with_it(nursery: trio.Nursery) -> None:
    slow = Slow("late")
    await nursery.start(slow.door.run)
    slow.ask(b"one", own=False)
    slow.ask(b"two", own=False)
    slow.caller.ask_in_turns(asks(slow, [b"three", b"four"]))
    slow.caller.close("its client has gone")
    slow.way = "at once"
    slow.stage.reactor.resume()
    await wait_all_tasks_blocked()
    assert slow.told == []
