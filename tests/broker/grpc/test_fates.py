"""What becomes of received messages, and with whose rights."""

from __future__ import annotations

import hmac
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee import Credentials
from aerobee.admin import GroupConfig
from aerobee.blocking import AdminClient
from aerobee.broker.grpc.fates import RENEW_EVERY_S, Fates
from aerobee.broker.grpc.translation.handles import Handle
from aerobee.broker.grpc.translation.kept_handles import Holder
from aerobee.broker.grpc.translation.signature import NOBODY_SIGNS
from aerobee.broker.pop.pop_orders import PopOrderTable
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.messages import (
    AckMessageEntry,
    FilterExpression,
    Message,
    MessageQueue,
    Resource,
    SystemProperties,
)
from aerobee.store.flags import Flag
from aerobee.testing import TestBroker
from aerobee.testing import broker as running_broker
from tests.broker.pops import open_pops
from tests.kit.broker_process import with_accounts
from tests.kit.grpc_client import GrpcClient
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk
    from tests.broker.pops import Pops

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("logged")]

SECRET = "a-long-secret"
DATE = "20261122T035000Z"
TOPIC, GROUP = Resource(name="orders"), Resource(name="shoppers")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(port: int) -> Iterator[TestBroker]:
    settings = with_accounts("the-admin", SECRET) | {"grpcPort": port}
    with running_broker(settings=settings, virtual_time=True) as running:
        with admin_of(running) as admin:
            admin.create_topic("orders", queues=1)
            for user in ("shop", "thief"):
                admin.create_user(user, SECRET)
                admin.grant(user, "Group:shoppers", ["Sub"])
            admin.grant("shop", "Topic:orders", ["Pub", "Sub"])
        yield running


def admin_of(broker: TestBroker) -> AdminClient:
    return AdminClient(broker.namesrv, credentials=Credentials("the-admin", SECRET))


def client(port: int, user: str, client_id: str = "") -> GrpcClient:
    signature = hmac.digest(SECRET.encode(), DATE.encode(), "sha1").hex()
    signed = (
        f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    )
    return GrpcClient(
        f"{HOST}:{port}", client_id or user, **{"x-mq-date-time": DATE, "authorization": signed}
    )


def send(client: GrpcClient, count: int = 1) -> None:
    for number in range(count):
        system = SystemProperties(message_id=f"id-{number}")
        message = Message(topic=TOPIC, system_properties=system, body=b"x")
        assert client.call("SendMessage", messages=[message]).status.code == Code.OK


def receive(client: GrpcClient, *, hidden_s: int = 0) -> list[Any]:
    """The messages that are there; without a time they are hidden again and again."""
    hidden = {"invisible_duration": {"seconds": hidden_s}} if hidden_s else {"auto_renew": True}
    status, *answers = client.call(
        "ReceiveMessage",
        group=GROUP,
        message_queue=MessageQueue(topic=TOPIC),
        filter_expression=FilterExpression(expression="*"),
        batch_size=32,
        long_polling_timeout={"seconds": 5},
        **hidden,
    )
    assert status.status.code in (Code.OK, Code.MESSAGE_NOT_FOUND), status
    return [answer.message for answer in answers if answer.HasField("message")]


def ack(client: GrpcClient, *handles: str, topic: Any = TOPIC) -> Any:
    entries = [AckMessageEntry(message_id="id", receipt_handle=handle) for handle in handles]
    return client.call("AckMessage", group=GROUP, topic=topic, entries=entries)


def test_a_message_is_hidden_again_for_as_long_as_its_account_may(
    broker: TestBroker, port: int
) -> None:
    with client(port, "shop") as shop, client(port, "the-admin") as other:
        send(shop)
        assert len(receive(shop)) == 1
        broker.advance(75)
        assert receive(other, hidden_s=30) == []
        with admin_of(broker) as admin:
            admin.revoke("shop", "Topic:orders")
        broker.advance(200)
        (again,) = receive(other, hidden_s=30)
        assert again.system_properties.delivery_attempt == 2


