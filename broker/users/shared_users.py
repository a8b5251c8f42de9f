"""Users and policies that several processes of a supervisor keep in the same two files.

Each change is made under one lock of them all, to the tables as the files have them by then, and is
on disk before the lock is given back. The other processes read the files again within `LOOK_S`, and
end the connections of users whose rights have changed. A request that was made at another broker
already, as administrators ask one broker after the other, changes nothing and is answered as done.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog
import trio

from aerobee.broker.errors import Refusal, TableDamaged
from aerobee.broker.saved.json_file import UNREADABLE
from aerobee.remoting.server.routes import PendingAnswer, is_steps
from aerobee.remoting.server.turns import Turns
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.users.acl_files import CutOff
    from aerobee.broker.users.acls import Acls
    from aerobee.broker.users.users import Users
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Handler, Later, Outcome, Plain, Steps
    from aerobee.remoting.wire.command import Command
    from aerobee.store.files.disk import Disk

LOOK_S: Final = 0.5
LOCK: Final = "users.lock"
LOCKED_S: Final = 3.0
"""How long a change waits for those of other processes."""
AGAIN_S: Final = 0.01

log = structlog.stdlib.get_logger(__name__)


class SharedUsers:
    """The service that follows the files, and the turns of changes."""

    def __init__(
        self,
        users: Users,
        acls: Acls,
        *,
        users_file: SavedTable,
        acls_file: SavedTable,
        disk: Disk,
        cut_off: CutOff,
    ) -> None:
        self._users = users
        self._acls = acls
        # Changes write rights first, so these are read last: a new user that is read is not there
        # with those of an older one, whatever is written in between.
        self._tables = ((users_file, users.prepared), (acls_file, acls.prepared))
        self._disk = disk
        self._cut_off = cut_off
        self._one_change = trio.Lock()
        self._silent = False
        """Whether the log says already that the files cannot be looked at."""
        self._read: list[tuple[int, int, int]] = []
        self.noted()
        self._unread: list[tuple[int, int, int]] | None = None
        """The files of which the log says already that they cannot be read."""

    def noted(self) -> None:
        """The tables are as the files are now."""
        with suppress(Refusal):
            self._read = self._identities()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Follow the files until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            # A file that could not be read is tried again with the next look.
            with suppress(Refusal):
                if self._identities() != self._read:
                    async with self._one_change:
                        await self._follow()

    def changing(self, handler: Handler) -> Handler:
        """The handler of a change, in its turn among all processes."""

        def change(header: Any, command: Command, connection: Caller) -> Awaitable[Later]:
            # Of a request that waits, the worker keeps the body alone.
            fields = command.ext_fields()

            async def in_turn() -> Later:
                async with self._one_change, self._locked():
                    await self._follow(connection)
                    command.ext = fields
                    try:
                        return await ended(handler(header, command, connection))
                    finally:
                        self.noted()

            return in_turn()

        return change

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """The lock of all processes. Raises: Refusal."""
        path = self._path.with_name(LOCK)
        held = None
        with trio.move_on_after(LOCKED_S):
            while held is None:
                try:
                    held = self._disk.lock(path)
                except BlockingIOError:
                    await trio.sleep(AGAIN_S)
        if held is None:
            text = "users are being changed by another process, try again"
            raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        try:
            yield
        finally:
            self._disk.unlock(held)

    async def _follow(self, asking: object = None) -> None:
        """Take over what other processes have written; the connection that asks for a change stays
        open. Raises: Refusal when it cannot be read: a change would write the tables of before over
        it.
        """
        identities = self._identities()
        if identities == self._read:
            return
        users, acls = self._users.everyone(), self._acls.everyone()
        try:
            documents = [
                await self._disk.in_thread(self._document, table) for table, _ in self._tables
            ]
            ready = [
                prepared(document)
                for (_, prepared), document in zip(self._tables, documents, strict=True)
                if document is not None
            ]
        except (TableDamaged, OSError, *UNREADABLE) as error:
            if identities != self._unread:
                log.error("user.not_reread", path=str(self._path.parent), reason=str(error))
            self._unread = identities
            text = f"what another process has changed cannot be read: {error}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, text) from error
        # No await until both are taken: no request sees one without the other.
        for take in ready:
            take()
        self._read, self._unread = identities, None
        changed = different(users, self._users.everyone())
        changed |= different(acls, self._acls.everyone())
        log.info("user.reread", changed=len(changed))
        await self._cut_off(
            lambda connection: (
                not changed.isdisjoint(connection.accounts) and connection is not asking
            )
        )

    @property
    def _path(self) -> Path:
        return self._tables[0][0].file.path

    def _identities(self) -> list[tuple[int, int, int]]:
        """The state of the files. Raises: Refusal when the system does not say it."""
        try:
            identities = [self._disk.identity(table.file.path) for table, _ in self._tables]
        except OSError as error:
            if not self._silent:
                self._silent = True
                log.error("user.not_reread", path=str(self._path.parent), reason=str(error))
            text = f"the files of users cannot be looked at: {error}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, text) from error
        self._silent = False
        return identities

    def _document(self, table: SavedTable) -> Mapping[str, Any] | None:
        return table.file.load(lambda document: document)


def different(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The names that had something before, and have it no more or changed."""
    return {name for name, value in before.items() if after.get(name) != value}


async def ended(outcome: Outcome) -> Later:
    """The answer of a handler, when it is ready."""
    plain = await in_turns(outcome) if is_steps(outcome) else outcome
    work = plain.work if isinstance(plain, PendingAnswer) else plain
    return await work if isinstance(work, Awaitable) else work


async def in_turns(steps: Steps) -> Plain:
    """The result of all steps; others run in between."""
    turns = Turns()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plain: Plain = end.value
            return plain
        await turns.give_way()
