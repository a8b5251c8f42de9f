"""A connection of remoting: a channel whose bytes are requests and answers, known to handlers.

It has the request in progress, the frames and bytes that are left behind it, its requests that wait
in pools, the answers, and our own requests to the peer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import trio

from aerobee.remoting.errors import CallTimedOut, ChannelClosed, HeaderError
from aerobee.remoting.latency import ONEWAY_RESULT, SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.server.channel import Channel, Serving
from aerobee.remoting.server.states import CLOSED, Event
from aerobee.remoting.wire.codes import MSGPACK_OFFER
from aerobee.remoting.wire.command import ONEWAY, answer_head, encode_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.remoting.errors import FrameError
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.server.channel import NewSocket
    from aerobee.remoting.server.pools import Pool, Waiting
    from aerobee.remoting.server.route_table import OpenRequest
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.frame import Frame, FrameDecoder
    from aerobee.remoting.wire.header import Header


LEFT_FRAME_BYTES: Final = 200
"""The memory that a frame which is left takes beside its bytes."""


class RequestServing(Serving["Connection"], Protocol):
    """The serving of requests, as their connection uses it."""

    def readmit(self, caller: Caller) -> None:
        """Serve requests that are queued until the peer reads."""

    def failed(self, command: Command, caller: Caller, error: Exception) -> Answer:
        """The answer to a request that raised an error."""


class Connection(Channel):
    """A client connection of remoting; handlers get it as the origin of a request.

    An item of `left` has encoding, header, body and arrival time of a frame that was not served.
    Invariant: between turns the state is POSTPONED or STEPS while there is a `current` request,
    else TURN_OVER while frames are `left`, else BYTES while there are `left_bytes`.
    """

    __slots__ = (
        "_announce",
        "_calls",
        "_next_opaque",
        "bad",
        "current",
        "decoder",
        "encoding",
        "left",
        "queued",
        "worker",
        "working",
    )

    def __init__(self, new: NewSocket, worker: RequestServing, decoder: FrameDecoder) -> None:
        """`decoder` keeps the beginning of a frame that has not come whole."""
        super().__init__(new, worker)
        self.worker = worker
        self.decoder = decoder
        self.current: OpenRequest | None = None
        """The request that goes on in the next turn, before what is left, or when it is resumed."""
        self.left: deque[tuple[int, bytes, bytes, float]] = deque()
        """Frames that were read and not served: encoding, header, body, when it came."""
        self.bad: str | None = None
        """The reason to refuse the bytes behind `left`, and to close the connection."""
        self.working = 0
        self.queued: deque[tuple[Waiting, Pool]] = deque()
        self.encoding = 0
        self._calls: dict[int, _Call] = {}
        self._next_opaque = 0
        self._announce: int | None = None

    # ── What is left ──

    @property
    def has_left(self) -> bool:
        return bool(self.left)

    @property
    def lane(self) -> Connection:
        """Its own lane: a connection takes turns with others."""
        return self

    @property
    def backed_up(self) -> bool:
        """Whether its peer would not read another answer now.

        While anything is unsent, one request is at work: its answer comes on top.
        """
        return self.state.paused or (self.state.stalled and self.working > 0)

    @property
    def unserved_bytes(self) -> int:
        """The approximate memory of what was read of it and is not served."""
        size = self.decoder.pending_bytes
        if self.current is not None:
            size += len(self.current.command.body)
        if self.left_bytes is not None:
            size += self.left_bytes.size
        for _, header, body, _ in self.left:
            size += LEFT_FRAME_BYTES + len(header) + len(body)
        return size

    def note_left(self, *, renewed: bool) -> None:
        """Tell the budget what is not served; `renewed`: nothing of it was there before. Hot."""
        state = self.state
        if state.closed:
            return
        if state.waits or self.left_bytes is not None:
            pending = self.unserved_bytes
        else:
            pending = self.decoder.pending_bytes
        if pending != self.inbound or (pending and renewed):
            self.budget.note(self, pending, self.context.now, renewed=renewed)

    def spoil(self, error: FrameError) -> Sequence[Frame]:
        """Serve nothing behind bad bytes, which close it; the good frames before them."""
        # Kept with the error, they would keep the memory they are views of.
        frames, error.frames = error.frames, []
        self.context.may_join = False  # a lone one would be dropped with its connection
        # Not the error itself: its frames have the connection, and that would be a cycle.
        self.bad = str(error)
        self.left.clear()
        self.left_bytes = None
        return frames

    def goes_on(self) -> None:
        """Have a request of a run, whose first step is done, go on in its next turns."""
        self.settle()
        self.note_left(renewed=True)

    def begin(self, request: OpenRequest) -> None:
        """Go on with the steps of a request, of which more than one is needed."""
        self.current = request
        self.on(Event.BEGUN)

    def end(self) -> None:
        """Release the request whose steps have ended."""
        if self.current is not None:
            self.current = None
            self.on(Event.ENDED)
        self.context.shared.long_requests.leave(self)

    def postpone(self, request: OpenRequest | None = None, *, to_sweep: bool = False) -> None:
        """Serve this request again, or go on with the current one, before anything else: when the
        reactor resumes such requests, or `to_sweep`, in the sweep of each second.
        """
        self.current = request or self.current
        self.on(Event.POSTPONED)
        shared = self.context.shared
        (shared.postponed_to_sweep if to_sweep else shared.postponed).append(self.resume)

    def resume(self, now: float) -> None:
        """Let the postponed request be served with the next event, which comes at once."""
        self.on(Event.RESUMED)
        if not self.closed:
            self.reading.resumed = now
            self.watch()

    # ── Answers ──

    def answer(self, command: Command, answer: Answer, *, held: bool = False) -> None:
        """Queue `answer` for `command`; dropped if it was one-way or the peer has gone.

        `held`: it waited for a message.
        """
        command.answered = True
        pool = command.pool
        if pool is not None:
            pool.depth -= 1
            command.pool = None
        context = self.context
        ended = context.stats.latencies.ended
        if command.flag & ONEWAY or self.state is CLOSED:
            result = ONEWAY_RESULT if command.flag & ONEWAY else UNSENT_RESULT
            ended[command.code, answer.code, held, result].append(command.arrived)
            return
        ended[command.code, answer.code, held, SUCCESS_RESULT].append(command.arrived)
        body = answer.body
        if isinstance(body, (bytes, memoryview)):
            length = len(body)
        else:
            length = sum(map(len, body))
        header: Header | dict[str, str] | None = answer.header
        if self._announce == command.opaque:
            header = self._announced(header)
        head = answer_head(command, answer.code, header, answer.remark, length)
        out = self.out
        out.append(head)
        if length:
            if isinstance(body, (bytes, memoryview)):
                out.append(body)
            else:
                out.extend(body)
        self.unsent += len(head) + length
        if not self.dirty:
            self.dirty = True
            context.outbox.append(self)

    def unanswered(self, command: Command) -> None:
        """Count a request that was served without an answer, if it was one-way."""
        if command.flag & ONEWAY:
            ended = self.context.stats.latencies.ended
            ended[command.code, 0, False, ONEWAY_RESULT].append(command.arrived)

    def failed(self, command: Command, error: Exception) -> None:
        """Answer a held request that raised an error when it ran again."""
        self.answer(command, self.worker.failed(command, self, error), held=True)

    def announce(self, command: Command) -> None:
        """On the first request: if it offers MSGPACK headers, mark its answer to grant them."""
        try:
            offered = MSGPACK_OFFER in command.ext_fields().items()
        except HeaderError:
            offered = False  # the typed decoder will refuse this request
        if offered:
            self._announce = command.opaque

    @property
    def announces(self) -> bool:
        """Whether an answer is to grant MSGPACK headers."""
        return self._announce is not None

    def _announced(self, header: Header | dict[str, str] | None) -> dict[str, str]:
        self._announce = None
        ext = header if isinstance(header, dict) else header.ext() if header is not None else {}
        return {**ext, **dict([MSGPACK_OFFER])}

    # ── Our own requests to the peer ──

    def notify(self, code: int, header: Header | None, body: bytes = b"") -> None:
        """Send a one-way request, in the encoding last used by this peer.

        Dropped when the peer has disconnected or does not read its data.
        """
        if not self.state.paused:
            self._request(code, header, body, oneway=True)

    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command:
        """Send a request and wait for its response.

        Raises: CallTimedOut after `timeout_s`, or at once when the peer does not read its data;
        ChannelClosed when it disconnects first.
        """
        if self.closed:
            raise ChannelClosed(f"{self.address} is closed")
        if self.paused:
            raise CallTimedOut(f"{self.address} does not read what it was sent")
        opaque = self._request(code, header, body, oneway=False)
        del header, body  # Not kept while the answer is awaited.
        waiting = self._calls[opaque] = _Call()
        self.context.shared.flush()
        try:
            with trio.move_on_after(timeout_s):
                await waiting.done.wait()
        finally:
            del self._calls[opaque]
        if waiting.answer is not None:
            return waiting.answer
        if self.closed:
            raise ChannelClosed(f"{self.address} closed while request {code} waited")
        raise CallTimedOut(f"{self.address} did not answer request {code} within {timeout_s:g} s")

    def answered(self, command: Command) -> None:
        """Complete the call of a response; an unknown opaque is dropped, as RocketMQ does."""
        waiting = self._calls.get(command.opaque)
        if waiting is not None:
            waiting.answer = command.detached()
            waiting.done.set()

    def _request(self, code: int, header: Header | None, body: bytes, *, oneway: bool) -> int:
        self._next_opaque = opaque = self._next_opaque % 0x7FFFFFFF + 1
        if not self.closed:
            frame = encode_request(
                code, opaque, header, body, encoding=self.encoding, oneway=oneway
            )
            self.put(frame)
        return opaque

    # ── The channel tells ──

    def crowded(self) -> None:
        self.context.shared.long_requests.leave(self)

    def drained(self) -> None:
        if self.queued:
            self.worker.readmit(self)

    def ended(self) -> None:
        self.left.clear()
        while self.queued:
            self.queued.pop()[0].work.close()  # type: ignore[attr-defined]  # coroutines
        self.end()
        for waiting in self._calls.values():
            waiting.done.set()


class _Call:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Command | None = None
