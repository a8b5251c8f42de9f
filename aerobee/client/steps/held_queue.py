"""The state of one queue that a consumer holds: pulled, delivered and finished messages. Pure.

Invariant: committed ≤ commit_point ≤ position ≤ next_offset. All messages below `commit_point` are
finished, so a crash loses no unfinished message. Source: client §11 (ProcessQueue).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.compression import UNPACKED_MAX
from aerobee.client.settings.consumers import PULL_LIMITS, Limits
from aerobee.client.steps.effects import Signal
from aerobee.client.steps.figures import Counts
from aerobee.errors import MessageUnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from aerobee.client.filters import Filter
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.send_result import MessageQueue
    from aerobee.errors import AerobeeError

PULL_MAX = 1024
"""The most messages of a pull, whatever the options say."""


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
    queues: int = 0
    """The number of queues that share it."""
    releases: int = 0
    """Counts how often room became free."""
    room: Signal = field(default_factory=Signal)
    arrived: Signal = field(default_factory=Signal)


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
    lost: bool = False
    """Whether its broker does not have all of it any more, and delivers nothing of that again."""
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
    stored_at: datetime | None = None
    """When the last pulled message was stored, by the clock of its broker."""
    pulled_at: float = 0.0
    consumed_at: float = 0.0
    """When messages were last pulled, and last delivered, in monotonic seconds."""
    counts: Counts = field(default_factory=Counts)
    """The statistics of its topic."""
    cached_bytes: int = 0
    """The bodies of `waiting`."""
    crowded_at: int | None = None
    """`cache.releases` when the next message found no room: it waits until there is more."""
    pull_max: int = PULL_MAX
    """The most messages of the next pull: fewer after one that did not find room for all."""

    def __post_init__(self) -> None:
        self.cache.queues += 1

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
        limits = self.limits
        if limits.max_span is not None and self.next_offset - self.commit_point > limits.max_span:
            return True
        if self.cache.used_bytes and self.crowded_at == self.cache.releases:
            return True
        return len(self.waiting) >= limits.max_messages or self.room_bytes <= 0

    @property
    def room_bytes(self) -> int:
        """How many bytes the body of the next message may take.

        One half of the cache is for the queues that come first, the other is shared out evenly, so
        that no queue keeps out the others. One message alone may be as large as messages are.
        """
        used, limit = self.cache.used_bytes, self.limits.max_bytes
        if not used:
            return UNPACKED_MAX
        half = limit // 2
        share = half // self.cache.queues - self.cached_bytes if self.cached_bytes else half
        return min(limit - used, max(half - used, share))

    def add(self, message: ReceivedMessage) -> None:
        """Add a pulled message."""
        self.waiting.append(message)
        self._use(len(message.body))

    def count_pull(self, kept: int, *, whole: bool) -> None:
        """Note how much of the last response there was room for."""
        if whole:
            self.crowded_at = None
            self.pull_max = min(PULL_MAX, max(self.pull_max, 2 * kept))
        else:
            self.crowded_at = self.cache.releases
            self.pull_max = max(1, kept)

    def take(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages, oldest first; they count as unfinished from here."""
        messages: list[ReceivedMessage] = []
        self.take_into(messages, most)
        return messages

    def take_into(self, messages: list[ReceivedMessage], most: int) -> None:
        """Add up to `most` messages to a list, oldest first; they count as unfinished from here.

        An interruption leaves each message in `waiting` or in `unfinished` and the list, or in all.
        """
        waiting, unfinished = self.waiting, self.unfinished
        while waiting and most > 0:
            message = waiting[0]
            unfinished[message.queue_offset] = None
            messages.append(message)
            waiting.popleft()
            self._use(-len(message.body))
            most -= 1
        self._release(0)

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages back, to be delivered again before all others."""
        for message in reversed(messages):
            if not self.waiting or self.waiting[0].queue_offset > message.queue_offset:
                self.waiting.appendleft(message)
                self._use(len(message.body))
            self.unfinished.pop(message.queue_offset, None)

    def finish(self, queue_offset: int) -> None:
        """Finish a message: it needs no second delivery, or, if it is unreadable, not its first."""
        self.unfinished.pop(queue_offset, None)
        error = self.broken
        if isinstance(error, MessageUnreadableError) and error.message.queue_offset == queue_offset:
            self.interrupt.set()
            self.interrupt = Signal()
            self.next_offset = queue_offset + 1
            self.broken = None

    def move_to(self, queue_offset: int) -> None:
        """Continue at an offset; pulled messages are dropped, delivered ones are settled."""
        self.interrupt.set()
        self.interrupt = Signal()
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()
        self.unfinished.clear()
        self.next_offset = queue_offset
        self.broken = None

    def give_back(self) -> None:
        """Drop what is pulled and not delivered: it is pulled again. The cache is for others."""
        self.interrupt.set()
        self.interrupt = Signal()
        self._forget_waiting()
        self.broken = None

    def drop(self) -> None:
        """Drop the queue, which another member holds now."""
        if not self.dropped:
            self.cache.queues -= 1
        self.dropped = True
        self._forget_waiting()
        self.interrupt.set()

    def _forget_waiting(self) -> None:
        # Messages that were not delivered stay uncommitted: the last commit may follow a `drop`.
        self.next_offset = self.position
        self._release(sum(len(message.body) for message in self.waiting))
        self.waiting.clear()

    def _use(self, size: int) -> None:
        self.cache.used_bytes += size
        self.cached_bytes += size

    def _release(self, size: int) -> None:
        self._use(-size)
        self.cache.releases += 1
        self.cache.room.set()
        if not self.room.is_set and len(self.waiting) <= self.limits.max_messages // 2:
            self.room.set()
