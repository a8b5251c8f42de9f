"""Matches responses to calls, without I/O: the state of the client side of a connection.

    header, body → request → frame
    bytes → receive → (call, its response) or (None, a request of the server)

Invariant: a call is removed from the table once: by its response, by `forget` or by `close`. A
response without a call in the table is dropped, so a call never gets another call's response,
whatever was cancelled. Nothing here waits: the channel that made a call keeps its deadline.

MSGPACK headers are offered with the first request; once its response grants them, requests use
them. Source: remoting §1.6, §1.7, §1.12; client §3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from errno import errorcode
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from aerobee.remoting.client.link import PLAIN
from aerobee.remoting.errors import BodyError, ConnectFailed, FrameError, HeaderError, RemotingError
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.codes import MSGPACK_OFFER, Encoding, ResponseCode
from aerobee.remoting.wire.command import Command, answer_head, decode, encode_request
from aerobee.remoting.wire.frame import FrameDecoder

if TYPE_CHECKING:
    from aerobee.remoting.client.link import Link
    from aerobee.remoting.wire.header import Header

W = TypeVar("W")

OnRequest: TypeAlias = Callable[[Command], "int | Answer | None"]
"""Handles a request of the server without waiting: a response or its code, or None for no
response."""

SILENT_S = 1.0
"""A request that timed out sooner does not prove that the connection is dead."""
MAX_IN_FLIGHT = 65_535
"""Calls that may be in flight on one connection."""
LARGEST_OPAQUE = 2**31 - 1
LANGUAGE = "PYTHON"
PORT = re.compile("[0-9]{1,5}")
"""Python refuses to read a number of thousands of digits."""


class Calls(Generic[W]):
    """The calls of one connection; `W` is what the channel keeps to wake the caller.

    `encoding` MSGPACK means: as soon as the peer grants it, and JSON until then.
    """

    __slots__ = ("_decoder", "_link", "_offer", "_offered", "_opaque", "_waiting", "encoding")

    def __init__(self, encoding: int = Encoding.JSON, link: Link = PLAIN) -> None:
        self._link = link
        self._offer = encoding == Encoding.MSGPACK
        self._offered: int | None = None
        self.encoding = int(Encoding.JSON if self._offer else encoding)
        self._waiting: dict[int, W] = {}
        self._opaque = 0
        self._decoder = FrameDecoder()

    def __len__(self) -> int:
        """How many calls are in flight."""
        return len(self._waiting)

    def request(self, header: Header, body: bytes, waiting: W) -> tuple[int, bytes]:
        """Add a call: its opaque and its frame. Frames must be written in the order of these calls.

        Raises: FrameError when the frame is too long, RemotingError when too many calls are in
        flight; in both cases nothing has changed.
        """
        if len(self._waiting) >= MAX_IN_FLIGHT:
            raise RemotingError(f"{MAX_IN_FLIGHT} requests wait for answers already")
        opaque = self._next_opaque()
        offers = self._offer
        frame = self._frame(opaque, header, body, oneway=False)
        if offers:
            self._offered = opaque
        self._waiting[opaque] = waiting
        return opaque, frame

    def oneway(self, header: Header, body: bytes) -> bytes:
        """The frame of a request that has no response. Raises: FrameError."""
        return self._frame(self._next_opaque(), header, body, oneway=True)

    def _next_opaque(self) -> int:
        # Some peers take 0 for "no opaque".
        self._opaque = self._opaque % LARGEST_OPAQUE + 1
        while self._opaque in self._waiting:
            self._opaque = self._opaque % LARGEST_OPAQUE + 1
        return self._opaque

    def _frame(self, opaque: int, header: Header, body: bytes, *, oneway: bool) -> bytes:
        fields: Header | dict[str, str] = header
        if self._offer and not oneway:
            name, value = MSGPACK_OFFER
            fields = {**header.ext(), name: value}
        if self._link.names is not None:
            named = fields if isinstance(fields, dict) else fields.ext()
            fields, body = self._link.names.request(int(header.code), named, body)
        if self._link.dress is not None:
            named = fields if isinstance(fields, dict) else fields.ext()
            fields = self._link.dress(int(header.code), named, body)
        frame = encode_request(
            int(header.code),
            opaque,
            fields,
            body,
            encoding=self.encoding,
            oneway=oneway,
            language=LANGUAGE,
        )
        # Only the response to the first request can grant it; a one-way request has none.
        self._offer = False
        return frame

    def forget(self, opaque: int) -> bool:
        """Give up a call; its response, should it come, is dropped."""
        return self._waiting.pop(opaque, None) is not None

    def receive(self, data: bytes) -> tuple[list[tuple[W | None, Command]], FrameError | None]:
        """The responses with their calls, and the requests with None, that `data` completes, in
        order.

        The commands own their bodies. With an error, close the connection after handling them.
        """
        broken: FrameError | None = None
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            frames, broken = list(error.frames), error
        arrived: list[tuple[W | None, Command]] = []
        for frame in frames:
            try:
                command = decode(*frame)
            except FrameError as error:
                return arrived, error
            if self._link.names is not None:
                command = self._link.names.arrived(command)
            if not command.is_response:
                arrived.append((None, command.detached()))
                continue
            if command.opaque == self._offered:
                self._learn(command)
            waiting = self._waiting.pop(command.opaque, None)
            if waiting is not None:
                arrived.append((waiting, command.detached()))
        return arrived, broken

    def _learn(self, answer: Command) -> None:
        """Switch to MSGPACK if the response grants it."""
        self._offered = None
        name, value = MSGPACK_OFFER
        try:
            granted = answer.ext_fields().get(name) == value
        except HeaderError:
            granted = False
        if granted:
            self.encoding = int(Encoding.MSGPACK)

    def reply(self, on_request: OnRequest, request: Command) -> bytes:
        """The frame with what `on_request` answers; empty when there is no response."""
        try:
            outcome = on_request(request)
        except (HeaderError, BodyError) as error:
            outcome = Answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
        if outcome is None or request.oneway:
            return b""
        return self.answer(
            request, outcome if isinstance(outcome, Answer) else Answer(int(outcome))
        )

    def answer(self, request: Command, answer: Answer) -> bytes:
        """The response to a request of the server, as a frame."""
        body = answer.body if isinstance(answer.body, bytes) else b"".join(answer.body)
        if self._link.names is not None:
            body = self._link.names.answer(body)
        head = answer_head(request, int(answer.code), answer.header, answer.remark, len(body))
        return head + body

    def close(self) -> list[W]:
        """Remove and return every call in flight: no response will come."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting


def refuse(request: Command) -> int:
    """The response to a server's request while no handler is set."""
    return ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of `host:port`; an IPv6 host may be in brackets. Raises: ConnectFailed."""
    host, _, port = address.rpartition(":")
    if not host or not PORT.fullmatch(port) or not 0 < int(port) < 65_536:
        raise ConnectFailed(f"{address!r} is no address like host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def reason_of(error: BaseException) -> str:
    """The text of the system's error, looked up below layers that only say that something
    failed.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(reason_of, error.exceptions)))
    if message := getattr(error, "verify_message", None):
        return f"TLS: the certificate is not trusted: {message}"
    if hasattr(error, "library"):
        # TLS raises an OSError with error numbers of its own.
        return f"TLS: {getattr(error, 'reason', None) or error}"
    number: int = getattr(error, "errno", None) or 0
    if number in errorcode:
        # asyncio replaces the system's text by its own.
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
