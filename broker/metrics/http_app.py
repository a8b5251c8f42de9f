"""The web application of broker/metrics/http.py: routes, answers, and its server.

In: `Sources` and `Health`. Out: an ASGI application on Hypercorn's trio worker, inside the caller's
nursery. Others run between the pages of a scrape.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import structlog
import trio
from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.trio import serve as serve_app
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aerobee.broker.metrics.metrics import CONTENT_TYPE, pages
from aerobee.broker.metrics.stats import Sources

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from aerobee.broker.metrics.http import Check, Health, MayScrape
    from aerobee.broker.namesrv_metrics import NamesrvSources

__all__ = ["SCRAPES_AT_ONCE", "make_app", "make_config", "serve"]

SCRAPES_AT_ONCE = 2
"""Further scrapes wait; two allow for a pair of Prometheus servers."""
REQUEST_TIMEOUT_S = 10
"""From the last byte read of a request to the last byte sent of its answer."""

log = structlog.stdlib.get_logger(__name__)


class Scrape(Response):
    """The pages of one scrape, streamed."""

    def __init__(self, sources: Sources | NamesrvSources, limiter: trio.CapacityLimiter) -> None:
        super().__init__(media_type=CONTENT_TYPE)
        del self.headers["content-length"]
        self.sources = sources
        self.limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send page after page; others run in between, whether the peer reads or has left."""
        async with self.limiter:
            sources = self.sources
            if isinstance(sources, Sources):
                sources = replace(sources, backlog=await sources.read_backlog())
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for page in pages(sources):
                await send({"type": "http.response.body", "body": page, "more_body": True})
                await trio.lowlevel.checkpoint()
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def make_app(sources: Sources | NamesrvSources, health: Health, may_scrape: MayScrape) -> Starlette:
    """The routes and nothing else."""
    routes = [
        Route("/startupz", _probe(health.startup)),
        Route("/livez", _probe(health.live)),
        Route("/readyz", _probe(health.ready)),
        Route("/metrics", _metrics(sources, health, may_scrape)),
    ]
    return Starlette(routes=routes)


def _metrics(
    sources: Sources | NamesrvSources, health: Health, may_scrape: MayScrape
) -> Callable[[Request], Awaitable[Response]]:
    limiter = trio.CapacityLimiter(SCRAPES_AT_ONCE)

    async def metrics(request: Request) -> Response:
        host = request.client.host if request.client else ""
        if not may_scrape(host, request.headers.get("authorization", "")):
            text = (
                "send metricsToken as bearer token, or set one; without, this host alone may ask\n"
            )
            return Response(text, 401, {"www-authenticate": "Bearer"})
        if any(check() for check in health.startup.values()):
            # What would be read is still being loaded, in another thread.
            return Response("recovery is not finished\n", 503)
        return Scrape(sources, limiter)

    return metrics


def _probe(checks: Mapping[str, Check]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        found = {name: check() for name, check in checks.items()}
        well = not any(found.values())
        return JSONResponse(
            {
                "status": "ok" if well else "failing",
                "checks": {name: reason or "ok" for name, reason in found.items()},
            },
            status_code=200 if well else 503,
            headers={"cache-control": "no-store"},
        )

    return answer


class HypercornLog(Logger):
    """Hypercorn's log lines as our events; its start-up lines and access log are dropped."""

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Log an error of our handlers that reached the server; the peer got a 500."""
        log.error("http.failed", reason=message, exc_info=True)


class HttpConfig(Config):
    """Hypercorn's settings, with a TLS context of ours in place of its files."""

    tls: ssl.SSLContext | None = None

    @property
    def ssl_enabled(self) -> bool:
        """Whether it serves HTTPS."""
        return self.tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        """The context of the listener."""
        return self.tls


def make_config(descriptor: int, tls: ssl.SSLContext | None = None) -> Config:
    """Hypercorn's settings; `descriptor` is that of a listening socket, which it takes over."""
    config = HttpConfig()
    config.tls = tls
    config.ssl_handshake_timeout = REQUEST_TIMEOUT_S
    config.bind = [f"fd://{descriptor}"]
    config.logger_class = HypercornLog
    config.errorlog = None
    config.include_server_header = False
    config.h11_max_incomplete_size = 16 * 1024
    config.keep_alive_max_requests = 100_000
    config.keep_alive_timeout = REQUEST_TIMEOUT_S
    config.read_timeout = REQUEST_TIMEOUT_S
    config.graceful_timeout = 3.0
    return config


async def serve(
    app: Starlette,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled."""
    config = make_config(listener.detach(), tls)
    # Both sides declare the types of ASGI, each in its own way.
    await serve_app(cast("Any", app), config, task_status=task_status)
