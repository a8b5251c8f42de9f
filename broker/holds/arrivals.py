"""Who hears of each message that has become readable: a list that is short, and changes seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.store.message_store import MessageStore
    from aerobee.store.queues.dispatch import Arrival

__all__ = ["Arrivals"]


class Arrivals:
    """Listeners to one store, in the order in which they came."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._listeners: list[Arrival] = []

    def add(self, listener: Arrival) -> None:
        """Tell this one as well from now on."""
        self._listeners.append(listener)
        self._change()

    def remove(self, listener: Arrival) -> None:
        """Tell this one no more."""
        self._listeners.remove(listener)
        self._change()

    def _change(self) -> None:
        # Per message: with one listener, which is the rule, the store calls it directly.
        match self._listeners:
            case []:
                self._store.on_arrival = None
            case [alone]:
                self._store.on_arrival = alone
            case several:
                self._store.on_arrival = to_each(tuple(several))


def to_each(listeners: tuple[Arrival, ...]) -> Arrival:
    """One listener that tells all of them."""

    def arrived(
        topic: str, queue_id: int, end: int, code: int, stored_ms: int, properties: bytes
    ) -> None:
        for listener in listeners:
            listener(topic, queue_id, end, code, stored_ms, properties)

    return arrived
