"""The way of the log through TLS: a pair of ours, what a listener sees, and who is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.test_replica_refusals import told
from tests.kit.health import events
from tests.kit.ports import HOST
from tests.kit.recorder import Tap
from tests.kit.replicas import SUCCESS, Replicas, probe
from tests.kit.tls import certificate
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.broker_process import BrokerProcess

pytestmark = [pytest.mark.faults, pytest.mark.ours]

SECRET = b"not for the network|" * 8
REFUSED_WITHIN_S = 30.0


def encrypted(directory: Path) -> dict[str, object]:
    """The settings that either role needs."""
    shown = certificate(directory)
    return {
        "tlsServerCertPath": shown.cert,
        "tlsServerKeyPath": shown.key,
        "useTLS": "true",
        "tlsClientTrustCertPath": shown.cert,
    }


def restart(broker: BrokerProcess, **changes: object) -> None:
    assert broker.stop() == 0
    broker.settings = {**broker.settings, **changes}
    broker.start()


def refusal(master: BrokerProcess) -> str:
    """Wait until the master has refused a slave; why."""

    def reason() -> str:
        lines = events(master.log.read_text())
        refused = [line for line in lines if line["event"] == "replication.slave_refused"]
        return str(refused[-1]["reason"]) if refused else ""

    return eventually(reason, within_s=REFUSED_WITHIN_S, what="a slave is refused")


def test_a_pair_copies_through_tls_and_a_listener_reads_nothing(tmp_path: Path) -> None:
    of_both = {**encrypted(tmp_path), "haTls": "true"}
    pair = Replicas(tmp_path / "pair", of_master=of_both, of_slave=of_both)
    with Tap(f"{HOST}:{pair.master.ports.ha}") as tap:
        through = {"haMasterAddress": f"{HOST}:{tap.port}"}
        to_master = {"namesrvAddr": pair.master.namesrv_address}
        pair.slave.settings = {**pair.slave.settings, **through, **to_master}
        with pair:
            assert probe(pair.master.address, body=SECRET) == SUCCESS
            pair.slave.kill()
            pair.slave.start()
            pair.until_in_sync()
            pair.until_equal()
        seen = [bytes(recorded.data) for recorded in tap.recorded]
        assert sum(map(len, seen)) > len(SECRET)
        assert not any(SECRET[:20] in data for data in seen)


def test_a_pair_turns_to_tls_slave_first_and_a_plain_slave_is_refused_then(tmp_path: Path) -> None:
    of_both = encrypted(tmp_path)
    with Replicas(tmp_path / "pair", of_master=of_both, of_slave=of_both) as pair:
        restart(pair.slave, haTls="true")
        pair.until_in_sync()
        restart(pair.master, haTls="true")
        pair.until_in_sync()
        restart(pair.slave, haTls="false")
        assert refusal(pair.master) == "haTls is set, and it does not speak TLS"
        eventually(
            lambda: "haTls is set on one side alone" in pair.slave.log.read_text(),
            within_s=REFUSED_WITHIN_S,
            what="the slave says what may be wrong",
        )
        restart(pair.slave, haTls="true")
        pair.until_in_sync()
        pair.until_equal()


def test_a_slave_that_does_not_trust_its_master_does_not_follow(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = certificate(tmp_path / "other")
    of_both = {**encrypted(tmp_path), "haTls": "true"}
    with Replicas(tmp_path / "pair", of_master=of_both, of_slave=of_both) as pair:
        restart(pair.slave, tlsClientTrustCertPath=stranger.cert)
        assert "the certificate is not trusted" in told(
            pair.slave, "replication.master_unreachable"
        )
