"""A request held by long polling until a message comes or its time is up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aerobee.broker.filters.subscription import Filter


class HoldingConnection(Protocol):
    """A connection with its number of held requests: a peer that has some is not idle."""

    held: int

    @property
    def lane(self) -> Hashable:
        """The connection that it is a part of, or itself: whose share it takes."""
        ...

    @property
    def closed(self) -> object:
        """True once it is gone."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class HeldRequest:
    """The common part of every held request. Times are seconds of the loop's clock."""

    connection: HoldingConnection
    group: str
    matches: Filter | None
    """Which messages it waits for; None: any."""
    deadline: float
    weight: int = 1
    """Its weight in the quota."""
    done: bool = field(default=False, init=False)
    """The request was woken, or its connection is closed."""
