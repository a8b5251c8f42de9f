"""ReceiveMessage: a pop whose answer is a stream, and what happens to each message of it.

A message whose tag only has the same hash is acknowledged, one that was delivered too often becomes
a dead letter, and what a client does not read any more is visible again a second later. Source:
grpc §2.5, §2.8 (ReceiveMessageActivity, ReceiveMessageResponseStreamWriter).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aerobee.broker.grpc.rpc import status_of
from aerobee.broker.grpc.translation.names import found, group_of, topic_of
from aerobee.broker.grpc.translation.polling import (
    REQUEST_TIMEOUT_MS,
    hidden_ms,
    polling_ms,
    version_of,
)
from aerobee.broker.grpc.translation.received import (
    PopAnswer,
    PoppedMessage,
    message_of,
    received,
    set_time,
)
from aerobee.broker.grpc.translation.refusal import RpcRefused, outcome
from aerobee.broker.grpc.translation.settings import attempts_of, expression_of
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.wire.headers.pop import PopMessage, PopMessageResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.consumers.tables import ConsumerTables
    from aerobee.broker.core.core import Core
    from aerobee.broker.grpc.clients import Clients
    from aerobee.broker.grpc.fates import Fates
    from aerobee.broker.grpc.rpc import Rpc
    from aerobee.broker.topics.topics import TopicTable
    from aerobee.remoting.wire.answer import Answer

BATCH_MAX: Final = 32
ANY_QUEUE: Final = -1
FROM_END: Final = 1
"""Where a new group begins, unless its queue is short and in memory: then from its start."""


class Demand(NamedTuple):
    """The request of a receive, checked."""

    group: str
    topic: str
    tags: frozenset[str]
    """The tags that it wants; empty: all, or they are chosen by SQL."""
    attempts_max: int
    resource: Any
    auto_renew: bool


class Receiving:
    """The call."""

    def __init__(
        self,
        core: Core,
        *,
        topics: TopicTable,
        consumers: ConsumerTables,
        clients: Clients,
        fates: Fates,
    ) -> None:
        self._broker = core.config.broker
        self._clock = core.clock
        self._topics = topics
        self._groups = consumers.groups
        self._clients = clients
        self._fates = fates

    def receive(self, rpc: Rpc, request: Any) -> None:
        """Pop messages, or wait for them. Raises: RpcRefused."""
        group, queue = group_of(request.group), request.message_queue
        name = topic_of(queue.topic)
        found(name, self._topics.get(name))
        if request.batch_size <= 0:
            raise RpcRefused(Code.BAD_REQUEST, f"batch size is {request.batch_size}, not above 0")
        kind, expression = expression_of(request.filter_expression)
        config = self._groups.get(group)
        header = PopMessage(
            consumer_group=group,
            topic=name,
            queue_id=ANY_QUEUE,
            max_msg_nums=min(request.batch_size, BATCH_MAX),
            invisible_time=hidden_ms(request),
            poll_time=self._polling_ms(rpc, request),
            born_time=self._clock.now_ms(),
            init_mode=FROM_END,
            exp_type=kind,
            exp=expression,
            order=config is not None and config.consume_message_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        wanted = Demand(
            group,
            name,
            tags_of(kind, expression),
            attempts_of(config),
            queue.topic,
            request.auto_renew,
        )
        rpc.ask(header, partial(self._answered, rpc, wanted))

    def _polling_ms(self, rpc: Rpc, request: Any) -> int:
        asked_ms = None
        if request.HasField("long_polling_timeout"):
            asked_ms = request.long_polling_timeout.ToMilliseconds()
        deadline_ms = rpc.call.deadline_ms
        left_ms = deadline_ms - monotonic() * 1000
        client = self._clients.claimed(rpc)
        timeout_ms = REQUEST_TIMEOUT_MS if client is None else client.request_timeout_ms
        version = version_of(rpc.call.head.text(b"x-mq-client-version"))
        return polling_ms(asked_ms, left_ms, timeout_ms or REQUEST_TIMEOUT_MS, version)

    # ── The answer ──

    def _answered(self, rpc: Rpc, wanted: Demand, answer: Answer) -> None:
        header = answer.header
        if answer.code or not isinstance(header, PopMessageResponse):
            self.end(rpc, *outcome(answer))
            return
        popped = PopAnswer.of(header, self._broker.broker_name, wanted.topic)
        views = answer.body if not isinstance(answer.body, bytes | memoryview) else [answer.body]
        deliverable = [
            message for message in received(views, popped) if self._is_for(rpc, wanted, message)
        ]
        if rpc.closed:
            handles = [message.handle for message in deliverable]
            self._fates.give_back(rpc, wanted.group, wanted.topic, handles)
        elif deliverable:
            self._keep(rpc, wanted, deliverable)
            rpc.left = (wanted, deque(deliverable))
            rpc.call.send(answer_of(status=status_of(Code.OK)))
            self.go_on(rpc)
        else:
            self.end(rpc, Code.MESSAGE_NOT_FOUND, "no match message")

    def _is_for(self, rpc: Rpc, wanted: Demand, message: PoppedMessage) -> bool:
        """Whether a message is delivered; the others are dealt with."""
        if wanted.tags and message.properties.get("TAGS") not in wanted.tags:
            self._fates.acknowledge_silently(rpc, wanted.group, wanted.topic, message.handle)
            return False
        if message.attempt > wanted.attempts_max:
            self._fates.bury(rpc, wanted.group, wanted.topic, message.handle)
            return False
        return True

    def _keep(self, rpc: Rpc, wanted: Demand, deliverable: list[PoppedMessage]) -> None:
        if wanted.auto_renew:
            rpc.given = (wanted, [message.handle for message in deliverable])
            for received in deliverable:
                self._fates.keep(rpc, wanted.group, wanted.topic, received.handle)

    def go_on(self, rpc: Rpc) -> None:
        """Send messages for which there is room in the stream, in turns with others; the rest when
        there is room again.
        """
        rpc.ask_in_turns(self._deliveries(rpc))

    def _deliveries(self, rpc: Rpc) -> Iterator[None]:
        wanted, left = rpc.left

        def answer(delivery: PoppedMessage) -> bytes:
            message = message_of(
                delivery.record,
                delivery.properties,
                wanted.resource,
                handle=delivery.handle,
                attempt=delivery.attempt,
            )
            return answer_of(message=message)

        if (yield from rpc.send_in_turns(left, answer)):
            rpc.left = None
            self._finish(rpc)

    def end(self, rpc: Rpc, code: Code, text: str) -> None:
        """Answer without a message."""
        if not rpc.closed:
            rpc.call.send(answer_of(status=status_of(code, text)))
            self._finish(rpc)

    def _finish(self, rpc: Rpc) -> None:
        last = messages.ReceiveMessageResponse()
        set_time(last.delivery_timestamp, self._clock.now_ms())
        rpc.call.send(last.SerializeToString())
        rpc.call.finish()
        rpc.wrote()

    def over(self, rpc: Rpc) -> None:
        """The client reads no more: what it has not got goes to another consumer soon. Of what is
        hidden again and again that is all that it has not come back with; the rest has its time.
        """
        left, hidden = rpc.left, rpc.given
        rpc.left = rpc.given = None
        if hidden is not None:
            wanted, handles = hidden
            self._fates.take_back(rpc, wanted.group, wanted.topic, handles)
        elif left is not None:
            wanted, unread = left
            handles = [message.handle for message in unread]
            self._fates.give_back(rpc, wanted.group, wanted.topic, handles)


def tags_of(kind: str, expression: str) -> frozenset[str]:
    """The tags that an expression wants; empty: all, or it is no expression of tags."""
    tags = expression.split("||") if kind == "TAG" and expression != "*" else ()
    return frozenset(filter(None, (tag.strip() for tag in tags)))


def answer_of(**content: Any) -> bytes:
    """One answer of the stream."""
    sent: bytes = messages.ReceiveMessageResponse(**content).SerializeToString()
    return sent
