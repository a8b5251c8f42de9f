"""The state of a broker's group in failover mode, as far as the log is concerned.

Pure. The owner says who is a member, who leads since which epoch, and what is confirmed; here stand
the epochs of the log, and what follows from those of a master. Source: store format §8
(AutoSwitchHAService).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.errors import LogsUnrelated
from aerobee.store.format.epochs import common_end, cut_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.store.format.epochs import Epoch
    from aerobee.store.format.ha_epochs import Greeting

NO_EPOCH = 0
"""The last epoch of a log without epochs; the first master has 1."""


class Verdict(StrEnum):
    """The decision of a slave about a master that has named its epochs."""

    FOLLOW = "follow"
    """Its own log is the begin of the master's."""
    CUT = "cut"
    """Its own log has bytes that the master's has not: they go first."""
    OUTDATED = "outdated"
    """A later master is known: this one is refused."""


class Agreement(NamedTuple):
    """The verdict, up to where both logs are equal, and the epochs of the own log there."""

    verdict: Verdict
    end: int
    epochs: tuple[Epoch, ...]


class Group:
    """The state of one member.

    Invariant: `least`, `confirmed` and `begin` never fall.
    """

    __slots__ = ("begin", "confirmed", "epochs", "leads", "least", "member", "members")

    def __init__(
        self, member: int, members: Iterable[int] | None, epochs: tuple[Epoch, ...]
    ) -> None:
        self.member = member
        self.members = None if members is None else frozenset(members)
        """The ids of all members: nobody else is served. None: they are not known here."""
        self.epochs = epochs
        """Of the own log; the one that begins at its end may have no byte yet."""
        self.leads = False
        """Whether this broker is the master, and may send its log."""
        self.least = self.last_epoch
        """No master with a lower epoch is followed."""
        self.confirmed = 0
        """Up to where all of the sync set have the log, as far as this member knows."""
        self.begin = 0
        """Where the log ended when this member last began to lead, or had a queue begin anew:
        clients are not served before that is confirmed."""

    @property
    def last_epoch(self) -> int:
        """The latest epoch of the own log."""
        return self.epochs[-1].epoch if self.epochs else NO_EPOCH

    @property
    def visible(self) -> int:
        """How far the log may go into the queues, and so to consumers."""
        return max(self.confirmed, self.begin)

    def know(self, epoch: int) -> None:
        """There is a master with this epoch: no lower one is followed any more."""
        self.least = max(self.least, epoch)

    def confirm(self, confirmed: int, end: int) -> None:
        """A master has said what is confirmed; the own log ends at `end`."""
        self.confirmed = max(self.confirmed, min(confirmed, end))

    def dispatch_to(self, end: int) -> None:
        """Let the log go into the queues up to there, confirmed or not; nobody reads here before it
        is.
        """
        self.begin = max(self.begin, end)

    def objection(self, member: int) -> str:
        """Why a slave with this id is not served, in words; empty: it is."""
        if not self.leads:
            return "this broker is not the master of its group"
        if member == self.member:
            return f"member {member} is this broker itself"
        if self.members is not None and member not in self.members:
            return f"member {member} is not one of the group: {sorted(self.members)}"
        return ""

    def agree(self, greeting: Greeting, end: int) -> Agreement:
        """How to go on with a master, for an own log up to `end`.

        Raises: LogsUnrelated where the logs have no epoch in common.
        """
        theirs = greeting.epochs
        if greeting.last_epoch < max(self.least, self.last_epoch):
            return Agreement(Verdict.OUTDATED, end, self.epochs)
        common = common_end(self.epochs, end, theirs, greeting.max_offset) if end else 0
        if common is None:
            raise LogsUnrelated(
                f"this log up to {end} has the epochs {_shown(self.epochs)}, the master's has"
                f" {_shown(theirs)}: they have none in common. Keep this data directory aside and"
                " begin with an empty one"
            )
        if common < end:
            return Agreement(Verdict.CUT, common, cut_at(self.epochs, common))
        # Masters that have written nothing yet count as well: no lower one is followed.
        begun = tuple(epoch for epoch in theirs if epoch.start == end)
        return Agreement(Verdict.FOLLOW, end, cut_at(self.epochs, end) + begun)


def _shown(epochs: tuple[Epoch, ...]) -> str:
    """The latest of them, for a line of text."""
    return ", ".join(f"{epoch} from {start}" for epoch, start in epochs[-5:]) or "none"
