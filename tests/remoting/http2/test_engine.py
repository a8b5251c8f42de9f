from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from h2.exceptions import ProtocolError
from hpack import Encoder
from hyperframe.frame import GoAwayFrame, HeadersFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.remoting.http2.engine import Engine
from aerobee.remoting.http2.events import (
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    GoAwayReceived,
    RequestReceived,
    StreamClosed,
    StreamDrained,
)
from aerobee.remoting.http2.limits import Http2Limits
from tests.kit.http2_client import (
    POST,
    PREFACE,
    Http2Client,
    client_connection,
    frames,
    of_engine,
    of_h2,
    server_connection,
    to_engine,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = tuple((name.encode(), value.encode()) for name, value in POST)
OK = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS = [(b"grpc-status", b"0")]
MIB = 1 << 20


def met(limits: Http2Limits | None = None) -> tuple[Engine, Http2Client]:
    """An engine and a client that have exchanged their settings."""
    engine = Engine(limits or Http2Limits())
    client = Http2Client(to_engine(engine))
    assert engine.events() == []
    return engine, client


# ── Streams ──


def test_a_request_and_its_answer() -> None:
    engine, client = met()
    stream = client.request(b"question")
    client.pump()

    assert engine.events() == [
        RequestReceived(stream, HEADERS, end=False),
        DataReceived(stream, b"question", end=True),
    ]
    engine.respond(stream, OK, end=False)
    assert engine.send(stream, b"answer")
    engine.finish(stream, TRAILERS)
    client.pump()

    answer = client.answer(stream)
    assert answer.headers == {":status": "200", "content-type": "application/grpc"}
    assert (answer.body, answer.trailers, answer.ended) == (b"answer", {"grpc-status": "0"}, True)
    assert engine.events() == [StreamClosed(stream, ErrorCode.NO_ERROR)]


def test_a_request_without_a_body_and_an_answer_without_one() -> None:
    engine, client = met()
    stream = client.request()
    client.pump()

    assert engine.events() == [RequestReceived(stream, HEADERS, end=True)]
    engine.respond(stream, [*OK, (b"grpc-status", b"12")], end=True)
    client.pump()

    answer = client.answer(stream)
    assert (answer.headers["grpc-status"], answer.ended) == ("12", True)


def test_trailers_of_a_request_are_its_end() -> None:
    engine, client = met()
    stream = client.request(b"question", end=False)
    client.connection.send_headers(stream, [("x-checksum", "1")], end_stream=True)
    client.pump()

    assert engine.events()[1:] == [
        DataReceived(stream, b"question", end=False),
        DataReceived(stream, b"", end=True),
    ]


def test_a_stream_that_the_peer_resets_takes_no_more_commands() -> None:
    engine, client = met()
    stream = client.request(b"question", end=False)
    client.pump()
    engine.events()
    client.connection.reset_stream(stream, ErrorCode.CANCEL)
    client.pump()

    assert engine.events() == [StreamClosed(stream, ErrorCode.CANCEL)]
    engine.respond(stream, OK, end=False)
    assert engine.send(stream, b"answer")
    engine.finish(stream, TRAILERS)
    engine.reset(stream, ErrorCode.CANCEL)
    engine.taken(stream, 8)
    client.pump()
    assert engine.ended is None


def test_a_stream_that_we_reset_drops_what_is_queued_for_it() -> None:
    engine, client = met()
    stream = client.request()
    client.pump()
    engine.respond(stream, OK, end=False)
    engine.send(stream, bytes(100_000))
    engine.events()
    engine.reset(stream, ErrorCode.INTERNAL_ERROR)
    client.pump()

    assert engine.queued_bytes == 0
    assert client.answer(stream).reset == ErrorCode.INTERNAL_ERROR
    assert engine.events() == [StreamClosed(stream, ErrorCode.INTERNAL_ERROR)]


def test_the_rest_of_a_request_is_left_behind_its_answer() -> None:
    engine, client = met()
    left, ended = client.request(b"question", end=False), client.request(b"question", end=False)
    client.pump()
    for stream in (left, ended):
        engine.respond(stream, OK, end=True)
        engine.leave_rest(stream)
    client.connection.end_stream(ended)
    client.pump()
    assert client.answer(left).headers[":status"] == "200"
    assert [client.answer(stream).ended for stream in (left, ended)] == [True, True]
    assert client.answer(left).reset == ErrorCode.NO_ERROR
    assert [event for event in engine.events() if isinstance(event, StreamClosed)] == [
        StreamClosed(ended, ErrorCode.NO_ERROR),
        StreamClosed(left, ErrorCode.NO_ERROR),
    ]
    assert engine.ended is None


# ── Windows ──


def test_a_peer_sends_no_more_than_was_taken_and_the_window() -> None:
    engine, client = met(Http2Limits(stream_window_bytes=70_000))
    stream = client.request(bytes(70_000), end=False)
    client.pump()
    assert client.connection.local_flow_control_window(stream) == 0

    engine.taken(stream, 40_000)
    client.pump()

    assert client.connection.local_flow_control_window(stream) == 40_000


def test_data_that_is_taken_after_the_end_of_its_stream_counts_for_the_connection() -> None:
    engine, client = met(Http2Limits(stream_window_bytes=MIB, connection_window_bytes=MIB))
    for _ in range(4):
        stream = client.request(bytes(MIB // 2))
        client.pump()
        engine.respond(stream, OK, end=False)
        engine.finish(stream, TRAILERS)
        client.pump()
        engine.taken(stream, MIB // 2)
        client.pump()

    assert engine.ended is None


def test_a_peer_that_sends_beyond_the_window_ends_the_connection() -> None:
    engine, client = met(Http2Limits(stream_window_bytes=65_535, connection_window_bytes=65_535))
    stream = client.request(end=False)
    client.pump()
    client.connection.streams[stream].outbound_flow_control_window = MIB  # it does not care
    client.connection.outbound_flow_control_window = MIB
    client.data(stream, bytes(100_000))
    client.pump()

    assert client.goaway == ErrorCode.FLOW_CONTROL_ERROR
    assert isinstance(engine.ended, ConnectionEnded)


def test_an_answer_waits_for_the_windows_of_the_peer_and_says_when_there_is_room() -> None:
    engine, client = met(Http2Limits(stream_out_bytes=100_000))
    stream = client.request()
    client.connection.increment_flow_control_window(MIB)  # of the connection: the stream has 64 KiB
    client.pump()
    engine.events()
    engine.respond(stream, OK, end=False)
    client.reads = False
    assert engine.send(stream, bytes(65_535))
    client.pump()
    assert engine.queued_bytes == 0
    assert engine.send(stream, bytes(60_000))
    assert not engine.send(stream, bytes(60_000))
    client.pump()
    assert engine.queued_bytes == 120_000
    assert engine.events() == []

    client.connection.acknowledge_received_data(65_535, stream)
    client.pump()
    assert engine.queued_bytes > 50_000
    assert engine.events() == []
    client.connection.acknowledge_received_data(65_535, stream)
    client.pump()
    assert engine.events() == [StreamDrained(stream)]


def test_output_is_given_in_pieces_of_any_size() -> None:
    engine, client = met()
    stream = client.request()
    client.pump()
    engine.respond(stream, OK, end=False)
    engine.send(stream, bytes(20_000))
    engine.finish(stream, TRAILERS)
    pieces = []
    while piece := engine.output(777):
        pieces.append(piece)
    client.events += client.connection.receive_data(b"".join(pieces))

    assert max(map(len, pieces)) == 777
    assert client.answer(stream).ended


# ── The end of a connection ──


def test_a_peer_is_asked_to_begin_no_more_streams_and_open_ones_go_on() -> None:
    engine, client = met()
    stream = client.request(end=False)
    client.pump()
    engine.go_away(refuse=False)
    client.pump()
    assert client.goaway == ErrorCode.NO_ERROR
    assert engine.ended is None

    engine.respond(stream, [*OK, *TRAILERS], end=True)
    engine.go_away(refuse=True)
    assert {type(frame) for frame in frames(engine.output())} == {HeadersFrame, GoAwayFrame}


def test_a_peer_that_goes_away_is_told() -> None:
    engine, client = met()
    client.connection.close_connection()
    client.pump()

    assert GoAwayReceived(ErrorCode.NO_ERROR) in engine.events()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"]
)
def test_another_protocol_ends_the_connection(data: bytes) -> None:
    engine = Engine(Http2Limits())
    engine.output()
    engine.receive(data + bytes(100), 0)

    assert isinstance(engine.ended, ConnectionEnded)
    assert engine.events() == [engine.ended]
    assert engine.output()[3:4] == b"\x07"
    assert engine.output() == b""
    engine.receive(b"more", 0)
    assert engine.events() == []


# ── Floods ──


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def requests(behind: Callable[[int], bytes], *, flags: int = 4, count: int = 4_000) -> bytes:
    encoder = Encoder()
    return b"".join(
        frame(1, flags, stream, encoder.encode(POST)) + behind(stream)
        for stream in range(1, count * 2, 2)
    )


def one(*fields: tuple[str, str], flags: int = 4) -> bytes:
    return frame(1, flags, 1, Encoder().encode([*POST, *fields]))


CALM, PROTOCOL = ErrorCode.ENHANCE_YOUR_CALM, ErrorCode.PROTOCOL_ERROR
FLOODS: dict[str, tuple[Callable[[], bytes], ErrorCode, str]] = {
    "rapid reset": (lambda: requests(lambda s: frame(3, 0, s, b"\0\0\0\x08")), CALM, "resets"),
    "streams reset for faults": (
        lambda: requests(lambda s: frame(0, 1, s, b"x"), flags=5),
        ErrorCode.STREAM_CLOSED,
        "",
    ),
    "window overflow": (
        lambda: requests(lambda s: frame(8, 0, s, b"\x7f\xff\xff\xff")),
        ErrorCode.FLOW_CONTROL_ERROR,
        "",
    ),
    "window by nothing": (lambda: requests(lambda s: frame(8, 0, s, bytes(4))), PROTOCOL, ""),
    "ping": (lambda: frame(6, 0, 0, bytes(8)) * 20_000, CALM, "pings"),
    "settings": (lambda: frame(4, 0, 0) * 200, CALM, "settings"),
    "settings of many fields": (lambda: frame(4, 0, 0, b"\0\3\0\0\0\1" * 40), CALM, ""),
    "continuation": (lambda: one(flags=0) + frame(9, 0, 1, b"") * 100, CALM, ""),
    "empty data": (lambda: one() + frame(0, 0, 1) * 40_000, CALM, ""),
    "priority": (lambda: frame(2, 0, 1, b"\0\0\0\3\x10") * 40_000, CALM, ""),
    "unknown frames": (lambda: frame(0x55, 0, 1, b"abc") * 40_000, CALM, ""),
    "window update": (
        lambda: one() + frame(8, 0, 1, b"\0\0\0\1") * 120_000,
        CALM,
        "window_updates",
    ),
    "large header": (lambda: one(("x-a", "y" * 9_000), ("x-b", "y" * 9_000)), CALM, ""),
    "many fields": (lambda: one(*[("x", "")] * 400), CALM, ""),
    "header bomb": (
        lambda: (
            one(("x-a", "y" * 3_000)) + frame(1, 4, 3, Encoder().encode(POST) + b"\xbe" * 1_000)
        ),
        CALM,
        "",
    ),
    "bad header block": (lambda: frame(1, 4, 1, b"\xff" * 9), ErrorCode.COMPRESSION_ERROR, ""),
    "frame too large": (
        lambda: b"\x80\0\0\0\0\0\0\0\1" + bytes(20_000),
        ErrorCode.FRAME_SIZE_ERROR,
        "",
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection_with_its_code(name: str) -> None:
    flood, code, reason = FLOODS[name]
    engine = Engine(Http2Limits(streams=8_000))
    told: list[object] = []
    output = b""
    data = PREFACE + frame(4, 0, 0) + frame(4, 1, 0) + flood()
    fed = 0
    while fed < len(data) and engine.ended is None:
        engine.receive(data[fed : fed + 16_384], now_ms=0)
        fed += 16_384
        output = engine.output()
        told += engine.events()

    assert engine.ended is not None
    assert (engine.ended.code, engine.ended.reason.partition(":")[0]) == (code, reason) or (
        engine.ended.code == code and not reason
    )
    assert told[-1] == engine.ended
    assert [GoAwayFrame, code] == [type(last := frames(output)[-1]), last.error_code]
    assert len(told) <= 10_002, "a flood makes no more events than that"


def test_streams_beyond_the_limit_are_not_told() -> None:
    engine = Engine(Http2Limits(streams=2))
    data = requests(lambda _: b"", count=3)
    engine.receive(PREFACE + frame(4, 0, 0) + frame(4, 1, 0) + data, 0)
    engine.output()

    events = engine.events()
    assert [type(event) for event in events] == [RequestReceived] * 2 + [ConnectionEnded]
    assert engine.ended is not None
    assert engine.ended.code == PROTOCOL


def test_resets_of_an_hour_are_no_flood() -> None:
    engine = Engine(Http2Limits(resets_per_s=10))
    client = Http2Client(to_engine(engine))
    for minute in range(60):
        client.exchange = to_engine(engine, now_ms=minute * 60_000)
        for _ in range(10):
            stream = client.request(end=False)
            client.pump()
            client.connection.reset_stream(stream, ErrorCode.CANCEL)
        client.pump()

    assert engine.ended is None


# ── Compared with h2, and fuzzed ──

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("request"), st.booleans(), st.integers(0, 6)),
        st.tuples(st.just("data"), st.booleans(), st.integers(0, 40_000)),
        st.tuples(st.just("pad"), st.booleans(), st.integers(0, 200)),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 6)),
        st.tuples(st.just("reset"), st.booleans(), st.integers(0, 13)),
        st.tuples(st.just("ping"), st.booleans(), st.integers(0, 6)),
        st.tuples(st.just("settings"), st.booleans(), st.integers(0, 1 << 20)),
        st.tuples(st.just("window"), st.booleans(), st.integers(1, 1 << 20)),
        st.tuples(st.just("priority"), st.booleans(), st.integers(1, 256)),
        st.tuples(st.just("trailers"), st.booleans(), st.integers(0, 3)),
    ),
    max_size=30,
)


