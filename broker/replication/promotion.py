"""Makes this slave the master of its group, by a command: AEROBEE_PROMOTE.

It refuses what would lose acknowledged messages, or make two masters; each reason has a name, and
a person may let it pass by that name. The order keeps a kill at any moment harmless: the slave has
stopped copying before the role is saved, the role is saved before the first put is taken, and the
name servers are told last. Where a step fails, it follows its master again. The caller, a person or
once an arbiter, is not known here.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.errors import Refusal
from aerobee.broker.replication.following import State
from aerobee.broker.replication.master_calls import CALL_S, MasterRefused
from aerobee.broker.replication.other_masters import status_of
from aerobee.broker.replication.saved_role import (
    SavedRole,
    path_of,
    read_role,
    undo_role,
    write_role,
)
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.server.turns import in_slices
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import PromoteResponse
from aerobee.store.errors import StoreRefused
from aerobee.store.recovery.start_check import lost_tables

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Feature
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

MASTER_ALIVE: Final = "master-alive"
BEHIND: Final = "behind"
DIVERGED: Final = "diverged"
INCOMPLETE: Final = "incomplete"
END_COPY_S: Final = 20.0
"""How long what was copied may take to the disk and into the queues."""
TABLES_S: Final = 3.0
"""How long the tables of a master that hands over may take; it waits a little longer."""

log = structlog.stdlib.get_logger(__name__)


class Promotion:
    """Handles AEROBEE_PROMOTE. `told`: the name servers are to hear of the new role."""

    def __init__(
        self,
        core: Core,
        following: Following | None,
        connect: Connect,
        notify: Callable[[], None],
        copy_tables: Callable[[], Awaitable[str]],
    ) -> None:
        """`copy_tables` copies those of the master that hands over, and says why it could not."""
        self._core = core
        self._following = following
        self._connect = connect
        self._told = notify
        self.copy_tables = copy_tables
        self._one = trio.Lock()
        self.features: list[Feature] = []
        """All of them: they are told that nothing is copied any more, before the first put."""

    async def promote(self, header: headers.Promote, command: Command, connection: Peer) -> Answer:
        """Check, then change the role. Raises: Refusal with the reason and what may be lost."""
        async with self._one:
            following = self._following
            if following is None or not self._core.role.is_slave:
                raise refused("this broker is a master already")
            if self._core.config.replication.shadow:
                raise refused(
                    "this broker is a shadow: masters do not wait for it, so it may lack messages"
                )
            if self._core.role.awaits_restart:
                raise refused(self._core.role.awaits_restart)
            if header.offset is None:
                passed = frozenset(header.accepted.split(";")) if header.accepted else frozenset()
                for name, reason in await self._objections(following):
                    if name not in passed:
                        raise refused(f"{name}: {reason}")
            else:
                await self._have_tables()
            return await self._become_master(header.offset)

    async def _have_tables(self) -> None:
        """Have the topics, groups and offsets of the master, which waits and changes none.

        Raises: Refusal.
        """
        reason = f"they were not here within {TABLES_S:g} s"
        with trio.move_on_after(TABLES_S):
            reason = await self.copy_tables()
        if reason:
            raise refused(f"the master's topics, groups and offsets are not here: {reason}")

    async def _objections(self, following: Following) -> list[tuple[str, str]]:
        objections = []
        if following.state is State.DIVERGED:
            objections.append((DIVERGED, f"the logs differ: {following.problem}"))
        if await self._master_answers(following):
            objections.append(
                (
                    MASTER_ALIVE,
                    "the master answers, and would go on beside this one: what it acknowledges"
                    " from now on is lost to this broker; stop it first",
                )
            )
        log_in, ours = self._core.store.log_in, self._core.store.commit_log
        end, (begin, known_end) = ours.max_offset, log_in.master_ends
        announced = max(log_in.master_offset, known_end)
        if following.state is State.STUCK:
            objections.append((BEHIND, f"messages are missing here: {following.problem}"))
        elif announced > end:
            objections.append(
                (
                    BEHIND,
                    f"{announced - end} bytes that the master had are not here: its last messages"
                    " are lost to this broker, those it acknowledged as well",
                )
            )
        if ours.min_offset > begin and known_end:
            objections.append((INCOMPLETE, lacking_begin(ours.min_offset, begin)))
        if gone := await self._lost_tables():
            objections.append(
                (
                    INCOMPLETE,
                    f"{gone} was gone when this slave started, and the master's has not come since:"
                    " it would be the master without topics, and groups would begin anew",
                )
            )
        return objections

    async def _lost_tables(self) -> str:
        """The tables that are not here; empty: they are. Raises: Refusal."""
        core = self._core
        try:
            gone = await core.disk.in_thread(lost_tables, core.disk, core.store.root)
        except OSError as error:
            raise refused(f"the tables cannot be read: {error}") from error
        return ", ".join(map(str, gone))

    async def _master_answers(self, following: Following) -> bool:
        """Whether somebody listens where the master was, and is no slave of ours."""
        if following.state is State.FOLLOWING:
            return True
        if following.address is None:
            return False
        answers = False
        with suppress(ExceptionGroup, MasterRefused, RemotingError, OSError):
            async with self._connect(following.address.address) as link:
                # A server that takes connections there counts, until it says that it is a slave.
                answers = True
                with trio.move_on_after(CALL_S):
                    status = await status_of(link)
                    answers = status is None or status.epoch < 0 or status.master
        return answers

    async def _become_master(self, offset: int | None = None) -> Answer:
        """Stop copying, then change the role. With `offset` the log must end there.

        Raises: Refusal; then this broker follows again.
        """
        core = self._core
        try:
            await core.role.stop_following()
            with trio.CancelScope(shield=True):
                await self._end_copy()
                end = core.store.commit_log.max_offset
                if offset not in (None, end):
                    raise refused(f"this log ends at {end}, the master's at {offset}")
                role = await self._save_role()
                for feature in self.features:
                    await in_slices(feature.copy_ended())
                for feature in self.features:
                    feature.be_master()
                core.store.be_master()
                core.role.become_master(role.epoch)
        finally:
            if core.role.is_slave:
                core.role.follow_again()
        self._told()
        log.warning("replication.promoted", max_offset=role.offset, epoch=role.epoch)
        changes = change(
            core.config.broker.broker_name,
            {"brokerRole": str(BrokerRole.SLAVE)},
            {"brokerRole": role.broker_role},
        )
        response = PromoteResponse(max_offset=role.offset, epoch=role.epoch)
        return ChangeAnswer(header=response, changes=changes)

    async def _end_copy(self) -> None:
        """Have on disk and in the queues what was copied. Raises: Refusal."""
        ended = False
        with trio.move_on_after(END_COPY_S):
            ended = await self._core.store.end_copy()
        if not ended:
            raise refused(
                "what this broker has copied does not get to its disk and into its queues: see"
                " what its own log says of the disk"
            )

    async def _save_role(self) -> SavedRole:
        """Save the new role, or leave the old one. Raises: Refusal."""
        disk, root = self._core.disk, self._core.store.root
        try:
            old = await disk.in_thread(partial(read_role, disk, root))
        except (OSError, StoreRefused) as error:
            raise refused(f"nothing was changed: {error}") from error
        role = SavedRole(
            broker_role=BrokerRole.ASYNC_MASTER,
            epoch=self._core.role.epoch + 1,
            offset=self._core.store.commit_log.max_offset,
        )
        try:
            await disk.in_thread(partial(write_role, disk, root, role))
        except OSError as error:
            rest = ""
            try:
                await disk.in_thread(partial(undo_role, disk, root, old))
            except OSError:
                rest = f"; {path_of(root)} may say otherwise: remove it before the next start"
            reason = f"the role cannot be saved, and this broker is still a slave: {error}{rest}"
            raise refused(reason) from error
        return role


def lacking_begin(begin: int, theirs: int) -> str:
    """The reason against a slave that began empty, or has deleted more than its master."""
    return (
        f"its log begins at {begin}, and the master's at {theirs}: consumers that have not read"
        " what is in front of that could not read it there"
    )


def refused(reason: str) -> Refusal:
    """The answer to a promotion that is not made."""
    return Refusal(ResponseCode.SYSTEM_ERROR, reason)
