"""The calls of Google's grpcio, over a real socket; and its server beside ours."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from aerobee.remoting.grpc.calls import (
    Call,
    CallEvent,
    CallOpened,
    CallOver,
    ConnectionOver,
    HalfClosed,
    MessageReceived,
    Method,
    Over,
    RoomAgain,
    Shape,
)
from aerobee.remoting.grpc.framing import framed
from aerobee.remoting.grpc.status import StatusCode
from tests.kit.grpc_shell import MESSAGE_MAX, serving
from tests.kit.http2_client import POST, Http2Client
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = {
    f"/test.Service/{name}".encode(): Method(name, shape)
    for name, shape in (
        ("Echo", Shape.UNARY),
        ("Fail", Shape.UNARY),
        ("Never", Shape.UNARY),
        ("Many", Shape.ANSWER_STREAM),
        ("Talk", Shape.BOTH_STREAM),
    )
}
MIB = 1 << 20
WITHIN_S = 60
UNLIMITED = [("grpc.max_receive_message_length", -1)]


class Handler:
    """Echoes; `Many` sends as many MiB as the request says, with the windows of its client."""

    def __init__(self) -> None:
        self.left: dict[Call, int] = {}
        self.over: list[tuple[str, Over]] = []
        self.metadata: list[tuple[str, bytes | None]] = []

    def __call__(self, event: CallEvent) -> None:
        match event:
            case MessageReceived(call, message):
                self.metadata.append(
                    (call.head.text(b"x-mq-client-id"), call.head.binary(b"trace-bin"))
                )
                if call.method.name == "Echo":
                    call.answer(message)
                elif call.method.name == "Fail":
                    call.finish(StatusCode.FAILED_PRECONDITION, message.decode())
                elif call.method.name == "Many":
                    self.left[call] = int(message)
                    self.more(call)
                elif call.method.name == "Talk":
                    call.send(message)
            case HalfClosed(call):
                call.finish()
            case RoomAgain(call):
                self.more(call)
            case CallOver(call, why):
                self.over.append((call.method.name, why))
            case CallOpened() | ConnectionOver():
                pass

    def more(self, call: Call) -> None:
        """Send as long as there is room."""
        room = True
        while room and self.left[call]:
            self.left[call] -= 1
            room = call.send(bytes(MIB))
        if not self.left[call]:
            call.finish()


@pytest.fixture
def server() -> Iterator[tuple[int, Handler]]:
    handler = Handler()
    with serving(METHODS, handler) as port:
        yield port, handler


@pytest.fixture
def channel(server: tuple[int, Handler]) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server[0]}", options=UNLIMITED) as channel:
        yield channel


def unary(channel: grpc.Channel, name: str) -> Any:
    return channel.unary_unary(f"/test.Service/{name}")


# ── Its client, our server ──


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_536, MIB, 4 * MIB])
def test_requests_of_any_size(channel: grpc.Channel, size: int) -> None:
    message = bytes(size)

    assert unary(channel, "Echo")(message, timeout=WITHIN_S) == message


def test_many_calls_at_once(channel: grpc.Channel) -> None:
    echo = unary(channel, "Echo")
    futures = [echo.future(b"%d" % number, timeout=WITHIN_S) for number in range(500)]

    assert [future.result() for future in futures] == [b"%d" % n for n in range(500)]


def test_metadata(server: tuple[int, Handler], channel: grpc.Channel) -> None:
    metadata = (("x-mq-client-id", "host@1"), ("trace-bin", b"\0\1\xff"))
    unary(channel, "Echo")(b"", timeout=WITHIN_S, metadata=metadata)

    assert server[1].metadata == [("host@1", b"\0\1\xff")]


def test_a_status_with_any_text(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        unary(channel, "Fail")("größer\n100 %".encode(), timeout=WITHIN_S)

    assert failed.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert failed.value.details() == "größer\n100 %"


def test_an_unknown_method(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        unary(channel, "Nothing")(b"", timeout=WITHIN_S)

    assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert failed.value.details() == "Method test.Service/Nothing is unimplemented"


def test_a_message_that_is_too_large(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        unary(channel, "Echo")(bytes(MESSAGE_MAX + 1), timeout=WITHIN_S)

    assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert unary(channel, "Echo")(b"on", timeout=WITHIN_S) == b"on", "the connection goes on"


def test_a_client_that_compresses_is_told_what_is_taken(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        unary(channel, "Echo")(bytes(10_000), timeout=WITHIN_S, compression=grpc.Compression.Gzip)

    assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "grpc-encoding gzip is not supported" in str(failed.value.details())


def test_a_stream_of_answers_waits_for_the_windows_of_the_client(channel: grpc.Channel) -> None:
    many = channel.unary_stream("/test.Service/Many")

    assert [len(one) for one in many(b"64", timeout=WITHIN_S)] == [MIB] * 64


def test_a_stream_in_both_directions(channel: grpc.Channel) -> None:
    talk = channel.stream_stream("/test.Service/Talk")
    said = [b"%d" % number * 1_000 for number in range(200)]

    assert list(talk(iter(said), timeout=WITHIN_S)) == said


def test_a_deadline_ends_the_call_on_both_sides(
    server: tuple[int, Handler], channel: grpc.Channel
) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        unary(channel, "Never")(b"", timeout=0.2)

    assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: server[1].over, within_s=WITHIN_S, what="the end of the call")
    assert server[1].over[0][0] == "Never"


def test_a_client_that_cancels(server: tuple[int, Handler], channel: grpc.Channel) -> None:
    future = unary(channel, "Never").future(b"", timeout=WITHIN_S)
    eventually(lambda: server[1].metadata, within_s=WITHIN_S, what="the call")
    future.cancel()

    eventually(lambda: server[1].over, within_s=WITHIN_S, what="the end of the call")
    assert server[1].over == [("Never", Over.CANCELLED)]
    assert unary(channel, "Echo")(b"on", timeout=WITHIN_S) == b"on"


# ── Its server beside ours ──


class TheirHandler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """The same methods."""

    def service(self, details: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name == "Echo":
            return grpc.unary_unary_rpc_method_handler(lambda message, _: message)
        if name == "Fail":
            return grpc.unary_unary_rpc_method_handler(
                lambda message, context: context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION, message.decode()
                )
            )
        if name == "Talk":
            return grpc.stream_stream_rpc_method_handler(lambda messages, _: messages)
        return None


@pytest.fixture(scope="module")
def their_port() -> Iterator[int]:
    options = [("grpc.max_receive_message_length", MESSAGE_MAX)]
    server = grpc.server(ThreadPoolExecutor(4), handlers=(TheirHandler(),), options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait()


def answered(port: int, name: str, body: bytes, more: tuple[tuple[str, str], ...]) -> Any:
    """What a client of h2 sees: messages, grpc-status, grpc-message."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as sock:

        def exchange(data: bytes) -> bytes:
            sock.sendall(data)
            return sock.recv(65_536)

        client = Http2Client(exchange, pump=False)
        headers = [(n, f"/test.Service/{name}" if n == ":path" else v) for n, v in POST]
        stream = client.request(body, headers=[*headers, *more])
        while not client.answer(stream).over:
            client.step()
        answer = client.answer(stream)
        last = {**answer.headers, **answer.trailers}
        return answer.body, last[":status"], last.get("grpc-status")


SAME = {
    "echo": ("Echo", framed(b"hello"), ()),
    "echo of nothing": ("Echo", framed(b""), ()),
    "failure": ("Fail", framed("größer\n".encode()), ()),
    "no such method": ("Nothing", framed(b""), ()),
    "no request": ("Echo", b"", ()),
    "unknown metadata": ("Echo", framed(b"1"), (("x-a", "1"), ("x-a", "2"), ("b-bin", "AAE"))),
    "a long time": ("Echo", framed(b"1"), (("grpc-timeout", "99999999H"),)),
    "identity": ("Echo", framed(b"1"), (("grpc-encoding", "identity"),)),
    "conversation": ("Talk", framed(b"1") + framed(b"2"), ()),
    "too large": ("Echo", framed(bytes(MESSAGE_MAX + 1))[:5], ()),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_call_ends_the_same_on_their_server(
    server: tuple[int, Handler], their_port: int, name: str
) -> None:
    method, body, more = SAME[name]

    assert answered(server[0], method, body, more) == answered(their_port, method, body, more)
