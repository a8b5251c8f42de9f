"""A member of a group: it looks who the master is, follows, or leads while its lease lasts.

The service has one loop. It looks at the decider's record; where it may, it takes the lease and
leads until that is over, and where another one is the master, it follows. Leading has tasks of its
own: renewals, changes of the sync set, and the fence, which asks nobody. The order keeps a pause or
a kill at any moment harmless: the epoch is on disk before slaves are served, all of the sync set
have the log as it was before clients are, and the lease is looked at before each answer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import structlog
import trio

from aerobee.broker.config.settings.failover import member_ids
from aerobee.broker.failover.decider import ChangeRefused, DeciderMisused, DeciderSilent, Sight
from aerobee.broker.failover.election import Candidate, Room, emptied, objection
from aerobee.broker.failover.leadership import Leadership
from aerobee.broker.failover.lease import Lease
from aerobee.broker.failover.record import (
    RecordIllegal,
    elected,
    elected_unclean,
    first_record,
    given_back,
    reached_at,
    with_set,
)
from aerobee.broker.failover.sync_set import NOTHING
from aerobee.broker.replication.master_calls import MasterAddress, MasterRefused
from aerobee.store.flags import Flag
from aerobee.store.replication.membership import Lack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Feature
    from aerobee.broker.failover.decider import Decider
    from aerobee.broker.failover.record import Record
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.store.log.read_through import LogDamage
    from aerobee.store.replication.membership import Membership

RENEWED_AT: Final = 0.5
"""The part of a lease after which it is renewed. Later: a kill is noticed sooner; sooner: a decider
may be away for longer."""
AGAIN: Final = 0.1
"""The part of a lease after which something is tried again that got no answer."""
MEND: Final = (
    "have another member be the master, stop this one, keep its data directory aside and begin with"
    " an empty one: it copies the log anew"
)
LOOKS: Final = 8
"""How often the sync set is looked at within the time after which a member is late."""
SETTLE: Final = 0.3
"""The part of a lease in which the sync set may get the last bytes before a planned change."""
END_COPY_S: Final = 20.0
"""How long what was copied may take to the disk and into the queues."""
GIVE_BACK_S: Final = 2.0
"""How long a broker that stops may take to give its lease back."""
HEIR_WAITS: Final = 1.0
"""The part of a lease that other members leave to the one that is named as the next master."""

LACKS: Final = {
    Lack.EMPTIED: "it was emptied while this member was in the sync set",
    Lack.OLD_TABLES: "it was cut, and the tables of the next master are not here yet",
}
"""Why a copy that is marked so may not be a master's."""
UNSAID: Final = (DeciderSilent, DeciderMisused, RecordIllegal)
"""The errors that keep a member from knowing the record."""

log = structlog.stdlib.get_logger(__name__)


class Names(Protocol):
    """The part of the registration at name servers that knows the role."""

    fenced: Callable[[], bool]

    def become_master(self) -> None: ...
    def become_slave(self, broker_id: int) -> None: ...


class Copier(Protocol):
    """The service that copies the tables of a master."""

    @property
    def all_of(self) -> int: ...
    async def copied(self, master: MasterAddress, *, whole: bool = ...) -> bool: ...


class LeadOver(Exception):
    """This member leads no more; the text says why."""


