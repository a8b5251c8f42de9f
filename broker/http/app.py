"""The web application of broker/http/listener.py: routes, answers, and its server.

In: `Sources` and `Health`. Out: an ASGI application on Hypercorn's protocols, inside the caller's
nursery, over as many connections as there are slots. Others run between the pages of a scrape.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.logging import Logger
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aerobee.broker.metrics.figures import ServerSources, Sources
from aerobee.broker.metrics.metrics import CONTENT_TYPE, pages
from aerobee.remoting.server.addresses import source_named
from aerobee.remoting.server.log_limit import LogLimit

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from aerobee.broker.http.health import Check, Health, MayScrape
    from aerobee.remoting.stats import RemotingStats

SERVED_S = 10.0
"""A request that has taken longer does not keep its slot from others; a scrape takes less."""
ANSWER_S = 20.0
"""From the first byte of a request to the last byte that its peer has taken of the answer; who
takes it more slowly is cut off."""
TlsStream: TypeAlias = "trio.SSLStream[trio.SocketStream]"

SCRAPES_AT_ONCE = 2
"""Further scrapes wait; two allow for a pair of Prometheus servers."""
SCRAPE_WAIT_S = 5.0
"""How long they wait before they are refused: less than Prometheus does."""
REQUEST_TIMEOUT_S = 10
"""For a handshake, between two pieces of a request, and from an answer to the next request."""

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b'\r\n{"status":"failing","checks":{"connections":"%s"}}\n'
)
"""In the form of a probe's answer, for those that ask one."""

log = structlog.stdlib.get_logger(__name__)


class Permits:
    """The permits of scrapes: a few run at a time, the others wait a while."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(SCRAPES_AT_ONCE)

    @asynccontextmanager
    async def take(self) -> AsyncIterator[Response | None]:
        """Hold one; without one in time, the refusal."""
        with trio.move_on_after(SCRAPE_WAIT_S) as waiting:
            await self._limiter.acquire()
        if waiting.cancelled_caught:
            text = f"{SCRAPES_AT_ONCE} other scrapes have been at work for {SCRAPE_WAIT_S:g} s\n"
            yield Response(text, 503, {"retry-after": "1"})
            return
        try:
            yield None
        finally:
            self._limiter.release()


class Scrape(Response):
    """The pages of one scrape, streamed."""

    def __init__(self, sources: ServerSources, permits: Permits) -> None:
        super().__init__(media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self.sources = sources
        self.permits = permits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send page after page, or a refusal. Others run in between, whether the peer reads or has
        left; when its time is over, the rest is left out and the connection ends.
        """
        with trio.move_on_after(ANSWER_S):
            async with self.permits.take() as refused:
                if refused is None:
                    await self._send_pages(send)
                else:
                    await refused(scope, receive, send)

    async def _send_pages(self, send: Send) -> None:
        sources = self.sources
        if isinstance(sources, Sources):
            sources = replace(sources, backlog=await sources.read_backlog())
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for page in pages(sources):
            await send({"type": "http.response.body", "body": page, "more_body": True})
            await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def make_app(sources: ServerSources, health: Health, may_scrape: MayScrape) -> Starlette:
    """The routes and nothing else."""
    routes = [
        Route("/startupz", probe(health.startup)),
        Route("/livez", probe(health.live)),
        Route("/readyz", probe(health.ready, health.noted)),
        Route("/insyncz", probe({**health.ready, **health.in_sync}, health.noted)),
        Route("/metrics", _metrics(sources, health, may_scrape)),
    ]
    return Starlette(routes=routes)


def _metrics(
    sources: ServerSources, health: Health, may_scrape: MayScrape
) -> Callable[[Request], Awaitable[Response]]:
    permits = Permits()

    async def metrics(request: Request) -> Response:
        refused = refusal(request, may_scrape)
        if refused is not None:
            return refused
        if any(check() for check in health.startup.values()):
            # The tables that would be read are still being loaded, in another thread.
            return Response("recovery is not finished\n", 503)
        return Scrape(sources, permits)

    return metrics


def refusal(request: Request, may_scrape: MayScrape) -> Response | None:
    """The answer to a scrape by somebody who may not; None: go on."""
    host = request.client.host if request.client else ""
    if may_scrape(host, request.headers.get("authorization", "")):
        return None
    text = "send metricsToken as bearer token, or set one; without, this host alone may ask\n"
    return Response(text, 401, {"www-authenticate": "Bearer"})


