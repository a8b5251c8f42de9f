"""TLS of new connections: from the first byte to the end of the handshake.

    FirstByte ──16h──► Handshake ──done──► TlsSocket
        └─────other──► the plain socket

Each is the `sock` of its connection while it lasts. A handshake costs up to some milliseconds of
CPU for the signature, so its steps run in a thread, several at a time: the loop only moves bytes.
That thread alone uses the memory of a handshake while it is `busy`.

A peer that does not go on with its handshake is disconnected after HANDSHAKE_S; where there are
more than AT_ONCE, the one that has waited longest. Source: remoting §1.2 (NettyRemotingServer).
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog
import trio

from aerobee.remoting.server.log_limit import LogLimit
from aerobee.remoting.server.tls_socket import TlsSocket
from aerobee.remoting.server.turns import in_slices
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aerobee.remoting.server.peer import Wire
    from aerobee.remoting.server.poller import Poller
    from aerobee.remoting.stats import RemotingStats

HANDSHAKE_S: Final = 10.0
"""From the first byte to the end of the handshake."""
AT_ONCE: Final = 512
"""Handshakes in progress, at some 45 kB each."""
BATCH: Final = 8
"""Handshakes of one hand-over to the thread."""
LOOK_S: Final = 0.5
"""How often late handshakes are looked for."""
RETRY_S: Final = 0.02
"""The pause before another attempt to send to a peer whose socket buffer is full."""
HANDSHAKE_RECORD: Final = b"\x16"
HEAD_BYTES: Final = 5
RECEIVE_BYTES: Final = 16_384
MOST_BYTES: Final = 1 << 18
"""The most bytes of a handshake, with the certificates of the client."""

log = structlog.stdlib.get_logger(__name__)


class Owner(Protocol):
    """The connection, as its handshake sees it."""

    sock: Wire
    address: str

    @property
    def closed(self) -> bool:
        """Whether it is over."""

    def encrypt(self, stage: TlsSocket) -> None:
        """Go on with this stage instead of the socket."""

    def watch(self) -> None:
        """Update the poller's interest."""

    def close(self, reason: str) -> None:
        """Close now."""


class FirstByte:
    """A socket of which nothing was read: its first byte says whether the peer speaks TLS."""

    __slots__ = ("_all", "_owner", "_poller", "_raw")

    def __init__(
        self, owner: Owner, raw: socket.socket, poller: Poller, handshakes: Handshakes
    ) -> None:
        self._owner = owner
        self._raw = raw
        self._poller = poller
        self._all = handshakes

    def fileno(self) -> int:
        return self._raw.fileno()

    def getsockname(self) -> Any:
        return self._raw.getsockname()

    def recv_into(self, buffer: memoryview) -> int:
        """Read what came, if it is plain. Raises: BlockingIOError, OSError."""
        first = self._raw.recv(1, socket.MSG_PEEK)
        owner = self._owner
        if first == HANDSHAKE_RECORD:
            handshake = Handshake(owner, self._raw, self._poller, self._all)
            if owner.closed:
                # The handshake was one too many; as the socket of its connection it would be a
                # cycle.
                raise ConnectionAbortedError(errno.ECONNABORTED, "too many TLS handshakes")
            owner.sock = handshake
        elif first and self._all.enforcing:
            self._all.note_failure(owner, "plain", "tlsServerMode is enforcing")
            raise ConnectionAbortedError(errno.ECONNABORTED, "it does not speak TLS")
        else:
            owner.sock = self._raw
        return owner.sock.recv_into(buffer)

    def send(self, data: bytes | memoryview) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        # Only what a peer has sent makes anybody send to it.
        raise BlockingIOError

    def close(self) -> None:
        self._owner.sock = self._raw  # No cycle is left.
        self._raw.close()


class Handshake:
    """A socket during its handshake: it gives no data and takes none."""

    __slots__ = (
        "_all",
        "_hello_bytes",
        "_poller",
        "_received",
        "_tls",
        "busy",
        "done",
        "error",
        "incoming",
        "left",
        "outgoing",
        "owner",
        "raw",
        "since",
    )

    def __init__(
        self, owner: Owner, raw: socket.socket, poller: Poller, handshakes: Handshakes
    ) -> None:
        self.owner = owner
        self.raw = raw
        self._poller = poller
        self._all = handshakes
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.since = monotonic()
        self.busy = False
        """Waits for the thread, or is with it; nothing else touches it then."""
        self.done = False
        self.error: ssl.SSLError | None = None
        self.left = b""
        """Bytes that the network did not take."""
        self._tls: ssl.SSLObject | None = None
        self._received = 0
        self._hello_bytes = 0
        """The length of the first record, once that is known."""
        handshakes.begin(self)

    def fileno(self) -> int:
        return self.raw.fileno()

    def getsockname(self) -> Any:
        return self.raw.getsockname()

    def recv_into(self, buffer: memoryview) -> int:
        """Take the peer's part of the handshake; 0 at the end of the stream, else no data comes.

        Raises: BlockingIOError, OSError.
        """
        if self.busy:
            raise BlockingIOError
        received = self.raw.recv_into(buffer[:RECEIVE_BYTES])
        if not received:
            self._all.note_failure(self.owner, "closed", "by the peer")
            return 0
        if not self._hello_bytes and self._received + received >= HEAD_BYTES:
            head = self.incoming.read() + buffer[:received]
            self._hello_bytes = HEAD_BYTES + int.from_bytes(head[3:HEAD_BYTES], "big")
            self.incoming.write(head)
        else:
            self.incoming.write(buffer[:received])
        self._received += received
        if self._received > MOST_BYTES:
            self._all.note_failure(self.owner, "protocol", "too long")
            raise ConnectionAbortedError(errno.ECONNABORTED, "too long a TLS handshake")
        # A peer that sends byte after byte costs no thread, and no memory of OpenSSL.
        if self._hello_bytes and self._received >= self._hello_bytes:
            self.busy = True
            self._poller.interest(self.raw, read=False, write=False)
            self._all.step(self)
        raise BlockingIOError

    def step(self, context: ssl.SSLContext) -> None:
        """Go on with it, in a thread."""
        try:
            if self._tls is None:
                self._tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
            self._tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # With its traceback, which holds this frame, it would be a cycle.
            self.error = error.with_traceback(None)

    def push(self) -> bool:
        """Send our part of the handshake; whether the network took all of it. Raises: OSError."""
        self.left += self.outgoing.read()
        if self.left:
            with suppress(BlockingIOError):
                self.left = self.left[self.raw.send(self.left) :]
        return not self.left

    def encrypted(self, stats: RemotingStats) -> TlsSocket:
        """The socket from now on."""
        assert self._tls is not None
        return TlsSocket(self.raw, self._tls, self.incoming, self.outgoing, stats)

    def send(self, data: bytes | memoryview) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        raise BlockingIOError

    def close(self) -> None:
        self._all.end(self)
        self.owner.sock = self.raw  # No cycle is left.
        self.raw.close()


