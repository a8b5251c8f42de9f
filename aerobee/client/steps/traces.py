"""Records of RocketMQ's message trace about sends, deliveries and transactions, as text.

A record's fields are joined by 0x01, and it ends with 0x02; missing fields are `null`, because
readers count fields. Records wait in a bounded queue that `Tracing` empties: a send never waits for
its trace. Source: client §15.2 (TraceDataEncoder), semantics §15.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from aerobee.client.steps.effects import Signal
from aerobee.hooks import ConsumeOutcome, Hook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.send_result import SendResult
    from aerobee.client.steps.effects import Clock
    from aerobee.client.steps.messages import UniqIds
    from aerobee.client.steps.routes import Routes
    from aerobee.client.transaction import TransactionState
    from aerobee.hooks import ConsumeContext, SendContext
    from aerobee.remoting.wire.headers.transaction import EndTransaction

log = logging.getLogger("aerobee.client")

WAITING_MAX = 2048
"""The most records that wait to be sent; further ones are dropped."""
TOGETHER = 10
"""The number of records that are sent without waiting for more."""
REGION = "DefaultRegion"
NORMAL, HALF, COMMITTED, DELAYED = 0, 1, 2, 3
"""Kinds of messages."""
STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}


class Trace(NamedTuple):
    """One record, with its topic and the keys of its trace message."""

    topic: str
    text: str
    keys: Sequence[str]


@dataclass(slots=True, eq=False)
class Traces(Hook):
    """The trace of one producer or consumer group, until it is sent."""

    group: str
    routes: Routes
    topic: str
    """The trace topic."""
    uniq_ids: UniqIds
    waiting: deque[Trace] = field(default_factory=deque)
    wanted: Signal = field(default_factory=Signal)
    """Set when there are enough records to send, or the client closes."""
    lost: int = 0

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self.routes.clock

    def add(self, trace: Trace) -> None:
        """Add a record, if there is room."""
        if len(self.waiting) >= WAITING_MAX:
            if not self.lost:
                log.warning("the trace of %s is too slow: some is left out", self.group)
            self.lost += 1
            return
        self.waiting.append(trace)
        if len(self.waiting) >= TOGETHER and not self.wanted.is_set:
            self.wanted.set()

    # ── Sends ──

    def before_send(self, send: SendContext) -> None:
        """Note the begin of a send."""
        send.notes[self] = (self.clock.wall_ms(), self.clock.monotonic())

    def after_send(self, send: SendContext) -> None:
        """Add a record of the send, unless its result is unknown or the broker wants no trace."""
        if send.error is None and not (send.results and send.results[0].traced):
            return
        began_ms, began_s = cast("tuple[int, float]", send.notes[self])
        results, first = send.results, send.messages[0]
        keys = [key for message in send.messages for key in message.keys]
        text = record(
            "Pub",
            began_ms,
            results[0].region_id if results else REGION,
            self.group,
            send.topic,
            ",".join(send.message_ids),
            first.tag,
            " ".join(keys),
            self._address(results[0]) if results else None,
            sum(len(message.body) for message in send.messages),
            self._cost_ms(began_s),
            HALF if send.half else DELAYED if first.delayed else NORMAL,
            ",".join(result.offset_message_id for result in results) if results else None,
            bool(results),
        )
        self.add(Trace(send.topic, text, [*send.message_ids, *keys]))

    def _address(self, result: SendResult) -> str | None:
        return next(iter(self.routes.addresses(result.queue.broker_name)), None)

    def _cost_ms(self, began_s: float) -> int:
        return int((self.clock.monotonic() - began_s) * 1000)

    def ended(
        self,
        message: Message | ReceivedMessage,
        end: EndTransaction,
        address: str,
        state: TransactionState,
    ) -> None:
        """Add a record of the end of a transaction at a broker."""
        text = record(
            "EndTransaction",
            self.clock.wall_ms(),
            REGION,
            self.group,
            message.topic,
            end.msg_id,
            message.tag,
            " ".join(message.keys),
            address,
            COMMITTED,
            end.transaction_id,
            STATES[state.name],
            end.from_transaction_check,
        )
        self.add(Trace(message.topic, text, [end.msg_id, *message.keys]))

    def recalled(self, topic: str, message_id: str) -> None:
        """Add a record of a recalled message."""
        now_ms = self.clock.wall_ms()
        text = record("Recall", now_ms, REGION, self.group, topic, message_id, True)
        self.add(Trace(topic, text, [message_id]))

    # ── Deliveries ──

    def before_consume(self, consume: ConsumeContext) -> None:
        """Add a record of each message; another try has another request id."""
        now_ms = self.clock.wall_ms()
        request_id = self.uniq_ids.next(now_ms)
        consume.notes[self] = (request_id, self.clock.monotonic())
        for message in self._traced(consume):
            text = record(
                "SubBefore",
                now_ms,
                message.properties.get("MSG_REGION", REGION),
                self.group,
                request_id,
                message.message_id,
                message.reconsume_times,
                " ".join(message.keys),
            )
            self.add(Trace(message.original_topic, text, [message.message_id, *message.keys]))

    def after_consume(self, consume: ConsumeContext) -> None:
        """Add a record of each message, with its share of the time."""
        request_id, began_s = cast("tuple[str, float]", consume.notes[self])
        cost_ms = self._cost_ms(began_s) // len(consume.messages)
        failed = {message.queue_offset for message in consume.failed}
        for traced in self._traced(consume):
            outcome = consume.outcome
            if traced.queue_offset not in failed:
                outcome = ConsumeOutcome.SUCCESS
            text = record(
                "SubAfter",
                request_id,
                traced.message_id,
                cost_ms,
                outcome is ConsumeOutcome.SUCCESS,
                " ".join(traced.keys),
                outcome.value,
                self.clock.wall_ms(),
                self.group,
            )
            self.add(Trace(traced.original_topic, text, [traced.message_id, *traced.keys]))

    def _traced(self, consume: ConsumeContext) -> list[ReceivedMessage]:
        """The messages to trace: not those with tracing switched off, nor trace messages."""
        return [
            message
            for message in consume.messages
            if message.properties.get("TRACE_ON") != "false"
            and message.original_topic != self.topic
        ]


def record(*fields: str | int | None) -> str:
    """Encode one record."""
    return "\x01".join(map(text_of, fields)) + "\x02"


def text_of(value: str | int | None) -> str:
    """A field as Java writes it."""
    if value is None or value == "":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
