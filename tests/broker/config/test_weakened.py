"""Settings that give up what is promised: the start warns of each, and `/readyz` notes it."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.weakened import told_of, weakened
from tests.broker.config.test_load import load
from tests.kit.broker_process import BrokerProcess
from tests.kit.health import events

if TYPE_CHECKING:
    from pathlib import Path

ETCD = ("etcdEndpoints=http://10.0.0.9:2379", "failoverMembers=1;2;3", "brokerId=1")
JAVA = ("enableControllerMode=true", "controllerAddr=10.0.0.9:9878")
PEERS = "haPeers=10.0.0.2"
SYNC = "brokerRole=SYNC_MASTER"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ((), []),
        ((*ETCD, PEERS), []),
        ((*ETCD, PEERS, "minInSyncReplicas=1"), ["minInSyncReplicas"]),
        ((*JAVA, PEERS), ["enableControllerMode"]),
        ((*JAVA, PEERS, "minInSyncReplicas=1"), ["minInSyncReplicas", "enableControllerMode"]),
        ((SYNC, PEERS), ["brokerRole"]),
        ((SYNC, PEERS, "inSyncReplicas=2"), []),
        ((PEERS, "inSyncReplicas=2"), ["inSyncReplicas"]),
    ],
)
def test_each_weak_setting_is_found(given: tuple[str, ...], names: list[str]) -> None:
    config = load(overrides=given)
    assert [name for name, _ in weakened(config)] == names
    assert bool(told_of(config)) is bool(names)
    assert all(any(name in text for text in config.warnings) for name in names)


def test_of_java_s_own_file_what_its_masters_do_with_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    for value, found in (("false", True), ("true", False)):
        lines = [*JAVA, PEERS, f"allAckInSyncStateSet={value}"]
        file.write_text("\n".join(lines))
        assert ("allAckInSyncStateSet" in str(told_of(load(file)))) is found


def test_a_role_has_no_say_in_a_group_and_that_is_told() -> None:
    [warning] = load(overrides=[*ETCD, PEERS, "brokerRole=ASYNC_MASTER"]).warnings
    assert warning.endswith(
        "brokerRole: ignored: etcd says who is the master, and each send waits for the sync set"
    )
    config = load(overrides=[*ETCD, PEERS, "brokerRole=SLAVE"])
    assert (config.warnings, config.broker.broker_role) == ((), BrokerRole.SLAVE)


@pytest.mark.service
def test_a_running_broker_has_it_in_its_log_and_its_probe(tmp_path: Path) -> None:
    told = "SYNC_MASTER waits for nobody as long as inSyncReplicas is 1"
    settings = {"brokerRole": "SYNC_MASTER", "haPeers": "127.0.0.1"}
    with BrokerProcess(data=tmp_path / "data", settings=settings) as broker:
        url = f"http://127.0.0.1:{broker.ports.metrics}/readyz"
        with urllib.request.urlopen(url, timeout=30) as page:
            health = json.load(page)
        assert (health["status"], health["noted"]["weakened"]) == ("ok", f"brokerRole: {told}")
        warned = [one for one in events(broker.log.read_text()) if one["event"] == "config.warning"]
        assert any(told in one["text"] for one in warned)
