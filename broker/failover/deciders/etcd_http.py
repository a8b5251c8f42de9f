"""One request to one endpoint of etcd: a connection, a POST, and the lines of its answer.

Nothing here waits for longer than its caller allows, and no answer is longer than it may be.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import h11
import msgspec
import trio

from aerobee.threads import once_there_are_threads

if TYPE_CHECKING:
    import ssl
    from typing import Any

    from aerobee.broker.config.settings.failover import Endpoint

ANSWER_BYTES_MAX: Final = 65_536
RECEIVE_BYTES: Final = 16_384


class AnswerBroken(Exception):
    """The bytes that came back are no answer: not HTTP, cut off, or too long."""


async def connection(target: Endpoint, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    """Connect. Raises: OSError, trio.BrokenResourceError."""
    if not target.tls:
        return await once_there_are_threads(partial(trio.open_tcp_stream, target.host, target.port))
    stream = await once_there_are_threads(
        partial(
            trio.open_ssl_over_tcp_stream,
            target.host,
            target.port,
            ssl_context=tls,
            https_compatible=True,
        )
    )
    await stream.do_handshake()
    return stream


class Exchange:
    """One request and its answer, part by part as it comes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
        self.status = 0
        """0 until the answer has begun."""

    async def send(self, target: Endpoint, path: str, body: dict[str, Any], token: str) -> None:
        """Send the request. Raises: BrokenResourceError."""
        data = msgspec.json.encode(body)
        headers = [
            ("Host", f"{target.host}:{target.port}"),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
            ("Connection", "close"),
        ]
        if token:
            headers.append(("Authorization", token))
        events = (
            h11.Request(method="POST", target=path, headers=headers),
            h11.Data(data=data),
            h11.EndOfMessage(),
        )
        await self._stream.send_all(b"".join(self._http.send(event) or b"" for event in events))

    async def part(self) -> bytes | None:
        """Some bytes of the answer; None at its end. Raises: AnswerBroken, BrokenResourceError."""
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(bytes(await self._stream.receive_some(RECEIVE_BYTES)))
                elif isinstance(event, h11.Response):
                    self.status = event.status_code
                elif isinstance(event, h11.Data):
                    return bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return None
        except h11.RemoteProtocolError as error:
            raise AnswerBroken(str(error)) from error

    async def whole(self) -> bytes:
        """The whole answer. Raises: AnswerBroken, BrokenResourceError."""
        data = b""
        while (part := await self.part()) is not None:
            data += part
            if len(data) > ANSWER_BYTES_MAX:
                raise AnswerBroken(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        return data
