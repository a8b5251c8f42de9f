"""A Java broker as slave of ours: its log and its queues are ours, byte for byte.

Over rolls and blanks, over a kill of either side; and what was acknowledged under SYNC_MASTER is
there at that moment.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TOPIC, QUEUES = "copied", 4
SEGMENT = 131_072
COPIED_WITHIN_S = 60.0

UNIT_BYTES = 20
CREATE_TOPIC, SEND, RUNTIME_INFO = 17, 310, 28
SUCCESS, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12


@pytest.fixture(params=VERSIONS)
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


def send(master: BrokerProcess, numbers: range) -> list[int]:
    """Messages of many sizes; the codes of their answers."""
    codes = []
    with RawConnection(master.address) as connection:
        for number in numbers:
            body = b"%d " % number * (1 + number * 37 % 900)
            codes.append(connection.call(SEND, send_fields(TOPIC, number % QUEUES), body).code)
    return codes


def log_end(address: str) -> int:
    """The end of a broker's log."""
    with RawConnection(address) as connection:
        text = connection.call(RUNTIME_INFO).body.decode()
    return int(text.partition('"commitLogMaxOffset":"')[2].partition('"')[0])


def log_of(root: Path, end: int) -> bytes:
    segments = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in segments)[:end]


def expect_equal(master: BrokerProcess, slave: JavaBroker) -> int:
    """Wait until the slave has all of the log, then compare the files; returns the end."""
    end = log_end(master.address)
    eventually(
        lambda: log_end(slave.address) == end, within_s=COPIED_WITHIN_S, what=f"a copy up to {end}"
    )
    assert log_of(slave.data, end) == log_of(master.data, end)
    return end


def wait_for_the_slave(master: BrokerProcess) -> None:
    eventually(
        lambda: send(master, range(1)) == [SUCCESS],
        within_s=COPIED_WITHIN_S,
        what="a send that a slave has",
    )


def test_the_log_of_a_java_slave_is_ours_over_rolls_blanks_and_kills(
    master: BrokerProcess, slave: JavaBroker
) -> None:
    with RawConnection(master.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
    wait_for_the_slave(master)
    assert set(send(master, range(150))) == {SUCCESS}
    # What was acknowledged is there, now.
    assert log_end(slave.address) == log_end(master.address) > SEGMENT
    expect_equal(master, slave)

    slave.kill()
    eventually(
        lambda: send(master, range(1)) == [SLAVE_NOT_AVAILABLE],
        within_s=10,
        what="a send that no slave has",
    )
    send(master, range(150, 300))
    slave.start()
    wait_for_the_slave(master)
    assert expect_equal(master, slave) > 2 * SEGMENT

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
    expect_equal(master, slave)
    for queue in range(QUEUES):
        ours = master.data / "consumequeue" / TOPIC / str(queue)
        theirs = slave.data / "consumequeue" / TOPIC / str(queue)
        names = sorted(path.name for path in ours.iterdir())
        size = 90 * UNIT_BYTES
        assert [(theirs / name).read_bytes()[:size] for name in names] == [
            (ours / name).read_bytes()[:size] for name in names
        ]
