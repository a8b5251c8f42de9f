"""One RPC being served: what it was asked, and the forms of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from aerobee.broker.grpc.caller import GrpcCaller
from aerobee.broker.grpc.translation.refusal import OK_TEXT, RpcRefused
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.server.turns import Turns

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator

    from aerobee.broker.grpc.door import Door
    from aerobee.broker.grpc.translation.signature import Signer
    from aerobee.remoting.grpc.calls import Call
    from aerobee.remoting.server.grpc_serving import GrpcChannel
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.header import Header

T = TypeVar("T")


class Rpc(GrpcCaller):
    """An RPC with one request; `call` is where its answer goes, of the class `answers`."""

    __slots__ = ("answers", "call", "given", "left")

    def __init__(
        self, door: Door, channel: GrpcChannel, signer: Signer, call: Call, answers: Any
    ) -> None:
        super().__init__(door, channel, signer=signer)
        self.call = call
        self.answers = answers
        self.left: Any = None
        """The answers that have no room in its stream yet."""
        self.given: Any = None
        """The messages that the broker hides again and again, for a client that may not have got
        them.
        """

    def done(self, **fields: Any) -> None:
        """Answer with success."""
        self.say(self.answers(status=OK, **fields))

    def refused(self, error: RpcRefused) -> None:
        """Answer with what is wrong."""
        self.say(self.answers(status=status_of(error.code, error.text)))

    def say(self, answer: Any) -> None:
        """Give the only answer."""
        self.call.answer(answer.SerializeToString())
        self.wrote()

    def send_in_turns(
        self, left: deque[T], answer: Callable[[T], bytes | None]
    ) -> Generator[None, None, bool]:
        """Send an answer for each of what is left while there is room in the stream, in turns with
        others; whether nothing is left. An answer of None is not sent. Of a call that is over the
        rest stays, though nobody may have been told of its end yet.
        """
        turns = Turns()
        while left and not self.call.over:
            data = answer(left.popleft())
            if data is None:
                continue
            if not self.call.send(data) and left:
                self.wrote()
                return False
            if turns.over:
                self.wrote()
                yield
                turns = Turns()
        return not left

    def broken(self, text: str) -> None:
        self.call.finish(StatusCode.INTERNAL, text)

    def request(self, header: Header, then: Callable[[Answer], None], *, body: bytes = b"") -> None:
        """Make a request of the broker whose refusal ends the RPC."""
        self.ask_or_refuse(header, then, self.refused, body=body)


class Results:
    """The results of the entries of a request, which come in any order."""

    __slots__ = ("_missing", "all")

    def __init__(self, count: int) -> None:
        self.all: list[Any] = [None] * count
        """In the order of the entries."""
        self._missing = count

    def put(self, number: int, result: Any) -> bool:
        """Take the result of an entry, once; whether it is the last one."""
        assert self.all[number] is None
        self.all[number] = result
        self._missing -= 1
        return not self._missing


def status_of(code: Code, text: str = OK_TEXT) -> Any:
    """A status with a text for the person who reads it."""
    return messages.Status(code=code, message=text)


OK: Final = status_of(Code.OK)
"""The status of success: a message that gets it as a field has a copy."""


def common_status(statuses: list[Any]) -> Any:
    """The status of a request by those of its entries: the one that they share, if they do."""
    if len(statuses) == 1:
        return statuses[0]
    codes = {status.code for status in statuses}
    if len(codes) == 1:
        return statuses[0]
    return status_of(Code.MULTIPLE_RESULTS, Code.MULTIPLE_RESULTS.name)
