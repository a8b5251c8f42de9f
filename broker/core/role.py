"""The role of this broker, master or slave, and the services that only one of the two runs.

A slave never puts: its log is its master's. So whatever copies, delivers or checks messages rests
while the broker is a slave, and begins when it becomes the master. A master never becomes a slave
while it runs: it starts again as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.broker.core.feature import Service


class Role:
    """Whether this broker is a slave now. To be asked again each time."""

    def __init__(self, *, slave: bool) -> None:
        self.is_slave = slave
        self.epoch = 0
        """The number of the latest change of the master by a command that this broker knows of."""
        self._master = trio.Event()
        self._stop = trio.Event()
        self._stopped = trio.Event()
        self._again = trio.Event()
        if not slave:
            self._master.set()

    async def stop_following(self) -> None:
        """End the services of a slave; returns when they have ended."""
        self._stop.set()
        await self._stopped.wait()

    def follow_again(self) -> None:
        """Begin the services of a slave again: it did not become the master."""
        self._stop = trio.Event()
        self._again.set()

    async def until_stop(self) -> None:
        """Wait until a slave is to copy no more."""
        await self._stop.wait()

    async def stopped(self) -> None:
        """The services of a slave have ended; returns when they are to begin again."""
        self._stopped.set()
        while self._stop.is_set():
            self._again = trio.Event()
            await self._again.wait()
        self._stopped = trio.Event()

    def become_master(self, epoch: int) -> None:
        """Begin the services of a master, in their own time. Those of a slave have ended."""
        self.is_slave, self.epoch = False, epoch
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

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Run them in order whenever this broker follows its master, until cancelled."""
        started: Callable[[], None] = task_status.started
        while True:
            async with trio.open_nursery() as nursery:
                for service in self._services:
                    await nursery.start(service.run)
                started()
                started = _nobody_waits
                await self._role.until_stop()
                nursery.cancel_scope.cancel()
            await self._role.stopped()


def _nobody_waits() -> None:
    """The start of the broker waits for the first time only."""
