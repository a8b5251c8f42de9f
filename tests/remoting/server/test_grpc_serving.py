"""gRPC on a channel: calls in turns, answers as fast as their peer takes them, time, the end."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio
from h2.settings import SettingCodes
from structlog.testing import capture_logs

from aerobee.remoting.grpc import calls
from aerobee.remoting.grpc.calls import Shape
from aerobee.remoting.grpc.framing import MessageDecoder, framed
from aerobee.remoting.http2.events import ErrorCode
from aerobee.remoting.http2.limits import Http2Limits
from aerobee.remoting.server import boss, grpc_serving
from aerobee.remoting.server.grpc_serving import GrpcChannel, GrpcServing
from aerobee.remoting.server.reactor import Listener, Reactor
from tests.kit.http2_client import POST, Http2Client, frames
from tests.kit.raw_client import RawConnection
from tests.kit.tls import Certificate, TlsConnection, client_context, server_context
from tests.remoting.server.stage import LIMITS, HandTime, Stage, TrickleSocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable

    from aerobee.remoting.grpc.calls import Call

MIB = 1 << 20
DEADLINE_EXCEEDED: Final = "4"
RESOURCE_EXHAUSTED: Final = "8"
INTERNAL: Final = "13"


class Echoes:
    """Says what it is asked: unary calls at once, a ReceiveMessage of N messages, Telemetry each.

    A Heartbeat is kept until the test answers.
    """

    def __init__(self) -> None:
        self.kept: list[Call] = []
        self.gone: list[Call] = []
        self.told: list[str] = []
        self.left: dict[Call, int] = {}
        self.size = 1_000

    def opened(self, channel: GrpcChannel, call: Call) -> None:
        channel.context.shared.heard(channel)
        self.told.append(f"opened by {call.head.text(b'x-mq-client-id')}")

    def received(self, channel: GrpcChannel, call: Call, message: bytes) -> None:
        channel.context.shared.heard(channel)
        if call.method.shape is Shape.BOTH_STREAM:
            call.send(message)
        elif call.method.name == "ReceiveMessage":
            self.left[call] = int(message)
            self.room_again(call)
        elif call.method.name == "Heartbeat":
            self.kept.append(call)
        elif message == b"fault":
            raise ZeroDivisionError("a fault of ours")
        else:
            call.answer(message)

    def half_closed(self, call: Call) -> None:
        call.finish()

    def room_again(self, call: Call) -> None:
        while self.left[call]:
            self.left[call] -= 1
            if not call.send(bytes(self.size)):
                return
        call.finish()

    def over(self, call: Call) -> None:
        self.gone.append(call)


def path(name: str) -> list[tuple[str, str]]:
    """The head of a call."""
    whole = f"/apache.rocketmq.v2.MessagingService/{name}"
    return [(key, whole if key == ":path" else value) for key, value in POST]


class Line:
    """A client, its socket, and the channel that serves it."""

    def __init__(self, stage: Stage, serving: GrpcServing) -> None:
        self.stage = stage
        sock: Any = TrickleSocket(30_000 + stage.reactor.stats.connections_opened)
        self.sock: TrickleSocket = sock
        self.channel = stage.selector.adopt(sock, ("127.0.0.1", 50_000), "grpc", serving)
        self.client = Http2Client(self._exchange)

    def _exchange(self, data: bytes) -> bytes:
        self.sock.incoming += data
        while self.stage.poll(self.sock) or self.stage.selector.waiting:
            self.stage.rounds(self.stage.poll(self.sock))
        self.stage.reactor.flush()
        said, self.sock.taken = bytes(self.sock.taken), bytearray()
        return said

    def call(self, name: str, message: bytes, *more: tuple[str, str], end: bool = True) -> int:
        headers = [*path(name), ("x-mq-client-id", "c"), *more]
        stream = self.client.request(framed(message), headers=headers, end=end)
        self.client.pump()
        return stream

    def status(self, stream: int) -> str | None:
        answer = self.client.answer(stream)
        return (answer.trailers or answer.headers).get("grpc-status")

    def messages(self, stream: int) -> list[bytes]:
        return MessageDecoder(MIB).feed(self.client.answer(stream).body)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> HandTime:
    time = HandTime(monkeypatch)
    monkeypatch.setattr(grpc_serving, "monotonic", time)
    return time


@pytest.fixture
def service() -> Echoes:
    return Echoes()


@pytest.fixture
def connect(time: HandTime, service: Echoes) -> Callable[..., Line]:
    stage = Stage(limits=LIMITS._replace(high_water_bytes=MIB, low_water_bytes=MIB // 2))
    serving = GrpcServing(service, body_bytes_max=MIB)

    def connected(limits: Http2Limits | None = None) -> Line:
        other = None if limits is None else GrpcServing(service, body_bytes_max=1, limits=limits)
        return Line(stage, other or serving)

    return connected


def test_calls_of_every_shape_are_served(connect: Callable[..., Line], service: Echoes) -> None:
    line = connect()
    unary = line.call("QueryRoute", b"where")
    several = line.call("ReceiveMessage", b"5")
    both = line.call("Telemetry", b"one", end=False)
    line.client.data(both, framed(b"two"), end=True)
    line.client.pump()
    assert line.messages(unary) == [b"where"]
    assert line.messages(several) == [bytes(1_000)] * 5
    assert line.messages(both) == [b"one", b"two"]
    assert [line.status(stream) for stream in (unary, several, both)] == ["0", "0", "0"]
    assert service.told == ["opened by c"]
    assert line.channel.idle
    assert (line.channel.inbound, line.channel.unsent, service.gone) == (0, 0, [])


def test_an_answer_that_comes_later_is_sent_with_the_next_flush(
    connect: Callable[..., Line], service: Echoes
) -> None:
    line = connect()
    stream = line.call("Heartbeat", b"")
    assert line.status(stream) is None
    [call] = service.kept
    call.answer(b"now")
    line.channel.touch()
    line.client.pump()
    assert (line.messages(stream), line.status(stream)) == ([b"now"], "0")


def test_a_fault_of_ours_ends_its_call_alone(connect: Callable[..., Line]) -> None:
    line = connect()
    with capture_logs() as logs:
        bad, good = line.call("QueryRoute", b"fault"), line.call("QueryRoute", b"fine")
    assert (line.status(bad), line.status(good)) == (INTERNAL, "0")
    assert [entry["method"] for entry in logs if entry["event"] == "call.failed"] == ["QueryRoute"]
    assert line.stage.reactor.stats.requests_failed == 1


def test_many_calls_of_one_peer_take_no_turn_of_another(
    connect: Callable[..., Line], time: HandTime
) -> None:
    busy, other = connect(), connect()
    for number in range(200):
        busy.client.request(framed(b"%d" % number), headers=path("QueryRoute"))
    busy.sock.incoming += busy.client.connection.data_to_send()
    other.client.request(framed(b"me"), headers=path("QueryRoute"))
    other.sock.incoming += other.client.connection.data_to_send()
    stage = busy.stage
    time.per_look = 0.0001
    stage.rounds(stage.poll(busy.sock, other.sock))
    assert other.sock.taken
    assert busy.channel.has_left
    assert 0 < busy.channel.inbound == stage.reactor.shared.inbound.total
    time.per_look = 0.0
    busy.client.pump()
    assert all(busy.client.answer(1 + 2 * number).ended for number in range(200))
    assert busy.channel.inbound == 0


def test_tiny_frames_of_one_peer_take_no_turn_of_another(
    connect: Callable[..., Line], time: HandTime
) -> None:
    """They complete nothing, so that no event of a call ends the turn."""
    busy, other = connect(), connect()
    stream = busy.client.request(headers=path("SendMessage"), end=False)
    busy.client.pump()
    body = framed(bytes(5_000))
    for byte in body:
        busy.client.connection.send_data(stream, bytes([byte]))
    busy.client.connection.end_stream(stream)
    busy.sock.incoming += busy.client.connection.data_to_send()
    other.client.request(framed(b"me"), headers=path("QueryRoute"))
    other.sock.incoming += other.client.connection.data_to_send()
    stage = busy.stage
    time.per_look = 0.001
    stage.rounds(stage.poll(busy.sock, other.sock))
    assert other.sock.taken
    assert busy.channel.has_left
    assert 0 < busy.channel.inbound == stage.reactor.shared.inbound.total
    time.per_look = 0.0
    busy.client.pump()
    assert busy.messages(stream) == [body[5:]]
    assert busy.channel.inbound == 0


def test_answers_wait_where_the_peer_has_no_window_and_count_as_unsent(
    connect: Callable[..., Line], service: Echoes
) -> None:
    line = connect()
    line.client.reads = False
    stream = line.call("ReceiveMessage", b"2000")
    channel, budget = line.channel, line.stage.reactor.shared.outbound
    queued = channel.calls.engine.queued_bytes
    assert 0 < queued < 400_000
    assert budget.left == {channel: queued}
    assert list(service.left.values()) > [0]
    line.client.reads = True
    received = sum(map(len, [line.client.answer(stream).body]))
    line.client.connection.acknowledge_received_data(received, stream)
    line.client.pump()
    assert line.messages(stream) == [bytes(1_000)] * 2_000
    assert line.status(stream) == "0"
    assert (budget.left, line.stage.reactor.shared.stats.unsent_bytes) == ({}, 0)


def test_a_peer_that_does_not_read_is_not_served_and_goes_on_where_it_stopped(
    connect: Callable[..., Line], service: Echoes
) -> None:
    line = connect()
    line.client.connection.increment_flow_control_window(16 * MIB)
    line.client.pump()
    service.size = 60_000
    for _ in range(40):
        line.client.request(framed(b"1"), headers=path("ReceiveMessage"))
    line.sock.takes = [10, *[0] * 100]
    line.sock.incoming += line.client.connection.data_to_send()
    stage = line.stage
    stage.rounds(stage.poll(line.sock))
    assert line.channel.paused
    assert not stage.interest(line.sock).read
    assert line.channel.unsent < 300_000
    line.sock.takes = []
    line.client.pump()
    assert all(line.messages(1 + 2 * number) == [bytes(60_000)] for number in range(40))
    assert not line.channel.paused


def test_a_call_ends_with_its_deadline(
    connect: Callable[..., Line], service: Echoes, time: HandTime
) -> None:
    line = connect()
    stream = line.call("Heartbeat", b"", ("grpc-timeout", "2S"))
    assert not line.channel.idle
    serving: Any = line.channel.serving
    time.now += 1.9
    list(serving.look())
    assert line.status(stream) is None
    time.now += 0.2
    list(serving.look())
    line.client.pump()
    assert line.status(stream) == DEADLINE_EXCEEDED
    assert service.gone == service.kept
    list(serving.look())
    assert serving.watched == {}


def test_heads_of_calls_without_a_request_are_in_the_budget_until_they_end(
    connect: Callable[..., Line], service: Echoes, time: HandTime
) -> None:
    line = connect()
    streams = [line.client.request(headers=path("Heartbeat"), end=False) for _ in range(100)]
    line.client.pump()
    budget = line.stage.reactor.shared.inbound
    assert budget.total == line.channel.inbound == line.channel.calls.heads_bytes > 100_000
    serving: Any = line.channel.serving
    time.now += calls.REQUEST_MS / 1_000
    list(serving.look())
    line.client.pump()
    assert {line.status(stream) for stream in streams} == {DEADLINE_EXCEEDED}
    assert (budget.total, service.gone, line.channel.idle) == (0, [], True)


def test_an_open_call_keeps_no_metadata(connect: Callable[..., Line], service: Echoes) -> None:
    line = connect()
    line.call("Heartbeat", b"")
    line.call("Telemetry", b"hello", end=False)
    assert service.told == ["opened by c"]
    assert [call.head.size_bytes for call in line.channel.calls.open.values()] == [0, 0]
    assert line.channel.inbound == 0


def test_a_peer_that_takes_no_answers_is_closed(
    connect: Callable[..., Line], service: Echoes, time: HandTime
) -> None:
    line = connect()
    line.client.reads = False
    line.call("ReceiveMessage", b"2000")
    serving: Any = line.channel.serving
    for _ in range(3):
        time.now += LIMITS.stall_s / 2 - 1
        list(serving.look())
    assert line.channel.closed
    assert len(service.gone) == 1
    assert (serving.watched, line.stage.reactor.shared.outbound.left) == ({}, {})


STEP: Final = 64 << 10


def opens_its_windows(line: Line, stream: int, before: int, after: int) -> None:
    """Let the peer have read so much in all: its client opens its windows in steps."""
    size = (after // STEP - before // STEP) * STEP
    if size:
        line.client.connection.increment_flow_control_window(size)
        line.client.connection.increment_flow_control_window(size, stream)
    line.client.pump()


def reads_its_socket(line: Line, stream: int, before: int, after: int) -> None:
    """Let the kernel have taken so much in all, for a peer whose windows are wide."""
    line.sock.takes = [after - before, *[0] * 100]
    line.stage.round(line.sock)
    line.stage.reactor.flush()


@pytest.mark.parametrize(("takes", "patience_s"), [(opens_its_windows, 64), (reads_its_socket, 10)])
def test_a_peer_is_judged_by_the_rate_at_which_it_takes_answers(
    service: Echoes, time: HandTime, takes: Callable[[Line, int, int, int], None], patience_s: int
) -> None:
    """Also where answers are added all the time, so that no fewer wait, or where none leaves a
    stream since the kernel takes slowly what has left it.
    """
    limits = LIMITS._replace(high_water_bytes=MIB, low_water_bytes=MIB // 2, stall_s=10)
    stage = Stage(limits=limits._replace(least_per_s=4_096, idle_s=1e9))
    serving = GrpcServing(service, body_bytes_max=MIB)
    rates = {0: "peer does not read", 1_300: "peer reads too slowly", 6_000: None, 60_000: None}
    lines: dict[int, tuple[Line, int]] = {}
    reasons: dict[int, str] = {}
    for per_s in rates:
        line = Line(stage, serving)
        line.client.reads = False
        if takes is reads_its_socket:
            line.client.connection.increment_flow_control_window(16 * MIB)
            line.client.connection.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 16 * MIB})
            line.client.pump()
            line.sock.takes = [10_000, *[0] * 100]
        stream = line.client.request(framed(b"20000"), headers=path("ReceiveMessage"))
        line.sock.incoming += line.client.connection.data_to_send()
        stage.rounds(stage.poll(line.sock))
        lines[per_s] = line, stream
        line.channel.on_close.append(lambda closed, reason: reasons.update({closed.id: reason}))
        assert line.channel.calls.engine.queued_bytes
    for second in range(1, 200):
        time.now += 1
        for per_s, (line, stream) in lines.items():
            if not line.channel.closed:
                takes(line, stream, per_s * (second - 1), per_s * second)
        list(serving.look())
        list(stage.selector.sweep())
        assert not reasons or second >= patience_s
    told = {rate: reasons.get(line.channel.id) for rate, (line, _) in lines.items()}
    assert told == rates


def test_a_deadline_far_away_costs_nothing_until_it_comes(
    connect: Callable[..., Line], service: Echoes, time: HandTime
) -> None:
    line = connect()
    line.call("Telemetry", b"hello", ("grpc-timeout", "100S"), end=False)
    serving: Any = line.channel.serving
    calls.Call.stay(line.channel.calls.open[1])
    time.now += 31
    assert len(list(serving.look())) == 1, "its settings were due"
    time.now += 60
    assert not list(serving.look())
    time.now += 20
    assert list(serving.look())
    # Nobody need send anything: its end is served in a turn of its own.
    assert line.stage.poller.watched[line.sock.fileno()].write
    assert line.stage.round(line.sock)
    assert [call.method.name for call in service.gone] == ["Telemetry"]


def test_a_channel_that_is_held_takes_no_call_before_the_sweep(
    connect: Callable[..., Line], service: Echoes
) -> None:
    line = connect()
    line.call("Telemetry", b"hello", end=False)
    line.channel.hold()
    line.channel.hold()
    stream = line.call("SendMessage", b"behind it")
    assert line.status(stream) is None
    list(line.stage.reactor.resume_of_sweep())
    line.client.pump()
    assert line.messages(stream) == [b"behind it"]


def test_a_channel_that_is_held_may_end(connect: Callable[..., Line]) -> None:
    line = connect()
    line.channel.hold()
    line.channel.close("gone")
    list(line.stage.reactor.resume_of_sweep())
    assert line.channel.closed


def test_a_silent_peer_is_closed_unless_a_stream_of_it_is_open(
    connect: Callable[..., Line], service: Echoes, time: HandTime
) -> None:
    silent, streaming = connect(), connect()
    streaming.call("Telemetry", b"hello", end=False)
    time.now += LIMITS.idle_s + 1
    list(silent.stage.selector.sweep())
    assert (silent.channel.closed, streaming.channel.closed) == (True, False)
    streaming.channel.close("gone")
    assert [call.method.name for call in service.gone] == ["Telemetry"]


def test_a_peer_without_a_request_is_a_newcomer_whatever_it_sends(
    connect: Callable[..., Line], time: HandTime
) -> None:
    silent, asking = connect(), connect()
    newcomers = silent.stage.reactor.shared.newcomers
    asking.call("QueryRoute", b"hello")
    time.now += LIMITS.first_request_s + 1
    silent.client.connection.ping(b"8 bytes!")
    silent.client.pump()
    assert list(newcomers.late(time.now)) == [silent.channel]


def ends(line: Line) -> list[int]:
    """The streams that end with what is sent now; h2 itself reads nothing behind a GOAWAY."""
    line.stage.reactor.flush()
    said, line.sock.taken = bytes(line.sock.taken), bytearray()
    return [frame.stream_id for frame in frames(said) if "END_STREAM" in frame.flags]


def test_who_leaves_ends_streams_lets_calls_end_and_closes(
    connect: Callable[..., Line], service: Echoes
) -> None:
    line = connect()
    streaming = line.call("Telemetry", b"hello", end=False)
    asked = line.call("Heartbeat", b"")
    serving: Any = line.channel.serving
    serving.leave("the broker is stopping")
    assert ends(line) == [streaming]
    assert not line.channel.closed
    assert line.stage.round(line.sock)
    assert [call.method.name for call in service.gone] == ["Telemetry"]
    service.kept[0].answer(b"still")
    line.channel.touch()
    assert ends(line) == [asked]
    assert (line.channel.closed, line.sock.closed) == (True, True)
    late = Line(line.stage, serving)
    assert late.channel.closed


def test_who_is_turned_away_hears_nothing_at_all_until_everybody_is_welcome(
    connect: Callable[..., Line], service: Echoes
) -> None:
    """A client that gets settings believes in the connection, and tries no other address."""
    line = connect()
    streaming = line.call("Telemetry", b"hello", end=False)
    serving: Any = line.channel.serving
    serving.turn_away("this broker is a slave")
    assert ends(line) == [streaming]
    assert line.channel.closed
    late = Line(line.stage, serving)
    assert (late.channel.closed, late.client.events) == (True, [])
    serving.welcome()
    other = Line(line.stage, serving)
    asked = other.call("QueryRoute", b"hello")
    assert other.messages(asked) == [b"hello"]


def test_a_flood_ends_its_connection_and_is_told_why(connect: Callable[..., Line]) -> None:
    line = connect(Http2Limits(resets_per_s=10))
    for _ in range(20):
        stream = line.client.request(headers=path("Heartbeat"), end=False)
        line.client.connection.reset_stream(stream, ErrorCode.CANCEL)
    line.client.pump()
    assert line.client.goaway == ErrorCode.ENHANCE_YOUR_CALM
    assert line.channel.closed


# ── over sockets ──


@asynccontextmanager
async def running(service: Echoes, trusted: Certificate | None) -> AsyncIterator[str]:
    reactor = Reactor(pools={}, limits=LIMITS, selectors=1, refusals=lambda _: None)
    if trusted is not None:
        context = server_context(trusted)
        context.set_alpn_protocols(["h2"])
        reactor.accept_tls(context, enforcing=False)
    sock = boss.listen("127.0.0.1", 0, 64)
    serving = GrpcServing(service, body_bytes_max=MIB)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, [Listener("grpc", sock, serving)])
        await nursery.start(serving.run)
        yield f"127.0.0.1:{sock.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def ask(address: str, context: ssl.SSLContext | None) -> tuple[list[bytes], str | None]:
    """A unary call by a client of its own, and a long answer."""
    with ExitStack() as clients:
        raw = RawConnection(address) if context is None else TlsConnection(address, context)
        clients.enter_context(raw)

        def exchange(data: bytes) -> bytes:
            if data:
                raw.send_bytes(data)
            answer = client.answer(stream) if stream else None
            return b"" if answer is not None and answer.over else raw.socket.recv(65_536)

        client: Any
        stream = 0
        client = Http2Client(exchange, pump=False)
        stream = client.request(framed(b"300"), headers=path("ReceiveMessage"))
        client.pump()
        answer = client.answer(stream)
        return MessageDecoder(MIB).feed(answer.body), answer.trailers.get("grpc-status")


@pytest.mark.parametrize("way", ["plain", "tls"])
@pytest.mark.trio
async def test_the_first_byte_says_whether_a_peer_speaks_tls(
    way: str, shown: Certificate, service: Echoes
) -> None:
    async with running(service, shown) as address:
        context = None
        if way == "tls":
            context = client_context(shown)
            context.set_alpn_protocols(["h2"])
        messages, status = await trio.to_thread.run_sync(ask, address, context)
    assert (messages, status) == ([bytes(1_000)] * 300, "0")


@pytest.mark.parametrize("way", ["leave", "turn_away"])
@pytest.mark.trio
async def test_who_has_said_nothing_is_closed_when_nobody_is_served(
    way: str, shown: Certificate, service: Echoes
) -> None:
    """Before its first byte says whether it speaks TLS, nothing can be sent: to try is a loop."""
    reactor = Reactor(pools={}, limits=LIMITS, selectors=1, refusals=lambda _: None)
    reactor.accept_tls(server_context(shown), enforcing=False)
    sock = boss.listen("127.0.0.1", 0, 64)
    serving = GrpcServing(service, body_bytes_max=MIB)
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run, [Listener("grpc", sock, serving)])
        silent = await trio.open_tcp_stream(*sock.getsockname())
        async with silent:
            while not reactor.connections:
                await trio.lowlevel.checkpoint()
            getattr(serving, way)("nobody is served")
            assert reactor.connections == []
            assert await silent.receive_some() == b""
        nursery.cancel_scope.cancel()


def test_another_limit_of_bodies_holds_for_the_next_calls_of_open_connections(
    connect: Callable[..., Line],
) -> None:
    line = connect()
    assert line.status(line.call("SendMessage", b"long")) == "0"
    serving: Any = line.channel.serving
    serving.limit_bodies(3 - grpc_serving.MESSAGE_SPARE_BYTES)
    assert line.status(line.call("SendMessage", b"long")) == RESOURCE_EXHAUSTED
    assert line.status(line.call("SendMessage", b"few")) == "0"
