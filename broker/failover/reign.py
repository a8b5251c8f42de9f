"""One time of a member as the master: the tasks that make it one, keep it one, and end it.

The order keeps a pause or a kill at any moment harmless: the epoch is on disk before slaves are
served, all of the sync set have the log as it was before clients are, and the lease is looked at
before each answer. The fence asks nobody; `leadership` decides what may be acknowledged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import structlog
import trio

from aerobee.broker.failover.known_record import AGAIN, LeadOver
from aerobee.broker.failover.leadership import Leadership
from aerobee.broker.failover.lease import Lease
from aerobee.broker.failover.record import given_back, with_set
from aerobee.remoting.server.turns import in_slices
from aerobee.store.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Feature
    from aerobee.broker.failover.known_record import KnownRecord
    from aerobee.store.replication.membership import Membership

RENEWED_AT: Final = 0.5
"""The part of a lease after which it is renewed. Later: a kill is noticed sooner; sooner: a decider
may be away for longer."""
LOOKS: Final = 8
"""How often the sync set is looked at within the time after which a member is late."""
SETTLE: Final = 0.3
"""The part of a lease in which the sync set may get the last bytes before a planned change."""
SETTLE_S: Final = 1.0
"""The most of that, however long the lease is: a broker that stops has to give it back soon."""
BEGIN_S: Final = 30.0
"""How long it may take until slaves are served: a disk that hangs must not keep the lease."""
END_COPY_S: Final = 20.0
"""How long what was copied may take to the disk and into the queues."""

log = structlog.stdlib.get_logger(__name__)


class Names(Protocol):
    """The part of the registration at name servers that knows the role."""

    fenced: Callable[[], bool]
    epoch: Callable[[], int]

    def become_master(self) -> None: ...
    def become_slave(self, broker_id: int) -> None: ...


class Reign:
    """One time as the master; it begins with the lease, whose first renewal is its taking."""

    def __init__(
        self,
        core: Core,
        known: KnownRecord,
        membership: Membership,
        names: Names,
        features: Sequence[Feature],
    ) -> None:
        """`features` are told of the change of the role, `names` tells the name servers."""
        self._core, self._store = core, core.store
        self._config = core.config.failover
        self._lease_s = float(self._config.failover_lease_s)
        self._known = known
        self._membership = membership
        self._names = names
        self._features = features
        self.lease = Lease(self._lease_s)
        self._lease_name = ""
        """As the decider calls it."""
        self.leadership: Leadership | None = None
        """From the moment at which slaves are served."""
        self.served = False
        """Clients were served as by the master."""
        self._given_back = trio.Event()
        self._giving_back = False
        self._told = trio.Event()
        """The decider tells of another master: a renewal shows whether that is so."""

    def told(self) -> None:
        """The decider tells of another master: have the lease renewed, or end it, now."""
        self._told.set()

    async def last(self) -> str:
        """Lead until that is over; returns why."""
        reason, self._lease_name = "", self._known.own.lease
        async with trio.open_nursery() as nursery:

            async def until_over(task: Callable[[], Awaitable[None]]) -> None:
                nonlocal reason
                try:
                    await task()
                except LeadOver as over:
                    reason = reason or str(over)
                    self.lease.end()
                    nursery.cancel_scope.cancel()

            ends = self._fence, self._until_given_back, self._begin_in_time
            for task in (self._renew, *ends, self._serve):
                nursery.start_soon(until_over, task)
        return reason

    # ── The tasks ──

    async def _renew(self) -> None:
        """Have the lease begin anew, again and again. Raises: LeadOver."""
        clock = self._core.clock
        pause_s = self._lease_s * RENEWED_AT
        while True:
            with trio.move_on_after(pause_s):
                await self._told.wait()
            self._told = trio.Event()
            began = clock.monotonic()
            renewed = await self._known.renewed(self._lease_name)
            if renewed is None:
                pause_s = self._lease_s * AGAIN
                continue
            if not renewed:
                raise LeadOver("the decider has ended the lease")
            self.lease.renewed(began)
            pause_s = max(0.0, began + self._lease_s * RENEWED_AT - clock.monotonic())

    async def _fence(self) -> None:
        """Stop to lead when the lease is over by the own clock. Raises: LeadOver."""
        clock, lease = self._core.clock, self.lease
        # Another end each time that it is renewed.
        while (left_s := lease.ends - clock.monotonic()) > 0:  # noqa: ASYNC110  (see above)
            await trio.sleep(left_s)
        raise LeadOver("the lease is over, and was not renewed")

    async def _until_given_back(self) -> None:
        """Lead until the lease is given back. Raises: LeadOver."""
        await self._given_back.wait()
        raise LeadOver("the lease was given back")

    async def _begin_in_time(self) -> None:
        """Give the lease up where the disk holds up the begin. Raises: LeadOver."""
        await trio.sleep(BEGIN_S)
        if self.leadership is None:
            raise LeadOver(f"its disk does not answer: it does not lead after {BEGIN_S:g} s")

    async def _serve(self) -> None:
        """Begin to lead, have the sync set complete, and then serve clients. Raises: LeadOver."""
        core, store = self._core, self._store
        record, group = self._known.own, self._membership.group
        await core.role.stop_following()
        await self._still_able(record.epoch)
        # The records that are here go into the queues; they are shown once all of the set have
        # them.
        group.dispatch_to(store.commit_log.max_offset)
        ended = False
        with trio.move_on_after(END_COPY_S):
            ended = await store.end_copy()
        if not ended:
            raise LeadOver("what was copied does not get to the disk and into the queues")
        try:
            await store.lead_group(record.epoch)
        except OSError as error:
            raise LeadOver(f"the epoch cannot be saved: {error}") from error
        leadership = self.leadership = Leadership(core, group, record, self.lease)
        store.after_growth.add(leadership.grown)
        store.log_out.after_word.add(leadership.heard)
        if self._config.enable_controller_mode:
            # Java's members find the log by name servers, and have to follow before this serves.
            self._names.become_master()
        async with trio.open_nursery() as nursery:
            over: list[LeadOver] = []

            async def change_set() -> None:
                try:
                    await self._change_set(leadership)
                except LeadOver as error:
                    over.append(error)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(change_set)
            for feature in self._features:
                await in_slices(feature.copy_ended())
            await leadership.served.wait()
            self._become_master(record.epoch)
            await trio.sleep_forever()
        raise over[0]

    async def _still_able(self, epoch: int) -> None:
        """Give the lease back where the log has become another one until nothing was copied any
        more: a cut of it has begun, or a later epoch was saved. Raises: LeadOver.
        """
        group, reason = self._membership.group, self._membership.objection
        if not reason and (epoch <= group.last_epoch or epoch < group.least):
            reason = f"it knows epoch {max(group.least, group.last_epoch)}"
        if reason:
            await self._leave(f"its log cannot be led: {reason}")

    async def _leave(self, reason: str) -> NoReturn:
        """Give the lease back, at once. Raises: LeadOver."""
        self.lease.end()
        await self._known.change(self._lease_name, given_back)
        raise LeadOver(reason)

    def _become_master(self, epoch: int) -> None:
        """Serve clients from now on."""
        self.served = True
        for feature in self._features:
            feature.be_master()
        self._store.be_master()
        self._core.role.become_master(epoch)
        self._names.become_master()
        end = self._store.commit_log.max_offset
        log.warning("failover.leads", epoch=epoch, max_offset=end)

    async def _change_set(self, leadership: Leadership) -> None:
        """Take members into the sync set, and late ones out of it, one change at a time.

        Raises: LeadOver.
        """
        sync, clock, flags = leadership.sync, self._core.clock, self._store.flags
        late_s = self._config.ha_max_time_slave_not_catchup_ms / 1000
        while True:
            await trio.sleep(late_s / LOOKS)
            if flags.has(Flag.NOT_WRITEABLE):
                await self._leave(f"its disk has failed: {flags.fault}")
            if (took_s := self._store.sync_takes_s) > late_s and self._core.config.store.sync_flush:
                # Slaves are sent what is on this disk only: nobody can acknowledge anything.
                await self._leave(f"its disk does not answer: a sync has taken {took_s:.0f} s")
            wanted = sync.change(clock.monotonic(), late_s, leadership.ready())
            if wanted is None:
                if await self._known.is_as_known():
                    continue
                # An older record, as of a restored decider: the set is to be in it again.
                wanted = sync.members
            sync.propose(wanted)
            change = partial(with_set, members=wanted)
            record = await self._known.change(self._lease_name, change)
            sync.decided(record)
            leadership.moved()
            log.warning(
                "failover.sync_set", members=list(record.sync_set), confirmed_offset=sync.confirmed
            )

    # ── The end ──

    async def give_back(self, heir: int) -> None:
        """Lead no more, with everything confirmed where that can be soon; `heir` is to be next.

        However this ends, the time as the master is over. Raises: LeadOver where it was before.
        """
        leadership = self.leadership
        if leadership is None or not self.lease.may_answer(self._core.clock.monotonic()):
            return
        if self._giving_back:
            # The first one names who is to be next.
            await self._given_back.wait()
            return
        self._giving_back = True
        core, store = self._core, self._store
        try:
            if core.role.works.is_on:
                await core.role.stop_working()
                for feature in self._features:
                    feature.settle()
            store.be_slave()
            store.dispatch()
            with trio.move_on_after(min(self._lease_s * SETTLE, SETTLE_S)):
                # The next master asks for their progress as soon as it may take the lease.
                for feature in self._features:
                    await feature.close()
                while leadership.sync.confirmed < store.commit_log.max_offset:  # noqa: ASYNC110  (once)
                    await trio.sleep(self._lease_s * AGAIN / 10)
            # From here on nothing is acknowledged, whatever the decider answers.
            self.lease.end()
            await self._known.change(self._lease_name, partial(given_back, heir=heir))
        finally:
            self._given_back.set()

    async def step_down(self, number: int, reason: str, *, leaving: bool) -> None:
        """Be a slave with this number: nothing is acknowledged from here on. `leaving`: the broker
        stops, and is not registered anew.
        """
        core, store = self._core, self._store
        self.lease.end()
        leadership, self.leadership = self.leadership, None
        core.role.is_slave = True
        store.leave_lead()
        store.replicas.refuse()
        if leadership is not None:
            store.after_growth.remove(leadership.grown)
            store.log_out.after_word.remove(leadership.heard)
        log.warning("failover.stepped_down", epoch=core.role.epoch, reason=reason)
        core.role.number = number
        if not leaving:
            self._names.become_slave(number)
        # A planned change may have given up waiting for that.
        await core.role.stop_working()
        if self.served:
            # Also after a planned change, for which the services have ended already.
            for feature in self._features:
                await feature.close()
                feature.copy_begins()
        if not core.role.follows.is_on:
            core.role.follow_again()
