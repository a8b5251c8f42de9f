"""Brokers and name servers of both kinds find each other: ours at Java's, Java's at ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import AnyBroker
from tests.interop.conftest import GetClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.ours]

ROUTE, CLUSTER_INFO = 105, 106
NO_ROUTE = 17


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def client(version: str, java_client: GetClient) -> Iterator[JavaClient]:
    client = java_client(version, "JSON")
    yield client
    client.call("clear")


def expect_work(client: JavaClient, names: str, topic: str) -> None:
    """Sends make the topic, and a consumer finds its way to it."""
    client.producer("p", names)
    sent = client.send("p", topic, ["one", "two", "three"])
    assert {one.status for one in sent} == {"SEND_OK"}
    client.consumer("c", names, topic)
    assert len(client.received("c", 3)) == 3
    client.call("clear")


def known(names: str, broker: AnyBroker) -> bool:
    with RawConnection(names) as connection:
        return broker.address.encode() in connection.call(CLUSTER_INFO).body


def test_our_broker_serves_through_a_java_name_server(
    version: str, client: JavaClient, topic: str, tmp_path: Path
) -> None:
    names = JavaNamesrv(toolkit(version), tmp_path / "names")
    broker = BrokerProcess(data=tmp_path / "data", namesrv=names.address)
    try:
        with broker:
            eventually(lambda: known(names.address, broker), within_s=10, what="it registers")
            expect_work(client, names.address, topic)
            assert broker.stop() == 0
            assert not known(names.address, broker), "it left without a word"
    finally:
        names.stop()


def test_a_java_broker_serves_through_our_name_server(
    version: str, client: JavaClient, topic: str, tmp_path: Path
) -> None:
    java = JavaBroker(
        toolkit=toolkit(version),
        data=tmp_path / "java",
        home=tmp_path / "home",
        namesrv_address="",
        settings={"brokerName": "java-broker"},
    )
    with BrokerProcess(data=tmp_path / "data") as ours:
        java.namesrv_address = ours.namesrv_address
        with java:
            assert known(ours.namesrv_address, java)
            client.topic(ours.namesrv_address, java.address, topic, queues=2)
            eventually(lambda: has_route(ours.namesrv_address, topic), within_s=10, what="a route")
            expect_work(client, ours.namesrv_address, topic)


def has_route(names: str, topic: str) -> bool:
    with RawConnection(names) as connection:
        return connection.call(ROUTE, {"topic": topic}).code != NO_ROUTE
