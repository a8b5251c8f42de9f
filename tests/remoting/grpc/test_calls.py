from __future__ import annotations

import itertools
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.remoting.grpc import calls as calls_module
from aerobee.remoting.grpc.calls import (
    CALL_BYTES,
    REQUEST_MS,
    SLOWEST_PER_MS,
    Call,
    CallEvent,
    CallOpened,
    CallOver,
    Calls,
    ConnectionOver,
    HalfClosed,
    MessageReceived,
    Method,
    Over,
    RoomAgain,
    Shape,
)
from aerobee.remoting.grpc.framing import MessageDecoder, framed
from aerobee.remoting.grpc.status import StatusCode
from aerobee.remoting.http2.engine import Engine
from aerobee.remoting.http2.events import ErrorCode
from aerobee.remoting.http2.limits import Http2Limits
from tests.kit.http2_client import POST, Http2Client, client_connection, frames

METHODS = {
    f"/test.Service/{name}".encode(): Method(name, shape)
    for name, shape in (
        ("Ask", Shape.UNARY),
        ("List", Shape.ANSWER_STREAM),
        ("Talk", Shape.BOTH_STREAM),
    )
}
MESSAGE_MAX = 300_000
MIB = 1 << 20


class Line:
    """A client and the calls of its connection."""

    def __init__(self, limits: Http2Limits | None = None) -> None:
        self.now_ms = 0.0
        self.calls = Calls(Engine(limits or Http2Limits()), METHODS, message_bytes_max=MESSAGE_MAX)
        self.client = Http2Client(self._exchange)

    def _exchange(self, data: bytes) -> bytes:
        self.calls.receive(data, self.now_ms)
        return self.calls.output()

    def call(self, name: str, body: bytes = b"", *more: tuple[str, str], end: bool = True) -> int:
        headers = [(n, f"/test.Service/{name}" if n == ":path" else v) for n, v in POST]
        stream = self.client.request(body, headers=[*headers, *more], end=end)
        self.client.pump()
        return stream

    def events(self) -> list[CallEvent]:
        return list(iter(self.calls.next, None))

    def only(self) -> Any:
        (event,) = self.events()
        return event

    def first(self) -> Call:
        """The call of the first event; the others are dropped."""
        event = self.events()[0]
        assert not isinstance(event, ConnectionOver)
        return event.call

    def status(self, stream: int) -> tuple[str | None, str]:
        """grpc-status and grpc-message of an answer."""
        self.client.pump()
        answer = self.client.answer(stream)
        last = answer.trailers or answer.headers
        return last.get("grpc-status"), last.get("grpc-message", "")

    def messages(self, stream: int) -> list[bytes]:
        return MessageDecoder(MIB).feed(self.client.answer(stream).body)


# ── Kinds of calls ──


def test_a_unary_call() -> None:
    line = Line()
    stream = line.call("Ask", framed(b"question"), ("x-mq-client-id", "a"))
    event = line.only()
    assert isinstance(event, MessageReceived)
    assert event.message == b"question"
    assert event.call.method.name == "Ask"
    assert event.call.head.text(b"x-mq-client-id") == "a"

    event.call.answer(b"answer")

    assert line.status(stream) == ("0", "")
    assert line.messages(stream) == [b"answer"]
    assert line.client.answer(stream).headers["content-type"] == "application/grpc"
    assert line.events() == []
    assert line.calls.open == {}


def test_a_request_is_told_when_its_end_has_come() -> None:
    line = Line()
    stream = line.call("Ask", framed(b"question"), end=False)
    assert line.events() == []
    assert line.calls.held_bytes == len(framed(b"question"))

    line.client.connection.end_stream(stream)
    line.client.pump()

    assert line.only().message == b"question"
    assert line.calls.held_bytes == 0


def test_a_call_that_fails_has_a_head_and_no_trailers() -> None:
    line = Line()
    stream = line.call("Ask", framed(b""))
    line.only().call.finish(StatusCode.PERMISSION_DENIED, "not höre")

    assert line.status(stream) == ("7", "not h%C3%B6re")
    assert line.client.answer(stream).trailers == {}
    assert line.client.answer(stream).ended


def test_a_stream_of_answers_that_fails_at_its_end() -> None:
    line = Line()
    stream = line.call("List", framed(b"all"))
    call = line.only().call
    assert [call.send(b"one"), call.send(b"two")] == [True, True]
    call.finish(StatusCode.UNAVAILABLE, "later")

    assert line.status(stream) == ("14", "later")
    assert line.messages(stream) == [b"one", b"two"]
    assert line.client.answer(stream).headers == {
        ":status": "200",
        "content-type": "application/grpc",
    }


