"""The refusals of the broker, and why.

BrokerError
├── Refusal(code, remark)          the end of one request: the answer that is sent
│   ├── NameIllegal                a topic or group name breaks the rule of names       29
│   ├── TopicNotExist              the topic is unknown and may not be created          17
│   ├── GroupNotExist              the group is unknown and may not be created          26
│   ├── NoPermission               the broker, the topic or the group forbids it        16
│   ├── FilterInvalid              a subscription's expression does not parse           23
│   ├── PropertyFilterOff          a filter in SQL, and `enablePropertyFilter` is off    1
│   ├── AttributesIllegal          an attribute edit that cannot be applied              1
│   ├── PutPostponed               the log cannot roll yet: served again when it can     14
│   ├── MessageUnreadable          the disk cannot read the first message of a read       1
│   ├── LimitReached               a table is full: its limit is named                   1
│   ├── TooFast                    clients create topics or groups too fast: retry later  2
│   ├── TopicTooFast               clients send to the topic faster than it may: retry later  2
│   └── GroupTooFast               the group receives faster than it may: retry later         215
└── TableDamaged                   a table's file and its backup both do not decode: no start

A `Refusal` has its response code, so no table maps it to an answer. All other errors of a request
come from `store.errors` and `remoting.errors`.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Final

from aerobee.remoting.errors import RemotingError, RequestPostponed
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.store.errors import CONTENT_ERRORS as STORED_CONTENT_ERRORS

if TYPE_CHECKING:
    from aerobee.remoting.wire.header import Header
    from aerobee.store.results import Location


class BrokerError(Exception):
    """The root of the errors of this package."""


class Refusal(BrokerError):
    """Ends the request with `code` and a remark for the person who reads it.

    `header` is sent with it where a refusal has fields of its own.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = int(code)
        self.remark = remark
        self.header: Header | None = None


class NameIllegal(Refusal):
    """A topic or group name is blank, too long or has a character outside the allowed set."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.INVALID_PARAMETER, remark)


class TopicNotExist(Refusal):
    """The topic has no configuration here and none could be created."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please!",
        )


class GroupNotExist(Refusal):
    """The consumer group has no configuration here and none could be created."""

    def __init__(self, group: str) -> None:
        super().__init__(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{group}] does not exist",
        )


class NoPermission(Refusal):
    """The broker, the topic or the group does not allow it."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)


class FilterInvalid(Refusal):
    """The expression of a subscription does not parse, or is beyond a limit; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(ResponseCode.SUBSCRIPTION_PARSE_FAILED, reason)


class PropertyFilterOff(Refusal):
    """The subscription is not by tags, and other filters are disabled."""

    def __init__(self, expression_type: str | None) -> None:
        super().__init__(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )


class AttributesIllegal(Refusal):
    """An edit of topic attributes that cannot be applied."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class LimitReached(Refusal):
    """A table is full. The remark names the limit, and how to make room where that is possible.

    `key` is the setting with the limit, if there is one.
    """

    def __init__(self, what: str, limit: int, remedy: str = "", *, key: str = "") -> None:
        bound = f"{key} is {limit}" if key else f"{limit} is the limit"
        words = f"no room for another {what}: {bound}"
        super().__init__(ResponseCode.SYSTEM_ERROR, f"{words}; {remedy}" if remedy else words)


class TooFast(Refusal):
    """Clients create topics or groups faster than is allowed; retry later."""

    def __init__(self, what: str, per_s: float) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"no new {what} now: autoCreateRate is {per_s} per second; try again later",
        )


class TopicTooFast(Refusal):
    """Clients send to a topic faster than its attribute `key` allows; retry later."""

    def __init__(self, topic: str, key: str, per_s: int, unit: str) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"topic [{topic}] takes {per_s} {unit} per second ({key}), and they are used up: wait",
        )


class GroupTooFast(Refusal):
    """A group receives faster than its attribute `key` allows; its members ask again by
    themselves, soon.
    """

    def __init__(self, group: str, key: str, per_s: int, unit: str) -> None:
        super().__init__(
            ResponseCode.FLOW_CONTROL,
            f"group [{group}] gets {per_s} {unit} per second ({key}), and they are used up: wait",
        )


class MessageUnreadable(Refusal):
    """The disk cannot read the message that a group has come to: it stays in front of it, until it
    can be read, or somebody moves the group.
    """

    def __init__(self, group: str, broker: str, location: Location, error: OSError) -> None:
        topic, queue_id, at, _ = location
        place = f"{quote(topic)} --queue {quote(f'{broker}:{queue_id}')}"
        super().__init__(
            ResponseCode.SYSTEM_ERROR,
            f"the disk cannot read the message at offset {at} of queue {queue_id} of {topic}"
            f" ({error}): restore its file from a copy, or pass over this message with `aerobee"
            f" group reset {quote(group)} {place} --to offset:{at + 1}`",
        )


class PutPostponed(Refusal, RequestPostponed):
    """The next segment of the log is not there yet, and the request has had no effect.

    A request that runs in a round is served again; for any other this is the answer.
    """

    REMARK: Final = "service not available now: the next segment of the log is still being made"

    def __init__(self) -> None:
        super().__init__(ResponseCode.SERVICE_NOT_AVAILABLE, self.REMARK)


class TableDamaged(BrokerError):
    """A table's file is lost and its backup does not decode: a start would lose its content.

    The message names the file and the remedy.
    """


CONTENT_ERRORS: Final = (*STORED_CONTENT_ERRORS, BrokerError, RemotingError)
"""Errors about one message, not about the broker: a service sets the message aside and
continues."""


WITHOUT_TEXT: Final = {"TooSlowError": "no answer in time"}
"""The words for errors that have none, by their names."""


def first_reason(error: BaseException) -> str:
    """The text of the first error in a group, which may be nested."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name = type(error).__name__
    return str(error) or WITHOUT_TEXT.get(name, name)