def test_who_has_no_stream_works_for_as_long_as_it_is_connected(
    broker: TestBroker, port: int
) -> None:
    with client(port, "the-admin") as other:
        with client(port, "shop") as shop:
            send(shop)
            assert len(receive(shop)) == 1
            broker.advance(75)
            assert receive(other, hidden_s=30) == []
        broker.advance(200)
        (again,) = receive(other, hidden_s=30)
        assert again.system_properties.delivery_attempt == 2


def test_a_handle_stands_for_its_message_with_its_own_client_and_account_alone(
    broker: TestBroker, port: int
) -> None:
    """Neither ends it that another topic is named, nor that another account has the client id."""
    with (
        client(port, "shop") as shop,
        client(port, "thief", "shop") as thief,
        client(port, "the-admin") as other,
    ):
        send(shop)
        (message,) = receive(shop)
        handle = message.system_properties.receipt_handle
        with admin_of(broker) as admin:
            admin.create_topic("thefts", queues=1)
            admin.grant("thief", "Topic:thefts", ["Sub"])
        assert ack(thief, handle).status.code == Code.FORBIDDEN
        ack(thief, handle, topic=Resource(name="thefts"))
        broker.advance(75)
        assert receive(other, hidden_s=30) == []
        assert ack(shop, handle).status.code == Code.OK
        broker.advance(200)
        assert receive(other, hidden_s=30) == []


def test_many_entries_are_acknowledged_each_by_itself(broker: TestBroker, port: int) -> None:
    with client(port, "shop") as shop, client(port, "the-admin") as other:
        send(shop, 40)
        received: list[str] = []
        while len(received) < 40:
            received += [one.system_properties.receipt_handle for one in receive(shop)]
        handles = [*received[:20], *["no handle"] * 984, *received[20:]]
        answer = ack(shop, *handles)
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert answer.status.message == "MULTIPLE_RESULTS"
        assert [entry.receipt_handle for entry in answer.entries] == handles
        codes = [entry.status.code for entry in answer.entries]
        assert codes == [Code.OK] * 20 + [Code.INVALID_RECEIPT_HANDLE] * 984 + [Code.OK] * 20
        broker.advance(75)
        assert receive(other, hidden_s=30) == []


def test_in_order_a_handle_is_good_after_a_restart_for_as_long_as_its_message_is_out(
    broker: TestBroker, port: int
) -> None:
    """The broker hid the message again and again, and its client has the first handle alone."""
    with client(port, "shop") as shop, client(port, "the-admin") as other:
        with admin_of(broker) as admin:
            admin.create_group(GroupConfig(name="shoppers", orderly=True))
        send(shop, 2)
        first, second = receive(shop)
        broker.advance(300)
        assert receive(other) == []
        broker.restart()
        handles = [one.system_properties.receipt_handle for one in (first, second)]
        assert ack(shop, *handles).status.code == Code.OK
        send(shop)
        (third,) = receive(other)
        assert third.system_properties.queue_offset == 2
        broker.advance(4_000)
        late = ack(other, *handles)
        assert late.status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_client_at_its_rate_gets_a_dead_letter_and_no_second_delivery(
    broker: TestBroker, port: int
) -> None:
    with client(port, "shop") as shop, client(port, "the-admin") as other:
        send(shop)
        (message,) = receive(shop)
        handle = message.system_properties.receipt_handle
        with admin_of(broker) as admin:
            admin.update_broker_config({"maxRequestRateOfUser": "1"})
        names = {"group": GROUP, "topic": TOPIC, "receipt_handle": handle}
        answer = shop.call("ForwardMessageToDeadLetterQueue", **names, message_id="id-0")
        assert answer.status.code == Code.OK
        broker.advance(75)
        assert receive(other, hidden_s=30) == []


