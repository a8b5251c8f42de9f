"""Which client of a group may consume a queue in order: in memory only, each lock for 60 seconds.

Nothing is released when a connection goes: another client takes over once the lock is old, unless
the owner gave it back. `now_ms` is any clock that never goes back. Source: semantics §12
(RebalanceLockManager).
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

__all__ = ["LOCK_LIVES_MS", "QueueLockTable"]

LOCK_LIVES_MS: Final = 60_000

Queue = TypeVar("Queue", bound=Hashable)


class Lock(NamedTuple):
    """Who holds a queue, and since when it was last asked for."""

    client_id: str
    refreshed_ms: int

    def alive(self, now_ms: int) -> bool:
        """Java lets a lock go only when more than its life has passed."""
        return now_ms - self.refreshed_ms <= LOCK_LIVES_MS


class QueueLockTable(Generic[Queue]):
    """group → queue → lock. A queue is whatever names one: the table only compares it."""

    def __init__(self, *, max_locks: int = 200_000, max_of_group: int = 20_000) -> None:
        self.groups: dict[str, dict[Queue, Lock]] = {}
        self.max_locks = max_locks
        self.max_of_group = max_of_group
        self.count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Take or renew what is free, ours or too old; the queues that `client_id` holds now."""
        held = self.groups.setdefault(group, {})
        granted = [queue for queue in queues if self.take(held, queue, client_id, now_ms)]
        if not held:
            del self.groups[group]
        return granted

    def take(self, held: dict[Queue, Lock], queue: Queue, client_id: str, now_ms: int) -> bool:
        """One queue of one group."""
        lock = held.get(queue)
        if lock is None:
            if self.count >= self.max_locks or len(held) >= self.max_of_group:
                return False
            self.count += 1
        elif lock.client_id != client_id and lock.alive(now_ms):
            return False
        held[queue] = Lock(client_id, now_ms)
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Give back those of `queues` that `client_id` holds; the others stay as they are."""
        held = self.groups.get(group)
        if held is None:
            return
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
                self.count -= 1
        if not held:
            del self.groups[group]

    def is_locked(self, group: str, now_ms: int) -> bool:
        """Whether any queue of the group is held by a live lock: the group consumes in order."""
        held = self.groups.get(group)
        return held is not None and any(lock.alive(now_ms) for lock in held.values())

    def sweep(self, now_ms: int) -> Iterator[None]:
        """Forget locks that no one renewed; others may run between two groups.

        Without it the table would only grow.
        """
        for group, held in list(self.groups.items()):
            yield
            for queue in [queue for queue, lock in held.items() if not lock.alive(now_ms)]:
                del held[queue]
                self.count -= 1
            if not held:
                self.groups.pop(group, None)
