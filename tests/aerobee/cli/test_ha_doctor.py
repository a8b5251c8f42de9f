"""`aerobee ha doctor` of pairs that do not replicate, each mended by what it says."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.aerobee.cli.test_ha import CREATE_TOPIC, SEND, ended
from tests.kit.broker_process import BrokerProcess, MiB
from tests.kit.mounts import mount, small_file_system
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.service

GROUP: dict[str, object] = {"brokerName": "b", "brokerIP1": HOST, "haPeers": HOST}
WITHIN_S = 120.0


@pytest.fixture
def first(tmp_path: Path) -> BrokerProcess:
    """A master that is not started yet."""
    return BrokerProcess(data=tmp_path / "first", settings=GROUP)


@pytest.fixture
def second(tmp_path: Path, first: BrokerProcess) -> BrokerProcess:
    """A slave of it that is not started yet."""
    theirs = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": first.namesrv_address}
    return BrokerProcess(data=tmp_path / "second", settings=GROUP | theirs)


@pytest.fixture
def running(first: BrokerProcess, second: BrokerProcess) -> Iterator[None]:
    """Both, until the end of the test."""
    with first, second:
        with RawConnection(first.address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
        yield


def send(broker: BrokerProcess, *bodies: bytes) -> None:
    with RawConnection(broker.address) as connection:
        for body in bodies:
            assert connection.call(SEND, send_fields("t", 0), body).code == 0


def found(asked: BrokerProcess) -> dict[str, dict[str, Any]]:
    """The findings by kind."""
    done = ended(asked, "doctor", "--for", "0", "--json")
    document = done.document
    assert document["well"] is (done.code == 0), done
    return {one["kind"]: one for one in document["findings"]}


def until_found(asked: BrokerProcess, kind: str) -> dict[str, Any]:
    """Ask the doctor until it names that kind."""
    said = eventually(lambda: found(asked).get(kind), within_s=WITHIN_S, what=kind)
    assert said is not None
    return said


def until_well(asked: BrokerProcess) -> None:
    """Nothing is an error, of two members."""

    shown = ""

    def well() -> bool:
        nonlocal shown
        done = ended(asked, "doctor", "--json")
        shown = done.out
        return done.code == 0 and len(done.document["members"]) == 2

    try:
        eventually(well, within_s=WITHIN_S, what="a pair without errors")
    except AssertionError as error:
        raise AssertionError(shown) from error


def again(broker: BrokerProcess, **settings: object) -> None:
    """Start it anew with these settings."""
    broker.kill()
    broker.settings = {**broker.settings, **settings}
    broker.start()


@pytest.mark.usefixtures("running")
def test_settings_that_let_nobody_copy_or_wait_for_nobody(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    until_well(first)
    assert found(first).keys() == {"asynchronous"}
    again(first, haPeers="", brokerRole="SYNC_MASTER")
    said = until_found(first, "not_listed")
    assert f"add {HOST} to haPeers of the master" in said["advice"]
    again(first, haPeers=HOST)
    until_well(first)
    said = found(first)["waits_for_nobody"]
    assert "set inSyncReplicas to 2" in said["advice"]
    assert said["members"] == [first.address]
    again(first, inSyncReplicas=2)
    until_well(first)
    assert not found(first)
    second.kill()
    until_found(first, "too_few_in_sync")
    assert second.address in str(until_found(first, "not_reachable"))
    text = ended(first, "doctor").out
    assert "error: slaves in sync: 0, and sends need 1" in text
    assert "  to do: bring the missing slaves back" in text
    second.start()
    until_well(first)
    assert "nothing is wrong" in ended(first, "doctor").out


@pytest.mark.usefixtures("running")
def test_a_slave_with_other_segments_and_of_another_cluster(
    first: BrokerProcess, second: BrokerProcess
) -> None:
    until_well(first)
    second.kill()
    shutil.rmtree(second.data)
    second.settings = {
        **second.settings,
        "mappedFileSizeCommitLog": 8 * MiB,
        "brokerClusterName": "elsewhere",
    }
    second.start()
    said = until_found(first, "another_cluster")
    assert "set brokerClusterName there to DefaultCluster" in said["advice"]
    until_found(first, "stuck")
    said = found(first)["segment_sizes"]
    assert f"set mappedFileSizeCommitLog there to {4 * MiB}" in said["advice"]
    second.kill()
    shutil.rmtree(second.data)
    second.settings = {
        **second.settings,
        "mappedFileSizeCommitLog": 4 * MiB,
        "brokerClusterName": "DefaultCluster",
    }
    second.start()
    until_well(first)


@pytest.mark.usefixtures("running")
def test_a_lost_master_and_then_another_tail(first: BrokerProcess, second: BrokerProcess) -> None:
    until_well(first)
    send(first, b"both")

    def copied() -> bool:
        ends = {row["max_offset"] for row in ended(first, "status", "--json").document}
        return len(ends) == 1 and 0 not in ends

    eventually(copied, within_s=WITHIN_S, what="a copy")
    second.kill()
    send(first, b"lost")
    first.kill()
    second.start()
    said = until_found(second, "no_master")
    order = said["advice"].partition("aerobee ha ")[2]

    def promoted() -> bool:
        return ended(second, *shlex.split(order)).code == 0

    eventually(promoted, within_s=WITHIN_S, what="what the doctor says makes it the master")
    send(second, b"new")
    theirs = {"brokerRole": "SLAVE", "brokerId": 2, "namesrvAddr": second.namesrv_address}
    first.settings = GROUP | theirs
    first.start()
    said = until_found(second, "diverged")
    order = said["advice"].removeprefix("aerobee ha ").partition(" --dry-run")[0]
    made = ended(second, *shlex.split(order), "--cut", "--yes")
    assert not made.code, made
    again(first)
    until_well(second)


@pytest.mark.faults
def test_a_full_disk_of_the_slave(
    tmp_path: Path, first: BrokerProcess, second: BrokerProcess
) -> None:
    place = tmp_path / "small"
    with small_file_system(place, size_bytes=17 * MiB):
        second.data = place / "data"
        second.log_path = tmp_path / "second.log"
        with first, second:
            with RawConnection(first.address) as connection:
                assert connection.call(CREATE_TOPIC, topic_fields("t", 1)).code == 0
            until_well(first)
            send(first, *[bytes(1 * MiB)] * 24)
            said = until_found(first, "stuck")
            assert "this slave cannot take what comes behind offset" in said["text"]
            assert "the broker's disk is full" in said["text"]
            assert {"disk_full", "disk_nearly_full"} & found(first).keys()
            mount("-o", f"remount,size={128 * MiB}", str(place))
            until_well(first)
