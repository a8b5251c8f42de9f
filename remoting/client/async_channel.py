"""One connection for asyncio and trio: sends requests, matches responses to calls, receives
requests.

Two tasks in the caller's task group, a reader and a writer, live as long as the connection. A
caller queues whole frames for the writer, so a call can be cancelled at any point: its frame is
sent whole or not at all, and its response is dropped. When a call is the only one in flight, it
writes its frame to the socket directly and skips the writer task. Source: client §3.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

import anyio
import anyio.lowlevel
from anyio.abc import SocketAttribute

from aerobee.remoting.client.calls import (
    SILENT_S,
    Calls,
    host_and_port,
    reason_of,
    refuse,
)
from aerobee.remoting.client.link import PLAIN, Link
from aerobee.remoting.errors import CallTimedOut, ChannelClosed, ConnectFailed
from aerobee.remoting.wire.codes import Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.abc import ByteStream

    from aerobee.remoting.client.calls import OnRequest
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

RECEIVE_BYTES = 65_536
SEND_BYTES = 262_144
"""The most that is handed to the stream at once; it must be sent within STALL_S."""
UNSENT_BYTES = 4 << 20
"""Above this, new requests wait until some of the queue has been sent."""
MAX_UNSENT_BYTES = 32 << 20
"""Above this, the channel closes a peer that sends requests but does not read: the reader cannot
wait for the writer."""
STALL_S = 10.0
"""How long the peer may read nothing while data waits to be sent."""

GIVEN_UP = "given up on our side"
"""The close reason until a better one is known: a task was cancelled, or failed."""


class TaskStarter(Protocol):
    """Starts the tasks of a channel: a task group of anyio, or a nursery of trio."""

    def start_soon(self, func: Callable[[], Coroutine[Any, Any, object]], /) -> object:
        """Run `func` in the background."""


def same_socket(stream: ByteStream) -> socket.socket | None:
    """The socket below a stream, for non-blocking writes; None where the stream does not expose
    it.
    """
    try:
        same = socket.socket(fileno=os.dup(stream.extra(SocketAttribute.raw_socket).fileno()))
    except OSError:
        # Some platforms can duplicate only file descriptors, not sockets.
        return None
    same.setblocking(False)
    return same


class PendingCall:
    """A call in flight."""

    __slots__ = ("answer", "ended")

    def __init__(self) -> None:
        self.answer: Command | None = None
        self.ended = anyio.Event()


class AsyncChannel:
    """A connection to one peer; any task may call. Times in seconds.

    Invariant: `_queued` and `_written` count bytes since the start; the difference is in `_out` or
    with the writer. While they are equal, the stream has nothing buffered either, and `_socket`,
    the same connection, may be written to directly. `_progress` is replaced whenever the writer
    advances `_written` or the channel ends.
    """

    def __init__(self, address: str, stream: ByteStream, encoding: int, link: Link = PLAIN) -> None:
        self.address = address
        self.on_request: OnRequest = refuse
        """Serves requests of the peer; called in the event loop, so it must not block."""
        self._stream = stream
        self._socket: socket.socket | None = None
        self._calls: Calls[PendingCall] = Calls(encoding, link)
        self._out: list[bytes] = []
        self._queued = 0
        self._written = 0
        self._progress = anyio.Event()
        self._wanted = anyio.Event()
        self._ended: str | None = None
        self._leaving = False
        self._received = 0
        """Counts receives."""

    @classmethod
    async def connect(
        cls,
        address: str,
        timeout_s: float,
        task_group: TaskStarter,
        *,
        encoding: int = Encoding.JSON,
        link: Link = PLAIN,
    ) -> Self:
        """Open a connection to `host:port`. Its tasks run in `task_group`.

        Raises: ConnectFailed, which names the address.
        """
        host, port = host_and_port(address)
        stream: ByteStream | None = None
        try:
            with anyio.move_on_after(timeout_s):
                if link.tls is None:
                    stream = await anyio.connect_tcp(host, port)
                else:
                    stream = await anyio.connect_tcp(
                        host,
                        port,
                        ssl_context=link.tls,
                        tls_hostname=link.server_hostname or host,
                        tls_standard_compatible=False,
                    )
        except (OSError, ValueError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise ConnectFailed(f"{address}: {reason_of(error)}") from error
        if stream is None:
            raise ConnectFailed(f"{address}: no connection within {timeout_s:g} s")
        # No await from here on: a stream whose tasks never start would never be closed.
        channel = cls(address, stream, encoding, link)
        if link.tls is None:
            channel._socket = same_socket(stream)
        task_group.start_soon(channel._read)
        task_group.start_soon(channel._write)
        return channel

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._ended is not None

    async def call(self, header: Header, body: bytes = b"", timeout_s: float = 3.0) -> Command:
        """Send a request and return its response. A cancelled call leaves the connection usable.

        So does one that timed out, unless nothing at all arrived meanwhile: then the peer or the
        way to it is gone, the connection is closed, and the next request opens another.

        Raises: CallTimedOut, ChannelClosed, FrameError when the request is too long.
        """
        waiting = PendingCall()
        opaque = 0
        received = self._received
        try:
            with anyio.move_on_after(timeout_s):
                await self._room()
                opaque, frame = self._calls.request(header, body, waiting)
                self._queue(frame)
                await waiting.ended.wait()
        finally:
            self._calls.forget(opaque)
            if self._leaving:
                self.leave()
        if waiting.answer is not None:
            return waiting.answer
        self._check_open()
        if timeout_s >= SILENT_S:
            # Data that has arrived by now has its turn first: the event loop may have been blocked.
            await anyio.lowlevel.cancel_shielded_checkpoint()
            if self._received == received:
                self._end(f"nothing arrived for {timeout_s:g} s")
        raise CallTimedOut(
            f"{self.address} did not answer request {header.code:d} within {timeout_s:g} s"
        )

    async def oneway(self, header: Header, body: bytes = b"") -> None:
        """Send a request that has no response; returns when it has been sent.

        Raises: ChannelClosed, FrameError when the request is too long.
        """
        await self._room()
        self._queue(self._calls.oneway(header, body))
        mark = self._queued
        while self._written < mark:
            await self._progress.wait()
            self._check_open()

    async def wait_closed(self) -> None:
        """Return when the connection is gone, on either side."""
        while self._ended is None:
            await self._progress.wait()

    def answer(self, request: Command, answer: Answer) -> None:
        """Answer a request that `on_request` left open; a no-op when the peer has disconnected."""
        if self._ended is None:
            self._queue(self._calls.answer(request, answer))

    def leave(self) -> None:
        """Close the connection as soon as no call is in flight; the caller makes no more."""
        self._leaving = True
        if not len(self._calls):
            self._end("the peer goes away")

    async def aclose(self) -> None:
        """Close the connection; calls in flight raise ChannelClosed. A second call does nothing."""
        self._end("closed by us")
        await self._stream.aclose()

    # ── Out ──

    async def _room(self) -> None:
        self._check_open()
        while self._queued - self._written > UNSENT_BYTES:
            await self._progress.wait()
            self._check_open()

    def _queue(self, frame: bytes) -> None:
        self._queued += len(frame)
        if len(self._calls) == 1 and self._queued - self._written == len(frame):
            frame = self._send_now(frame)
        if frame:
            self._out.append(frame)
            self._wanted.set()

    def _send_now(self, frame: bytes) -> bytes:
        """Write as much of a frame as the socket takes without blocking; returns the rest."""
        sent = 0
        if self._socket is not None:
            # The writer will get the same error and handles it.
            with suppress(OSError):
                sent = self._socket.send(frame)
            self._written += sent
        return frame[sent:]

    async def _write(self) -> None:
        """Send what is queued until the channel ends."""
        reason = GIVEN_UP
        try:
            while self._ended is None:
                if self._out:
                    await self._send()
                else:
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
        except TimeoutError:
            reason = f"the peer took nothing for {STALL_S:g} s"
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            reason = reason_of(error)
        finally:
            await self._close(reason)

    async def _send(self) -> None:
        """Send all that is queued now. Raises: TimeoutError, and what the stream raises."""
        data = b"".join(self._out)
        self._out.clear()
        for at in range(0, len(data), SEND_BYTES):
            part = data[at : at + SEND_BYTES]
            with anyio.fail_after(STALL_S):
                await self._stream.send(part)
            self._written += len(part)
            self._tell_progress()

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, anyio.Event()
        progress.set()

    # ── In ──

    async def _read(self) -> None:
        """Dispatch incoming frames until the channel ends."""
        reason = GIVEN_UP
        try:
            while self._ended is None:
                self._take(await self._stream.receive(RECEIVE_BYTES))
        except anyio.EndOfStream:
            reason = "closed by the peer"
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            reason = reason_of(error)
        finally:
            await self._close(reason)

    def _take(self, data: bytes) -> None:
        self._received += 1
        arrived, broken = self._calls.receive(data)
        for waiting, command in arrived:
            if waiting is not None:
                waiting.answer = command
                waiting.ended.set()
            elif frame := self._calls.reply(self.on_request, command):
                self._queue(frame)
        if broken is not None:
            self._end(str(broken))
        elif self._queued - self._written > MAX_UNSENT_BYTES:
            self._end("the peer asks but does not read")

    # ── The end ──

    def _check_open(self) -> None:
        if self._ended is not None:
            raise ChannelClosed(f"{self.address}: {self._ended}")

    async def _close(self, reason: str) -> None:
        self._end(reason)
        # A task that is cancelled here would lose the error that it is about to raise.
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)

    def _end(self, reason: str) -> None:
        """Close for requests and responses; the first reason is kept."""
        if self._ended is not None:
            return
        self._ended = reason
        self._out.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        for waiting in self._calls.close():
            waiting.ended.set()
        self._tell_progress()
        self._wanted.set()
