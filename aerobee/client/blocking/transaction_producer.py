"""The blocking transaction producer. Decisions are in `steps.transactions`.

Generated from `aio/transaction_producer.py`: change that one, and then run
`python -m tests.blocking_front --write`.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from aerobee.client.blocking.calls import call, call_in_worker
from aerobee.client.blocking.producer import Producer
from aerobee.client.callables import check_function
from aerobee.client.steps.transactions import Transactions
from aerobee.client.transaction import TransactionResult, TransactionState, state_of
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.client.blocking.client import Client
    from aerobee.client.message import Message
    from aerobee.client.settings.producer import ProducerOptions
    from aerobee.client.transaction import BlockingChecker, BlockingExecutor, Transaction

log = logging.getLogger("aerobee.client")
JOIN_S = 2.0
"""How long a close waits for a running checker where that runs in a thread."""


class TransactionProducer(Producer):
    """Sends messages that consumers get only if your local transaction commits.

    Brokers ask `checker` about transactions whose end they do not know, including those of other
    and earlier processes of the group: it decides from stored data. It is called in a thread of its
    own, one call at a time.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        checker: BlockingChecker,
        client: Client | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        check_function("checker", checker)
        super().__init__(namesrv, client=client, **options)
        self._checker = checker
        self._transactions = Transactions(self._sender)

    def _begin(self) -> None:
        self._start_worker("transaction checks", self._answer_checks)
        self._transactions.begin()
        self._begin_tracing()

    def _leave(self) -> None:
        try:
            self._client.perform(self._transactions.close())
        finally:
            self._join_workers(JOIN_S)

    def _let_go(self) -> None:
        self._transactions.let_go()

    @contextmanager
    def transaction(
        self,
        message: Message,
        *,
        timeout: float | None = None,
    ) -> Iterator[Transaction]:
        """A context manager whose block is the local transaction of a message.

        After a normal exit the transaction ends with its `state`: COMMIT by default. An exception
        rolls it back; after Ctrl-C the broker asks later. Raises: TransactionError and as `send`
        before the block is entered.
        """
        half = self._perform(self._transactions.open(message, timeout))
        try:
            yield half
        except Exception:
            self._client.perform(self._transactions.end(half, TransactionState.ROLLBACK))
            raise
        self._client.perform(self._transactions.end(half, half.state))

    def send_in_transaction(
        self,
        message: Message,
        execute: BlockingExecutor,
        *,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Send a half message, run `execute`, and end the transaction with the state it returns.

        Any other value means UNKNOWN: the broker asks later. An exception means UNKNOWN too, and
        is raised here. Raises: TransactionError and as `send`, with nothing executed.
        """
        check_function("execute", execute)
        half = self._perform(self._transactions.open(message, timeout))
        state = TransactionState.UNKNOWN
        try:
            state = state_of(call(execute, half))
        finally:
            self._client.perform(self._transactions.end(half, state))
        return TransactionResult(half.result, state)

    def _answer_checks(self) -> None:
        """Answer the transaction checks of brokers, one after the other, until the end."""
        while check := self._client.perform(self._transactions.next_check()):
            state = TransactionState.UNKNOWN
            with Border() as border:
                state = state_of(call_in_worker(self._checker, check.message))
            if border.error is not None:
                log.error("the transaction checker failed", exc_info=border.error)
            self._client.perform(self._transactions.answer(check, state))
