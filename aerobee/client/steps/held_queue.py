"""One queue that a consumer holds: what is pulled, handed out, finished, committed. Pure.

The invariant: committed ≤ commit_point ≤ position ≤ next_offset. What lies below `commit_point` is
finished, so a crash loses nothing that was not. Source: client §11 (ProcessQueue).
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
"""Per queue: what is pulled and not yet handed out."""
CACHED_BYTES_MAX = 100 << 20
"""Of all queues of a consumer together."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and which of its messages."""

    topic: str
    filter: Filter
    version: int
    """Wall-clock ms of its making: brokers take the newest."""


@dataclass(slots=True)
class Cache:
    """How much a consumer holds in all, and where room is made known."""

    used_bytes: int = 0
    room: Signal = field(default_factory=Signal)
    arrived: Signal = field(default_factory=Signal)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one queue is kept ahead; from `max_bytes` on, of all queues of a consumer."""

    max_messages: int = CACHED_MESSAGES_MAX
    max_bytes: int = CACHED_BYTES_MAX
    max_span: int | None = None
    """From the first unfinished offset to the last pulled one; None for no such limit."""


PULL_LIMITS = Limits()


@dataclass(slots=True)
class HeldQueue:
    """A queue of ours and how far we are with it."""

    queue: MessageQueue
    next_offset: int
    """Where the next pull begins."""
    cache: Cache
    committed: int | None = None
    waiting: deque[ReceivedMessage] = field(default_factory=deque)
    unfinished: dict[int, None] = field(default_factory=dict)
    """Offsets handed out and not finished, ascending."""
    interrupt: Signal = field(default_factory=Signal)
    """Set when what is being pulled is no longer wanted; a new one after each seek."""
    dropped: bool = False
    broken: AerobeeError | None = None
    """Why the message at `next_offset` cannot be handed out, or nothing can be pulled."""
    limits: Limits = PULL_LIMITS
    paused: bool = False
    """Nothing is pulled or handed out until the user wants it again."""
    busy: bool = False
    """Somebody works on it, and nobody else may before that is over: in order only."""
    again_at: float = 0.0
    """Nothing is handed out before, in seconds of the clock that never jumps."""
    room: Signal = field(default_factory=Signal)
    """Set as soon as half of the messages kept ahead are handed out."""
    locked_at: float = 0.0
    """When the broker last said that the queue is ours alone: in order only."""
    pulled_at: float = 0.0
    consumed_at: float = 0.0
    """When messages last came, and were last handed out, of the clock that never jumps."""
    counts: Counts = field(default_factory=Counts)
    """What was done with its topic."""

    @property
    def position(self) -> int:
        """Offset of the next message to hand out."""
        return self.waiting[0].queue_offset if self.waiting else self.next_offset

    @property
    def commit_point(self) -> int:
        """Everything below is finished."""
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
        """Keep a pulled message until somebody asks."""
        self.waiting.append(message)
        self.cache.used_bytes += len(message.body)

    def take(self, most: int) -> list[ReceivedMessage]:
        """Hand out up to `most` messages, oldest first; they count as unfinished from here."""
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
        """These are to be handed out again, before all others."""
        for message in reversed(messages):
            self.unfinished.pop(message.queue_offset, None)
            self.waiting.appendleft(message)
            self.cache.used_bytes += len(message.body)

    def finish(self, queue_offset: int) -> None:
        """This message needs no second delivery."""
        self.unfinished.pop(queue_offset, None)

    def move_to(self, queue_offset: int) -> None:
        """Go on from there; what was pulled is forgotten, what was handed out is settled."""
        self.interrupt.set()
        self.interrupt = Signal()
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()
        self.unfinished.clear()
        self.next_offset = queue_offset
        self.broken = None

    def drop(self) -> None:
        """The queue is somebody else's now."""
        self.dropped = True
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()
        self.interrupt.set()

    def _release(self, size: int) -> None:
        self.cache.used_bytes -= size
        self.cache.room.set()
        if not self.room.is_set and len(self.waiting) <= self.limits.max_messages // 2:
            self.room.set()
