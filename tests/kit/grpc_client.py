"""A raw 5.x client: calls with Google's gRPC, messages of our own table."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import grpc

from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.fields import PACKAGE, RPCS, SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 30.0


class GrpcClient:
    """One channel; each call goes with the metadata of a client id."""

    options: tuple[tuple[str, int], ...] = (("grpc.use_local_subchannel_pool", 1),)

    def __init__(self, address: str, client_id: str = "raw", **metadata: str) -> None:
        self.channel = grpc.insecure_channel(address, self.options)
        given = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON", **metadata}
        given.setdefault("x-mq-client-version", "5.1.2")
        self.metadata = [(name, value) for name, value in given.items() if value]

    def __enter__(self) -> GrpcClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def method(self, name: str) -> Any:
        """The callable of a call."""
        rpc = RPCS[name]
        kind = f"{'stream' if rpc.requests else 'unary'}_{'stream' if rpc.answers else 'unary'}"
        return getattr(self.channel, kind)(
            f"/{PACKAGE}.{SERVICE}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages, rpc.answer).FromString,
        )

    def call(self, name: str, *, timeout_s: float = TIMEOUT_S, **fields: Any) -> Any:
        """One call; a list where the answer is a stream."""
        request = getattr(messages, RPCS[name].request)(**fields)
        answer = self.method(name)(request, timeout=timeout_s, metadata=self.metadata)
        return list(answer) if RPCS[name].answers else answer

    def telemetry(self) -> Stream:
        """A Telemetry stream."""
        return Stream(self)


class TlsClient(GrpcClient):
    """One that speaks TLS, and trusts one certificate alone."""

    def __init__(self, address: str, trusted: bytes) -> None:
        """`trusted`: in PEM form."""
        super().__init__(address)
        self.channel.close()
        trust = grpc.ssl_channel_credentials(trusted)
        self.channel = grpc.secure_channel(address, trust, self.options)


class NarrowClient(GrpcClient):
    """One that has room for 64 KiB of what it was not asked to read."""

    options = (
        *GrpcClient.options,
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 65_535),
    )


class Stream:
    """A Telemetry stream that is open."""

    def __init__(self, client: GrpcClient) -> None:
        self._sent: queue.Queue[Any] = queue.Queue()
        self.answers = client.method("Telemetry")(self._sending(), metadata=client.metadata)

    def _sending(self) -> Iterator[Any]:
        while (command := self._sent.get()) is not None:
            yield command

    def send(self, **command: Any) -> None:
        """Send a command."""
        self._sent.put(messages.TelemetryCommand(**command))

    def next(self) -> Any:
        """The next command of the server."""
        return next(self.answers)

    def settings(self, settings: Any) -> Any:
        """Send settings; the answer."""
        self.send(settings=settings)
        return self.next()

    def end(self) -> None:
        """End it."""
        self._sent.put(None)
