"""Whether this member may take the lease of its group, and whether it makes way for one with room.

Pure. A member asks only for itself: who is first among those that may is decided by
compare-and-swap, and any of them has all that was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aerobee.broker.failover.record import Record


YIELDS: Final = 2.0
"""So many leases a member without room leaves to others, once nobody holds one."""
PATIENCE: Final = 1.0
"""So many leases a master is without room before it makes way: the clean-up may free some."""
SELDOM: Final = 20.0
"""So many leases lie at least between two times that a member makes way."""


class Candidate(NamedTuple):
    """The facts that a member knows of itself."""

    member: int
    epoch: int
    """The latest epoch that it led or followed; 0: none."""
    damage: str = ""
    """The damage to its log, in words; empty: it was read through and is whole."""
    founder: bool = False
    """Whether its settings make it the first master of a group without a record."""


def emptied(candidate: Candidate, record: Record | None, least: int) -> bool:
    """Whether a member has lost what it had when it joined the sync set: its log has no epoch.

    To be asked at the start: the first connection to a master brings epochs. The first master of
    all may have been killed before it saved its epoch; with `least` copies of each message nothing
    is lost then.
    """
    if record is None or candidate.epoch or candidate.member not in record.sync_set:
        return False
    return record.set_epoch > 1 or least < 2


def objection(candidate: Candidate, record: Record | None, *, held: bool) -> str:
    """Why this member may not take the lease now, in words; empty: it may.

    `held`: the decider still keeps a lease for the group.
    """
    if held:
        return "the lease is held"
    if candidate.damage:
        return f"its log is damaged: {candidate.damage}"
    if record is None:
        return _objection_to_first(candidate)
    if candidate.epoch > record.epoch:
        return (
            f"the record has epoch {record.epoch}, and this broker knows {candidate.epoch}: the"
            " decider has lost changes"
        )
    if candidate.member not in record.sync_set:
        return f"it is not in the sync set {list(record.sync_set)}: it may lack messages"
    return ""


def _objection_to_first(candidate: Candidate) -> str:
    if candidate.epoch:
        return (
            f"the decider has no record, and this broker knows epoch {candidate.epoch}: the decider"
            " has lost it, or another group of it is meant"
        )
    return "" if candidate.founder else "there is no record, and another member is to be the first"


class Room:
    """Whether this member has room for messages, and what follows. Moments of a clock come in.

    Laws: a member without room leaves the lease to others first, and takes it then, as without a
    master nothing is read either. A master without room gives its lease to a member that has some;
    where none has, it stays. It does so seldom, whatever others say of their room.
    """

    __slots__ = ("_free_since", "_full_since", "_gave_at", "_lease_s")

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._full_since: float | None = None
        self._free_since: float | None = None
        self._gave_at = float("-inf")

    def look(self, now: float, *, full: bool, held: bool) -> None:
        """How it is now: whether this member has no room, and whether anybody holds the lease."""
        since = now if self._full_since is None else self._full_since
        self._full_since = since if full else None
        since = now if self._free_since is None else self._free_since
        self._free_since = None if held else since

    def is_for_others(self, now: float) -> bool:
        """Whether a lease that is free now, or will be, is left to better copies for a while."""
        return self._free_since is None or now < self._free_since + YIELDS * self._lease_s

    def yields(self, now: float) -> bool:
        """Whether another one is to take the lease, if it can."""
        return self._full_since is not None and self.is_for_others(now)

    def makes_way(self, now: float) -> bool:
        """Whether a master is to give its lease to a member with room, if there is one."""
        if self._full_since is None or now < self._full_since + PATIENCE * self._lease_s:
            return False
        return now >= self._gave_at + SELDOM * self._lease_s

    def gave(self, now: float) -> None:
        """This master has made way, or tried to."""
        self._gave_at = now
