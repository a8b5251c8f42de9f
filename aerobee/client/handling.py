"""What a handler of a push consumer may say about the messages it was given. No wire, no client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from aerobee.client.message import MessageQueue, ReceivedMessage
from aerobee.errors import ConfigurationError

__all__ = [
    "AGAIN",
    "BatchFailed",
    "BlockingHandler",
    "ConsumeResult",
    "Events",
    "Guarded",
    "Handler",
    "MessageModel",
    "Reject",
    "RetryLater",
    "Verdict",
    "call_safely",
    "unhandled",
    "verdict_of_error",
    "verdict_of_result",
]

BlockingHandler: TypeAlias = Callable[[Sequence[ReceivedMessage]], object]
Handler: TypeAlias = Callable[[Sequence[ReceivedMessage]], Awaitable[object] | object]
if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")
log = logging.getLogger("aerobee.client")

GIVEN_UP = -1
"""The delay level that stands for the dead letters."""
LEVEL_MAX = 18


class MessageModel(Enum):
    """Who gets a message: one member of the group, or each."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeResult(Enum):
    """What a handler may return; anything else, None included, means SUCCESS."""

    SUCCESS = "SUCCESS"
    LATER = "LATER"


class RetryLater(Exception):
    """Raised by a handler: these messages again, after the delay of a level.

    Levels are the broker's: normally 1s 5s 10s 30s 1m … 2h for 1 to 18. Level 0 leaves it to the
    broker, which waits longer each time. In order, `suspend` seconds count instead.
    """

    def __init__(self, level: int = 0, *, suspend: float | None = None) -> None:
        super().__init__(f"again later, delay level {level}")
        if not 0 <= level <= LEVEL_MAX:
            raise ConfigurationError(f"delay level {level}: 0 to {LEVEL_MAX}")
        self.level = level
        self.suspend = suspend


class Reject(Exception):
    """Raised by a handler: no further try, these messages are dead letters."""


class BatchFailed(Exception):
    """Raised by a handler of several messages: those at `indices` failed, the others are done."""

    def __init__(self, indices: Sequence[int], level: int = 0) -> None:
        super().__init__(f"{len(indices)} messages of the batch failed")
        self.indices = tuple(indices)
        self.level = RetryLater(level).level


@dataclass(frozen=True, slots=True)
class Verdict:
    """What failed of a batch, and what is to become of it."""

    level: int = 0
    indices: Sequence[int] | None = None
    """Which of the batch; None for all."""
    suspend_s: float | None = None
    error: Exception | None = None
    """What the handler raised, where that says nothing of what is to become of them."""

    @property
    def given_up(self) -> bool:
        """Whether there is to be no further try."""
        return self.level == GIVEN_UP

    def failed(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Those of the batch that are not done."""
        if self.indices is None:
            return list(messages)
        return [messages[n] for n in sorted(set(self.indices)) if -1 < n < len(messages)]


AGAIN = Verdict()
"""All of the batch, later each time."""


def verdict_of_result(result: object) -> Verdict | None:
    """What a handler that returned means; None for all done."""
    return AGAIN if result is ConsumeResult.LATER else None


def verdict_of_error(error: Exception) -> Verdict:
    """What a handler that raised means; an error of its own means what LATER means."""
    match error:
        case RetryLater():
            return Verdict(error.level, suspend_s=error.suspend)
        case Reject():
            return Verdict(GIVEN_UP)
        case BatchFailed():
            return Verdict(error.level, error.indices)
        case _:
            log.error("the handler failed, its messages come again", exc_info=error)
            return Verdict(error=error)


def unhandled(topic: str) -> Verdict:
    """What becomes of messages whose topic has no handler here: another member may have one."""
    log.error("no handler for topic %s: its messages come again", topic)
    return AGAIN


@dataclass(frozen=True, slots=True)
class Events:
    """Whom to tell which queues came and went."""

    on_assigned: Callable[[frozenset[MessageQueue]], object] | None
    on_revoked: Callable[[frozenset[MessageQueue]], object] | None

    def tell(self, before: frozenset[MessageQueue], after: frozenset[MessageQueue]) -> None:
        """What is held now, and was before."""
        for told, changed in (
            (self.on_revoked, before - after),
            (self.on_assigned, after - before),
        ):
            if told is not None and changed:
                call_safely(told, changed)


class Guarded:
    """Runs what a user wrote: `with Guarded() as guard`, and then `guard.error` is what it raised.

    The one border of the client at which an error of any kind ends; cancellation passes.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None


def call_safely(callback: Callable[[T], object], value: T) -> None:
    """Tell a user's callback something; what goes wrong in there is logged and ends nothing."""
    with Guarded() as guard:
        callback(value)
    if guard.error is not None:
        log.error("a callback failed", exc_info=guard.error)
