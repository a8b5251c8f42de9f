"""The check of open transactions: asks producers to commit or roll back.

A half without an end in time is put again at the end of the half queue, and one of its producers is
asked; after too many checks it is put into a topic for people to inspect. A half with a longer
immunity time, or one that the disk cannot read, stays where it is, and those behind it are checked
all the same. The queues hold the complete state: this service reads them at the start, and a Java
broker continues where it stopped. The progress in both is the offset of a group, which moves only
when what it refers to is on disk.
Source: semantics §10.3 (TransactionalMessageServiceImpl).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.core.drafts import draft_again
from aerobee.broker.core.unreadable import read_or_tell
from aerobee.broker.errors import CONTENT_ERRORS, Refusal
from aerobee.broker.transactions.half_messages import (
    Half,
    Rules,
    Step,
    given_up,
    next_step,
    op_draft,
    op_offsets,
    put_again,
)
from aerobee.remoting.wire.frame import MAX_FRAME_BYTES
from aerobee.remoting.wire.headers.transaction import CheckTransactionState
from aerobee.store.errors import RecordDamaged
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.record import encode
from aerobee.store.format.system_names import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    TRANSACTION_GROUP,
)
from aerobee.store.results import UNSTORABLE, Location, PutResult, PutStatus, location_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee.broker.consumers.clients import ClientConnection, ClientTable
    from aerobee.broker.consumers.consumer_offsets import ConsumerOffsetTable
    from aerobee.broker.core.core import Core
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.store.format.record import Record
    from aerobee.store.results import GetResult, PutOutcome

READ_MAX: Final = 32
"""Records read, and halves checked, before others get their turn."""
SAVE_S: Final = 5.0
"""Seconds between saves of the progress in both queues."""
READ_BYTES: Final = 1 << 20
HELD_BACK_MAX: Final = 100_000
"""Finished halves that are remembered behind an open one; beyond that the open one is put again at
the end, or set aside where the disk cannot read it."""
QUESTION_BYTES: Final = 512 << 10
"""The largest size of a check request beside its record."""
ROUND_S: Final = 60.0
"""How long one round of checks may take."""
LATE_MAX: Final = 10_000
"""The most records about halves given up, and their late ends, that a start reads."""
CHANNEL_TRIES: Final = 3
HOUR_MS: Final = 3_600_000
SERVICE: Final = "transactions"

log = structlog.stdlib.get_logger(__name__)


class HalfMessages:
    """The service. It keeps `transactions` up to date."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        clients: ClientTable,
        offsets: ConsumerOffsetTable,
        transactions: Transactions,
    ) -> None:
        self._config = core.config
        self._store = core.store
        self._puts = core.puts
        self._clock = core.clock
        self._store_host = core.store_host
        self._pace = core.pace()
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._transactions = transactions
        self._saved = (0, 0)
        self._turn = 0
        self.may_publish: Callable[[ClientConnection, str], bool] | None = None
        """Whether the accounts of a connection may send to a topic; None: all may."""
        self._settings_changed = trio.Event()
        self._unasked: dict[str, int] = {}
        """Producer group → halves of this round that found no producer to ask."""

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Load the open halves; then check periodically, and save the progress."""
        await self.load()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check_for_ever, trio.current_time())
            nursery.start_soon(self._save_for_ever)
            task_status.started()
        raise AssertionError("the tasks of this service never end by themselves")

    # ── The start ──

    async def load(self) -> None:
        """Read both queues from the saved progress. Raises: OSError.

        After a kill the offsets may be old, so that a half and its newer copy are both read:
        whatever happened to the copy, the older one is finished.
        """
        table = self._transactions
        table.known = False
        table.clear()
        table.position = self._done_with(HALF_TOPIC)
        table.op_position = self._done_with(OP_TOPIC)
        self._saved = table.progress()
        end = self._store.max_offset(HALF_TOPIC, 0)
        over = await self._load_given_up()
        named: set[int] = set()
        async for record in self._records(OP_TOPIC, table.op_position):
            half_offsets = [offset for offset in op_offsets(record.body) if offset < end]
            named.update(half_offsets)
            table.op_written(record.queue_offset, half_offsets)
        newest: dict[int, dict[int | None, int]] = {}
        """Likeness → first offset → newest offset of the open halves, in their order."""
        open_halves: dict[int, Half] = {}
        async for record in self._records(HALF_TOPIC, table.position):
            half, at = Half.of(record), record.queue_offset
            alike = newest.setdefault(half.likeness, {})
            # A copy without a first offset is of the oldest half: such copies keep the order.
            first = next(iter(alike), None) if half.half_offset is None else half.half_offset
            if half.was_moved and (older := alike.pop(first, None)) is not None:
                table.decided.add(older)
                open_halves.pop(older, None)
            if at in named or half.first_offset in named or half.key in over:
                table.decided.add(at)
            else:
                alike[half.half_offset] = at
                open_halves[at] = half._replace(record=record._replace(body=b""))
        for at, half in open_halves.items():
            table.began(half.topic, half.record.store_timestamp)
            if half.was_moved:
                table.remember_move(half.key, at)
        table.go_on(table.position)
        table.known = True

    async def _load_given_up(self) -> set[int]:
        """Read the halves that were given up last, and whether they have ended since.

        Returns: the keys of those whose first offset is known: their halves are finished.
        """
        table = self._transactions
        over: set[int] = set()
        end = self._store.max_offset(GIVEN_UP_TOPIC, 0)
        async for record in self._records(GIVEN_UP_TOPIC, max(0, end - LATE_MAX)):
            half = Half.of(record)
            if half.half_offset is not None:
                over.add(half.key)
            if half.late_end:
                table.given_up.pop(half.key, None)
            else:
                table.remember_given_up(half.key)
        return over

    def _done_with(self, topic: str) -> int:
        known = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return max(known, self._store.min_offset(topic, 0))

    # ── A round ──

    async def _check_for_ever(self, began: float) -> NoReturn:
        while True:
            await self._next_round(began)
            began = trio.current_time()
            try:
                await self.check()
            except OSError as error:
                log.warning("transaction.check_failed", error=str(error))

    async def _next_round(self, began: float) -> None:
        """Wait for transactionCheckInterval, which may change meanwhile."""
        while True:
            self._settings_changed = trio.Event()
            due = began + self._config.broker.transaction_check_interval_ms / 1000
            with trio.move_on_at(due):
                await self._settings_changed.wait()
                continue
            return

    def settings_changed(self) -> None:
        """Look again how long to wait for the next round."""
        self._settings_changed.set()

    async def check(self) -> None:
        """Check all open halves once. Raises: OSError."""
        broker = self._config.broker
        table = self._transactions
        began = self._clock.monotonic()
        rules = Rules(
            end_offset=self._store.max_offset(HALF_TOPIC, 0),
            timeout_ms=broker.transaction_time_out_ms,
            checks_max=broker.transaction_check_max,
            reserved_ms=self._config.store.file_reserved_time_h * HOUR_MS,
        )
        at: int | None = table.position
        self._pace.begin()
        while at is not None and self._clock.monotonic() - began < ROUND_S:
            at = table.next_open(at)
            if at >= rules.end_offset:
                break
            result = await self._read(HALF_TOPIC, at)
            at = self._pass(at) if result is None else self._slice(result, at, rules)
            self._puts.finish_round()
            await self._pace.rest()
        for group, halves in self._unasked.items():
            log.warning("transaction.no_producer", group=group, halves=halves)
        self._unasked.clear()

    def _pass(self, at: int) -> int:
        """Pass a half that the disk cannot read: it stays open, until too many behind it ended."""
        table = self._transactions
        if at == table.position and len(table.decided) > HELD_BACK_MAX:
            reason = "the disk cannot read it, and too many halves behind it have ended"
            self._store.aside.note(SERVICE, Location(HALF_TOPIC, 0, at, -1), reason)
            table.gone(at, at + 1)
        return at + 1

    def _slice(self, result: GetResult, at: int, rules: Rules) -> int | None:
        """Check the halves read from `at` on; returns where to continue, None: not in this
        round.
        """
        table = self._transactions
        now_ms = self._clock.now_ms()
        for record in self._store.aside.records(SERVICE, result, HALF_TOPIC, 0, at):
            if record.queue_offset > at:
                # The records in between were deleted or damaged.
                table.gone(at, record.queue_offset)
            at = record.queue_offset
            if at >= table.position and at not in table.decided:
                try:
                    more = self._look(Half.of(record), now_ms, rules)
                except CONTENT_ERRORS as error:
                    self._store.aside.take(SERVICE, location_of(record), error)
                    table.gone(at, at + 1)
                    more = True
                if not more:
                    return None
            at += 1
            if self._pace.over():
                return at
        if result.next_begin_offset > at:
            table.gone(at, result.next_begin_offset)
            return result.next_begin_offset
        return at if result.count else None

    def _look(self, half: Half, now_ms: int, rules: Rules) -> bool:
        """Check one half; whether those behind it are to be checked."""
        kept_ms = self._store.space.age_ms(half.record.born_timestamp)
        step = next_step(half, now_ms, rules, kept_ms)
        if step is Step.STOP:
            return False
        if step is Step.KEEP and not self._holds_back(half):
            return True
        # No await from here to the end: a half must not end between its copy and the record of it.
        if step is not Step.GIVE_UP:
            reason = self._cannot_go_on(half)
            if reason is None:
                status = self._put_again(half, step)
                if status not in UNSTORABLE:
                    return status is PutStatus.PUT_OK
            else:
                self._set_aside(half, reason)
        return self._give_up(half, now_ms)

    def _cannot_go_on(self, half: Half) -> str | None:
        """Why it makes no sense to ask its producer; None: it does."""
        if half.record.size + QUESTION_BYTES > MAX_FRAME_BYTES:
            return "no frame can carry the question about it"
        # Now, since a copy would look as if it had come after the deletion.
        return (
            f"{half.topic} was deleted" if self._puts.is_deleted(half.topic, half.record) else None
        )

    def _holds_back(self, half: Half) -> bool:
        """Whether it is the first open one, with too many finished ones behind it."""
        table = self._transactions
        first = half.record.queue_offset == table.position
        return first and len(table.decided) > HELD_BACK_MAX

    def _give_up(self, half: Half, now_ms: int) -> bool:
        """Put it into the topic for people to inspect; False when the store refuses puts now."""
        self._topics.adopt(GIVEN_UP_TOPIC, 1, now_ms)
        status = self._put(half, GIVEN_UP_TOPIC, given_up(half)).status
        if status in UNSTORABLE:
            # A Java broker took it without room for what we add.
            status = self._put(half, GIVEN_UP_TOPIC, half.record.properties).status
        if status in UNSTORABLE:
            self._set_aside(half, status.name if half.record.is_whole else "its body is damaged")
        elif status is not PutStatus.PUT_OK:
            return False
        self._note_end(half)
        self._transactions.give_up(half, now_ms)
        return True

    def _put_again(self, half: Half, step: Step) -> PutStatus:
        """Put it again at the end of the queue; ask its producer, when that is due."""
        properties = put_again(half, step)
        result = self._put(half, HALF_TOPIC, properties)
        if result.status is PutStatus.PUT_OK:
            self._note_end(half)
            self._transactions.move(half, result.queue_offset)
            if step is Step.CHECK:
                self._ask_soon(half, properties, result)
        return result.status

    def _put(self, half: Half, topic: str, properties: bytes) -> PutResult:
        try:
            draft = draft_again(half.record, topic, 0, properties)
        except RecordDamaged:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        return self._puts.put_again(draft)

    def _note_end(self, half: Half) -> None:
        """Write an op record for a half that was put again while an earlier half is still open.

        The copy is stored already: without the record, a start may check the half once more.
        """
        at = half.record.queue_offset
        if at > self._transactions.position:
            result = self._puts.put_again(op_draft(at, self._store_host, self._clock.now_ms()))
            if result.status is PutStatus.PUT_OK:
                self._transactions.op_written(result.queue_offset, (at,))

    def _set_aside(self, half: Half, reason: str) -> None:
        self._store.aside.note(SERVICE, location_of(half.record), reason)

    # ── Asking ──

    def _ask_soon(self, half: Half, properties: bytes, stored: PutResult) -> None:
        """Ask once the copy is what an answered send would be: the end of a copy that readers do
        not see yet is refused. The next round asks again where that cannot be.
        """

        def durable(kept: PutOutcome) -> None:
            if kept:
                self._ask(half, properties, stored)

        if not self._config.answers_wait:
            self._ask(half, properties, stored)
            return
        self._store.when_durable(self._store.commit_log.max_offset, durable)

    def _ask(self, half: Half, properties: bytes, stored: PutResult) -> None:
        """Send CHECK_TRANSACTION_STATE to one producer of the group, one-way."""
        connection = self._channel(half)
        if connection is None:
            group = half.producer_group
            self._unasked[group] = self._unasked.get(group, 0) + 1
            return
        where = stored.queue_offset, stored.physical_offset
        header = CheckTransactionState(
            # The client repeats it when it answers, and needs the right on it then.
            topic=half.topic,
            tran_state_table_offset=stored.queue_offset,
            commit_log_offset=stored.physical_offset,
            msg_id=half.transaction_id,
            transaction_id=half.transaction_id,
            offset_msg_id=offset_id(self._store_host, stored.physical_offset),
            broker_name=self._config.broker.broker_name,
        )
        assert half.target is not None, "one without is given up"
        draft = draft_again(half.record, *half.target, properties)
        body = encode(draft, *where, stored.store_timestamp)
        connection.notify(header.code, header, body)

    def _channel(self, half: Half) -> ClientConnection | None:
        """The next member in turn; of three in a row the first that reads its data.

        With access control it is one that may send to the topic: anybody may join the group.
        """
        members = list(self._clients.producers.get(half.producer_group, {}).values())
        if self.may_publish is not None:
            topic, allowed = half.topic, self.may_publish
            members = [member for member in members if allowed(member.connection, topic)]
        for _ in range(min(CHANNEL_TRIES, len(members))):
            self._turn += 1
            connection = members[self._turn % len(members)].connection
            if not connection.paused:
                return connection
        return None

    # ── How far ──

    async def _save_for_ever(self) -> NoReturn:
        while True:
            await trio.sleep(SAVE_S)
            await self.save_progress()

    async def save_progress(self) -> None:
        """Move the offsets of the group, once what they refer to is on disk.

        They are saved with those of all groups. The last time is before a clean stop, so that the
        next start finds no half together with its newer copy.
        """
        try:
            await self._move_offsets()
        except (OSError, Refusal) as error:
            log.warning("transaction.progress_not_saved", error=str(error))

    async def _move_offsets(self) -> None:
        progress = self._transactions.progress()
        if not self._transactions.known or progress == self._noted():
            return
        await self._puts.durable()
        if progress < self._saved:
            return  # someone noted more while this waited
        now_ms = self._clock.now_ms()
        for topic, done in zip((HALF_TOPIC, OP_TOPIC), progress, strict=True):
            self._offsets.commit_own(TRANSACTION_GROUP, topic, 0, done, now_ms)
        self._saved = progress

    def _noted(self) -> tuple[int, ...]:
        """The progress that the next start would read."""
        return tuple(
            max(0, self._offsets.query(TRANSACTION_GROUP, topic, 0))
            for topic in (HALF_TOPIC, OP_TOPIC)
        )

    # ── Reading ──

    async def _records(self, topic: str, queue_offset: int) -> AsyncIterator[Record]:
        """Whole records of queue 0 from there to its present end. Raises: OSError.

        A half that the disk cannot read stays open, and one with such an op record may be asked for
        once more.
        """
        end = self._store.max_offset(topic, 0)
        while queue_offset < end:
            result = await self._read(topic, queue_offset)
            if result is None:
                queue_offset += 1
                continue
            for record in self._store.aside.records(SERVICE, result, topic, 0, queue_offset):
                yield record
            if result.next_begin_offset <= queue_offset:
                return
            queue_offset = result.next_begin_offset
            await trio.lowlevel.checkpoint()

    async def _read(self, topic: str, queue_offset: int) -> GetResult | None:
        """Records from there on; None where the disk cannot read the first. Raises: OSError."""
        get = partial(self._store.get, topic, 0, queue_offset, max_bytes=READ_BYTES)
        first = Location(topic, 0, queue_offset, -1)
        return await read_or_tell(self._store, SERVICE, get, READ_MAX, first)
