"""What is forgotten by the clock, in a broker whose parts are the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from aerobee.broker.broker import Broker
from aerobee.broker.consumers.clients import Client
from aerobee.broker.consumers.member_changes import MemberChanges
from aerobee.broker.core.background import SCAN_S, Housekeeping
from aerobee.broker.namesrv.registrations import Registration
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.data_version import DataVersion
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.codes import RequestCode
from aerobee.store.files.disk import Disk
from tests.broker.desk import Desk, broker_config
from tests.broker.peers import HandClock, Peer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trio


class LoopClock(HandClock):
    """The monotonic clock of the loop that the test runs in."""

    def monotonic(self) -> float:
        return trio.current_time()


def now_ms() -> int:
    return int(trio.current_time() * 1000)


@pytest.fixture
async def desk(tmp_path: Path, nursery: trio.Nursery) -> Desk:
    """Nothing runs but what looks by the clock."""
    broker = Broker(broker_config(tmp_path), disk=Disk(), clock=LoopClock())
    for service in broker.services:
        if isinstance(service, Housekeeping | MemberChanges):
            await nursery.start(service.run)
    return Desk(broker)


def join(desk: Desk, peer: Peer) -> None:
    desk.clients.register_consumer(
        "g",
        Client(peer, peer.address, "JAVA", 479, now_ms()),
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=(),
    )


async def test_a_silent_client_is_closed_at_the_latest_one_scan_after_120_seconds(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    desk.groups.find("g", 0)
    silent, lively = Peer(), Peer()
    join(desk, silent)
    for _ in range(13):
        join(desk, lively)
        await trio.sleep(SCAN_S)
    await trio.sleep(0.1)
    assert silent.closed == "no heartbeat in time"
    assert lively.closed is None
    assert [code for code, _ in lively.told] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert list(desk.clients.consumers["g"].clients) == [lively.id]


async def test_a_broker_that_stopped_registering_is_taken_out(
    desk: Desk, autojump_clock: trio.testing.MockClock
) -> None:
    peer = Peer()
    routes = desk.broker.namesrv.route_table
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
            now_ms(),
        )
    )
    await trio.sleep(9)
    assert peer.closed is None
    await trio.sleep(7)
    assert peer.closed is not None
    assert routes.brokers == {}


async def test_old_locks_are_forgotten(desk: Desk, autojump_clock: trio.testing.MockClock) -> None:
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    desk.locks.lock("g", "c", [queue], now_ms())
    await trio.sleep(50)
    assert desk.locks.count == 1
    await trio.sleep(25)
    assert desk.locks.count == 0
