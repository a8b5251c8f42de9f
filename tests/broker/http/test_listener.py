"""The listener as Prometheus, a probe and a rude peer see it: over a real socket."""

from __future__ import annotations

import errno
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from aerobee.broker.counters.server_stats import LoopStats
from aerobee.broker.http import app as http_app
from aerobee.broker.http import listener as http
from aerobee.broker.http.app import SCRAPES_AT_ONCE, SERVED_S, Slot, Slots
from aerobee.broker.http.health import LOOP_LIMIT_S, Health, everybody, guarded, loop_turns
from aerobee.broker.http.listener import open_listener, serve_http
from aerobee.remoting.stats import RemotingStats
from tests.broker.metrics.test_metrics import make_sources, nothing_stored
from tests.kit.garbage import no_searches, until_freed
from tests.kit.ports import HOST, free_port
from tests.kit.tls import certificate, client_context, server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.broker.metrics.figures import Backlog, Sources

GOOD = Health(
    startup={"serving": lambda: None},
    live={"loop": lambda: None},
    ready={"recovered": lambda: None, "store_writable": lambda: None, "disk": lambda: None},
)


@asynccontextmanager
async def served(
    sources: Sources | None = None, health: Health = GOOD, *, most: int = 64
) -> AsyncIterator[httpx.AsyncClient]:
    listener = open_listener(HOST, free_port())
    assert listener is not None
    serve = partial(serve_http, most=most)
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(serve, listener, sources or make_sources(), health)
        async with httpx.AsyncClient(base_url=address) as client:
            yield client
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("token", "address", "authorization", "may"),
    [
        ("", "127.0.0.1", "", True),
        ("", "::1", "", True),
        ("", "::ffff:127.0.0.1", "", True),
        ("", "10.0.0.1", "", False),
        ("", "", "", False),
        ("t", "127.0.0.1", "", False),
        ("t", "10.0.0.1", "Bearer t", True),
        ("t", "10.0.0.1", "Bearer é", False),
    ],
)
def test_with_access_control_a_token_or_this_host_may_scrape(
    token: str, address: str, authorization: str, may: bool
) -> None:
    assert guarded(token)(address, authorization) is may


@pytest.mark.trio
async def test_a_scrape_without_the_token_has_nothing_and_probes_are_open() -> None:
    listener = open_listener(HOST, free_port())
    assert listener is not None
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(serve_http, listener, make_sources(), GOOD, guarded("t"))
        async with httpx.AsyncClient(base_url=address) as client:
            refused = await client.get("/metrics")
            served_ = await client.get("/metrics", headers={"authorization": "Bearer t"})
            probe = await client.get("/livez")
        nursery.cancel_scope.cancel()
    assert (refused.status_code, served_.status_code, probe.status_code) == (401, 200, 200)
    assert b"rocketmq" not in refused.content


@pytest.mark.trio
async def test_metrics_are_text_that_prometheus_reads() -> None:
    async with served() as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "server" not in answer.headers
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"rocketmq_topic_number", "aerobee_loop_lag_seconds"} <= names


@pytest.mark.trio
async def test_a_scrape_of_many_series_arrives_whole() -> None:
    sources = make_sources()
    for number in range(2_000):
        sources.broker.topic_in(f"topic-{number}").messages_in = number
    async with served(sources) as client:
        answer = await client.get("/metrics")
    (family,) = (
        family
        for family in text_string_to_metric_families(answer.text)
        if family.name == "rocketmq_messages_in"
    )
    assert sum(sample.value for sample in family.samples) == sum(range(2_000))


@pytest.mark.trio
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/insyncz", "/startupz"])
async def test_a_probe_passes_when_all_of_its_checks_do(path: str) -> None:
    async with served() as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.trio
async def test_a_probe_that_fails_says_which_check_and_why() -> None:
    checks = dict(GOOD.ready) | {"disk": lambda: "91 % used, the limit is 90 %"}
    apart = {"in_sync": lambda: "member 3 is not in the sync set [1, 2]"}
    async with served(health=replace(GOOD, in_sync=apart)) as client:
        assert (await client.get("/readyz")).status_code == 200
        behind = await client.get("/insyncz")
    assert behind.status_code == 503
    assert behind.json()["checks"]["in_sync"] == "member 3 is not in the sync set [1, 2]"
    async with served(health=replace(GOOD, ready=checks)) as client:
        answer = await client.get("/readyz")
        alive = await client.get("/livez")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "failing",
        "checks": {
            "recovered": "ok",
            "store_writable": "ok",
            "disk": "91 % used, the limit is 90 %",
        },
    }
    assert alive.status_code == 200


