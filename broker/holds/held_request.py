"""A request that is held until there is something for it, or its time is up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aerobee.broker.filters.subscription import Filter

__all__ = ["Connected", "HeldRequest"]


class Connected(Protocol):
    """A connection counts how many of its requests are held: such a peer is not idle."""

    held: int

    @property
    def closed(self) -> object:
        """True once it is gone."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class HeldRequest:
    """What every held request has. Times are seconds of the loop's clock."""

    connection: Connected
    group: str
    matches: Filter | None
    """Which messages it waits for; None: any."""
    deadline: float
    weight: int = 1
    """What it counts in the quota."""
    done: bool = field(default=False, init=False)
    """It was woken, or its connection is gone."""
