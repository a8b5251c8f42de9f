"""The state of one queue that a consumer holds: pulled, delivered and finished messages. Pure.

Invariant: committed ≤ commit_point ≤ position ≤ next_offset. All messages below `commit_point` are
finished, so a crash loses no unfinished message. Source: client §11 (ProcessQueue).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.steps.effects import Signal
from aerobee.client.steps.figures import Counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.filters import Filter
    from aerobee.client.message import MessageQueue, ReceivedMessage
    from aerobee.errors import AerobeeError

__all__ = ["PULL_LIMITS", "Cache", "HeldQueue", "Limits", "Subscription"]

CACHED_MESSAGES_MAX = 1000
"""The most messages of a queue that are pulled and not yet delivered."""
CACHED_BYTES_MAX = 100 << 20
"""The same limit in bytes, for all queues of a consumer together."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription: a topic and its filter."""

    topic: str
    filter: Filter
    version: int
    """The wall-clock ms of its creation: brokers use the newest."""


@dataclass(slots=True)
class Cache:
    """The size of all cached messages of a consumer, and the signal of free room."""

    used_bytes: int = 0
    room: Signal = field(default_factory=Signal)
    arrived: Signal = field(default_factory=Signal)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of pulling ahead of one queue; from `max_bytes` on, of all queues together."""

    max_messages: int = CACHED_MESSAGES_MAX
    max_bytes: int = CACHED_BYTES_MAX
    max_span: int | None = None
    """The most offsets from the first unfinished to the last pulled one; None for no limit."""


PULL_LIMITS = Limits()


@dataclass(slots=True)
class HeldQueue:
    """A held queue and the progress in it."""

    queue: MessageQueue
    next_offset: int
    """The offset of the next pull."""
    cache: Cache
    committed: int | None = None
    waiting: deque[ReceivedMessage] = field(default_factory=deque)
    unfinished: dict[int, None] = field(default_factory=dict)
    """Delivered and unfinished offsets, ascending."""
    interrupt: Signal = field(default_factory=Signal)
    """Set when the running pull is no longer wanted; a new signal after each seek."""
    dropped: bool = False
    broken: AerobeeError | None = None
    """The reason why the message at `next_offset` cannot be delivered, or pulls fail."""
    limits: Limits = PULL_LIMITS
    paused: bool = False
    """Whether pulling and delivery are paused by the user."""
    busy: bool = False
    """Whether a handler is running, and no other may start: orderly only."""
    again_at: float = 0.0
    """The earliest time of the next delivery, in monotonic seconds."""
    room: Signal = field(default_factory=Signal)
    """Set as soon as half of the cached messages are delivered."""
    locked_at: float = 0.0
    """When the broker last confirmed the lock of the queue: orderly only."""
    pulled_at: float = 0.0
    consumed_at: float = 0.0
    """When messages were last pulled, and last delivered, in monotonic seconds."""
    counts: Counts = field(default_factory=Counts)
    """The statistics of its topic."""

    @property
    def position(self) -> int:
        """The offset of the next message to deliver."""
        return self.waiting[0].queue_offset if self.waiting else self.next_offset

    @property
    def commit_point(self) -> int:
        """The offset below which all messages are finished."""
        return next(iter(self.unfinished), self.position)

    @property
    def full(self) -> bool:
        """Whether pulling more must wait."""
        limits, cached = self.limits, len(self.waiting)
        if limits.max_span is not None and self.next_offset - self.commit_point > limits.max_span:
            return True
        return cached >= limits.max_messages or (
            cached > 0 and self.cache.used_bytes >= limits.max_bytes
        )

    def add(self, message: ReceivedMessage) -> None:
        """Add a pulled message."""
        self.waiting.append(message)
        self.cache.used_bytes += len(message.body)

    def take(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages, oldest first; they count as unfinished from here."""
        waiting, unfinished, used = self.waiting, self.unfinished, 0
        taken = []
        while waiting and most > 0:
            message = waiting.popleft()
            unfinished[message.queue_offset] = None
            used += len(message.body)
            taken.append(message)
            most -= 1
        self._release(used)
        return taken

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages back, to be delivered again before all others."""
        for message in reversed(messages):
            self.unfinished.pop(message.queue_offset, None)
            self.waiting.appendleft(message)
            self.cache.used_bytes += len(message.body)

    def finish(self, queue_offset: int) -> None:
        """Finish a message: it needs no second delivery."""
        self.unfinished.pop(queue_offset, None)

    def move_to(self, queue_offset: int) -> None:
        """Continue at an offset; pulled messages are dropped, delivered ones are settled."""
        self.interrupt.set()
        self.interrupt = Signal()
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()
        self.unfinished.clear()
        self.next_offset = queue_offset
        self.broken = None

    def drop(self) -> None:
        """Drop the queue, which another member holds now."""
        self.dropped = True
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()
        self.interrupt.set()

    def _release(self, size: int) -> None:
        self.cache.used_bytes -= size
        self.cache.room.set()
        if not self.room.is_set and len(self.waiting) <= self.limits.max_messages // 2:
            self.room.set()