def played(steps: list[tuple[str, bool, int]], choices: st.DataObject) -> bytes:
    """What a client sends that takes these steps, as far as HTTP/2 allows them."""
    client = client_connection()
    opened: list[int] = []
    for name, flag, size in steps:
        stream = choices.draw(st.sampled_from(opened)) if opened else 0
        try:
            match name:
                case "request":
                    opened.append(client.get_next_available_stream_id())
                    extra = [(f"x-{number}", "v" * number * 100) for number in range(size)]
                    client.send_headers(opened[-1], [*POST, *extra], end_stream=flag)
                case "data":
                    data = bytes(min(size, client.local_flow_control_window(stream), 16_384))
                    client.send_data(stream, data, end_stream=flag)
                case "pad":
                    client.send_data(stream, b"padded", end_stream=flag, pad_length=size)
                case "end":
                    client.end_stream(stream)
                case "reset":
                    client.reset_stream(stream, size)
                case "ping":
                    client.ping(b"12345678")
                case "settings":
                    client.update_settings({4: size})
                case "window":
                    client.increment_flow_control_window(size, stream if flag else None)
                case "priority":
                    client.prioritize(stream or 1, weight=size, exclusive=flag)
                case "trailers":
                    client.send_headers(stream, [("x-sum", "1")] * (size + 1), end_stream=True)
        except (ProtocolError, ValueError, KeyError):
            continue  # h2 does not let a client do that here
    return client.data_to_send()


