"""PullMessage, and the offsets of a group: reading a queue without a receipt for each message.

RocketMQ's own proxy describes these calls and serves none. Source: grpc §1.1, §1.5.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.broker.grpc.receiving import BATCH_MAX, tags_of
from aerobee.broker.grpc.rpc import status_of
from aerobee.broker.grpc.translation.names import found, group_of, topic_of
from aerobee.broker.grpc.translation.polling import BEFORE_DEADLINE_MS, MOST_MS
from aerobee.broker.grpc.translation.received import message_of
from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.broker.grpc.translation.settings import expression_of
from aerobee.broker.pull.pull import SUBSCRIPTION, SUSPEND
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code, QueryOffsetPolicy
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.remoting.wire.headers.pull import PullAnswer, PullMessage
from aerobee.store.format.properties import decode
from aerobee.store.format.record import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.grpc.rpc import Rpc
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.header import Header
    from aerobee.store.format.record import Record


class Left(NamedTuple):
    """The rest of the answer to a pull."""

    resource: Any
    tags: frozenset[str]
    records: deque[Record]
    next_offset: int


class Pulling:
    """The four calls. The answer to a pull is a stream: a status, messages, the next offset."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics

    # ── PullMessage ──

    def pull(self, rpc: Rpc, request: Any) -> None:
        """Read messages of a queue, or wait for them. Raises: RpcRefused."""
        group, (topic, queue_id) = group_of(request.group), self._queue_of(request)
        if request.batch_size <= 0:
            raise RpcRefused(Code.BAD_REQUEST, f"batch size is {request.batch_size}, not above 0")
        offset = checked_offset(request.offset)
        kind, expression = expression_of(request.filter_expression)
        wait_ms = min(request.long_polling_timeout.ToMilliseconds(), MOST_MS)
        left_ms = rpc.call.deadline_ms - monotonic() * 1000 - BEFORE_DEADLINE_MS
        wait_ms = int(max(0, min(wait_ms, left_ms)))
        header = PullMessage(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=min(request.batch_size, BATCH_MAX),
            sys_flag=SUBSCRIPTION | SUSPEND if wait_ms else SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            subscription=expression,
            sub_version=0,
            expression_type=kind,
        )
        tags = tags_of(kind, expression)
        rpc.ask(header, partial(self._pulled, rpc, request.message_queue.topic, tags))

    def _pulled(self, rpc: Rpc, resource: Any, tags: frozenset[str], answer: Answer) -> None:
        header, body = answer.header, answer.body
        if rpc.closed:
            return
        if not isinstance(header, PullAnswer):
            self.end(rpc, *outcome(answer))
            return
        views = [body] if isinstance(body, bytes | memoryview) else body
        pulled = records(views) if not answer.code else ()
        rpc.left = Left(resource, tags, deque(pulled), header.next_begin_offset)
        code, text = outcome(answer)
        rpc.call.send(answer_of(status=status_of(code, text)))
        self.go_on(rpc)

    def go_on(self, rpc: Rpc) -> None:
        """Send messages for which there is room in the stream, in turns with others; the rest when
        there is room again.
        """
        rpc.ask_in_turns(self._deliveries(rpc))

    def _deliveries(self, rpc: Rpc) -> Iterator[None]:
        resource, tags, left, next_offset = rpc.left

        def answer(record: Record) -> bytes | None:
            properties = decode(record.properties)
            if tags and properties.get("TAGS") not in tags:
                return None  # only its hash is that of a wanted one
            attempt = record.reconsume_times + 1
            return answer_of(message=message_of(record, properties, resource, attempt=attempt))

        if (yield from rpc.send_in_turns(left, answer)):
            rpc.left = None
            rpc.call.send(answer_of(next_offset=next_offset))
            rpc.call.finish()
            rpc.wrote()

    def end(self, rpc: Rpc, code: Code, text: str) -> None:
        """Answer without a message."""
        rpc.call.send(answer_of(status=status_of(code, text)))
        rpc.call.finish()
        rpc.wrote()

    def over(self, rpc: Rpc) -> None:
        """The client reads no more."""
        rpc.left = None

    # ── Offsets ──

    def update(self, rpc: Rpc, request: Any) -> None:
        """Store how far a group has read a queue. Raises: RpcRefused."""
        group, queue = group_of(request.group), self._queue_of(request)
        header = UpdateConsumerOffset(group, *queue, checked_offset(request.offset))
        rpc.request(header, lambda _: rpc.done())

    def stored(self, rpc: Rpc, request: Any) -> None:
        """How far a group has read a queue. Raises: RpcRefused."""
        group, queue = group_of(request.group), self._queue_of(request)
        rpc.request(QueryConsumerOffset(group, *queue), partial(_offset, rpc))

    def query(self, rpc: Rpc, request: Any) -> None:
        """Answer with an end of a queue, or the offset of a time. Raises: RpcRefused."""
        queue = self._queue_of(request)
        policy = request.query_offset_policy
        header: Header
        if policy == QueryOffsetPolicy.BEGINNING:
            header = GetMinOffset(*queue)
        elif policy == QueryOffsetPolicy.END:
            header = GetMaxOffset(*queue)
        elif policy == QueryOffsetPolicy.TIMESTAMP and request.HasField("timestamp"):
            header = SearchOffset(*queue, request.timestamp.ToMilliseconds())
        else:
            raise RpcRefused(
                Code.BAD_REQUEST,
                f"query offset policy {policy} is not known, or comes without its timestamp",
            )
        rpc.request(header, partial(_offset, rpc))

    def _queue_of(self, request: Any) -> tuple[str, int]:
        """Topic and number of the queue that a request is about. Raises: RpcRefused."""
        queue = request.message_queue
        name = topic_of(queue.topic)
        config = found(name, self._topics.get(name))
        if not 0 <= queue.id < config.read_queue_nums:
            raise RpcRefused(
                Code.BAD_REQUEST,
                f"topic {name} has {config.read_queue_nums} queues to read, {queue.id} is none",
                topic=name,
            )
        return name, queue.id


def checked_offset(offset: int) -> int:
    """An offset that a queue may have. Raises: RpcRefused."""
    if offset < 0:
        raise RpcRefused(Code.ILLEGAL_OFFSET, f"offset {offset} is negative")
    return offset


def _offset(rpc: Rpc, answer: Answer) -> None:
    header = answer.header
    assert isinstance(header, OffsetResponse)
    rpc.done(offset=header.offset)


def answer_of(**content: Any) -> bytes:
    """One answer of the stream."""
    sent: bytes = messages.PullMessageResponse(**content).SerializeToString()
    return sent
