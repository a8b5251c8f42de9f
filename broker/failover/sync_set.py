"""The sync set: members that must have a message before it is acknowledged, and how far they are.

Pure: reports of the members and answers of the decider in, offsets and wishes out. Laws:

- acknowledgements count over the sync set of the record and over the one that was proposed, until
  the decider has answered: a proposal may be the record already, or never become it;
- what was confirmed stays confirmed. A connection that ends changes nothing: its member is waited
  for until the record is without it;
- one change at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.broker.failover.record import Record

NOTHING = -1
"""The end of a log of which nothing is known."""


class Copy(NamedTuple):
    """The log of a member, as far as the master knows."""

    end: int
    """Of the bytes that the member has, of this master's log; −1: not known."""
    caught_up_at: float
    """When it had all there was."""
    aim: int = NOTHING
    """All there was at the moment `aimed_at`: what it has to have next."""
    aimed_at: float = 0.0


class SyncSet:
    """The sync set as its master sees it, for one epoch.

    Invariant: `confirmed` never falls, and every member of the set in the record has the log up to
    there.
    """

    __slots__ = ("_begin", "_copies", "_least", "_own", "confirmed", "members", "proposed")

    def __init__(self, record: Record, end: int, confirmed: int, least: int, now: float) -> None:
        """The master's log ends at `end`; `confirmed` is what it knew as a slave. `least`: so many
        copies a message must have, that of the master among them.
        """
        assert confirmed <= end, (confirmed, end)
        self._own = record.master
        self._least = least
        self._begin = end
        self.members = frozenset(record.sync_set)
        """As in the record."""
        self.proposed: frozenset[int] | None = None
        """The set that the decider was asked for and has not answered."""
        self._copies = {member: Copy(NOTHING, now) for member in self.members}
        self.confirmed = confirmed
        self.appended(end, now)

    @property
    def required(self) -> frozenset[int]:
        """The members whose copies an acknowledgement waits for."""
        return self.members if self.proposed is None else self.members | self.proposed

    @property
    def end(self) -> int:
        """The end of the master's own log."""
        return self._copies[self._own].end

    def end_of(self, member: int) -> int:
        """The end of a member's log, of the bytes that it has of this master's; −1: not known."""
        copy = self._copies.get(member)
        return NOTHING if copy is None else copy.end

    def may_acknowledge(self, end: int) -> bool:
        """Whether a message that ends there is safe: all of the set have it, and they are enough.

        To be asked immediately before the answer.
        """
        size = len(self.members)
        if self.proposed is not None:
            size = min(size, len(self.proposed))
        return end <= self.confirmed and size >= self._least

    def appended(self, end: int, now: float) -> None:
        """The master's own log ends there, as far as it counts."""
        self._copies[self._own] = Copy(end, now)
        self._confirm()

    def reported(self, member: int, end: int, now: float) -> None:
        """A member has the log up to there, by a report to this master in this epoch.

        Reports come also while the log does not grow: a member that is silent is late, as what it
        copies beside the log gets old. A member that comes again may have less than it had. While
        the log always grows, a member is caught up as of when the log ended where it is now.
        """
        _, caught_up_at, aim, aimed_at = self._copies.get(member, Copy(NOTHING, now))
        if aim != NOTHING and end >= aim:
            caught_up_at = max(caught_up_at, aimed_at)
        if end >= self.end:
            caught_up_at = now
        if aim == NOTHING or end >= aim:
            aim, aimed_at = self.end, now
        self._copies[member] = Copy(end, caught_up_at, aim, aimed_at)
        self._confirm()

    def _confirm(self) -> None:
        ends = (self._copies[member].end for member in self.required)
        self.confirmed = max(self.confirmed, min(ends))

    # ── Changes ──

    def change(self, now: float, late_s: float, ready: Iterable[int]) -> frozenset[int] | None:
        """The set that the decider is to be asked for; None: none.

        `ready`: members that follow and have this master's tables. They join once they have all
        that is confirmed, and all that was there when this epoch began: a new master does not
        know how much of that was acknowledged. Members that have not caught up for `late_s` leave,
        but never so many that too few remain to acknowledge anything: those that stay may become
        the master.
        """
        if self.proposed is not None:
            return None
        needed = max(self.confirmed, self._begin)
        joining = {member for member in ready if self.end_of(member) >= needed}
        wanted = set(self.members | joining)
        for member in self.late(now, late_s):
            if len(wanted) > self._least:
                wanted.discard(member)
        return None if wanted == self.members else frozenset(wanted)

    def late(self, now: float, late_s: float) -> list[int]:
        """The members that have not caught up for `late_s`, the latest first."""
        late = sorted(
            (self._copies[member].caught_up_at, member)
            for member in self.members
            if member != self._own and now - self._copies[member].caught_up_at > late_s
        )
        return [member for _, member in late]

    def propose(self, members: frozenset[int]) -> None:
        """The decider is asked for this set: from now on both sets count."""
        assert self.proposed is None, (self.proposed, members)
        assert self._own in members, members
        self.proposed = members

    def decided(self, record: Record) -> None:
        """The decider has confirmed a change: this is the record.

        After an answer that was lost, a record without the proposal is no proof: the request may
        still arrive. Then the same change is asked for again, until one of the two is confirmed.
        """
        assert record.master == self._own, record
        self.members, self.proposed = frozenset(record.sync_set), None
        self._confirm()
