"""Sends to topics with deduplication (`dedupe`).

It wraps the send processor only where there are rules. A repeated message is answered with the id
and the offset of the first, once that one is as durable as its own answer required; all others are
sent as usual, and recorded when stored. Halves of transactions are not deduplicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from msgspec.structs import replace

from aerobee.broker.core.targets import queue_id_of
from aerobee.broker.dedupe.dedupe import WAITING_TOPICS
from aerobee.broker.errors import Refused
from aerobee.remoting.server.routes import PARKED, Begun, finished, is_steps
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.send import SendMessageResponse
from aerobee.store.errors import MessageIllegal, NotInMemory
from aerobee.store.format.batch import batch_item_size, batch_items
from aerobee.store.format.message_id import offset_id
from aerobee.store.format.properties import decode
from aerobee.store.format.record import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.broker.config.load import BrokerConfig
    from aerobee.broker.core.puts import Puts
    from aerobee.broker.dedupe.dedupe import Dedupe
    from aerobee.broker.send.send import Send
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Later, Outcome, Plain
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.message_store import MessageStore

__all__ = ["DedupingSend"]

SUCCESS: Final = int(ResponseCode.SUCCESS)
ITEMS_MAX: Final = 1_024
"""Messages of one batch: it is looked up and stored in one step, so no equal one comes in
between."""
FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)


First: TypeAlias = "Record | int | None"
"""For a message of a batch: its stored first, or the index of its first in the batch; or None."""


class Item(NamedTuple):
    """One message of a batch: its bytes, and its key if it has one."""

    raw: bytes
    key: str | None


class DedupingSend:
    """The routes of `Send`, for brokers with rules."""

    def __init__(
        self, send: Send, dedupe: Dedupe, *, config: BrokerConfig, store: MessageStore, puts: Puts
    ) -> None:
        self._send = send
        self._dedupe = dedupe
        self._store = store
        self._puts = puts
        self._waits_for_disk = config.store.sync_flush
        self._region = config.broker.region_id
        self._options = config.broker

    def one(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store one message, or answer where it is stored."""
        if header.topic not in self._dedupe.topics:
            return self._send.one(header, command, connection)
        if header.batch:
            return self.batch(header, command, connection)
        properties = decode(header.properties or "")
        key = self._dedupe.key(header.topic, properties)
        if key is None or properties.get("TRAN_MSG", "").lower() == "true":
            return self._send.one(header, command, connection)
        return self._looked_up(lambda: self._one(header, command, connection, key))

    def batch(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store the messages of a batch that are not stored yet."""
        if header.topic not in self._dedupe.topics:
            return self._send.batch(header, command, connection)
        try:
            items = self._items(header.topic, command.body)
        except MessageIllegal:
            # The send processor will refuse it with the reason.
            return self._send.batch(header, command, connection)
        return self._looked_up(lambda: self._batch(header, command, connection, items))

    def _looked_up(self, call: Callable[[], Outcome]) -> Outcome:
        """The result of a call that looks up first messages; those on disk are waited for."""
        try:
            return call()
        except NotInMemory:
            return self._from_disk(call)

    async def _from_disk(self, call: Callable[[], Outcome]) -> Later:
        outcome = await self._store.complete(call)
        self._puts.finish_round()
        if isinstance(outcome, Begun):
            return await outcome.work
        assert outcome is None or outcome is PARKED or isinstance(outcome, Answer), outcome
        return outcome

    # ── One ──

    def _one(
        self,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Connection,
        key: str,
    ) -> Outcome:
        first = self._dedupe.find(header.topic, key)
        if first is not None:
            return self._repeated(header.topic, [first], command, connection)
        begins_at = self._store.commit_log.max_offset
        outcome = self._send.one(header, command, connection)
        self._dedupe.note_stored(begins_at)
        return outcome

    def _repeated(
        self, topic: str, firsts: list[Record], command: Command, connection: Connection
    ) -> Outcome:
        """Answer a send whose messages are all stored, as soon as they are durable."""
        self._dedupe.repeats[topic] += len(firsts)
        if command.oneway:
            return None
        response = SendMessageResponse(
            msg_id=",".join(map(_id, firsts)),
            queue_id=_queue_id(firsts[0]),
            queue_offset=firsts[0].queue_offset,
            transaction_id=decode(firsts[0].properties).get("UNIQ_KEY"),
            region=self._region,
            trace_on="true" if self._options.trace_on else "false",
        )
        if not self._waits_for_disk:
            return Answer(SUCCESS, response)

        def durable(on_disk: bool) -> None:
            code = SUCCESS if on_disk else FLUSH_DISK_TIMEOUT
            connection.answer(command, Answer(code, response))

        ends_at = max(first.physical_offset + first.size for first in firsts)
        self._store.when_durable(ends_at, durable)
        return PARKED

    # ── Batch ──

    def _items(self, topic: str, body: bytes | memoryview) -> list[Item]:
        """The messages of a batch. Raises: MessageIllegal."""
        items: list[Item] = []
        raw, at = bytes(body), 0
        for _, content, properties in batch_items(raw):
            if len(items) == ITEMS_MAX:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch to {topic}, which is deduplicated, may have {ITEMS_MAX} messages",
                )
            size = batch_item_size(len(content), len(properties))
            key = self._dedupe.key(topic, decode(properties))
            items.append(Item(raw[at : at + size], key))
            at += size
        return items

    def _batch(
        self,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Connection,
        items: list[Item],
    ) -> Outcome:
        firsts = self._firsts(header.topic, items)
        known = [first for first in firsts if isinstance(first, Record)]
        if known and len(known) == len(items):
            return self._repeated(header.topic, known, command, connection)
        begins_at = self._store.commit_log.max_offset
        new = [item.raw for item, first in zip(items, firsts, strict=True) if first is None]
        if len(new) == len(items):
            outcome: Outcome = at_once(self._send.batch(header, command, connection))
        else:
            self._dedupe.repeats[header.topic] += len(items) - len(new)
            outcome = self._rest(header, new, command, Merged(command, connection, firsts))
        self._dedupe.note_stored(begins_at)
        return outcome

    def _firsts(self, topic: str, items: list[Item]) -> list[First]:
        """For each message its first: the stored record, or the index in this batch, or None."""
        seen: dict[str, int] = {}
        firsts: list[First] = []
        for item in items:
            if item.key is None:
                firsts.append(None)
                continue
            twin = seen.setdefault(item.key, len(firsts))
            firsts.append(self._dedupe.find(topic, item.key) if twin == len(firsts) else twin)
        return firsts

    def _rest(
        self,
        header: SendMessage | SendMessageV2,
        new: list[bytes],
        command: Command,
        merged: Merged,
    ) -> Outcome:
        """Store the remaining messages of a batch; its answer covers all of the batch."""
        reduced = replace(command, body=b"".join(new))
        # The send processor uses only host and answer of a connection, and these it has.
        outcome = at_once(self._send.batch(header, reduced, cast("Connection", merged)))
        if isinstance(outcome, Answer):
            return merged.answer_for(outcome)
        if isinstance(outcome, Begun):
            return Begun(merged.soon(outcome.work))
        return outcome


class Merged:
    """Stands in for the connection: turns an answer about the new messages into one about the
    batch.
    """

    def __init__(self, command: Command, connection: Connection, firsts: list[First]) -> None:
        self._command = command
        self._connection = connection
        self._firsts = firsts
        self.host = connection.host
        self.context = connection.context

    def answer(self, command: Command, answer: Answer) -> None:
        """The answer to a parked request."""
        self._connection.answer(self._command, self.answer_for(answer))

    async def soon(self, work: Awaitable[Later]) -> Later:
        """Await the answer."""
        answer = await work
        return self.answer_for(answer) if isinstance(answer, Answer) else answer

    def answer_for(self, answer: Answer) -> Answer:
        """Ids in the order of the batch, the offset of its first message."""
        response = answer.header
        if not isinstance(response, SendMessageResponse):
            return answer
        new = iter(response.msg_id.split(","))
        ids: list[str] = []
        for first in self._firsts:
            if isinstance(first, Record):
                ids.append(_id(first))
            else:
                ids.append(next(new) if first is None else ids[first])
        response.msg_id = ",".join(ids)
        if isinstance(first := self._firsts[0], Record):
            response.queue_id, response.queue_offset = _queue_id(first), first.queue_offset
        return answer


def at_once(outcome: Outcome) -> Plain:
    """The outcome of a send that must end in this step: no other first message may come in
    between.
    """
    return finished(outcome) if is_steps(outcome) else outcome


def _id(record: Record) -> str:
    return offset_id(record.store_host, record.physical_offset)


def _queue_id(record: Record) -> int:
    """The queue that a message was sent to, also while it waits in another."""
    if record.topic not in WAITING_TOPICS:
        # Elsewhere the property is a client's own.
        return record.queue_id
    real = queue_id_of(decode(record.properties).get("REAL_QID"))
    return record.queue_id if real is None else real
