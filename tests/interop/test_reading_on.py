"""Consumers go on from our slave when the master is gone: Java's client and our SDK.

Those that ran before get what they had not read yet; those that come later read all of it.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from aerobee import ConsumeFrom
from aerobee.blocking import PushConsumer, ReceivedMessage
from tests.interop.conftest import GetClient
from tests.interop.copies import CREATE_TOPIC, QUEUES, SUCCESS, TOPIC, send, wait_for_the_slave
from tests.kit.broker_process import BrokerProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import RawConnection, topic_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

WITHIN_S = 90.0
FIRST, LAST = 40, 200


class Bodies:
    """What a consumer got."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: set[bytes] = set()

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        with self._lock:
            self._bodies.update(message.body for message in messages)

    def numbers(self) -> set[int]:
        """The numbers at the begin of the bodies."""
        with self._lock:
            return {int(body.partition(b" ")[0]) for body in self._bodies}


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_consumers_go_on_from_the_slave_when_the_master_is_gone(
    tmp_path: Path, java_client: GetClient, version: str
) -> None:
    common = {"brokerName": "broker-a", "brokerIP1": HOST}
    slave_settings = {**common, "brokerId": 1, "brokerRole": "SLAVE"}
    master_settings = {
        **common,
        "brokerRole": "SYNC_MASTER",
        "inSyncReplicas": 2,
        "haPeers": HOST,
        "embeddedNamesrv": "false",
    }
    with BrokerProcess(data=tmp_path / "slave", settings=slave_settings) as slave:
        names = slave.namesrv_address
        master = BrokerProcess(data=tmp_path / "master", namesrv=names, settings=master_settings)
        java = java_client(version, "JSON")
        ours, late = Bodies(), Bodies()
        running = PushConsumer("ours", names, start_from=ConsumeFrom.FIRST)
        running.subscribe(TOPIC, handler=ours)
        comes_late = PushConsumer("late", names, start_from=ConsumeFrom.FIRST)
        comes_late.subscribe(TOPIC, handler=late)

        def theirs() -> set[int]:
            return {int(one.body.partition(" ")[0]) for one in java.received("c", 0)}

        with master:
            with RawConnection(master.address) as connection:
                assert connection.call(CREATE_TOPIC, topic_fields(TOPIC, QUEUES)).code == 0
            wait_for_the_slave(master)
            assert set(send(master, range(FIRST))) == {SUCCESS}
            running.start()
            java.consumer("c", names, TOPIC, group="theirs")
            try:
                eventually(
                    lambda: ours.numbers() == theirs() == set(range(FIRST)),
                    within_s=WITHIN_S,
                    what="the first messages",
                )
                assert set(send(master, range(FIRST, LAST))) == {SUCCESS}
                master.kill()
                with comes_late:
                    eventually(
                        lambda: ours.numbers() == theirs() == late.numbers() == set(range(LAST)),
                        within_s=WITHIN_S,
                        what="all messages, from the slave",
                    )
            finally:
                java.call("clear")
                running.close()
