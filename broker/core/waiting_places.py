"""Places for requests that wait: who has them, by connection and by group, and who gives way.

The places are bounded in all, for each connection and for each group. When all are taken, a request
of a connection that has fewer takes the place of the longest wait of one that has more: whoever
parks too many pays for it, and nobody else does. A request with a long filter takes several.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, Protocol, TypeVar

__all__ = ["Connected", "PlaceLimits", "WaitingPlaces", "places_for"]

SHORT_CHARS: Final = 1_024
"""Texts of a request that are no longer take no place of their own: their filter is shared."""
CHARS_PER_PLACE: Final = 32
"""Of longer ones: a filter takes thirty times the room of its text, and a place is about 1 KiB."""
LOOKED_AT_PER_REQUEST: Final = 10
"""To find who has more than others all connections are looked at: once for so many of them each
time that a place is asked for."""


class PlaceLimits(NamedTuple):
    """How many places there are: in all, for one connection, for one group."""

    total: int = 100_000
    of_connection: int = 20_000
    of_group: int = 80_000


class Connected(Protocol):
    """A connection counts how many of its requests wait: such a peer is not idle."""

    held: int

    @property
    def closed(self) -> object:
        """True once it is gone."""
        ...


class Waits(Protocol):
    """A request that waits."""

    @property
    def connection(self) -> Connected: ...
    @property
    def group(self) -> str: ...
    @property
    def places(self) -> int: ...


W = TypeVar("W", bound=Waits)


class Holder(Generic[W]):
    """A connection's requests, the longest wait first, and the sum of their places."""

    __slots__ = ("places", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[W, None] = {}
        self.places = 0


class WaitingPlaces(Generic[W]):
    """Law: `taken` is the sum over `holders`, and over `by_group`; `count` the requests in them."""

    def __init__(self, limits: PlaceLimits) -> None:
        self.limits = limits
        self.holders: dict[Connected, Holder[W]] = {}
        self.by_group: dict[str, int] = {}
        self.taken = 0
        self.count = 0
        self._richest: list[Connected] = []
        self._asked = 0

    def take(self, waiting: W) -> bool:
        """Give it its places, if its connection and its group may have them and all are not taken.

        When they are: after False, `gives_way` may say who makes room.
        """
        limits, places = self.limits, waiting.places
        holder = self.holders.get(waiting.connection)
        of_connection = places if holder is None else holder.places + places
        of_group = self.by_group.get(waiting.group, 0) + places
        if (
            of_connection > limits.of_connection
            or of_group > limits.of_group
            or self.taken + places > limits.total
        ):
            return False
        if holder is None:
            holder = self.holders[waiting.connection] = Holder()
        holder.waiting[waiting] = None
        holder.places = of_connection
        self.by_group[waiting.group] = of_group
        self.taken += places
        self.count += 1
        waiting.connection.held += 1
        return True

    def leave(self, waiting: W) -> None:
        """Take its places back."""
        connection, group, places = waiting.connection, waiting.group, waiting.places
        holder = self.holders[connection]
        del holder.waiting[waiting]
        holder.places -= places
        if not holder.waiting:
            del self.holders[connection]
        self.by_group[group] -= places
        if not self.by_group[group]:
            del self.by_group[group]
        self.taken -= places
        self.count -= 1
        connection.held -= 1

    def of(self, connection: Connected) -> list[W]:
        """All requests of a connection that wait."""
        holder = self.holders.get(connection)
        return [] if holder is None else list(holder.waiting)

    def gives_way(self, wanted: W) -> W | None:
        """Whose places a request takes that finds all of them taken.

        The longest wait of a connection with more than its share, and more than this one would
        have; None: there is none, or too few have asked since it was looked for, or what the
        request lacks is not that.
        """
        limits, places = self.limits, wanted.places
        holder = self.holders.get(wanted.connection)
        would_have = places if holder is None else holder.places + places
        if (
            self.taken + places <= limits.total
            or would_have > limits.of_connection
            or self.by_group.get(wanted.group, 0) + places > limits.of_group
        ):
            return None
        self._asked += 1
        if not self._richest and self._asked * LOOKED_AT_PER_REQUEST >= len(self.holders):
            self._asked = 0
            self._look()
        while self._richest:
            richest = self.holders.get(self._richest[-1])
            if richest is None or richest.places <= self._share():
                self._richest.pop()
            elif richest.places <= would_have:
                return None
            else:
                return next(iter(richest.waiting))
        return None

    def _share(self) -> int:
        """What each would have with one connection more."""
        return self.taken // (len(self.holders) + 1)

    def _look(self) -> None:
        """Find the connections that have more than their share, the one with the most last."""
        share = self._share()
        rich = [one for one, holder in self.holders.items() if holder.places > share]
        self._richest = sorted(rich, key=lambda one: self.holders[one].places)


def places_for(chars: int, *, shared: bool = True) -> int:
    """How many places a request takes that brings so many characters of text with it.

    `shared`: what is made of a short text is kept once for all requests.
    """
    return 1 if shared and chars <= SHORT_CHARS else 1 + chars // CHARS_PER_PLACE
