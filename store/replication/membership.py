"""A store as a member of a group in failover mode: its epochs on disk, and the cut of its log.

A log that is copied anew has epochs from its first byte on, so a mark says that it is not whole.
Another mark says that the tables are of a time whose log was cut: they may say of a message that it
was delivered whose copy is gone. It is there as well after a start without tables.

Decisions are made in `group`; here they are made durable, always before bytes or reports follow
from them. A log that must be cut is cut by the next start: the store runs, and readers have its
segments.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import structlog

from aerobee.store.errors import LogsUnrelated, StoreDamaged, StoreRefused
from aerobee.store.format.epoch_file import EpochFileIllegal
from aerobee.store.format.epochs import Epoch, shortened
from aerobee.store.format.ha_epochs import EPOCHS_MAX
from aerobee.store.format.names import EMPTIED, OLD_TABLES, UNSYNCED
from aerobee.store.replication.group import Group, Verdict
from aerobee.store.replication.saved_epochs import read_epochs, write_epochs
from aerobee.store.replication.wires import WithEpochs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aerobee.store.files.disk import Disk
    from aerobee.store.format.ha_epochs import Greeting
    from aerobee.store.log.commit_log import CommitLog

log = structlog.get_logger(__name__)


class Lack(StrEnum):
    """A part of what this member had in the sync set, and its copy lacks: the name of the mark."""

    EMPTIED = EMPTIED
    """Its log is gone, and not all of the master's is here."""
    OLD_TABLES = OLD_TABLES
    """Its log was cut, or its tables were gone, and those of the master are not here."""
    UNSYNCED = UNSYNCED
    """A power cut may have taken its last bytes, and not all of a master's log has come since."""


