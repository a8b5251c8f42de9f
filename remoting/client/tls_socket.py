"""A TLS connection that one thread reads while others write, one at a time.

Two threads may not use an ssl.SSLSocket at once. Here bytes are encrypted and decrypted in memory,
under a lock that is never held during network I/O.
"""

from __future__ import annotations

import ssl
import threading
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

T = TypeVar("T")
RECORD_BYTES = 16_384
"""The largest TLS record."""
RECEIVE_BYTES = 65_536


class TlsSocket:
    """The methods of a socket that a channel uses. Times in seconds.

    Invariant: `_out` is held from taking encrypted bytes to sending the last of them, so records
    are sent whole and in order; `_state` guards the TLS object. Code that needs both takes `_out`
    first.
    """

    def __init__(
        self, raw: socket.socket, context: ssl.SSLContext, hostname: str, stall_s: float
    ) -> None:
        self._raw = raw
        self._stall_s = stall_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=hostname)
        self._state = threading.Lock()
        self._out = threading.Lock()

    def shake_hands(self) -> None:
        """Do the TLS handshake. Raises: OSError, ssl.SSLError for a certificate that is not
        trusted.
        """
        while not self._attempt(self._hello):
            if not self._fetch():
                raise ConnectionError("closed by the peer during the TLS hand-shake")

    def _hello(self) -> bool:
        self._tls.do_handshake()
        return True

    def settimeout(self, seconds: float) -> None:
        """How long one wait for the network lasts."""
        self._raw.settimeout(seconds)

    def send(self, data: memoryview) -> int:
        """Encrypt and send some of the bytes; returns how many. Raises: OSError."""
        some = data[:RECORD_BYTES]
        with self._out:
            with self._state:
                self._tls.write(some)
            self._flush()
        return len(some)

    def recv(self, most: int) -> bytes:
        """Received bytes; none at the end of the stream. Raises: TimeoutError, OSError."""
        while True:
            data = self._attempt(lambda: self._tls.read(most))
            if data is not None:
                return data
            if not self._fetch():
                return b""

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """The result of the step; None if it needs more data from the peer."""
        wanted: T | None = None
        with self._state:
            try:
                wanted = step()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                return b""  # type: ignore[return-value]  # only reads end so
            pending = self._outgoing.pending
        if pending:
            with self._out:
                self._flush()
        return wanted

    def _fetch(self) -> bool:
        """Receive more from the peer; False at the end of the stream. Raises: TimeoutError,
        OSError.
        """
        data = self._raw.recv(RECEIVE_BYTES)
        with self._state:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()
        return bool(data)

    def _flush(self) -> None:
        """Send what is encrypted. Raises: TimeoutError if the peer reads nothing for too long."""
        with self._state:
            left = memoryview(self._outgoing.read())
        limit = monotonic() + self._stall_s
        while left:
            try:
                left = left[self._raw.send(left) :]
                limit = monotonic() + self._stall_s
            except TimeoutError:
                if monotonic() >= limit:
                    raise ConnectionError("the peer takes nothing") from None

    def shutdown(self, how: int) -> None:
        """Shut the connection down, which wakes a reader."""
        self._raw.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._raw.close()
