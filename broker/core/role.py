"""The role of this broker, master or slave, and the services that only one of the two runs.

A slave never puts: its log is its master's. So whatever copies, delivers or checks messages rests
while the broker is a slave, and begins when it becomes the master. A master never becomes a slave
while it runs: it starts again as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.core.feature import Service


class Role:
    """Whether this broker is a slave now. To be asked again each time."""

    def __init__(self, *, slave: bool) -> None:
        self.is_slave = slave
        self._master = trio.Event()
        self._stop = trio.Event()
        self._stopped = trio.Event()
        if not slave:
            self._master.set()

    async def stop_following(self) -> None:
        """End the services of a slave, for good; returns when they have ended."""
        self._stop.set()
        await self._stopped.wait()

    async def until_stop(self) -> None:
        """Wait until a slave is to copy no more."""
        await self._stop.wait()

    def stopped(self) -> None:
        """The services of a slave have ended."""
        self._stopped.set()

    def become_master(self) -> None:
        """Begin the services of a master, in their own time. Those of a slave have ended."""
        self.is_slave = False
        self._master.set()

    async def until_master(self) -> None:
        """Wait until this broker is the master; at once where it is."""
        await self._master.wait()


class OnceMaster:
    """Runs the services of a master in a broker that has started as a slave."""

    def __init__(self, role: Role, services: Sequence[Service]) -> None:
        self._role = role
        self._services = services

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Wait for the role, then run them in order until cancelled."""
        task_status.started()
        await self._role.until_master()
        async with trio.open_nursery() as nursery:
            for service in self._services:
                await nursery.start(service.run)
            await trio.sleep_forever()


class WhileSlave:
    """Runs the services of a slave until it is to become the master."""

    def __init__(self, role: Role, services: Sequence[Service]) -> None:
        self._role = role
        self._services = services

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run them in order until they are stopped, or until cancelled."""
        async with trio.open_nursery() as nursery:
            for service in self._services:
                await nursery.start(service.run)
            task_status.started()
            await self._role.until_stop()
            nursery.cancel_scope.cancel()
        self._role.stopped()
