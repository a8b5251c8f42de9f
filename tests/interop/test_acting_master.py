"""A slave that acts as master, as the name servers of both kinds show it: with the same bytes.

The brokers are connections of this test, which register a group that has enableActingMaster.
"""

from __future__ import annotations

import json
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.java_server import JavaNamesrv

pytestmark = [pytest.mark.interop, pytest.mark.ours]

REGISTER, ROUTE, UPDATE_CONFIG = 103, 105, 318
TOPICS = ("orders", "payments")
AT = {0: "10.0.0.1:10911", 1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
VERSION = {"stateVersion": 0, "timestamp": 1, "counter": 4}
BODY = {
    "filterServerList": [],
    "topicConfigSerializeWrapper": {
        "dataVersion": VERSION,
        "topicConfigTable": {
            name: {
                "topicName": name,
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            for name in TOPICS
        },
    },
}


@pytest.fixture
def names(tmp_path: Path, java_namesrv: JavaNamesrv) -> Iterator[tuple[str, str]]:
    """Ours and Java's, both with supportActingMaster."""
    settings = {"supportActingMaster": "true"}
    with (
        NamesrvProcess(data=tmp_path / "names", settings=settings) as ours,
        RawConnection(java_namesrv.address) as java,
    ):
        assert java.call(UPDATE_CONFIG, body=b"supportActingMaster=true\n").code == 0
        yield ours.address, java_namesrv.address
        assert java.call(UPDATE_CONFIG, body=b"supportActingMaster=false\n").code == 0


def register(connection: RawConnection, broker_id: int) -> None:
    body = json.dumps(BODY, separators=(",", ":")).encode()
    fields = {
        "brokerName": "acting-a",
        "brokerAddr": AT[broker_id],
        "clusterName": "ActingCluster",
        "haServerAddr": AT[broker_id].replace("10911", "10912"),
        "brokerId": broker_id,
        "enableActingMaster": "true",
        "heartbeatTimeoutMillis": 10_000,
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
    }
    assert connection.call(REGISTER, fields, body).code == 0


def route(address: str, topic: str = TOPICS[0]) -> dict[str, Any]:
    """The members of the group by number, and what may be done with its queues."""
    with RawConnection(address) as connection:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = connection.call(ROUTE, fields)
    assert answer.code == 0, answer.remark
    told = json.loads(answer.body)
    (broker,), (queue,) = told["brokerDatas"], told["queueDatas"]
    return {"members": broker["brokerAddrs"], "perm": queue["perm"], "route": told}


def is_without(address: str, broker: str) -> bool:
    """Whether the route leads to this broker no more."""
    return broker not in str(route(address)["members"])


def test_both_name_servers_show_the_smallest_member_in_the_place_of_a_lost_master(
    names: tuple[str, str],
) -> None:
    brokers: dict[tuple[str, int], RawConnection] = {}
    try:
        for address in names:
            for broker_id in AT:
                brokers[address, broker_id] = RawConnection(address)
                register(brokers[address, broker_id], broker_id)
        ours, java = (route(address) for address in names)
        assert ours == java
        assert ours["members"] == {str(number): at for number, at in AT.items()}
        assert ours["perm"] == 6

        for gone, acting in ((0, 1), (1, 2)):
            for address in names:
                brokers.pop((address, gone)).close()
                eventually(
                    partial(is_without, address, AT[gone]),
                    within_s=20,
                    what=f"a route without {gone}",
                )
            for address in names:
                for number in AT:
                    if (address, number) in brokers:
                        register(brokers[address, number], number)
            ours, java = (route(address) for address in names)
            assert ours == java
            assert ours["members"]["0"] == AT[acting]
            assert ours["perm"] == 4

        for address in names:
            brokers[address, 0] = RawConnection(address)
            register(brokers[address, 0], 0)
        ours, java = (route(address) for address in names)
        assert ours == java
        assert ours["members"] == {"0": AT[0], "2": AT[2]}
        assert ours["perm"] == 6
    finally:
        for connection in brokers.values():
            connection.close()
