"""The services of the port: MessagingService, and what tools and old clients ask beside it.

Neither of the others reads or changes anything of the broker, so they ask for no account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from aerobee.remoting.grpc.calls import Method, Shape
from aerobee.remoting.grpc.status import StatusCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.remoting.grpc.calls import Call
    from aerobee.remoting.server.grpc_serving import CallService, GrpcChannel

REFLECTION: Final = Method("ServerReflectionInfo", Shape.BOTH_STREAM, short=True)
EXPORT: Final = Method("Export", Shape.UNARY, short=True)
METHODS: Final[Mapping[bytes, Method]] = {
    b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": REFLECTION,
    b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": REFLECTION,
    b"/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": EXPORT,
}
QUESTION_BYTES_MAX: Final = 4_096
"""The longest question of reflection, which its answer repeats."""


class Services:
    """All services; each call goes to the one whose method it is."""

    def __init__(self, messaging: CallService) -> None:
        self._messaging = messaging
        self._others: Mapping[str, CallService] = {
            REFLECTION.name: Reflection(),
            EXPORT.name: ClientMetrics(),
        }

    def _of(self, call: Call) -> CallService:
        return self._others.get(call.method.name, self._messaging)

    def opened(self, channel: GrpcChannel, call: Call) -> None:
        """A stream in both directions has begun."""
        self._of(call).opened(channel, call)

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        """A request has come, or the next message of a stream."""
        self._of(call).received(channel, call, message)

    def half_closed(self, call: Call) -> None:
        """The client sends nothing more on a stream."""
        self._of(call).half_closed(call)

    def room_again(self, call: Call) -> None:
        """There is room for more answers."""
        self._of(call).room_again(call)

    def over(self, call: Call) -> None:
        """The call has ended."""
        self._of(call).over(call)


class Quiet:
    """A service that remembers nothing."""

    def opened(self, channel: GrpcChannel, call: Call) -> None:
        """Note that the client has spoken."""
        channel.context.shared.heard(channel)

    def half_closed(self, call: Call) -> None:
        """End the stream."""
        call.finish()

    def room_again(self, call: Call) -> None:
        """Nothing waits for room."""

    def over(self, call: Call) -> None:
        """Nothing was kept."""


class Reflection(Quiet):
    """The questions of tools about calls and messages, each answered at once."""

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        """Answer a question. A client that asks on and on and reads nothing is not waited for."""
        if len(message) > QUESTION_BYTES_MAX:
            text = f"a question of {len(message)} bytes, {QUESTION_BYTES_MAX} are taken"
            call.finish(StatusCode.INVALID_ARGUMENT, text)
            return
        # Loaded with the first question: few brokers are ever asked one.
        from aerobee.remoting.grpc.reflection import answer_to

        try:
            answer = answer_to(message)
        except DecodeError:
            call.finish(StatusCode.INVALID_ARGUMENT, "the question is no ServerReflectionRequest")
            return
        if not call.send(answer):
            call.finish(StatusCode.RESOURCE_EXHAUSTED, "the answers before are not read")


class ClientMetrics(Quiet):
    """The metrics of clients that consume only if they may send them: taken, and not kept."""

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        """Accept them. The answer has no fields."""
        channel.context.shared.heard(channel)
        call.answer(b"")
