"""A client of the fuzz: frames of both encodings with any field in them, and answers by opaque.

It asks without waiting, so that many requests are on their way, and hands each answer to who asked.
A broker that closes the connection ends what was under way; the next request makes a new one.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.kit.plain_frames import Plain, read_plainly

if TYPE_CHECKING:
    from collections.abc import Callable

ONEWAY, ANSWER = 2, 1
RECEIVE_BYTES = 1 << 18
CONNECT_WITHIN_S = 10.0
SHORT_CODES = 1 << 15
"""Codes that the other encoding has room for."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One request on its way, or to be."""

    code: int
    fields: dict[str, object] = field(default_factory=dict)
    body: bytes = b""
    oneway: bool = False
    silent: bool = False
    """Held by the broker for a while, or never answered."""
    leaves: Callable[[Request], None] | None = None
    """Called when it is as it will be sent, just before it is."""
    heard: Callable[[Request, Plain], None] | None = None
    changed: bool = False
    """Whether it was made extreme."""

    def text(self) -> str:
        """For people."""
        shown = {name: _short(value) for name, value in self.fields.items()}
        way = " one-way" if self.oneway else ""
        return f"{self.code}{way} {shown} body {_short(self.body)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}…({len(text)})"


def frame_of(request: Request, opaque: int, *, binary: bool) -> bytes:
    """A whole frame; the other encoding takes texts and bytes only."""
    flag = ONEWAY if request.oneway else 0
    binary = binary and 0 <= request.code < SHORT_CODES
    header = (_binary if binary else _json)(request, opaque, flag)
    word = (1 << 24 if binary else 0) | len(header)
    return struct.pack(">II", 4 + len(header) + len(request.body), word) + header + request.body


def _json(request: Request, opaque: int, flag: int) -> bytes:
    head = {
        "code": request.code,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
        "extFields": {name: _json_value(value) for name, value in request.fields.items()},
    }
    return json.dumps(head, separators=(",", ":")).encode()


def _json_value(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _binary(request: Request, opaque: int, flag: int) -> bytes:
    pairs = bytearray()
    for name, value in request.fields.items():
        if value is None:
            continue
        raw = value if isinstance(value, bytes) else _text(value).encode("utf-8", "surrogatepass")
        key = name.encode("utf-8", "surrogatepass")
        pairs += struct.pack(">H", len(key)) + key + struct.pack(">I", len(raw)) + raw
    head = struct.pack(">hBhiii", request.code, 0, 479, opaque, flag, 0)
    return head + struct.pack(">I", len(pairs)) + bytes(pairs)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Peer:
    """One connection after the other to one address."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.pending: dict[int, Request] = {}
        self.asked: list[Plain] = []
        """Requests of the broker that nobody has answered yet."""
        self.closes = 0
        """How often the broker closed it."""
        self._socket: socket.socket | None = None
        self._opaque = 0
        self._read = bytearray()

    def ask(self, request: Request, *, binary: bool = False) -> int:
        """Send it; its opaque. What cannot be sent because the connection ended is forgotten."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=CONNECT_WITHIN_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque += 1
        if request.leaves is not None:
            request.leaves(request)
        data = frame_of(request, self._opaque, binary=binary)
        if not request.oneway:
            self.pending[self._opaque] = request
        try:
            self._socket.settimeout(CONNECT_WITHIN_S)
            self._socket.sendall(data)
        except ConnectionError:
            self._gone()
        return self._opaque

    def answered(self, opaque: int, within_s: float) -> bool:
        """Wait for one answer; False when it did not come. A close ends the wait, too."""
        return self._listen(lambda: opaque not in self.pending, within_s)

    def quiet(self, within_s: float) -> list[Request]:
        """Wait for all answers that must come; those that have not."""

        def done() -> bool:
            return all(request.silent for request in self.pending.values())

        self._listen(done, within_s)
        return [request for request in self.pending.values() if not request.silent]

    def look(self) -> None:
        """Take what has come."""
        self._listen(lambda: False, 0.0)

    def close(self) -> None:
        """From this side."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self.pending.clear()
        self.asked.clear()
        self._read.clear()

    def _listen(self, done: Callable[[], bool], within_s: float) -> bool:
        until = time.monotonic() + within_s
        while not done():
            left = until - time.monotonic()
            if self._socket is None or (left <= 0 and within_s > 0):
                break
            if not self._receive(max(left, 0.0)):
                break
        return done()

    def _receive(self, within_s: float) -> bool:
        """Whether anything came."""
        assert self._socket is not None
        self._socket.settimeout(within_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._gone()
            return False
        self._read += data
        while len(self._read) >= 4:
            end = 4 + int.from_bytes(self._read[:4], "big")
            if len(self._read) < end:
                break
            frame, self._read = bytes(self._read[:end]), self._read[end:]
            self._heard(read_plainly(frame))
        return True

    def _heard(self, answer: Plain) -> None:
        if not answer.flag & ANSWER:
            self.asked.append(answer)
            return
        request = self.pending.pop(answer.opaque, None)
        assert request is not None, f"an answer to nothing: {answer}"
        if request.heard is not None:
            request.heard(request, answer)

    def _gone(self) -> None:
        self.closes += 1
        self.close()


def reset(peer: Peer) -> None:
    """Close it with a reset, as a client that dies does."""
    with suppress(OSError):
        if peer._socket is not None:
            linger = struct.pack("ii", 1, 0)
            peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.close()
