"""A Java broker as slave of ours: its log and its queues are ours, byte for byte.

Over rolls and blanks, over a kill of either side; and what was acknowledged under SYNC_MASTER is
there at that moment.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.copies import (
    CREATE_TOPIC,
    FLUSH_SLAVE_TIMEOUT,
    QUEUES,
    SEGMENT,
    SLAVE_NOT_AVAILABLE,
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
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop


@pytest.fixture(params=HA_VERSIONS)
def slave_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "haPeers": HOST,
        "mappedFileSizeCommitLog": SEGMENT,
        "fileReservedTime": 48,
    }
    with BrokerProcess(data=tmp_path / "master", settings=settings) as broker:
        yield broker


@pytest.fixture
def slave(tmp_path: Path, master: BrokerProcess, slave_version: str) -> Iterator[JavaBroker]:
    settings = {
        "brokerName": "broker-a",
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "slaveReadEnable": "true",
        "namesrvAddr": master.namesrv_address,
        "registerNameServerPeriod": 10_000,
        "mappedFileSizeCommitLog": SEGMENT,
    }
    java = toolkit(slave_version)
    home = tmp_path / "java"
    with JavaBroker(toolkit=java, data=tmp_path / "slave", home=home, settings=settings) as broker:
        yield broker


def test_the_log_of_a_java_slave_is_ours_over_rolls_blanks_and_kills(
    master: BrokerProcess, slave: JavaBroker
) -> None:
    with RawConnection(master.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
    wait_for_the_slave(master)
    assert set(send(master, range(150))) == {SUCCESS}
    # What was acknowledged is there, now.
    assert log_end(slave.address) == log_end(master.address) > SEGMENT
    expect_equal_logs(master, slave)

    slave.kill()
    eventually(
        lambda: send(master, range(1)) == [SLAVE_NOT_AVAILABLE],
        within_s=10,
        what="a send that no slave has",
    )
    send(master, range(150, 300))
    slave.start()
    wait_for_the_slave(master)
    assert expect_equal_logs(master, slave) > 2 * SEGMENT

    os.kill(slave.child.pid, signal.SIGSTOP)
    try:
        assert send(master, range(1)) == [FLUSH_SLAVE_TIMEOUT]
    finally:
        os.kill(slave.child.pid, signal.SIGCONT)
    wait_for_the_slave(master)

    assert set(send(master, range(300, 400))) == {SUCCESS}
    end = log_end(master.address)
    master.kill()
    assert log_end(slave.address) == end > 3 * SEGMENT
    master.start()
    wait_for_the_slave(master)
    expect_equal_logs(master, slave)
    expect_equal_queues(master, slave, 90)
