"""An HTTP/2 client in memory, by h2: another implementation than the one that is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.events import RequestReceived as TheirRequest
from hyperframe.frame import Frame

from aerobee.remoting.http2.events import DataReceived as Received
from aerobee.remoting.http2.events import RequestReceived, StreamClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from h2.events import Event

    from aerobee.remoting.http2.engine import Engine

POST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/apache.rocketmq.v2.MessagingService/SendMessage"),
    (":authority", "127.0.0.1:8081"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def client_connection() -> H2Connection:
    """A client that has sent its preface; it lets through what it would refuse to send."""
    connection = H2Connection(
        H2Configuration(
            client_side=True,
            header_encoding="utf-8",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
    )
    connection.initiate_connection()
    return connection


def server_connection() -> H2Connection:
    """The other server: what our engine is compared with."""
    connection = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    return connection


class Http2Client:
    """One connection to an engine, or to whatever `exchange` brings the bytes to."""

    def __init__(self, exchange: Callable[[bytes], bytes], *, pump: bool = True) -> None:
        self.connection = client_connection()
        self.events: list[Event] = []
        self.exchange = exchange
        self.reads = True
        """Whether it lets the server send as much again as came."""
        if pump:
            self.pump()

    def request(
        self, body: bytes = b"", *, headers: Iterable[tuple[str, str]] = POST, end: bool = True
    ) -> int:
        """Begin a request; returns its stream."""
        stream = self.connection.get_next_available_stream_id()
        self.connection.send_headers(stream, list(headers), end_stream=end and not body)
        if body:
            self.data(stream, body, end=end)
        return stream

    def data(self, stream: int, body: bytes, *, end: bool = False) -> None:
        """Send the whole body, as far as the windows allow: the rest is a failure."""
        size = min(self.connection.max_outbound_frame_size, 16_384)
        pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            self.connection.send_data(stream, piece, end_stream=end and last)

    def pump(self) -> list[Event]:
        """Exchange bytes until both are silent; returns the events of the answer."""
        happened: list[Event] = []
        while True:
            silent, events = self.step()
            happened += events
            if silent:
                return happened

    def step(self) -> tuple[bool, list[Event]]:
        """Exchange bytes once. Whether there were none in both directions; the events."""
        sent = self.connection.data_to_send()
        back = self.exchange(sent)
        events = self.connection.receive_data(back) if back else []
        for event in events:
            if self.reads and isinstance(event, DataReceived):
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length or 0, event.stream_id
                )
        self.events += events
        return not (sent or back), events

    def answer(self, stream: int) -> Answer:
        """All that has come on a stream."""
        return Answer([event for event in self.events if _stream(event) == stream])

    @property
    def goaway(self) -> int | None:
        """The code with which the server has ended the connection."""
        codes = [e.error_code for e in self.events if isinstance(e, ConnectionTerminated)]
        return int(codes[-1]) if codes and codes[-1] is not None else None


class Answer:
    """An answer, put together."""

    def __init__(self, events: list[Event]) -> None:
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.reset: int | None = None
        for event in events:
            if isinstance(event, ResponseReceived):
                self.headers = _text(event.headers)
            elif isinstance(event, TrailersReceived):
                self.trailers = _text(event.headers)
            elif isinstance(event, DataReceived):
                self.body += event.data
            elif isinstance(event, StreamEnded):
                self.ended = True
            elif isinstance(event, StreamReset):
                self.reset = int(event.error_code or 0)

    @property
    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.ended or self.reset is not None


def to_engine(engine: Engine, *, now_ms: float = 0) -> Callable[[bytes], bytes]:
    """An exchange with an engine."""

    def exchange(data: bytes) -> bytes:
        engine.receive(data, now_ms)
        return engine.output()

    return exchange


def frames(data: bytes) -> list[Any]:
    """What h2 reads in whole frames."""
    found = []
    while data:
        one, length = Frame.parse_frame_header(memoryview(data)[:9])
        one.parse_body(memoryview(data)[9 : 9 + length])
        found.append(one)
        data = data[9 + length :]
    return found


def of_engine(events: Iterable[object]) -> list[tuple[Any, ...]]:
    """Events of ours that can be compared: bodies whole, and empty ends folded into them."""
    told: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, RequestReceived):
            told.append(("request", event.stream, event.headers))
            if event.end:
                told.append(("end", event.stream))
        elif isinstance(event, Received):
            if event.data:
                told.append(("data", event.stream, event.data))
            if event.end:
                told.append(("end", event.stream))
        elif isinstance(event, StreamClosed):
            told.append(("closed", event.stream, event.code))
    return told


def of_h2(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """The same of h2's."""
    told: list[tuple[Any, ...]] = []
    for event in events:
        if isinstance(event, TheirRequest):
            told.append(("request", event.stream_id, tuple(map(tuple, event.headers or ()))))
        elif isinstance(event, DataReceived) and event.data:
            told.append(("data", event.stream_id, event.data))
        elif isinstance(event, StreamEnded):
            told.append(("end", event.stream_id))
        elif isinstance(event, StreamReset):
            told.append(("closed", event.stream_id, int(event.error_code or 0)))
    return told


def _stream(event: Event) -> int | None:
    return getattr(event, "stream_id", None)


def _text(headers: Iterable[Any] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers or ()}
