"""Asks the HTTP listeners of the members, which are on the loopback, and joins what they tell."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Final

import trio

from aerobee.broker.supervisor.exposition import joined
from aerobee.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

PROBE_S: Final = 2.0
SCRAPE_S: Final = 8.0
"""Less than the timeout of a scrape by default."""
PROBE_BYTES_MAX: Final = 65_536
THREADS: Final = trio.CapacityLimiter(64)


async def not_ready_reason(port: int) -> str | None:
    """Why a member is not ready by its own `/readyz`; None: it is."""
    try:
        status, body = await in_thread(
            _get, port, "/readyz", "", PROBE_S, limiter=THREADS, abandon_on_cancel=True
        )
        checks = json.loads(body[:PROBE_BYTES_MAX])["checks"]
        reasons = [f"{name}: {text}" for name, text in checks.items() if text != "ok"]
    except (OSError, http.client.HTTPException, ValueError, LookupError, AttributeError) as error:
        return f"does not answer on port {port}: {str(error) or type(error).__name__}"
    return "; ".join(reasons) or (None if status == http.HTTPStatus.OK else f"answers {status}")


async def metrics_of(port: int, authorization: str) -> bytes:
    """The metrics of a member; nothing where it does not answer.

    `authorization`: the header of who asks, which the member checks as well.
    """
    try:
        status, body = await in_thread(
            _get, port, "/metrics", authorization, SCRAPE_S, limiter=THREADS, abandon_on_cancel=True
        )
    except (OSError, http.client.HTTPException):
        return b""
    return body if status == http.HTTPStatus.OK else b""


async def merge_expositions(texts: Sequence[tuple[str, bytes]]) -> bytes:
    """The metrics of several processes in one text; see `joined`. The loop turns meanwhile: the
    name server is in it, and of many topics there are megabytes.
    """
    return await in_thread(lambda: b"".join(joined(texts)), limiter=THREADS)


def _get(port: int, path: str, authorization: str, timeout_s: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    headers = {"connection": "close"}
    if authorization:
        headers["authorization"] = authorization
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
