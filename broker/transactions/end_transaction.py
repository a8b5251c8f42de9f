"""END_TRANSACTION: commit or roll back a half.

The first end of a transaction counts: a second one is answered as done, and nothing is stored. An
answer means that the end is as durable as an answered send. Source: semantics §10.2
(EndTransactionProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.answers import first_put_refused, kept_answer
from aerobee.broker.core.drafts import draft_again
from aerobee.broker.errors import Refusal
from aerobee.broker.transactions.half_messages import Half, late_end, op_draft
from aerobee.remoting.server.routes import HELD
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import ONEWAY
from aerobee.store.errors import RecordDamaged
from aerobee.store.format.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from aerobee.store.format.system_names import HALF_TOPIC
from aerobee.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from aerobee.broker.core.core import Core
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.routes import Later, Outcome
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.transaction import EndTransaction
    from aerobee.store.results import PutOutcome

    MayEnd: TypeAlias = Callable[[Caller, str], bool]

UNKNOWN: Final = 0
DONE: Final = Answer()
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
NOT_KNOWN: Final = (
    "the broker has just become the master, and still reads which transactions are open: end it"
    " again"
)


class TransactionProcessor:
    """Code 37."""

    def __init__(self, core: Core, transactions: Transactions) -> None:
        self._config = core.config
        self._store = core.store
        self._puts = core.puts
        self._stats = core.stats
        self._clock = core.clock
        self._store_host = core.store_host
        self._transactions = transactions
        self._waits = core.config.answers_wait
        self.may_end: MayEnd | None = None
        """Whether who sent a request over this connection may end halves of a topic; None: all may.
        """

    def end(self, header: EndTransaction, command: Command, connection: Caller) -> Outcome:
        """Commit or roll back; a producer that reports "unknown" gets no answer."""
        wanted = header.commit_or_rollback
        if wanted == UNKNOWN:
            return None
        if wanted not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise Refusal(SYSTEM_ERROR, f"the commitOrRollback field wrong: {wanted}")
        half = self._store.reading(lambda: self._half(header))
        if isinstance(half, Half):
            return self._end(half, header, command, connection)
        return self._end_later(half, header, command, connection)

    async def _end_later(
        self,
        reading: Awaitable[Half],
        header: EndTransaction,
        command: Command,
        connection: Caller,
    ) -> Later:
        outcome = self._end(await reading, header, command, connection)
        self._puts.finish_round()
        return outcome

    # ── Checks ──

    def _half(self, header: EndTransaction) -> Half:
        """The half of a request. Raises: Refusal, NotInMemory, OSError."""
        record = self._store.message(header.commit_log_offset)
        if record is None or record.topic != HALF_TOPIC or record.queue_id:
            raise Refusal(SYSTEM_ERROR, "Find prepared transaction message failed")
        return Half.of(record)

    def _check(self, half: Half, header: EndTransaction, connection: Caller) -> None:
        """Checks 2 and 3, in their order. Raises: Refusal.

        Old clients name no topic, and where a half is can be guessed: the right that counts is that
        on the half's own topic. Without it there is no such half.
        """
        if self.may_end is not None and not self.may_end(connection, half.topic):
            raise Refusal(SYSTEM_ERROR, "Find prepared transaction message failed")
        timeout_ms = self._config.broker.transaction_time_out_ms
        immunity_ms = half.immunity_ms(timeout_ms)
        if immunity_ms is not None and not header.from_transaction_check:
            age_ms = self._clock.now_ms() - half.record.born_timestamp
            limit_ms = max(immunity_ms, timeout_ms)
            if age_ms > limit_ms:
                raise Refusal(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"the transaction is {age_ms} ms old, its producer could end it for {limit_ms}"
                    " ms and is asked from now on",
                )
        if half.producer_group != header.producer_group:
            raise Refusal(SYSTEM_ERROR, "The producer group wrong")
        if half.record.queue_offset != header.tran_state_table_offset:
            raise Refusal(SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.record.physical_offset != header.commit_log_offset:
            raise Refusal(SYSTEM_ERROR, "The commit log offset wrong")

    # ── Effects ──

    def _end(
        self, half: Half, header: EndTransaction, command: Command, connection: Caller
    ) -> Later:
        """Check, and end the half if it is open. No await: it stays open until then."""
        if not self._transactions.known:
            raise Refusal(ResponseCode.SYSTEM_BUSY, NOT_KNOWN)
        self._check(half, header, connection)
        at = self._transactions.newest(half)
        if at is not None:
            self._decide(half, at, commit=header.commit_or_rollback == TRANSACTION_COMMIT)
        if command.flag & ONEWAY or not self._waits:
            return DONE

        def durable(kept: PutOutcome) -> None:
            connection.answer(command, DONE if kept else kept_answer(kept))

        self._store.when_durable(self._store.commit_log.max_offset, durable)
        return HELD

    def _decide(self, half: Half, at: int, *, commit: bool) -> None:
        """End the half whose newest copy is at `at`. Raises: Refusal; it is open then."""
        now_ms = self._clock.now_ms()
        counters = self._stats.transaction(half.topic)
        if commit:
            self._commit(half)
            counters.commits += 1
            counters.latency.add(max(0, now_ms - half.record.born_timestamp) / 1000)
        is_open = self._transactions.is_open(at)
        result = self._puts.put_as_is(
            op_draft(at, self._store_host, now_ms) if is_open else late_end(half, commit=commit)
        )
        if result.status is not PutStatus.PUT_OK:
            if not commit:
                raise first_put_refused(result.status, self._store)
            # A commit is final. Without the op record, a start before the next check asks the
            # producer again: it may deliver twice, as may a kill in between.
        elif is_open:
            self._transactions.op_written(result.queue_offset, (at,))
        if not commit:
            counters.rollbacks += 1
        self._transactions.decide(half, at, now_ms)

    def _commit(self, half: Half) -> None:
        """Store the message in its target. Raises: Refusal, and nothing is stored."""
        if half.target is None:
            raise Refusal(SYSTEM_ERROR, "the half message does not say where it goes")
        if self._puts.is_deleted(half.topic, half.record):
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"the topic[{half.topic}] was deleted after the half message was sent: create it "
                "to commit the transaction, or roll back",
            )
        topic, queue_id = half.target
        try:
            draft = draft_again(half.record, topic, self._puts.queue_now(topic, queue_id), b"")
        except RecordDamaged as error:
            raise Refusal(SYSTEM_ERROR, str(error)) from error
        status = self._puts.put(draft, half.commit(draft), accepted=True).status
        if status is not PutStatus.PUT_OK:
            raise first_put_refused(status, self._store)