@pytest.mark.trio
async def test_what_is_not_there_is_404_and_what_is_not_asked_that_way_405() -> None:
    async with served() as client:
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.post("/metrics", content=b"x")).status_code == 405
        assert (await client.head("/livez")).status_code == 200


@pytest.mark.trio
async def test_an_error_in_a_source_is_an_answer_and_an_event_and_the_server_goes_on() -> None:
    def broken() -> int:
        raise RuntimeError("table gone")

    asked = make_sources()
    with capture_logs() as logs:
        async with served(replace(asked, topic_number=broken)) as client:
            # Its head is out by then, so all that can be told is that the body is not whole.
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get("/metrics")
            assert (await client.get("/livez")).status_code == 200
    assert [entry["event"] for entry in logs] == ["http.failed"]


class Counting:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_loop_that_stood_still_is_not_alive() -> None:
    stats, clock = LoopStats(), Counting()
    check = loop_turns(stats, clock)
    assert check() is not None
    stats.last_turn = clock.now = 100.0
    assert check() is None
    clock.now += LOOP_LIMIT_S + 0.1
    assert check() == "the loop has stood still for 5.1 s"


def test_port_0_turns_the_listener_off() -> None:
    assert open_listener(HOST, 0) is None


def test_a_port_in_use_names_the_address_and_the_key() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="metricsPromExporterPort") as caught:
            open_listener(HOST, port)
    assert caught.value.errno == errno.EADDRINUSE
    assert f"{HOST}:{port}" in str(caught.value)


@pytest.mark.trio
async def test_a_peer_that_connects_before_the_server_runs_is_answered() -> None:
    listener = open_listener(HOST, free_port())
    assert listener is not None
    early = await trio.open_tcp_stream(HOST, listener.getsockname()[1])
    await early.send_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
    async with early, trio.open_nursery() as nursery:
        await nursery.start(serve_http, listener, make_sources(), GOOD)
        assert (await early.receive_some()).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize(
    "lacking",
    [
        OSError(errno.EMFILE, "Too many open files", "x.py"),
        ImportError("x.so: cannot open shared object file: Too many open files"),
    ],
)
async def test_without_descriptors_the_framework_is_imported_later(
    lacking: Exception, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    outcomes: list[Exception | None] = [lacking, lacking, None]

    def imported(name: str) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    monkeypatch.setattr(http, "import_module", imported)
    await http.prepared()
    assert not outcomes
    outcomes.append(ImportError("No module named 'hypercorn'"))
    with pytest.raises(ImportError, match="hypercorn"):
        await http.prepared()


@pytest.mark.trio
async def test_a_peer_that_reads_nothing_does_not_keep_the_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "STALLED_PEER_MS", 300)
    sources = make_sources()
    for number in range(20_000):
        sources.broker.topic_in(f"topic-{number}").messages_in = number
    listener = open_listener(HOST, free_port())
    assert listener is not None
    with trio.fail_after(10), trio.socket.socket() as rude:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with trio.open_nursery() as nursery:
            await rude.connect(listener.getsockname())
            await nursery.start(serve_http, listener, sources, GOOD)
            await rude.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
            await rude.recv(1)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_peer_that_never_ends_its_request_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_app, "REQUEST_TIMEOUT_S", 0.2)
    async with served() as client:
        url: Any = client.base_url
        async with await trio.open_tcp_stream(url.host, url.port) as slow:
            await slow.send_all(b"GET /livez HTTP/1.1\r\nhost:")
            with trio.fail_after(60):
                assert await slow.receive_some() == b""


@asynccontextmanager
async def trickling(series: int) -> AsyncIterator[tuple[trio.socket.SocketType, trio.Nursery]]:
    """A server, in this nursery, that sends a scrape to this peer as fast as the peer reads it."""
    sources = make_sources()
    for number in range(series):
        sources.broker.topic_in(f"topic-{number}").messages_in = number
    listener = open_listener(HOST, free_port())
    assert listener is not None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    with trio.socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        async with trio.open_nursery() as nursery:
            await slow.connect(listener.getsockname())
            await nursery.start(serve_http, listener, sources, GOOD)
            await slow.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
            await slow.recv(1)
            yield slow, nursery
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_peer_that_reads_too_slowly_is_cut_off_and_its_scrape_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_app, "ANSWER_S", 1.0)
    monkeypatch.setattr(http_app, "SCRAPES_AT_ONCE", 1)
    got = 0
    async with trickling(2_000) as (slow, _):
        host, port = slow.getpeername()
        with suppress(ConnectionResetError), trio.fail_after(20):
            while part := await slow.recv(1_000):
                got += len(part)
                await trio.sleep(0.02)
        monkeypatch.setattr(http_app, "ANSWER_S", 30.0)
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
            answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert got < len(answer.content) / 2


