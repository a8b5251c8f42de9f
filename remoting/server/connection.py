"""One connection: its state, what is left of its input, its output queue, its calls, its names.

Bytes are sent by `write`, once per round; answers are only queued here. Nothing here waits.

A connection belongs to a loop (`selector`), which gives it turns as its state allows (`states`),
and to the serving of its protocol (`Serving`), which is asked what its bytes mean.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from aerobee.remoting.errors import CallTimedOut, ChannelClosed, HeaderError
from aerobee.remoting.latency import ONEWAY_RESULT, SUCCESS_RESULT, UNSENT_RESULT
from aerobee.remoting.server.addresses import host_text, packed_host
from aerobee.remoting.server.arrivals import Reading
from aerobee.remoting.server.outbound import Uptake, drop_sent, send_queued
from aerobee.remoting.server.states import CLOSED, OPENED, Event, Input
from aerobee.remoting.wire.codes import MSGPACK_OFFER
from aerobee.remoting.wire.command import ONEWAY, answer_head, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.errors import FrameError
    from aerobee.remoting.server.peer import Peer, Wire
    from aerobee.remoting.server.pools import Pool, Waiting
    from aerobee.remoting.server.read_ahead import Piece, ReadAhead
    from aerobee.remoting.server.route_table import OpenRequest
    from aerobee.remoting.server.shared import SelectorContext
    from aerobee.remoting.server.tls_socket import TlsSocket
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


READING: Final = Input.READING
LEFT_FRAME_BYTES: Final = 200
"""The memory that a frame which is left takes beside its bytes."""


class Serving(Protocol):
    """What the bytes of a connection mean: the protocol of its listener.

    The loop calls `take` and `go_on` in the turns of a connection, and nothing of it waits. After
    each, what is left stands in the connection (`backlog`, `ahead`, `current`), and `settle` has
    been called for it where something is.
    """

    def decoder(self) -> Decoder:
        """What keeps the beginning of a message that has not come whole: one for a connection."""

    def take(self, connection: Connection, data: memoryview, since: float, until: float) -> None:
        """Serve what these bytes complete, as far as the turn allows, and keep the rest.

        They came from `since` to `until`, on the loop's clock, and are valid during the call.
        """

    def go_on(self, connection: Connection) -> None:
        """Serve what an earlier turn has left, as far as this one allows."""

    def refuse_late(self, connection: Connection, piece: Piece) -> int:
        """Refuse its first requests that have waited too long; returns the place behind them."""

    def readmit(self, peer: Peer) -> None:
        """Serve requests that were set aside until the peer reads."""

    def failed(self, command: Command, peer: Peer, error: Exception) -> Answer:
        """The answer to a request that raised an error."""


class Decoder(Protocol):
    """The bytes of one message that has not come whole."""

    @property
    def pending_bytes(self) -> int:
        """How many there are."""

    def give_back(self) -> bytes | bytearray:
        """Forget them: they will be fed again."""

    def feed(self, data: memoryview | bytes) -> list[Any]:
        """The messages that these bytes complete."""


class Connection:
    """A client connection of the reactor; handlers get it as the origin of a request.

    Invariant: `unsent` is the number of bytes in `out`. Between turns the state is POSTPONED or
    STEPS while there is a `current` request, else TURN_OVER while there is a `backlog`, else AHEAD
    while there are bytes `ahead`.
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
        "context",
        "current",
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
        "reading",
        "requests",
        "sock",
        "state",
        "tls",
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
        worker: Serving,
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
        self.state = OPENED
        self.decoder = worker.decoder()
        self.out: deque[bytes | memoryview] = deque()
        self.unsent = 0
        self.dirty = False
        """Whether it is in the outbox."""
        self.backlog: deque[tuple[int, bytes, bytes, float]] = deque()
        """Encoding, header, body and arrival time of frames that were read and not served."""
        self.ahead: ReadAhead | None = None  # behind that, and not split into frames
        self.current: OpenRequest | None = None
        """The request that goes on in the next turn, before the backlog, or when it is resumed."""
        self.bad: FrameError | None = None  # after the backlog; it closes the connection
        self.working = 0
        self.deferred: deque[tuple[Waiting, Pool]] = deque()
        self.encoding = 0
        self.requests = 0
        self.accounts: frozenset[str] = frozenset()  # whose requests the gate has seen on it
        self.held = 0
        """Requests held by long polling: their peer waits for us and is not idle."""
        self.inbound = 0
        """Received bytes that are not served; the inbound budget maintains this."""
        self.budget = context.shared.unauthenticated or context.shared.inbound
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

    # ── Its state ──

    def on(self, event: Event) -> None:
        """Change its state."""
        after = self.state.after[event]
        assert after is not None, f"{event.name} while {self.state!r}"
        self.state = after

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self.state.closed

    @property
    def paused(self) -> bool:
        """Whether its peer does not read what it was sent: it gets nothing that can be left out."""
        return self.state.paused

    @property
    def postponed(self) -> bool:
        """Whether its current request waits until it is resumed."""
        return self.state.postponed

    @property
    def waits(self) -> bool:
        """Whether something that was read has to be served before more is read."""
        return self.state.waits

    @property
    def backed_up(self) -> bool:
        """Whether its peer would not read another answer now.

        While anything is unsent, one request is at work: its answer comes on top.
        """
        return self.state.paused or (self.state.stalled and self.working > 0)

    def watch(self) -> None:
        """Tell the poller what its state wants to hear of.

        Answers that `write` has not tried to send yet are sent at the end of the round and need no
        event; an idle socket would report one in every round.
        """
        state = self.state
        self.context.poller.interest(self.sock, read=state.reads, write=state.writes)

    def settle(self) -> None:
        """End a turn which may have left something: see to it that it is served."""
        if self.state.input is READING:
            if self.backlog:
                self.on(Event.FRAMES_LEFT)
            elif self.ahead is not None:
                self.on(Event.BYTES_LEFT)
            elif self.stage_pending:
                self.on(Event.STAGE_LEFT)
        state = self.state
        if state.turns:
            self.context.waiting[self.sock.fileno()] = None
        elif not state.closed:
            # Not only after an event: with very many ready sockets the poller names others.
            self.watch()

    @property
    def stage_pending(self) -> bool:
        """Whether the stage below holds decrypted bytes, of which no poller tells. Hot."""
        return self.tls is not None and self.tls.pending

    @property
    def stalled(self) -> bool:
        """Whether anything is unsent that the kernel does not take."""
        return self.state.stalled

    @property
    def unserved_bytes(self) -> int:
        """The approximate memory of what was read of it and is not served."""
        size = self.decoder.pending_bytes
        if self.current is not None:
            size += len(self.current.command.body)
        if self.ahead is not None:
            size += self.ahead.size
        for _, header, body, _ in self.backlog:
            size += LEFT_FRAME_BYTES + len(header) + len(body)
        return size

    def note_left(self, *, renewed: bool) -> None:
        """Tell the budget what is not served; `renewed`: nothing of it was there before. Hot."""
        state = self.state
        if state.closed:
            return
        if state.waits or self.ahead is not None:
            pending = self.unserved_bytes
        else:
            pending = self.decoder.pending_bytes
        if pending != self.inbound or (pending and renewed):
            self.budget.note(self, pending, self.context.now, renewed=renewed)

    def starve(self, *, starved: bool) -> None:
        """Read no more until there is room for what it sends, or read on."""
        self.on(Event.STARVED if starved else Event.FED)
        self.watch()

    @property
    def starved(self) -> bool:
        """Whether it is not read because the inbound budget is exhausted."""
        return self.state.starved

    def encrypt(self, stage: TlsSocket) -> None:
        """Go on with a stage that encrypts and decrypts, now that the handshake is done."""
        self.tls = self.sock = stage
        if stage.pending:
            self.on(Event.STAGE_LEFT)

    def begin(self, request: OpenRequest) -> None:
        """Go on with the steps of a request in this turn, and in the next ones."""
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
        if self.state is CLOSED or not self.unsent:
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
            if self.state.stalled:
                self._flowing()
        else:
            self._stalled(sent)

    def _stalled(self, sent: int) -> None:
        shared = self.context.shared
        if self.uptake is None:
            self.uptake = Uptake()
        self.uptake.sent += sent
        self.unsent -= sent
        drop_sent(self.out, sent)
        outbound = shared.outbound
        self.on(Event.UNSENT)
        outbound.note(self, self.unsent, self.context.now)
        if self.closed:
            return
        high_water, was_paused = outbound.high_water_bytes, self.state.paused
        if self.unsent > high_water:
            self.on(Event.UNSENT_MUCH)
            shared.long_requests.leave(self)
        elif self.unsent <= min(shared.limits.low_water_bytes, high_water):
            self.on(Event.UNSENT_LITTLE)
            if was_paused:
                self._flow_again()
        self.watch()

    def _flowing(self) -> None:
        was_paused = self.state.paused
        self.uptake = None
        self.on(Event.SENT)
        self.context.shared.outbound.note(self, 0, self.context.now)
        if was_paused:
            self._flow_again()
        elif self.deferred:
            self.worker.readmit(self)
        self.watch()

    def _flow_again(self) -> None:
        """Take up what was left while the peer did not read."""
        self.reading.resumed = self.context.now
        if self.state.waits:
            self.context.waiting[self.sock.fileno()] = None
        if self.deferred:
            self.worker.readmit(self)

    # ── The end ──

    def close(self, reason: str) -> None:
        """Close now: unsent data is dropped, calls in flight fail, `on_close` runs once."""
        if self.closed:
            return
        self.on(Event.CLOSED)
        self._forget(self, reason)
        self.sock.close()
        self.out.clear()
        self.unsent = 0
        self.context.shared.outbound.note(self, 0, self.context.now)
        self.backlog.clear()
        self.ahead = None
        while self.deferred:
            self.deferred.pop()[0].work.close()  # type: ignore[attr-defined]  # coroutines
        self.end()
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
