"""A master and its slave: two brokers without sockets, but for the one of the replication."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import trio

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.replication.following import Following
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.remoting.errors import ConnectFailed
from aerobee.remoting.wire.command import Command
from tests.broker.desk import body_of, open_desk
from tests.kit.ports import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from aerobee.store.files.disk import Disk
    from tests.broker.desk import Desk

SLAVE: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}


async def until_true(look: Callable[[], bool]) -> None:
    """Wait for what threads and sockets bring."""
    with trio.fail_after(20):
        while not look():  # noqa: ASYNC110  (nothing of ours signals it)
            await trio.sleep(0.005)


@dataclass
class Link:
    """Asks a broker by its handlers. While `down`, nobody can connect."""

    desk: Desk
    down: bool = False
    refused: int = 0
    asked: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[Self]:
        await trio.lowlevel.checkpoint()
        if self.down:
            self.refused += 1
            raise ConnectFailed(f"{address}: refused")
        yield self

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        self.asked.append(code)
        answer = await self.desk.ask(header, body)
        ext = answer.header.ext() if answer.header is not None else {}
        return Command(code=answer.code, ext=ext, remark=answer.remark, body=body_of(answer))


@dataclass
class Pair:
    """The two, the connection between them, and the service of the slave."""

    master: Desk
    slave: Desk
    link: Link
    following: Following
    port_closed: bool = False
    """The port of the replication takes nobody."""

    @property
    def equal(self) -> bool:
        """Whether the slave has all of the master's log, dispatched."""
        end = self.master.store.commit_log.max_offset
        return self.slave.store.dispatcher.dispatched == end


@asynccontextmanager
async def _after(
    step: Callable[[Desk], Awaitable[None]] | None, master: Desk
) -> AsyncIterator[None]:
    if step is not None:
        await step(master)
    yield


@asynccontextmanager
async def open_pair(
    root: Path,
    *,
    of_master: dict[str, Any] | None = None,
    slave_disk: Disk | None = None,
    before_slave: Callable[[Desk], Awaitable[None]] | None = None,
    **changes: Any,
) -> AsyncIterator[Pair]:
    """Both are open; `Pair.following.run` is for the test to start.

    `before_slave` is called with the master, before the slave is opened.
    """
    async with (
        open_desk(root / "master", **(of_master or {}), **changes) as master,
        _after(before_slave, master),
        open_desk(root / "slave", slave_disk, **SLAVE, **changes) as slave,
        trio.open_nursery() as nursery,
    ):
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        port = listeners[0].socket.getsockname()[1]

        async def serve(stream: trio.SocketStream) -> None:
            if pair.port_closed:
                await stream.aclose()
                return
            await master.store.log_out.serve(stream, HOST, f"{HOST}:{port}")

        link = Link(master)
        address = MasterAddress(f"{HOST}:{port - 1}", f"{HOST}:{port}")
        following = Following(slave.broker.core, lambda: address, link.connect)
        pair = Pair(master, slave, link, following)
        await nursery.start(trio.serve_listeners, serve, listeners)
        yield pair
        nursery.cancel_scope.cancel()
