"""RocketMQ's controller as the decider: what it does by itself is shown as the four calls.

    look    GET_REPLICA_INFO              take    ELECT_MASTER, where nobody is the master
    renew   BROKER_HEARTBEAT, then look   change  ALTER_SYNC_STATE_SET; a lease is given back
                                                  by ELECT_MASTER for the heir, or by silence

The controller elects without being asked, and knows no lease. So an election of this member that it
has not led yet is shown as one that nobody holds: it is taken by a look. And a member is silent, so
that another election follows, while the controller has it for the master of an epoch that it cannot
lead: one of an earlier process, or one whose lease is over. Why that is weaker than a lease, and
what keeps messages safe all the same: docs/design/failover.md.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import msgspec
import structlog
import trio

from aerobee.broker.failover.decider import ChangeRefused, DeciderMisused, DeciderSilent, Sight
from aerobee.broker.failover.deciders.controller_calls import (
    REFUSALS,
    GroupState,
    alive_of,
    elects_unclean,
    group_state,
    members_of,
    names_body,
    record_of,
    set_body,
    with_changed_set,
)
from aerobee.broker.replication.master_calls import NoAnswer, answered, asked
from aerobee.remoting.errors import HeaderError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers import admin, controller, namesrv

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.failover.deciders.controller_identity import Member
    from aerobee.broker.failover.deciders.controller_links import ControllerLinks
    from aerobee.broker.failover.record import Record
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.remoting.wire.command import Command

HEARTBEAT_S: Final = 1.0
"""The rhythm of heartbeats, as in Java."""
POLL_S: Final = 0.5
"""The rhythm of looks while nothing changes, until a controller has told of an election."""
TOLD_POLL_S: Final = 2.0
"""The rhythm of looks once a controller has told of one: only a lost notice is found so late."""
PRIORITY: Final = (1 << 31) - 1
"""The priority of this member in an election: that of Java's brokers."""
NOT_TAKEN: Final = 0
"""The epoch of a member that leads none."""
SETTINGS_S: Final = 30.0
"""How often the leader of the controllers is asked for its settings: each has its own."""
ASK_S: Final = 2.0
"""How long a master may take to say where its log is to be had."""

log = structlog.stdlib.get_logger(__name__)


class LogFigures(NamedTuple):
    """The figures of a log in a member's heartbeat."""

    epoch: int
    """The last one in it."""
    max_offset: int
    confirmed: int


