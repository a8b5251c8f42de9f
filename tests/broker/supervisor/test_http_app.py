"""One health answer for several brokers."""

from __future__ import annotations

import httpx
import pytest
import trio

from aerobee.broker.http import app as http_app
from aerobee.broker.http.health import Health, everybody
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

    async def not_ready_reasons() -> dict[str, str | None]:
        return {"namesrv": names, "b-0": first, "b-1": second}

    async def scrape(authorization: str) -> bytes:
        return b""

    app = make_app(Health(startup={}, live={}, ready={}), not_ready_reasons, scrape, everybody)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://b") as client:
        answer = await client.get("/readyz")
    assert (answer.json()["status"], answer.status_code) == (status, code)
    assert answer.json()["checks"]["b-1"] == (second or "ok")


@pytest.mark.trio
async def test_a_scrape_that_waits_too_long_for_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_app, "SCRAPE_WAIT_S", 0.1)
    go, refused = trio.Event(), trio.Event()
    codes: list[int] = []

    async def not_ready_reasons() -> dict[str, str | None]:
        return {}

    async def scrape(authorization: str) -> bytes:
        await go.wait()
        return b""

    async def ask() -> None:
        codes.append((await client.get("/metrics")).status_code)
        refused.set()

    app = make_app(Health(startup={}, live={}, ready={}), not_ready_reasons, scrape, everybody)
    transport = httpx.ASGITransport(app)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://b") as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(3):
            nursery.start_soon(ask)
        await refused.wait()
        go.set()
    assert codes == [503, 200, 200]
