"""A Java broker as slave of ours: its log and its queues are ours, byte for byte.

Over rolls and blanks, over a kill of either side; the slave has its topics from this broker, and
serves what it has when the master is gone.
"""

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
SEGMENT = 262_144
COPIED_WITHIN_S = 60.0

CREATE_TOPIC, SEND, PULL, RUNTIME_INFO = 17, 310, 11, 28


@pytest.fixture(params=VERSIONS)
def slave_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "brokerName": "broker-a",
        "brokerIP1": HOST,
        "haPeers": HOST,
        "mappedFileSizeCommitLog": SEGMENT,
        "fileReservedTime": 48,
    }
    with BrokerProcess(data=tmp_path / "master", settings=settings) as broker:
        broker.start()
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
        broker.start()
        yield broker


def send(master: BrokerProcess, count: int, first: int) -> dict[tuple[int, int], bytes]:
    """Messages of many sizes; (queue, queue offset) → body of those that were acknowledged."""
    acknowledged = {}
    with RawConnection(master.address) as connection:
        for number in range(first, first + count):
            body = b"%d " % number * (1 + number * 37 % 900)
            answer = connection.call(SEND, send_fields(TOPIC, number % QUEUES), body)
            assert answer.code == 0, answer
            acknowledged[number % QUEUES, int(answer.ext["queueOffset"])] = body
    return acknowledged


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


def test_the_log_of_a_java_slave_is_ours_over_rolls_blanks_and_kills(
    master: BrokerProcess, slave: JavaBroker
) -> None:
    with RawConnection(master.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
    send(master, 150, 0)
    assert expect_equal(master, slave) > SEGMENT

    slave.kill()
    send(master, 150, 150)
    slave.start()
    assert expect_equal(master, slave) > 2 * SEGMENT

    master.kill()
    master.start()
    send(master, 100, 300)
    end = expect_equal(master, slave)
    assert end > 3 * SEGMENT
    for queue in range(QUEUES):
        ours = master.data / "consumequeue" / TOPIC / str(queue)
        theirs = slave.data / "consumequeue" / TOPIC / str(queue)
        names = sorted(path.name for path in ours.iterdir())
        size = 100 * 20
        assert [(theirs / name).read_bytes()[:size] for name in names] == [
            (ours / name).read_bytes()[:size] for name in names
        ]
