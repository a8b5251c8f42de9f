"""The results and exceptions of a push consumer's handler. It imports no wire code or client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from operator import index
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aerobee.client.callables import check_result
from aerobee.client.message import ReceivedMessage
from aerobee.counted import counted
from aerobee.errors import ConfigurationError, PortableError
from aerobee.remoting.border import Border

BlockingHandler: TypeAlias = Callable[[Sequence[ReceivedMessage]], object]
Handler: TypeAlias = Callable[[Sequence[ReceivedMessage]], Awaitable[object] | object]

if TYPE_CHECKING:
    from aerobee.client.send_result import MessageQueue

T = TypeVar("T")
log = logging.getLogger("aerobee.client")

GIVEN_UP = -1
"""The delay level that makes a message a dead letter."""
LEVEL_MAX = 18


class MessageModel(Enum):
    """Whether one member of the group gets a message, or all members."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeResult(Enum):
    """The result of a handler; any other value, including None, means SUCCESS."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


class RetryLater(PortableError, Exception):
    """Raised by a handler to have its messages delivered again, after the delay of a level.

    Levels are the broker's: normally 1s 5s 10s 30s 1m … 2h for 1 to 18. With level 0 the broker
    chooses a longer delay each time. Orderly consumers use `suspend` seconds instead, at least
    0.01, and without it their own `suspend`.
    """

    def __init__(self, level: int = 0, *, suspend: float | None = None) -> None:
        super().__init__(f"again later, delay level {level}")
        if not 0 <= level <= LEVEL_MAX:
            raise ConfigurationError(f"delay level {level}: 0 to {LEVEL_MAX}")
        if suspend is not None and not 0 <= suspend < inf:
            raise ConfigurationError(f"suspend={suspend:g}: a number of seconds from 0 on")
        self.level = index(level)
        self.suspend = suspend


class Reject(PortableError, Exception):
    """Raised by a handler to make its messages dead letters, without another try."""


class BatchFailed(PortableError, Exception):
    """Raised by a handler of a batch: the messages at `indices` failed, the others are finished.

    Places count from 0. If the batch has no message at one of them, all of it failed.
    """

    def __init__(self, indices: Sequence[int], level: int = 0) -> None:
        super().__init__(f"{counted(len(indices), 'message')} of the batch failed")
        self.indices = tuple(map(index, indices))
        self.level = RetryLater(level).level


@dataclass(frozen=True, slots=True)
class Verdict:
    """The failed messages of a batch, and how they are delivered again."""

    level: int = 0
    indices: Sequence[int] | None = None
    """The indices of the failed messages; None for all."""
    suspend_s: float | None = None
    error: Exception | None = None
    """The handler's exception, if it is none of those that choose the further delivery."""

    @property
    def given_up(self) -> bool:
        """Whether the messages become dead letters."""
        return self.level == GIVEN_UP

    def failed(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """The failed messages of the batch."""
        if self.indices is None:
            return list(messages)
        return [messages[n] for n in sorted(set(self.indices))]


AGAIN = Verdict()
"""The whole batch is delivered again, with a longer delay each time."""


def verdict_of_result(result: object) -> Verdict | None:
    """The verdict from a handler's result; None if all messages are finished.

    Raises: TypeError for a result that somebody would have to await or iterate first.
    """
    if result is None:
        return None
    check_result("the handler", result)
    return AGAIN if result is ConsumeResult.LATER else None


def verdict_of_error(error: Exception, count: int) -> Verdict:
    """The verdict from a handler's exception for `count` messages; one of its own counts as LATER.

    A message that nobody named is not finished by a mistake: a wrong place makes all fail.
    """
    match error:
        case RetryLater():
            return Verdict(error.level, suspend_s=error.suspend)
        case Reject():
            return Verdict(GIVEN_UP)
        case BatchFailed():
            outside = [n for n in error.indices if not 0 <= n < count]
            if not outside:
                return Verdict(error.level, error.indices)
            log.error(
                "BatchFailed names %s of a batch of %d: all of it comes again", outside, count
            )
            return Verdict(error.level)
        case _:
            log.error("the handler failed, its messages come again", exc_info=error)
            return Verdict(error=error)


def unhandled(topic: str) -> Verdict:
    """The verdict for messages of a topic without a handler here: another member may have one."""
    log.error("no handler for topic %s: its messages come again", topic)
    return AGAIN


@dataclass(frozen=True, slots=True)
class Events:
    """The callbacks for assigned and revoked queues."""

    on_assigned: Callable[[frozenset[MessageQueue]], object] | None
    on_revoked: Callable[[frozenset[MessageQueue]], object] | None

    def tell(self, before: frozenset[MessageQueue], after: frozenset[MessageQueue]) -> None:
        """Call them with the differences between the queues `before` and `after`."""
        for callback, changed in (
            (self.on_revoked, before - after),
            (self.on_assigned, after - before),
        ):
            if callback is not None and changed:
                call_safely(callback, changed)


def call_safely(callback: Callable[[T], object], value: T) -> None:
    """Call a user's callback; its exceptions are logged and end nothing."""
    with Border() as border:
        check_result("the callback", callback(value))
    if border.error is not None:
        log.error("a callback failed", exc_info=border.error)
