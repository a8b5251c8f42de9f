"""The check: open halves go round in their queue, and their producers are asked.

A half that its producer has not ended in time is put again at the end of the queue, and one of the
producers is asked; after so many times it goes where people find it. The queues hold all there is
to know: this service reads them at the start, and a Java broker goes on where it stopped. How far
both are done with are the offsets of a group, moved only when what they speak of is on disk.
Source: semantics §10.3 (TransactionalMessageServiceImpl).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from broker.errors import Refused
from broker.tables.drafts import draft_again
from broker.tables.half_messages import (
    GIVEN_UP_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    Half,
    Rules,
    Step,
    next_step,
    op_offsets,
    put_again,
)
from remoting.wire.headers.transaction import CheckTransactionState
from store.errors import RecordDamaged
from store.format.message_id import offset_id
from store.format.record import encode, records
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.config import BrokerConfig
    from broker.puts import Puts
    from broker.tables.clients import ClientConnection, ClientTable
    from broker.tables.consumer_offsets import ConsumerOffsetTable
    from broker.tables.topics import TopicTable
    from broker.tables.transactions import Transactions
    from store.files.disk import Clock
    from store.format.record import Record
    from store.message_store import MessageStore
    from store.results import GetResult, PutResult

__all__ = ["HalfMessages"]

READ_MAX: Final = 32
"""Records read, and halves looked at, before others get their turn."""
SAVE_S: Final = 5.0
"""Period in which it is noted how far both queues are done with."""
ROUND_S: Final = 60.0
"""How long one round of checks may take."""
LATE_MAX: Final = 10_000
"""Halves given up last that a late commit may still deliver after a start."""
CHANNEL_TRIES: Final = 3
HOUR_MS: Final = 3_600_000

log = structlog.stdlib.get_logger("aerobee.broker")


class HalfMessages:
    """The service. `transactions` is what it keeps up to date."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        puts: Puts,
        topics: TopicTable,
        clients: ClientTable,
        offsets: ConsumerOffsetTable,
        transactions: Transactions,
        clock: Clock,
        store_host: bytes,
    ) -> None:
        self._config = config
        self._store = store
        self._puts = puts
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._transactions = transactions
        self._clock = clock
        self._store_host = store_host
        self._saved = (0, 0)
        self._turn = 0
        self._unasked: dict[str, int] = {}
        """Producer group → halves of this round for which no producer was there."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Learn what is open; then check by the clock, and note how far both queues are done."""
        await self.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check_for_ever, trio.current_time())
            nursery.start_soon(self._save_for_ever)
            task_status.started()
        raise AssertionError("the tasks of this service never end by themselves")

    # -- the start -------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read both queues from where they are not done with. Raises: OSError.

        After a kill the offsets may lie behind, so that a half and its newer copy are both read:
        whatever has become of the copy, the older one is done with.
        """
        table = self._transactions
        table.position = self._done_with(HALF_TOPIC)
        table.op_position = self._done_with(OP_TOPIC)
        self._saved = table.progress()
        named: set[int] = set()
        async for record in self._records(OP_TOPIC, table.op_position):
            half_offsets = op_offsets(record.body)
            named.update(half_offsets)
            table.op_written(record.queue_offset, half_offsets)
        places: dict[int, int] = {}
        open_halves: dict[int, Half] = {}
        async for record in self._records(HALF_TOPIC, table.position):
            half, at = Half.of(record), record.queue_offset
            if half.was_moved and (older := places.get(half.key)) is not None:
                table.decided.add(older)
                open_halves.pop(older, None)
            places[half.key] = at
            if at in named or half.first_offset in named:
                table.decided.add(at)
            else:
                open_halves[at] = half._replace(record=record._replace(body=b""))
        for at, half in open_halves.items():
            table.began(half.topic, half.record.store_timestamp)
            if half.was_moved:
                table.remember_move(half.key, at)
        table.go_on(table.position)
        newest = self._store.max_offset(GIVEN_UP_TOPIC, 0)
        async for record in self._records(GIVEN_UP_TOPIC, max(0, newest - LATE_MAX)):
            table.remember_given_up(Half.of(record).key)

    def _done_with(self, topic: str) -> int:
        known = self._offsets.query(GROUP, topic, 0)
        return max(known, self._store.min_offset(topic, 0))

    # -- a round ---------------------------------------------------------------------------------

    async def _check_for_ever(self, began: float) -> NoReturn:
        while True:
            interval_s = self._config.broker.transaction_check_interval_ms / 1000
            await trio.sleep_until(began + interval_s)
            began = trio.current_time()
            try:
                await self.check()
            except OSError as error:
                log.warning("transaction.check_failed", error=str(error))

    async def check(self) -> None:
        """Go over the open halves once. Raises: OSError."""
        broker = self._config.broker
        table = self._transactions
        began = self._clock.monotonic()
        rules = Rules(
            end_offset=self._store.max_offset(HALF_TOPIC, 0),
            timeout_ms=broker.transaction_time_out_ms,
            checks_max=broker.transaction_check_max,
            reserved_ms=self._config.store.file_reserved_time_h * HOUR_MS,
        )
        while table.position < rules.end_offset and self._clock.monotonic() - began < ROUND_S:
            result = await self._read(HALF_TOPIC, table.position)
            if not result.count:
                if result.next_begin_offset <= table.position:
                    break
                table.go_on(result.next_begin_offset)
                continue
            more = self._slice(result, rules)
            self._puts.finish_round()
            if not more:
                break
            await trio.lowlevel.checkpoint()
        for group, halves in self._unasked.items():
            log.warning("transaction.no_producer", group=group, halves=halves)
        self._unasked.clear()

    def _slice(self, result: GetResult, rules: Rules) -> bool:
        """Look at halves that were read; whether those behind them are to be looked at."""
        table = self._transactions
        now_ms = self._clock.now_ms()
        for record in records(result.views):
            at = record.queue_offset
            if at < table.position or at in table.decided:
                continue
            if at > table.position:
                table.go_on(at)
            half = Half.of(record)
            step = next_step(half, now_ms, rules)
            if step is Step.STOP or not self._take(half, step, now_ms):
                return False
        return True

    def _take(self, half: Half, step: Step, now_ms: int) -> bool:
        """Do it; False when the store does not take the copy, and the half stays where it is."""
        # No await from here to the end: a half must not be ended between its copy and our knowing.
        if step is Step.GIVE_UP:
            self._topics.adopt(GIVEN_UP_TOPIC, 1, now_ms)
            result = self._put(half, GIVEN_UP_TOPIC, half.record.properties)
            if result.status is PutStatus.PUT_OK:
                self._transactions.give_up(half, now_ms)
            return result.status is PutStatus.PUT_OK
        properties = put_again(half, step)
        result = self._put(half, HALF_TOPIC, properties)
        if result.status is not PutStatus.PUT_OK:
            return False
        self._transactions.move(half, result.queue_offset)
        if step is Step.CHECK:
            self._ask(half, properties, result)
        return True

    def _put(self, half: Half, topic: str, properties: bytes) -> PutResult:
        return self._puts.put_as_is(draft_again(half.record, topic, 0, properties))

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, half: Half, properties: bytes, stored: PutResult) -> None:
        """CHECK_TRANSACTION_STATE to one producer of the group, one-way."""
        connection = self._channel(half.producer_group)
        if connection is None:
            group = half.producer_group
            self._unasked[group] = self._unasked.get(group, 0) + 1
            return
        where = stored.queue_offset, stored.physical_offset
        header = CheckTransactionState(
            topic=HALF_TOPIC,
            tran_state_table_offset=stored.queue_offset,
            commit_log_offset=stored.physical_offset,
            msg_id=half.transaction_id,
            transaction_id=half.transaction_id,
            offset_msg_id=offset_id(self._store_host, stored.physical_offset),
            broker_name=self._config.broker.broker_name,
        )
        draft = draft_again(half.record, half.topic, half.queue_id, properties)
        body = encode(draft, *where, stored.store_timestamp)
        connection.notify(header.code, header, body)

    def _channel(self, group: str) -> ClientConnection | None:
        """The members in turn; of three in a row the first that reads what it is sent."""
        members = list(self._clients.producers.get(group, {}).values())
        for _ in range(min(CHANNEL_TRIES, len(members))):
            self._turn += 1
            connection = members[self._turn % len(members)].connection
            if not connection.paused:
                return connection
        return None

    # -- how far ---------------------------------------------------------------------------------

    async def _save_for_ever(self) -> NoReturn:
        while True:
            await trio.sleep(SAVE_S)
            await self.save_progress()

    async def save_progress(self) -> None:
        """Move the offsets of the group, once what they leave behind is on disk.

        They are saved with those of all groups. The last time is before a clean stop: whoever opens
        the directory then finds no half whose newer copy it would have to tell from it.
        """
        try:
            await self._move_offsets()
        except (OSError, Refused) as error:
            log.warning("transaction.progress_not_saved", error=str(error))

    async def _move_offsets(self) -> None:
        progress = self._transactions.progress()
        if progress == self._noted():
            return
        await self._puts.durable()
        if progress < self._saved:
            return  # someone noted more while this waited
        now_ms = self._clock.now_ms()
        for topic, done in zip((HALF_TOPIC, OP_TOPIC), progress, strict=True):
            self._offsets.commit(GROUP, topic, 0, done, now_ms)
        self._saved = progress

    def _noted(self) -> tuple[int, ...]:
        """What the next start would read: also what a client has put there, to its harm."""
        return tuple(
            max(0, self._offsets.query(GROUP, topic, 0)) for topic in (HALF_TOPIC, OP_TOPIC)
        )

    # -- reading ---------------------------------------------------------------------------------

    async def _records(self, topic: str, queue_offset: int) -> AsyncIterator[Record]:
        """Whole records of queue 0 from there to its end as it is now. Raises: OSError."""
        end = self._store.max_offset(topic, 0)
        while queue_offset < end:
            result = await self._read(topic, queue_offset)
            following = result.next_begin_offset
            at = queue_offset
            try:
                for record in records(result.views):
                    yield record
                    at = record.queue_offset + 1
            except RecordDamaged as error:
                log.error(
                    "transaction.record_damaged", topic=topic, queue_offset=at, reason=str(error)
                )
                following = at + 1
            if following <= queue_offset:
                return
            queue_offset = following
            await trio.lowlevel.checkpoint()

    async def _read(self, topic: str, queue_offset: int) -> GetResult:
        return await self._store.complete(lambda: self._store.get(topic, 0, queue_offset, READ_MAX))
