"""A member of a group: it looks who the master is, follows, or leads while its lease lasts.

The service has one loop. It looks at the decider's record (`known_record`); where it may, it takes
the lease and leads until that is over (`reign`), and where another one is the master, it follows.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

import structlog
import trio

from aerobee.broker.config.settings.failover import member_ids
from aerobee.broker.failover.decider import ChangeRefused, Sight
from aerobee.broker.failover.election import Candidate, Room, emptied, objection
from aerobee.broker.failover.known_record import AGAIN, UNSAID, KnownRecord, LeadOver
from aerobee.broker.failover.record import elected, elected_unclean, first_record, reached_at
from aerobee.broker.failover.reign import SETTLE, Reign
from aerobee.broker.failover.sync_set import NOTHING
from aerobee.broker.replication.master_calls import MasterAddress, MasterRefused
from aerobee.store.replication.membership import Lack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Feature
    from aerobee.broker.failover.decider import Decider
    from aerobee.broker.failover.leadership import Leadership
    from aerobee.broker.failover.record import Record
    from aerobee.broker.failover.reign import Names
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.store.log.read_through import LogDamage
    from aerobee.store.replication.membership import Membership

MEND: Final = (
    "have another member be the master, stop this one, keep its data directory aside and begin with"
    " an empty one: it copies the log anew"
)
GIVE_BACK_S: Final = 2.0
"""How long a broker that stops may take to give its lease back."""
HEIR_WAITS: Final = 1.0
"""The part of a lease that other members leave to the one that is named as the next master."""

LACKS: Final = {
    Lack.EMPTIED: "it was emptied while this member was in the sync set",
    Lack.OLD_TABLES: "it was cut, or its tables were gone, and the tables of the next master are"
    " not here yet",
}
"""Why a copy that is marked so may not be a master's."""
UNSYNCED: Final = (
    "its system has crashed, and it does not have all of a master's log since: others may have"
    " messages that it has lost"
)
"""Why a copy without SYNC_FLUSH leaves the lease to others first."""

log = structlog.stdlib.get_logger(__name__)


