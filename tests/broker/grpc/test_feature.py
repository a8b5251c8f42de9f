"""The gRPC port as a feature: a missing extra is named, and without the port nothing is loaded."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from aerobee.broker import __main__ as main
from aerobee.remoting.grpc.enums import Code
from aerobee.remoting.grpc.messages import (
    AckMessageEntry,
    FilterExpression,
    Message,
    MessageQueue,
    Resource,
    SystemProperties,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.grpc_client import GrpcClient, TlsClient
from tests.kit.health import rss_anon
from tests.kit.ports import HOST, free_port
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.replicas import CREATE_TOPIC, SUCCESS, Replicas
from tests.kit.source_tree import ROOT
from tests.kit.tls import certificate
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

MiB = 1 << 20
SWITCH = 900_003
COSTS_BYTES = 8 * MiB
RELOADED_WITHIN_S = 60.0
LIBRARIES = re.compile(r"/(ngh2|google)/")
COMMAND = re.compile(r"\(.*?\): (.+?), or set grpcPort to 0")


@pytest.mark.parametrize("module", ["ngh2", "google/protobuf"])
def test_a_missing_extra_refuses_the_start_with_the_command_that_helps(
    module: str, tmp_path: Path
) -> None:
    without = tmp_path / "without"
    (without / module).mkdir(parents=True)
    name = module.replace("/", ".")
    text = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
    (without / module.split("/")[0] / "__init__.py").write_text(text)
    broker = BrokerProcess(
        data=tmp_path / "data",
        settings={"grpcPort": free_port()},
        env={"PYTHONPATH": str(without)},
    )
    with pytest.raises(DidNotStart) as refused:
        broker.start()
    assert refused.value.exit_code == main.WRONG_SETTINGS
    told = broker.child.errors()
    assert "Traceback" not in told
    assert f"the extra grpc is not installed (No module named '{name}')" in told
    printed = COMMAND.search(told)
    assert printed is not None, told
    command = shlex.split(printed[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert command[4:] == project["optional-dependencies"]["grpc"]
    # Here they are installed, so the command has nothing to fetch; another name or number had.
    run = [*command, "--no-index", "--dry-run", "--quiet"]
    subprocess.run(run, check=True, capture_output=True, timeout=60.0)


def test_without_the_port_nothing_of_it_is_loaded_and_with_it_little(tmp_path: Path) -> None:
    held = {}
    for port in (0, free_port()):
        settings = {"grpcPort": port}
        with BrokerProcess(data=tmp_path / f"data-{port}", settings=settings) as broker:
            maps = Path(f"/proc/{broker.child.pid}/maps").read_text()
            held[bool(port)] = rss_anon(broker.child.pid)
        assert bool(LIBRARIES.search(maps)) == bool(port)
    assert held[True] - held[False] < COSTS_BYTES


def test_what_declares_the_feature_loads_nothing_of_it() -> None:
    script = "import sys, aerobee.broker.broker; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    heavy = [name for name in done.stdout.split() if name.split(".")[0] in ("ngh2", "google")]
    assert not heavy


def test_a_new_certificate_counts_for_new_connections_and_old_ones_stay(tmp_path: Path) -> None:
    shown, renewed = (tmp_path / name for name in ("shown", "renewed"))
    for directory in (shown, renewed):
        directory.mkdir()
    before, after = certificate(shown), certificate(renewed)
    old, new = before.cert.read_bytes(), after.cert.read_bytes()
    port = free_port()
    settings = {
        "tlsServerMode": "enforcing",
        "tlsServerCertPath": before.cert,
        "tlsServerKeyPath": before.key,
        "grpcPort": port,
    }
    address = f"{HOST}:{port}"
    asked: dict[str, Any] = {"topic": {"name": "orders"}}
    with (
        BrokerProcess(data=tmp_path / "data", settings=settings) as broker,
        TlsClient(address, old) as stays,
    ):
        assert stays.call("QueryRoute", **asked).status.code == Code.TOPIC_NOT_FOUND
        after.key.rename(before.key)
        after.cert.rename(before.cert)
        os.kill(broker.child.pid, signal.SIGHUP)
        eventually(
            # The watch may look in the same moment, and load them once more.
            lambda: broker.log.read_text().count("tls.loaded") >= 2,
            within_s=RELOADED_WITHIN_S,
            what="the new certificate",
        )
        assert stays.call("QueryRoute", **asked).status.code == Code.TOPIC_NOT_FOUND
        with TlsClient(address, new) as comes:
            assert comes.call("QueryRoute", **asked).status.code == Code.TOPIC_NOT_FOUND
        with (
            TlsClient(address, old) as late,
            pytest.raises(grpc.RpcError, match="UNAVAILABLE"),
        ):
            late.call("QueryRoute", **asked)


def test_clients_are_served_by_the_master_whoever_that_is(tmp_path: Path) -> None:
    """#8715: a client has the addresses of all members, and stays at the first that takes it."""
    ports = {name: free_port() for name in ("master", "slave")}
    of_master = {"brokerRole": "ASYNC_MASTER", "inSyncReplicas": 1, "grpcPort": ports["master"]}
    of_slave = {"haPeers": HOST, "grpcPort": ports["slave"]}
    addresses = f"ipv4:{HOST}:{ports['slave']},{HOST}:{ports['master']}"
    with (
        Replicas(tmp_path, of_master=of_master, of_slave=of_slave) as pair,
        GrpcClient(addresses) as client,
        GrpcClient(addresses, "who waits") as waiting,
        ThreadPoolExecutor() as pool,
    ):
        with RawConnection(pair.master.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("orders", 1)).code == SUCCESS
        assert sent(client, b"before")
        assert bodies(client) == [b"before"]
        held = pool.submit(bodies, waiting)
        pair.until_equal()
        with RawConnection(pair.master.address, timeout_s=30) as connection:
            assert connection.call(SWITCH, {"to": pair.slave.address}).code == SUCCESS
        assert held.result(RELOADED_WITHIN_S) == []
        eventually(lambda: sent(client, b"after"), within_s=RELOADED_WITHIN_S, what="a send")
        got: list[bytes] = []

        def all_there() -> bool:
            got.extend(bodies(client))
            return b"after" in got

        eventually(all_there, within_s=RELOADED_WITHIN_S, what="the message")
        assert got == [b"after"], "the other one is acknowledged"
        with GrpcClient(f"{HOST}:{ports['master']}") as alone:
            assert not sent(alone, b"to the slave")


def sent(client: GrpcClient, body: bytes) -> bool:
    """Whether a message is sent."""
    system = SystemProperties(message_id="id")
    message = Message(topic=Resource(name="orders"), system_properties=system, body=body)
    try:
        answer = client.call("SendMessage", messages=[message], timeout_s=5)
    except grpc.RpcError:
        return False
    return bool(answer.status.code == Code.OK)


def bodies(client: GrpcClient) -> list[bytes]:
    """The messages that come within 20 s, acknowledged."""
    asked = {"group": Resource(name="shoppers"), "topic": Resource(name="orders")}
    found = []
    try:
        answers = client.call(
            "ReceiveMessage",
            group=asked["group"],
            message_queue=MessageQueue(topic=asked["topic"]),
            filter_expression=FilterExpression(expression="*"),
            batch_size=32,
            invisible_duration={"seconds": 60},
            long_polling_timeout={"seconds": 20},
        )
    except grpc.RpcError:
        return []
    for answer in answers:
        if answer.HasField("message"):
            handle = answer.message.system_properties.receipt_handle
            entry = AckMessageEntry(message_id="id", receipt_handle=handle)
            assert client.call("AckMessage", **asked, entries=[entry]).status.code == Code.OK
            found.append(answer.message.body)
    return found