def probe(
    checks: Mapping[str, Check], noted: Mapping[str, Check] | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """The answer of a probe with these checks; it does not fail for what is `noted`."""

    async def answer(request: Request) -> Response:
        states = {name: check() for name, check in checks.items()}
        well = not any(states.values())
        return JSONResponse(
            {
                "status": "ok" if well else "failing",
                "checks": {name: reason or "ok" for name, reason in states.items()},
                **told_besides(noted or {}),
            },
            status_code=200 if well else 503,
            headers={"cache-control": "no-store"},
        )

    return answer


def told_besides(noted: Mapping[str, Check]) -> dict[str, dict[str, str]]:
    """The further facts that are to be known, by name; without any the answer has no such field."""
    reasons = {name: reason for name, check in noted.items() if (reason := check())}
    return {"noted": reasons} if reasons else {}


class HypercornLog(Logger):
    """Hypercorn's log lines as our events; its start-up lines and access log are dropped."""

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Log an error of our handlers that reached the server; the peer got a 500."""
        log.error("http.failed", reason=message, exc_info=True)


class Slot:
    """One connection: where it comes from, whether it waits for a request, and since when."""

    __slots__ = ("_close", "address", "idle", "since")

    def __init__(self, address: str, now: float, close: Callable[[], None]) -> None:
        self.address = address
        self.idle = True
        self.since = now
        self._close = close

    def turn(self, *, idle: bool, now: float) -> None:
        """Note that a request began or ended."""
        self.idle, self.since = idle, now

    def close(self) -> None:
        """Close the connection."""
        self._close()


class Slots:
    """All connections of the port, the oldest first, `most` at once.

    A connection beyond that gets the slot of an idle one, the oldest of the address that has most:
    a client that opens connections and leaves them idle takes slots from itself, and a scrape finds
    one. Only where nobody is idle is it refused.
    """

    def __init__(
        self,
        most: int,
        stats: RemotingStats,
        *,
        key: str = "metricsMaxConnections",
        name: str = "metrics",
    ) -> None:
        """`key`: the setting that `most` is; `name`: of the listener, in log lines."""
        self.most = most
        self.key = key
        self.name = name
        self._stats = stats
        self._taken: dict[Slot, None] = {}

    def take(self, slot: Slot, now: float) -> bool:
        """Take a slot, another's if need be; False when all are at work."""
        if len(self._taken) >= self.most:
            leaving = self._pick_eviction(now)
            if leaving is None:
                self._stats.connections_refused += 1
                return False
            self.give_back(leaving)
            leaving.close()
        self._taken[slot] = None
        self._stats.http_connections = len(self._taken)
        return True

    def give_back(self, slot: Slot) -> None:
        """Its connection has ended; harmless when it has lost its slot before."""
        self._taken.pop(slot, None)
        self._stats.http_connections = len(self._taken)

    def _pick_eviction(self, now: float) -> Slot | None:
        of_address = Counter(slot.address for slot in self._taken)
        may_go = [slot for slot in self._taken if slot.idle or now - slot.since > SERVED_S]
        # Of equals `max` takes the first, which is the oldest.
        return max(may_go, key=lambda slot: of_address[slot.address], default=None)


class Http1(H11Protocol):
    """HTTP/1.1 alone: requests over HTTP/2 cost their peer next to nothing, and many of them, each
    reset at once, took all of the loop.
    """

    async def _check_protocol(self, event: object) -> None:
        """Go on with it: to be asked for another one is an offer. Source: RFC 9110 §7.8."""


class Connection(TCPServer):
    """A connection that tells its slot when a request begins and ends, and that ends when an answer
    takes too long.
    """

    slot: Slot
    streams = False
    """Whether an answer may last, as long as its peer takes each part of it in time."""

    async def run(self) -> None:
        """Serve it to its end, and leave no cycle of it and its protocol: a frozen one would stay
        until everything is searched, see `collect_cycles`.
        """
        try:
            await super().run()
        finally:
            self.protocol = cast("Any", None)

    async def _close(self) -> None:
        """Close it at once. Hypercorn ends its half first; the error of that, where the peer has
        gone, is a cycle with Python 3.13.
        """
        await self.stream.aclose()

    async def _read_data(self) -> None:
        """Read requests of HTTP/1.1."""
        about = self.protocol
        assert isinstance(about, ProtocolWrapper)
        self.protocol = cast(
            "Any",
            Http1(
                about.app,
                about.config,
                about.context,
                about.task_group,
                about.state,
                about.ssl,
                about.client,
                about.server,
                about.send,
            ),
        )
        await super()._read_data()

    async def protocol_send(self, event: Event) -> None:
        """Send what the protocol wants to."""
        if isinstance(event, RawData):
            return await self._send(event.data)
        if isinstance(event, Updated):
            self.slot.turn(idle=event.idle, now=trio.current_time())
        return await super().protocol_send(event)

    async def _send(self, data: bytes) -> None:
        """Not as Hypercorn does, in a shield: a stop and the time of an answer end it. An answer
        that was sent in part leaves a connection that is of no use.
        """
        try:
            since = trio.current_time() if self.streams else self.slot.since
            with trio.move_on_at(since + ANSWER_S):
                async with self.send_lock:
                    await self.stream.send_all(data)
                if self.streams:
                    self.slot.since = trio.current_time()
                return None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return await self.protocol.handle(Closed())
        except trio.Cancelled:
            self.slot.close()
            raise
        self.slot.close()
        return await self.protocol.handle(Closed())


class Server:
    """Takes connections as long as there are slots, and serves the application on them."""

    def __init__(self, app: ASGIApp, slots: Slots, *, streams: bool = False) -> None:
        # Both sides declare the types of ASGI, each in its own way.
        self._app = ASGIWrapper(cast("Any", app))
        self._config = make_config()
        self._context = WorkerContext(None)
        self._slots = slots
        self._streams = streams
        self._lines = LogLimit(1)

    async def serve(self, stream: trio.SocketStream | TlsStream) -> None:
        """Serve one connection to its end; at once, when there is no slot for it."""
        sock = (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket
        try:
            address = sock.getpeername()[0]
        except OSError:
            # The peer has gone already.
            sock.close()
            return None
        slot = Slot(source_named(address), trio.current_time(), sock.close)
        if not self._slots.take(slot, trio.current_time()):
            return await self._refuse(stream, address)
        connection = Connection(
            self._app, self._config, self._context, ConnectionState({}), cast("Any", stream)
        )
        connection.slot = slot
        connection.streams = self._streams
        try:
            # Another took the slot during the handshake.
            with suppress(trio.ClosedResourceError):
                await connection
        finally:
            self._slots.give_back(slot)

    async def _refuse(self, stream: trio.SocketStream | TlsStream, address: str) -> None:
        """Say which setting it is, in HTTP where that costs no handshake, and close."""
        reason = f"{self._slots.key} is {self._slots.most}"
        left_out = self._lines.admit(trio.current_time())
        if left_out is not None:
            log.warning(
                "connection.refused",
                listener=self._slots.name,
                reason=reason,
                address=address,
                left_out=left_out,
            )
        if isinstance(stream, trio.SocketStream):
            with suppress(trio.BrokenResourceError):
                await stream.send_all(REFUSAL % reason.encode())
        await trio.aclose_forcefully(stream)


def make_config() -> Config:
    """Hypercorn's settings."""
    config = Config()
    config.ssl_handshake_timeout = REQUEST_TIMEOUT_S
    config.logger_class = HypercornLog
    config.errorlog = None
    config.include_server_header = False
    config.h11_max_incomplete_size = 16 * 1024
    config.keep_alive_max_requests = 100_000
    config.keep_alive_timeout = REQUEST_TIMEOUT_S
    config.read_timeout = REQUEST_TIMEOUT_S
    return config


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    slots: Slots,
    tls: ssl.SSLContext | None = None,
    *,
    streams: bool = False,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; closes the listener. `streams`: see `Connection`."""
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    plain = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
    listening = plain if tls is None else trio.SSLListener(plain, tls, https_compatible=True)
    task_status.started([f"{'http' if tls is None else 'https'}://{address}"])
    await trio.serve_listeners(Server(app, slots, streams=streams).serve, [listening])
