"""A broker's life in one loop, over real sockets: start, refusals, service, stop."""

from __future__ import annotations

import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker import controller as controller_module
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.config.settings.metrics import MetricsConfig, MetricsExporterType
from aerobee.broker.config.settings.namesrv import NamesrvConfig
from aerobee.broker.config.settings.process import ProcessConfig
from aerobee.broker.controller import BrokerController
from aerobee.broker.http import listener as http
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.server import boss
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.codes import ResponseCode as Code
from aerobee.store.errors import StoreLocked
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.flush import inline_syncs
from aerobee.store.format.names import ABORT
from tests.broker.desk import Desk, broker_config
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate
from tests.kit.ports import free_block, free_port
from tests.kit.quick_disk import QuickDisk
from tests.kit.raw_client import (
    RawAnswer,
    RawConnection,
    properties_text,
    pull_fields,
    records,
    request_frame,
    send_fields,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from pathlib import Path

    from aerobee.broker.broker import Extra
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.life.server import ReadyReport
    from aerobee.store.results import Recovery

pytestmark = pytest.mark.trio

END_TRANSACTION = 37
SEND, PULL = int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.PULL_MESSAGE)
UPDATE_OFFSET = int(RequestCode.UPDATE_CONSUMER_OFFSET)
ROUTE = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def config_of(root: Path, **changes: Any) -> BrokerConfig:
    """On ports of its own, without metrics."""
    ports = free_block()
    config = broker_config(root, **changes)
    return replace(
        config,
        remoting=RemotingConfig(listen_port=ports.listen, vip_listen_port=ports.vip),
        namesrv=NamesrvConfig(namesrv_listen_port=free_port()),
        metrics=MetricsConfig(
            metrics_exporter_type=MetricsExporterType.DISABLE,
            metrics_prom_exporter_port=ports.metrics,
        ),
        console=ConsoleConfig(console_port=0),
    )


def with_metrics(config: BrokerConfig) -> BrokerConfig:
    prom = replace(config.metrics, metrics_exporter_type=MetricsExporterType.PROM)
    return replace(config, metrics=prom)


class Running:
    """A controller that serves, what it said, and how it ended."""

    def __init__(
        self, config: BrokerConfig, disk: Disk | None = None, without: Collection[Extra] = ()
    ) -> None:
        self.config = config
        self.controller = BrokerController(
            config, disk=disk or QuickDisk(), clock=SystemClock(), without=without
        )
        self.desk = Desk(self.controller.broker)
        self.ready: list[ReadyReport] = []
        self.served = trio.Event()
        self.clean: bool | None = None

    def announce(self, ready: ReadyReport) -> None:
        self.ready.append(ready)
        self.served.set()

    async def run(self) -> None:
        self.clean = await self.controller.run(self.announce)

    async def client(self, port: int | None = None) -> RawConnection:
        address = f"127.0.0.1:{port or self.config.remoting.listen_port}"
        return await trio.to_thread.run_sync(RawConnection, address)


@asynccontextmanager
async def running(config: BrokerConfig, without: Collection[Extra] = ()) -> AsyncIterator[Running]:
    """Serving; stopped and clean at the end."""
    broker = Running(config, without=without)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        with trio.fail_after(20):
            await broker.served.wait()
        yield broker
        broker.controller.stop()
    assert broker.clean is True
    assert not broker.controller.serving


