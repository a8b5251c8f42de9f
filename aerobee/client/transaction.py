"""The values of transactions: how one ends, and what a producer holds until then. No wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from aerobee.client.message import Message, ReceivedMessage

if TYPE_CHECKING:
    from aerobee.client.send_result import SendResult

__all__ = [
    "BlockingChecker",
    "BlockingExecutor",
    "Checker",
    "Executor",
    "Transaction",
    "TransactionResult",
    "TransactionState",
    "state_of",
]


class TransactionState(Enum):
    """What becomes of a half message. The values are those of END_TRANSACTION."""

    UNKNOWN = 0
    """Not decided yet: the broker will ask."""
    COMMIT = 8
    """Consumers get it."""
    ROLLBACK = 12
    """Nobody ever gets it."""


@dataclass(slots=True)
class Transaction:
    """A half message, stored and seen by nobody until its transaction ends.

    `state` is how it ends when its block is left without an exception.
    """

    message: Message
    result: SendResult
    state: TransactionState = TransactionState.COMMIT

    @property
    def transaction_id(self) -> str:
        """The same in every check of this transaction."""
        return self.result.transaction_id or self.result.message_id


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Where the half is stored, and how its transaction was ended by this client."""

    result: SendResult
    state: TransactionState

    @property
    def message_id(self) -> str:
        """As consumers will see it."""
        return self.result.message_id


BlockingChecker: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Says from what is stored, not from memory, how a transaction ended: any process may be asked."""
Checker: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
BlockingExecutor: TypeAlias = Callable[[Transaction], TransactionState]
Executor: TypeAlias = Callable[[Transaction], TransactionState | Awaitable[TransactionState]]


def state_of(said: object) -> TransactionState:
    """What a function of the user's decided: everything else but a state means UNKNOWN."""
    return said if isinstance(said, TransactionState) else TransactionState.UNKNOWN