def by_stream(told: list[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    streams: dict[int, list[tuple[Any, ...]]] = {}
    for event in told:
        row = streams.setdefault(event[1], [])
        if event[0] == "data" and row[-1][0] == "data":
            row[-1] = ("data", event[1], row[-1][2] + event[2])
        else:
            row.append(event)
    return streams


@settings(max_examples=150, deadline=None)
@given(STEPS, st.data())
def test_the_same_bytes_mean_the_same_to_h2(
    steps: list[tuple[str, bool, int]], choices: st.DataObject
) -> None:
    data = played(steps, choices)
    engine, other = Engine(Http2Limits()), server_connection()
    engine.receive(data, 0)
    engine.output()

    theirs = of_h2(other.receive_data(data))

    assert engine.ended is None
    assert by_stream(of_engine(engine.events())) == by_stream(theirs)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.data())
def test_the_same_bytes_in_any_cut_mean_the_same(
    steps: list[tuple[str, bool, int]], choices: st.DataObject
) -> None:
    data = played(steps, choices)
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=20)))
    whole, cut = Engine(Http2Limits()), Engine(Http2Limits())
    whole.receive(data, 0)
    told: list[object] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        cut.receive(memoryview(data)[start:end], 0)
        cut.output(choices.draw(st.integers(0, 100)))
        told += cut.events()

    assert told == whole.events()


@settings(max_examples=200, deadline=None)
@given(STEPS, st.data())
def test_garbage_ends_a_connection_and_nothing_else(
    steps: list[tuple[str, bool, int]], choices: st.DataObject
) -> None:
    data = bytearray(played(steps, choices))
    for place, byte in choices.draw(
        st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 255)), max_size=8)
    ):
        if place < len(data):
            data[place] = byte
    data += choices.draw(st.binary(max_size=200))
    engine = Engine(Http2Limits())
    for start in range(0, len(data), 1_000):
        engine.receive(bytes(data[start : start + 1_000]), 0)
        for event in engine.events():
            if isinstance(event, RequestReceived):
                engine.respond(event.stream, OK, end=False)
            elif isinstance(event, DataReceived):
                engine.send(event.stream, event.data)
                engine.taken(event.stream, len(event.data))
                if event.end:
                    engine.finish(event.stream, TRAILERS)
        engine.output()

    ends = [event for event in engine.events() if isinstance(event, ConnectionEnded)]
    assert engine.ended is None or ends[:1] in ([], [engine.ended])
