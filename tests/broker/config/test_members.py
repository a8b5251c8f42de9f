"""The settings of several brokers: what each gets, and what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.config.load import load_config
from aerobee.broker.config.members import log_settings, member_settings, supervisor_config
from aerobee.broker.config.model import BrokerConfig

ADDRESSES = ["10.0.0.5"]


def loaded(
    *overrides: str,
    file: Path | None = None,
    own: Mapping[str, str] | None = None,
    member: int | None = None,
    cores: int = 2,
) -> BrokerConfig:
    """The configuration of a start with these settings."""
    config = load_config(
        file,
        environ={"HOME": "/home/a"},
        overrides=overrides,
        cpu_count=cores,
        host_addresses=ADDRESSES,
        host_name="h",
        member=[f"{key}={text}" for key, text in (own or {}).items()],
    )
    if member is None:
        return config
    return loaded(*overrides, file=file, own=member_settings(config, member, ADDRESSES))


def refused(*overrides: str) -> str:
    """All problems of it."""
    with pytest.raises(ConfigurationError) as problems:
        loaded(*overrides)
    return "; ".join(problems.value.problems)


@pytest.mark.parametrize("said", ["0", "-1", "65", "1000", "two", "", "01", "1.5"])
def test_what_is_no_number_of_brokers_is_refused(said: str) -> None:
    assert "is no number of brokers: 1 to 64, or auto" in refused(f"brokers={said}")


@pytest.mark.parametrize("said", ["2.0", "true", "0x2", "no"])
def test_no_number_of_brokers_becomes_one_by_quotes(said: str, tmp_path: Path) -> None:
    for text in (said, f'"{said}"'):
        file = tmp_path / "broker.yaml"
        file.write_text(f"brokers: {text}\n")
        with pytest.raises(ConfigurationError) as problems:
            loaded(file=file)
        (problem,) = problems.value.problems
        assert problem.endswith("is no number of brokers: 1 to 64, or auto")


@pytest.mark.parametrize(
    ("said", "cores", "count"), [("auto", 1, 1), ("AUTO", 16, 16), ("auto", 128, 64), ("3", 1, 3)]
)
def test_auto_is_a_broker_for_each_core(said: str, cores: int, count: int) -> None:
    assert loaded(f"brokers={said}", cores=cores).broker.broker_count == count


def test_members_differ_in_name_directory_and_ports() -> None:
    first, second = (loaded("brokers=2", "vipListenPort=0", member=n) for n in range(2))
    assert [one.broker.broker_name for one in (first, second)] == ["h-0", "h-1"]
    assert second.store.store_path_root_dir == "/home/a/store/broker-1"
    assert second.broker.config_overlay_path.startswith("/home/a/store/broker-1/")
    assert (first.remoting.listen_port, second.remoting.listen_port) == (10911, 10921)
    assert second.remoting.vip_listen_port == 0, "none stays none"
    assert second.metrics.metrics_prom_exporter_port == 5577
    assert second.broker.namesrv_addr == "127.0.0.1:9876"
    assert not second.namesrv.embedded_namesrv
    assert first.auth.acl_config_dir == second.auth.acl_config_dir == "/home/a/store/conf"


def test_the_log_is_the_one_of_the_start_whatever_the_file_says_since() -> None:
    member = loaded("brokers=2", "logFile=/tmp/a.log", "logFormat=JSON", member=1)
    assert (member.process.log_file, member.process.log_format) == ("/tmp/a.log", "JSON")
    assert log_settings(["bindAddress=::", "brokerName=b-0"]) == ["brokerName=b-0"]
    edited = {**member_settings(loaded("brokers=2"), 1, ADDRESSES), "logFile": "/tmp/a.log"}
    assert loaded("logFile=/tmp/b.log", own=edited).process.log_file == "/tmp/a.log"


def test_advertised_ports_are_counted_on_as_well() -> None:
    rules = "advertised=10.0.0.0/8=a.lan:7000;0.0.0.0/0=b.lan"
    member = loaded("brokers=2", "advertisedPort=9000", rules, member=1)
    assert member.broker.advertised_port == 9010
    assert member.broker.advertised == "10.0.0.0/8=a.lan:7010;0.0.0.0/0=b.lan"


@pytest.mark.parametrize("own", ["127.0.0.1:9876", "localhost:9876", "10.0.0.5:9876"])
def test_the_supervisor_is_registered_with_once(own: str) -> None:
    wide = ("insecure=true", "bindAddress=0.0.0.0")
    member = loaded("brokers=2", f"namesrvAddr={own};ns.lan:9876", *wide, member=0)
    assert member.broker.namesrv_addr == "127.0.0.1:9876;ns.lan:9876"


def test_an_ipv6_address_is_reached_in_brackets() -> None:
    assert loaded("brokers=2", "bindAddress=::1", member=0).broker.namesrv_addr == "[::1]:9876"


def test_a_name_server_that_asks_for_certificates_is_shown_one() -> None:
    """Otherwise all brokers would serve, and no client would find one."""
    files = ("tlsServerCertPath=/c.pem", "tlsServerTrustCertPath=/ca.pem")
    asks = ("tlsServerMode=enforcing", "tlsServerNeedClientAuth=require", *files)
    assert "name one, and its tlsClientKeyPath" in refused("brokers=2", *asks)
    shown = ("tlsClientCertPath=/client.pem", "tlsClientKeyPath=/key.pem")
    assert loaded("brokers=2", *asks, *shown, member=0).tls.tls_client_cert_path == "/client.pem"
    assert loaded("brokers=1", *asks).broker.broker_count == 1


def test_an_enforcing_name_server_is_reached_through_tls() -> None:
    tls = ("tlsServerMode=enforcing", "tlsServerCertPath=/c.pem")
    member = loaded("brokers=2", *tls, member=0)
    assert member.tls.use_tls
    assert not member.tls.tls_client_auth_server


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["listenPort=65530"], "listenPort of broker 1"),
        (["listenPort=65535"], "vipListenPort of broker 1"),
        (["namesrvListenPort=10921"], "10921, the port of namesrvListenPort already"),
        (["metricsPromExporterPort=10901"], "the port of listenPort of broker 0 already"),
        (["namesrvListenPort=0"], "need a port of their name server"),
        (["embeddedNamesrv=false"], "several brokers need their name server"),
        (["aclEnable=true"], "innerClientAuthenticationCredentials"),
        ([f"brokerName={'n' * 126}"], "too long"),
    ],
)
def test_what_several_brokers_cannot_have_is_refused(overrides: list[str], words: str) -> None:
    assert words in refused("brokers=2", *overrides)


def test_a_broker_that_is_started_again_is_the_same_in_a_file_that_was_edited(
    tmp_path: Path,
) -> None:
    """The supervisor, its name server and probes have what was read at the start."""
    file = tmp_path / "broker.yaml"
    file.write_text("brokers: 2\nbrokerName: b\nmaxConnections: 500\n")
    own = member_settings(loaded(file=file), 1, ADDRESSES)
    file.write_text(
        f"brokers: 1\nbrokerName: c\nlistenPort: 20911\nstorePathRootDir: {tmp_path}/other\n"
        "embeddedNamesrv: true\nmetricsPromExporterPort: 0\nbindAddress: 10.0.0.5\n"
        "maxConnections: 600\n"
    )
    again = loaded(file=file, own=own)
    assert again.broker.broker_name == "b-1"
    assert again.remoting.listen_port == 10921
    assert again.remoting.bind_address == "127.0.0.1"
    assert again.store.store_path_root_dir == "/home/a/store/broker-1"
    assert again.metrics.metrics_prom_exporter_port == 5577
    assert not again.namesrv.embedded_namesrv
    assert again.member
    assert again.remoting.max_connections == 600, "what all have in common counts as it stands"


def test_brokers_take_no_place_of_a_client_at_their_name_server() -> None:
    """All of them come from the loopback: the third was not registered, and no client found it."""
    limits = supervisor_config(loaded("brokers=3", "maxConnectionsOfAddress=2")).remoting
    assert (limits.max_connections_of_address, limits.max_connections) == (2 + 3, 0)
    limits = supervisor_config(loaded("brokers=3", "maxConnections=9000")).remoting
    assert (limits.max_connections_of_address, limits.max_connections) == (0, 9000 + 3)
