"""The result of a send: the queue and offset of the message, and its status. No own imports."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Queues sort in the order of all RocketMQ clients."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


class SendStatus(Enum):
    """The durability of a stored message. The values are response codes."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of a stored message; `ok` is true if it is as durable as the broker is configured.

    `attempts` above 1 means an earlier try failed and may have stored a second copy. With
    `recall_handle` a delayed message can be recalled; brokers before 5.3.2 return none. `traced`
    is false if the broker has switched off the message trace.
    """

    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus = SendStatus.OK
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    attempts: int = 1
    recall_handle: str | None = None
    traced: bool = True

    @property
    def ok(self) -> bool:
        """Whether the status is SendStatus.OK."""
        return self.status is SendStatus.OK