def test_a_stream_of_answers_without_one() -> None:
    line = Line()
    stream = line.call("List", framed(b"all"))
    line.only().call.finish()

    assert line.status(stream) == ("0", "")


def test_a_stream_in_both_directions() -> None:
    line = Line()
    stream = line.call("Talk", framed(b"hello"), end=False)
    opened, message = line.events()
    assert isinstance(opened, CallOpened)
    assert message == MessageReceived(opened.call, b"hello")
    opened.call.send(b"you too")
    line.client.data(stream, framed(b"1") + framed(b"2"), end=True)
    line.client.pump()

    assert line.events() == [
        MessageReceived(opened.call, b"1"),
        MessageReceived(opened.call, b"2"),
        HalfClosed(opened.call),
    ]
    opened.call.finish()
    assert line.status(stream) == ("0", "")
    assert line.messages(stream) == [b"you too"]


def test_calls_of_one_connection_end_in_any_order() -> None:
    line = Line()
    streams = [line.call("Ask", framed(b"%d" % number)) for number in range(10)]
    for event in reversed(line.events()):
        assert isinstance(event, MessageReceived)
        event.call.answer(event.message)
    line.client.pump()

    assert [line.messages(stream) for stream in streams] == [[b"%d" % n] for n in range(10)]


# ── Refusals ──


@pytest.mark.parametrize(
    ("name", "body", "more", "status"),
    [
        ("None", framed(b""), (), ("12", "Method test.Service/None is unimplemented")),
        ("Ask", b"", (), ("12", "no request came")),
        ("List", b"", (), ("12", "no request came")),
        ("Ask", framed(b"1") + framed(b"2"), (), ("12", "more than one request came")),
        ("Ask", framed(b"1")[:-1], (), ("13", "the last message is not whole")),
        ("Talk", framed(b"1")[:-1], (), ("13", "the last message is not whole")),
        (
            "Ask",
            framed(bytes(MESSAGE_MAX + 1))[:5],
            (),
            ("8", "a message has 300001 bytes, and 300000 are allowed"),
        ),
        (
            "Ask",
            b"\1" + framed(b"1")[1:],
            (),
            ("13", "a message is compressed, which is not offered"),
        ),
        ("Ask", framed(b""), (("grpc-timeout", "x"),), ("13", "grpc-timeout x is not")),
        ("Ask", framed(b""), (("grpc-encoding", "gzip"),), ("12", "grpc-encoding gzip is")),
    ],
)
def test_what_cannot_be_served_is_refused_and_told_to_nobody(
    name: str, body: bytes, more: tuple[tuple[str, str], ...], status: tuple[str, str]
) -> None:
    line = Line()
    stream = line.call(name, body, *more)

    code, text = line.status(stream)
    assert (code, text[: len(status[1])]) == status
    assert line.events() == []
    assert line.calls.open == {}
    assert line.calls.held_bytes == 0


def test_a_refused_encoding_comes_with_those_that_are_taken() -> None:
    line = Line()
    stream = line.call("Ask", framed(b""), ("grpc-encoding", "gzip"))
    line.client.pump()

    assert line.client.answer(stream).headers["grpc-accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("method", "status", "body"),
    [
        ("POST", "415", b"the content-type of a call is application/grpc\n"),
        ("GET", "405", b"a call is a POST request\n"),
        ("HEAD", "405", b""),
    ],
)
def test_what_is_not_grpc_gets_an_answer_of_http(method: str, status: str, body: bytes) -> None:
    line = Line()
    others = [pair for pair in POST if pair[0] not in (":method", "content-type")]
    stream = line.client.request(headers=[(":method", method), *others])
    line.client.pump()

    answer = line.client.answer(stream)
    assert answer.headers == {":status": status, "content-type": "text/plain"}
    assert (answer.body, answer.trailers, answer.ended) == (body, {}, True)


def test_a_stream_that_was_told_is_told_when_it_breaks() -> None:
    line = Line()
    stream = line.call("Talk", framed(b"1"), end=False)
    call = line.first()
    line.client.data(stream, b"\1" + framed(b"2")[1:])
    line.client.pump()

    assert line.events() == [CallOver(call, Over.BROKEN)]
    assert line.status(stream)[0] == "13"


# ── The end of a call ──


