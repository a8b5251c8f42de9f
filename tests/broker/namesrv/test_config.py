"""What a name server that runs alone takes from a file, the environment and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.config.files.entries import ConfigurationError
from aerobee.broker.namesrv.config import load_namesrv_config

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.config.model import BrokerConfig


def load(file: Path | None = None, environ: Any = None, **given: Any) -> BrokerConfig:
    found = {"HOME": "/home/me", **(environ or {})}
    return load_namesrv_config(file, environ=found, cpu_count=2, **given)


def problems(*args: Any, **given: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load(*args, **given)
    return tuple(caught.value.problems)


def test_without_anything_it_is_at_the_port_of_name_servers() -> None:
    config = load()
    assert (config.remoting.bind_address, config.remoting.listen_port) == ("127.0.0.1", 9876)
    assert config.namesrv.kv_config_path == "/home/me/namesrv/config/kvConfig.json"


def test_rocketmqs_own_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text(
        "listenPort=19876\nserverWorkerThreads=3\norderMessageEnable=true\nbrokerName=b\n"
        "kvConfigPath=/srv/kv.json\nscanNotActiveBrokerInterval=1000\n"
    )
    config = load(file)
    assert config.remoting.listen_port == 19_876
    assert config.namesrv.order_message_enable
    assert config.namesrv.scan_not_active_broker_interval_ms == 1_000
    assert config.namesrv.kv_config_path == "/srv/kv.json"


@pytest.mark.parametrize("text", ["listen_port: 7", "namesrv:\n  listen_port: 7"])
def test_the_port_may_stand_under_the_heading(tmp_path: Path, text: str) -> None:
    file = tmp_path / "names.yaml"
    file.write_text(text)
    assert load(file).remoting.listen_port == 7
    assert load(file, overrides=["listenPort=8"]).remoting.listen_port == 8
    assert load(file, {"AEROBEE_NAMESRV_LISTEN_PORT": "9"}).remoting.listen_port == 9


def test_what_is_about_brokers_is_refused_where_it_was_meant_for_us(tmp_path: Path) -> None:
    file = tmp_path / "names.yaml"
    file.write_text("broker_name: b")
    assert problems(file, overrides=["flushDiskType=SYNC_FLUSH"]) == (
        f"{file}:1: brokerName is a setting of a broker; a name server alone has none of it",
        "command line: --set: flushDiskType is a setting of a broker; a name server alone has none"
        " of it",
    )
    assert load(environ={"AEROBEE_BROKER_NAME": "b"}).broker.broker_name == "DEFAULT_BROKER"


def test_a_name_server_open_to_the_network_asks_for_a_yes_too() -> None:
    [problem] = problems(overrides=["bindAddress=0.0.0.0"])
    assert "insecure: true" in problem
    assert load(overrides=["bindAddress=0.0.0.0", "insecure=true"]).warnings == ()


def test_every_problem_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "b.yaml"
    assert problems(missing) == (f"{missing}: No such file or directory",)
    assert len(problems(overrides=["noSuchKey=1", "listenPort=0"])) == 2
