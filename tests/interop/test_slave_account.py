"""A slave with an account that may read the master's log and tables, and nothing else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import aerobee.errors
from aerobee import Credentials, Message
from aerobee.blocking import AdminClient, Producer
from tests.interop.copies import COPIED_WITHIN_S, SEGMENT
from tests.kit.broker_process import BrokerProcess, with_accounts
from tests.kit.ports import HOST
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

SECRET = "a-long-secret"
ADMIN, REPLICA = Credentials("the-admin", SECRET), Credentials("replica", SECRET)
CLUSTER = "Cluster:DefaultCluster"
COMMON = {"brokerName": "broker-a", "brokerIP1": HOST, "mappedFileSizeCommitLog": SEGMENT}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {**COMMON, **with_accounts(ADMIN.access_key, SECRET), "haPeers": HOST}
    with BrokerProcess(data=tmp_path / "master", settings=settings) as broker:
        yield broker


@pytest.fixture
def slave(tmp_path: Path, master: BrokerProcess) -> Iterator[BrokerProcess]:
    """It registers nowhere but at its own name server: that needs more rights."""
    host, port = master.address.rsplit(":", 1)
    signs = json.dumps({"accessKey": REPLICA.access_key, "secretKey": SECRET})
    settings = {
        **COMMON,
        "brokerId": 1,
        "brokerRole": "SLAVE",
        "haMasterAddress": f"{host}:{int(port) + 1}",
        "slaveTablesPeriod": 1_000,
        "innerClientAuthenticationCredentials": signs,
    }
    with BrokerProcess(data=tmp_path / "slave", settings=settings) as broker:
        yield broker


def test_rights_to_list_and_to_get_are_enough(master: BrokerProcess, slave: BrokerProcess) -> None:
    with (
        AdminClient(master.namesrv_address, credentials=ADMIN) as admin,
        AdminClient(slave.namesrv_address) as of_slave,
    ):
        admin.create_user(REPLICA.access_key, SECRET)
        admin.grant(REPLICA.access_key, CLUSTER, ["List"])

        def standing() -> tuple[str, str]:
            status = of_slave.replication_status(slave.address)
            return status.state, status.problem

        eventually(
            lambda: standing()[0] == "following", within_s=COPIED_WITHIN_S, what="an empty slave"
        )
        admin.create_topic("copied", queues=1)
        eventually(
            lambda: "copied" in of_slave.topics(), within_s=COPIED_WITHIN_S, what="the tables"
        )
        with Producer(master.namesrv_address, credentials=ADMIN) as producer:
            producer.send(Message("copied", b"one"))
        end = admin.replication_status(master.address).max_offset
        eventually(
            lambda: of_slave.replication_status(slave.address).max_offset == end,
            within_s=COPIED_WITHIN_S,
            what="the log",
        )
        # From now on it compares a record, before it follows.
        slave.stop()
        slave.start()
        eventually(
            lambda: "VIEW_MESSAGE_BY_ID was answered with 16" in standing()[1],
            within_s=COPIED_WITHIN_S,
            what="the reason",
        )
        assert standing()[0] == "unreachable"
        admin.grant(REPLICA.access_key, CLUSTER, ["List", "Get"])
        eventually(
            lambda: standing()[0] == "following", within_s=COPIED_WITHIN_S, what="the slave again"
        )
    with (
        AdminClient(master.namesrv_address, credentials=REPLICA) as replica,
        pytest.raises(aerobee.errors.AerobeeError, match="no permission"),
    ):
        replica.create_topic("not-allowed", queues=1)
