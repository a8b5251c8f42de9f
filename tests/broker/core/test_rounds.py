"""A sync of the log in the loop, under SYNC_FLUSH: the selectors hear of one that took long."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from aerobee.broker.answers import refusal
from aerobee.remoting.server.poller import EpollPoller
from aerobee.remoting.server.worker import Worker
from aerobee.store.config import FlushDiskType
from aerobee.store.flush.inline_syncs import SINGLE_MAX_S
from tests.broker.desk import Desk, open_desk
from tests.kit.faulty_disk import Call, FaultyDisk

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

pytestmark = pytest.mark.trio

TOOK_S = 4 * SINGLE_MAX_S


class SlowSyncs:
    """Makes each sync of the log in the loop take so long."""

    def __init__(self, disk: FaultyDisk, clock: MockClock) -> None:
        self.clock = clock
        self.loop = trio.lowlevel.current_root_task()
        self.count = 0
        disk.before = self.sync

    def sync(self, call: Call) -> None:
        if call.name == "fdatasync" and self.in_the_loop():
            self.count += 1
            self.clock.jump(TOOK_S)

    def in_the_loop(self) -> bool:
        try:
            return trio.lowlevel.current_root_task() is self.loop
        except RuntimeError:
            return False


async def stored(desk: Desk) -> None:
    """One message, answered when it is on disk."""
    assert (await desk.send()).code == 0


async def test_who_asks_after_a_long_sync_in_the_loop_has_not_waited_for_it(
    tmp_path: Path, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        await stored(desk)
        selector = desk.reactor.add_selector(EpollPoller())
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
            client.connect(server.getsockname())
            sock, address = server.accept()
            selector.adopt(sock, address, "test", Worker({}, refusal, nursery, desk.reactor.shared))
            (connection,) = selector.connections.values()
            slow = SlowSyncs(disk, mock_clock)
            await stored(desk)
            assert slow.count == 1
            began, ended = desk.reactor.shared.slow_round
            assert ended - began == pytest.approx(TOOK_S)
            assert connection.reading.until == ended
            connection.close("the test ends")
        selector.poller.close()


async def test_a_long_sync_behind_the_end_of_the_selectors_disturbs_no_stop(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """Services store their last messages when the pollers are closed already."""
    disk = FaultyDisk(tmp_path)
    async with open_desk(tmp_path, disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as desk:
        desk.topic()
        await stored(desk)
        selector = desk.reactor.add_selector(EpollPoller())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(selector.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        slow = SlowSyncs(disk, mock_clock)
        await stored(desk)
        assert slow.count == 1
        assert desk.reactor.shared.slow_round.ended > 0