def test_a_client_that_cancels() -> None:
    line = Line()
    stream = line.call("Ask", framed(b"question"))
    call = line.only().call
    line.client.connection.reset_stream(stream, ErrorCode.CANCEL)
    line.client.pump()

    assert line.only() == CallOver(call, Over.CANCELLED)
    call.answer(b"late")
    assert call.send(b"late")
    call.finish()
    line.client.pump()
    assert line.events() == []


def test_a_client_that_cancels_a_stream_of_answers_before_it_has_all_of_it() -> None:
    line = Line()
    line.client.reads = False
    stream = line.call("List", framed(b"all"))
    call = line.only().call
    for _ in range(10):
        call.send(bytes(10_000))
    call.finish()
    line.client.pump()
    assert line.events() == []
    line.client.connection.reset_stream(stream, ErrorCode.CANCEL)
    line.client.pump()
    assert line.only() == CallOver(call, Over.CANCELLED)
    assert not line.calls.unwritten


def test_a_stream_of_answers_that_was_written_to_its_end_is_over_without_a_word() -> None:
    line = Line()
    line.call("List", framed(b"all"))
    call = line.only().call
    call.answer(b"one")
    assert list(line.calls.unwritten.values()) == [call]
    line.client.pump()
    assert (line.events(), line.calls.unwritten) == ([], {})


def test_a_call_that_was_never_told_ends_without_a_word() -> None:
    line = Line()
    for name in ("Ask", "Talk"):
        stream = line.call(name, framed(b"question"))
        line.client.connection.reset_stream(stream, ErrorCode.CANCEL)
    line.client.pump()

    assert line.events() == []
    assert line.calls.held_bytes == 0


def test_a_deadline_ends_a_call_and_says_so_on_both_sides() -> None:
    line = Line()
    line.now_ms = 1_000
    late = line.call("Ask", framed(b"a"), ("grpc-timeout", "3S"))
    line.call("Ask", framed(b"b"), ("grpc-timeout", "1M"))
    forever = line.call("Talk", framed(b"c"))
    line.calls.open[forever].stay()
    call = line.first()
    assert line.calls.next_deadline_ms == 4_000

    line.calls.expire(3_999)
    assert line.events() == []
    line.calls.expire(4_000)

    assert line.only() == CallOver(call, Over.DEADLINE)
    assert line.status(late) == ("4", "the time of the call is over")
    assert line.calls.next_deadline_ms == 61_000
    assert line.status(forever) == (None, "")
    assert len(line.calls.open) == 2


@pytest.mark.parametrize("body", [b"", framed(b"question")[:7], framed(b"question")])
def test_a_request_that_does_not_come_whole_in_time_ends_its_call(body: bytes) -> None:
    line = Line()
    line.now_ms = 1_000
    stream = line.call("Ask", body, ("grpc-timeout", "1H"), end=False)
    whole = line.call("Ask", framed(b"in time"))
    late_ms = 1_000 + REQUEST_MS + len(body) / SLOWEST_PER_MS
    line.calls.expire(late_ms - 1)
    assert line.status(stream) == (None, "")
    line.calls.expire(late_ms)

    assert line.status(stream) == ("4", "its request did not come in time")
    assert line.client.answer(stream).reset == ErrorCode.NO_ERROR
    assert line.only().call.stream == whole
    assert (line.calls.held_bytes, line.calls.heads_bytes) == (0, 0)
    assert line.calls.next_deadline_ms == inf


