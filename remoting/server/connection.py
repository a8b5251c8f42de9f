"""One connection: its decoder, its output queue and limits, its calls, its names.

Bytes are sent by `write`, once per round; answers are only queued here. Nothing in this file waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import trio

from aerobee.remoting.errors import CallTimedOut, ChannelClosed, HeaderError
from aerobee.remoting.latency import ONEWAY_RESULT, SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.server.addresses import host_text, packed_host
from aerobee.remoting.server.arrivals import Reading
from aerobee.remoting.server.outbound import Uptake, drop_sent, send_queued
from aerobee.remoting.wire.codes import MSGPACK_OFFER
from aerobee.remoting.wire.command import ONEWAY, answer_head, encode_request
from aerobee.remoting.wire.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.remoting.errors import FrameError
    from aerobee.remoting.server.peer import Peer, Wire
    from aerobee.remoting.server.pools import Pool, Waiting
    from aerobee.remoting.server.read_ahead import Piece, ReadAhead
    from aerobee.remoting.server.route_table import Unfinished
    from aerobee.remoting.server.shared import SelectorContext
    from aerobee.remoting.server.tls_socket import TlsSocket
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.frame import Frame
    from aerobee.remoting.wire.header import Header


class FrameHandler(Protocol):
    """Serves the frames of a connection: the worker of its listener."""

    def serve(
        self, connection: Connection, frames: Sequence[Frame], arrived: float, step: float
    ) -> int:
        """Serve frames in order, as far as the turn allows; returns how many that were.

        Raises: FrameError when a header does not decode.
        """

    def refuse_late(self, connection: Connection, piece: Piece) -> int:
        """Refuse its first requests that have waited too long; returns the place behind them."""

    def go_on(self, connection: Connection) -> None:
        """Run more steps of the unfinished request."""

    def readmit(self, peer: Peer) -> None:
        """Serve requests that were set aside until the peer reads."""

    def failed(self, command: Command, peer: Peer, error: Exception) -> Answer:
        """The answer to a request that raised an error."""


class Connection:
    """A client connection of the reactor; handlers get it as the origin of a request.

    Invariant: `unsent` is the number of bytes in `out`. Above the high-water mark nothing more is
    read or served until `unsent` falls below the low-water mark. `backlog` keeps complete frames
    until then or until the next turn; while it is not empty, nothing more is read.
    """

    __slots__ = (
        "__weakref__",
        "_announce",
        "_calls",
        "_forget",
        "_next_opaque",
        "accounts",
        "address",
        "ahead",
        "backlog",
        "bad",
        "budget",
        "closed",
        "context",
        "decoder",
        "deferred",
        "dirty",
        "encoding",
        "held",
        "host",
        "id",
        "inbound",
        "last_active",
        "listener",
        "local_address",
        "on_close",
        "out",
        "paused",
        "postponed",
        "reading",
        "requests",
        "sock",
        "starved",
        "tls",
        "unfinished",
        "unsent",
        "uptake",
        "worker",
        "working",
    )

    def __init__(
        self,
        sock: Wire,
        address: tuple[Any, ...],
        listener: str,
        *,
        context: SelectorContext,
        worker: FrameHandler,
        forget: Callable[[Connection, str], None],
    ) -> None:
        """`forget` is called once, with the reason, while the socket is still open."""
        self.sock = sock
        self.tls: TlsSocket | None = None
        """The same, once a TLS handshake is done."""
        self.context = context
        self.worker = worker
        self.id = context.shared.next_number()
        self.listener = listener
        self.host = packed_host(address)
        self.address = host_text(self.host)
        self.local_address = host_text(packed_host(sock.getsockname()))
        limits = context.shared.limits
        self.decoder = FrameDecoder(limits.max_frame_bytes, limits.max_header_bytes)
        self.out: deque[bytes | memoryview] = deque()
        self.unsent = 0
        self.dirty = False
        self.paused = False
        self.backlog: deque[tuple[int, bytes, bytes, float]] = deque()
        """Encoding, header, body and arrival time of frames that were read and not served."""
        self.ahead: ReadAhead | None = None  # behind that, and not split into frames
        self.unfinished: Unfinished | None = None
        """The request whose steps continue in the next turn, before the backlog."""
        self.postponed = False
        """The unfinished request waits for `resume`; until then nothing else is read or served."""
        self.bad: FrameError | None = None  # after the backlog; it closes the connection
        self.working = 0
        self.deferred: deque[tuple[Waiting, Pool]] = deque()
        self.closed = False
        self.encoding = 0
        self.requests = 0
        self.accounts: frozenset[str] = frozenset()  # whose requests the gate has seen on it
        self.held = 0
        """Requests held by long polling: their peer waits for us and is not idle."""
        self.inbound = 0
        """Bytes of an incomplete frame; the inbound budget maintains this and `starved`."""
        self.budget = context.shared.unauthenticated or context.shared.inbound
        self.starved = False
        """Not read because the inbound budget is exhausted."""
        self.reading = Reading(context.now)
        """Estimates when its data arrived."""
        self.last_active = context.now
        self.uptake: Uptake | None = None
        """What the peer reads, while data is unsent that the kernel does not take."""
        self.on_close: list[Callable[[Connection, str], None]] = []
        self._calls: dict[int, _Call] = {}
        self._next_opaque = 0
        self._announce: int | None = None
        self._forget = forget

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
        if command.flag & ONEWAY or self.closed:
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

    def put(self, data: bytes) -> None:
        """Queue whole frames."""
        self.out.append(data)
        self.unsent += len(data)
        if not self.dirty:
            self.dirty = True
            self.context.outbox.append(self)

    def failed(self, command: Command, error: Exception) -> None:
        """Answer a held request that raised an error when it ran again."""
        self.answer(command, self.worker.failed(command, self, error), held=True)

    def announce(self, command: Command) -> None:
        """On the first request: if it offers MSGPACK headers, mark its answer to grant them."""
        self.requests = 1
        try:
            asked = MSGPACK_OFFER in command.ext_fields().items()
        except HeaderError:
            asked = False  # the typed decoder will refuse this request
        if asked:
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
        if not self.paused:
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

    # ── Bytes out ──

    def write(self) -> None:
        """Send all queued answers once; what the kernel does not take waits for EPOLLOUT."""
        self.dirty = False
        if self.closed or not self.unsent:
            return
        out = self.out
        try:
            sent = send_queued(self.sock, out, self.unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return
        self.context.stats.bytes_out += sent
        self.last_active = self.context.now
        if sent == self.unsent:
            out.clear()
            self.unsent = 0
            if self.uptake is not None or self.paused:
                self._flowing()
        else:
            self._stalled(sent)

    def _stalled(self, sent: int) -> None:
        shared, now = self.context.shared, self.context.now
        if self.uptake is None:
            self.uptake = Uptake()
        self.uptake.sent += sent
        self.unsent -= sent
        drop_sent(self.out, sent)
        outbound = shared.outbound
        outbound.note(self, self.unsent, now)
        if self.closed:
            return
        high_water = outbound.high_water_bytes
        if self.unsent > high_water:
            self.paused = True
            shared.long_requests.leave(self)
        elif self.paused and self.unsent <= min(shared.limits.low_water_bytes, high_water):
            self._flow_again()
        self.watch()

    def _flowing(self) -> None:
        self.uptake = None
        self.context.shared.outbound.note(self, 0, self.context.now)
        if self.paused:
            self._flow_again()
        elif self.deferred:
            self.worker.readmit(self)
        self.watch()

    def _flow_again(self) -> None:
        self.paused = False
        self.reading.resumed = self.context.now
        if self.waits:
            self.context.waiting[self.sock.fileno()] = None
        if self.deferred:
            self.worker.readmit(self)

    def end_steps(self) -> None:
        """Release the request whose steps have ended."""
        self.unfinished = None
        self.context.shared.long_requests.leave(self)

    def postpone(self, request: Unfinished | None = None) -> None:
        """After the reactor's next `resume` serve this again, or go on with its steps, first."""
        self.unfinished = request or self.unfinished
        self.postponed = True
        self.context.shared.postponed.append(self.resume)

    def resume(self, now: float) -> None:
        """Let the postponed request be served with the next event, which comes at once."""
        self.postponed = False
        if not self.closed:
            self.reading.resumed = now
            self.watch()

    @property
    def backed_up(self) -> bool:
        """Whether its peer would not read another answer now.

        While anything is unsent, one request is at work: its answer comes on top.
        """
        return self.paused or (self.uptake is not None and self.working > 0)

    @property
    def waits(self) -> bool:
        """Whether something that was read has to be served before more is read."""
        if self.backlog or self.unfinished is not None or self.ahead is not None:
            return True
        return self.tls is not None and self.tls.pending and not self.starved

    def watch(self) -> None:
        """Update the poller's interest: nothing is read before the backlog has been served.

        With a backlog the socket is watched for writing even when everything is sent: that event
        continues the backlog. Answers that `write` has not tried to send yet are sent at the end of
        the round and need no event; an idle socket would report one in every round.
        """
        waits = self.waits
        self.context.poller.interest(
            self.sock,
            read=not (self.paused or waits or self.starved),
            write=(waits and not self.postponed) or self.uptake is not None,
        )

    # ── The end ──

    def close(self, reason: str) -> None:
        """Close now: unsent data is dropped, calls in flight fail, `on_close` runs once."""
        if self.closed:
            return
        self.closed = True
        self._forget(self, reason)
        self.sock.close()
        self.out.clear()
        self.unsent = 0
        self.context.shared.outbound.note(self, 0, self.context.now)
        self.backlog.clear()
        self.ahead = None
        while self.deferred:
            self.deferred.pop()[0].work.close()  # type: ignore[attr-defined]  # coroutines
        self.end_steps()
        for waiting in self._calls.values():
            waiting.done.set()
        for callback in self.on_close:
            callback(self, reason)
        self.on_close.clear()


class _Call:
    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.answer: Command | None = None
