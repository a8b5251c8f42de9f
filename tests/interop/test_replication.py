"""A Java broker as slave of ours: its log and its queues are ours, byte for byte.

Over rolls and blanks and a kill of the master; and what was acknowledged under SYNC_MASTER is there
at that moment. Kills of either side under load, over and over, are the campaign H12.
"""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.interop.copies import (
    CREATE_TOPIC,
    FLUSH_SLAVE_TIMEOUT,
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


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def test_the_log_of_a_java_slave_is_ours_over_rolls_blanks_and_a_kill(
    master: BrokerProcess, slave: JavaBroker
) -> None:
    with RawConnection(master.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
    wait_for_the_slave(master)
    assert set(send(master, range(150))) == {SUCCESS}
    # What was acknowledged is there, now.
    assert log_end(slave.address) == log_end(master.address) > SEGMENT
    expect_equal_logs(master, slave)

    os.kill(slave.child.pid, signal.SIGSTOP)
    try:
        # One thread takes the signal, and stops the others once it runs.
        eventually(
            partial(is_stopped, slave.child.pid), within_s=30, what="all threads are stopped"
        )
        assert send(master, range(1)) == [FLUSH_SLAVE_TIMEOUT]
    finally:
        os.kill(slave.child.pid, signal.SIGCONT)
    wait_for_the_slave(master)

    assert set(send(master, range(150, 300))) == {SUCCESS}
    end = log_end(master.address)
    master.kill()
    assert log_end(slave.address) == end > 2 * SEGMENT
    master.start()
    wait_for_the_slave(master)
    expect_equal_logs(master, slave)
    expect_equal_queues(master, slave, 90)
