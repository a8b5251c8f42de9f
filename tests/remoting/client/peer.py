"""The other end of a channel, played by the test: a plain socket, frames made and read by hand."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Self

from tests.kit.plain_frames import Plain, read_plainly
from tests.kit.raw_client import request_frame

if TYPE_CHECKING:
    from types import TracebackType

ANSWER = 1
PATIENCE_S = 10.0


class Peer:
    """Listens from the start; talks to the one connection that `accept` takes. It blocks."""

    def __init__(self, *, receive_buffer: int | None = None) -> None:
        self.listener = socket.socket()
        if receive_buffer is not None:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.listener.settimeout(PATIENCE_S)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.listener.close()
        self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()

    @property
    def talk(self) -> socket.socket:
        """The connection, accepted when first needed: the system holds it until then."""
        if self.socket is None:
            self.socket, _ = self.listener.accept()
            self.socket.settimeout(PATIENCE_S)
        return self.socket

    def hear_frame(self) -> bytes:
        """The next frame, its length included."""
        length = self._take(4)
        return length + self._take(*struct.unpack(">I", length))

    def hear(self) -> Plain:
        """The next frame of type 0 or 1."""
        return read_plainly(self.hear_frame())

    def hear_close(self) -> None:
        """The client closes, without another word."""
        assert self.talk.recv(1) == b""

    def say(self, data: bytes) -> None:
        self.talk.sendall(data)

    def answer(self, opaque: int, body: bytes = b"", code: int = 0, **ext: str) -> None:
        self.say(request_frame(code, opaque, ext, body, flag=ANSWER))

    def _take(self, count: int) -> bytes:
        taken = bytearray()
        while len(taken) < count:
            data = self.talk.recv(min(count - len(taken), 1 << 20))
            assert data, f"closed {count - len(taken)} bytes short of a frame"
            taken += data
        return bytes(taken)
