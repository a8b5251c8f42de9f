"""The decisions of transactions: half messages, their ends, and the checks of brokers.

    open → half stored → (the local transaction) → end, one-way
    CHECK_TRANSACTION_STATE → queue → (the checker) → answer, one-way, to that broker

Invariant: a lost end loses nothing, because the broker checks later; so a failure to send it is no
error. Source: client §7.1, §7.2 (DefaultMQProducerImpl), semantics §10.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aerobee.client.namespaces import plain, wrapped
from aerobee.client.steps.effects import Ask, Wait
from aerobee.client.steps.messages import readable
from aerobee.client.steps.questions import Check, Checks
from aerobee.client.transaction import Transaction, TransactionState
from aerobee.errors import AerobeeError, ConfigurationError, TransactionError
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.transaction import CheckTransactionState, EndTransaction
from aerobee.store.format.message_id import read_offset_id

if TYPE_CHECKING:
    from aerobee.client.message import Message
    from aerobee.client.send_result import MessageQueue, SendResult
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.instance import Instance
    from aerobee.client.steps.sending import Sender
    from aerobee.remoting.wire.command import Command

log = logging.getLogger("aerobee.client")

GROUP = "PGROUP"
IDLE_S = 3600.0


@dataclass(slots=True)
class Transactions:
    """The transactions of one producer group."""

    sender: Sender
    checks: Checks = field(default_factory=Checks)

    def begin(self) -> None:
        """Register with the client, and with all brokers: they may have older half messages.

        Raises: ConfigurationError for a second producer of the group.
        """
        instance = self.sender.instance
        self.sender.begin()
        instance.checks[self.sender.config.group] = self.checks
        code = RequestCode.CHECK_TRANSACTION_STATE
        instance.services[code] = partial(serve_check, instance)
        instance.be_known_everywhere()

    def close(self) -> Steps[None]:
        """Stop answering checks, and unregister from the brokers."""
        self._answer_no_more()
        yield from self.sender.close()

    def let_go(self) -> None:
        """Answer no further checks, though the close was cut off."""
        self._answer_no_more()
        self.sender.let_go()

    def _answer_no_more(self) -> None:
        self.checks.close()
        group, checks = self.sender.config.group, self.sender.instance.checks
        if checks.get(group) is self.checks:
            del checks[group]

    def open(self, message: Message, timeout_s: float | None) -> Steps[Transaction]:
        """Store a half message.

        Raises: TransactionError if it is less durable than the broker is configured; then it is
        rolled back. Else as `Sender.send`.
        """
        if message.delayed:
            raise ConfigurationError(
                "a message in a transaction is delivered when that commits: it has no delay"
            )
        if message.priority is not None:
            raise ConfigurationError("a message in a transaction has no priority")
        group = wrapped(self.sender.config.group, self.sender.instance.config.namespace)
        extra = {"TRAN_MSG": "true", GROUP: group}
        half = self.sender.batch_of(message, extra, prepared=True)
        (result,) = yield from self.sender.deliver(half, timeout_s)
        transaction = Transaction(message, result)
        if not result.ok:
            yield from self.end(transaction, TransactionState.ROLLBACK)
            raise TransactionError(
                f"the half of message {result.message_id} is stored as {result.status.name} only; "
                "it is rolled back"
            ).about(topic=message.topic, broker=result.queue.broker_name)
        # Check the id before the local transaction runs: without it the end cannot be sent.
        commit_log_offset(result)
        return transaction

    def end(self, transaction: Transaction, state: TransactionState) -> Steps[None]:
        """Send the end of a transaction to its broker."""
        transaction.state = state
        result = transaction.result
        header = EndTransaction(
            topic=transaction.message.topic,
            producer_group=self.sender.config.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=commit_log_offset(result),
            commit_or_rollback=state.value,
            from_transaction_check=False,
            msg_id=result.message_id,
            transaction_id=transaction.transaction_id,
        )
        address = yield from self._tell_broker(result.queue, header)
        if address is not None and self.sender.traces:
            self.sender.traces.ended(transaction.message, header, address, state)

    def _tell_broker(self, queue: MessageQueue, header: EndTransaction) -> Steps[str | None]:
        """Send an end to the master of a broker, which may have moved; returns its address."""
        instance = self.sender.instance
        try:
            yield from instance.locate(queue, instance.config.request_timeout)
            address = instance.master(queue.broker_name)
            if not (yield from self._tell(address, header)):
                yield from instance.fetch_route(queue.topic, instance.config.request_timeout)
                if instance.master(queue.broker_name) != address:
                    address = instance.master(queue.broker_name)
                    yield from self._tell(address, header)
        except AerobeeError as error:
            log.warning("the end of transaction %s is not told: %s", header.msg_id, error)
            return None
        return address

    def next_check(self) -> Steps[Check | None]:
        """The next check of a broker, as soon as there is one; None after the close."""
        while not self.checks.closed:
            check = self.checks.take()
            if check is not None:
                return check
            yield Wait(self.checks.arrived, IDLE_S)
        return None

    def answer(self, check: Check, state: TransactionState) -> Steps[None]:
        """Answer a check with the state of the transaction."""
        question = check.header
        header = EndTransaction(
            topic=check.message.topic,
            producer_group=self.sender.config.group,
            tran_state_table_offset=question.tran_state_table_offset,
            commit_log_offset=question.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=check.message.message_id,
            transaction_id=question.transaction_id,
        )
        yield from self._tell(check.address, header)
        if self.sender.traces:
            self.sender.traces.ended(check.message, header, check.address, state)

    def _tell(self, address: str, header: EndTransaction) -> Steps[bool]:
        """Send an end to an address; returns whether it was sent."""
        timeout_s = self.sender.instance.config.request_timeout
        try:
            yield Ask(address=address, header=header, timeout_s=timeout_s, oneway=True)
        except AerobeeError as error:
            log.warning("the end of transaction %s is not told: %s", header.msg_id, error)
            return False
        return True


def commit_log_offset(result: SendResult) -> int:
    """The physical offset of the half message. Raises: TransactionError if it is unknown."""
    try:
        return read_offset_id(result.offset_message_id)[1]
    except ValueError as error:
        raise TransactionError(f"the broker did not say where the half lies: {error}") from error


def serve_check(instance: Instance, request: Command, address: str) -> int:
    """Add a broker's check to those of its producer group."""
    header = request.header(CheckTransactionState)
    namespace = instance.config.namespace
    try:
        message = readable(request.body, header.broker_name or address, namespace)
    except AerobeeError as error:
        log.warning("broker %s asks about a transaction that cannot be read: %s", address, error)
        return ResponseCode.SYSTEM_ERROR
    checks = instance.checks.get(plain(message.properties.get(GROUP, ""), namespace))
    if checks is None:
        log.warning("broker %s asks about a transaction of another group", address)
        return ResponseCode.SYSTEM_ERROR
    checks.put(Check(message, header, address))
    return ResponseCode.SUCCESS
