"""What a client may raise: each error says what is true now and whether trying again can help.

AerobeeError
├─ ConfigurationError (also ValueError)   a name, size or option that can never work
├─ ClientStateError                       used before start, or two things that exclude each other
│  ├─ ClientClosedError                   used after close
│  └─ ForkedClientError                   made in a parent process; its sockets are the parent's
├─ TransportError                         the network: connection refused, lost, silent
│  ├─ ConnectError
│  └─ RequestTimeoutError (also TimeoutError)
├─ NoNameServerError, RouteNotFoundError, BrokerNotFoundError     where to go is not known
├─ BrokerError                            a broker or name server answered with an error code
│  └─ TopicNotFoundError, PermissionDeniedError, BrokerBusyError, … by code, see BY_CODE
├─ SendFailedError, BatchSendError        all tries are used
├─ UndeliveredError                       the same for what was sent in the background
├─ ReplyTimeoutError (also TimeoutError)  nobody answered a request through a topic
├─ TransactionError                       a half that is not stored as it must be
├─ CompressionError                       a body that cannot be unpacked here
├─ RecordDamagedError                     bytes of a broker or a store that are no whole record
├─ MessageNotFoundError                   no broker has the message that was looked for
├─ DataLossError                          messages that were to be read are not there any more
└─ QueueNotAssignedError                  the queue belongs to somebody else now
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.send_result import SendResult

__all__ = [
    "AerobeeError",
    "Attempt",
    "BatchSendError",
    "BrokerBusyError",
    "BrokerError",
    "BrokerNotFoundError",
    "ClientClosedError",
    "ClientStateError",
    "CompressionError",
    "ConfigurationError",
    "ConnectError",
    "ConsumerNotOnlineError",
    "DataLossError",
    "FlowControlError",
    "ForkedClientError",
    "MessageIllegalError",
    "MessageNotFoundError",
    "NoNameServerError",
    "OffsetNotFoundError",
    "PermissionDeniedError",
    "QueueNotAssignedError",
    "RecordDamagedError",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "RouteNotFoundError",
    "SendFailedError",
    "SubscriptionError",
    "TopicNotFoundError",
    "TransactionError",
    "TransportError",
    "UndeliveredError",
    "UnsupportedRequestError",
]


class AerobeeError(Exception):
    """Base of all. What is known of the circumstances, each None where it means nothing.

    `code` is the answer's, or RocketMQ's client code; `remark` the words of the broker or the name
    server; `broker` its name, `address` where it was asked, `topic` what it was asked about.
    """

    code: int | None = None
    retryable: bool = False
    remark: str | None = None
    broker: str | None = None
    address: str | None = None
    topic: str | None = None

    def about(
        self,
        *,
        topic: str | None = None,
        broker: str | None = None,
        address: str | None = None,
        remark: str | None = None,
    ) -> Self:
        """This error, with what is known of the circumstances."""
        self.topic, self.broker = topic or self.topic, broker or self.broker
        self.address, self.remark = address or self.address, remark or self.remark
        return self


class ConfigurationError(AerobeeError, ValueError):
    """A name, size or option that can never work, whatever the broker does."""


class ClientStateError(AerobeeError):
    """The client cannot do this now: not started, or in a mode that excludes it."""


class ClientClosedError(ClientStateError):
    """The client is closed."""


class ForkedClientError(ClientStateError):
    """The client was made before a fork; make it in the process that uses it."""


class TransportError(AerobeeError):
    """The connection was lost or never there; the request may or may not have arrived."""

    retryable = True


class ConnectError(TransportError):
    """Nothing accepts connections at that address."""

    code = 10001


class RequestTimeoutError(TransportError, TimeoutError):
    """No answer in time; the request may still be carried out."""

    code = 10002


class BrokerNotFoundError(AerobeeError):
    """The route names a broker without a usable address."""

    code = 10003
    retryable = True


class NoNameServerError(AerobeeError):
    """No name server is configured, or none of them answers."""

    code = 10004
    retryable = True


class RouteNotFoundError(AerobeeError):
    """No broker serves this topic, and none offers to create it."""

    code = 10005
    retryable = True


class BrokerError(AerobeeError):
    """An error answer: `code` and `remark` as sent, by `broker` at `address`, to `request`."""

    def __init__(
        self,
        code: int,
        remark: str,
        broker: str,
        address: str,
        request: str,
        topic: str | None = None,
    ) -> None:
        about = f" (topic {topic})" if topic else ""
        super().__init__(f"{request}: {broker} at {address} answered {code}: {remark}{about}")
        self.code: int = code
        self.remark: str = remark
        self.broker: str = broker
        self.address: str = address
        self.request = request
        self.topic = topic


class UnsupportedRequestError(BrokerError):
    """The peer does not know this request (3)."""


class MessageIllegalError(BrokerError):
    """The message breaks a rule of the broker (13); the remark says which."""


class PermissionDeniedError(BrokerError):
    """Not allowed here (16)."""


class TopicNotFoundError(BrokerError):
    """The topic does not exist (17)."""


class OffsetNotFoundError(BrokerError):
    """No offset is stored for this group and queue (22)."""


class BrokerBusyError(BrokerError):
    """The broker is too busy (2), cannot write at the moment (14) or stops (1500)."""

    retryable = True


class FlowControlError(BrokerError):
    """The broker slows this client down (215)."""

    retryable = True


class SubscriptionError(BrokerError):
    """The subscription is wrong, unknown or outdated at the broker (23 to 26)."""


class ConsumerNotOnlineError(BrokerError):
    """No member of the group is connected (206)."""


BY_CODE: dict[int, type[BrokerError]] = {
    2: BrokerBusyError,
    3: UnsupportedRequestError,
    13: MessageIllegalError,
    14: BrokerBusyError,
    16: PermissionDeniedError,
    17: TopicNotFoundError,
    22: OffsetNotFoundError,
    23: SubscriptionError,
    24: SubscriptionError,
    25: SubscriptionError,
    26: SubscriptionError,
    206: ConsumerNotOnlineError,
    215: FlowControlError,
    1500: BrokerBusyError,
}


class Attempt(NamedTuple):
    """One try of a send: the broker asked and what came of it."""

    broker: str
    error: AerobeeError


class SendFailedError(AerobeeError):
    """Every allowed try failed; the message may be stored if one of them was lost on the way."""

    retryable = True

    def __init__(self, what: str, attempts: Sequence[Attempt], topic: str | None = None) -> None:
        self.attempts = tuple(attempts)
        self.topic = topic
        counts = Counter(f"{attempt.broker}: {attempt.error}" for attempt in self.attempts)
        tried = "; ".join(text if n == 1 else f"{text} ({n} times)" for text, n in counts.items())
        super().__init__(f"{what} failed after {len(self.attempts)} tries: {tried}")
        if self.attempts:
            last = self.attempts[-1].error
            self.code, self.remark, self.address = last.code, last.remark, last.address
            self.broker = self.attempts[-1].broker


class BatchSendError(AerobeeError):
    """A part of a batch is not stored: `results` has one result or error per message, in order."""

    retryable = True

    def __init__(self, results: Sequence[SendResult | AerobeeError]) -> None:
        self.results = tuple(results)
        errors = [result for result in self.results if isinstance(result, AerobeeError)]
        super().__init__(f"{len(errors)} of {len(self.results)} messages not sent: {errors[0]}")
        first = errors[0]
        self.code, self.remark, self.topic = first.code, first.remark, first.topic
        self.broker, self.address = first.broker, first.address


class UndeliveredError(AerobeeError):
    """What `send_soon` took is not stored, and nobody has asked for its result yet.

    `failed` has each message with its error. Of very many only the last are there: 10,000, and
    no more than `outbox_bytes` holds.
    """

    retryable = True

    def __init__(self, failed: Sequence[tuple[Any, AerobeeError]], more: int = 0) -> None:
        # Any stands for Message, whose module needs this one.
        self.failed = tuple(failed)
        first = self.failed[0][1]
        super().__init__(f"{len(self.failed) + more} messages not sent: {first}")
        self.code, self.remark, self.topic = first.code, first.remark, first.topic
        self.broker, self.address = first.broker, first.address


class ReplyTimeoutError(AerobeeError, TimeoutError):
    """Nobody answered the request in time; it may still be worked on."""

    code = 10006


class TransactionError(AerobeeError):
    """The half of a transaction is not stored as it must be, so there is no transaction."""


class CompressionError(AerobeeError):
    """The body of a message cannot be unpacked: damaged, too large, or a package is missing."""


class DataLossError(AerobeeError):
    """Messages that were to be read are not there any more: expired, or lost with their broker."""


class MessageNotFoundError(AerobeeError):
    """No broker has the message that was looked for: never stored, or deleted since."""

    code = 208


class RecordDamagedError(AerobeeError):
    """Bytes that should be a stored record are none; the text says where and why."""


class QueueNotAssignedError(AerobeeError):
    """This consumer does not hold the queue, or not any more."""
