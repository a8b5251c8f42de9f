"""The port of the replication, with a store behind it and sockets in front."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.broker.config.load import load_config
from aerobee.broker.config.settings.replication import HA_PEERS_MAX, peers
from aerobee.broker.core.role import Role
from aerobee.broker.replication.slaves import (
    GATHER_S,
    OF_HOST_MAX,
    SLAVES_MAX,
    Peers,
    Slaves,
    encrypted,
    pace_of,
)
from aerobee.broker.replication.slaves_view import SlavesView
from aerobee.broker.replication.status import StatusProcessor
from aerobee.remoting.wire.headers.admin import GetBrokerHaStatus
from aerobee.store.files.disk import Disk
from aerobee.store.format.ha import FrameReader, encode_report
from tests.kit.ports import HOST, free_block
from tests.kit.running_store import running_store
from tests.kit.store_model import draft
from tests.kit.tls import certificate, client_context, server_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core
    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.command import Command
    from tests.kit.ports import PortBlock


def config_of(ports: PortBlock, peers: str, *more: str) -> BrokerConfig:
    overrides = [f"haPeers={peers}", f"listenPort={ports.listen}", *more]
    return load_config(
        None, environ={}, overrides=overrides, cpu_count=2, host_addresses=[], host_name="h"
    )


@asynccontextmanager
async def serving(root: Path, peers: str = HOST) -> AsyncIterator[tuple[Core, int]]:
    """A store whose slaves may connect, and its port."""
    ports = free_block()
    config = config_of(ports, peers)
    async with running_store(root, Disk()) as store, trio.open_nursery() as nursery:
        core = cast(
            "Core",
            SimpleNamespace(
                config=config, store=store, address="", role=Role(slave=False), clock=None
            ),
        )
        slaves = Slaves(core)
        await nursery.start(slaves.run)
        assert config.replication.ha_listen_port == ports.ha
        yield core, ports.ha
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("in_sync", "gather_s"), [(1, GATHER_S), (2, 0.0)])
def test_a_master_gathers_only_what_no_sender_waits_for(in_sync: int, gather_s: float) -> None:
    more = "brokerRole=SYNC_MASTER", f"inSyncReplicas={in_sync}"
    core = cast("Core", SimpleNamespace(config=config_of(free_block(), HOST, *more)))
    assert pace_of(core).gather_s == gather_s


async def status_of(core: Core) -> dict[str, object]:
    processor = StatusProcessor(core, SlavesView(core, trio.current_time))
    answer = processor.ha_status(GetBrokerHaStatus(), cast("Command", None), cast("Peer", None))
    status: dict[str, object] = msgspec.json.decode(cast("bytes", answer.body))
    return status


@pytest.mark.trio
async def test_a_slave_gets_the_log_and_is_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as (core, port):
        end = core.store.put(draft()).end_offset
        core.store.dispatch()
        async with await trio.open_tcp_stream(HOST, port) as slave:
            await slave.send_all(encode_report(0))
            reader, got = FrameReader(), b""
            while len(got) < end:
                for frame in reader.feed(await slave.receive_some()):
                    got += frame.data
            assert got == bytes(core.store.commit_log.view(0, end) or b"")
            told = trio.Event()
            core.store.log_out.after_report.add(told.set)
            await slave.send_all(encode_report(end))
            await told.wait()
            status = await status_of(core)
            assert status["masterCommitLogMaxOffset"] == end
            assert status["inSyncSlaveNums"] == 1
            [shown] = cast("list[dict[str, object]]", status["haConnectionInfo"])
            assert (shown["slaveAckOffset"], shown["diff"], shown["inSync"]) == (end, 0, True)
            assert (shown["standing"], shown["lagMillis"]) == ("follows", 0)
            assert core.store.stats.replicated_out_bytes == end


@pytest.mark.trio
async def test_who_is_not_listed_is_closed_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, "10.0.0.2;::1") as (core, port):
        async with await trio.open_tcp_stream(HOST, port) as stranger:
            assert await stranger.receive_some() == b""
        assert not core.store.log_out.followers


@pytest.mark.trio
async def test_one_slave_too_many_is_closed_and_the_others_stay(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with serving(tmp_path, "127.0.0.0/8") as (core, port):
        streams = [
            await trio.open_tcp_stream(
                HOST, port, local_address=f"127.0.0.{2 + number // OF_HOST_MAX}"
            )
            for number in range(SLAVES_MAX)
        ]
        await wait_all_tasks_blocked()
        while len(core.store.log_out.followers) < SLAVES_MAX:
            await trio.lowlevel.checkpoint()
        async with await trio.open_tcp_stream(HOST, port) as last:
            assert await last.receive_some() == b""
        assert len(core.store.log_out.followers) == SLAVES_MAX
        for stream in streams:
            await stream.aclose()


@pytest.mark.trio
async def test_one_address_cannot_take_the_places_of_all(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with serving(tmp_path, "127.0.0.0/8") as (core, port):
        streams = [await trio.open_tcp_stream(HOST, port) for _ in range(OF_HOST_MAX)]
        while len(core.store.log_out.followers) < OF_HOST_MAX:
            await trio.lowlevel.checkpoint()
        with capture_logs() as logs:
            for _ in range(3):
                async with await trio.open_tcp_stream(HOST, port) as last:
                    assert await last.receive_some() == b""
        refusals = [entry for entry in logs if entry["event"] == "replication.slave_refused"]
        assert len(refusals) == 1, "one line in ten seconds"
        async with await trio.open_tcp_stream(HOST, port, local_address="127.0.0.9"):
            while len(core.store.log_out.followers) == OF_HOST_MAX:
                await trio.lowlevel.checkpoint()
        for stream in streams:
            await stream.aclose()


@pytest.mark.trio
async def test_ends_that_do_not_agree_on_tls_close_their_connection(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    shown, trusted = certificate(tmp_path), certificate(tmp_path / "other")
    ends: list[trio.SocketStream] = []

    async def agree(stream: trio.SocketStream, context: ssl.SSLContext, host: str | None) -> None:
        ends.append(stream)
        with pytest.raises(OSError, match="TLS"):
            await encrypted(stream, context, master_host=host)

    async def serve(stream: trio.SocketStream) -> None:
        await agree(stream, server_context(shown), None)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host=HOST))
        port = listener.socket.getsockname()[1]
        await agree(await trio.open_tcp_stream(HOST, port), client_context(trusted), HOST)
    assert [end.socket.fileno() for end in ends] == [-1, -1]


def test_a_port_in_use_is_refused_with_its_key(tmp_path: Path) -> None:
    ports = free_block()
    config = config_of(ports, HOST)
    store = SimpleNamespace(log_out=SimpleNamespace(pace=None))
    core = cast("Core", SimpleNamespace(config=config, store=store, address=""))
    with (
        socket.create_server((HOST, ports.ha)),
        pytest.raises(OSError, match=f"haListenPort is {ports.ha}"),
    ):
        Slaves(core).listener()


# ── Who may come ──


def test_an_ipv4_address_may_be_written_as_an_ipv6_one() -> None:
    assert Peers("::ffff:10.0.0.2").admits("10.0.0.2")
    assert Peers("::ffff:10.0.0.0/120").admits("::ffff:10.0.0.9")
    assert not Peers("::ffff:10.0.0.2").admits("10.0.0.3")
    assert Peers("::/0").admits("fe80::1%eth0")


def test_addresses_and_networks_are_admitted_and_no_others() -> None:
    allowed = Peers("10.0.0.2;192.168.7.0/24;fd00::/8;127.0.0.1")
    for host in ("10.0.0.2", "192.168.7.200", "fd00::17", "::ffff:10.0.0.2", "fd00::1%eth0"):
        assert allowed.admits(host), host
    for host in ("10.0.0.3", "192.168.8.1", "fe80::1", "::1", "::ffff:10.0.0.3"):
        assert not allowed.admits(host), host
    assert not Peers("").admits("127.0.0.1")


@pytest.mark.parametrize("text", ["slave-1", "10.0.0.2:10912", "10.0.0.1/24", "10.0.0.0/33", "*"])
def test_a_list_with_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="no address and no network"):
        peers(f"10.0.0.9;{text}")


def test_the_list_is_bounded_and_normalised() -> None:
    assert peers(" 10.0.0.2 ; ; 10.1.0.0/16") == "10.0.0.2;10.1.0.0/16"
    with pytest.raises(ValueError, match="are possible"):
        peers(";".join(["10.0.0.2"] * (HA_PEERS_MAX + 1)))
