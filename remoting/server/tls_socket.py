"""TLS as a stage of a connection: a socket that encrypts what it sends, decrypts what it receives.

    selector ⇄ connection ⇄ TlsSocket ⇄ socket

It has the methods of a non-blocking socket, so nothing else knows whether a connection is
encrypted, with one exception: what was decrypted and did not fit into the caller's buffer is
`pending`, and no poller tells of it.

Bytes are encrypted and decrypted in memory (`ssl.MemoryBIO`): measured, that costs as much CPU as
an `ssl.SSLSocket`, and the number of system calls and of records per turn is decided here.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket

    from aerobee.remoting.stats import RemotingStats

RECORD_BYTES: Final = 16_384
"""The most plain bytes of one record."""
RECEIVE_BYTES: Final = RECORD_BYTES + 512
"""One receive from the network; a record is up to so much longer than what it carries."""
RECORDS_PER_TURN: Final = 128
"""Records that one receive decrypts. They may be as short as a byte: this takes 0.3 ms."""
SEND_BYTES: Final = 1 << 20
"""The most that one call encrypts and sends: its connection shares the loop."""
CONTROL_BYTES: Final = 1 << 16
"""Records of the protocol itself, such as answers to key updates, that may wait to be sent."""

_scratch = memoryview(bytearray(RECEIVE_BYTES))
"""Encrypted bytes on their way into memory of OpenSSL; they never stay here."""


class TlsSocket:
    """A connection whose handshake is done.

    Invariant: `_left` are encrypted bytes that the network did not take, and `_owed` is how many
    plain bytes of them were not yet reported as sent. The caller's next send begins with these
    same bytes, as with a socket that takes only part of a send.
    """

    __slots__ = (
        "_ended",
        "_incoming",
        "_left",
        "_more",
        "_outgoing",
        "_owed",
        "_raw",
        "_stats",
        "_tls",
        "pending",
    )

    def __init__(
        self,
        raw: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        stats: RemotingStats,
    ) -> None:
        self._raw = raw
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._stats = stats
        self._left: bytes | memoryview = b""
        self._owed = 0
        self._ended = False
        """Whether nothing follows."""
        self._more = False
        """Whether the last receive may have left bytes in the socket."""
        self.pending = incoming.pending > 0
        """Whether a receive would give bytes, or an error, without one from the network."""
        stats.tls_connections += 1

    def fileno(self) -> int:
        return self._raw.fileno()

    def getsockname(self) -> Any:
        return self._raw.getsockname()

    # ── Receiving ──

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypt into the buffer what has come, up to a number of records. Hot.

        Returns 0 at the end of the stream. Raises: BlockingIOError, OSError.
        """
        at, size = 0, len(buffer)
        try:
            for _ in range(RECORDS_PER_TURN):
                if not self.pending and ((at and not self._more) or not self._fetch(at)):
                    break
                at += self._decrypt(buffer[at:])
                if at == size or self._ended:
                    break
        finally:
            if self._outgoing.pending:
                self._answer()
        if not at and not self._ended:
            raise BlockingIOError
        return at

    def _fetch(self, at: int) -> bool:
        """Receive from the network; whether anything came."""
        try:
            received = self._raw.recv_into(_scratch)
        except BlockingIOError:
            self._more = False
            return False
        except OSError:
            if at:
                # The next receive fails as well.
                return False
            raise
        self._more = received == RECEIVE_BYTES
        self._ended = not received
        self.pending = self._incoming.write(_scratch[:received]) > 0
        return self.pending

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt one record, or what is left of one; returns how many bytes. Raises: OSError."""
        try:
            count: Any = self._tls.read(len(buffer), buffer)
        except ssl.SSLWantReadError:
            self.pending = False
            return 0
        except ssl.SSLError as error:
            raise ConnectionAbortedError(error.errno, f"TLS: {error.reason}") from error
        if not count:
            # The peer has said that nothing follows.
            self._ended = self.pending = True
        else:
            self.pending = self._incoming.pending > 0 or self._tls.pending() > 0
        return int(count)

    def _answer(self) -> None:
        """Send what the protocol itself has to say, as far as the network takes it."""
        if not self._left:
            self._left = self._outgoing.read()
            self._flush()
        elif self._outgoing.pending > CONTROL_BYTES:
            raise ConnectionAbortedError(None, "TLS: it asks much and reads nothing")

    # ── Sending ──

    def send(self, data: bytes | memoryview) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: list[bytes | memoryview]) -> int:
        """Encrypt and send the first bytes; returns how many plain ones are on their way. Hot.

        Raises: OSError.
        """
        sent = 0
        if self._left:
            sent = self._flush()
            if self._left:
                return sent
        plain = buffers[0] if len(buffers) == 1 else _joined(buffers)
        if sent or len(plain) > RECORD_BYTES:
            plain = memoryview(plain)[sent : sent + SEND_BYTES]
        for at in range(0, len(plain), RECORD_BYTES):
            record = plain[at : at + RECORD_BYTES]
            self._tls.write(record)
            self._left, self._owed = self._outgoing.read(), len(record)
            sent += self._flush()
            if self._left:
                break
        return sent

    def _flush(self) -> int:
        """Send encrypted bytes; returns how many plain ones count as sent by that."""
        left, owed = self._left, self._owed
        try:
            count = self._raw.send(left)
        except BlockingIOError:
            return 0
        if count == len(left):
            self._left, self._owed = b"", 0
            return owed
        self._left = left = memoryview(left)[count:]
        self._owed = min(owed, len(left))
        return owed - self._owed

    def close(self) -> None:
        """Say that nothing follows, where that can be said, and close."""
        self._stats.tls_connections -= 1
        with suppress(OSError):
            if not self._left:
                with suppress(ssl.SSLError):
                    self._tls.unwrap()
                self._raw.send(self._outgoing.read())
        self._raw.close()


def _joined(buffers: list[bytes | memoryview]) -> bytes:
    """The first buffers as one, of SEND_BYTES at least if there is so much."""
    size, some = 0, []
    for buffer in buffers:
        some.append(buffer)
        size += len(buffer)
        if size > SEND_BYTES + RECORD_BYTES:
            break
    return b"".join(some)
