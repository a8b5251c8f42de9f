"""Real clients through TLS: a broker and its name server demand it, and certificates of clients."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import anyio
import pytest

import aerobee
import aerobee.blocking
from aerobee import ConsumeFrom, Message, TLSConfig
from aerobee.cli.certs import make
from aerobee.errors import NoNameServerError
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient, JavaError
from tests.kit.raw_client import RawConnection
from tests.kit.sslyze import complaints
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    make(directory, ["127.0.0.1"])
    return directory


@pytest.fixture(scope="module")
def broker(certs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "tlsServerMode": "enforcing",
        "tlsServerCertPath": certs / "server.pem",
        "tlsServerKeyPath": certs / "server-key.pem",
        "tlsServerNeedClientAuth": "require",
        "tlsServerTrustCertPath": certs / "ca.pem",
        "metricsTlsEnable": "true",
    }
    with BrokerProcess(data=tmp_path_factory.mktemp("tls") / "data", settings=settings) as broker:
        yield broker


def tls_of(certs: Path) -> TLSConfig:
    return TLSConfig(
        ca_file=str(certs / "ca.pem"),
        cert_file=str(certs / "client.pem"),
        key_file=str(certs / "client-key.pem"),
    )


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest, certs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    home = tmp_path_factory.mktemp("java")
    (home / "tls.properties").write_text(
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={certs}/ca.pem\n"
        f"tls.client.certPath={certs}/client.pem\n"
        f"tls.client.keyPath={certs}/client-key.pem\n"
    )
    options = (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        f"-Dtls.config.file={home}/tls.properties",
    )
    client = JavaClient(toolkit(request.param), home, options=options)
    yield client
    client.child.kill()


def test_java_clients_send_consume_and_administer(java: JavaClient, broker: BrokerProcess) -> None:
    topic = f"Java{java.version.replace('.', '_')}"
    java.producer("p", broker.namesrv_address)
    bodies = [f"{number}".rjust(50_000, "x") for number in range(20)]
    sent = java.send("p", topic, bodies)
    assert {one.status for one in sent} == {"SEND_OK"}
    java.consumer("c", broker.namesrv_address, topic)
    assert sorted(one.body for one in java.received("c", 20)) == sorted(bodies)
    if java.version != "4.9.7":  # Its mqadmin wants files of an installation.
        assert broker.address in java.mqadmin(broker.namesrv_address, "clusterList")


def test_java_clients_without_tls_are_refused(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = JavaClient(toolkit("5.5.0"), tmp_path_factory.mktemp("plain"))
    try:
        client.producer("p", broker.namesrv_address)
        with pytest.raises(JavaError):
            client.send("p", "Nothing", ["x"])
    finally:
        client.child.kill()
    assert "plain" in failures(broker)


def failures(broker: BrokerProcess) -> set[object]:
    found = events(broker.log.read_text())
    return {one["kind"] for one in found if one["event"] == "tls.handshake_failed"}


def test_metrics_and_probes_are_served_over_https_alone(broker: BrokerProcess, certs: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    url = f"s://127.0.0.1:{broker.ports.metrics}/metrics"
    with urllib.request.urlopen(f"http{url}", timeout=30, context=trusted) as page:
        assert b"aerobee_tls_handshakes_total{" in page.read()
    with pytest.raises(OSError, match=r"(?i)closed|reset|disconnected|Bad"):
        urllib.request.urlopen(f"http{url[1:]}", timeout=30)
    command = [sys.executable, "-m", "aerobee", "healthcheck", "--port", str(broker.ports.metrics)]
    for more, code, advice in (([], 4, b"add --tls"), (["--tls"], 0, b"")):
        done = subprocess.run([*command, *more], timeout=60, capture_output=True)
        assert (done.returncode, advice in done.stderr) == (code, True), done.stderr


async def send_and_poll(namesrv: str, tls: TLSConfig) -> set[bytes]:
    async with aerobee.Client(namesrv, tls=tls) as client:
        async with aerobee.Producer(client=client) as producer:
            await producer.send(Message("Async", b"async"))
        async with aerobee.PullConsumer("a", client=client, start_from=ConsumeFrom.FIRST) as one:
            await one.subscribe("Async")
            return {message.body for message in await one.poll(timeout=20.0)}


def test_the_asynchronous_client(broker: BrokerProcess, certs: Path) -> None:
    assert anyio.run(send_and_poll, broker.namesrv_address, tls_of(certs)) == {b"async"}


def test_new_certificates_count_while_connections_stay(
    broker: BrokerProcess, certs: Path, tmp_path: Path
) -> None:
    """By SIGHUP; the watch of the files has tests of its own."""
    with aerobee.blocking.Producer(broker.namesrv_address, tls=tls_of(certs)) as before:
        before.send(Message("Renewed", b"1"))
        (tmp_path / "new").mkdir()
        for name in ("server.pem", "server-key.pem", "client.pem", "client-key.pem"):
            (certs / name).rename(tmp_path / name)
        make(certs, ["127.0.0.1"])
        os.kill(broker.child.pid, signal.SIGHUP)
        eventually(
            lambda: "config.reloaded" in broker.log.read_text(), within_s=20, what="the signal"
        )
        before.send(Message("Renewed", b"2"))
        with aerobee.blocking.Producer(broker.namesrv_address, tls=tls_of(certs)) as after:
            after.send(Message("Renewed", b"3"))
    loaded = [one for one in events(broker.log.read_text()) if one["event"] == "tls.loaded"]
    assert len(loaded) >= 2


@pytest.mark.parametrize(("version", "works"), [("1_1", False), ("1_2", True), ("1_3", True)])
def test_versions(broker: BrokerProcess, certs: Path, version: str, works: bool) -> None:
    """S16: nothing below TLS 1.2, whatever the client offers."""
    command = [
        *("openssl", "s_client", "-connect", broker.address, f"-tls{version}", "-brief"),
        *("-cipher", "ALL:@SECLEVEL=0", "-CAfile", str(certs / "ca.pem")),
        *("-cert", str(certs / "client.pem"), "-key", str(certs / "client-key.pem")),
    ]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=30, check=False)
    said = done.stderr.decode()
    assert ("CONNECTION ESTABLISHED" in said) is works, said


def test_a_client_without_a_certificate_is_refused(broker: BrokerProcess, certs: Path) -> None:
    nobody = TLSConfig(ca_file=str(certs / "ca.pem"))
    with (
        pytest.raises(NoNameServerError, match=r"CERTIFICATE_REQUIRED|closed"),
        aerobee.blocking.Producer(broker.namesrv_address, tls=nobody, timeout=2.0) as producer,
    ):
        producer.send(Message("Nothing", b"x"))
    with RawConnection(broker.address) as plain:
        plain.ask(31, {})
        plain.hear_close()


def test_a_broker_registers_through_tls_at_a_name_server_elsewhere(
    broker: BrokerProcess, certs: Path, tmp_path: Path
) -> None:
    """The name server inside the other broker demands TLS and a certificate."""
    settings = {
        "useTLS": "true",
        "brokerName": "outside",
        "tlsClientTrustCertPath": certs / "ca.pem",
        "tlsClientCertPath": certs / "client.pem",
        "tlsClientKeyPath": certs / "client-key.pem",
    }
    other = BrokerProcess(data=tmp_path / "data", settings=settings, namesrv=broker.namesrv_address)
    with (
        other,
        aerobee.blocking.AdminClient(broker.namesrv_address, tls=tls_of(certs)) as admin,
    ):
        eventually(
            lambda: other.address in str(admin.cluster_info()), within_s=20, what="it registered"
        )


def test_nothing_is_below_the_intermediate_profile_of_mozilla(
    tmp_path: Path,
) -> None:
    """S16. Curves beyond its list are stronger ones, and our CA is nobody's."""
    make(tmp_path / "short", ["127.0.0.1"], days=90)
    settings = {
        "tlsServerCertPath": tmp_path / "short" / "server.pem",
        "tlsServerKeyPath": tmp_path / "short" / "server-key.pem",
    }
    with BrokerProcess(data=tmp_path / "data", settings=settings) as open_to_all:
        found = complaints(open_to_all.address)
    found.pop("certificate_path_validation", None)
    curves = found.pop("tls_curves", "")
    assert set(re.findall(r"'(\w+)'", curves)) <= {"X448", "secp521r1"}
    assert found == {}
