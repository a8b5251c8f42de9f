"""The blocking front: the names of `aerobee`, with `with` and `for`. No event loop behind it.

Calls run in the caller's thread over plain sockets; one background thread per client does routes,
heartbeats, rebalance and pulls. It works inside notebooks.
"""

from __future__ import annotations

from aerobee.blocking.admin import AdminClient
from aerobee.blocking.client import Client
from aerobee.blocking.producer import Producer
from aerobee.blocking.pull_consumer import PullConsumer
from aerobee.config import ConsumeFrom, RetryPolicy
from aerobee.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus

__all__ = [
    "AdminClient",
    "Client",
    "ConsumeFrom",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "ReceivedMessage",
    "RetryPolicy",
    "SendResult",
    "SendStatus",
]
