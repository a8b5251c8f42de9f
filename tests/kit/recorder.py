"""A wire tap: a port that passes bytes on to another one and keeps the frames of both directions.

It may replace bytes by as many others on the way, so that the route answer of a name server sends a
client to the next tap instead of the broker.
"""

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tests.kit.ports import HOST, free_port

REQUESTS, ANSWERS = b">", b"<"
"""The two directions: towards the server, and back."""
RECEIVE_BYTES = 65_536


@dataclass(slots=True)
class Recorded:
    """The bytes of one direction of one connection, in their order."""

    direction: bytes
    data: bytearray


class Tap:
    """Listens on `port` until closed; `recorded` has every connection's two directions."""

    def __init__(self, server: str, *, replace: tuple[bytes, bytes] | None = None) -> None:
        self.port = free_port()
        self.recorded: list[Recorded] = []
        self._server = server
        self._replace = replace
        self._listener = socket.create_server((HOST, self.port))
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def frames(self, direction: bytes) -> list[bytes]:
        """The whole frames of a direction, connection by connection."""
        mine = [one for one in self.recorded if one.direction == direction]
        return [frame for one in mine for frame in split(bytes(one.data))]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self._server.rpartition(":")
            server = socket.create_connection((host, int(port)))
            self._sockets += [client, server]
            self._pass_on(client, server, REQUESTS)
            self._pass_on(server, client, ANSWERS)

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: bytes) -> None:
        kept = Recorded(direction, bytearray())
        self.recorded.append(kept)
        threading.Thread(target=self._pump, args=(source, target, kept), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, kept: Recorded) -> None:
        try:
            while data := source.recv(RECEIVE_BYTES):
                kept.data += data
                if self._replace is not None:
                    data = data.replace(*self._replace)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return  # One side is gone; the other will notice by itself.


def split(data: bytes) -> Sequence[bytes]:
    """The whole frames of a stream, each with its length; what is cut at the end is left out."""
    frames, at = [], 0
    while len(data) >= at + 4:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        frames.append(data[at:end])
        at = end
    return frames
