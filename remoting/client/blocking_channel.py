"""One connection for threads: sends requests, matches responses to calls, receives requests.

A daemon thread per channel reads while no caller does: requests of the server, and responses to
`begin`. A caller that waits for its response reads the socket itself as long as no other call is in
flight: handing a response from thread to thread takes longer than all the rest of a call. So after
such a call the reader waits a moment before it reads again, so that the next call can read too.
Callers write to the socket themselves, one at a time. No wait blocks longer than SLICE_S, so that
Ctrl-C gets through on every system. Source: client §3.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeAlias

from aerobee.remoting.client.calls import (
    SILENT_S,
    Calls,
    reason_of,
    refuse,
)
from aerobee.remoting.client.event import Event
from aerobee.remoting.client.link import PLAIN, Link
from aerobee.remoting.client.sockets import open_socket, poll_of
from aerobee.remoting.errors import CallTimedOut, ChannelClosed, ConnectFailed, RemotingError
from aerobee.remoting.wire.codes import Encoding
from aerobee.remoting.wire.command import Command

if TYPE_CHECKING:
    from aerobee.remoting.client.calls import OnRequest
    from aerobee.remoting.client.tls_socket import TlsSocket
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.header import Header

WhenAnswered: TypeAlias = Callable[[Command | None, RemotingError | None], None]
"""Called once with the response or the failure, in any thread; must not block or call back."""

RECEIVE_BYTES = 65_536
RECEIVE_BYTES_MAX = 1_048_576
"""The receive size for large responses: each receive takes the GIL from the callers."""
SLICE_S = 0.2
STALL_S = 10.0
"""How long the peer may read nothing while data waits to be sent."""
JOIN_S = 2.0
"""How long `close` waits for the reader, which may be in the callback of a request."""


BUG = "a bug ended its reader"
LINGER_S = 0.002
"""How long the reader waits after a call before it reads; delays requests as much."""


class Call:
    """A call that a thread waits for."""

    __slots__ = ("_ended", "answer", "error", "opaque", "over", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.opaque = 0
        self.answer: Command | None = None
        self.error: RemotingError | None = None
        self.over = False
        self._ended: Event | None = None

    def done(self, answer: Command | None, error: RemotingError | None) -> None:
        """Record the outcome and wake the caller."""
        self.answer, self.error, self.over = answer, error, True
        if self._ended is not None:
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until another thread has recorded the outcome, or for `seconds`."""
        if self._ended is None:
            self._ended = Event()
        # Check again after setting the event: `done` may have run before there was one.
        if not self.over:
            self._ended.wait(seconds)


