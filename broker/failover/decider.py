"""The interface of what decides on the masters of a group, for its members: four calls.

Pure: the protocol, its values and its errors. Behind it stands etcd; what a member decides is the
same with any other. Moments are the member's business: it notes its clock before each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.failover.record import Record


class DeciderSilent(Exception):
    """The decider gave no answer that says whether anything was done. A change may still happen."""


class ChangeRefused(Exception):
    """The decider has done nothing, and will not: the record or the lease is another one."""


class DeciderMisused(Exception):
    """The decider answers that it does not serve this member: its account, its certificate."""


class Sight(NamedTuple):
    """The record of the decider at one moment."""

    record: Record | None
    version: int
    """Of the record; 0 without one."""
    held: bool
    """Whether some member's lease lasts."""
    moment: int = 0
    """The decider's own number of that moment: `look` waits for a later one."""


class Decider(Protocol):
    """The calls. Each raises DeciderSilent and DeciderMisused."""

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        """The present record; with `known`, as soon as it has changed since, or after `wait_s`.
        Raises: RecordIllegal.
        """

    async def take(self, sight: Sight, record_for: Callable[[str], Record]) -> Sight:
        """Begin a lease and put a record with it in the place of that of `sight`.

        `record_for` makes it, given the name of the lease. Raises: ChangeRefused.
        """

    async def renew(self, lease: str) -> bool:
        """Have the lease begin anew; False: it is over, or is not that of the master any more."""

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        """Put a record of the same master in the place of that of `sight`, while its lease lasts.

        A record without a lease ends it. Raises: ChangeRefused.
        """
