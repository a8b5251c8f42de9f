"""Whether this member may take the lease of its group. Pure.

A member asks only for itself: who is first among those that may is decided by compare-and-swap, and
any of them has all that was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.broker.failover.record import Record


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