@pytest.mark.trio
async def test_a_slow_peer_does_not_keep_the_server_from_stopping() -> None:
    """It takes bytes all the time, so the system does not give it up."""

    async def trickle() -> None:
        with suppress(OSError):
            # Nothing tells of time that passes.
            while await slow.recv(50):  # noqa: ASYNC110  (see above)
                await trio.sleep(0.02)

    async with trio.open_nursery() as beside, trickling(2_000) as (slow, server):
        beside.start_soon(trickle)
        await trio.sleep(0.2)
        began = trio.current_time()
        server.cancel_scope.cancel()
    assert trio.current_time() - began < 2


@pytest.mark.trio
async def test_a_scrape_that_waits_too_long_for_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_app, "SCRAPE_WAIT_S", 0.2)
    begun, go = trio.Event(), trio.Event()
    at_work = 0

    async def read_slowly() -> Backlog:
        nonlocal at_work
        at_work += 1
        if at_work == SCRAPES_AT_ONCE:
            begun.set()
        await go.wait()
        return await nothing_stored()

    codes = []

    async def scrape() -> None:
        codes.append((await client.get("/metrics")).status_code)

    with trio.fail_after(10):
        async with served(replace(make_sources(), read_backlog=read_slowly)) as client:
            async with trio.open_nursery() as nursery:
                for _ in range(SCRAPES_AT_ONCE):
                    nursery.start_soon(scrape)
                await begun.wait()
                refused = await client.get("/metrics")
                go.set()
            assert (await client.get("/metrics")).status_code == 200
    assert refused.status_code == 503
    assert "2 other scrapes" in refused.text
    assert refused.headers["retry-after"] == "1"
    assert codes == [200] * SCRAPES_AT_ONCE


@pytest.mark.trio
async def test_garbage_is_refused_and_disturbs_nobody() -> None:
    async with served() as client:
        url: Any = client.base_url
        async with await trio.open_tcp_stream(url.host, url.port) as rude:
            await rude.send_all(b"\x00\x00\x00\x10 not http at all\r\n\r\n")
            assert b"400" in await rude.receive_some()
        assert (await client.get("/livez")).status_code == 200


@pytest.mark.trio
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"HTTP/1.1 404"),
        (
            b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Close, Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
            b"HTTP/1.1 200",
        ),
    ],
    ids=["preface", "upgrade"],
)
async def test_nobody_is_served_over_http_2(asked: bytes, answer: bytes) -> None:
    """Clients that offer it, as `curl --http2` does, are answered as if they had not."""
    async with served() as client:
        async with await connect(client) as stream:
            await stream.send_all(asked)
            with trio.fail_after(10):
                told = b"".join([piece async for piece in stream])
        assert told.startswith(answer)
        assert b"HTTP/1.1 101" not in told
        assert b"\0\0" not in told, "no frame of HTTP/2"
        assert (await client.get("/livez")).status_code == 200


