"""The quota of held requests: in all, by connection and by group; and which one is evicted.

When the quota is used up, a request of a connection that holds less evicts the oldest request of
one that holds more: only clients that hold too many are affected. A request with a long filter
weighs more than one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from aerobee.broker.holds.held_request import HeldRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from aerobee.broker.holds.held_request import HoldingConnection

SHORT_CHARS: Final = 1_024
"""Texts up to this length add nothing to a request's weight: their filter is shared."""
CHARS_PER_WEIGHT: Final = 32
"""Of longer ones: a filter takes thirty times the memory of its text, and a request about 1 KiB."""
SCANNED_PER_REQUEST: Final = 10
"""The scan for connections with more than their share reads all of them, so it runs only after
enough requests have found the quota used up: each of those pays for this many connections."""


class HoldLimits(NamedTuple):
    """The weight that may be held: in all, by one connection, by one group."""

    total: int = 100_000
    of_connection: int = 20_000
    of_group: int = 80_000


H = TypeVar("H", bound=HeldRequest)


class Share(Generic[H]):
    """The requests of one connection, the oldest first, and the sum of their weights."""

    __slots__ = ("requests", "weight")

    def __init__(self) -> None:
        self.requests: dict[H, None] = {}
        self.weight = 0


class HoldQuota(Generic[H]):
    """Invariant: `weight` is the sum over `by_connection`, and over `by_group`; `count` the
    requests.
    """

    def __init__(self, limits: HoldLimits) -> None:
        self.limits = limits
        self.by_connection: dict[Hashable, Share[H]] = {}
        """By the `lane` of each: calls of one connection share what it may hold."""
        self.by_group: dict[str, int] = {}
        self.weight = 0
        self.count = 0
        self._largest: list[Hashable] = []
        """Connections that had more than their share at the last scan, the largest last."""
        self._asked = 0

    def admit(self, request: H, evict: Callable[[H], None]) -> bool:
        """Add a request, if its connection and its group may hold it.

        `evict` releases another one for it, as often as needed. Where the limit was lowered since,
        what is held stays until its time: to evict all above the limit would take a second.
        """
        limits, connection, weight = self.limits, request.connection, request.weight
        while True:
            share = self.by_connection.get(connection.lane)
            would_hold = weight if share is None else share.weight + weight
            of_group = self.by_group.get(request.group, 0) + weight
            if would_hold > limits.of_connection or of_group > limits.of_group:
                return False
            if self.weight + weight <= limits.total:
                break
            if self.weight > limits.total:
                return False
            victim = self._victim(would_hold)
            if victim is None:
                return False
            evict(victim)
        if share is None:
            share = self.by_connection[connection.lane] = Share()
        share.requests[request] = None
        share.weight = would_hold
        self.by_group[request.group] = of_group
        self.weight += weight
        self.count += 1
        connection.held += 1
        return True

    def release(self, request: H) -> None:
        """Remove a request."""
        connection, group, weight = request.connection, request.group, request.weight
        share = self.by_connection[connection.lane]
        del share.requests[request]
        share.weight -= weight
        if not share.requests:
            del self.by_connection[connection.lane]
        self.by_group[group] -= weight
        if not self.by_group[group]:
            del self.by_group[group]
        self.weight -= weight
        self.count -= 1
        connection.held -= 1

    def most_of_connection(self) -> int:
        """The weight of the connection that holds most."""
        return max((share.weight for share in self.by_connection.values()), default=0)

    def most_of_group(self) -> int:
        """The weight of the group that holds most."""
        return max(self.by_group.values(), default=0)

    def of(self, connection: HoldingConnection) -> list[H]:
        """All held requests of a connection, or of one of its calls."""
        share = self.by_connection.get(connection.lane)
        if share is None:
            return []
        own = (request for request in share.requests if request.connection is connection)
        # The calls of a connection end in their order, so that nearly always it is the first.
        return list(islice(own, connection.held))

    def _victim(self, would_hold: int) -> H | None:
        """The oldest request of a connection with more than its share, and more than `would_hold`.

        None: there is none, or too few requests have paid since the last scan.
        """
        self._asked += 1
        if not self._largest and self._asked * SCANNED_PER_REQUEST >= len(self.by_connection):
            self._asked = 0
            self._scan()
        while self._largest:
            largest = self.by_connection.get(self._largest[-1])
            if largest is None or largest.weight <= self._fair():
                self._largest.pop()
            elif largest.weight <= would_hold:
                return None
            else:
                return next(iter(largest.requests))
        return None

    def _fair(self) -> int:
        """The share of each connection if there were one more."""
        return self.weight // (len(self.by_connection) + 1)

    def _scan(self) -> None:
        """Find the connections that hold more than their share."""
        fair = self._fair()
        large = [
            connection for connection, share in self.by_connection.items() if share.weight > fair
        ]
        self._largest = sorted(large, key=lambda connection: self.by_connection[connection].weight)


def weight_of(chars: int, *, shared: bool = True) -> int:
    """The weight of a request with `chars` characters of text.

    `shared`: what is made of a short text is kept once for all requests.
    """
    return 1 if shared and chars <= SHORT_CHARS else 1 + chars // CHARS_PER_WEIGHT