class Handshakes:
    """All handshakes of a process, and the task that carries them out.

    `context` may be replaced: it is for connections to come.
    """

    def __init__(self, stats: RemotingStats, context: ssl.SSLContext, *, enforcing: bool) -> None:
        self.context = context
        self.enforcing = enforcing
        self._stats = stats
        self._lines = LogLimit()
        self._open: dict[Handshake, None] = {}
        """In progress, oldest first."""
        self._ready: deque[Handshake] = deque()
        """The handshakes that wait for the thread."""
        self._unsent: list[Handshake] = []
        """Handshakes whose last part the network did not take whole."""
        self._wanted = trio.Event()

    def begin(self, handshake: Handshake) -> None:
        """Count one more, and end another where there are too many."""
        self._open[handshake] = None
        if len(self._open) > AT_ONCE:
            idle = next((other for other in self._open if not other.busy), handshake)
            self._fail(idle, "crowded", f"more than {AT_ONCE} at the same time")

    def end(self, handshake: Handshake) -> None:
        """Count one less."""
        self._open.pop(handshake, None)

    def step(self, handshake: Handshake) -> None:
        """Go on with this one: its peer has done its part."""
        self._ready.append(handshake)
        self._wanted.set()

    def note_failure(self, owner: Owner, kind: str, reason: str) -> None:
        """Count a failure of the peer, and log it at a limited rate."""
        self._stats.tls_failed[kind] += 1
        left_out = self._lines.admit(monotonic())
        if left_out is not None:
            log.info(
                "tls.handshake_failed",
                address=owner.address,
                kind=kind,
                reason=reason,
                left_out=left_out,
            )

    async def run(self) -> NoReturn:
        """Carry handshakes out until cancelled."""
        thread = trio.CapacityLimiter(1)
        while True:
            self._wanted = trio.Event()
            if self._ready:
                await self._go_on(thread)
            else:
                with trio.move_on_after(RETRY_S if self._unsent else LOOK_S):
                    await self._wanted.wait()
            late, self._unsent = self._unsent, []
            self._settle(late)
            await in_slices(self._expire())

    async def _go_on(self, thread: trio.CapacityLimiter) -> None:
        """Take some that wait for the thread one step further."""
        some = [self._ready.popleft() for _ in range(min(BATCH, len(self._ready)))]
        await in_thread(_steps, some, self.context, limiter=thread)
        self._settle(some)

    def _expire(self) -> Iterator[None]:
        """Close the late ones, yielding in between: hundreds take 15 ms."""
        began_before = monotonic() - HANDSHAKE_S
        while self._open and (oldest := next(iter(self._open))).since < began_before:
            self._fail(oldest, "timeout", f"not done within {HANDSHAKE_S:g} s")
            yield

    def _settle(self, some: Iterable[Handshake]) -> None:
        """Send what the thread has made, then read on."""
        for handshake in some:
            if handshake.owner.closed:
                continue
            try:
                if not handshake.push():
                    self._unsent.append(handshake)
                    continue
            except OSError as error:
                self._fail(handshake, "closed", error.strerror or "by the peer")
                continue
            if handshake.error is not None:
                self._fail(
                    handshake,
                    _kind(handshake.error),
                    handshake.error.reason or str(handshake.error),
                )
                continue
            handshake.busy = False
            if handshake.done:
                self.end(handshake)
                self._stats.tls_handshakes += 1
                handshake.owner.encrypt(handshake.encrypted(self._stats))
            handshake.owner.watch()

    def _fail(self, handshake: Handshake, kind: str, reason: str) -> None:
        self.end(handshake)
        self.note_failure(handshake.owner, kind, reason)
        handshake.owner.close(f"TLS handshake: {reason}")


def _steps(some: list[Handshake], context: ssl.SSLContext) -> None:
    for handshake in some:
        handshake.step(context)


def _kind(error: ssl.SSLError) -> str:
    """Whether it is about a certificate, ours or the peer's, or about anything else."""
    reason = error.reason or ""
    return "certificate" if "CERT" in reason or reason.endswith("_CA") else "protocol"
