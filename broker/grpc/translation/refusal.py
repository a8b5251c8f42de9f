"""The refusals in the codes of the 5.x clients: our own checks, and answers of the broker.

A client retries INTERNAL_SERVER_ERROR at once, and TOO_MANY_REQUESTS after a while; the other codes
it hands to its user. Source: grpc §2.11 (ResponseBuilder).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.access.authority import NOBODY, NOT_SIGNED
from aerobee.broker.access.plain_authority import EXCEPTION, NO_KEY, WRONG_SIGNATURE
from aerobee.broker.errors import BrokerError
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.wire.answer import Answer

OK_TEXT: Final = "OK"
SHOWN_CHARACTERS: Final = 100
"""How much of a wrong text is repeated to the client."""

CODES: Final[Mapping[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.PULL_NOT_FOUND: Code.MESSAGE_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY: Code.MESSAGE_NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT: Code.MESSAGE_NOT_FOUND,
    ResponseCode.PULL_OFFSET_MOVED: Code.ILLEGAL_OFFSET,
    ResponseCode.QUERY_NOT_FOUND: Code.OFFSET_NOT_FOUND,
}
"""Response codes of the broker; any other is INTERNAL_SERVER_ERROR."""

NO_MESSAGE: Final = "no new message"


class RpcRefused(BrokerError):
    """Ends a call, or one entry of it, with a code and a text for the person who reads it."""

    def __init__(self, code: Code, text: str, *, topic: str = "") -> None:
        """`topic`: the one of which it tells what is not for everybody."""
        super().__init__(text)
        self.code = code
        self.text = text
        self.topic = topic


def outcome(answer: Answer) -> tuple[Code, str]:
    """Code and text of an answer of the broker."""
    code = CODES.get(answer.code, Code.INTERNAL_SERVER_ERROR)
    if code is Code.OK:
        return code, OK_TEXT
    if code is Code.FORBIDDEN and answer.remark in (NOBODY, NOT_SIGNED):
        code = Code.UNAUTHORIZED
    if answer.remark is not None and answer.remark.startswith(EXCEPTION):
        # To clients of remoting ACL 1.0 answers a system error; here it would be tried again.
        text = answer.remark.removeprefix(EXCEPTION)
        signed = not text.startswith((NO_KEY, WRONG_SIGNATURE))
        return (Code.FORBIDDEN if signed else Code.UNAUTHORIZED), text
    if code is Code.MESSAGE_NOT_FOUND:
        return code, NO_MESSAGE
    return code, answer.remark or code.name


def quoted(text: str) -> str:
    """The beginning of a text that a client sent, so that it can be shown."""
    return repr(text[:SHOWN_CHARACTERS])
