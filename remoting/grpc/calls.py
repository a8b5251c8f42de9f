"""The calls of one gRPC connection, seen from the server: bytes in, events of calls out.

    calls = Calls(Engine(limits), methods)
    calls.receive(data, now_ms)                      # what the socket had
    while (event := calls.next()) is not None:       # as many as the turn allows
        match event:
            case MessageReceived(call, message):     # the request of a unary call
                call.answer(message)
            ...
    socket.send(calls.output())                      # once in a round

Output makes room, and room is an event: behind `output` look for events once more.

The kinds of calls are those that RocketMQ has: one request and one answer, one request and a stream
of answers, a stream in both directions. A call is told with its first event that `next` gives, and
ends either by us (`answer`, `finish`) or with `CallOver`. After that whatever is done with it has
no effect, so that a handler which comes late needs no check. A stream of answers that we have ended
may still be cancelled before its client has got all of it: that is a `CallOver` as well.

A peer may send as much again as `next` has given: what waits here counts against its windows. Only
the beginning of a message that is not whole does not, for the rest of it has to come; that is in
`held_bytes`, and the heads of calls that were not told are in `heads_bytes`, for the budget of all
connections. So that nothing waits for ever, the request of a call has to be whole in time. Time
comes in, and only deadlines are measured.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aerobee.remoting.grpc.bulk import SHORT_BYTES_MAX
from aerobee.remoting.grpc.framing import PREFIX_BYTES, MessageDecoder, framed
from aerobee.remoting.grpc.head import EncodingRefused, NotGrpc, RequestHead
from aerobee.remoting.grpc.status import CallRefused, StatusCode, trailers
from aerobee.remoting.http2.events import (
    ConnectionEnded,
    DataReceived,
    ErrorCode,
    RequestReceived,
    StreamClosed,
    StreamDrained,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.remoting.http2.engine import Engine
    from aerobee.remoting.http2.events import Header

HEADERS: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
ACCEPTED: Final = (b"grpc-accept-encoding", b"identity")
PLAIN_TEXT: Final = (b"content-type", b"text/plain")
OK: Final = trailers(StatusCode.OK)

REQUEST_MS: Final = 30_000.0
"""How long the request of a call may take to come whole, and a stream until it may stay."""
SLOWEST_PER_MS: Final = 4.096
"""Bytes of a request for which it gets another millisecond: 4 KiB in a second."""
HEADS_BYTES_MAX: Final = 8 << 20
"""The heads of one connection's calls that were not told; a call beyond it is refused."""
CALL_BYTES: Final = 1_024
"""The memory of a call and its stream, beside its metadata."""


class Shape(Enum):
    """The kinds of calls."""

    UNARY = "one request, one answer"
    ANSWER_STREAM = "one request, a stream of answers"
    BOTH_STREAM = "a stream in both directions"


class Method(NamedTuple):
    """A method that clients may call."""

    name: str
    shape: Shape
    short: bool = False
    """Whether its messages are short, whatever the longest message may be."""


class Over(Enum):
    """Why a call has ended without us."""

    CANCELLED = "the client has cancelled it"
    DEADLINE = "its time is over"
    CONNECTION = "its connection has ended"
    BROKEN = "its messages cannot be read"