class Membership:
    """The member. Invariant: on disk are the epochs of `group`, or later ones that have no byte."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        commit_log: CommitLog,
        group: Callable[[tuple[Epoch, ...]], Group],
        begin_cut: Callable[[int, str], str],
        forget_cut: Callable[[], None],
        *,
        made_anew: bool = False,
    ) -> None:
        """For a log that is loaded; `group` makes its state of the epochs that are saved.

        `made_anew`: the store had none of its own files, so it never was, or it was emptied.

        `begin_cut` keeps what is behind an offset, in a directory with that name, and has the next
        start end the log there. It returns where that is. `forget_cut` gives up what has begun so.
        Both are called in a thread. Raises: StoreDamaged, OSError.
        """
        self._disk = disk
        self._root = root
        self._log = commit_log
        self._begin_cut = begin_cut
        self._forget_cut = forget_cut
        self._cut_failed = False
        """A cut could not begin, and its mark may be there all the same."""
        try:
            saved = read_epochs(disk, root)
        except EpochFileIllegal as error:
            raise StoreDamaged(
                f"{error}. It says which master wrote which part of the log: without it keep the"
                " data directory aside, and begin with an empty one"
            ) from error
        self._saved: tuple[Epoch, ...] | None = saved
        """The content of the file; None: not known, as a write has failed."""
        self.lacks = {lack for lack in Lack if disk.exists(root / lack)}
        """The marks that are there: what this member had, its copy may lack."""
        self._master_end: int | None = None
        """Where the log of the master ended when it was last followed; None: no master was."""
        # A crash may have taken the bytes of an epoch that was begun.
        end = commit_log.max_offset
        self.log_is_gone = not end and (
            (made_anew and bool(saved)) or any(epoch.start for epoch in saved)
        )
        """Whether there are epochs, and nothing is left of their log."""
        self.group = group(tuple(epoch for epoch in saved if epoch.start <= end))
        self.wire = WithEpochs(self.group)
        self.cut_at: int | None = None
        """Where the next start ends the log; until then nothing may be appended."""
        self._cuts = False
        """A thread begins a cut: it goes on whatever becomes of its caller."""

    @property
    def objection(self) -> str:
        """Why this log may not be a master's now, in words; empty: it may."""
        if self.cut_at is not None:
            return f"the next start ends it at {self.cut_at}"
        return "a cut of it begins" if self._cuts else ""

    async def lead(self, epoch: int) -> None:
        """Be the master from the end of the log on, with an epoch that no other master has had.

        Nothing is put meanwhile. Raises: OSError; then this broker does not lead.
        """
        group = self.group
        assert self.cut_at is None, self.cut_at
        assert epoch > group.last_epoch, (epoch, group.epochs)
        assert epoch >= group.least, (epoch, group.least)
        await self._without_mark()
        await self.forget_lacks()
        # The log of a group's first master is its own from the first byte on.
        start = self._log.max_offset if group.epochs else 0
        begin = self._log.min_offset
        ended = sum(later.start <= begin for later in group.epochs[1:])
        await self._save((*group.epochs[ended:], Epoch(epoch, start)))
        group.know(epoch)
        group.leads = True

    async def begins(self, epochs: Sequence[Epoch]) -> None:
        """The next bytes are of the last of these epochs, and those before it have none. Raises:
        OSError; then they may not be appended.
        """
        group = self.group
        if new := [epoch for epoch in epochs if epoch.epoch > group.last_epoch]:
            await self._save((*group.epochs, *new))
            group.know(new[-1].epoch)

    async def settle(self, greeting: Greeting) -> str:
        """Make this log the begin of a master's; all of it is on disk.

        Returns why it may not be followed now: `outdated`, or `cut`, and then the store has to be
        closed and loaded; empty: it may. Raises: LogsUnrelated, OSError.
        """
        group = self.group
        verdict, end, epochs = group.agree(greeting, self._log.max_offset)
        if verdict is Verdict.OUTDATED:
            log.warning("replication.master_outdated", epoch=greeting.last_epoch, known=group.least)
            return str(verdict)
        if verdict is Verdict.CUT:
            await self._cut(end)
            return str(verdict)
        await self._without_mark()
        # Where a crash, or a cut, has taken the bytes of an epoch, others come in their place.
        if epochs != self._saved:
            await self._save(epochs)
        group.know(greeting.last_epoch)
        self._master_end = greeting.max_offset
        return ""

    async def _cut(self, offset: int) -> None:
        """Have the next start end the log there. Raises: LogsUnrelated where it cannot, OSError."""
        name = f"{offset}-{self.group.last_epoch}"
        self._cuts = True
        try:
            await self.note(Lack.OLD_TABLES)
            kept_in = await self._disk.in_thread(self._begin_cut, offset, name)
        except StoreRefused as error:
            raise LogsUnrelated(
                f"this log is the master's up to {offset}, and cannot end there: {error}"
            ) from error
        except OSError:
            self._cut_failed = True
            raise
        finally:
            self._cuts = False
        self.cut_at = offset
        log.warning("replication.cut_begun", offset=offset, kept_in=kept_in)

    async def _without_mark(self) -> None:
        """No start may end a log that grows from now on. Raises: OSError."""
        if self._cut_failed:
            await self._disk.in_thread(self._forget_cut)
            self._cut_failed = False

    @property
    def lost(self) -> list[Lack]:
        """The marks of what its copy lacks for certain."""
        return sorted(self.lacks - {Lack.UNSYNCED})

    @property
    def has_all(self) -> bool:
        """Whether all that the master had when it was last followed is here, on disk, and
        confirmed.
        """
        end = self._master_end
        return end is not None and min(self.group.confirmed, self._log.flushed) >= end

    async def note(self, lack: Lack) -> None:
        """Mark what is lacking, durably: a lost log before an epoch is saved, old tables before the
        log is cut. Raises: OSError.
        """
        write = self._disk.write_atomically
        await self._disk.in_thread(partial(write, self._root / lack, b"", backup=False))
        self.lacks.add(lack)

    async def forget_lacks(self) -> None:
        """Take the marks away that are there. Raises: OSError."""
        for lack in sorted(self.lacks):
            await self._disk.in_thread(self._disk.remove_durably, self._root / lack)
            self.lacks.discard(lack)

    async def _save(self, epochs: tuple[Epoch, ...]) -> None:
        # Neither a handshake nor the file takes more.
        epochs = shortened(epochs, EPOCHS_MAX)
        self._saved = None
        await self._disk.in_thread(write_epochs, self._disk, self._root, epochs)
        self.group.epochs = self._saved = epochs