class BlockingChannel:
    """A connection to one peer; any thread may call. Times in seconds.

    Invariant: `_turn` is held from building a frame to writing its last byte, so frames are written
    whole and in the order of their opaques. `_lock` guards the table of calls and is never held
    during a blocking call; code that needs both takes `_turn` first. Callbacks run without `_lock`.
    One thread receives at a time: the reader while `_reader_in`, else `_borrower`. Both change
    under `_lock`, except that the borrower gives up its role without it.
    """

    def __init__(
        self,
        address: str,
        sock: socket.socket | TlsSocket,
        on_request: OnRequest,
        encoding: int,
        link: Link = PLAIN,
    ) -> None:
        self.address = address
        self.on_request = on_request
        """Serves requests of the peer in the reader thread, which reads nothing meanwhile."""
        self._socket = sock
        self._calls: Calls[WhenAnswered] = Calls(encoding, link)
        self._lock = threading.Lock()
        self._turn = threading.RLock()
        self._sending = False
        self._ended: str | None = None
        self._most = RECEIVE_BYTES
        self._received = 0
        """Counts receives."""
        self._poll = poll_of(sock)
        self._reader_in = True
        self._borrower: Call | None = None
        self._borrowed = 0
        """Counts calls that read for themselves; `_seen`: at the reader's last check."""
        self._seen = 0
        self._kept_away: Call | None = None
        """The borrower at the reader's last check."""
        self._waits_long = False
        """Whether it was still there at the next check: then it must wake the reader."""
        self._wanted = Event()
        """Wakes the reader while it waits."""
        self._reader = threading.Thread(target=self._read, name=f"reader of {address}", daemon=True)

    @classmethod
    def connect(
        cls,
        address: str,
        timeout_s: float,
        on_request: OnRequest = refuse,
        *,
        encoding: int = Encoding.JSON,
        link: Link = PLAIN,
    ) -> Self:
        """Open a connection to `host:port`. The timeout covers all addresses of a host name.

        Raises: ConnectFailed, which names the address.
        """
        sock = open_socket(address, timeout_s, link, STALL_S)
        try:
            sock.settimeout(SLICE_S)
            channel = cls(address, sock, on_request, encoding, link)
            channel._reader.start()
        except BaseException as error:
            sock.close()
            if isinstance(error, RuntimeError):
                # The system gives no thread.
                raise ConnectFailed(f"{address}: {error}") from error
            raise
        return channel

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._ended is not None

    def call(self, header: Header, body: bytes = b"", timeout_s: float = 3.0) -> Command:
        """Send a request and return its response. An interrupted call leaves the connection usable.

        So does one that timed out, unless nothing at all arrived meanwhile: then the peer or the
        way to it is gone, the connection is closed, and the next request opens another.

        Raises: CallTimedOut, ChannelClosed, FrameError when the request is too long.
        """
        deadline = monotonic() + timeout_s
        received = self._received
        call = Call()
        try:
            self._register(header, body, call.done, deadline, call)
            while not call.over and (left_s := deadline - monotonic()) > 0:
                if self._borrower is call:
                    self._receive_for(call, left_s)
                else:
                    call.wait(min(SLICE_S, left_s))
        finally:
            # No second Ctrl-C may come between these two: the reader would wait for ever.
            if mine := self._borrower is call:
                self._borrower = None
            self._give_back(call, mine)
        if call.answer is not None:
            return call.answer
        if call.error is None:
            self._end_if_silent(received, timeout_s)
        raise call.error or CallTimedOut(
            f"{self.address} did not answer request {header.code:d} within {timeout_s:g} s"
        )

    def begin(
        self, header: Header, body: bytes, done: WhenAnswered, timeout_s: float = inf
    ) -> Callable[[], None]:
        """Send a request; `done` gets its outcome, unless the returned function is called first.

        The caller has to time the response: it calls that function when the timeout is over, which
        closes the connection if nothing arrived meanwhile, as in `call`. Failures go to `done` as
        well: nothing is raised here.
        """
        deadline = monotonic() + timeout_s
        received = self._received
        opaque = self._register(header, body, done, deadline)
        if not self._reader_in:
            self._wanted.set()

        def forget() -> None:
            if self._forget(opaque) and monotonic() >= deadline:
                self._end_if_silent(received, timeout_s)

        return forget

    def _register(
        self,
        header: Header,
        body: bytes,
        done: WhenAnswered,
        deadline: float,
        call: Call | None = None,
    ) -> int:
        """Send a request, and read for `call` if it is the only one. Returns its opaque, or 0."""
        opaque = 0

        def make() -> bytes:
            nonlocal opaque
            alone = not len(self._calls)
            opaque, frame = self._calls.request(header, body, done)
            if call is not None:
                call.opaque = opaque
                self._borrowed += 1
                if alone and not self._reader_in and self._poll and self._borrower is None:
                    self._borrower = call
            return frame

        try:
            self._send(make, deadline)
        except RemotingError as error:
            # A call that is in the table fails when the channel ends.
            if not opaque:
                done(None, error)
        except BaseException:
            self._forget(opaque)
            raise
        return opaque

    def oneway(self, header: Header, body: bytes = b"") -> None:
        """Send a request that has no response; returns when the system has it.

        Raises: ChannelClosed, FrameError when the request is too long.
        """
        self._send(lambda: self._calls.oneway(header, body), inf)

    def close(self) -> None:
        """Close the connection; calls in flight raise ChannelClosed. A second call does nothing."""
        self._end("closed by us")
        me = threading.get_ident()
        borrower = self._borrower
        # A callback runs in the thread that receives; joining it from there would deadlock.
        if me != self._reader.ident and (borrower is None or me != borrower.thread):
            self._reader.join(JOIN_S)

    def _forget(self, opaque: int) -> bool:
        with self._lock:
            return self._calls.forget(opaque)

    def _end_if_silent(self, received: int, timeout_s: float) -> None:
        """Close the connection if nothing arrived on it, nor waits to be read, since then."""
        if timeout_s < SILENT_S or self._received != received or self._ended is not None:
            return
        poll = poll_of(self._socket)
        if poll is None or not poll(0):
            self._end(f"nothing arrived for {timeout_s:g} s")

    # ── Out ──

    def _send(self, make: Callable[[], bytes], deadline: float) -> None:
        """Write one frame. Raises: CallTimedOut, ChannelClosed, and what `make` raises."""
        try:
            while not self._turn.acquire(timeout=max(0.0, min(SLICE_S, deadline - monotonic()))):
                self._check_open()
                if monotonic() >= deadline:
                    raise CallTimedOut(f"{self.address}: no turn to send in time")
            self._send_in_turn(make, deadline)
        finally:
            # Ctrl-C may come after the acquisition, before it can be recorded.
            try:  # noqa: SIM105 (a call in front of the release would let another one in)
                self._turn.release()
            except RuntimeError:
                pass

    def _send_in_turn(self, make: Callable[[], bytes], deadline: float) -> None:
        if self._sending:
            raise RemotingError(f"{self.address}: a signal handler cannot call while this sends")
        try:
            self._sending = True
            with self._lock:
                self._check_open()
                frame = make()
            try:
                self._write(frame, deadline)
            except BaseException as error:
                # The peer may have part of the frame, so nothing else can be sent on this
                # connection.
                self._end(f"a request was cut off: {reason_of(error)}")
                if isinstance(error, OSError):
                    raise ChannelClosed(f"{self.address}: {self._ended}") from error
                raise
        finally:
            self._sending = False

    def _write(self, frame: bytes, deadline: float) -> None:
        """Write a whole frame.

        Raises: OSError, TimeoutError when the peer reads nothing for too long.
        """
        left = memoryview(frame)
        limit = min(deadline, monotonic() + STALL_S)
        while left:
            try:
                left = left[self._socket.send(left) :]
                limit = min(deadline, monotonic() + STALL_S)
            except TimeoutError:
                if self._ended is not None or monotonic() >= limit:
                    raise

    # ── In ──

    def _read(self) -> None:
        """Dispatch incoming frames until the channel ends, while no caller reads."""
        reason = BUG
        try:
            while self._ended is None:
                if away_s := self._stay_away():
                    self._wanted.wait(away_s)
                    self._wanted.clear()
                    continue
                with suppress(TimeoutError):
                    self._receive()
        except OSError as error:
            reason = reason_of(error)
        finally:
            self._end(reason)
            while self._borrower is not None:
                self._wanted.wait(SLICE_S)
                self._wanted.clear()
            # A descriptor that is closed while another thread sends may already belong to another
            # socket.
            with self._turn:
                self._socket.close()

    def _stay_away(self) -> float:
        """How long the reader leaves the connection to callers; 0 if it should receive."""
        with self._lock:
            before, self._kept_away = self._kept_away, self._borrower
            if self._borrower is not None:
                self._waits_long = before is self._borrower
                return SLICE_S if self._waits_long else LINGER_S
            if self._seen != self._borrowed and not len(self._calls) and self._poll:
                self._seen = self._borrowed
                self._reader_in = False
                return LINGER_S
            self._reader_in = True
            return 0.0

    def _receive_for(self, call: Call, seconds: float) -> None:
        """Receive in the caller's thread, once. Ctrl-C during the wait loses nothing."""
        assert self._poll is not None, "only who can wait for the socket borrows it"
        if not self._poll(min(SLICE_S, seconds) * 1000):
            return
        reason = BUG
        try:
            self._receive()
        except TimeoutError:
            return
        except OSError as error:
            self._end(reason_of(error))
        except BaseException as error:
            # Frames that were received before the interrupt may be lost.
            if isinstance(error, KeyboardInterrupt):
                reason = "interrupted while it received"
            self._end(reason)
            raise

    def _give_back(self, call: Call, borrowed: bool) -> None:
        """End the caller's reading: the call is over or given up, and the reader takes over."""
        with self._lock:
            if not call.over:
                self._calls.forget(call.opaque)
            if not borrowed:
                return
            wanted = len(self._calls) or self._waits_long or self._ended is not None
            self._waits_long = False
        if wanted:
            self._wanted.set()

    def _receive(self) -> None:
        """Receive what is available. Raises: TimeoutError, OSError."""
        most = self._most
        data = self._socket.recv(most)
        if not data:
            self._end("closed by the peer")
            return
        self._received += 1
        if len(data) == most:
            self._most = min(2 * most, RECEIVE_BYTES_MAX)
        elif len(data) < most // 4:
            self._most = max(most // 2, RECEIVE_BYTES)
        self._take(data)

    def _take(self, data: bytes) -> None:
        with self._lock:
            arrived, broken = self._calls.receive(data)
        for done, command in arrived:
            if done is not None:
                done(command, None)
            elif frame := self._calls.reply(self.on_request, command):
                self._send_answer(frame)
        if broken is not None:
            self._end(str(broken))

    def answer(self, request: Command, answer: Answer) -> None:
        """Answer a request that `on_request` left open; a no-op when the peer has disconnected."""
        self._send_answer(self._calls.answer(request, answer))

    def _send_answer(self, frame: bytes) -> None:
        try:
            self._send(lambda: frame, inf)
        except ChannelClosed:
            # The loop of the reader finds the error for itself.
            return

    # ── The end ──

    def _check_open(self) -> None:
        if self._ended is not None:
            raise ChannelClosed(f"{self.address}: {self._ended}")

    def _end(self, reason: str) -> None:
        """Close for requests and responses; the first reason is kept."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = reason
            waiting = self._calls.close()
        # Wakes the receiving thread; an error means that the peer closed first.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._wanted.set()
        for done in waiting:
            done(None, ChannelClosed(f"{self.address}: {reason}"))
