"""The streams of an open page: rates every two seconds, and new messages of one topic.

Each is a stream of server-sent events that ends after some minutes; browsers open it again. The
rates that anybody looked at stay for an hour, for the chart of the next who looks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import trio
from starlette.responses import Response

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages import formats, states
from aerobee.broker.console.pages.frame import Fields, language_of, viewer_of
from aerobee.broker.console.pages.rates import MILLI, TICK_S
from aerobee.broker.console.requests import token_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from aerobee.broker.console.pages.frame import Frame
    from aerobee.broker.console.pages.rates import Rates
    from aerobee.broker.console.pages.views import Views

STREAM_S: Final = 600.0
"""A stream ends then: who has left without a word does not keep it."""


class Teller(Protocol):
    """Sends an event: its name, its data, and what a browser that opens the stream again has seen
    then; empty: as before.
    """

    async def __call__(self, name: str, data: str, seen: str = "") -> None:
        """Send it."""


class Events(Response):
    """A stream of server-sent events: until its peer leaves, or its time is over.

    It has a place among the streams, which it gives back at its end.
    """

    media_type = "text/event-stream"

    def __init__(
        self, tell: Callable[[Teller], Awaitable[None]], streams: Streams, user: str = ""
    ) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._tell = tell
        self._streams = streams
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what there is to tell."""

        async def teller(name: str, data: str, seen: str = "") -> None:
            body = event(name, data, seen).encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async def leave(scope: trio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            scope.cancel()

        try:
            await self._send_events(teller, leave, send)
        finally:
            self._streams.close(self._user)

    async def _send_events(
        self, teller: Teller, leave: Callable[[trio.CancelScope], Awaitable[None]], send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, nursery.cancel_scope)
            with trio.move_on_after(STREAM_S):
                await self._tell(teller)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Streams:
    """How many are open: `most` at once, and half of them by one user."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def open(self, user: str = "") -> None:
        """Take a place for one; without a name it is not known whose. Raises: Failure when there
        is none.
        """
        of_user = self._most // 2
        full = self._most if self._open.total() >= self._most else 0
        if user and self._open[user] >= of_user:
            full = of_user
        if full:
            raise Failure(503, "busy", "{most} live pages are open: close one", {"most": full})
        self._open[user] += 1

    def close(self, user: str = "") -> None:
        """Give it back."""
        self._open[user] -= 1
        self._open += Counter()


class Live:
    """The streams."""

    def __init__(self, frame: Frame, rates: Rates, views: Views) -> None:
        self._frame = frame
        self._console = frame.console
        self._rates = rates
        self._views = views
        self._streams = Streams(self._console.live_pages_max)

    async def rates(self, request: Request) -> Response:
        """The figures of the overview, every two seconds."""
        viewer = viewer_of(request)

        async def tell(teller: Teller) -> None:
            while self._console.is_here(viewer, token_of(request.scope)):
                snapshot = await self._console.snapshot(viewer)
                self._rates.note(viewer.key, snapshot)
                figures, _ = await self._console.record(viewer, "overview")
                await teller("figures", told(figures, snapshot.at_ms, language_of(request)))
                await trio.sleep(TICK_S)

        return self._events(request, tell)

    def _events(self, request: Request, tell: Callable[[Teller], Awaitable[None]]) -> Response:
        """A stream, where there is a place for it. Raises: Failure."""
        user = viewer_of(request).name
        # The answer is sent in this step of the loop, so that none is lost in between.
        self._streams.open(user)
        return Events(tell, self._streams, user)

    async def tail(self, request: Request) -> Response:
        """New messages of one topic; it ends where the topic cannot be read any more."""
        topic = Fields(request.query_params).needed("topic")

        async def tell(teller: Teller) -> None:
            try:
                await self._follow(request, topic, teller)
            except Failure as failure:
                await teller("end", self._frame.said(request, failure))

        return self._events(request, tell)

    async def _follow(self, request: Request, topic: str, teller: Teller) -> None:
        # Behind the newest that the page shows, or the last that this browser got.
        seen = request.headers.get("last-event-id") or Fields(request.query_params)["since"]
        rows = await self._views.newest(request, topic)
        shown = {states.place_of(row) for row in rows if row["stored_at"] <= seen}
        viewer = viewer_of(request)
        while self._console.is_here(viewer, token_of(request.scope)):
            for row in rows:
                if states.place_of(row) not in shown:
                    piece = self._frame.piece(request, "message_row.html", row=row)
                    await teller("row", piece, row["stored_at"])
            shown = {states.place_of(row) for row in rows}
            # Something is sent on each tick, so that a peer that has left is noticed.
            await teller("tick", "")
            await trio.sleep(TICK_S)
            rows = await self._views.newest(request, topic)


def told(figures: Mapping[str, Any], at_ms: int, language: str) -> str:
    """The figures of an overview as console.js takes them; null: not known any more."""
    lag, least = formats.number(figures["lag"]), figures["lag_at_least"]
    rates = [figures["in_per_s"], figures["out_per_s"]]
    texts = {
        "in": formats.rate(figures["in_per_s"]),
        "out": formats.rate(figures["out_per_s"]),
        "lag": f"≥ {formats.number(least)}" if lag is None and least else lag,
        "oldest": formats.duration(figures["oldest_unread_s"], language),
        "connections": formats.number(figures["connections"]),
    }
    points = {} if None in rates else {"rates": rates}
    return msgspec.json.encode({"at": at_ms // MILLI, "texts": texts, "points": points}).decode()


def event(name: str, data: str, seen: str = "") -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    identity = f"id: {seen}\n" if seen else ""
    return f"event: {name}\n{identity}{lines}\n"
