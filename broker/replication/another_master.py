"""Has this slave follow another master from now on, by a command: AEROBEE_FOLLOW.

That master is asked what it is, and the two logs are compared. Where this log has what the master's
has not, the end of what both have is found: two logs with the same record at a place are the same
in front of it, so the begins of segments are halved, and then the records of one of them. Nothing
is given up unless the caller says so. The cut begins here, with what goes kept in a directory, and
the next start ends it; until then this broker copies nothing and cannot become the master.

The master is saved in `config/role.json` before the cut begins. A kill in between leaves a slave
that has diverged from the new master, with its log as it was.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog
import trio

from aerobee.broker.changes import ChangeAnswer, change
from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.errors import first_reason
from aerobee.broker.replication.master_calls import (
    UNANSWERED,
    MasterAddress,
    MasterRefused,
    NoAnswer,
    answered,
    asked,
    log_of,
    other_group,
    own_tail,
    settings_of,
)
from aerobee.broker.replication.other_masters import status_of
from aerobee.broker.replication.promotion import refused
from aerobee.broker.replication.saved_role import SavedRole, read_role, undo_role, write_role
from aerobee.broker.replication.tails import EMPTY_STORE, Tail, deleted, difference
from aerobee.remoting.wire.headers.admin import FollowResponse, GetBrokerConfig
from aerobee.store.errors import StoreRefused
from aerobee.store.format.names import CUT
from aerobee.store.recovery.cut import (
    Cut,
    MarkStays,
    begin,
    look,
    record_ends,
    segment_starts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.replication.following import Following
    from aerobee.broker.replication.master_calls import Connect, MasterLink
    from aerobee.broker.replication.tails import MasterLog
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

UNKNOWN: Final = -1
"""The end of what both logs have, where nothing that can be compared is the same."""

log = structlog.stdlib.get_logger(__name__)


class AskedMaster(NamedTuple):
    """A master as it describes itself."""

    at: MasterAddress
    epoch: int
    """−1 of a Java broker."""


class Comparison(NamedTuple):
    """This log beside that of the master."""

    end: int
    """The end of this log."""
    common: int
    """The end of what both have; UNKNOWN."""
    behind: Cut | None = None
    """The records of this log behind that; None: there are none."""
    problem: str = ""
    """Why this slave could not follow even after a cut."""


class AnotherMaster:
    """Handles AEROBEE_FOLLOW."""

    def __init__(self, core: Core, following: Following | None, connect: Connect) -> None:
        self._core = core
        self._following = following
        self._connect = connect
        self._one = trio.Lock()

    async def follow(self, header: headers.Follow, command: Command, connection: Peer) -> Answer:
        """Check, then change the master. Raises: Refusal with the reason; nothing has changed."""
        async with self._one:
            following = self._checked()
            if header.check_only:
                return await self._looked(header)
            master = await self._asked(header.master)
            old = "" if following.address is None else following.address.address
            response = await self._changed(following, master, cut=bool(header.cut))
            name = self._core.config.broker.broker_name
            changes = change(name, {"master": old}, {"master": master.at.address})
            return ChangeAnswer(header=response, changes=changes)

    def _checked(self) -> Following:
        """The service that is to follow another master. Raises: Refusal where this broker is no
        such slave.
        """
        core, following = self._core, self._following
        if following is None or not core.role.is_slave:
            raise refused(
                "this broker is a master: `aerobee ha switch` exchanges its role with a slave"
            )
        if core.config.replication.shadow:
            raise refused("this broker is a shadow: start it with another --shadow-of")
        if core.role.awaits_restart:
            raise refused(core.role.awaits_restart)
        return following

    async def _looked(self, header: headers.Follow) -> Answer:
        """Say what a change would do. Raises: Refusal where that cannot be said."""
        master = await self._asked(header.master)
        compared = await self._compared(master)
        problem = compared.problem
        if compared.behind is not None and not header.cut:
            problem = _too_much(compared.behind)
        return ChangeAnswer(header=_response(master, compared, refused_for=problem))

    # ── The master ──

    async def _asked(self, address: str) -> AskedMaster:
        """The master at that address. Raises: Refusal where this slave may not follow it."""
        if address == self._core.address:
            raise refused(f"nothing was changed; {address} is this broker itself")
        master: AskedMaster | str
        try:
            master = await asked(self._connect, address, partial(self._described, address=address))
        except NoAnswer as silent:
            master = f"it does not answer: {silent}"
        if isinstance(master, str):
            raise refused(f"nothing was changed; {address}: {master}")
        return master

    async def _described(self, link: MasterLink, address: str) -> AskedMaster | str:
        """The broker there, or the reason why this slave does not follow it.

        Raises: MasterRefused, RemotingError.
        """
        status = await status_of(link)
        try:
            text = bytes((await answered(link, GetBrokerConfig())).body)
        except MasterRefused:
            # An account may have fewer rights than this takes; the logs are compared all the same.
            text = b""
        settings = settings_of(text)
        is_slave = settings.get("brokerRole") == BrokerRole.SLAVE
        if is_slave if status is None else not status.master:
            return "it is no master"
        if problem := other_group(text, self._core.config.broker):
            return problem
        epoch, own = (-1 if status is None else status.epoch), self._core.role.epoch
        if 0 <= epoch < own:
            return f"it is an earlier master: its epoch is {epoch}, and this slave knows of {own}"
        ha_address = "" if status is None else status.ha_address
        host, port = settings.get("brokerIP2"), settings.get("haListenPort", "")
        if not ha_address and host and port.isdecimal():
            ha_address = with_port(host, int(port))
        if not ha_address:
            return "it does not say where its log is copied from: its settings cannot be read"
        return AskedMaster(MasterAddress(address, ha_address), epoch)

    # ── The logs ──

    async def _compared(self, master: AskedMaster) -> Comparison:
        """This log beside that of the master. Raises: Refusal where it does not answer."""
        compared, problem = None, ""
        try:
            async with self._connect(master.at.address) as link:
                compared = await self._compared_with(link)
        except* (*UNANSWERED, StoreRefused) as errors:
            problem = first_reason(errors)
        if compared is None:
            raise refused(f"nothing was changed; the logs cannot be compared: {problem}")
        return compared

    async def _compared_with(self, link: MasterLink) -> Comparison:
        store, disk = self._core.store, self._core.disk
        tail = await own_tail(store)
        end = tail.end
        theirs = await log_of(link, tail)
        if problem := deleted(tail, theirs):
            return Comparison(end, UNKNOWN, problem=problem)
        if not difference(tail, theirs):
            return Comparison(end, end)
        common = await self._common_end(link, theirs)
        if common == UNKNOWN:
            problem = f"nothing that the master still has is the same here: {EMPTY_STORE}"
            return Comparison(end, common, problem=problem)
        directory = store.commit_log.queue.directory
        return Comparison(end, common, await disk.in_thread(partial(look, disk, directory, common)))

    async def _common_end(self, link: MasterLink, theirs: MasterLog) -> int:
        """The end of what both logs have; UNKNOWN.

        Raises: MasterRefused, RemotingError, StoreRefused, OSError.
        """
        store, disk = self._core.store, self._core.disk
        directory = store.commit_log.queue.directory

        async def same(physical_offset: int) -> bool:
            own = await store.complete(partial(store.read, physical_offset))
            # Not the view: the log may be unmapped meanwhile.
            record = None if own is None else bytes(own)
            return (await log_of(link, Tail(theirs.end, physical_offset))).record == record

        starts = await disk.in_thread(partial(segment_starts, disk, directory))
        starts = [start for start in starts if theirs.begin <= start < theirs.end]
        if not (segments := await how_many_same(starts, same)):
            return UNKNOWN
        last = starts[segments - 1]
        ends = await disk.in_thread(partial(record_ends, disk, directory, last))
        return ends[await how_many_same(ends[:-1], same)]

    # ── The change ──

    async def _changed(
        self, following: Following, master: AskedMaster, *, cut: bool
    ) -> FollowResponse:
        """Stop copying, compare, and change the master. Raises: Refusal; it follows as before."""
        core = self._core
        try:
            await core.role.stop_following()
            compared = await self._compared(master)
            if compared.problem:
                raise refused(f"nothing was changed; {compared.problem}")
            if compared.behind is not None and not cut:
                raise refused(f"nothing was changed; {_too_much(compared.behind)}")
            with trio.CancelScope(shield=True):
                kept_in = await self._saved(master, compared)
                following.follow_other(master.at)
                if kept_in:
                    self._rest(
                        f"the next start of this broker ends its log at {compared.common}, and has"
                        f" it follow {master.at.address}: restart it"
                    )
        finally:
            if not core.role.awaits_restart:
                core.role.follow_again()
        log.warning(
            "replication.other_master",
            master=master.at.address,
            epoch=master.epoch,
            common_offset=compared.common,
            kept_in=kept_in,
        )
        return _response(master, compared, kept_in=kept_in)

    async def _saved(self, master: AskedMaster, compared: Comparison) -> str:
        """Save the master, and begin the cut; the directory of what goes, if any.

        Raises: Refusal; then all is as it was, or it says that a restart decides.
        """
        disk, root = self._core.disk, self._core.store.root
        try:
            old = await disk.in_thread(partial(read_role, disk, root))
        except (OSError, StoreRefused) as error:
            raise refused(f"nothing was changed: {error}") from error
        role = msgspec.structs.replace(
            old or SavedRole(broker_role=BrokerRole.SLAVE, epoch=self._core.role.epoch, offset=0),
            broker_role=BrokerRole.SLAVE,
            offset=compared.common,
            master_address=master.at.address,
            ha_address=master.at.ha_address,
        )
        try:
            await disk.in_thread(partial(write_role, disk, root, role))
            if compared.behind is not None:
                return await self._begin_cut(compared.common, master.epoch)
        except MarkStays as error:
            # A log that grows, or leads, would lose at that start what it has acknowledged.
            self._rest(
                "the cut failed, and may have begun all the same, as what says so cannot be"
                f" removed ({error}): the next start of this broker ends its log at"
                f" {compared.common}, or leaves it as it is: restart it"
            )
            raise refused(self._core.role.awaits_restart) from error
        except (OSError, StoreRefused) as error:
            rest = ""
            try:
                await disk.in_thread(partial(undo_role, disk, root, old))
            except OSError:
                rest = "; config/role.json may name the other master"
            raise refused(f"nothing was changed: {error}{rest}") from error
        return ""

    def _rest(self, reason: str) -> None:
        """Copy nothing, and become no master, until the next start."""
        assert self._following is not None
        self._core.role.awaits_restart = reason
        self._following.await_cut(reason)

    async def _begin_cut(self, offset: int, epoch: int) -> str:
        """Keep what goes; the next start ends the cut. Raises: OSError, StoreRefused."""
        store, disk = self._core.store, self._core.disk
        if not await store.end_copy():
            raise OSError("what was copied does not get to the disk")
        directory = store.commit_log.queue.directory
        name = str(offset) if epoch < 0 else f"{offset}-epoch-{epoch}"
        keep_in = store.root / CUT / name
        made = await disk.in_thread(
            partial(begin, disk, store.root, directory, offset, keep_in=keep_in)
        )
        return str(store.root / made.kept_in)


async def how_many_same(places: Sequence[int], same: Callable[[int], Awaitable[bool]]) -> int:
    """How many of these places, the first ones, are the same in both logs."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if await same(places[middle]):
            low = middle + 1
        else:
            high = middle
    return low


def _too_much(behind: Cut) -> str:
    """Why this log cannot go on as it is."""
    return (
        f"the logs are the same up to {behind.offset}, and behind that this one has"
        f" {behind.messages} messages, {behind.size_bytes} bytes, that the master has not: --cut"
        " keeps them in a directory, and has the next start take them off the log"
    )


def _response(
    master: AskedMaster, compared: Comparison, *, kept_in: str = "", refused_for: str = ""
) -> FollowResponse:
    behind = compared.behind
    return FollowResponse(
        epoch=master.epoch,
        max_offset=compared.end,
        common_offset=compared.common,
        messages=0 if behind is None else behind.messages,
        size_bytes=0 if behind is None else behind.size_bytes,
        kept_in=kept_in or None,
        refused=refused_for or None,
    )
