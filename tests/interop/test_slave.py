"""Our broker as a slave, of Java's and of our own: log and queues are the master's, byte for byte.

Over rolls and blanks and a kill of the slave; and consumers go on from it when the master is gone.
Kills of either side under load, over and over, are the campaigns H1, H2 and H11.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aerobee.blocking import AdminClient
from tests.interop.copies import (
    COPIED_WITHIN_S,
    CREATE_TOPIC,
    QUEUES,
    SEGMENT,
    SEND,
    SUCCESS,
    TOPIC,
    Either,
    bodies_at,
    expect_equal_logs,
    expect_equal_queues,
    log_end,
    send,
    wait_for_the_slave,
)
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import HA_VERSIONS, toolkit
from tests.kit.java_server import JavaBroker
from tests.kit.ports import HOST, free_block
from tests.kit.process import DidNotStart
from tests.kit.raw_client import RawConnection, send_fields, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

OURS = "ours"
REJECTED = 2


@pytest.fixture(params=(OURS, *HA_VERSIONS))
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[BrokerProcess]:
    """It has the name server, which so outlives the master."""
    settings = {
        "brokerName": "broker-a",
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "brokerIP1": HOST,
        "mappedFileSizeCommitLog": SEGMENT,
        "fileReservedTime": 48,
    }
    with BrokerProcess(data=tmp_path / "slave", settings=settings) as broker:
        yield broker


@pytest.fixture
def master(tmp_path: Path, slave: BrokerProcess, kind: str) -> Iterator[Either]:
    settings: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "mappedFileSizeCommitLog": SEGMENT,
        "fileReservedTime": 48,
    }
    if kind == OURS:
        settings |= {"brokerIP1": HOST, "haPeers": HOST, "embeddedNamesrv": "false"}
        ours = BrokerProcess(
            data=tmp_path / "master", namesrv=slave.namesrv_address, settings=settings
        )
        with ours as broker:
            yield broker
        return
    settings |= {"namesrvAddr": slave.namesrv_address, "registerNameServerPeriod": 10_000}
    java = JavaBroker(
        toolkit=toolkit(kind),
        data=tmp_path / "master",
        home=tmp_path / "java",
        settings=settings,
        ports=free_block(),
    )
    with java as broker:
        yield broker


def test_the_log_of_our_slave_is_its_masters_over_rolls_blanks_and_a_kill(
    master: Either, slave: BrokerProcess
) -> None:
    with RawConnection(master.address) as connection:
        assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
    wait_for_the_slave(master)
    assert set(send(master, range(150))) == {SUCCESS}
    assert log_end(slave.address) == log_end(master.address) > SEGMENT
    expect_equal_logs(master, slave)

    with RawConnection(slave.address) as connection:
        refused = connection.call(SEND, send_fields(TOPIC, 0), b"to a slave")
        assert refused.code == REJECTED
        assert "[REJECTREQUEST]" in str(refused.remark)

    slave.kill()
    assert SUCCESS not in send(master, range(1))
    slave.start()
    wait_for_the_slave(master)
    assert set(send(master, range(150, 300))) == {SUCCESS}
    assert expect_equal_logs(master, slave) > 2 * SEGMENT
    expect_equal_queues(master, slave, 70)

    end = log_end(master.address)
    there = bodies_at(master.address)
    master.kill()
    assert log_end(slave.address) == end
    eventually(
        lambda: bodies_at(slave.address) == there,
        within_s=COPIED_WITHIN_S,
        what="the same messages from the slave",
    )


@pytest.mark.parametrize("kind", [OURS], indirect=True)
def test_a_master_that_lost_its_disk_does_not_begin_anew_beside_a_full_slave(
    master: BrokerProcess, slave: BrokerProcess
) -> None:
    wait_for_the_slave(master)
    end = expect_equal_logs(master, slave)
    master.kill()
    shutil.rmtree(master.data)
    with pytest.raises(DidNotStart, match=f"has a log up to {end}"):
        master.start()
    assert log_end(slave.address) == end
    master.settings = {**master.settings, "forceEmptyMaster": "true"}
    master.start()


@pytest.mark.parametrize("kind", [OURS], indirect=True)
def test_a_lost_master_comes_back_as_a_slave_and_not_beside_the_next_one(
    master: BrokerProcess, slave: BrokerProcess
) -> None:
    wait_for_the_slave(master)
    end = expect_equal_logs(master, slave)
    master.kill()
    with AdminClient(slave.namesrv_address) as admin:
        assert admin.promote(slave.address, accepted=["master-alive"]) == end
    with pytest.raises(DidNotStart, match=r"is the master by a later command \(epoch 1, here 0\)"):
        master.start()
    assert log_end(slave.address) == end
    former = {"brokerRole": "SLAVE", "brokerId": "2"}
    master.settings = {**master.settings, **former}
    master.start()
    with AdminClient(slave.namesrv_address) as admin:
        assert admin.replication_status(slave.address).is_master
        assert not admin.replication_status(master.address).is_master