class Controller:
    """The four calls of a decider, and the heartbeats of this member."""

    def __init__(
        self,
        links: ControllerLinks,
        connect: Connect,
        member: Member,
        number: int,
        lease_s: float,
        figures: Callable[[], LogFigures | None],
    ) -> None:
        """`number`: the id that the controllers gave this member. `lease_s`: how long they are to
        wait for a heartbeat. `figures`: of the log; None: this member may not become the master.
        """
        self._links = links
        self._connect = connect
        self._member = member
        self._number = number
        self._lease_s = lease_s
        self._figures = figures
        self._state: GroupState | None = None
        """As seen last; None: not yet."""
        self._taken = NOT_TAKEN
        """The epoch that this member leads."""
        self._over = NOT_TAKEN
        """The last one that it led, or was to lead: its disk may hang before the epoch is saved."""
        self._renewed_at = float("-inf")
        """When it last began to be confirmed, by the loop's clock."""
        self._last_master = 0
        self._ha: tuple[str, int, str] = ("", 0, "")
        """A master, its epoch, and where its log is to be had."""
        self._news = trio.Event()
        self._tells = False
        """Whether the controllers tell this member of elections."""
        self._unanswered = False
        """Whether a change was sent and may still be carried out."""
        self.elects_unclean = False
        """Whether the controllers are set to elect outside of the sync set."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Have the controllers hear that this member lives; `links` run as well."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._know_settings)
            task_status.started()
            await self._live()
        raise AssertionError

    async def _know_settings(self) -> NoReturn:
        """See what the leader is set to, and warn where that gives messages up."""
        while True:
            with suppress(DeciderSilent):
                unclean = elects_unclean(await self._links.call(controller.GetControllerConfig()))
                if unclean and not self.elects_unclean:
                    log.warning("failover.unclean_elections")
                self.elects_unclean = bool(unclean)
            await trio.sleep(SETTINGS_S)

    async def _live(self) -> NoReturn:
        while True:
            header = self._heartbeat()
            if header is not None:
                await self._links.tell_all(header)
            await trio.sleep(HEARTBEAT_S)

    def told(self, epoch: int) -> bool:
        """A controller, or who says so, tells of a master with this epoch; whether that is news.

        Then it is looked at once, and what the controllers answer counts.
        """
        known = 0 if self._state is None else self._state.epoch
        if epoch > known:
            self._news.set()
        elif epoch == known:
            self._heard_of(epoch)
        return epoch > known

    def _heard_of(self, epoch: int) -> None:
        """An election that the controllers have told of is one that there was."""
        if not self._tells:
            self._tells = True
            log.info("failover.told", epoch=epoch)

    # ── Heartbeats ──

    @property
    def silent(self) -> bool:
        """Whether this member is to be taken for dead, so that another election follows."""
        state, figures = self._state, self._figures()
        if state is None or figures is None:
            return True
        mine = state.master == self._number
        leads = self._leads(state)
        return mine and not leads and state.epoch <= max(figures.epoch, self._over)

    def _heartbeat(self) -> namesrv.BrokerHeartbeat | None:
        figures = self._figures()
        if self.silent or figures is None:
            return None
        return namesrv.BrokerHeartbeat(
            cluster_name=self._member.cluster,
            broker_addr=self._member.address,
            broker_name=self._member.broker,
            broker_id=self._number,
            epoch=figures.epoch,
            max_offset=figures.max_offset,
            confirm_offset=figures.confirmed,
            heartbeat_timeout_mills=int(self._lease_s * 1000),
            election_priority=PRIORITY,
        )

    # ── The four calls ──

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        """See `Decider.look`."""
        sight = await self._look()
        with trio.move_on_after(wait_s):
            while known is not None and sight == known:
                with trio.move_on_after(self._pause_s(sight)):
                    await self._news.wait()
                news, self._news = self._news.is_set(), trio.Event()
                sight = await self._look()
                if news and sight != known and sight.record is not None:
                    self._heard_of(sight.record.epoch)
        return sight

    def _pause_s(self, sight: Sight) -> float:
        """Until the next look. A master that does not say yet where its log is tells nobody."""
        record = sight.record
        settled = sight.held and record is not None and (self._is_own(record) or record.ha_address)
        return TOLD_POLL_S if self._tells and settled else POLL_S

    def _is_own(self, record: Record) -> bool:
        return record.master == self._number

    async def take(self, sight: Sight, record_for: Callable[[str], Record]) -> Sight:
        """See `Decider.take`: the record is the controller's, its sync set has this member alone.

        It is heard from its first heartbeat on.
        """
        began = trio.current_time()
        state = await self._seen()
        if state.master is None:
            answer = await self._links.call(self._electing(self._number, designate=False))
            if answer.code != ResponseCode.SUCCESS:
                raise _refusal("CONTROLLER_ELECT_MASTER", answer)
            state = await self._seen()
        figures = self._figures()
        if state.master != self._number or figures is None or state.epoch <= figures.epoch:
            raise ChangeRefused(f"the controller has {state.master} for the master")
        self._taken, self._renewed_at = state.epoch, began
        # A change for the master of an earlier epoch is refused from now on.
        self._unanswered = False
        return await self._sight(state)

    async def renew(self, lease: str) -> bool:
        """See `Decider.renew`."""
        began, header = trio.current_time(), self._heartbeat()
        if header is not None:
            answer = await self._links.call(header)
            if answer.code != ResponseCode.SUCCESS:
                raise DeciderSilent(f"BROKER_HEARTBEAT: {answer.code} {answer.remark}")
        state = await self._seen()
        if not self._leads(state) or str(state.epoch) != lease:
            return False
        self._renewed_at = began
        return True

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        """See `Decider.change`."""
        if not record.lease:
            return await self._give_back(sight, record)
        state = await self._seen()
        if not self._leads(state) or str(state.epoch) != lease:
            raise ChangeRefused(f"the controller has {state.master} for the master")
        if state.sync_set == record.sync_set:
            # Asked for before, without an answer.
            self._unanswered = False
            return await self._sight(state)
        if state.set_epoch != sight.version:
            self._unanswered = False
            raise ChangeRefused(f"the sync set is {list(state.sync_set)}")
        header = controller.AlterSyncStateSet(
            broker_name=self._member.broker,
            master_broker_id=self._number,
            master_epoch=state.epoch,
        )
        record = await self._without_dead(record, state)
        if record.sync_set == state.sync_set:
            # A request that was sent before may still take the member in.
            silent = DeciderSilent if self._unanswered else ChangeRefused
            raise silent("the controllers hear no member that is to join")
        unanswered, self._unanswered = self._unanswered, True
        answer = await self._links.call(header, set_body(record, state))
        if answer.code != ResponseCode.SUCCESS:
            refusal = _refusal("CONTROLLER_ALTER_SYNC_STATE_SET", answer)
            if unanswered and isinstance(refusal, ChangeRefused):
                # A request that was sent before may still be carried out.
                raise DeciderSilent(str(refusal))
            self._unanswered = not isinstance(refusal, ChangeRefused)
            raise refusal
        self._unanswered = False
        self._state = with_changed_set(state, record, answer)
        return await self._sight(self._state)

    async def _without_dead(self, record: Record, state: GroupState) -> Record:
        """The record without members that would join and are not heard: they refuse all of it."""
        joining = set(record.sync_set) - set(state.sync_set)
        if not joining:
            return record
        header, body = controller.GetSyncStateData(), names_body(self._member.broker)
        dead = joining - alive_of(await self._links.call(header, body), self._member.broker)
        members = tuple(member for member in record.sync_set if member not in dead)
        return msgspec.structs.replace(record, sync_set=members)

    async def _give_back(self, sight: Sight, record: Record) -> Sight:
        """Have the heir elected, or anybody: a connection that closes is a broker that is dead."""
        self._taken = NOT_TAKEN
        success = False
        if record.heir:
            answer = await self._links.call(self._electing(record.heir, designate=True))
            success = answer.code == ResponseCode.SUCCESS
            if not success:
                log.warning("failover.heir_refused", heir=record.heir, reason=answer.remark)
        if not success:
            self._links.close()
        return Sight(record, sight.version, held=False)

    def _electing(self, number: int, *, designate: bool) -> controller.ElectMaster:
        return controller.ElectMaster(
            cluster_name=self._member.cluster,
            broker_name=self._member.broker,
            broker_id=number,
            designate_elect=designate,
        )

    # ── What the controller has ──

    async def _look(self) -> Sight:
        return await self._sight(await self._seen())

    async def _seen(self) -> GroupState:
        """The state of the group at the leader now. Raises: DeciderSilent, RecordIllegal."""
        header = controller.GetReplicaInfo(broker_name=self._member.broker)
        state = group_state(await self._links.call(header))
        self._state = state
        self._last_master = state.master or self._last_master
        return state

    def _leads(self, state: GroupState) -> bool:
        """Whether this member is the master of what it has taken; for good no more, once it is not.

        A time that was not confirmed for as long as the controllers wait is over for this member,
        which has ended it sooner itself.
        """
        over = trio.current_time() >= self._renewed_at + self._lease_s
        if over or state.master != self._number or state.epoch != self._taken:
            self._over, self._taken = max(self._over, self._taken), NOT_TAKEN
        return self._taken != NOT_TAKEN

    async def _sight(self, state: GroupState) -> Sight:
        record = record_of(state, self._last_master)
        if record is None or state.master is None:
            return Sight(record, state.set_epoch, held=False)
        address, ha_address = state.address, await self._ha_address(state)
        record = msgspec.structs.replace(record, address=address, ha_address=ha_address)
        figures = self._figures()
        elected = state.master == self._number and not self._leads(state)
        fresh = elected and figures is not None and state.epoch > figures.epoch
        return Sight(record, state.set_epoch, held=not fresh)

    async def _ha_address(self, state: GroupState) -> str:
        """Where the log of a master is to be had: the master says so; empty: it does not yet."""
        if state.master == self._number:
            return ""
        if self._ha[:2] != (state.address, state.epoch):
            address = None
            question = partial(answered, header=admin.ExchangeBrokerHaInfo())
            # Without an answer it is asked again with the next look.
            with suppress(NoAnswer, HeaderError):
                answer = await asked(self._connect, state.address, question, ASK_S)
                address = answer.header(admin.ExchangeBrokerHaInfoResponse).master_ha_address
            if not address:
                return ""
            self._ha = state.address, state.epoch, address
        return self._ha[2]

    async def members(self) -> dict[int, str]:
        """All members of the group: their ids, and their addresses.

        Raises: DeciderSilent, RecordIllegal.
        """
        answer = await self._links.call(
            controller.GetSyncStateData(), names_body(self._member.broker)
        )
        return members_of(answer, self._member.broker)


def _refusal(name: str, answer: Command) -> ChangeRefused | DeciderSilent | DeciderMisused:
    """The error that an answer other than success is."""
    text = f"{name}: {answer.code} {answer.remark}"
    if answer.code in REFUSALS:
        return ChangeRefused(text)
    if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
        return DeciderMisused(text)
    return DeciderSilent(text)
