"""A Java slave stays with its group when master and slave of ours exchange their roles.

The newest of Java's versions and the oldest; what is between them does the same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.blocking import AdminClient
from tests.interop.copies import (
    COPIED_WITHIN_S,
    CREATE_TOPIC,
    QUEUES,
    SEGMENT,
    SUCCESS,
    TOPIC,
    expect_equal_logs,
    expect_equal_queues,
    log_end,
    send,
    wait_for_the_slave,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import HA_VERSIONS, toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.replicas import ha_status
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

OURS = {
    "brokerName": "broker-a",
    "brokerIP1": HOST,
    "haPeers": HOST,
    "embeddedNamesrv": "false",
    "inSyncReplicas": 2,
    "mappedFileSizeCommitLog": SEGMENT,
    "fileReservedTime": 48,
}
SWITCH_WITHIN_S = 60.0


@pytest.fixture
def names(tmp_path: Path) -> Iterator[NamesrvProcess]:
    with NamesrvProcess(data=tmp_path / "names") as names:
        yield names


@pytest.fixture
def first(tmp_path: Path, names: NamesrvProcess) -> Iterator[BrokerProcess]:
    settings = {**OURS, "brokerRole": "SYNC_MASTER"}
    data = tmp_path / "first"
    with BrokerProcess(data=data, namesrv=names.address, settings=settings) as broker:
        yield broker


@pytest.fixture
def second(tmp_path: Path, names: NamesrvProcess, first: BrokerProcess) -> Iterator[BrokerProcess]:
    settings = {**OURS, "brokerRole": "SLAVE", "brokerId": 1}
    data = tmp_path / "second"
    with BrokerProcess(data=data, namesrv=names.address, settings=settings) as broker:
        yield broker


@pytest.fixture(params=(HA_VERSIONS[0], HA_VERSIONS[-1]))
def java(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    names: NamesrvProcess,
    first: BrokerProcess,
) -> Iterator[JavaBroker]:
    settings = {
        "brokerName": "broker-a",
        "brokerId": 2,
        "brokerRole": "SLAVE",
        "slaveReadEnable": "true",
        "namesrvAddr": names.address,
        "registerNameServerPeriod": 10_000,
        "mappedFileSizeCommitLog": SEGMENT,
    }
    kit, home = toolkit(request.param), tmp_path / "home"
    slave = JavaBroker(toolkit=kit, data=tmp_path / "java", home=home, settings=settings)
    with slave as broker:
        yield broker


def wait_for_both_slaves(master: BrokerProcess) -> None:
    """Until both have reported all of the log: one that is empty begins with its last file."""
    wait_for_the_slave(master)

    def reported() -> list[int]:
        return [slave["slaveAckOffset"] for slave in ha_status(master.address)["haConnectionInfo"]]

    everything = [log_end(master.address)] * 2
    eventually(lambda: reported() == everything, within_s=COPIED_WITHIN_S, what="two slaves")


def test_a_java_slave_follows_the_next_master_there_and_back(
    names: NamesrvProcess, first: BrokerProcess, second: BrokerProcess, java: JavaBroker
) -> None:
    with RawConnection(first.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == SUCCESS
    wait_for_both_slaves(first)
    assert set(send(first, range(100))) == {SUCCESS}
    expect_equal_logs(first, second)
    expect_equal_logs(first, java)
    with AdminClient(names.address) as admin:
        admin.switch(first.address, second.address)
        wait_for_the_slave(second)
        assert set(send(second, range(100, 200))) == {SUCCESS}
        expect_equal_logs(second, first)
        expect_equal_logs(second, java)

        def switched_back() -> bool:
            """The slave to be counts as soon as it follows again."""
            try:
                admin.switch(second.address, first.address)
            except OSError:
                return False
            return True

        eventually(switched_back, within_s=SWITCH_WITHIN_S, what="the roles as they were")
    wait_for_the_slave(first)
    assert set(send(first, range(200, 300))) == {SUCCESS}
    expect_equal_logs(first, second)
    expect_equal_logs(first, java)
    expect_equal_queues(first, java, 70)
