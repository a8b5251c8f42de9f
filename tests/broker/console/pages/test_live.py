"""Streams of events end when their peer takes nothing, and there are so many at once."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import trio
from starlette.applications import Starlette
from starlette.routing import Route

from aerobee.broker.console.looks.viewers import Failure
from aerobee.broker.console.pages.live import Events, Streams, told
from aerobee.broker.http import app as http_app
from aerobee.broker.http.app import Slots, serve
from aerobee.broker.http.listener import open_listener
from aerobee.remoting.stats import RemotingStats
from tests.broker.console.conftest import client_of
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.console.pages.live import Teller

WITHIN_S = 30.0
SMALL_BYTES = 4_096


@pytest.mark.trio
async def test_a_reader_that_takes_nothing_is_cut_off_and_its_stream_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_app, "ANSWER_S", 0.5)
    ended = trio.Event()

    async def flood(request: Request) -> Response:
        async def tell(teller: Teller) -> None:
            try:
                while True:
                    await teller("row", "x" * SMALL_BYTES)
            finally:
                ended.set()

        streams = Streams(1)
        streams.open()
        return Events(tell, streams)

    listener = open_listener(HOST, free_port(), port_key="consolePort", host_key="consoleHost")
    assert listener is not None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BYTES)
    slots = Slots(4, RemotingStats(), key="consoleMaxConnections", name="console")
    app = Starlette(routes=[Route("/", flood)])
    with trio.socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await serve(app, listener, slots, None, streams=True)

            await stalled.connect(listener.getsockname())
            nursery.start_soon(run)
            await stalled.send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            with trio.fail_after(WITHIN_S):
                await ended.wait()
                with suppress(ConnectionResetError):
                    while await stalled.recv(SMALL_BYTES):
                        pass
            nursery.cancel_scope.cancel()


def test_one_live_page_too_many_is_told_so() -> None:
    streams = Streams(1)
    streams.open()
    with pytest.raises(Failure, match="1 live pages are open") as refused:
        streams.open()
    assert refused.value.status == 503
    streams.close()
    streams.open()


def test_one_user_has_half_of_the_live_pages() -> None:
    streams = Streams(4)
    for _ in range(2):
        streams.open("ann")
    with pytest.raises(Failure, match="2 live pages are open"):
        streams.open("ann")
    streams.open("bob")
    streams.close("ann")
    streams.open("ann")


@pytest.mark.service
def test_live_pages_leave_connections_to_others(tmp_path: Path) -> None:
    port = free_port()
    settings = {"consolePort": port, "consoleMaxConnections": 4}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker, ExitStack() as open_:
        answers = []
        for _ in range(4):
            page = open_.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            page.sendall(b"GET /live/rates HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answers.append(page.recv(12)[9:])
        assert answers == [b"200", b"200", b"503", b"503"]
        assert client_of(broker).get("/me").status == 200


FIGURES: dict[str, Any] = {
    "in_per_s": 1.0, "out_per_s": 2.0, "lag": 3, "lag_at_least": 3, "oldest_unread_s": 61,
    "connections": 4,
}  # fmt: skip


def test_figures_that_are_not_known_any_more_are_told_as_that() -> None:
    def figures(**changes: Any) -> Any:
        return msgspec.json.decode(told(FIGURES | changes, 5_000, "en"))

    known = figures()
    assert (known["at"], known["texts"]["lag"], known["points"]) == (5, "3", {"rates": [1.0, 2.0]})
    unknown = figures(in_per_s=None, lag=None, connections=None)
    assert unknown["points"] == {}, "no point, and above all no zero"
    texts = unknown["texts"]
    assert (texts["in"], texts["lag"], texts["connections"]) == (None, "≥ 3", None)
