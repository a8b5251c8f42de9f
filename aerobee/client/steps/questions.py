"""Pending work of a client: transaction checks, and requests through topics."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.steps.effects import Signal

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.remoting.wire.headers.transaction import CheckTransactionState

log = logging.getLogger("aerobee.client")

CHECKS_MAX = 2000
"""The most pending checks; brokers repeat those that are dropped."""


@dataclass(frozen=True, slots=True)
class Check:
    """A transaction check: a broker asks for the state of a half message."""

    message: ReceivedMessage
    header: CheckTransactionState
    address: str


@dataclass(slots=True)
class Checks:
    """The pending checks of one producer group, answered one after the other."""

    waiting: deque[Check] = field(default_factory=deque)
    arrived: Signal = field(default_factory=Signal)
    crowded: bool = False
    """Whether checks were left out, and half of them wait still."""
    closed: bool = False

    def put(self, check: Check) -> None:
        """Add a check, if there is room."""
        if len(self.waiting) >= CHECKS_MAX:
            if not self.crowded:
                log.warning("%d transaction checks wait: further ones are left out", CHECKS_MAX)
            self.crowded = True
            return
        self.waiting.append(check)
        self.arrived.set()

    def take(self) -> Check | None:
        """Remove and return the oldest check; None without one."""
        if self.waiting and not self.closed:
            self.crowded = self.crowded and len(self.waiting) > CHECKS_MAX // 2
            return self.waiting.popleft()
        if not self.closed:
            self.arrived.clear()
        return None

    def close(self) -> None:
        """Accept no more checks."""
        self.closed = True
        self.arrived.set()


@dataclass(slots=True)
class Question:
    """A request that waits for its reply."""

    arrived: Signal = field(default_factory=Signal)
    answer: ReceivedMessage | None = None