async def connect(client: httpx.AsyncClient) -> trio.SocketStream:
    url: Any = client.base_url
    return await trio.open_tcp_stream(url.host, url.port)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("tls", "asked"),
    [
        (False, b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
        (False, b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\nGET"),
        (False, b""),
        (True, b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
        (True, b""),
    ],
)
async def test_a_connection_leaves_no_cycle(tmp_path: Path, *, tls: bool, asked: bytes) -> None:
    """R12: of scrapes, one a second, a third was in use when searches for cycles looked, and
    stayed in memory for hours.
    """
    shown = certificate(tmp_path) if tls else None
    context = server_context(shown) if shown else None
    listener = open_listener(HOST, free_port())
    assert listener is not None
    with no_searches(http_app.Connection, http_app.Http1) as made:
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(
                serve_http, listener, make_sources(), GOOD, everybody, context
            )
            for _ in range(3):
                stream: Any = await trio.open_tcp_stream(*listener_at(address))
                if shown:
                    stream = trio.SSLStream(stream, client_context(shown), server_hostname=HOST)
                await stream.send_all(asked)
                await stream.transport_stream.send_eof() if tls else await stream.send_eof()
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some():
                        pass
                await trio.aclose_forcefully(stream)
            await until_freed(made)
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_idle_connections_take_no_slot_from_a_scrape() -> None:
    """R18: the oldest of them go, and no more are open than metricsMaxConnections."""
    sources = make_sources()
    async with served(sources, most=8) as client, AsyncExitStack() as flood:
        idle = [await flood.enter_async_context(await connect(client)) for _ in range(100)]
        assert (await client.get("/metrics")).status_code == 200
        assert sources.remoting.http_connections == 8
        with trio.fail_after(60):
            for stream in idle[:92]:
                assert await stream.receive_some() == b""
        await idle[-1].send_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await idle[-1].receive_some()).startswith(b"HTTP/1.1 200")
    assert sources.remoting.connections_refused == 0


@pytest.mark.trio
async def test_where_all_are_at_work_a_new_one_is_refused_with_the_setting() -> None:
    begun, go = trio.Event(), trio.Event()
    waiting = 0

    async def read_slowly() -> Backlog:
        nonlocal waiting
        waiting += 1
        if waiting == SCRAPES_AT_ONCE:
            begun.set()
        await go.wait()
        return await nothing_stored()

    sources = replace(make_sources(), read_backlog=read_slowly)
    with capture_logs() as logs, trio.fail_after(10):
        async with served(sources, most=SCRAPES_AT_ONCE) as client, AsyncExitStack() as opened:
            busy = [
                await opened.enter_async_context(await connect(client))
                for _ in range(SCRAPES_AT_ONCE)
            ]
            for stream in busy:
                await stream.send_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
            await begun.wait()
            async with await connect(client) as late:
                told = b"".join([part async for part in late])
            assert told.startswith(b"HTTP/1.1 503 ")
            assert b"metricsMaxConnections is 2" in told
            go.set()
            for stream in busy:
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
    assert sources.remoting.connections_refused == 1
    assert [line["event"] for line in logs] == ["connection.refused"]


@pytest.mark.trio
async def test_connections_that_do_not_finish_their_handshake_take_no_slot(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    context = server_context(files)
    listener = open_listener(HOST, free_port())
    assert listener is not None
    serve = partial(serve_http, most=4)
    async with trio.open_nursery() as nursery, AsyncExitStack() as flood:
        (address,) = await nursery.start(serve, listener, make_sources(), GOOD, everybody, context)
        for _ in range(20):
            await flood.enter_async_context(await trio.open_tcp_stream(*listener_at(address)))
        async with httpx.AsyncClient(base_url=address, verify=False) as client:
            assert (await client.get("/livez")).status_code == 200
        nursery.cancel_scope.cancel()


def listener_at(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition("//")[2].partition(":")
    return host, int(port)


class Port:
    """Slots of a port, with who lost his in the order of it."""

    def __init__(self, most: int) -> None:
        self.stats = RemotingStats()
        self.slots = Slots(most, self.stats)
        self.gone: list[str] = []

    def connect(self, name: str, address: str = "10.0.0.1", now: float = 0.0) -> Slot | None:
        slot = Slot(address, now, lambda: self.gone.append(name))
        return slot if self.slots.take(slot, now) else None


def test_the_oldest_idle_one_goes() -> None:
    port = Port(2)
    first = port.connect("first")
    assert first is not None
    first.turn(idle=False, now=0.0)
    assert port.connect("second")
    assert port.connect("third")
    assert port.connect("fourth")
    assert port.gone == ["second", "third"]
    assert port.stats.http_connections == 2


def test_an_address_takes_slots_from_itself_before_others() -> None:
    port = Port(3)
    assert port.connect("prometheus", "10.0.0.9")
    for number in range(10):
        assert port.connect(f"flood {number}")
    assert port.gone == [f"flood {number}" for number in range(8)]


def test_where_nobody_is_idle_it_is_refused_until_a_request_takes_too_long() -> None:
    port = Port(1)
    busy = port.connect("busy")
    assert busy is not None
    busy.turn(idle=False, now=5.0)
    assert port.connect("late", now=5.0 + SERVED_S) is None
    assert (port.stats.connections_refused, port.gone) == (1, [])
    assert port.connect("later", now=5.1 + SERVED_S)
    assert port.gone == ["busy"]


def test_one_that_ends_gives_its_slot_back_once() -> None:
    port = Port(1)
    first = port.connect("first")
    assert first is not None
    port.slots.give_back(first)
    port.slots.give_back(first)
    assert port.stats.http_connections == 0
    assert port.connect("second")
    assert port.gone == []
