"""Controllers of which one hangs: its connection is open, and it answers nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.failover.deciders.controller_links import ControllerLinks
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.controller import GetMetadataInfo, GetNextBrokerId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from aerobee.remoting.wire.header import Header

HANGS, LEADS = "h:1", "h:2"


class Link:
    """A connection to one of them."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        await trio.lowlevel.checkpoint()
        if self.address == HANGS:
            await trio.sleep(timeout_s)
            raise trio.TooSlowError
        if isinstance(header, GetMetadataInfo):
            return Command(code=int(ResponseCode.SUCCESS), ext={"controllerLeaderAddress": LEADS})
        return Command(code=int(ResponseCode.SUCCESS), remark="by the leader")


@pytest.mark.trio
async def test_one_that_hangs_keeps_nobody_from_the_leader(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    hangs = trio.Event()

    @asynccontextmanager
    async def connect(address: str) -> AsyncIterator[Link]:
        if address == LEADS:
            await hangs.wait()  # so the other one is the first that is known
            await trio.sleep(1)
        hangs.set()
        yield Link(address)

    links = ControllerLinks([HANGS, LEADS], 0.6, connect)
    await nursery.start(links.run)
    await trio.sleep(2)
    answer = await links.call(GetNextBrokerId(cluster_name="c", broker_name="b"))
    assert answer.remark == "by the leader"
    nursery.cancel_scope.cancel()
