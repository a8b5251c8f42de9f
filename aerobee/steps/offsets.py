"""Offsets asked of brokers: bounds of a queue, by time, and what a group has committed.

Source: remoting §3.7, client §10.3.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.config import ConsumeFrom
from aerobee.errors import ConfigurationError, OffsetNotFoundError
from aerobee.remoting.wire.headers.offset import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.steps.answers import expect, header_of
from aerobee.steps.effects import Ask

if TYPE_CHECKING:
    from aerobee.message import MessageQueue
    from aerobee.remoting.wire.header import Header
    from aerobee.steps.effects import Steps
    from aerobee.steps.instance import Instance

__all__ = ["Offsets", "epoch_ms"]


def epoch_ms(at: datetime) -> int:
    """A time in ms since the epoch. Raises: ConfigurationError for a time without a zone."""
    if at.tzinfo is None:
        raise ConfigurationError(f"{at} has no time zone: use datetime.now(UTC) or .astimezone()")
    return int(at.timestamp() * 1000)


class Offsets:
    """The offset requests of one group. Every step raises TransportError and BrokerError."""

    def __init__(self, instance: Instance, group: str) -> None:
        self.instance = instance
        self.group = group

    def lowest(self, queue: MessageQueue) -> Steps[int]:
        """Offset of the oldest message still there."""
        header = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (yield from self._offset(queue, header))

    def end(self, queue: MessageQueue) -> Steps[int]:
        """Offset of the next message to be written."""
        header = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id)
        return (yield from self._offset(queue, header))

    def at_time(self, queue: MessageQueue, at: datetime) -> Steps[int]:
        """Offset of the first message stored at `at` or later; the end if there is none."""
        header = SearchOffset(topic=queue.topic, queue_id=queue.queue_id, timestamp=epoch_ms(at))
        return (yield from self._offset(queue, header))

    def resolve(self, queue: MessageQueue, place: ConsumeFrom | datetime) -> Steps[int]:
        """The offset that `place` means now."""
        if isinstance(place, datetime):
            return (yield from self.at_time(queue, place))
        if place is ConsumeFrom.FIRST:
            return (yield from self.lowest(queue))
        return (yield from self.end(queue))

    def committed(self, queue: MessageQueue) -> Steps[int | None]:
        """The group's stored offset; None without one."""
        header = QueryConsumerOffset(
            consumer_group=self.group, topic=queue.topic, queue_id=queue.queue_id
        )
        try:
            offset = yield from self._offset(queue, header)
        except OffsetNotFoundError:
            return None
        return offset if offset >= 0 else None

    def commit(self, queue: MessageQueue, offset: int) -> Steps[None]:
        """Store the group's offset: the next message to consume."""
        header = UpdateConsumerOffset(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        ask = yield from self._ask(queue, header)
        expect(ask, (yield ask), queue.broker_name)

    def start(self, queue: MessageQueue, start_from: ConsumeFrom | datetime) -> Steps[int]:
        """Where the group begins: its stored offset, else `start_from`."""
        stored = yield from self.committed(queue)
        if stored is not None:
            return stored
        return (yield from self.resolve(queue, start_from))

    def _offset(self, queue: MessageQueue, header: Header) -> Steps[int]:
        ask = yield from self._ask(queue, header)
        answer = expect(ask, (yield ask), queue.broker_name)
        return header_of(ask, answer, OffsetResponse).offset

    def _ask(self, queue: MessageQueue, header: Header) -> Steps[Ask]:
        """The request to the broker that has a queue.

        Raises: RouteNotFoundError, BrokerNotFoundError.
        """
        timeout_s = self.instance.config.request_timeout
        yield from self.instance.route(queue.topic, timeout_s)
        address = self.instance.reader(queue.broker_name)
        return Ask(address=address, header=header, timeout_s=timeout_s)
