"""What RocketMQ's message trace says about sends, deliveries and transactions, as text.

A record's fields are joined by 0x01, its end is 0x02; `null` stands where there is nothing, as a
reader counts the fields. Records wait in a bounded row that somebody else empties: a send never
waits for its trace. Source: client §15.2 (TraceDataEncoder), semantics §15.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aerobee.client.steps.effects import Signal
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.send_result import SendResult
    from aerobee.client.steps.effects import Clock, Steps
    from aerobee.client.steps.parcels import Parcel
    from aerobee.client.steps.routes import Routes
    from aerobee.client.transaction import TransactionState
    from aerobee.remoting.wire.headers.transaction import EndTransaction

__all__ = ["Trace", "Traces"]

log = logging.getLogger("aerobee.client")

WAITING_MAX = 2048
"""Records that wait to be sent; more are left out."""
TOGETHER = 10
"""Records that leave without waiting for more."""
REGION = "DefaultRegion"
NORMAL, HALF, COMMITTED, DELAYED = 0, 1, 2, 3
"""Kinds of messages."""
STATES = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE", "UNKNOWN": "UNKNOW"}
PREPARED = 4


class Trace(NamedTuple):
    """One record, what it is about, and by what it is to be found."""

    topic: str
    text: str
    keys: Sequence[str]


@dataclass(slots=True)
class Traces:
    """The trace of one producer or consumer group, until it is sent."""

    group: str
    routes: Routes
    waiting: deque[Trace] = field(default_factory=deque)
    wanted: Signal = field(default_factory=Signal)
    """Set when there is enough to send, or nothing more to wait for."""
    lost: int = 0

    @property
    def clock(self) -> Clock:
        """The client's."""
        return self.routes.clock

    def add(self, trace: Trace) -> None:
        """Keep a record, if there is room."""
        if len(self.waiting) >= WAITING_MAX:
            if not self.lost:
                log.warning("the trace of %s is too slow: some is left out", self.group)
            self.lost += 1
            return
        self.waiting.append(trace)
        if len(self.waiting) >= TOGETHER and not self.wanted.is_set:
            self.wanted.set()

    # ── Sends ──

    def follow(self, parcel: Parcel, steps: Steps[list[SendResult]]) -> Steps[list[SendResult]]:
        """The results of a send, of which a record is kept however it ends."""
        began_ms, began_s = self.clock.wall_ms(), self.clock.monotonic()
        results: list[SendResult] = []
        try:
            results = yield from steps
        except AerobeeError:
            self._sent(parcel, began_ms, began_s, None)
            raise
        if results[0].traced:
            self._sent(parcel, began_ms, began_s, results)
        return results

    def _sent(
        self,
        parcel: Parcel,
        began_ms: int,
        began_s: float,
        results: Sequence[SendResult] | None,
    ) -> None:
        first = parcel.messages[0]
        message_id = ",".join(parcel.uniq_ids)
        kind = HALF if parcel.sys_flag & PREPARED else DELAYED if first.delayed else NORMAL
        keys = [key for message in parcel.messages for key in message.keys]
        text = record(
            "Pub",
            began_ms,
            results[0].region_id if results else REGION,
            self.group,
            parcel.topic,
            message_id,
            first.tag,
            " ".join(keys),
            self._address(results[0]) if results else None,
            sum(len(message.body) for message in parcel.messages),
            self._cost_ms(began_s),
            kind,
            ",".join(one.offset_message_id for one in results) if results else None,
            results is not None,
        )
        self.add(Trace(parcel.topic, text, [*parcel.uniq_ids, *keys]))

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
        """A transaction was ended so, at this broker."""
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
        """A delayed message was taken back."""
        now_ms = self.clock.wall_ms()
        text = record("Recall", now_ms, REGION, self.group, topic, message_id, True)
        self.add(Trace(topic, text, [message_id]))

    # ── Deliveries ──

    def before(self, messages: Sequence[ReceivedMessage], request_id: str) -> None:
        """These are about to be handled; the id is found in `after` again."""
        for one in messages:
            text = record(
                "SubBefore",
                self.clock.wall_ms(),
                one.properties.get("MSG_REGION", REGION),
                self.group,
                request_id,
                one.message_id,
                one.reconsume_times,
                " ".join(one.keys),
            )
            self.add(Trace(one.original_topic, text, [one.message_id, *one.keys]))

    def after(
        self, messages: Sequence[ReceivedMessage], request_id: str, cost_ms: int, code: int
    ) -> None:
        """They were handled; code 0 is done, 1 too late, 2 an exception, 3 nothing, 4 failed."""
        for one in messages:
            text = record(
                "SubAfter",
                request_id,
                one.message_id,
                cost_ms,
                code == 0,
                " ".join(one.keys),
                code,
                self.clock.wall_ms(),
                self.group,
            )
            self.add(Trace(one.original_topic, text, [one.message_id, *one.keys]))


def record(*fields: str | int | None) -> str:
    """One record of these fields."""
    return "\x01".join(map(text_of, fields)) + "\x02"


def text_of(value: str | int | None) -> str:
    """A field as Java writes it."""
    if value is None or value == "":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
