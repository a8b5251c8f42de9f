"""`aerobee broker run` as a command: its options, its refusals, its ready line."""

import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.broker import broker as broker_group
from aerobee.cli.broker import shadow_settings
from aerobee.cli.nameserver import nameserver
from tests.aerobee.cli.conftest import command
from tests.kit.broker_process import BrokerProcess

pytestmark = pytest.mark.service


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command("broker", "run", *arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_says_where_it_serves_and_stops_clean(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        assert broker.ready is not None
        assert broker.ready.broker == broker.address
        assert broker.ready.namesrv == broker.namesrv_address
        assert broker.ready.data == tmp_path / "data"
        assert broker.stop() == 0
    assert (tmp_path / "data" / "commitlog").is_dir()


def test_the_log_level_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEROBEE_LOG_LEVEL", "loud")
    refused = run()
    assert refused.returncode == 2
    assert "AEROBEE_LOG_LEVEL" in refused.stderr
    assert "loud" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--set", "noSuchKey=1"), "noSuchKey"),
        (("--set", "listenPort=many"), "listenPort"),
        (("--set", "listenPort"), "key=value"),
        (("-c", "/no/such/file"), "/no/such/file"),
        (("--log-level", "loud"), "loud"),
    ],
)
def test_a_wrong_configuration_is_exit_code_2(arguments: tuple[str, ...], text: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(data=tmp_path / "data") as broker:
        other = BrokerProcess(data=broker.data)
        done = subprocess.run(
            other.command(), capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 3
    assert str(tmp_path / "data") in done.stderr


@pytest.mark.parametrize("group", [broker_group, nameserver])
@pytest.mark.parametrize(
    ("data", "said"), [("", "is empty: name a directory"), ("/dev/null", "/dev/null is no direc")]
)
def test_data_that_is_no_directory_is_wrong_usage(
    group: click.Group, data: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one would be the current directory."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group, ["run", "--data", data])
    assert done.exit_code == 2
    assert said in done.output
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("10.0.0.1", "10.0.0.1:10912"),
        ("prod:9000", "prod:9001"),
        ("[::1]:9000", "[::1]:9001"),
        ("[::1]", "[::1]:10912"),
    ],
)
def test_a_shadow_follows_the_port_above_listen_port(address: str, port: str) -> None:
    settings = dict(pair.split("=") for pair in shadow_settings(address))
    assert settings == {
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "shadow": "true",
        "haMasterAddress": port,
    }


@pytest.mark.parametrize("address", ["", ":10911", "h:", "h:x", "h:0", "h:65535", "h:99999"])
def test_whom_a_shadow_follows_is_checked(address: str) -> None:
    with pytest.raises(click.UsageError, match="give HOST or HOST:PORT"):
        shadow_settings(address)
