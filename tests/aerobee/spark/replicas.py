"""A master and what passes for its slave, which has not all of its messages yet."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from aerobee.client.route import MASTER_ID
from aerobee.spark.brokers import Cluster
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.kit.broker_process import BrokerProcess
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import AnyBroker

REGISTER_BROKER = 103
WITHIN_S = 60.0
TOPIC = "replicated"
NAME = "broker-m"
AT_MASTER, AT_SLAVE = 10, 7
"""How many messages of its only queue each has."""


class Replicas(NamedTuple):
    """Two brokers of one name, the second registered as a slave."""

    namesrv_address: str
    master: BrokerProcess
    slave: BrokerProcess

    def kill_master(self) -> None:
        """And wait until no route has it."""
        self.master.kill()
        cluster = Cluster([self.namesrv_address])
        eventually(
            lambda: MASTER_ID not in cluster.route(TOPIC, fresh=True).brokers[NAME],
            within_s=WITHIN_S,
            what="a route without the master",
        )
        cluster.close()


@contextmanager
def replicas(names: AnyBroker, home: Path) -> Iterator[Replicas]:
    """Both, in the routes of the name server inside of `names`."""
    settings = {"brokerName": NAME}
    with (
        BrokerProcess(
            data=home / "master", settings=settings, namesrv=names.namesrv_address
        ) as master,
        BrokerProcess(data=home / "slave", settings=settings) as slave,
        RawConnection(names.namesrv_address) as registered,
    ):
        for broker, count in ((master, AT_MASTER), (slave, AT_SLAVE)):
            make_topic(broker, TOPIC)
            fill(broker, TOPIC, bodies(count))
        as_slave = {
            "brokerName": NAME,
            "brokerAddr": slave.address,
            "clusterName": "DefaultCluster",
            "haServerAddr": slave.address,
            "brokerId": 1,
        }
        assert registered.call(REGISTER_BROKER, as_slave).code == 0
        yield Replicas(names.namesrv_address, master, slave)