class Own:
    """Makes our own requests of a desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.asked = 0

    def ask(self, header: Header, then: Callable[[Any], None], *, own: bool = False) -> None:
        self.asked += 1
        then(self.desk.begin(header))


class Gone:
    """A client that was there, and its connection."""

    client_id, signer, closed = "shop", NOBODY_SIGNS, False


@asynccontextmanager
async def worked_on(
    root: Path, connection: Any, *bodies: bytes, hidden_ms: int, **changes: Any
) -> AsyncIterator[tuple[Pops, Fates, Any]]:
    """Messages that a client works on, and what becomes of them; the client has no stream."""
    async with open_pops(root, **changes) as pops, trio.open_nursery() as nursery:
        own: Any = Own(pops.desk)
        fates = Fates(pops.desk.broker.core, lambda: own, lambda _: False, PopOrderTable())
        await nursery.start(fates.run)
        await pops.send(*bodies)
        holder = Holder("shop", "", frozenset(), b"", connection)
        for one in await pops.pop(invisible_time=hidden_ms):
            handle = Handle(one.receipt, one.record.physical_offset)
            fates.kept.keep(holder, "g", "t", handle)
        yield pops, fates, own
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_what_nobody_works_on_is_visible_again_once_the_broker_can_put(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """#10933: else it stays hidden for as long as it was hidden last, which may be an hour."""
    gone: Any = Gone()
    there = worked_on(tmp_path, gone, b"a", b"b", hidden_ms=3_600_000)
    async with there as (pops, fates, own):
        flags = pops.desk.store.flags
        flags.set(Flag.DISK_FULL, "no room")
        fates.client_gone(gone)
        await pops.desk.pass_s(RENEW_EVERY_S)
        assert len(fates.kept) == 2
        assert own.asked <= 3, "one message shows that the broker cannot put"
        flags.clear(Flag.DISK_FULL)
        await pops.desk.pass_s(RENEW_EVERY_S + 10)
        assert await pops.bodies() == [b"a", b"b"]
        assert len(fates.kept) == 0


@pytest.mark.trio
async def test_a_broker_that_cannot_put_keeps_nothing_of_a_connection_that_has_ended(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    connection: Any = Gone()
    connection.closed = True
    there = worked_on(tmp_path, connection, b"a", b"b", b"c", hidden_ms=60_000)
    async with there as (pops, fates, _):
        pops.desk.store.flags.set(Flag.DISK_FULL, "no room")
        await pops.desk.pass_s(60 + 3 * RENEW_EVERY_S)
        assert len(fates.kept) == 0


@pytest.mark.trio
async def test_messages_are_hidden_again_however_often_other_clients_go(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    gone: Any = Gone()
    gone.client_id = "another"
    async with worked_on(tmp_path, Gone(), b"a", hidden_ms=60_000) as (pops, fates, _):
        for _ in range(40):
            await pops.desk.pass_s(2)
            fates.client_gone(gone)
        assert await pops.bodies() == []
        assert len(fates.kept) == 1


@pytest.mark.trio
async def test_messages_are_hidden_again_for_no_longer_than_the_longest_timer(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    there = worked_on(tmp_path, Gone(), b"a", hidden_ms=60_000, timer_max_delay_s=100)
    async with there as (pops, fates, _):
        await pops.desk.pass_s(400)
        assert await pops.bodies() == []
        assert len(fates.kept) == 1


class Forwarding:
    """A call whose first request is served later, as where its message has to be read from disk."""

    client_id, signer = "shop", NOBODY_SIGNS

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.serve: Callable[[], None] = lambda: None
        self.ended = False

    def request(self, header: Header, then: Callable[[Any], None]) -> None:
        self.serve = lambda: self.ask(header, then)

    def ask(self, header: Header, then: Callable[[Any], None], *, own: bool = False) -> None:
        then(self.desk.begin(header))

    def done(self) -> None:
        self.ended = True


@pytest.mark.trio
async def test_a_dead_letter_that_is_hidden_again_while_it_is_stored_comes_no_more(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with worked_on(tmp_path, Gone(), b"a", hidden_ms=60_000) as (pops, fates, _):
        (kept,) = filter(None, fates.kept.due(pops.desk.now_ms() + 60_000))
        rpc: Any = Forwarding(pops.desk)
        first = kept.first.text()
        names = {"group": Resource(name="g"), "topic": Resource(name="t"), "message_id": "id"}
        fates.forward(rpc, SimpleNamespace(**names, receipt_handle=first))
        await pops.desk.pass_s(50 + RENEW_EVERY_S)
        assert kept.current.text() != first
        rpc.serve()
        assert rpc.ended
        assert len(fates.kept) == 0
        await pops.desk.pass_s(120)
        assert pops.desk.bodies("%DLQ%g") == [b"a"]
        assert await pops.bodies() == []
