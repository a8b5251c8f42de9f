"""What a send gives: where the message is stored, and how safely. Imports nothing of ours."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

__all__ = ["MessageQueue", "SendResult", "SendStatus"]


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Sorts as every RocketMQ client sorts queues."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


class SendStatus(Enum):
    """How safe a stored message is. The values are the answer's codes."""

    OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message is stored; `ok` tells whether as safely as the broker is set up to.

    `attempts` above 1 means an earlier try failed and may have stored a second copy. With
    `recall_handle` a delayed message can be taken back; brokers before 5.3.2 give none. `traced`
    is false where the broker wants no message trace.
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
        """True for SendStatus.OK only."""
        return self.status is SendStatus.OK
