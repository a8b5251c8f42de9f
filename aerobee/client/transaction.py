"""The values of transactions: states, half messages and results. It imports no wire code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from aerobee.client.callables import check_result
from aerobee.client.message import Message, ReceivedMessage

if TYPE_CHECKING:
    from aerobee.client.send_result import SendResult


class TransactionState(Enum):
    """The end of a transaction. The values are those of END_TRANSACTION."""

    UNKNOWN = 0
    """Not decided yet: the broker asks later."""
    COMMIT = 8
    """The message is delivered to consumers."""
    ROLLBACK = 12
    """The message is dropped."""


@dataclass(slots=True)
class Transaction:
    """A half message, which is stored but invisible to consumers until its transaction ends.

    `state` is the end of the transaction when its block is left without an exception.
    """

    message: Message
    result: SendResult
    state: TransactionState = TransactionState.COMMIT

    @property
    def transaction_id(self) -> str:
        """The id of the transaction, the same in all its checks."""
        return self.result.transaction_id or self.result.message_id


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The send result of the half message, and the state with which the client ended it."""

    result: SendResult
    state: TransactionState

    @property
    def message_id(self) -> str:
        """The message id, as consumers will see it."""
        return self.result.message_id


BlockingChecker: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Decides from stored data, not from memory, how a transaction ended: it runs in any process."""
Checker: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
BlockingExecutor: TypeAlias = Callable[[Transaction], TransactionState]
Executor: TypeAlias = Callable[[Transaction], TransactionState | Awaitable[TransactionState]]


def state_of(outcome: object) -> TransactionState:
    """The state that a user's function returned: any other value means UNKNOWN.

    Raises: TypeError for a result that somebody would have to await or iterate first.
    """
    check_result("the checker or local transaction", outcome)
    return outcome if isinstance(outcome, TransactionState) else TransactionState.UNKNOWN
