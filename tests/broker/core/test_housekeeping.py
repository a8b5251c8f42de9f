from collections.abc import Callable

import pytest
import trio
import trio.testing

from aerobee.broker.config.options import BrokerOptions
from aerobee.broker.consumers.client_processor import ClientProcessor
from aerobee.broker.consumers.clients import Client, ClientTable
from aerobee.broker.consumers.compensation import CompensationTable
from aerobee.broker.consumers.consumer_filters import ConsumerFilterTable
from aerobee.broker.consumers.groups import GroupTable
from aerobee.broker.consumers.queue_locks import QueueLockTable
from aerobee.broker.core.housekeeping import CLIENT_SCAN_S, Housekeeping
from aerobee.broker.namesrv.registrations import Registration
from aerobee.broker.namesrv.route_table import RouteTable
from aerobee.broker.pop.pop_orders import PopOrderTable
from aerobee.broker.saved.data_version import DataVersion
from aerobee.broker.topics.topics import TopicTable
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.queue_lock import MessageQueue
from tests.broker.peers import HandClock, Peer

OPTIONS = BrokerOptions()


class LoopClock(HandClock):
    """The monotonic clock of the loop that the test runs in."""

    def monotonic(self) -> float:
        return trio.current_time()


def parts(
    changed: Callable[[str], None] = lambda group: None,
) -> tuple[ClientTable, QueueLockTable[MessageQueue], RouteTable, Housekeeping]:
    clock = LoopClock()
    clients = ClientTable()
    locks: QueueLockTable[MessageQueue] = QueueLockTable()
    routes = RouteTable()
    groups = GroupTable(OPTIONS)
    groups.find("g", 0)
    processor = ClientProcessor(
        clients=clients,
        groups=groups,
        topics=TopicTable(OPTIONS),
        broker_name="b",
        locks=locks,
        filters=ConsumerFilterTable(),
        compensation=CompensationTable(),
        clock=clock,
        changed=changed,
    )
    housekeeping = Housekeeping(
        clients=processor,
        locks=locks,
        orders=PopOrderTable(),
        routes=routes,
        clock=clock,
        channel_expired_timeout_ms=lambda: 120_000,
    )
    return clients, locks, routes, housekeeping


def join(clients: ClientTable, peer: Peer) -> None:
    clients.register_consumer(
        "g",
        Client(peer, peer.address, "JAVA", 479, int(trio.current_time() * 1000)),
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(),
    )


@pytest.mark.trio
async def test_a_silent_client_is_closed_at_the_latest_one_scan_after_120_seconds(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    changed: list[str] = []
    clients, _, _, housekeeping = parts(changed.append)
    await nursery.start(housekeeping.run)
    silent, lively = Peer(), Peer()
    join(clients, silent)
    for _ in range(13):
        join(clients, lively)
        await trio.sleep(CLIENT_SCAN_S)
    await trio.sleep(0.1)
    assert silent.closed == "no heartbeat in time"
    assert lively.closed is None
    assert changed == ["g"]
    assert list(clients.consumers["g"].clients) == [lively.id]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_broker_that_stopped_registering_is_taken_out(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    _, _, routes, housekeeping = parts()
    await nursery.start(housekeeping.run)
    peer = Peer()
    finished(
        routes.register(
            Registration(
                cluster="c",
                broker="b",
                address="b:1",
                broker_id=0,
                ha_address="b:2",
                topics={},
                version=DataVersion(),
                timeout_ms=10_000,
                connection=peer,
            ),
            housekeeping.now_ms(),
        )
    )
    await trio.sleep(9)
    assert peer.closed is None
    await trio.sleep(7)
    assert peer.closed is not None
    assert routes.brokers == {}
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_old_locks_are_forgotten(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    _, locks, _, housekeeping = parts()
    await nursery.start(housekeeping.run)
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    locks.lock("g", "c", [queue], housekeeping.now_ms())
    await trio.sleep(50)
    assert locks.count == 1
    await trio.sleep(25)
    assert locks.count == 0
    nursery.cancel_scope.cancel()