class Copier(Protocol):
    """The service that copies the tables of a master."""

    @property
    def all_of(self) -> int: ...
    @property
    def late_s(self) -> float: ...
    async def copied(self, master: MasterAddress, *, whole: bool = ...) -> bool: ...


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
        self.id = core.config.broker.broker_id
        self.known = KnownRecord(decider, self.id, self._lease_s, self._noted)
        self._following = following
        self.tables = tables
        self._connect = connect
        self.names = names
        self._addresses = addresses
        self.save_tables: Callable[[], Awaitable[bool]] = _nothing_to_save
        """Has all tables on disk; whether they are."""
        self.features: list[Feature] = []
        """All of them: they are told of a change of the role."""
        self.membership: Membership | None = None
        """From the load of the store on."""
        self.waits_because = ""
        """Why this member may not lead now."""
        self.damage = ""
        """Where its log cannot be read, in words; empty: all of it can, as far as it was read."""
        self._reign: Reign | None = None
        """The present time of this member as the master, or the last one."""
        self._room = Room(self._lease_s)
        self._master: MasterAddress | None = None
        """The master when the record was last noted."""
        self._heir_since = (0, 0.0)
        """A version of the record that names an heir, and since when it is known."""
        self._leaving = False
        self._judged = False
        """Whether it is known if this member has lost what it had: from the first sight on."""
        self._unclean: int | None = None
        """The version of the record in whose place a person wants this master, whatever is lost;
        None: nobody does."""
        names.fenced, names.epoch = self.fenced, lambda: core.role.epoch
        following.may_follow = self.may_follow
        following.unknown = "nobody is the master of the group"
        following.again_s = self._lease_s * AGAIN

    def held(self) -> int:
        """The end of what may be acknowledged at this moment; −1: nothing may. Hot."""
        reign = self._reign
        if reign is None or reign.leadership is None:
            return NOTHING
        return reign.leadership.held()

    def fenced(self) -> bool:
        """Whether this member may be the master no more, whether it has noticed or not."""
        reign = self._reign
        return reign is None or not reign.lease.may_answer(self._core.clock.monotonic())

    def joined(self, membership: Membership) -> None:
        """The store is loaded, and a member."""
        self.membership = membership
        self._core.role.epoch = membership.group.least

    def master(self) -> MasterAddress | None:
        """Where the master is that this member follows; None: nobody is, or it is itself.

        A broker that stops follows nobody anew: a master of Java would wait for it, for good where
        it is gone before the controllers have it in the sync set.
        """
        record = self.record
        if record is None or self._leaving or record.master == self.id or not record.ha_address:
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
            known = await self.known.look(known)
            if known is None or not await self._judge(known):
                known = None
                await trio.sleep(self._lease_s * AGAIN)
                continue
            self.known.note(known)
            self.waits_because = self._objection(known)
            if not self.waits_because and not self._leaving:
                await self._lead(known)
                known = None

    async def _judge(self, sight: Sight) -> bool:
        """Mark this member's log if it was emptied, before a byte is copied; and with no mark once
        all of the master's is here again. False: that cannot be saved now.
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
        before, self._master = self._master, self.master()
        record = sight.record
        assert self.membership is not None
        if record is not None:
            self.membership.group.know(record.epoch)
            self._core.role.epoch = self.membership.group.least
            if record.heir and self._heir_since[0] != sight.version:
                self._heir_since = sight.version, self._core.clock.monotonic()
        if self._master != before:
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
        if reason := reason or self.known.lost_changes(record) or self.leaves_to_others():
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
        for lack in membership.lost:
            return LACKS[lack]
        return self._store.flags.lasting_fault or ("" if self.leads else self.damage)

    def leaves_to_others(self) -> str:
        """Look why others should be the master, while one of them can; empty: no reason."""
        self._look_at_room()
        now = self._core.clock.monotonic()
        if self.leads or not self._room.is_for_others(now):
            return ""
        if self._room.yields(now):
            return f"it has no room for messages: {self._store.flags.no_room}"
        return "" if self._config.enable_controller_mode else self._may_be_worse()

    def _may_be_worse(self) -> str:
        """Why the copies of others may have more than this one, in words; empty: none is known to.

        A controller elects by itself: a member that it does not hear would be no slave either.
        """
        late_s, membership = self.tables.late_s, self.membership
        most_s = self._config.ha_max_time_slave_not_catchup_ms / 1000
        if (took_s := self._store.sync_takes_s) > most_s:
            return f"its disk does not answer: a sync has taken {took_s:.0f} s"
        if late_s > most_s:
            return f"the master's topics, groups and offsets have not come for {late_s:.0f} s"
        assert membership is not None
        if Lack.UNSYNCED in membership.lacks and not membership.has_all:
            return UNSYNCED
        return ""

    def _look_at_room(self) -> None:
        known, full = self.known, bool(self._store.flags.no_room)
        # While the decider is not heard nobody can take the lease: others are left no time by that.
        held = known.sight is None or known.sight.held or bool(known.problem)
        self._room.look(self._core.clock.monotonic(), full=full, held=held)

    def is_to_make_way(self) -> bool:
        """Look whether this master is to give its lease to a member that has room."""
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
        record = self.record
        in_set = record is not None and self.id in record.sync_set
        has_tables = in_set and self.membership is not None and not self.membership.lost
        if not has_tables and not await self.tables.copied(master):
            raise MasterRefused("its tables cannot be copied")
        return self.master() == master

    # ── As the master ──

    async def _lead(self, sight: Sight) -> None:
        """Take the lease, if nobody else has, and lead until it is over."""
        assert self.membership is not None
        await self._copy_the_last(sight)
        reign = self._reign = Reign(
            self._core, self.known, self.membership, self.names, self.features
        )
        began = self._core.clock.monotonic()
        record_for = partial(self._record, sight.record, unclean=self._is_wanted(sight))
        try:
            lease_sight = await self.known.decider.take(sight, record_for)
        except ChangeRefused:
            return
        except UNSAID as error:
            # The member may have the lease, and not know: a lease that nobody renews ends.
            log.warning("failover.not_taken", reason=str(error))
            await trio.sleep(self._lease_s * AGAIN)
            return
        reign.lease.renewed(began)
        self._unclean = None
        self.known.note(lease_sight)
        record = self.known.own
        log.warning("failover.elected", epoch=record.epoch, members=list(record.sync_set))
        reason = await reign.last()
        with trio.CancelScope(shield=True):
            await reign.step_down(self.id, reason, leaving=self._leaving)

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

    # ── By people ──

    def told(self) -> None:
        """The decider tells of another master: have the lease renewed, or end it, now."""
        if self._reign is not None:
            self._reign.told()

    @property
    def record(self) -> Record | None:
        """The decider's record, as it was last heard of."""
        return self.known.record

    @property
    def known_epoch(self) -> int:
        """The epoch of the record; 0 without one."""
        return self.known.epoch

    @property
    def known_master(self) -> int:
        """The member that the record names as the master; 0 without one."""
        record = self.record
        return 0 if record is None else record.master

    @property
    def leadership(self) -> Leadership | None:
        """The time as the master, from the moment at which slaves are served; None: it is none."""
        return None if self._reign is None else self._reign.leadership

    @property
    def leads(self) -> bool:
        """Whether this member is the master, for its slaves at least."""
        return self.leadership is not None

    @property
    def served(self) -> bool:
        """Whether it has come to serve clients since it took the lease last."""
        return self._reign is not None and self._reign.served

    def against_unclean(self) -> str:
        """Why this member may not be made the master whatever is lost, in words; empty: it may."""
        assert self.membership is not None
        if self._config.enable_controller_mode:
            return (
                "the controller elects, outside of the sync set with enableElectUncleanMaster only"
            )
        if self.leads:
            return "this broker is the master"
        sight = self.known.sight
        if sight is None or self.known.problem:
            return f"{self._config.decider} does not answer: {self.known.problem}"
        if sight.held:
            return f"member {self.known_master} is the master"
        if reason := self.membership.objection:
            return f"its log is cut, {reason}: it restarts by itself"
        return ""

    def elect_unclean(self) -> None:
        """Take the lease that nobody has, whatever is lost: in the place of the record as it was
        last heard of, and of no later one.
        """
        assert self.known.sight is not None
        self._unclean = self.known.sight.version
        self.known.look_at_once()

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
            # A switch may have begun, or another member be the master already.
            with suppress(LeadOver):
                await self.give_back()
            while others and self.known_epoch == epoch:  # noqa: ASYNC110  (the loop looks)
                await trio.sleep(self._lease_s * AGAIN / 10)

    async def give_back(self, heir: int = 0) -> None:
        """Lead no more, with everything confirmed where that can be soon; `heir` is to be next.
        Raises: LeadOver.
        """
        if self._reign is not None:
            await self._reign.give_back(heir)


async def _nothing_to_save() -> bool:
    """Of a member that stands alone."""
    await trio.lowlevel.checkpoint()
    return True
