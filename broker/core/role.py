"""The role of this broker, master or slave, and the services that only one of the two runs.

A slave never puts: its log is its master's. So whatever copies, delivers or checks messages rests
while the broker is a slave, and begins when it becomes the master; what follows the master rests
while it is one itself. Between the two roles nothing of either runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.broker.core.feature import Service


MASTER_ID: Final = 0


class Period:
    """One time in which the services of a role run."""

    def __init__(self) -> None:
        self.over = trio.Event()
        """They are to end."""
        self.rests = trio.Event()
        """They have ended."""


class Shift:
    """The times in which the services of a role run: they come and go with the role."""

    def __init__(self, *, on: bool) -> None:
        self._period = Period()
        self._begun = trio.Event()
        if on:
            self._begun.set()
        else:
            self._period.over.set()
            self._period.rests.set()

    def begin(self) -> None:
        """Have the services run, in their own time."""
        self._period = Period()
        self._begun.set()

    async def end(self) -> None:
        """Have them end; returns when they have, also where that was asked for before."""
        if self._begun.is_set():
            self._begun = trio.Event()
        period = self._period
        period.over.set()
        await period.rests.wait()

    @property
    def is_on(self) -> bool:
        """Whether the services are to run."""
        return self._begun.is_set()

    async def period(self) -> Period:
        """Wait until the services are to run."""
        await self._begun.wait()
        return self._period

    def rests(self, period: Period) -> None:
        """They have ended: this time is over, and a later one that is over before it began."""
        period.rests.set()
        if self._period.over.is_set():
            self._period.rests.set()

    def rests_for_good(self) -> None:
        """The broker stops, and nothing of it runs any more."""
        self._period.rests.set()


class Role:
    """Whether this broker is a slave now. To be asked again each time."""

    def __init__(self, *, slave: bool, number: int = MASTER_ID) -> None:
        self.number = number
        """The brokerId that it has now."""
        self.is_slave = slave
        """Clients are answered as by a slave; also while a master hands its role over."""
        self.epoch = 0
        """The number of the latest change of the master by a command that this broker knows of."""
        self.awaits_restart = ""
        """Why this broker may not change its role before its next start; empty: it may."""
        self.works = Shift(on=not slave)
        """When the services of a master run."""
        self.follows = Shift(on=slave)
        """When those of a slave run."""
        self.fenced: Callable[[], bool] = _never
        """Whether its time as the master is over, noticed or not; a group says so."""

    @property
    def serves(self) -> bool:
        """Whether clients are answered as by a master at this moment. Hot."""
        return not (self.is_slave or self.fenced())

    async def stop_following(self) -> None:
        """End the services of a slave; returns when they have ended."""
        await self.follows.end()

    def follow_again(self) -> None:
        """Begin the services of a slave: it did not become the master, or is none any more."""
        self.follows.begin()

    def become_master(self, epoch: int) -> None:
        """Begin the services of a master, in their own time. The services of a slave have ended."""
        self.is_slave, self.epoch, self.number = False, epoch, MASTER_ID
        self.works.begin()

    async def stop_working(self) -> None:
        """Be answered for as a slave, and end the services of a master; returns when they have."""
        self.is_slave = True
        await self.works.end()

    def work_again(self) -> None:
        """Be the master again that has not handed over its role."""
        self.become_master(self.epoch)


class OnShift:
    """Runs services whenever it is their time."""

    def __init__(self, shift: Shift, services: Sequence[Service]) -> None:
        self._shift = shift
        self._services = services

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Run them in order in each of these times, until cancelled.

        The start of the broker waits for those that run from the begin.
        """
        started: Callable[[], None] = task_status.started
        if not self._shift.is_on:
            started()
            started = _nobody_waits
        try:
            while True:
                period = await self._shift.period()
                async with trio.open_nursery() as nursery:
                    for service in self._services:
                        await nursery.start(service.run)
                    started()
                    started = _nobody_waits
                    await period.over.wait()
                    nursery.cancel_scope.cancel()
                self._shift.rests(period)
        finally:
            self._shift.rests_for_good()


def _never() -> bool:
    """Without a group the role changes by commands alone."""
    return False


def _nobody_waits() -> None:
    """The start of the broker waits for the first time only."""
