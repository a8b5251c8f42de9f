"""Pools: RocketMQ's processor pools as counts, a bounded queue and waits in one loop.

A handler that answers at once never waits here. One that must wait holds a place: `width` of them
run, the next ones queue, and beyond `capacity` requests read but not answered the pool refuses.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from remoting.server.connection import Connection
    from remoting.wire.answer import Answer
    from remoting.wire.command import Command

__all__ = ["OVERLOAD_REMARK", "Pool", "Waiting", "timeout_remark"]

OVERLOAD_REMARK = "[OVERLOAD]system busy, start flow control for a while"


def timeout_remark(waited_ms: float, queued: int) -> str:
    """The remark of a request that waited too long; monitors look for the bracketed word."""
    return (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {waited_ms:.0f}ms, size of queue: {queued}"
    )


class Waiting(NamedTuple):
    """An async request that has not begun: its coroutine runs nothing until it is awaited."""

    arrived: float
    connection: Connection
    command: Command
    work: Awaitable[Answer | None]
    begun: bool = False
    """Its effect has happened: however late, it is answered and not refused."""


class Pool:
    """One processor pool.

    Law: `depth` = requests read, not answered, and not held = running + queued + parked.
    """

    __slots__ = (
        "capacity",
        "depth",
        "max_wait_s",
        "name",
        "queue",
        "refused",
        "running",
        "served",
        "timed_out",
        "width",
    )

    def __init__(self, name: str, *, width: int, capacity: int, max_wait_ms: int | None) -> None:
        self.name = name
        self.width = width
        self.capacity = capacity
        self.max_wait_s = float("inf") if max_wait_ms is None else max_wait_ms / 1000
        self.queue: deque[Waiting] = deque()
        self.depth = 0
        self.running = 0
        self.served = 0
        self.refused = 0
        self.timed_out = 0

    @property
    def full(self) -> bool:
        """Whether the next request must be refused."""
        return self.depth >= self.capacity

    def head_wait_s(self, now: float) -> float:
        """How long the oldest queued request has waited; 0 without one."""
        return now - self.queue[0].arrived if self.queue else 0.0