def test_a_long_request_has_longer() -> None:
    line = Line()
    half = framed(bytes(MESSAGE_MAX))[: MESSAGE_MAX // 2]
    stream = line.call("Ask", half[:60_000], end=False)
    line.client.data(stream, half[60_000:])
    line.client.pump()
    line.calls.expire(REQUEST_MS + 36_000)
    assert line.status(stream) == (None, "")
    line.calls.expire(REQUEST_MS + 37_000)
    assert line.status(stream)[0] == "4"


def test_a_stream_ends_in_time_unless_it_may_stay() -> None:
    line = Line()
    streams = [line.call("Talk", framed(b"1"), end=False) for _ in range(2)]
    first, second = (event.call for event in line.events() if isinstance(event, CallOpened))
    second.stay()
    line.calls.expire(100 * REQUEST_MS)

    assert line.events() == [CallOver(first, Over.DEADLINE)]
    assert [line.status(stream)[0] for stream in streams] == ["4", None]


def test_a_connection_that_ends_takes_its_calls_with_it() -> None:
    line = Line()
    line.call("Talk", framed(b"1"), end=False)
    call = line.first()
    line.calls.receive(b"\x00\x00\x00\x06\x00\x00\x00\x00\x00", 0)  # a PING of no bytes
    line.calls.output()

    assert line.events() == [
        CallOver(call, Over.CONNECTION),
        ConnectionOver(ErrorCode.FRAME_SIZE_ERROR, ""),
    ]
    call.send(b"late")
    call.finish()
    assert line.calls.output() == b""


def test_a_stop_ends_streams_and_lets_requests_go_on() -> None:
    line = Line()
    ask = line.call("Ask", framed(b"1"))
    talk = line.call("Talk", framed(b"1"), end=False)
    asked, opened, _ = line.events()
    assert isinstance(asked, MessageReceived)
    assert isinstance(opened, CallOpened)
    line.calls.stop("the broker stops")

    assert line.events() == [CallOver(opened.call, Over.CONNECTION)]
    assert list(line.calls.open) == [ask]
    asked.call.answer(b"2")
    assert line.calls.open == {}
    answers = {type(frame).__name__: frame for frame in frames(line.calls.output())}
    assert answers["GoAwayFrame"].error_code == ErrorCode.NO_ERROR
    assert answers["HeadersFrame"].stream_id in (ask, talk)
    assert answers["DataFrame"].data == framed(b"2")


# ── Windows and memory ──


def test_a_peer_may_send_as_much_again_as_was_given() -> None:
    line = Line(Http2Limits(stream_window_bytes=100_000))
    message = framed(bytes(20_000))
    stream = line.call("Talk", message * 4, end=False)
    window = line.client.connection.local_flow_control_window
    assert window(stream) == 100_000 - 4 * len(message)
    assert line.calls.held_bytes == 4 * len(message)
    line.client.pump()
    assert window(stream) == 100_000 - 4 * len(message), "nobody has taken them"

    line.events()
    line.client.pump()

    assert window(stream) > 50_000, "half of the window is left before it is renewed"
    assert line.calls.held_bytes == 0


def test_a_message_may_be_larger_than_the_window() -> None:
    line = Line(Http2Limits(stream_window_bytes=65_535))
    data = framed(bytes(MESSAGE_MAX))
    stream = line.call("Ask", data[:30_000], end=False)
    for start in range(30_000, len(data), 30_000):
        line.client.pump()
        line.client.data(stream, data[start : start + 30_000])
    line.client.pump()
    assert line.calls.held_bytes == len(data)
    line.client.connection.end_stream(stream)
    line.client.pump()

    assert len(line.only().message) == MESSAGE_MAX
    assert line.calls.held_bytes == 0


def test_refused_and_cancelled_data_comes_back_to_the_window_of_the_connection() -> None:
    line = Line(Http2Limits(connection_window_bytes=65_535))
    for _ in range(30):
        line.call("Ask", framed(bytes(MESSAGE_MAX + 1))[:20_000], end=False)
        stream = line.call("Ask", framed(bytes(20_000)), end=False)
        line.client.connection.reset_stream(stream, ErrorCode.CANCEL)
        line.call("Nothing", framed(bytes(20_000)), end=False)
    line.client.pump()

    assert line.calls.engine.ended is None
    assert line.calls.held_bytes == 0


def test_a_reader_that_is_slow_makes_the_answers_wait() -> None:
    line = Line(Http2Limits(stream_out_bytes=50_000))
    line.client.reads = False
    stream = line.call("List", framed(b"all"))
    call = line.only().call
    line.client.pump()
    sent = 0
    while call.send(bytes(10_000)):
        sent += 1
        line.client.pump()
    assert 10 < sent < 20
    assert line.events() == []

    line.client.connection.acknowledge_received_data(65_535, stream)
    line.client.pump()

    assert line.only() == RoomAgain(call)


def test_the_heads_of_calls_count_until_they_are_told() -> None:
    line = Line()
    before = line.calls.heads_bytes
    stream = line.call("Ask", b"", ("x-long", "v" * 5_000), end=False)
    one = line.calls.heads_bytes
    assert 5_000 + CALL_BYTES < one < 9_000
    line.call("Talk", b"", end=False)
    assert line.calls.heads_bytes > one
    line.events()
    assert line.calls.heads_bytes == one, "the stream was told, the request of the call is not here"
    line.client.data(stream, framed(b"1"), end=True)
    line.client.pump()
    assert line.calls.heads_bytes == one
    line.events()
    assert line.calls.heads_bytes == before == 0


def test_calls_without_a_request_are_refused_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line()
    monkeypatch.setattr(calls_module, "HEADS_BYTES_MAX", 50_000)
    streams = [line.call("Ask", b"", ("x-long", "v" * 5_000), end=False) for _ in range(20)]
    kept = [stream for stream in streams if stream in line.calls.open]
    assert len(kept) == 7
    assert {line.status(stream)[0] for stream in streams[7:]} == {"8"}
    line.client.data(kept[0], framed(b"1"), end=True)
    line.client.pump()
    assert line.only().message == b"1"
    assert line.call("Ask", b"", ("x-long", "v" * 5_000), end=False) in line.calls.open


def test_refused_requests_that_never_end_keep_no_stream() -> None:
    line = Line(Http2Limits(streams=50))
    for _ in range(200):
        stream = line.call("Nothing", b"", end=False)
        assert line.client.answer(stream).reset == ErrorCode.NO_ERROR
        assert line.status(stream)[0] == "12"
    stream = line.call("Ask", framed(b"1"))
    assert line.only().message == b"1"


# ── Fuzzed ──

ACTS = st.lists(
    st.tuples(
        st.sampled_from(["Ask", "List", "Talk", "None"]),
        st.binary(max_size=12) | st.binary(max_size=50).map(framed),
        st.sampled_from(["end", "open", "reset", "more"]),
    ),
    max_size=12,
)


def answered(event: CallEvent) -> None:
    """What a server does: deterministic, so that two runs can be compared."""
    if isinstance(event, MessageReceived):
        if event.call.method.shape is Shape.UNARY:
            event.call.answer(event.message)
        else:
            event.call.send(event.message)
    elif isinstance(event, HalfClosed):
        event.call.finish()


def told(event: CallEvent) -> tuple[Any, ...]:
    if isinstance(event, ConnectionOver):
        return ("over", event.code)
    call: Call = event.call
    return (
        type(event).__name__,
        call.stream,
        *(part for part in event if not isinstance(part, Call)),
    )


@settings(max_examples=150, deadline=None)
@given(ACTS, st.data())
def test_the_same_bytes_in_any_cut_make_the_same_calls(
    acts: list[tuple[str, bytes, str]], choices: st.DataObject
) -> None:
    data = spoken(acts)
    cuts = sorted(choices.draw(st.lists(st.integers(0, len(data)), max_size=12)))
    runs = []
    for places in ([0, len(data)], [0, *cuts, len(data)]):
        calls = Calls(Engine(Http2Limits()), METHODS, message_bytes_max=40)
        events = []
        for start, end in itertools.pairwise(places):
            calls.receive(data[start:end], 0)
        while (event := calls.next()) is not None:
            events.append(told(event))
        runs.append((events, calls.held_bytes, list(calls.open)))

    assert runs[0] == runs[1]


@settings(max_examples=150, deadline=None)
@given(ACTS, st.lists(st.tuples(st.integers(24, 2_000), st.integers(0, 255)), max_size=4))
def test_garbage_never_raises_and_leaves_nothing_behind(
    acts: list[tuple[str, bytes, str]], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(spoken(acts))
    for place, byte in changes:
        if place < len(data):
            data[place] = byte
    calls = Calls(Engine(Http2Limits()), METHODS, message_bytes_max=40)
    over: list[CallEvent] = []
    for start in range(0, len(data), 100):
        calls.receive(bytes(data[start : start + 100]), 0)
        while (event := calls.next()) is not None:
            answered(event)
            over.append(event)
        calls.output()
    calls.engine.receive(b"", 0)
    for call in list(calls.open.values()):
        call.finish(StatusCode.UNAVAILABLE)
    calls.output()

    assert calls.held_bytes == 0
    assert calls.open == {}
    assert sum(isinstance(event, ConnectionOver) for event in over) <= 1


def spoken(acts: list[tuple[str, bytes, str]]) -> bytes:
    """What a client sends that makes these calls."""
    client = client_connection()
    for name, body, then in acts:
        stream = client.get_next_available_stream_id()
        headers = [(n, f"/test.Service/{name}" if n == ":path" else v) for n, v in POST]
        client.send_headers(stream, headers)
        client.send_data(stream, body, end_stream=then == "end")
        if then == "reset":
            client.reset_stream(stream, ErrorCode.CANCEL)
        elif then == "more":
            client.send_data(stream, body, end_stream=True)
    return client.data_to_send()
