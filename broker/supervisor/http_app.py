"""The web application of a supervisor: one scrape and one health answer for all of its brokers.

/metrics     the metrics of all brokers and of the name server, joined
/startupz    every broker has begun to serve, or has been tried
/livez       the supervisor's loop runs
/readyz      every broker is ready; 503 `degraded` while only some are, `failing` while none is
/insyncz     the same: brokers of one configuration are masters
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aerobee.broker.http.app import Permits, probe, refusal
from aerobee.broker.metrics.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request

    from aerobee.broker.http.health import Health, MayScrape

NAMESRV: Final = "namesrv"
"""The name server among what is asked; the others are the brokers, whose names end with -0, -1 …"""

NotReadyReasons = Callable[[], Awaitable[Mapping[str, str | None]]]
"""The name of each process that was asked \N{RIGHTWARDS ARROW} why it is not ready; None: it is."""
Scrape = Callable[[str], Awaitable[bytes]]
"""The metrics, for who sends this `Authorization` header."""


def make_app(
    health: Health, not_ready_reasons: NotReadyReasons, scrape: Scrape, may_scrape: MayScrape
) -> Starlette:
    """The routes and nothing else. `health`: of the supervisor alone."""
    permits = Permits()

    async def ready(request: Request) -> Response:
        reasons = await not_ready_reasons()
        serves = any(reason is None for name, reason in reasons.items() if name != NAMESRV)
        status = "degraded" if serves else "failing"
        if not any(reasons.values()):
            status = "ok"
        return JSONResponse(
            {
                "status": status,
                "checks": {name: reason or "ok" for name, reason in reasons.items()},
            },
            status_code=200 if status == "ok" else 503,
            headers={"cache-control": "no-store"},
        )

    async def metrics(request: Request) -> Response:
        refused = refusal(request, may_scrape)
        if refused is not None:
            return refused
        async with permits.take() as too_long:
            if too_long is not None:
                return too_long
            text = await scrape(request.headers.get("authorization", ""))
        return Response(text, media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/startupz", probe(health.startup)),
            Route("/livez", probe(health.live)),
            Route("/readyz", ready),
            Route("/insyncz", ready),
            Route("/metrics", metrics),
        ]
    )
