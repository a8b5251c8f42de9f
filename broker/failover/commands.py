"""The ways to hand the lease to another member: AEROBEE_SWITCH, AEROBEE_PROMOTE, want of room.

A switch is a lease given back, with the name of the next master. A promotion is there for the one
case in which no member of the sync set comes back: it is made by its name, `unclean`, loses what
only they have, and the record says so from then on. A master without room for messages makes way by
itself for a member of the sync set that follows and has room.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import trio

from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.failover.decider import DeciderSilent
from aerobee.broker.failover.known_record import LeadOver
from aerobee.broker.failover.record import RecordIllegal
from aerobee.broker.replication.master_calls import NoAnswer, asked
from aerobee.broker.replication.other_masters import status_of
from aerobee.broker.replication.promotion import refused
from aerobee.remoting.wire.headers.admin import PromoteResponse, SwitchResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aerobee.broker.core.core import Core
    from aerobee.broker.failover.member import Member
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

UNCLEAN: Final = "unclean"
TAKEN_S: Final = 20.0
"""How long a member may take to be the master."""
LOOK_S: Final = 0.02
LOOK_PART: Final = 0.5
"""The part of a lease after which a master looks again whether it has room."""


class MakesWay:
    """The service: a master without room looks for a member that has some."""

    def __init__(
        self,
        core: Core,
        member: Member,
        connect: Connect,
        members: Callable[[], Awaitable[Mapping[int, str]]],
    ) -> None:
        """`members` gives the others: their ids and addresses; it raises what a decider does."""
        self._member = member
        self._connect = connect
        self._members = members
        self._pause_s = core.config.failover.failover_lease_s * LOOK_PART

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Look until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._pause_s)
            if not self._member.is_to_make_way():
                continue
            with suppress(LeadOver, DeciderSilent, RecordIllegal):
                heir = await self._fit()
                if heir and self._member.is_to_make_way():
                    await self._member.make_way(heir)

    async def _fit(self) -> int:
        """A member that may be the next master, and has room; 0: nobody is known to.

        A Java broker says nothing of its room.
        """
        member = self._member
        for listed, address in (await self._members()).items():
            status = None
            with suppress(NoAnswer):
                status = await asked(self._connect, address, status_of)
            leadership = member.leadership
            if status is None or leadership is None or member.record is None:
                continue
            unfit, number = "", listed
            if status.record is not None:
                unfit, number = status.record.unfit, status.record.member
            if not unfit and number in leadership.ready() and number in member.record.sync_set:
                return number
        return 0


class GroupCommands:
    """Handles the requests of people in a group."""

    def __init__(self, core: Core, member: Member, connect: Connect) -> None:
        self._core = core
        self._member = member
        self._connect = connect
        self._decider = core.config.failover.decider
        self._one = trio.Lock()

    async def switch(self, header: headers.Switch, command: Command, connection: Peer) -> Answer:
        """Give the lease back to a member. Raises: Refusal with the reason."""
        async with self._one:
            heir = await self._heir(header.to)
            member, end = self._member, self._core.store.commit_log.max_offset
            epoch = self._core.role.epoch
            if header.check_only:
                return ChangeAnswer(header=SwitchResponse(max_offset=end, epoch=epoch, paused_ms=0))
            began = trio.current_time()
            try:
                with trio.fail_after(TAKEN_S):
                    await member.give_back(heir)
                    while member.known_epoch == epoch:  # noqa: ASYNC110  (the member's loop looks)
                        await trio.sleep(LOOK_S)
            except trio.TooSlowError:
                raise refused(
                    f"member {heir} has not taken the lease within {TAKEN_S:g} s: `aerobee ha"
                    " status` shows who is the master"
                ) from None
            except LeadOver as over:
                raise refused(f"this broker is the master no more: {over}") from over
            if (taken_by := member.known_master) == member.id:
                raise refused(
                    f"member {heir} has not taken the lease, and this broker has taken it again:"
                    " `aerobee ha status` shows all of them"
                )
            if taken_by != heir:
                raise refused(
                    f"this broker is the master no more, and member {taken_by} has taken the lease"
                    f" in the place of member {heir}: `aerobee ha status` shows all of them"
                )
            paused_ms = round((trio.current_time() - began) * 1000)
            response = SwitchResponse(
                max_offset=self._core.store.commit_log.max_offset,
                epoch=member.known_epoch,
                paused_ms=paused_ms,
            )
            name = self._core.config.broker.broker_name
            changes = change(name, {"master": str(member.id)}, {"master": str(heir)})
            return ChangeAnswer(header=response, changes=changes)

    async def _heir(self, address: str) -> int:
        """The member at that address, which may be the next master. Raises: Refusal."""
        member = self._member
        if member.leadership is None or self._core.role.is_slave:
            raise refused("this broker is not the master of its group: ask that one")
        status, problem = None, "it does not say which member it is"
        try:
            status = await asked(self._connect, address, status_of)
        except NoAnswer as silent:
            problem = f"it does not answer: {silent}"
        number = -1 if status is None else status.broker_id
        members = () if member.record is None else member.record.sync_set
        if number == member.id or (status is not None and status.master):
            problem = "it is the master"
        elif number > 0 and number not in members:
            problem = (
                f"member {number} is not in the sync set {list(members)}: it may lack messages"
            )
        elif status is not None and status.record is not None and status.record.unfit:
            problem = f"it would not take the lease: {status.record.unfit}"
        elif number > 0:
            return number
        raise refused(f"nothing was changed; {address}: {problem}")

    async def promote(self, header: headers.Promote, command: Command, connection: Peer) -> Answer:
        """Make this member the master, whatever is lost. Raises: Refusal with the reason."""
        async with self._one:
            if header.accepted != UNCLEAN:
                raise refused(
                    f"{self._decider} says who is the master of this group: `aerobee ha switch`"
                    " hands the role over; `aerobee ha elect --unclean` is for a sync set that does"
                    " not come back"
                )
            member = self._member
            if reason := member.against_unclean():
                raise refused(f"nothing was changed; {reason}")
            epoch = member.known_epoch
            member.elect_unclean()
            try:
                with trio.move_on_after(TAKEN_S):
                    while not (member.leads and member.known_epoch > epoch):  # noqa: ASYNC110  (as above)
                        await trio.sleep(LOOK_S)
            finally:
                member.elect_unclean_no_more()
            if not member.leads:
                raise refused(
                    f"it has not become the master: {member.waits_because or 'no answer'}"
                )
            response = PromoteResponse(
                max_offset=self._core.store.commit_log.max_offset, epoch=member.known_epoch
            )
            name = self._core.config.broker.broker_name
            changes = change(name, {"epoch": str(epoch)}, {"epoch": str(response.epoch)})
            return ChangeAnswer(header=response, changes=changes)

    async def follow(self, header: headers.Follow, command: Command, connection: Peer) -> NoReturn:
        """Refuse: the record says whom a member follows. Raises: Refusal."""
        await trio.lowlevel.checkpoint()
        raise refused(
            "nothing was changed; a member of a group follows the master that"
            f" {self._decider} names"
        )
