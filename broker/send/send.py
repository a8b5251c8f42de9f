"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: request → checked message → store → answer.

Clients and their tests depend on the order of checks. Delayed messages go through the hooks. A half
message is redirected here and not by a hook: only a send can be one, a commit or a retry with the
same properties is not. Source: SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from aerobee.broker.answers import KEPT_CODES, first_put_refused
from aerobee.broker.core.drafts import BROKER_BITS
from aerobee.broker.counters.broker_stats import DELAY, NORMAL, TRANSACTION
from aerobee.broker.delay.delay_levels import level_of
from aerobee.broker.errors import NoPermission, Refusal
from aerobee.broker.send.dead_letters import never_delayed
from aerobee.broker.send.stages import SendStages
from aerobee.broker.timers.timer_properties import ASKS_FOR_TIME, START_DELIVER_TIME, handle_of
from aerobee.broker.transactions.half_messages import HALF_PROPERTIES_MAX, half_of, is_half
from aerobee.remoting.server.routes import HELD, Begun
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.send import SendMessageRefused, SendMessageResponse
from aerobee.store.format.message_id import offset_id, offset_ids
from aerobee.store.format.properties import append, decode, encode
from aerobee.store.format.record import TRANSACTION_PREPARED, MessageDraft
from aerobee.store.format.system_names import RETRY_PREFIX, WHEEL_TOPIC
from aerobee.store.format.tags import tags_code
from aerobee.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.core.core import Core
    from aerobee.broker.dedupe.dedupe import Dedupe
    from aerobee.broker.saved.save import SavedTable
    from aerobee.broker.send.dead_letters import DeadLetters
    from aerobee.broker.send.destinations import Destinations
    from aerobee.broker.transactions.open_transactions import Transactions
    from aerobee.remoting.server.connection import Connection
    from aerobee.remoting.server.routes import Outcome, Plain, Steps
    from aerobee.remoting.wire.bodies.topic import TopicConfig
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers.send import SendMessage, SendMessageV2
    from aerobee.store.results import PutOutcome, PutResult

REGION_FIELDS: Final = frozenset({"CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK"})
"""Properties that the broker sets itself; those of a client are dropped."""

HOOKED: Final = ASKS_FOR_TIME | {"DELAY", START_DELIVER_TIME}
"""Properties that send a message through the hooks."""

NOT_PLAIN: Final = REGION_FIELDS | HOOKED | {"TRAN_MSG"}
"""Properties of which a send has to be looked at by itself."""
TRANSACTION_BITS: Final = 0x0C
MESSAGE_ILLEGAL: Final = int(ResponseCode.MESSAGE_ILLEGAL)
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
SUCCESS: Final = int(ResponseCode.SUCCESS)
SHORT_BATCH_BYTES: Final = 64 << 10
"""A batch up to this size is stored in one step."""
IDS_STEP: Final = 2_000
"""Ids of stored messages that are formatted in one step."""
GROUP_MARK: Final = "%"
"""The first character of topics that belong to a group."""


