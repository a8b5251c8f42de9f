"""SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH_MESSAGE: request → checked message → store → answer.

The order of checks is what clients and their tests depend on. What belongs to a feature not served
yet (delay levels, timers, transactions) is refused, never stored under another meaning.
Source: SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from broker.answers import PUT_ANSWERS
from broker.errors import NoPermission, Refused
from broker.tables.names import RETRY_PREFIX
from remoting.server.routes import PARKED, Begun
from remoting.wire.answer import Answer
from remoting.wire.codes import ResponseCode
from remoting.wire.headers.send import SendMessageRefused, SendMessageResponse
from store.errors import MessageIllegal
from store.format.message_id import offset_id
from store.format.properties import append, decode, encode
from store.format.record import MessageDraft, batch_items
from store.format.tags import tags_code
from store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.config import BrokerConfig
    from broker.services.save import SavedTable
    from broker.stats import BrokerStats
    from broker.tables.groups import GroupTable
    from broker.tables.topics import TopicConfig, TopicTable
    from remoting.server.connection import Connection
    from remoting.server.routes import Outcome
    from remoting.wire.command import Command
    from remoting.wire.headers.send import SendMessage, SendMessageV2
    from store.files.disk import Clock
    from store.message_store import MessageStore
    from store.results import PutResult

__all__ = ["Send"]

REGION_FIELDS: Final = frozenset({"CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK"})
"""Properties that the broker sets itself; what a client sent under these names is dropped."""

TIMER: Final = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
LATER: Final = TIMER | {"DELAY", "TRAN_MSG"}
"""Properties that ask for a feature served in a later version."""

LATER_BYTES: Final = tuple(name.encode() + b"\x01" for name in sorted(LATER))
LOOKED_AT: Final = REGION_FIELDS | LATER
WRITE_BIT: Final = 2
TRANSACTION_BITS: Final = 0x0C
BROKER_BITS: Final = 0x30 | 0xC0
"""sysFlag bits that only a broker sets: IPv6 hosts, inner batches."""
MESSAGE_ILLEGAL: Final = int(ResponseCode.MESSAGE_ILLEGAL)
INVALID_PARAMETER: Final = int(ResponseCode.INVALID_PARAMETER)
SYSTEM_ERROR: Final = int(ResponseCode.SYSTEM_ERROR)
SUCCESS: Final = int(ResponseCode.SUCCESS)
FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)


class Send:
    """The send processor. `one` and `batch` are its routes; everything else is their way down."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        topic_file: SavedTable,
        groups: GroupTable,
        stats: BrokerStats,
        clock: Clock,
        store_host: bytes,
        random_queue: Callable[[int], int],
        new_unique_key: Callable[[], str],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._topic_file = topic_file
        self._groups = groups
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self._random_queue = random_queue
        self._new_unique_key = new_unique_key
        self._waits_for_disk = config.store.flush_disk_type.name == "SYNC_FLUSH"
        broker = config.broker
        self._region = broker.region_id
        self._trace_on = "true" if broker.trace_on else "false"
        self._region_fields = SendMessageRefused(self._region, self._trace_on)
        self._added = (
            f"CLUSTER\x01{broker.broker_cluster_name}\x02"
            f"MSG_REGION\x01{self._region}\x02TRACE_ON\x01{self._trace_on}\x02"
        )

    def one(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store one message (codes 10 and 310)."""
        if header.batch:
            return self.batch(header, command, connection)
        try:
            topic = self._topic(header)
            queue_id = self._queue_id(header, topic)
            if not command.body:
                raise Refused(MESSAGE_ILLEGAL, "the message body is empty")
            text = header.properties or ""
            properties = decode(text)
            if topic.attributes and _wants_keys(topic) and "KEYS" not in properties:
                raise Refused(MESSAGE_ILLEGAL, "a message to a compacted topic must have KEYS")
            if header.sys_flag & TRANSACTION_BITS or not LOOKED_AT.isdisjoint(properties):
                _refuse_later_features(properties, header.sys_flag)
                text = _without(properties, REGION_FIELDS)
        except Refused as refused:
            raise self._with_region(refused) from None
        unique = properties.get("UNIQ_KEY")
        if unique is None:
            unique = self._new_unique_key()
            text = append(text, f"UNIQ_KEY\x01{unique}\x02")
        draft = self._draft(header, command, connection, queue_id)
        draft.properties = append(text, self._added).encode()
        draft.tags_code = tags_code(properties.get("TAGS"))
        result = self._store.put(draft)
        waits = self._waits_for_disk and properties.get("WAIT", "true").lower() == "true"
        return self._answer(result, draft, unique, command, connection, waits=waits)

    def batch(
        self, header: SendMessage | SendMessageV2, command: Command, connection: Connection
    ) -> Outcome:
        """Store each message of a batch (code 320, or the batch flag under another code)."""
        try:
            queue_id = self._queue_id(header, self._topic(header))
            properties = decode(header.properties or "")
            _refuse_in_batch(header, properties)
            _refuse_in_items(command.body)
        except Refused as refused:
            raise self._with_region(refused) from None
        draft = self._draft(header, command, connection, queue_id)
        result = self._store.put_batch(draft, command.body)
        waits = self._waits_for_disk and properties.get("WAIT", "true").lower() == "true"
        return self._answer(result, draft, None, command, connection, waits=waits)

    # -- checks ----------------------------------------------------------------------------------

    def _topic(self, header: SendMessage | SendMessageV2) -> TopicConfig:
        """Checks 2 to 6: time gate, ordered topic, name, sendable, existence."""
        name = header.topic
        gate_ms = self._config.broker.start_accept_send_request_time_stamp_ms
        if gate_ms and self._clock.now_ms() < gate_ms:
            raise Refused(SYSTEM_ERROR, f"broker unable to service, until {gate_ms}")
        if not self._config.broker.broker_permission & WRITE_BIT:
            self._refuse_ordered(name)
        topic = self._topics.sendable(name)
        if topic is None:
            topic = self._topics.for_send(
                name,
                header.default_topic,
                header.default_topic_queue_nums,
                self._clock.now_ms(),
                unit_mode=bool(header.unit_mode),
            )
        return topic

    def _refuse_ordered(self, name: str) -> None:
        """Only ordered topics: producers leave the other queues of such a broker by the route."""
        known = self._topics.get(name)
        if known is not None and known.order:
            host = self._config.broker.broker_ip1
            raise NoPermission(f"the broker[{host}] sending message is forbidden")

    def _queue_id(self, header: SendMessage | SendMessageV2, topic: TopicConfig) -> int:
        """Checks 7 and 8: the queue, the group of a retry topic."""
        queue_id = header.queue_id
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise Refused(
                INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic [{header.topic}] has "
                f"{max(topic.write_queue_nums, topic.read_queue_nums)} queues",
            )
        if queue_id < 0:
            if topic.write_queue_nums <= 0:
                raise Refused(SYSTEM_ERROR, f"topic [{header.topic}] has no queue to write to")
            queue_id = self._random_queue(topic.write_queue_nums)
        if header.topic.startswith(RETRY_PREFIX):
            self._groups.require(header.topic.removeprefix(RETRY_PREFIX), self._clock.now_ms())
        return queue_id

    # -- effects ---------------------------------------------------------------------------------

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
        unique: str | None,
        command: Command,
        connection: Connection,
        *,
        waits: bool,
    ) -> Outcome:
        status = result.status
        if status is not PutStatus.PUT_OK:
            return self._refused(status)
        counters = self._stats.topic_in(draft.topic)
        counters.messages_in += result.count
        counters.bytes_in += result.size
        if command.oneway:
            return None
        response = SendMessageResponse(
            msg_id=self._message_ids(result, draft),
            queue_id=draft.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=unique,
            region=self._region,
            trace_on=self._trace_on,
        )
        if not self._topic_file.clean:
            return Begun(self._after_save(result, response, waits=waits))
        if not waits:
            return Answer(SUCCESS, response)

        def durable(on_disk: bool) -> None:
            connection.answer(command, _stored(response, on_disk=on_disk))

        self._store.when_durable(result.end_offset, durable)
        return PARKED

    async def _after_save(
        self, result: PutResult, response: SendMessageResponse, *, waits: bool
    ) -> Answer:
        """Answer once the topic, made a moment ago, would survive a crash like its message.

        A topic that cannot be saved is no reason to say that the message was not stored: the next
        start finds it in the log and takes it up again.
        """
        with suppress(OSError):
            await self._topic_file.catch_up()
        if not waits:
            return Answer(SUCCESS, response)
        done = trio.Event()
        answers: list[Answer] = []

        def durable(on_disk: bool) -> None:
            answers.append(_stored(response, on_disk=on_disk))
            done.set()

        self._store.when_durable(result.end_offset, durable)
        await done.wait()
        return answers[0]

    def _refused(self, status: PutStatus) -> Answer:
        code, remark = PUT_ANSWERS[status]
        if remark is not None:
            limit = self._config.store.max_message_size_bytes
            remark = remark.format(cause=self._store.flags.cause, max_message_size_bytes=limit)
        return Answer(code, self._region_fields, remark)

    def _with_region(self, refused: Refused) -> Refused:
        """Trace clients look for region and trace switch in every answer."""
        refused.header = self._region_fields
        return refused

    def _message_ids(self, result: PutResult, draft: MessageDraft) -> str:
        if result.count == 1:
            return offset_id(self._store_host, result.physical_offset)
        return ",".join(offset_id(self._store_host, at) for at in result.offsets)


def _stored(response: SendMessageResponse, *, on_disk: bool) -> Answer:
    return Answer(SUCCESS if on_disk else FLUSH_DISK_TIMEOUT, response)


def _refuse_later_features(properties: dict[str, str], sys_flag: int) -> None:
    """Say no to what would be stored under another meaning: delays, timers, transactions."""
    if _is_delayed(properties):
        raise Refused(MESSAGE_ILLEGAL, "delay levels are not served by this broker yet")
    if not TIMER.isdisjoint(properties):
        raise Refused(SYSTEM_ERROR, "timer messages are not enabled: timerWheelEnable is false")
    if _is_transaction(properties, sys_flag):
        raise NoPermission("transaction messages are not served by this broker yet")


def _refuse_in_batch(header: SendMessage | SendMessageV2, properties: dict[str, str]) -> None:
    if header.topic.startswith(RETRY_PREFIX):
        raise Refused(MESSAGE_ILLEGAL, "batch request does not support retry group")
    if (
        _is_delayed(properties)
        or not TIMER.isdisjoint(properties)
        or _is_transaction(properties, header.sys_flag)
    ):
        raise Refused(MESSAGE_ILLEGAL, "a batch can neither be delayed nor transactional")


def _wants_keys(topic: TopicConfig) -> bool:
    return topic.attributes.get("cleanup.policy") == "COMPACTION"


def _refuse_in_items(body: bytes | memoryview) -> None:
    """The same for the messages of a batch, whose properties are stored as they came.

    Most batches hold none of these names, and then nothing is parsed.
    """
    raw = bytes(body)
    if not any(name in raw for name in LATER_BYTES):
        return
    try:
        items = [decode(properties) for _, _, properties in batch_items(raw)]
    except MessageIllegal as error:
        raise Refused(MESSAGE_ILLEGAL, str(error)) from error
    for item in items:
        if _is_delayed(item) or not TIMER.isdisjoint(item) or _is_transaction(item, 0):
            raise Refused(MESSAGE_ILLEGAL, "a message of the batch asks for delay or transaction")


def _is_delayed(properties: dict[str, str]) -> bool:
    level = properties.get("DELAY")
    return level is not None and _number("DELAY", level) > 0


def _is_transaction(properties: dict[str, str], sys_flag: int) -> bool:
    prepared = properties.get("TRAN_MSG", "").lower() == "true"
    return prepared or bool(sys_flag & TRANSACTION_BITS)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(SYSTEM_ERROR, f"property {name} is not a number: {text[:40]!r}") from None


def _without(properties: dict[str, str], names: frozenset[str]) -> str:
    return encode({name: value for name, value in properties.items() if name not in names})
