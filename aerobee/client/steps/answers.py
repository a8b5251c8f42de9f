"""Reads responses: only this module turns error codes into exceptions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from aerobee.errors import (
    BY_CODE,
    AccessDeniedError,
    BrokerError,
    PermissionDeniedError,
    TransportError,
)
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Ask
    from aerobee.remoting.wire.bodies.body import Body
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

H = TypeVar("H", bound="Header")


B = TypeVar("B", bound="Body")
ACL_REFUSAL = "org.apache.rocketmq.acl.common.AclException"
"""ACL 1.0 refuses with SYSTEM_ERROR, and a remark that begins with this class."""
ACCESS_CONTROL: Final = re.compile(
    r"^(org\.apache\.rocketmq\.(acl|auth)\.|check signature failed|username cannot be null"
    r"|User:\S* (has no permission to access|is not found|not found|is disabled)"
    r"|The super user can only be|client id .* of another account)"
)
"""The words of access control, here and in RocketMQ; other refusals with NO_PERMISSION are about
the broker, a topic or a group.

Source: semantics §18.3 (AuthenticationException, AuthorizationException).
"""


def expect(ask: Ask, answer: Command, peer: str) -> Command:
    """The response, if its code is SUCCESS. Raises: BrokerError."""
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(ask, answer, peer)
    return answer


def error_of(ask: Ask, answer: Command, peer: str) -> BrokerError:
    """The exception for an error response of `peer`, a broker name or "name server".

    Refusals of ACL 1.0 are given the code of all others, NO_PERMISSION.
    """
    code, remark = answer.code, (answer.remark or _name(ResponseCode, answer.code)).strip()
    if remark.startswith(ACL_REFUSAL):
        code = int(ResponseCode.NO_PERMISSION)
    made = BY_CODE.get(code, BrokerError)
    if made is PermissionDeniedError and ACCESS_CONTROL.search(remark):
        made = AccessDeniedError
    return made(code, remark, peer, ask.address, request_name(ask), topic_of(ask))


def header_of(ask: Ask, answer: Command, kind: type[H]) -> H:
    """The header of a response. Raises: TransportError if it violates the protocol."""
    try:
        return answer.header(kind)
    except RemotingError as error:
        raise _senseless(ask, error) from error


def body_of(ask: Ask, answer: Command, kind: type[B]) -> B:
    """The body of a response. Raises: TransportError if it violates the protocol."""
    try:
        return kind.from_bytes(answer.body)
    except RemotingError as error:
        raise _senseless(ask, error) from error


def _senseless(ask: Ask, error: RemotingError) -> TransportError:
    text = f"{request_name(ask)}: {ask.address} answered nonsense: {error}"
    return TransportError(text).about(topic=topic_of(ask), address=ask.address)


def request_name(ask: Ask) -> str:
    """RocketMQ's name of the request, for error texts."""
    return _name(RequestCode, ask.header.code)


def topic_of(ask: Ask) -> str | None:
    """The topic in a request, if it has one."""
    topic: str | None = getattr(ask.header, "topic", None)
    return topic


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)
