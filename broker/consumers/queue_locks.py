"""Queue locks of orderly consumers: in memory only, each valid for 60 seconds.

A lock is not released when its connection closes: another client gets it once it has expired,
unless the owner released it. `now_ms` is any monotonic clock. Source: semantics §12
(RebalanceLockManager).
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

LOCK_LIVES_MS: Final = 60_000

Queue = TypeVar("Queue", bound=Hashable)


class Lock(NamedTuple):
    """The owner of a queue, and the time of the last renewal."""

    client_id: str
    refreshed_ms: int

    def alive(self, now_ms: int) -> bool:
        """Whether it has not expired: Java expires a lock only after more than its lifetime."""
        return now_ms - self.refreshed_ms <= LOCK_LIVES_MS


class QueueLockTable(Generic[Queue]):
    """group → queue → lock. The table only compares queues."""

    def __init__(self, *, max_locks: int = 200_000, max_of_group: int = 20_000) -> None:
        self.groups: dict[str, dict[Queue, Lock]] = {}
        self.max_locks = max_locks
        self.max_of_group = max_of_group
        self.count = 0

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Lock the queues that are free, expired or ours; returns those that `client_id` holds
        now.
        """
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
        """Release the locks of `client_id` on these queues; other locks stay."""
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
        """Whether any queue of the group has a valid lock: the group is orderly."""
        held = self.groups.get(group)
        return held is not None and any(lock.alive(now_ms) for lock in held.values())

    def clear(self) -> None:
        """Release all of them."""
        self.groups.clear()
        self.count = 0

    def sweep(self, now_ms: int) -> Iterator[None]:
        """Remove expired locks; others may run between two groups.

        Without it the table would only grow.
        """
        for group, held in list(self.groups.items()):
            yield
            if self.groups.get(group) is not held:
                continue  # All of its locks were released meanwhile.
            for queue in [queue for queue, lock in held.items() if not lock.alive(now_ms)]:
                del held[queue]
                self.count -= 1
            if not held:
                del self.groups[group]
