"""Aerobee: a client for RocketMQ brokers, on asyncio, on trio, and blocking (`aerobee.blocking`).

The names below are the public API; `aerobee.admin`, `aerobee.allocation` and `aerobee.errors` are
public, too. They load on first use, so that `aerobee broker run` starts without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.client.aio.admin import AdminClient
    from aerobee.client.aio.client import Client
    from aerobee.client.aio.pending_send import PendingSend
    from aerobee.client.aio.pop_consumer import PopConsumer
    from aerobee.client.aio.producer import Producer
    from aerobee.client.aio.pull_consumer import PullConsumer
    from aerobee.client.aio.push_consumer import PushConsumer
    from aerobee.client.aio.transaction_producer import TransactionProducer
    from aerobee.client.filters import Filter
    from aerobee.client.handling import (
        BatchFailed,
        ConsumeResult,
        MessageModel,
        Reject,
        RetryLater,
    )
    from aerobee.client.message import Message, ReceivedMessage
    from aerobee.client.security import Credentials, TLSConfig
    from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
    from aerobee.client.settings.client import ConsumeFrom, RetryPolicy
    from aerobee.client.transaction import Transaction, TransactionResult, TransactionState
    from aerobee.spark.arrow_table import arrow, arrow_reader

    __version__: str
    """The version of the distribution."""

__all__ = [
    "AdminClient",
    "BatchFailed",
    "Client",
    "ConsumeFrom",
    "ConsumeResult",
    "Credentials",
    "Filter",
    "Message",
    "MessageModel",
    "MessageQueue",
    "PendingSend",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "SendResult",
    "SendStatus",
    "TLSConfig",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "arrow",
    "arrow_reader",
]

HOMES = {
    "AdminClient": "aerobee.client.aio.admin",
    "BatchFailed": "aerobee.client.handling",
    "Client": "aerobee.client.aio.client",
    "ConsumeFrom": "aerobee.client.settings.client",
    "Credentials": "aerobee.client.security",
    "Filter": "aerobee.client.filters",
    "ConsumeResult": "aerobee.client.handling",
    "Message": "aerobee.client.message",
    "MessageModel": "aerobee.client.handling",
    "MessageQueue": "aerobee.client.send_result",
    "PendingSend": "aerobee.client.aio.pending_send",
    "PopConsumer": "aerobee.client.aio.pop_consumer",
    "Producer": "aerobee.client.aio.producer",
    "PullConsumer": "aerobee.client.aio.pull_consumer",
    "PushConsumer": "aerobee.client.aio.push_consumer",
    "ReceivedMessage": "aerobee.client.message",
    "Reject": "aerobee.client.handling",
    "RetryLater": "aerobee.client.handling",
    "RetryPolicy": "aerobee.client.settings.client",
    "SendResult": "aerobee.client.send_result",
    "SendStatus": "aerobee.client.send_result",
    "TLSConfig": "aerobee.client.security",
    "Transaction": "aerobee.client.transaction",
    "TransactionProducer": "aerobee.client.aio.transaction_producer",
    "TransactionResult": "aerobee.client.transaction",
    "TransactionState": "aerobee.client.transaction",
    "arrow": "aerobee.spark.arrow_table",
    "arrow_reader": "aerobee.spark.arrow_table",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name == "__version__":
        return import_module("importlib.metadata").version("aerobee")
    if name not in HOMES:
        raise AttributeError(f"module 'aerobee' has no attribute {name!r}")
    value = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
