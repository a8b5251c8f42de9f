"""A slave follows its master: finds it, compares the logs, and takes what the master sends.

The decision what may be appended is made in the store. At the first wrong byte this service takes
nothing more from that master, with the log as it was in front of it: the broker goes on serving
reads, and says what is wrong. In a group it follows the next master. Every other end of a
connection is followed by another attempt. Source: store format §8 (DefaultHAClient).
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import structlog
import trio

from aerobee.broker.errors import first_reason
from aerobee.broker.replication.master_calls import (
    UNANSWERED,
    MasterRefused,
    NoAnswer,
    answered,
    asked,
    log_of_followed,
    other_group,
    own_tail,
)
from aerobee.broker.replication.other_masters import status_of
from aerobee.broker.replication.saved_role import note_epoch
from aerobee.broker.replication.slaves import encrypted, pace_of
from aerobee.broker.replication.slaves_view import UNREADABLE
from aerobee.broker.replication.tails import EMPTY_STORE, deleted, difference
from aerobee.remoting.client.calls import host_and_port
from aerobee.remoting.wire.headers.admin import GetBrokerConfig
from aerobee.store.errors import ReplicationRefused, StoreRefused
from aerobee.threads import once_there_are_threads

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.replication.master_calls import Connect, MasterAddress, MasterLink
    from aerobee.remoting.wire.bodies.statistics import HARuntimeInfo

AGAIN_FIRST_S: Final = 0.1
"""The pause before the next attempt, once the master was heard; each more is twice as long."""
AGAIN_S: Final = 5.0
"""The longest of these pauses, as in Java."""
STUCK_S: Final = 60.0
"""After so long without anything from a master that has more, something is wrong."""
MARGIN_S: Final = 1.0
"""How much longer than slaveTimeout a shadow stays away."""
FIRST_LOOK_S: Final = 5.0
"""After so long without anything, a slave asks whether its master refuses it."""
SEARCH_S: Final = 1.0
"""The pause between two looks for a master that nobody knows."""
UNKNOWN_LOOKS: Final = 10
"""So many looks find none before that is told: at a start name servers may not have answered."""

log = structlog.stdlib.get_logger(__name__)


class State(StrEnum):
    """How a slave stands to its master."""

    SEARCHING = "searching"
    """No master is known."""
    UNREACHABLE = "unreachable"
    """The master does not answer; its slave has what it had."""
    FOLLOWING = "following"
    """The slave gets the log as it is written."""
    STUCK = "stuck"
    """The master cannot send what comes next."""
    DIVERGED = "diverged"
    """The two logs differ, or the master sent what cannot be part of this log: it has stopped."""


REFUSALS: Final = {
    "ahead": (
        "the master sends nothing: since its start no slave can have got what it has up to {end},"
        " where this log ends, from it. A store that was copied while its master ran is taken after"
        " the next start of the master; else haMasterAddress leads to another broker"
    ),
    "deleted": "the master has deleted what comes behind offset {end}: " + EMPTY_STORE,
    UNREADABLE: (
        "the master cannot read its own log behind offset {end}, and tries it again: see what it"
        " says of its disk, and make another one the master where that stays so"
    ),
}
"""The objection of a master to a slave to which it sends nothing, by its word for it."""


OWN_FAULT: Final = "this slave cannot take what comes behind"
"""How a slave begins to say that it is itself what stands in the way."""


class MasterView(NamedTuple):
    """The answers of a master about its log and a slave."""

    end: int
    standing: str = ""
    """As `transfer.Standing`; empty where it does not say."""


def own_end(stream: trio.SocketStream) -> str:
    """This end of a connection, as a master shows its slaves."""
    host, port = stream.socket.getsockname()[:2]
    return f"{host}:{port}"


def standing_at(status: HARuntimeInfo | None, own: str) -> str:
    """How a master takes the slave that comes from `own`; empty: it does not say.

    Behind an address translation a slave does not know where it seems to come from. Then it is one
    of those that are there.
    """
    slaves = [] if status is None else status.ha_connection_info
    standings = {slave.standing for slave in slaves if slave.addr == own}
    standings = standings or {slave.standing for slave in slaves}
    return standings.pop() if len(standings) == 1 else ""


class Following:
    """The service. `master` says where the master is now; None: nobody knows."""

    def __init__(
        self, core: Core, master: Callable[[], MasterAddress | None], connect: Connect
    ) -> None:
        self._core = core
        self._log_in = core.store.log_in
        self._log_in.pace = pace_of(core)
        self._log_in.shadow = core.config.replication.shadow
        self._master = master
        self._connect = connect
        self._connect_s = core.config.remoting.connect_timeout_ms / 1000
        self.tls: Callable[[], ssl.SSLContext | None] = _nothing
        """How the next connection is encrypted; None: it is not."""
        self.state = State.SEARCHING
        self.problem = ""
        """Why it does not follow, in words; empty while it does."""
        self.has_followed = False
        """Whether it has followed a master since the start."""
        self._told: State | None = None
        self.told: MasterAddress | None = None
        """The master that a command has named; name servers may know a later one, once it is away
        or no master any more."""
        self.address: MasterAddress | None = None
        """The master that it follows, or tried last."""
        self._told_is_away = False
        """The master of a command has not answered: name servers are believed next."""
        self.may_follow: Callable[[MasterAddress], Awaitable[bool]] = self._may_follow
        """Whether this log may go on with the master's; a group asks in its own way. Raises:
        MasterRefused, RemotingError, OSError."""
        self.unknown = "no name server knows the master"
        """The text where nobody knows the master."""
        self.again_s = AGAIN_S
        """The longest pause before the next attempt."""
        self.when_cut: Callable[[], None] = _nothing
        """Called once the log has to be cut by the next start."""
        self._news = trio.Event()
        """Another master may be known."""
        self._connection = trio.CancelScope()

    def trouble(self) -> str | None:
        """The trouble that a person has to mend: for the probes."""
        wrong = self.state in (State.STUCK, State.DIVERGED)
        return f"replication is {self.state}: {self.problem}" if wrong else None

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Follow until cancelled."""
        task_status.started()
        if self._log_in.awaits_cut:
            self.when_cut()
        if self._log_in.shadow:
            await self._until_nobody_waits()
        pause_s, looks = AGAIN_FIRST_S, 0
        while True:
            master = self._next_master()
            if master is None:
                looks += 1
                self.state, self.problem = State.SEARCHING, self.unknown
                if looks >= UNKNOWN_LOOKS:
                    self._tell(self.state, self.problem)
                await self._pause(SEARCH_S)
                continue
            looks = 0
            self.address = master
            heard_at = self._log_in.heard_at
            try:
                await self._follow(master)
            except ReplicationRefused as refused:
                self._tell(State.DIVERGED, str(refused))
            if self.state is State.DIVERGED:
                await self._until_another(master)
            heard = self._log_in.heard_at > heard_at
            away = not heard and self.state is State.UNREACHABLE
            self._told_is_away = away and master == self.told
            if heard:
                # Under SYNC_MASTER, sends fail for as long as this takes.
                pause_s = AGAIN_FIRST_S
            if self._log_in.shadow:
                await self._until_nobody_waits()
            if await self._pause(pause_s):
                pause_s = AGAIN_FIRST_S
            else:
                pause_s = min(2 * pause_s, self.again_s)

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; whether news have ended it."""
        with trio.move_on_after(seconds) as over:
            await self._news.wait()
        self._news = trio.Event()
        return not over.cancelled_caught

    async def _until_another(self, master: MasterAddress) -> None:
        """Rest until another master is known: its log is another one. Outside of a group, for good:
        a person says which of two logs is the right one.
        """
        while self._next_master() == master:
            await self._news.wait()
            self._news = trio.Event()

    def follow_anew(self) -> None:
        """Another master may be known: leave the present one, and look at once."""
        self._connection.cancel()
        self._news.set()

    def _next_master(self) -> MasterAddress | None:
        """The master to try now: that of a command, and that of name servers while it is away."""
        known = self._master()
        if self.told is None or (self._told_is_away and known is not None):
            return known or self.address
        return self.told

    def follow_other(self, master: MasterAddress) -> None:
        """Follow the master of a command from the next start of this service on."""
        self.told, self._told_is_away = master, False
        self.state, self.problem = State.SEARCHING, ""

    def await_cut(self, problem: str) -> None:
        """Say that the next start ends a cut; this service rests until then."""
        self._tell(State.DIVERGED, problem)

    async def _until_nobody_waits(self) -> None:
        """Let the master answer the sends that wait for slaves and are in this log already.

        Where a shadow begins is a report, too, and would acknowledge them.
        """
        if self._core.store.commit_log.max_offset:
            await trio.sleep(self._core.config.replication.slave_timeout_ms / 1000 + MARGIN_S)

    async def _follow(self, master: MasterAddress) -> None:
        """One connection, from the comparison to its end. Raises: ReplicationRefused."""
        own, stream = "", None
        try:
            if await self.may_follow(master):
                with trio.fail_after(self._connect_s):
                    own, stream = await self._connected(master.ha_address)
        except* UNANSWERED as errors:
            self._tell(State.UNREACHABLE, first_reason(errors))
        if stream is None:
            return
        self._tell(State.FOLLOWING, "")
        heard_at = self._log_in.heard_at
        reason: str | ReplicationRefused = "left"
        async with trio.open_nursery() as nursery:
            self._connection = nursery.cancel_scope
            nursery.start_soon(self.watch, master, own)
            nursery.start_soon(self.watch_itself)
            try:
                reason = await self._log_in.follow(stream, self._core.rounds.finish)
            except ReplicationRefused as refused:
                # Out of a nursery it would come in a group.
                reason = refused
            nursery.cancel_scope.cancel()
        if isinstance(reason, ReplicationRefused):
            raise reason
        log.info("replication.master_left", master=master.ha_address, reason=reason)
        if self._log_in.awaits_cut:
            # The connection may have been left while the cut began.
            self.when_cut()
        problem = f"the connection has ended: {reason}"
        if self._log_in.heard_at == heard_at and reason != "silent":
            problem += (
                f", before anything came: haPeers of the master may not list {own}, or haTls is set"
                " on one side alone"
            )
        self._tell(State.UNREACHABLE, problem)

    async def _connected(self, ha_address: str) -> tuple[str, trio.abc.Stream]:
        """This end of a new connection, and the connection. Raises: OSError."""
        host, port = host_and_port(ha_address)
        stream = await once_there_are_threads(partial(trio.open_tcp_stream, host, port))
        own, context = own_end(stream), self.tls()
        if context is None:
            return own, stream
        return own, await encrypted(stream, context, master_host=host)

    async def watch(self, master: MasterAddress, own: str = "") -> NoReturn:
        """Say when nothing comes and why, until cancelled; `own` is this end of the connection.

        The master refuses a slave by sending it nothing: it is asked whether it does, soon at
        first. Where it does not say, nothing for a minute though it has more is a sign as well.
        """
        commit_log = self._core.store.commit_log
        for pause_s in chain([FIRST_LOOK_S], repeat(STUCK_S)):
            end = commit_log.max_offset
            await trio.sleep(pause_s)
            moved = commit_log.max_offset != end
            view = MasterView(end) if moved else await self._view_of(master, own)
            if view is None:
                continue
            if view.standing in REFUSALS:
                self._tell(State.STUCK, REFUSALS[view.standing].format(end=end))
            elif view.end > end:
                if pause_s == STUCK_S and not self.problem.startswith(OWN_FAULT):
                    self._tell(
                        State.STUCK,
                        f"nothing has come for {STUCK_S:g} s behind offset {end}, and the master's"
                        f" log ends at {view.end}: its log says what it has against this slave",
                    )
            elif self.state is State.STUCK:
                self._tell(State.FOLLOWING, "")
        raise AssertionError("it watches for ever")

    async def watch_itself(self) -> NoReturn:
        """Say when this store does not take what has come, as on a full disk, until cancelled."""
        commit_log, flags = self._core.store.commit_log, self._core.store.flags
        while True:
            end = commit_log.max_offset
            await trio.sleep(FIRST_LOOK_S)
            stands = commit_log.max_offset == end and self._log_in.master_offset > end
            if stands and flags.fault:
                self._tell(State.STUCK, f"{OWN_FAULT} offset {end}: {flags.fault}")
            elif self.problem.startswith(OWN_FAULT) and not stands:
                self._tell(State.FOLLOWING, "")

    async def _view_of(self, master: MasterAddress, own: str) -> MasterView | None:
        """Where the master's log ends, and how it takes this slave; None when it does not say."""

        async def view(link: MasterLink) -> MasterView:
            theirs = await log_of_followed(link, self._core.store)
            return MasterView(theirs.end, standing_at(await status_of(link), own))

        try:
            return await asked(self._connect, master.address, view)
        except NoAnswer:
            # The connection of the replication ends as well, and says why.
            return None

    async def _may_follow(self, master: MasterAddress) -> bool:
        """Whether this log is the begin of the master's, and the master has what comes next.

        Raises: MasterRefused, RemotingError, OSError.
        """
        tail = await own_tail(self._core.store)
        async with self._connect(master.address) as link:
            if not await self._is_latest(link, tail.end):
                return False
            if problem := await self.other_group(link):
                self._tell(State.STUCK, problem)
                return False
            theirs = await log_of_followed(link, self._core.store, tail)
        if problem := deleted(tail, theirs):
            self._tell(State.STUCK, problem)
        elif problem := difference(tail, theirs):
            self._tell(State.DIVERGED, problem)
        return not problem

    async def other_group(self, link: MasterLink) -> str:
        """Why the broker that answers is no master of this slave, in words; empty: it is one.

        A shadow has a name of its own. Raises: MasterRefused, RemotingError.
        """
        if self._log_in.shadow:
            return ""
        try:
            settings = (await answered(link, GetBrokerConfig())).body
        except MasterRefused:
            # An account may have fewer rights than this takes; the logs are compared all the same.
            return ""
        return other_group(bytes(settings), self._core.config.broker)

    async def _is_latest(self, link: MasterLink, end: int) -> bool:
        """Whether no later master is known; the epoch of a new one is kept before it is followed.

        Raises: MasterRefused, RemotingError, OSError.
        """
        core, role = self._core, self._core.role
        status = await status_of(link)
        epoch = -1 if status is None else status.epoch
        if status is not None and epoch >= 0 and not status.master:
            self._tell(State.UNREACHABLE, "the broker that answers is a slave itself")
            return False
        if 0 <= epoch < role.epoch:
            self._tell(
                State.UNREACHABLE,
                f"the master that answers is an earlier one: its epoch is {epoch}, and this slave"
                f" has followed {role.epoch}",
            )
            return False
        if epoch > role.epoch:
            try:
                await core.disk.in_thread(note_epoch, core.disk, core.store.root, epoch, end)
            except (OSError, StoreRefused) as error:
                problem = f"this slave cannot save the epoch of its master, {epoch}: {error}"
                self._tell(State.STUCK, problem)
                return False
            role.epoch = epoch
        return True

    def _tell(self, state: State, problem: str) -> None:
        """Note a state, and say it when it is another one."""
        self.state, self.problem = state, problem
        self.has_followed |= state is State.FOLLOWING
        if state is self._told:
            return
        self._told = state
        address = None if self.address is None else self.address.ha_address
        if state is State.FOLLOWING:
            end = self._core.store.commit_log.max_offset
            log.info("replication.following", master=address, max_offset=end)
        elif state is State.DIVERGED:
            log.error("replication.diverged", master=address, reason=problem)
        elif state is State.STUCK:
            log.error("replication.stuck", master=address, reason=problem)
        elif state is State.UNREACHABLE:
            log.warning("replication.master_unreachable", master=address, reason=problem)
        else:
            log.warning("replication.master_unknown", reason=problem)


def _nothing() -> None:
    """Nobody has to know."""
