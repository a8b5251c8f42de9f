"""The record of a group as one member knows it: heard of the decider, and changed by the master.

A change is asked for until the decider has said what became of it: a record without it is no proof
that it will not come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.failover.decider import ChangeRefused, DeciderMisused, DeciderSilent, Sight
from aerobee.broker.failover.record import RecordIllegal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.failover.decider import Decider
    from aerobee.broker.failover.record import Record

AGAIN: Final = 0.1
"""The part of a lease after which something is tried again that got no answer."""
UNSAID: Final = (DeciderSilent, DeciderMisused, RecordIllegal)
"""The errors that keep a member from knowing the record."""

log = structlog.stdlib.get_logger(__name__)


class LeadOver(Exception):
    """This member leads no more; the text says why."""


def moment_of(record: Record) -> tuple[int, int]:
    """Its place among the records of its group: each change has a later one."""
    return record.epoch, record.set_epoch


class KnownRecord:
    """The record, as the decider was last heard."""

    def __init__(
        self, decider: Decider, member: int, lease_s: float, noted: Callable[[Sight], None]
    ) -> None:
        """`noted` is called with each sight of the record that is taken for the present one."""
        self.decider = decider
        self._member = member
        self._lease_s = lease_s
        self._noted = noted
        self.sight: Sight | None = None
        self.problem = ""
        """Why the decider is not heard; empty: it is."""
        self._latest = (0, 0)
        """Epoch and set epoch of the latest record that was ever known here."""
        self._waiting = trio.CancelScope()
        """Waits for news of the decider."""
        self._changing = trio.Lock()
        """One change of the record at a time."""

    @property
    def record(self) -> Record | None:
        """The record; None without one, and before the decider was heard."""
        return None if self.sight is None else self.sight.record

    @property
    def epoch(self) -> int:
        """The epoch of the record; 0 without one."""
        return 0 if self.record is None else self.record.epoch

    @property
    def own(self) -> Record:
        """The record of this member as the master."""
        record = self.record
        assert record is not None
        assert record.master == self._member, record
        return record

    def note(self, sight: Sight) -> None:
        """Take this for the present record."""
        self.sight = sight
        if sight.record is not None:
            self._latest = max(self._latest, moment_of(sight.record))
        self._noted(sight)

    # ── To hear of it ──

    async def look(self, known: Sight | None) -> Sight | None:
        """The record of the decider, or with `known` its next one; None: it does not say."""
        wait_s = self._lease_s
        if known is not None and not known.held:
            # Whom the others wait for, and how long, is a matter of time as well.
            wait_s *= AGAIN
        sight = None
        try:
            with trio.CancelScope() as self._waiting:
                sight = await self.decider.look(known, wait_s)
        except UNSAID as error:
            self._silent(error)
            return None
        if sight is not None:
            self._heard()
        return sight

    def look_at_once(self) -> None:
        """End a `look` that waits for news."""
        self._waiting.cancel()

    def lost_changes(self, record: Record | None) -> str:
        """How a record is older than one that was known here, in words; empty: it is not.

        A decider that was restored from a snapshot has such a one: its sync set is none now.
        """
        if record is None or moment_of(record) >= self._latest:
            return ""
        epoch, set_epoch = self._latest
        return (
            f"the record has epoch {record.epoch} and setEpoch {record.set_epoch}, and this broker"
            f" knows {epoch} and {set_epoch}: the decider has lost changes"
        )

    async def is_as_known(self) -> bool:
        """Whether the decider has the record that is known here, or none, or does not say.
        Raises: LeadOver where nobody holds the lease.
        """
        known = self.record
        seen = await self.look(None)
        if seen is None or self.record is not known:
            return True
        if not seen.held:
            raise LeadOver("the decider has ended the lease")
        if known is None or seen.record is None:
            # A hand that removed it has left the holder: nobody takes the lease.
            return True
        there = seen.record
        same = (there.master, there.sync_set) == (known.master, known.sync_set)
        return same and moment_of(there) == moment_of(known)

    async def renewed(self, lease: str) -> bool | None:
        """Whether a lease has begun anew; None: the decider does not say."""
        try:
            renewed = await self.decider.renew(lease)
        except UNSAID as error:
            self._silent(error)
            return None
        self._heard()
        return renewed

    def _silent(self, error: Exception) -> None:
        if not self.problem:
            log.warning("failover.decider_away", reason=str(error))
        self.problem = str(error) or type(error).__name__

    def _heard(self) -> None:
        if self.problem:
            self.problem = ""
            log.info("failover.decider_back")

    # ── To change it ──

    async def change(self, lease: str, changed: Callable[[Record], Record]) -> Record:
        """Have the decider change the record of the master with this lease, however often it is
        asked; what it has then. Raises: LeadOver.
        """
        async with self._changing:
            record = self.record
            if record is None or record.lease != lease:
                raise LeadOver("the lease was given back, or is over")
            return await self._asked(changed(record), lease)

    async def _asked(self, record: Record, lease: str) -> Record:
        before = there = self.sight
        assert there is not None
        while self.sight is before:
            try:
                changed = await self.decider.change(there, record, lease)
            except ChangeRefused:
                seen = await self.look(None)
                if seen is not None and not self._is_behind(seen, record):
                    return self._after_refusal(seen, record)
                # An older set says nothing of the messages that came since.
                there = seen or there
            except UNSAID as error:
                log.warning("failover.change_late", reason=str(error))
            else:
                # An answer that was late may be of an earlier moment than what is known now.
                if self.sight is before:
                    self.note(changed)
                assert changed.record is not None
                return changed.record
            await trio.sleep(self._lease_s * AGAIN)
        raise LeadOver("the decider has had a later record since")

    def _is_behind(self, seen: Sight, record: Record) -> bool:
        """Whether the decider has an older record of this time as the master, and its lease."""
        there = seen.record
        if there is None or not seen.held or not self.lost_changes(there):
            return False
        return (there.epoch, there.lease) == (record.epoch, record.lease)

    def _after_refusal(self, seen: Sight, record: Record) -> Record:
        """The record that is there in place of the wanted one. Raises: LeadOver."""
        there = seen.record
        if there == record:
            self.note(seen)
            return record
        if there is None or there.epoch != record.epoch or not seen.held:
            raise LeadOver("the decider has another record, or the lease is over")
        self.note(seen)
        return there