class Member:
    """The service of one member."""

    def __init__(
        self,
        core: Core,
        decider: Decider,
        following: Following,
        tables: Copier,
        connect: Connect,
        names: Names,
        *,
        addresses: MasterAddress,
    ) -> None:
        """`following` is to follow the master, whose tables `tables` copies; `names` tells the name
        servers what this broker is, and `addresses` is where it is itself.
        """
        self._core, self._store = core, core.store
        self._config = core.config.failover
        self._lease_s = float(self._config.failover_lease_s)
        self.decider = decider
        self._following = following
        self.tables = tables
        self._connect = connect
        self.names = names
        self._addresses = addresses
        self.id = core.config.broker.broker_id
        self.save_tables: Callable[[], Awaitable[bool]] = _nothing_to_save
        """Has all tables on disk; whether they are."""
        self.features: list[Feature] = []
        """All of them: they are told of a change of the role."""
        self.membership: Membership | None = None
        """From the load of the store on."""
        self.sight: Sight | None = None
        """The record of the decider when it was last heard."""
        self.problem = ""
        """Why the decider is not heard; empty: it is."""
        self.waits_because = ""
        """Why this member may not lead now."""
        self.damage = ""
        """Where its log cannot be read, in words; empty: all of it can, as far as it was read."""
        self.leadership: Leadership | None = None
        self._lease, self._room = Lease(self._lease_s), Room(self._lease_s)
        self._heir_since = (0, 0.0)
        """A version of the record that names an heir, and since when it is known."""
        self._served = False
        """Clients were served as by the master, and the features are not closed since."""
        self._leaving = False
        self._judged = False
        """Whether it is known if this member has lost what it had: from the first sight on."""
        self._unclean: int | None = None
        """The version of the record in whose place a person wants this master, whatever is lost;
        None: nobody does."""
        self._waiting = trio.CancelScope()
        """Waits for news of the decider."""
        self._given_back = trio.Event()
        """The lease of this time was given back."""
        self._told = trio.Event()
        """The decider tells of another master: a renewal shows whether that is so."""
        self._changing = trio.Lock()
        """One change of the record at a time."""
        names.fenced = self.fenced
        following.may_follow = self.may_follow
        following.unknown = "nobody is the master of the group"
        following.again_s = self._lease_s * AGAIN

    def held(self) -> int:
        """The end of what may be acknowledged at this moment; −1: nothing may. Hot."""
        leadership = self.leadership
        return NOTHING if leadership is None else leadership.held()

    def fenced(self) -> bool:
        """Whether this member may be the master no more, whether it has noticed or not."""
        return not self._lease.may_answer(self._core.clock.monotonic())

    def joined(self, membership: Membership) -> None:
        """The store is loaded, and a member."""
        self.membership = membership
        self._core.role.epoch = membership.group.least

    def master(self) -> MasterAddress | None:
        """Where the master is that this member follows; None: nobody is, or it is itself."""
        record = None if self.sight is None else self.sight.record
        if record is None or record.master == self.id or not record.ha_address:
            return None
        return MasterAddress(record.address, record.ha_address)

    # ── The loop ──

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Look, follow and lead until cancelled."""
        task_status.started()
        known: Sight | None = None
        while True:
            known = await self._looked(known)
            if known is None or not await self._judge(known):
                known = None
                await trio.sleep(self._lease_s * AGAIN)
                continue
            self._noted(known)
            self.waits_because = self._objection(known)
            if not self.waits_because and not self._leaving:
                await self._lead(known)
                known = None

    async def _looked(self, known: Sight | None) -> Sight | None:
        """The record of the decider, or its next one; None: it does not say."""
        wait_s = self._lease_s
        if known is not None and not known.held:
            # Whom the others wait for, and how long, is a matter of time as well.
            wait_s *= AGAIN
        sight = None
        try:
            with trio.CancelScope() as self._waiting:
                sight = await self.decider.look(known, wait_s)
        except UNSAID as error:
            if not self.problem:
                log.warning("failover.decider_away", reason=str(error))
            self.problem = str(error) or type(error).__name__
            return None
        if self.problem and sight is not None:
            self.problem = ""
            log.info("failover.decider_back")
        return sight

    async def _judge(self, sight: Sight) -> bool:
        """Mark this member's log if it was emptied, before a byte is copied; and no more once all
        of the master's is here again. False: that cannot be saved now.
        """
        membership, record = self.membership, sight.record
        assert membership is not None
        try:
            if not self._judged:
                least = self._config.min_in_sync_replicas
                epoch = 0 if membership.log_is_gone else membership.group.last_epoch
                if emptied(Candidate(self.id, epoch), record, least):
                    await membership.note(Lack.EMPTIED)
                self._judged = True
            if membership.lacks and record is not None and await self._has_all_of(record.epoch):
                await membership.forget_lacks()
        except OSError as error:
            log.error("replication.not_saved", error=str(error))
        return self._judged

    async def _has_all_of(self, epoch: int) -> bool:
        """Whether log and tables of the master of that epoch are here, and on disk."""
        membership = self.membership
        assert membership is not None
        if not membership.has_all or self.tables.all_of != epoch:
            return False
        return await self.save_tables()

    def _noted(self, sight: Sight) -> None:
        """Another record may be known: no earlier master is followed from now on."""
        before, self.sight = self.master(), sight
        record = sight.record
        assert self.membership is not None
        if record is not None:
            self.membership.group.know(record.epoch)
            self._core.role.epoch = self.membership.group.least
            if record.heir and self._heir_since[0] != sight.version:
                self._heir_since = sight.version, self._core.clock.monotonic()
        if self.master() != before:
            self._following.address = None
            self._following.follow_anew()

    def _objection(self, sight: Sight) -> str:
        """Why this member may not take the lease, in words; empty: it may."""
        membership, record = self.membership, sight.record
        assert membership is not None
        if self._is_wanted(sight):
            return "the lease is held" if sight.held else membership.objection
        ids = member_ids(self._config.failover_members)
        founder = self.id == min(ids, default=self.id)
        candidate = Candidate(self.id, membership.group.least, self.unfit, founder)
        reason = objection(candidate, record, held=sight.held)
        if reason := reason or self.no_room:
            return reason
        if record is None or record.heir in (0, self.id):
            return ""
        left_s = self._heir_since[1] + self._lease_s * HEIR_WAITS - self._core.clock.monotonic()
        return f"member {record.heir} is to be the master" if left_s > 0 else ""

    @property
    def unfit(self) -> str:
        """The reason why its log cannot be a master's, in words; empty: it can. A master goes on
        with a damaged one.
        """
        membership = self.membership
        assert membership is not None
        if reason := membership.objection:
            return reason
        for lack in sorted(membership.lacks):
            return LACKS[lack]
        return self._store.flags.lasting_fault or ("" if self.leads else self.damage)

    @property
    def no_room(self) -> str:
        """Why others should be the master, while one of them can; empty: no reason is known."""
        self._look_at_room()
        if self.leads or not self._room.yields(self._core.clock.monotonic()):
            return ""
        return f"it has no room for messages: {self._store.flags.no_room}"

    def _look_at_room(self) -> None:
        held = self.sight is not None and self.sight.held
        full = bool(self._store.flags.no_room)
        self._room.look(self._core.clock.monotonic(), full=full, held=held)

    @property
    def makes_way(self) -> bool:
        """Whether this master is to give its lease to a member that has room."""
        self._look_at_room()
        served = self.leads and not self._core.role.is_slave
        return served and self._room.makes_way(self._core.clock.monotonic())

    async def make_way(self, heir: int) -> None:
        """Give the lease to a member that has room, and say why. Raises: LeadOver."""
        self._room.gave(self._core.clock.monotonic())
        log.warning("failover.makes_way", heir=heir, reason=self._store.flags.no_room)
        await self.give_back(heir)

    def _is_wanted(self, sight: Sight) -> bool:
        """Whether a person wants this master now, whatever is lost: no other has come since."""
        return self._unclean is not None and self._unclean == sight.version

    # ── As a slave ──

    def log_damaged(self, damage: LogDamage) -> None:
        """A record that was whole is not any more: this member is no candidate until it is mended.

        It leaves the sync set where enough others stay. A master goes on: who else has a whole log
        is for a person to see.
        """
        self.damage = f"{damage.path}: {damage.kind} at {damage.physical_offset}"
        log.error("failover.damaged", reason=self.damage, remedy=MEND)
        if not self.leads:
            self._following.follow_anew()

    def _stays_away(self) -> bool:
        """Whether its copy counts no more. In a set that would be too small it goes on to count:
        its newest messages are as good as any.
        """
        record = self.record
        if not self.damage or record is None:
            return bool(self.damage)
        return self.id not in record.sync_set or (
            len(record.sync_set) > self._config.min_in_sync_replicas
        )

    async def may_follow(self, master: MasterAddress) -> bool:
        """Whether a master may be followed; epochs say where the log goes on.

        A member outside of the sync set copies the tables first: it may join as soon as it is
        connected. So does one that lacks what it had. Raises: MasterRefused, RemotingError,
        OSError.
        """
        if self._stays_away():
            raise MasterRefused(f"its own log is damaged: {self.damage}; {MEND}")
        async with self._connect(master.address) as link:
            if problem := await self._following.other_group(link):
                raise MasterRefused(problem)
        record = None if self.sight is None else self.sight.record
        in_set = record is not None and self.id in record.sync_set
        has_tables = in_set and self.membership is not None and not self.membership.lacks
        if not has_tables and not await self.tables.copied(master):
            raise MasterRefused("its tables cannot be copied")
        return self.master() == master

    # ── As the master ──

    async def _lead(self, sight: Sight) -> None:
        """Take the lease, if nobody else has, and lead until it is over."""
        await self._copy_the_last(sight)
        lease = self._lease = Lease(self._lease_s)
        self._given_back = trio.Event()
        began = self._core.clock.monotonic()
        record_for = partial(self._record, sight.record, unclean=self._is_wanted(sight))
        try:
            lease_sight = await self.decider.take(sight, record_for)
        except ChangeRefused:
            return
        except UNSAID as error:
            # The member may have the lease, and not know: a lease that nobody renews ends.
            log.warning("failover.not_taken", reason=str(error))
            await trio.sleep(self._lease_s * AGAIN)
            return
        lease.renewed(began)
        self._unclean = None
        self._noted(lease_sight)
        assert lease_sight.record is not None
        log.warning(
            "failover.elected",
            epoch=lease_sight.record.epoch,
            members=list(lease_sight.record.sync_set),
        )
        reason = ""
        async with trio.open_nursery() as nursery:

            async def until_over(task: Callable[[], Awaitable[None]]) -> None:
                nonlocal reason
                try:
                    await task()
                except LeadOver as over:
                    reason = reason or str(over)
                    lease.end()
                    nursery.cancel_scope.cancel()

            for task in (self._renew, self._fence, self._until_given_back, self._serve):
                nursery.start_soon(until_over, task)
        with trio.CancelScope(shield=True):
            await self._step_down(reason)

    async def _copy_the_last(self, sight: Sight) -> None:
        """Have what consumers did at a master that has given its lease back, and may be gone soon.

        In vain where it is gone already: then what was copied before counts.
        """
        before = self.master()
        if sight.record is not None and not sight.record.lease and before is not None:
            with trio.move_on_after(self._lease_s * SETTLE):
                await self.tables.copied(before, whole=False)

    def _record(self, record: Record | None, lease: str, *, unclean: bool) -> Record:
        """The record with this member as the master."""
        least = self._config.min_in_sync_replicas
        if unclean:
            assert self.membership is not None
            new = elected_unclean(record, self.id, lease, self.membership.group.least)
        elif record is None:
            new = first_record(self.id, lease)
        else:
            new = elected(record, self.id, lease, least)
        return reached_at(new, self._addresses.address, self._addresses.ha_address)

    @property
    def _own(self) -> Sight:
        """The sight of this member's own record."""
        assert self.sight is not None
        return self.sight

    @property
    def _own_record(self) -> Record:
        record = self._own.record
        assert record is not None
        assert record.master == self.id, record
        return record

    async def _renew(self) -> None:
        """Have the lease begin anew, again and again. Raises: LeadOver."""
        name, clock, lease = self._own_record.lease, self._core.clock, self._lease
        pause_s = self._lease_s * RENEWED_AT
        while True:
            with trio.move_on_after(pause_s):
                await self._told.wait()
            self._told = trio.Event()
            began = clock.monotonic()
            try:
                renewed = await self.decider.renew(name)
            except UNSAID as error:
                if not self.problem:
                    log.warning("failover.decider_away", reason=str(error))
                self.problem = str(error) or type(error).__name__
                pause_s = self._lease_s * AGAIN
                continue
            self.problem = ""
            if not renewed:
                raise LeadOver("the decider has ended the lease")
            lease.renewed(began)
            pause_s = max(0.0, began + self._lease_s * RENEWED_AT - clock.monotonic())

    async def _fence(self) -> None:
        """Stop to lead when the lease is over by the own clock. Raises: LeadOver."""
        clock, lease = self._core.clock, self._lease
        # Another end each time that it is renewed.
        while (left_s := lease.ends - clock.monotonic()) > 0:  # noqa: ASYNC110  (see above)
            await trio.sleep(left_s)
        raise LeadOver("the lease is over, and was not renewed")

    async def _until_given_back(self) -> None:
        """Lead until the lease is given back. Raises: LeadOver."""
        await self._given_back.wait()
        raise LeadOver("the lease was given back")

    async def _serve(self) -> None:
        """Begin to lead, have the sync set complete, and then serve clients. Raises: LeadOver."""
        core, store, membership = self._core, self._store, self.membership
        assert membership is not None
        record, group = self._own_record, membership.group
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
        leadership = self.leadership = Leadership(core, group, record, self._lease)
        store.after_growth.add(leadership.grown)
        store.log_out.after_word.add(leadership.heard)
        if self._config.enable_controller_mode:
            # Java's members find the log by name servers, and have to follow before this serves.
            self.names.become_master()
        async with trio.open_nursery() as nursery:
            over: list[LeadOver] = []

            async def change_set() -> None:
                try:
                    await self._change_set(leadership)
                except LeadOver as error:
                    over.append(error)
                    nursery.cancel_scope.cancel()

            nursery.start_soon(change_set)
            await leadership.served.wait()
            self._become_master(record.epoch)
            await trio.sleep_forever()
        raise over[0]

    async def _still_able(self, epoch: int) -> None:
        """Give the lease back where the log has become another one until nothing was copied any
        more: a cut of it has begun, or a later epoch was saved. Raises: LeadOver.
        """
        membership = self.membership
        assert membership is not None
        group, reason = membership.group, membership.objection
        if not reason and (epoch <= group.last_epoch or epoch < group.least):
            reason = f"it knows epoch {max(group.least, group.last_epoch)}"
        if not reason:
            return
        self._lease.end()
        await self._changed(given_back)
        raise LeadOver(f"its log cannot be led: {reason}")

    def _become_master(self, epoch: int) -> None:
        """Serve clients from now on."""
        self._served = True
        for feature in self.features:
            feature.copy_ended()
        self._store.be_master()
        self._core.role.become_master(epoch)
        self.names.become_master()
        end = self._store.commit_log.max_offset
        log.warning("failover.leads", epoch=epoch, max_offset=end)

    async def _change_set(self, leadership: Leadership) -> None:
        """Take members into the sync set, and late ones out of it, one change at a time.

        Raises: LeadOver.
        """
        sync, clock = leadership.sync, self._core.clock
        late_s = self._config.ha_max_time_slave_not_catchup_ms / 1000
        while True:
            await trio.sleep(late_s / LOOKS)
            if self._store.flags.has(Flag.NOT_WRITEABLE):
                self._lease.end()
                await self._changed(given_back)
                raise LeadOver(f"its disk has failed: {self._store.flags.fault}")
            wanted = sync.change(clock.monotonic(), late_s, leadership.ready())
            if wanted is None:
                continue
            sync.propose(wanted)
            record = await self._changed(partial(with_set, members=wanted))
            sync.decided(record)
            leadership.moved()
            log.warning(
                "failover.sync_set", members=list(record.sync_set), confirmed_offset=sync.confirmed
            )

    async def _changed(self, changed: Callable[[Record], Record]) -> Record:
        """Have the decider change the record, however often it is asked; what it has then.

        A record without the change is no proof that it will not come: the same is asked for again.
        Raises: LeadOver.
        """
        async with self._changing:
            lease = self._own_record.lease
            if not lease:
                raise LeadOver("the lease was given back")
            return await self._asked(changed(self._own_record), lease)

    async def _asked(self, record: Record, lease: str) -> Record:
        while True:
            try:
                self._noted(await self.decider.change(self._own, record, lease))
            except ChangeRefused:
                seen = await self._looked(None)
                if seen is not None:
                    return self._after_refusal(seen, record)
            except UNSAID as error:
                log.warning("failover.change_late", reason=str(error))
            else:
                return self._own_record
            await trio.sleep(self._lease_s * AGAIN)

    def _after_refusal(self, seen: Sight, record: Record) -> Record:
        """The record that is there in place of the wanted one. Raises: LeadOver."""
        there = seen.record
        if there == record:
            self._noted(seen)
            return record
        if there is None or there.epoch != record.epoch or not seen.held:
            raise LeadOver("the decider has another record, or the lease is over")
        self._noted(seen)
        return there

    async def _step_down(self, reason: str) -> None:
        """Be a slave: nothing is acknowledged from here on."""
        core, store = self._core, self._store
        self._lease.end()
        leadership, self.leadership = self.leadership, None
        core.role.is_slave = True
        store.leave_lead()
        store.replicas.refuse()
        if leadership is not None:
            store.after_growth.remove(leadership.grown)
            store.log_out.after_word.remove(leadership.heard)
        log.warning("failover.stepped_down", epoch=core.role.epoch, reason=reason)
        core.role.number = self.id
        if not self._leaving:
            self.names.become_slave(self.id)
        if core.role.works.is_on:
            await core.role.stop_working()
        if self._served:
            # Also after a planned change, for which the services have ended already.
            self._served = False
            for feature in self.features:
                await feature.close()
                feature.copy_begins()
        if not core.role.follows.is_on:
            core.role.follow_again()

    # ── By people ──

    def told(self) -> None:
        """The decider tells of another master: have the lease renewed, or end it, now."""
        self._told.set()

    @property
    def record(self) -> Record | None:
        """The decider's record, as it was last heard of."""
        return None if self.sight is None else self.sight.record

    @property
    def known_epoch(self) -> int:
        """The epoch of the record; 0 without one."""
        return 0 if self.record is None else self.record.epoch

    @property
    def leads(self) -> bool:
        """Whether this member is the master, for its slaves at least."""
        return self.leadership is not None

    def against_unclean(self) -> str:
        """Why this member may not be made the master whatever is lost, in words; empty: it may."""
        assert self.membership is not None
        if self._config.enable_controller_mode:
            return (
                "the controller elects, outside of the sync set with enableElectUncleanMaster only"
            )
        if self.leads:
            return "this broker is the master"
        if self.sight is None or self.problem:
            return f"{self._config.decider} does not answer: {self.problem}"
        if self.sight.held:
            return f"member {self.record.master if self.record else 0} is the master"
        if reason := self.membership.objection:
            return f"its log is cut, {reason}: it restarts by itself"
        return ""

    def elect_unclean(self) -> None:
        """Take the lease that nobody has, whatever is lost: in the place of the record as it was
        last heard of, and of no later one.
        """
        assert self.sight is not None
        self._unclean = self.sight.version
        self._waiting.cancel()

    def elect_unclean_no_more(self) -> None:
        """Nobody waits for `elect_unclean` any more: what comes later is no wish of that person."""
        self._unclean = None

    # ── Planned ──

    async def leave(self) -> None:
        """The broker stops: have another one be the master at once, which copies the tables."""
        self._leaving = True
        epoch = self.known_epoch
        others = self.leadership is not None and self.leadership.ready()
        with trio.move_on_after(GIVE_BACK_S):
            await self.give_back()
            while others and self.known_epoch == epoch:  # noqa: ASYNC110  (the loop looks)
                await trio.sleep(self._lease_s * AGAIN / 10)

    async def give_back(self, heir: int = 0) -> None:
        """Lead no more, with everything confirmed where that can be soon; `heir` is to be next."""
        leadership = self.leadership
        if leadership is None or not self._lease.may_answer(self._core.clock.monotonic()):
            return
        core, store = self._core, self._store
        if core.role.works.is_on:
            await core.role.stop_working()
            for feature in self.features:
                feature.settle()
        store.be_slave()
        store.dispatch()
        with trio.move_on_after(self._lease_s * SETTLE):
            while leadership.sync.confirmed < store.commit_log.max_offset:  # noqa: ASYNC110  (once)
                await trio.sleep(self._lease_s * AGAIN / 10)
        # From here on nothing is acknowledged, whatever the decider answers.
        self._lease.end()
        try:
            await self._changed(partial(given_back, heir=heir))
        finally:
            self._given_back.set()


async def _nothing_to_save() -> bool:
    """Of a member that stands alone."""
    await trio.lowlevel.checkpoint()
    return True
