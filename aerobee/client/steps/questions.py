"""What waits in a client for an answer: checks of transactions, and requests through topics."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.steps.effects import Signal

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.remoting.wire.headers.transaction import CheckTransactionState

__all__ = ["CHECKS_MAX", "Check", "Checks", "Question"]

log = logging.getLogger("aerobee.client")

CHECKS_MAX = 2000
"""Questions of brokers that wait; more are left to the next time they ask."""


@dataclass(frozen=True, slots=True)
class Check:
    """A broker asks what became of a half."""

    message: ReceivedMessage
    header: CheckTransactionState
    address: str


@dataclass(slots=True)
class Checks:
    """What brokers ask one producer group; whoever answers takes one after the other."""

    waiting: deque[Check] = field(default_factory=deque)
    arrived: Signal = field(default_factory=Signal)
    closed: bool = False

    def put(self, check: Check) -> None:
        """Keep a question, if there is room."""
        if len(self.waiting) >= CHECKS_MAX:
            log.warning("%d transaction checks wait: one more is left out", CHECKS_MAX)
            return
        self.waiting.append(check)
        self.arrived.set()

    def take(self) -> Check | None:
        """The oldest question; None while there is none."""
        if self.waiting and not self.closed:
            return self.waiting.popleft()
        if not self.closed:
            self.arrived.clear()
        return None

    def close(self) -> None:
        """No more questions."""
        self.closed = True
        self.arrived.set()


@dataclass(slots=True)
class Question:
    """A request that waits for its answer."""

    arrived: Signal = field(default_factory=Signal)
    answer: ReceivedMessage | None = None
