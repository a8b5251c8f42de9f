"""Hands the role of this master to a slave while both run, and follows it: AEROBEE_SWITCH.

The steps, and what a kill of this broker behind each leaves:

1. *Checked*: the slave follows, counts, and is near. Nothing has changed; this is the master.
2. *Paused*: sends are refused as a slave refuses them, so that clients try again; reads go on, and
   delays, timers, checks and redelivery have ended. A kill leaves the master.
3. *Equal*: everything is on disk, and the slave has reported the last byte. A kill leaves the
   master.
4. *Given up*: `config/role.json` says SLAVE. A kill leaves a slave, and the other one slave or
   master: never two masters, and perhaps none, until a person promotes one.
5. *Taken*: the slave has saved its role and takes puts; its log ends where this one does, or it
   refuses. From here on this broker follows it, and the name servers are told.

Until 4 there is a bound on the pause. A failure by then, or a refusal by the slave, has this broker
go on as the master. Where the slave does not answer the last question, nobody knows whether it has
taken the role: this broker stays a slave, and says what to do.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog
import trio

from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.replication.following import State
from aerobee.broker.replication.master_calls import (
    MasterAddress,
    MasterRefused,
    NoAnswer,
    answered,
    asked,
    log_of,
    settings_of,
)
from aerobee.broker.replication.other_masters import status_of
from aerobee.broker.replication.promotion import lacking_begin, refused
from aerobee.broker.replication.saved_role import (
    SavedRole,
    path_of,
    read_role,
    undo_role,
    write_role,
)
from aerobee.remoting.wire.headers.admin import (
    GetBrokerConfig,
    Promote,
    PromoteResponse,
    SwitchResponse,
)
from aerobee.store.errors import StoreRefused

if TYPE_CHECKING:
    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Feature
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.master_calls import Connect, MasterLink
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.bodies.statistics import HARuntimeInfo
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

PAUSE_S: Final = 0.7
"""How long sends may be refused before this master goes on."""
SAVE_PART: Final = 0.5
"""The part of that in which services may save their progress: what is late comes twice there."""
NEAR_BYTES: Final = 8 << 20
"""A slave that lacks more could not have it within the pause."""
TAKE_S: Final = 5.0
"""How long the slave may take to say that it is the master."""
WHOLE_COPY: Final = (
    ". Stop this broker, and copy its commitlog into an empty store there; or wait until this one"
    " has deleted as much"
)
"""The remedy where the log of the slave begins later."""
NO_SUCH_CALL: Final = "the broker there is no slave of Aerobee, or an older one"

log = structlog.stdlib.get_logger(__name__)


class Names(Protocol):
    """The part of the registration at name servers that knows the role."""

    def become_master(self) -> None: ...
    def become_slave(self, broker_id: int) -> None: ...


class Successor(NamedTuple):
    """The slave that is to be the master."""

    address: str
    ha_address: str
    number: int
    """Its brokerId."""


class Handover:
    """Handles AEROBEE_SWITCH. `following` is to follow the next master; `names` tells the name
    servers what this broker is.
    """

    def __init__(
        self,
        core: Core,
        following: Following | None,
        connect: Connect,
        names: Names,
    ) -> None:
        self._core = core
        self._following = following
        self._connect = connect
        self._names = names
        self._one = trio.Lock()
        self.features: list[Feature] = []
        """Features that put by themselves settle before the last byte."""

    async def switch(self, header: headers.Switch, command: Command, connection: Peer) -> Answer:
        """Check, then hand over. Raises: Refusal with the reason; the text says who is master."""
        async with self._one:
            if self._core.role.is_slave:
                raise refused("this broker is a slave: ask its master")
            if self._following is None:
                raise refused("haPeers is not set: nobody may copy this log")
            to = await self._successor(header.to)
            if header.check_only:
                end, epoch = self._core.store.commit_log.max_offset, self._core.role.epoch
                response = SwitchResponse(max_offset=end, epoch=epoch, paused_ms=0)
                return ChangeAnswer(header=response)
            with trio.CancelScope(shield=True):
                response = await self._hand_over(to, self._following)
            broker = self._core.config.broker
            role = {"brokerRole": str(broker.broker_role)}
            changes = change(broker.broker_name, role, {"brokerRole": str(BrokerRole.SLAVE)})
            return ChangeAnswer(header=response, changes=changes)

    async def _successor(self, address: str) -> Successor:
        """The slave at that address. Raises: Refusal where it cannot take over."""

        async def described(link: MasterLink) -> tuple[HARuntimeInfo | None, int, int]:
            return await status_of(link), (await log_of(link)).begin, await copies_at(link)

        try:
            status, begin, copies = await asked(self._connect, address, described)
        except NoAnswer as silent:
            raise refused(f"nothing was changed; {address}: it does not answer: {silent}") from None
        if status is None or status.epoch < 0 or status.broker_id < 0:
            raise refused(f"nothing was changed; {address}: {NO_SUCH_CALL}")
        client = status.ha_client_runtime_info
        lacks = self._core.store.commit_log.max_offset - client.max_offset
        reason = ""
        if status.master:
            reason = "it is a master"
        elif status.shadow:
            reason = "it is a shadow: no master counts what it has"
        elif client.state != State.FOLLOWING:
            reason = f"it does not follow: {client.problem or client.state}"
        elif lacks > NEAR_BYTES:
            reason = f"{lacks} bytes are missing there: wait until it is nearer"
        elif begin > (own_begin := self._core.store.commit_log.min_offset):
            reason = lacking_begin(begin, own_begin) + WHOLE_COPY
        elif 0 < copies <= (needed := self._core.config.needed_slaves):
            reason = (
                f"sends wait for slaves here ({needed}), and would not there: set"
                f" inSyncReplicas: {needed + 1} there, and start it again"
            )
        if reason:
            raise refused(f"nothing was changed; {address}: {reason}")
        return Successor(address, status.ha_address, status.broker_id)

    def _number_beside(self, to: Successor) -> int:
        """The number that this broker has as a slave: that of its settings, or that of the other
        one, which needs it no more.
        """
        return self._core.config.broker.broker_id or to.number

    # ── The steps ──

    async def _hand_over(self, to: Successor, following: Following) -> SwitchResponse:
        began = trio.current_time()
        core = self._core
        old, end = await self._given_up(to, began)
        core.role.number = self._number_beside(to)
        # First: the name server of this process would refuse a second broker with its number.
        self._names.become_slave(core.role.number)
        try:
            answer = await self._taken(to, end)
        except MasterRefused as no:
            await self._go_on(old)
            raise refused(
                f"nothing was changed, and this broker is the master: {to.address} refuses: {no}"
            ) from no
        paused_s = trio.current_time() - began
        following.told = MasterAddress(to.address, to.ha_address)
        for feature in self.features:
            await feature.close()
            feature.copy_begins()
        core.store.log_out.close()
        core.role.follow_again()
        if answer is None:
            log.error("replication.switch_unknown", address=to.address, max_offset=end)
            raise refused(
                f"{to.address} was asked to be the master, and has not answered: nobody knows"
                " whether it is. This broker is a slave now, so that there are never two masters."
                " `aerobee ha status` shows who is; where nobody is, `aerobee ha promote` makes"
                " one of the two the master"
            )
        log.warning(
            "replication.handed_over",
            address=to.address,
            max_offset=end,
            epoch=answer.epoch,
            paused_ms=round(paused_s * 1000),
        )
        return SwitchResponse(max_offset=end, epoch=answer.epoch, paused_ms=round(paused_s * 1000))

    async def _given_up(self, to: Successor, began: float) -> tuple[SavedRole | None, int]:
        """Pause, have the slave equal, and save that this is a slave; the old role, and the end.

        Raises: Refusal when that cannot be in time; then this is the master again.
        """
        reason = "the slave has not had everything in time"
        try:
            with trio.fail_at(began + PAUSE_S):
                end = await self._paused()
                with trio.move_on_after(PAUSE_S * SAVE_PART):
                    # The slave asks for their progress once it is to take over.
                    for feature in self.features:
                        await feature.close()
                await self._until_equal(end)
                return await self._save_slave(to, end), end
        except trio.TooSlowError:
            pass
        except (OSError, StoreRefused) as error:
            reason = f"the role cannot be saved: {error}"
        self._work_again()
        raise refused(f"nothing was changed, and this broker is the master: {reason}")

    async def _paused(self) -> int:
        """Refuse sends, and have what puts by itself settle; returns the end of the log."""
        core = self._core
        await core.role.stop_working()
        for feature in self.features:
            feature.settle()
        # No await from here on: nothing may come behind the end.
        core.store.be_slave()
        end = core.store.commit_log.max_offset
        core.store.dispatch()
        return end

    async def _until_equal(self, end: int) -> None:
        """Wait until all is on disk and in the queues, and a slave has the last byte."""
        store = self._core.store
        if not await store.end_copy():
            raise OSError("the log does not get to the disk")
        reported = trio.Event()
        store.log_out.after_report.add(reported.set)
        try:
            while not store.log_out.has(end):
                await reported.wait()
                store.log_out.after_report.remove(reported.set)
                reported = trio.Event()
                store.log_out.after_report.add(reported.set)
        finally:
            store.log_out.after_report.remove(reported.set)

    async def _save_slave(self, to: Successor, end: int) -> SavedRole | None:
        """Save that this broker is a slave; returns what was saved before. Raises: OSError."""
        disk, root = self._core.disk, self._core.store.root
        old = await disk.in_thread(partial(read_role, disk, root))
        role = SavedRole(
            broker_role=BrokerRole.SLAVE,
            epoch=self._core.role.epoch,
            offset=end,
            broker_id=self._number_beside(to),
            master_address=to.address,
            ha_address=to.ha_address,
        )
        try:
            await disk.in_thread(partial(write_role, disk, root, role))
        except OSError as error:
            try:
                # However late it is: else this master would be a slave after its next start.
                with trio.CancelScope(shield=True):
                    await disk.in_thread(partial(undo_role, disk, root, old))
            except OSError:
                rest = f"{path_of(root)} may say otherwise: remove it before the next start"
                raise OSError(error.errno, f"{error.strerror}; {rest}") from error
            raise
        return old

    async def _taken(self, to: Successor, end: int) -> PromoteResponse | None:
        """Have the slave be the master; None: nobody knows. Raises: MasterRefused, it is not."""

        async def promoted(link: MasterLink) -> PromoteResponse | MasterRefused:
            try:
                answer = await answered(link, Promote(offset=end))
            except MasterRefused as no:
                return no
            return answer.header(PromoteResponse)

        try:
            reply = await asked(self._connect, to.address, promoted, TAKE_S)
        except NoAnswer as silent:
            log.warning("replication.switch_late", reason=str(silent))
            return await self._asked_again(to)
        if not isinstance(reply, MasterRefused):
            return reply
        # A person may have made it the master meanwhile: then this one is not to go on.
        if (made := await self._asked_again(to)) is not None:
            return made
        raise reply

    async def _asked_again(self, to: Successor) -> PromoteResponse | None:
        """Whether it is the master, whatever became of its answer; None: nobody knows."""
        try:
            status = await asked(self._connect, to.address, status_of, TAKE_S)
        except NoAnswer as silent:
            log.warning("replication.switch_late", reason=str(silent))
            return None
        if status is None or not status.master or status.epoch <= self._core.role.epoch:
            return None
        return PromoteResponse(max_offset=status.master_commit_log_max_offset, epoch=status.epoch)

    # ── Back ──

    async def _go_on(self, old: SavedRole | None) -> None:
        """Be the master again, with the role that was saved before."""
        disk, root = self._core.disk, self._core.store.root
        try:
            await disk.in_thread(partial(undo_role, disk, root, old))
        except OSError as error:
            log.error("replication.role_not_saved", path=str(path_of(root)), error=str(error))
        self._work_again()
        self._names.become_master()

    def _work_again(self) -> None:
        self._core.store.stay_master()
        self._core.role.work_again()


async def copies_at(link: MasterLink) -> int:
    """The inSyncReplicas of a broker; 0: it does not say. Raises: RemotingError."""
    try:
        settings = settings_of(bytes((await answered(link, GetBrokerConfig())).body))
    except MasterRefused:
        # An account may have fewer rights than this takes.
        return 0
    copies = settings.get("inSyncReplicas", "")
    return int(copies) if copies.isdecimal() else 0
