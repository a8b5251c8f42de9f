"""The errors of clients: each says what happened and whether a retry can help.

AerobeeError
├─ ConfigurationError (also ValueError)   a name, size or option that can never work
│  └─ GroupNotFoundError                  no broker knows the consumer group
├─ ClientStateError                       used before start, or in a mode that excludes it
│  ├─ ClientClosedError                   used after close
│  └─ ForkedClientError                   made in a parent process; its sockets are the parent's
├─ TransportError                         the network: connection refused, lost, silent
│  ├─ ConnectError
│  └─ RequestTimeoutError (also TimeoutError)
├─ NoNameServerError, RouteNotFoundError, BrokerNotFoundError     no address for the request
├─ BrokerError                            a broker or name server answered with an error code
│  ├─ TopicNotFoundError, PermissionDeniedError, BrokerBusyError, … by code, see BY_CODE
│  └─ AccessDeniedError                   a PermissionDeniedError: access control refused it
├─ SendFailedError, BatchSendError        all tries have failed
├─ UndeliveredError                       the same for what was sent in the background
├─ ReplyTimeoutError (also TimeoutError)  no reply to a request through a topic
├─ TransactionError                       a half message that is not stored safely
├─ CompressionError                       a body that cannot be decompressed here
│  └─ MessageUnreadableError              the next message of a pull consumer has such a body
├─ RecordDamagedError                     bytes of a broker or a store that are not a valid record
├─ MessageNotFoundError                   no broker has the requested message
├─ DataLossError                          messages in the requested range no longer exist
└─ QueueNotAssignedError                  another member has the queue now
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aerobee.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.client.send_result import SendResult

__all__ = [
    "AccessDeniedError",
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
    "GroupNotFoundError",
    "MessageIllegalError",
    "MessageNotFoundError",
    "MessageUnreadableError",
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


class PortableError:
    """A mixin for exceptions that pickle whole, whatever their constructor takes.

    An exception of a worker process reaches its pool by pickle; one that does not break it there.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self, BaseException)
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[BaseException], args: tuple[object, ...]) -> BaseException:
    """An exception of a pickle, without a call of its constructor: its fields follow."""
    return kind.__new__(kind, *args)


class AerobeeError(PortableError, Exception):
    """The base of all errors. Its fields describe the circumstances; None where one does not apply.

    `code` is that of the response, or RocketMQ's client code; `remark` the text of the broker or
    name server; `broker` its name, `address` the one of the request, `topic` that of the request.
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
        """Add known circumstances to this error, and return it."""
        self.topic, self.broker = topic or self.topic, broker or self.broker
        self.address, self.remark = address or self.address, remark or self.remark
        return self


class ConfigurationError(AerobeeError, ValueError):
    """A name, size or option that can never work, whatever the broker does."""


class GroupNotFoundError(ConfigurationError):
    """No broker knows the consumer group."""


class ClientStateError(AerobeeError):
    """An operation that the client's state excludes: not started, or another mode in use."""


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
    """A request without a response in time; the broker may still process it."""

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
    """An error response: `code` and `remark` as sent, by `broker` at `address`, to `request`."""

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
    """The broker does not allow it (16): to this user, see `AccessDeniedError`, or to nobody, such
    as a send while the broker is not writable.
    """


class AccessDeniedError(PermissionDeniedError):
    """Access control refused it: the user may not, or its signature is wrong (16; 1 of ACL 1.0)."""


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
    """One try of a send: its broker and its error."""

    broker: str
    error: AerobeeError


class SendFailedError(AerobeeError):
    """Every allowed try failed; the message may still be stored if only a response was lost."""

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
        super().__init__(
            f"{len(errors)} of {counted(len(self.results), 'message')} not sent: {errors[0]}"
        )
        first = errors[0]
        self.code, self.remark, self.topic = first.code, first.remark, first.topic
        self.broker, self.address = first.broker, first.address


class UndeliveredError(AerobeeError):
    """Messages of `send_soon` that are not stored, and whose results nobody has awaited yet.

    `failed` has each message with its error; of very many only the last 10,000, and no more than
    `outbox_bytes` holds.
    """

    retryable = True

    def __init__(self, failed: Sequence[tuple[Any, AerobeeError]], more: int = 0) -> None:
        # Any stands for Message, whose module needs this one.
        self.failed = tuple(failed)
        first = self.failed[0][1]
        super().__init__(f"{counted(len(self.failed) + more, 'message')} not sent: {first}")
        self.code, self.remark, self.topic = first.code, first.remark, first.topic
        self.broker, self.address = first.broker, first.address


class ReplyTimeoutError(AerobeeError, TimeoutError):
    """A request through a topic without a reply in time; a consumer may still process it."""

    code = 10006


class TransactionError(AerobeeError):
    """The half message of a transaction is not stored safely, so there is no transaction."""


class CompressionError(AerobeeError):
    """The body of a message cannot be decompressed: damaged, too large, or a package is missing."""


class MessageUnreadableError(CompressionError):
    """The body of the next message of a queue cannot be decompressed.

    `message` is that message, with its body as it is stored. `done(error.message)` goes on behind
    it.
    """

    def __init__(self, message: Any) -> None:
        # Any stands for ReceivedMessage, whose module needs this one.
        super().__init__(
            f"message in {message.queue} at {message.queue_offset}: {message.unreadable}"
        )
        self.message = message
        self.topic, self.broker = message.topic, message.queue.broker_name
        self.address = message.store_host


class DataLossError(AerobeeError):
    """Messages in the requested range no longer exist: expired, or lost with their broker."""


class MessageNotFoundError(AerobeeError):
    """No broker has the requested message: it was never stored, or has been deleted."""

    code = 208


class RecordDamagedError(AerobeeError):
    """Bytes that are not a valid stored record; the text says where and why."""


class QueueNotAssignedError(AerobeeError):
    """The consumer does not hold the queue, or no longer does."""
