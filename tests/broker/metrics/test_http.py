"""The listener as Prometheus, a probe and a rude peer see it: over a real socket."""

from __future__ import annotations

import errno
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from aerobee.broker.metrics import http, http_app
from aerobee.broker.metrics.http import (
    LOOP_LIMIT_S,
    Health,
    guarded,
    loop_turns,
    open_listener,
    serve_http,
)
from aerobee.broker.process.loop_stats import LoopStats
from tests.broker.metrics.test_metrics import make_sources
from tests.kit.ports import HOST, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.broker.metrics.stats import Sources

GOOD = Health(
    startup={"serving": lambda: None},
    live={"loop": lambda: None},
    ready={"recovered": lambda: None, "store_writable": lambda: None, "disk": lambda: None},
)


@asynccontextmanager
async def served(
    sources: Sources | None = None, health: Health = GOOD
) -> AsyncIterator[httpx.AsyncClient]:
    listener = open_listener(HOST, free_port())
    assert listener is not None
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(serve_http, listener, sources or make_sources(), health)
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
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
async def test_a_probe_passes_when_all_of_its_checks_do(path: str) -> None:
    async with served() as client:
        answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.trio
async def test_a_probe_that_fails_says_which_check_and_why() -> None:
    checks = dict(GOOD.ready) | {"disk": lambda: "91 % used, the limit is 90 %"}
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
            with trio.fail_after(5):
                assert await slow.receive_some() == b""


@pytest.mark.trio
async def test_garbage_is_refused_and_disturbs_nobody() -> None:
    async with served() as client:
        url: Any = client.base_url
        async with await trio.open_tcp_stream(url.host, url.port) as rude:
            await rude.send_all(b"\x00\x00\x00\x10 not http at all\r\n\r\n")
            assert b"400" in await rude.receive_some()
        assert (await client.get("/livez")).status_code == 200
