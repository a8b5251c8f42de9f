"""Aerobee: a client for RocketMQ brokers, on asyncio, on trio, and blocking (`aerobee.blocking`).

The names below are the promise; `aerobee.errors` and `aerobee.allocation` are public beside them.
They load when first used, so that `aerobee broker run` starts without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.admin import AdminClient
    from aerobee.arrow_table import arrow, arrow_reader
    from aerobee.client import Client
    from aerobee.config import ConsumeFrom, RetryPolicy
    from aerobee.message import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
    from aerobee.producer import Producer
    from aerobee.pull_consumer import PullConsumer

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
    "arrow",
    "arrow_reader",
]

HOMES = {
    "AdminClient": "aerobee.admin",
    "Client": "aerobee.client",
    "ConsumeFrom": "aerobee.config",
    "Message": "aerobee.message",
    "MessageQueue": "aerobee.message",
    "Producer": "aerobee.producer",
    "PullConsumer": "aerobee.pull_consumer",
    "ReceivedMessage": "aerobee.message",
    "RetryPolicy": "aerobee.config",
    "SendResult": "aerobee.message",
    "SendStatus": "aerobee.message",
    "arrow": "aerobee.arrow_table",
    "arrow_reader": "aerobee.arrow_table",
}


def __getattr__(name: str) -> Any:
    """A promised name, from the module that is its home."""
    if name not in HOMES:
        raise AttributeError(f"module 'aerobee' has no attribute {name!r}")
    value = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