async def in_thread(call: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(call)


async def call(client: RawConnection, *request: Any) -> RawAnswer:
    """One request and its answer."""
    return await trio.to_thread.run_sync(client.call, *request)


# ── service ──


async def test_it_is_ready_when_it_answers_on_every_port(tmp_path: Path) -> None:
    config = config_of(tmp_path / "data")
    async with running(config) as broker:
        (ready,) = broker.ready
        assert broker.controller.serving
        assert ready.brokers == [f"{config.remoting.bind_address}:{config.remoting.listen_port}"]
        assert ready.namesrv.endswith(f":{config.namesrv.namesrv_listen_port}")
        assert ready.data == str(tmp_path / "data")
        assert ready.recovered == "clean"
        broker.desk.topics.for_send("t", "TBW102", 4, 0)
        for port in (config.remoting.listen_port, config.remoting.vip_listen_port):
            with await broker.client(port) as client:
                answer = await call(client, SEND, send_fields("t", 0), b"x")
                assert answer.code == Code.SUCCESS
                # A single address serves both.
                route = await call(client, ROUTE, {"topic": "t"})
                assert route.code == Code.SUCCESS
        with await broker.client(config.namesrv.namesrv_listen_port) as names:
            assert (await call(names, ROUTE, {"topic": "t"})).code == 0
            refused = await call(names, SEND, send_fields("t", 0), b"x")
            assert refused.code == Code.REQUEST_CODE_NOT_SUPPORTED


async def test_without_a_name_server_its_codes_are_not_answered(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config = replace(config, namesrv=replace(config.namesrv, embedded_namesrv=False))
    async with running(config) as broker:
        assert broker.ready[0].namesrv == "none"
        with await broker.client() as client:
            route = await call(client, ROUTE, {"topic": "t"})
            assert route.code == Code.REQUEST_CODE_NOT_SUPPORTED


REQUESTS_OF: dict[Extra, tuple[RequestCode, ...]] = {
    "dedupe": (),
    "timers": (RequestCode.RECALL_MESSAGE,),
    "pop": (
        RequestCode.POP_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ),
}


@pytest.mark.parametrize("without", [("dedupe",), ("timers",), ("pop",), tuple(REQUESTS_OF)])
async def test_without_a_feature_the_rest_starts_sends_and_pulls(
    tmp_path: Path, without: tuple[Extra, ...]
) -> None:
    config = config_of(tmp_path / "data", dedupe="t=UNIQ_KEY@60s")
    twice = send_fields("t", 0, i="UNIQ_KEY\x01A\x02")
    stored = 2 if "dedupe" in without else 1
    async with running(config, without) as broker:
        with await broker.client() as client:
            for _ in range(2):
                assert (await call(client, SEND, twice, b"hello")).code == Code.SUCCESS
            pulled = await call(client, PULL, pull_fields("g", "t", 0, 0))
            assert [record.body for record in records(pulled.body)] == [b"hello"] * stored
            for code in (code for feature in without for code in REQUESTS_OF[feature]):
                answer = await call(client, int(code), {})
                assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED, code.name
    async with running(config) as whole:
        assert whole.desk.store.max_offset("t", 0) == stored


# ── refusals ──


@pytest.mark.parametrize("which", ["broker", "vip", "namesrv", "metrics"])
async def test_a_taken_port_refuses_the_start_and_the_directory_is_untouched(
    tmp_path: Path, which: str
) -> None:
    config = with_metrics(config_of(tmp_path / "data"))
    prom = config.metrics
    port = {
        "broker": config.remoting.listen_port,
        "vip": config.remoting.vip_listen_port,
        "namesrv": config.namesrv.namesrv_listen_port,
        "metrics": config.metrics.metrics_prom_exporter_port,
    }[which]
    host = prom.metrics_prom_exporter_host if which == "metrics" else config.remoting.bind_address
    with boss.listen(host or "127.0.0.1", port, 1):
        with pytest.raises(OSError, match=str(port)):
            await BrokerController(config, disk=Disk(), clock=SystemClock()).run(nobody)
        assert not (tmp_path / "data").exists()
    # No port of the refused start is still bound.
    async with running(replace(config, metrics=config_of(tmp_path).metrics)):
        pass


def nobody(ready: ReadyReport) -> None:
    raise AssertionError(f"{ready} although it does not serve")


async def test_a_directory_in_use_refuses_the_start_and_frees_the_ports(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as first:
        second = config_of(tmp_path)
        locked = pytest.RaisesExc(StoreLocked, match=str(tmp_path))
        with pytest.RaisesGroup(locked, flatten_subgroups=True):
            await BrokerController(second, disk=Disk(), clock=SystemClock()).run(nobody)
        with boss.listen("127.0.0.1", second.remoting.listen_port, 1):
            pass
        with await first.client() as client:
            sent = await call(client, SEND, send_fields("t", 0), b"x")
            assert sent.code == Code.SUCCESS


async def test_a_service_that_fails_takes_the_broker_down(tmp_path: Path) -> None:
    broker = Running(config_of(tmp_path))

    async def fail() -> None:
        await broker.served.wait()
        with await broker.client() as client:
            sent = await call(client, SEND, send_fields("new", 0), b"x")
            assert sent.code == Code.SUCCESS
        raise ZeroDivisionError("a fault of ours")

    ticker: Any = broker.controller.ticker
    run = ticker.run

    async def run_and_fail(**status: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await run(**status)

    ticker.run = run_and_fail
    with pytest.raises(BaseExceptionGroup) as failed, trio.fail_after(20):
        await broker.run()
    assert failed.group_contains(ZeroDivisionError)
    with pytest.raises(OSError):
        await broker.client()
    # The tables were not saved, so it is no clean stop: the next start reads the log, and finds
    # whatever was acknowledged.
    assert (tmp_path / "abort").exists()
    async with running(config_of(tmp_path)) as again:
        assert again.ready[0].recovered.startswith("abnormal")
        with await again.client() as client:
            pulled = await call(client, PULL, pull_fields("g", "new", 0, 0))
            assert [record.body for record in records(pulled.body)] == [b"x"]


# ── stop ──


async def test_a_stop_leaves_everything_on_disk(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as broker:
        with await broker.client() as client:
            await call(client, SEND, send_fields("new", 0), b"x")
            broker.desk.groups.find("g", 0)
            fields = {"consumerGroup": "g", "topic": "new", "queueId": 0, "commitOffset": 1}
            assert (await call(client, UPDATE_OFFSET, fields)).code == 0
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()
    assert "new@g" in (tmp_path / "config/consumerOffset.json").read_text()
    async with running(config_of(tmp_path)) as again:
        assert again.ready[0].recovered == "clean"
        assert again.desk.offsets.query("g", "new", 0) == 1
        with await again.client() as client:
            pulled = await call(client, PULL, pull_fields("g", "new", 0, 0))
            assert [record.body for record in records(pulled.body)] == [b"x"]


async def test_a_stop_that_cannot_save_a_table_is_no_clean_one(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path, Fault(name="open", path="topics.json", times=1_000))
    broker = Running(config_of(tmp_path), disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await broker.served.wait()
        with await broker.client() as client:
            assert (await call(client, SEND, send_fields("new", 0), b"x")).code == Code.SUCCESS
        broker.controller.stop()
    assert broker.clean is False
    async with running(config_of(tmp_path)) as again:
        with await again.client() as client:
            pulled = await call(client, PULL, pull_fields("g", "new", 0, 0))
            assert [record.body for record in records(pulled.body)] == [b"x"]


async def test_a_stop_that_waits_for_the_disk_without_end_is_given_up_and_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = Running(config_of(tmp_path), disk)
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            await broker.served.wait()
            gate = Gate(disk, "fdatasync", "commitlog")
            with await broker.client() as client:
                assert (await call(client, SEND, send_fields("t", 0), b"x")).code == Code.SUCCESS
            monkeypatch.setattr(controller_module, "CLOSE_S", 0.5)
            broker.controller.stop()
    assert broker.clean is False
    told = [line for line in logs if line["event"] == "broker.stop_given_up"]
    assert [(line["left"], line["limit_s"]) for line in told] == [("tables", 0.5), ("store", 0.5)]
    assert {"event": "broker.stopped", "clean": False, "log_level": "info"} in logs
    assert (tmp_path / ABORT).exists()
    gate.let_go()
    # What the end of the process would do.
    store = broker.controller.broker.core.store
    await in_thread(store.sync_thread.stop)
    store.let_go()
    async with running(config_of(tmp_path)) as again:
        with await again.client() as client:
            pulled = await call(client, PULL, pull_fields("g", "t", 0, 0))
            assert [record.body for record in records(pulled.body)] == [b"x"]


async def test_a_stop_whose_syncs_are_slow_is_a_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is saved before the stop, so the service of timers syncs the log behind the end of
    # the selectors, and each sync in the loop counts as too long.
    late = {"flush_interval_commit_log_ms": 60_000, "timer_flush_interval_ms": 60_000}
    monkeypatch.setattr(inline_syncs, "SINGLE_MAX_S", -1.0)
    with capture_logs() as logs:
        async with running(config_of(tmp_path, **late)) as broker:
            timers = broker.desk.timers
            assert timers is not None
            with await broker.client() as client:
                # A sync that a segment is new to is never made in the loop.
                assert (await call(client, SEND, send_fields("t", 0), b"x")).code == Code.SUCCESS
                await broker.desk.puts.durable()
                timer = send_fields("t", 0, i=properties_text(TIMER_DELAY_SEC="60"))
                assert (await call(client, SEND, timer, b"x")).code == Code.SUCCESS
            await in_thread(
                lambda: eventually(
                    lambda: timers.timers.waiting == 1, within_s=20, what="the timer has its slot"
                )
            )
    assert [line["clean"] for line in logs if line["event"] == "store.closed"] == [True]


async def test_a_stop_notes_which_transactions_are_done_with(tmp_path: Path) -> None:
    async with running(config_of(tmp_path)) as broker:
        with await broker.client() as client:
            half = {"i": "TRAN_MSG\x01true\x02PGROUP\x01p\x02", "f": 4}
            sent = await call(client, SEND, send_fields("t", 0) | half, b"x")
            end = {
                "producerGroup": "p",
                "tranStateTableOffset": sent.ext["queueOffset"],
                "commitLogOffset": int(sent.ext["msgId"][16:], 16),
                "commitOrRollback": 8,
                "msgId": sent.ext["transactionId"],
            }
            assert (await call(client, END_TRANSACTION, end)).code == 0
    async with running(config_of(tmp_path)) as again:
        # Behind the offset nobody looks again, a Java broker neither.
        offsets = again.desk.offsets
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"):
            assert offsets.query("CID_RMQ_SYS_TRANS", topic, 0) == 1


async def test_a_stop_answers_the_held_pulls_before_it_closes_the_door(tmp_path: Path) -> None:
    broker = Running(config_of(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await broker.served.wait()
        broker.desk.topics.for_send("t", "TBW102", 4, 0)
        with await broker.client() as client:
            client.ask(PULL, pull_fields("g", "t", 0, 0, sysFlag=6))
            # Answered after the pull was served, for both come over one connection.
            assert (await call(client, SEND, send_fields("t", 1), b"x")).code == 0
            assert broker.desk.hold.parked == 1
            broker.controller.stop()
            answer = await in_thread(client.hear)
            assert answer.code == Code.PULL_NOT_FOUND
            await in_thread(client.hear_close)
    assert broker.clean is True


async def test_a_stop_before_the_first_request_is_clean(tmp_path: Path) -> None:
    broker = Running(config_of(tmp_path))
    broker.controller.stop()
    with trio.fail_after(20):
        await broker.run()
    assert broker.clean is True
    assert len(broker.ready) == 1


# ── a start that lasts ──


async def test_while_the_store_recovers_probes_are_answered_and_clients_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_metrics(config_of(tmp_path / "data"))
    broker = Running(config)
    go_on = threading.Event()
    load = broker.controller.broker.load

    def slow_load() -> Recovery:
        assert go_on.wait(10)
        return load()

    monkeypatch.setattr(broker.controller.broker, "load", slow_load)
    monkeypatch.setattr(controller_module, "PROGRESS_S", 0.01)
    host = config.metrics.metrics_prom_exporter_host or "127.0.0.1"
    url = f"http://{host}:{config.metrics.metrics_prom_exporter_port}"
    with capture_logs() as logs, trio.fail_after(20):
        async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
            nursery.start_soon(broker.run)
            assert (await client.get(f"{url}/livez")).status_code == 200
            unready = await client.get(f"{url}/readyz")
            assert unready.status_code == 503
            assert unready.json()["checks"]["recovered"] == "recovery is not finished"
            assert (await client.get(f"{url}/metrics")).status_code == 503
            with pytest.raises(OSError, match="attempts to connect"):
                await trio.open_tcp_stream("127.0.0.1", config.remoting.listen_port)
            while not any(entry["event"] == "store.recovery_progress" for entry in logs):
                await trio.lowlevel.checkpoint()
            go_on.set()
            await broker.served.wait()
            assert (await client.get(f"{url}/readyz")).status_code == 200
            assert (await client.get(f"{url}/metrics")).status_code == 200
            with await broker.client():
                pass
            told = len(logs)
            await trio.sleep(0.05)
            assert "store.recovery_progress" not in {entry["event"] for entry in logs[told:]}
            broker.controller.stop()
    assert broker.clean is True


async def test_a_short_start_does_without_the_web_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import takes a quarter of the time to the ready line."""
    broker = Running(with_metrics(config_of(tmp_path / "data")))
    told: list[bool] = []
    monkeypatch.setattr(controller_module, "HTTP_WAITS_S", 60)

    def noted(name: str) -> object:
        told.append(broker.served.is_set())
        return import_module(name)

    monkeypatch.setattr(http, "import_module", noted)
    url = f"http://127.0.0.1:{broker.config.metrics.metrics_prom_exporter_port}/startupz"
    async with trio.open_nursery() as nursery, httpx.AsyncClient() as client:
        nursery.start_soon(broker.run)
        # Asked before it serves: the connection waits in the backlog.
        with trio.fail_after(20):
            while not told:
                with suppress(httpx.ConnectError):
                    assert (await client.get(url)).status_code == 200
        assert told == [True]
        broker.controller.stop()


# ── clients are to go elsewhere ──


def at_version(version: int, code: int, ext: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame of a client of another version."""
    frame = request_frame(code, 77, ext, body)
    changed = frame[8:].replace(b'"version":479', b'"version":%d' % version)
    return frame[:8] + changed


async def test_a_broker_that_stops_sends_new_work_away_and_takes_what_ends_the_old(
    tmp_path: Path,
) -> None:
    """R19; a client that pulls again at once does not hold up the stop."""
    async with running(config_of(tmp_path / "data")) as broker:
        client = await broker.client()
        assert (await call(client, SEND, send_fields("t", 0), b"x")).code == Code.SUCCESS
        assert (await call(client, PULL, pull_fields("g", "t", 0, 0))).code == Code.SUCCESS
        broker.controller.broker.core.rounds.leave()
        for version, code in ((479, Code.GO_AWAY), (476, Code.GO_AWAY), (475, 14), (401, 14)):
            for request, ext in ((SEND, send_fields("t", 0)), (PULL, pull_fields("g", "t", 0, 9))):
                client.send_bytes(at_version(version, request, ext, b"x"))
                assert (await in_thread(client.hear)).code == code
        fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1}
        assert (await call(client, UPDATE_OFFSET, fields)).code == Code.SUCCESS
        assert (await call(client, 9_999, {})).code == Code.REQUEST_CODE_NOT_SUPPORTED
        with pytest.raises(OSError, match="refused"):
            await broker.client()
        client.close()


async def test_a_lame_duck_has_producers_leave_then_closes_connections_then_stops(
    tmp_path: Path,
) -> None:
    soon = ProcessConfig(lame_duck_grace_s=1, lame_duck_spread_s=0)
    broker = Running(with_metrics(config_of(tmp_path / "data", process=soon)))
    url = f"http://127.0.0.1:{broker.config.metrics.metrics_prom_exporter_port}"
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            await broker.served.wait()
            clients = [await broker.client() for _ in range(3)]
            for client in clients:
                assert (await call(client, SEND, send_fields("t", 0), b"x")).code == Code.SUCCESS
            broker.controller.lame_duck()
            broker.controller.lame_duck()
            async with httpx.AsyncClient() as probe:
                ready = await probe.get(f"{url}/readyz")
            assert ready.status_code == 503
            assert "lame duck" in ready.text
            route = await call(clients[0], ROUTE, {"topic": "t"})
            assert b'"perm":4' in route.body
            late = await call(clients[0], SEND, send_fields("t", 0), b"x")
            assert late.code == Code.SUCCESS, "producers with an older route are served"
    assert broker.clean is True
    assert not (tmp_path / "data" / "abort").exists()
    events = [line["event"] for line in lines]
    order = ["broker.lame_duck", "broker.closing_connections", "broker.stopping", "broker.stopped"]
    assert [event for event in events if event in order] == order
    for client in clients:
        client.close()
