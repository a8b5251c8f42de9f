"""The blocking front: the names of `aerobee`, with `with` and `for`. No event loop behind it.

Calls run in the caller's thread over plain sockets; one background thread per client does routes,
heartbeats, rebalance and pulls. It works inside notebooks.
"""

from __future__ import annotations

from aerobee.client.blocking.admin import AdminClient
from aerobee.client.blocking.client import Client
from aerobee.client.blocking.pending_send import PendingSend
from aerobee.client.blocking.pop_consumer import PopConsumer
from aerobee.client.blocking.producer import Producer
from aerobee.client.blocking.pull_consumer import PullConsumer
from aerobee.client.blocking.push_consumer import PushConsumer
from aerobee.client.blocking.transaction_producer import TransactionProducer
from aerobee.client.filters import Filter
from aerobee.client.handling import BatchFailed, ConsumeResult, MessageModel, Reject, RetryLater
from aerobee.client.message import Message, ReceivedMessage
from aerobee.client.security import Credentials, TLSConfig
from aerobee.client.send_result import MessageQueue, SendResult, SendStatus
from aerobee.client.settings.client import ConsumeFrom, RetryPolicy
from aerobee.client.transaction import Transaction, TransactionResult, TransactionState

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
]
