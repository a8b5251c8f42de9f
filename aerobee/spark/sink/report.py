"""The result of a delivery: how many messages brokers have acknowledged, and their offsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aerobee.client.send_result import SendStatus

if TYPE_CHECKING:
    from aerobee.client.send_result import MessageQueue
    from aerobee.remoting.wire.headers.send import SendMessageResponse
    from aerobee.spark.sink.encode import Shipment


@dataclass(slots=True)
class Report:
    """Counts acknowledged messages. `offsets` has the first and the last offset of each queue.

    `unsafe` messages are stored, but not flushed or replicated as the broker's settings ask.
    """

    sent: int = 0
    body_bytes: int = 0
    unsafe: int = 0
    first_id: str | None = None
    last_id: str | None = None
    offsets: dict[MessageQueue, tuple[int, int]] = field(default_factory=dict)

    def begin(self, shipment: Shipment) -> None:
        """Note the ids of a shipment that is about to be sent."""
        self.first_id = self.first_id or shipment.batch.uniq_ids[0]
        self.last_id = shipment.batch.uniq_ids[-1]

    def add(
        self,
        shipment: Shipment,
        queue: MessageQueue,
        stored: SendMessageResponse,
        status: SendStatus,
    ) -> None:
        """Count a shipment that the broker has stored in `queue`."""
        count = len(shipment.batch.uniq_ids)
        self.sent += count
        self.body_bytes += shipment.body_bytes
        self.unsafe += count if status is not SendStatus.OK else 0
        if stored.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=stored.queue_id)
        first, last = stored.queue_offset, stored.queue_offset + count - 1
        low, high = self.offsets.get(queue, (first, last))
        self.offsets[queue] = (min(low, first), max(high, last))