class Call:
    """One call. Once it is `over`, whatever is done with it has no effect."""

    __slots__ = (
        *("_begun", "_calls", "deadline_ms", "head", "method", "over", "owner", "stream"),
        # The state of the call: its account with the windows and the budget, for `Calls` alone.
        *("decoder", "half_closed", "head_bytes", "held", "request", "told", "uncredited"),
        "whole_by_ms",
    )

    def __init__(
        self, calls: Calls, stream: int, method: Method, head: RequestHead, now_ms: float
    ) -> None:
        self._calls = calls
        self._begun = False
        self.stream = stream
        self.method = method
        self.head = head
        self.deadline_ms = inf if head.timeout_ms is None else now_ms + head.timeout_ms
        """When the client gives up, on the clock of the connection; inf: never."""
        self.whole_by_ms = now_ms + REQUEST_MS
        """When a short request has to be whole, and a stream has to stay; inf: it is, or does."""
        self.over = False
        """Whether it has ended, by us or not."""
        self.owner: object = None
        """A value that the owner of the connection keeps for it until all of its answer is given.
        """
        bytes_max = SHORT_BYTES_MAX if method.short else calls.message_bytes_max
        self.decoder = MessageDecoder(bytes_max)
        self.request: bytes | None = None
        """The one of a call that has only one, until the client has ended its side."""
        self.half_closed = False
        """Whether the client has ended its side."""
        self.told = False
        """Whether `next` has given an event of the call."""
        self.head_bytes = CALL_BYTES + head.size_bytes
        """The memory of the call and its head, until it is told."""
        self.held = 0
        """Bytes that have come and that `next` has not given."""
        self.uncredited = 0
        """Bytes that have come and that the peer may not send again yet."""

    @property
    def ends_ms(self) -> float:
        """When it ends at the latest, if nothing more comes."""
        return min(self.deadline_ms, self.whole_by_ms + self.held / SLOWEST_PER_MS)

    def stay(self) -> None:
        """Let a stream in both directions go on, until its client gives up."""
        self.whole_by_ms = inf

    def answer(self, message: bytes) -> None:
        """Answer with the only message and OK. Hot."""
        if self.over:
            return
        if self.method.shape is not Shape.UNARY:
            self.send(message)
            self.finish()
            return
        self._calls.end(self)
        self._calls.engine.answer(self.stream, HEADERS, framed(message), OK)
        # The engine has the call in turn, and nothing more happens to either.
        self.owner = None

    def send(self, message: bytes) -> bool:
        """Answer with one message of several. Whether there is room for another one now; if not,
        `RoomAgain` says when.
        """
        if self.over:
            return True
        engine, stream = self._calls.engine, self.stream
        if not self._begun:
            self._begun = True
            engine.respond(stream, HEADERS, end=False)
        return engine.send(stream, framed(message))

    def finish(self, code: StatusCode = StatusCode.OK, text: str = "") -> None:
        """End the call with a status, behind the messages that were sent."""
        if self.over:
            return
        self._calls.end(self)
        engine, stream = self._calls.engine, self.stream
        if self._begun:
            engine.finish(stream, trailers(code, text))
            if self.method.shape is Shape.ANSWER_STREAM:
                self._calls.unwritten[stream] = self
        else:
            engine.respond(stream, (*HEADERS, *trailers(code, text)), end=True)
            if not self.half_closed:
                engine.leave_rest(stream)


class CallOpened(NamedTuple):
    """A stream in both directions has begun."""

    call: Call


class MessageReceived(NamedTuple):
    """The request of a call, whole and alone, or the next one of a stream in both directions."""

    call: Call
    message: bytes


class HalfClosed(NamedTuple):
    """The client sends nothing more on a stream in both directions."""

    call: Call


class RoomAgain(NamedTuple):
    """There is room for more messages on a call that had none."""

    call: Call


class CallOver(NamedTuple):
    """A call that was told has ended, and not by us."""

    call: Call
    why: Over


class ConnectionOver(NamedTuple):
    """The last event: write the rest of the output and close."""

    code: int
    reason: str


CallEvent: TypeAlias = (
    CallOpened | MessageReceived | HalfClosed | RoomAgain | CallOver | ConnectionOver
)


