"""One request that stores messages: its content, its header, and its response. Pure.

Source: client §5.4, remoting §3.2, §3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
from aerobee.client.steps.answers import error_of, header_of
from aerobee.client.steps.messages import batch_item, checked_length
from aerobee.client.steps.routes import DEFAULT_TOPIC_QUEUES
from aerobee.remoting.wire.headers.send import (
    SendBatchMessage,
    SendMessageResponse,
    SendMessageV2,
    SendReplyMessageV2,
)
from aerobee.store.format import properties
from aerobee.store.format.batch import batch_items
from aerobee.store.format.system_names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.client.message import Message
    from aerobee.client.steps.effects import Ask
    from aerobee.remoting.wire.command import Command

BATCH_BYTES = 1 << 20
"""The encoded size at which `send_batch` begins another request."""
BATCH_MESSAGES = 4096
"""The most messages of a batch. The header of its answer has an id of each, up to 57 bytes of a
broker at an IPv6 address: a longer header than `MAX_HEADER_BYTES` would end the connection, and the
batch would be stored again by each try.
"""
PREPARED = 4
"""The bit of a sysFlag that marks a half message."""

WAITS = "WAIT\x01true\x02"
"""The properties of a batch that is answered when it is as durable as the broker is configured."""
WAITS_NOT = "WAIT\x01false\x02"
"""The properties of a batch that is answered before it is on disk."""
ROUTE_IS_OLD = frozenset({None, 2, 14, 16, 17, 10001, 10002, 10003})
"""Failures that a stale route may cause: a master that is a slave now (a slave of Aerobee is
"busy"), a topic that may not be written there or does not exist, or an unreachable broker."""
STATUS = {status.value: status for status in SendStatus}


class ProducerBatch(msgspec.Struct, frozen=True, gc=False):
    """The content of a send request, except the queue."""

    topic: str
    uniq_ids: Sequence[str]
    properties: str
    body: bytes
    sys_flag: int = 0
    flag: int = 0
    as_batch: bool = False
    """Whether the body has the format of a batch, also of one message."""
    reply: bool = False
    timed: bool = False
    background: bool = False
    """Whether it is sent in the background."""
    messages: Sequence[Message] = ()
    """The messages of the request, for hooks."""

    @property
    def alone(self) -> bool:
        """Whether this single message must be alone: in a batch brokers refuse or misread it."""
        return bool(self.sys_flag or self.reply or self.messages[0].alone)


def together(batches: Sequence[ProducerBatch]) -> ProducerBatch:
    """Batches of one message each as one, with the same topic and `wait_store_ok`."""
    first = batches[0].messages[0]
    return ProducerBatch(
        first.topic,
        [batch.uniq_ids[0] for batch in batches],
        WAITS if first.wait_store_ok else WAITS_NOT,
        b"".join([batch_item(batch.flag, batch.body, batch.properties) for batch in batches]),
        as_batch=True,
        messages=[batch.messages[0] for batch in batches],
    )


def dressed(batch: ProducerBatch, more: Mapping[str, str]) -> ProducerBatch:
    """A batch with further properties in each message. Raises: ConfigurationError for too many."""

    def with_more(text: str | bytes) -> str:
        return checked_length(properties.encode({**properties.decode(text), **more}), batch.topic)

    if not batch.as_batch:
        return replace(batch, properties=with_more(batch.properties))
    items = batch_items(batch.body)
    body = b"".join([batch_item(flag, bytes(own), with_more(text)) for flag, own, text in items])
    return replace(batch, body=body)


def request(batch: ProducerBatch, queue: MessageQueue, group: str, now_ms: int) -> SendMessageV2:
    """The header that sends a batch to a queue. Source: remoting §3.2."""
    made = SendMessageV2
    if batch.as_batch:
        made = SendBatchMessage
    elif batch.reply:
        made = SendReplyMessageV2
    return made(
        producer_group=group,
        topic=batch.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=batch.sys_flag,
        born_timestamp=now_ms,
        flag=batch.flag,
        properties=batch.properties,
        reconsume_times=0,
        unit_mode=False,
        batch=batch.as_batch,
        broker_name=queue.broker_name,
    )


def read_results(
    batch: ProducerBatch,
    ask: Ask,
    answer: Command,
    queue: MessageQueue,
    attempts: int,
    require_ok: bool,
) -> list[SendResult]:
    """The results in a response, one per message of the batch. Raises: BrokerError."""
    status = STATUS.get(answer.code)
    if status is None or (require_ok and status is not SendStatus.OK):
        raise error_of(ask, answer, queue.broker_name)
    header = header_of(ask, answer, SendMessageResponse)
    offset_ids = header.msg_id.split(",")
    offset_ids += [""] * (len(batch.uniq_ids) - len(offset_ids))
    stored = queue._replace(queue_id=header.queue_id)
    return [
        SendResult(
            message_id=uniq_id,
            offset_message_id=offset_ids[at],
            queue=stored,
            queue_offset=header.queue_offset + at,
            status=status,
            transaction_id=header.transaction_id,
            region_id=header.region or "DefaultRegion",
            attempts=attempts,
            recall_handle=header.recall_handle or None,
            traced=header.trace_on != "false",
        )
        for at, uniq_id in enumerate(batch.uniq_ids)
    ]


# ── Splitting ──


def split(messages: Sequence[Message], limit_bytes: int) -> list[list[int]]:
    """Split messages into batches, given as indexes in the list.

    A batch has the same topic, wait_store_ok and ordering key; at most `limit_bytes` unless one
    message alone is larger, and at most BATCH_MESSAGES. A delayed message is alone: brokers refuse
    them in batches. So is one with a priority, which would have no effect there.
    """
    chunks: list[list[int]] = []
    open_chunks: dict[tuple[str, bool, str | None], tuple[list[int], int]] = {}
    for index, message in enumerate(messages):
        if message.alone:
            chunks.append([index])
            continue
        kind = (message.topic, message.wait_store_ok, message.ordering_key)
        size = batch_size(message)
        chunk, used = open_chunks.get(kind, ([], 0))
        if not chunk or used + size > limit_bytes or len(chunk) == BATCH_MESSAGES:
            chunk, used = [], 0
            chunks.append(chunk)
        chunk.append(index)
        open_chunks[kind] = (chunk, used + size)
    return chunks


def batch_size(message: Message) -> int:
    """The size of one message in a batch, or a little more."""
    named = sum(len(name) + len(value) + 2 for name, value in message.properties.items())
    keys = sum(len(key) + 1 for key in message.keys)
    return len(message.body) + 3 * (named + keys + len(message.tag or "")) + 128