class Send:
    """The send processor. `one` and `batch` are its routes."""

    def __init__(
        self,
        core: Core,
        *,
        destinations: Destinations,
        topic_file: SavedTable,
        new_unique_key: Callable[[], str],
        transactions: Transactions,
        dead_letters: DeadLetters,
        dedupe: Dedupe | None = None,
    ) -> None:
        self._config = core.config
        self._store = core.store
        self._puts = core.puts
        self._stats = core.stats
        latencies = core.rounds.reactor.stats.latencies
        self.stages = SendStages(core.stats.send_stages, latencies, core.clock.monotonic)
        self._store_host = core.store_host
        self._destinations = destinations
        self._topic_file = topic_file
        self._new_unique_key = new_unique_key
        self._transactions = transactions
        self._dead_letters = dead_letters
        self._deduped = {} if dedupe is None else dict.fromkeys(dedupe.topics, dedupe)
        self._waits = core.config.answers_wait
        self.settings_changed()

    def settings_changed(self) -> None:
        """Derive from the settings what is added to each message and answer."""
        broker = self._config.broker
        self.region = broker.region_id
        self.trace_on = "true" if broker.trace_on else "false"
        self._region_fields = SendMessageRefused(self.region, self.trace_on)
        self.added = (
            f"CLUSTER\x01{broker.broker_cluster_name}\x02"
            f"MSG_REGION\x01{self.region}\x02TRACE_ON\x01{self.trace_on}\x02"
        )

    def one(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store one message (codes 10 and 310)."""
        if header.batch:
            return self.batch(header, command, connection)
        try:
            topic = self._destinations.topic(header)
            queue_id = self._destinations.queue_id(header, topic)
            if not command.body:
                raise Refusal(MESSAGE_ILLEGAL, "the message body is empty")
            text = header.properties or ""
            properties = decode(text)
            if topic.attributes and _wants_keys(topic) and "KEYS" not in properties:
                raise Refusal(MESSAGE_ILLEGAL, "a message to a compacted topic must have KEYS")
            looked_at = header.sys_flag & TRANSACTION_BITS or not NOT_PLAIN.isdisjoint(properties)
            half = looked_at and self._asks_for_half(header, properties)
            if looked_at:
                text = _without(properties, REGION_FIELDS)
            unique = properties.get("UNIQ_KEY")
            if unique is None:
                unique = self._new_unique_key()
                text = append(text, f"UNIQ_KEY\x01{unique}\x02")
            draft = self._draft(header, command, connection, queue_id)
            if header.topic[0] == GROUP_MARK and self._dead_letters.take(
                draft, properties, header, command
            ):
                text = never_delayed(text, self.added)
            text = append(text, self.added)
            kind, handle = NORMAL, None
            if half:
                kind = TRANSACTION
                result = self._put_half(draft, decode(text))
            elif looked_at and not HOOKED.isdisjoint(properties):
                kind = DELAY
                turned = decode(text)
                result = self._puts.put(draft, turned)
                if draft.topic == WHEEL_TOPIC:
                    handle = handle_of(turned, self._config.broker.broker_name)
            else:
                draft.properties = text.encode()
                result = self._put_plain(draft, properties, topic)
                queue_id = draft.queue_id
        except Refusal as refused:
            raise self._with_region(refused) from None
        waits = self._waits and properties.get("WAIT", "true").lower() == "true"
        return self._answer(
            result,
            draft,
            queue_id,
            unique,
            command,
            connection,
            kind=kind,
            handle=handle,
            waits=waits,
        )

    def batch(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store each message of a batch (code 320, or the batch flag under another code)."""
        dedupe = self._deduped.get(header.topic)
        if dedupe is None and len(command.body) > SHORT_BATCH_BYTES:
            return self._long_batch(header, command, connection)
        draft, topic, waits = self._batch_draft(header, command, connection)
        if dedupe is None:
            result = self._store.put_batch(draft, command.body)
        else:
            try:
                result = dedupe.put_batch(draft, command.body, topic.read_queue_nums)
            except Refusal as refused:
                raise self._with_region(refused) from None
        return self._answer(result, draft, draft.queue_id, None, command, connection, waits=waits)

    def _long_batch(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Steps:
        draft, _, waits = self._batch_draft(header, command, connection)
        result = yield from self._store.writer.put_batch_in_steps(
            draft,
            command.body,
            # Looked up when it is called: few batches meet a segment that is late.
            lambda: connection.postpone(),
        )
        ids: list[str] = []
        for begin in range(0, len(result.offsets), IDS_STEP):
            yield
            ids.append(offset_ids(self._store_host, result.offsets[begin : begin + IDS_STEP]))
        msg_ids = ",".join(ids)
        return self._answer(
            result, draft, draft.queue_id, None, command, connection, msg_ids=msg_ids, waits=waits
        )

    def _batch_draft(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> tuple[MessageDraft, TopicConfig, bool]:
        """The common fields of a batch's messages, its topic, and whether its answer waits for
        the disk.

        Each message is stored with its own properties as they came. Those that ask a broker for a
        delay or a transaction have no effect there, as in the Java broker: a forwarder sends
        committed messages with the property TRAN_MSG.
        """
        try:
            topic = self._destinations.topic(header)
            queue_id = self._destinations.queue_id(header, topic)
            properties = decode(header.properties or "")
            _refuse_in_batch(header, properties)
        except Refusal as refused:
            raise self._with_region(refused) from None
        waits = self._waits and properties.get("WAIT", "true").lower() == "true"
        return self._draft(header, command, connection, queue_id), topic, waits

    # ── Halves ──

    def _asks_for_half(
        self, header: SendMessage | SendMessageV2, properties: dict[str, str]
    ) -> bool:
        """Whether this begins a transaction. Raises: Refusal when it may not."""
        if not is_half(properties, header.reconsume_times or 0):
            if header.sys_flag & TRANSACTION_PREPARED:
                # Stored as an ordinary message, it would be acknowledged and never delivered.
                raise Refusal(MESSAGE_ILLEGAL, "a half message must have the property TRAN_MSG")
            return False
        if self._config.broker.reject_transaction_message:
            host = self._config.broker.broker_ip1
            raise NoPermission(f"the broker[{host}] sending transaction message is forbidden")
        return True

    def _put_half(self, draft: MessageDraft, properties: dict[str, str]) -> PutResult:
        draft.sys_flag &= ~TRANSACTION_BITS
        self._puts.validate(draft, properties)
        topic = draft.topic
        half_of(draft, properties)
        if len(draft.properties) > HALF_PROPERTIES_MAX:
            raise Refusal(
                MESSAGE_ILLEGAL,
                f"the half message has {len(draft.properties)} bytes of properties, "
                f"{HALF_PROPERTIES_MAX} leave room for its checks",
            )
        result = self._puts.put_as_is(draft)
        if result.status is PutStatus.PUT_OK:
            self._transactions.began(topic, result.store_timestamp)
        return result

    # ── Effects ──

    def _put_plain(
        self, draft: MessageDraft, properties: dict[str, str], topic: TopicConfig
    ) -> PutResult:
        """Store a message in its own queue, or find the first one that it repeats."""
        draft.tags_code = tags_code(properties.get("TAGS"))
        dedupe = self._deduped.get(draft.topic)
        if dedupe is None:
            return self._store.put(draft)
        return dedupe.put(draft, properties, topic.read_queue_nums)

    def _draft(
        self,
        header: SendMessage | SendMessageV2,
        command: Command,
        connection: Connection,
        queue_id: int,
    ) -> MessageDraft:
        return MessageDraft(
            header.topic,
            queue_id,
            command.body,
            b"",
            connection.host,
            self._store_host,
            header.flag,
            header.sys_flag & ~BROKER_BITS,
            header.born_timestamp,
            header.reconsume_times or 0,
        )

    def _answer(
        self,
        result: PutResult,
        draft: MessageDraft,
        queue_id: int,
        unique: str | None,
        command: Command,
        connection: Connection,
        *,
        kind: str = NORMAL,
        handle: str | None = None,
        msg_ids: str | None = None,
        waits: bool,
    ) -> Plain:
        status = result.status
        if status is not PutStatus.PUT_OK:
            raise self._with_region(first_put_refused(status, self._store))
        self._stats.topic_in(draft.topic, kind).put(result.count, result.size)
        if command.oneway:
            return None
        response = SendMessageResponse(
            msg_id=msg_ids or self._message_ids(result),
            queue_id=queue_id,
            queue_offset=result.queue_offset,
            transaction_id=unique,
            recall_handle=handle,
            region=self.region,
            trace_on=self.trace_on,
        )
        if not self._topic_file.clean:
            return Begun(self._after_save(result, response, waits=waits))
        stages = self.stages
        if not waits:
            if stages.idle:
                stages.appended(command.arrived, connection.context.now)
            return Answer(SUCCESS, response)

        def durable(kept: PutOutcome) -> None:
            connection.answer(command, Answer(KEPT_CODES[kept], response))

        call: Callable[[PutOutcome], None] = durable
        if stages.idle:
            call = stages.until_durable(command.arrived, connection.context.now, durable)
        self._store.when_durable(result.end_offset, call)
        return HELD

    async def _after_save(
        self, result: PutResult, response: SendMessageResponse, *, waits: bool
    ) -> Answer:
        """Answer once the topic, created by this send, would survive a crash like its message.

        When the topic cannot be saved, the message is stored all the same: the next start finds the
        topic in the log.
        """
        with suppress(OSError):
            await self._topic_file.catch_up()
        if not waits:
            return Answer(SUCCESS, response)
        done = trio.Event()
        answers: list[Answer] = []

        def durable(kept: PutOutcome) -> None:
            answers.append(Answer(KEPT_CODES[kept], response))
            done.set()

        self._store.when_durable(result.end_offset, durable)
        await done.wait()
        return answers[0]

    def _with_region(self, refused: Refusal) -> Refusal:
        """Add region and trace switch, which trace clients expect in every answer."""
        refused.header = self._region_fields
        return refused

    def _message_ids(self, result: PutResult) -> str:
        if result.offsets:
            return offset_ids(self._store_host, result.offsets)
        return offset_id(self._store_host, result.physical_offset)


def _refuse_in_batch(header: SendMessage | SendMessageV2, properties: dict[str, str]) -> None:
    if header.topic.startswith(RETRY_PREFIX):
        raise Refusal(MESSAGE_ILLEGAL, "batch request does not support retry group")
    if (
        _is_delayed(properties)
        or not ASKS_FOR_TIME.isdisjoint(properties)
        or _is_transaction(properties, header.sys_flag)
    ):
        raise Refusal(MESSAGE_ILLEGAL, "a batch can neither be delayed nor transactional")


def _wants_keys(topic: TopicConfig) -> bool:
    return topic.attributes.get("cleanup.policy") == "COMPACTION"


def _is_delayed(properties: dict[str, str]) -> bool:
    level = properties.get("DELAY")
    return level is not None and level_of(level) > 0


def _is_transaction(properties: dict[str, str], sys_flag: int) -> bool:
    prepared = properties.get("TRAN_MSG", "").lower() == "true"
    return prepared or bool(sys_flag & TRANSACTION_BITS)


def _without(properties: dict[str, str], names: frozenset[str]) -> str:
    return encode({name: value for name, value in properties.items() if name not in names})