class Calls:
    """The calls of one connection, in the order in which they came."""

    __slots__ = (
        *("_events", "_methods", "_taken", "engine", "heads_bytes", "held_bytes"),
        *("message_bytes_max", "next_deadline_ms", "open", "unwritten"),
    )

    def __init__(
        self, engine: Engine, methods: Mapping[bytes, Method], *, message_bytes_max: int
    ) -> None:
        """`methods`: by path, with its first slash."""
        self.engine = engine
        self._methods = methods
        self.message_bytes_max = message_bytes_max
        self._events: list[CallEvent] = []
        self._taken: list[CallEvent] = []
        """The events in front of those, the last one first: a deque takes 760 bytes."""
        self.open: dict[int, Call] = {}
        """The calls that are not over, by stream."""
        self.unwritten: dict[int, Call] = {}
        """Calls that we have ended with a stream of answers that is not written to its end."""
        self.held_bytes = 0
        """Bytes of messages that are not whole, or that `next` has not given yet."""
        self.heads_bytes = 0
        """The memory of the calls of which `next` has given nothing yet."""
        self.next_deadline_ms = inf
        """No call has a deadline before it; call `expire` then."""

    # ── Bytes ──

    def receive(self, data: bytes | memoryview, now_ms: float) -> None:
        """Take bytes of the peer, cut anywhere, at most some 64 KiB."""
        self.engine.receive(data, now_ms)
        self._read(now_ms)

    def output(self, size_bytes: int | None = None) -> bytes:
        """The next bytes for the peer, at most so many; empty: nothing may be sent now."""
        data = self.engine.output(size_bytes)
        self._read(0)
        return data

    # ── Events ──

    def next(self) -> CallEvent | None:
        """The next event, which counts as taken; None: nothing more has happened."""
        while self._taken or self._events:
            if not self._taken:
                self._taken, self._events = self._events[::-1], []
            event = self._taken.pop()
            if isinstance(event, ConnectionOver):
                return event
            call = event.call
            if isinstance(event, CallOver):
                if call.told:
                    return event
            elif not call.over:
                if not call.told:
                    call.told = True
                    self._release_head(call)
                if isinstance(event, MessageReceived):
                    self._given(call, len(event.message) + PREFIX_BYTES)
                return event
        return None

    @property
    def happened(self) -> bool:
        """Whether `next` may have an event."""
        return bool(self._taken or self._events)

    def expire(self, now_ms: float) -> None:
        """End the calls whose time is over, or whose request did not come whole in time."""
        for call in [call for call in self.open.values() if call.ends_ms <= now_ms]:
            late = call.deadline_ms <= now_ms
            text = "the time of the call is over" if late else "its request did not come in time"
            call.finish(StatusCode.DEADLINE_EXCEEDED, text)
            self.unwritten.pop(call.stream, None)
            self._events.append(CallOver(call, Over.DEADLINE))
        self.next_deadline_ms = min((call.ends_ms for call in self.open.values()), default=inf)

    def stop(self, text: str) -> None:
        """Take no more calls. Calls with one request go on; streams in both directions end with
        UNAVAILABLE and this text, so that their clients come back. Close when none is open.
        """
        self.engine.go_away(refuse=True)
        for call in list(self.open.values()):
            if call.method.shape is Shape.BOTH_STREAM:
                call.finish(StatusCode.UNAVAILABLE, text)
                self._events.append(CallOver(call, Over.CONNECTION))

    def end(self, call: Call) -> None:
        """Forget a call: it is over. For `Call`; others call `finish`."""
        call.over = True
        del self.open[call.stream]
        self.held_bytes -= call.held
        self._release_head(call)
        self._credit(call, call.uncredited)

    # ── What happens to streams ──

    def _read(self, now_ms: float) -> None:
        for event in self.engine.events():
            if isinstance(event, DataReceived):
                self._data(event)
            elif isinstance(event, RequestReceived):
                self._request(event, now_ms)
            elif isinstance(event, ConnectionEnded):
                for call in list(self.open.values()):
                    self.end(call)
                    self._events.append(CallOver(call, Over.CONNECTION))
                for call in self.unwritten.values():
                    self._events.append(CallOver(call, Over.CONNECTION))
                self.unwritten.clear()
                self._events.append(ConnectionOver(event.code, event.reason))
            elif isinstance(event, (StreamClosed, StreamDrained)):
                open_call = self.open.get(event.stream)
                if open_call is None:
                    if isinstance(event, StreamClosed):
                        self._closed(event)
                elif isinstance(event, StreamDrained):
                    self._events.append(RoomAgain(open_call))
                else:
                    self.end(open_call)
                    self._events.append(CallOver(open_call, Over.CANCELLED))

    def _closed(self, event: StreamClosed) -> None:
        """A stream is gone whose call has ended: all of it was written, or it was cancelled."""
        call = self.unwritten.pop(event.stream, None)
        if call is None:
            return
        if event.code == ErrorCode.NO_ERROR:
            call.owner = None
        else:
            self._events.append(CallOver(call, Over.CANCELLED))

    def _request(self, event: RequestReceived, now_ms: float) -> None:
        stream = event.stream
        try:
            head = RequestHead(event.headers)
            method = self._methods.get(head.path)
            if method is None:
                text = f"Method {head.method} is unimplemented"
                raise CallRefused(StatusCode.UNIMPLEMENTED, text)
            call = Call(self, stream, method, head, now_ms)
            if self.heads_bytes + call.head_bytes > HEADS_BYTES_MAX:
                text = f"the calls whose requests are not whole have {self.heads_bytes} bytes"
                raise CallRefused(StatusCode.RESOURCE_EXHAUSTED, text)
        except NotGrpc as error:
            self._tell(event, error)
            return
        except CallRefused as error:
            self.engine.respond(stream, _refusal(error), end=True)
            if not event.end:
                self.engine.leave_rest(stream)
            return
        self.open[stream] = call
        self.heads_bytes += call.head_bytes
        self.next_deadline_ms = min(self.next_deadline_ms, call.deadline_ms, call.whole_by_ms)
        if method.shape is Shape.BOTH_STREAM:
            self._events.append(CallOpened(call))
        if event.end:
            self._half_closed(call)

    def _tell(self, event: RequestReceived, error: NotGrpc) -> None:
        """Answer somebody who does not speak gRPC, such as a browser."""
        head = ((b":status", b"%d" % error.http_status), PLAIN_TEXT)
        bodyless = (b":method", b"HEAD") in event.headers
        self.engine.respond(event.stream, head, end=bodyless)
        if not bodyless:
            self.engine.close(event.stream, f"{error}\n".encode())

    def _data(self, event: DataReceived) -> None:
        size = len(event.data)
        call = self.open.get(event.stream)
        if call is None:
            self.engine.taken(event.stream, size)
            return
        call.held += size
        call.uncredited += size
        self.held_bytes += size
        try:
            for message in call.decoder.feed(event.data):
                self._message(call, message)
        except CallRefused as error:
            self._refuse(call, error)
            return
        # The rest of a message that is not whole has to come: its beginning counts no more.
        self._credit(call, call.uncredited - (call.held - call.decoder.pending_bytes))
        if event.end:
            self._half_closed(call)

    def _message(self, call: Call, message: bytes) -> None:
        if call.method.shape is Shape.BOTH_STREAM:
            self._events.append(MessageReceived(call, message))
        elif call.request is None:
            call.request = message
        else:
            raise CallRefused(StatusCode.UNIMPLEMENTED, "more than one request came")

    def _half_closed(self, call: Call) -> None:
        call.half_closed = True
        if call.decoder.pending_bytes:
            self._refuse(call, CallRefused(StatusCode.INTERNAL, "the last message is not whole"))
        elif call.method.shape is Shape.BOTH_STREAM:
            self._events.append(HalfClosed(call))
        elif call.request is None:
            self._refuse(call, CallRefused(StatusCode.UNIMPLEMENTED, "no request came"))
        else:
            call.whole_by_ms = inf
            self._events.append(MessageReceived(call, call.request))
            call.request = None

    def _refuse(self, call: Call, error: CallRefused) -> None:
        call.finish(error.code, str(error))
        self._events.append(CallOver(call, Over.BROKEN))

    def _release_head(self, call: Call) -> None:
        self.heads_bytes -= call.head_bytes
        call.head_bytes = 0

    def _given(self, call: Call, size: int) -> None:
        call.held -= size
        self.held_bytes -= size
        self._credit(call, min(size, call.uncredited))

    def _credit(self, call: Call, size: int) -> None:
        if size > 0:
            call.uncredited -= size
            self.engine.taken(call.stream, size)


def _refusal(error: CallRefused) -> Sequence[Header]:
    """An answer that has nothing but a head."""
    head = (*HEADERS, *trailers(error.code, str(error)))
    return (*head, ACCEPTED) if isinstance(error, EncodingRefused) else head
