"""One health answer for several brokers."""

from __future__ import annotations

import httpx
import pytest

from aerobee.broker.metrics.http import Health, everybody
from aerobee.broker.supervisor.http_app import make_app


@pytest.mark.trio
@pytest.mark.parametrize(
    ("names", "first", "second", "status", "code"),
    [
        (None, None, None, "ok", 200),
        (None, None, "stopping", "degraded", 503),
        (None, "stopping", "ended with 1", "failing", 503),
        ("not saved", None, None, "degraded", 503),
    ],
)
async def test_it_fails_where_no_broker_serves(
    names: str | None, first: str | None, second: str | None, status: str, code: int
) -> None:
    """The name server alone serves no message."""

    async def troubles() -> dict[str, str | None]:
        return {"namesrv": names, "b-0": first, "b-1": second}

    async def scrape(authorization: str) -> bytes:
        return b""

    app = make_app(Health(startup={}, live={}, ready={}), troubles, scrape, everybody)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://b") as client:
        answer = await client.get("/readyz")
    assert (answer.json()["status"], answer.status_code) == (status, code)
    assert answer.json()["checks"]["b-1"] == (second or "ok")
