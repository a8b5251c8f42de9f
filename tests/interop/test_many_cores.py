"""Real Java clients and `mqadmin` with two brokers of one configuration."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.kit.java_driver import JavaClient, JavaError
from tests.kit.supervised import Supervised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.interop.conftest import GetClient

pytestmark = pytest.mark.interop

TOPIC = "Orders"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    data = tmp_path_factory.mktemp("many") / "data"
    with Supervised(data=data, settings={"orderMessageEnable": True}) as running:
        yield running


@pytest.fixture(scope="module")
def java(java_client: GetClient) -> JavaClient:
    return java_client("5.5.0", "JSON")


def test_mqadmin_sees_one_cluster_and_makes_topics_on_all_of_it(
    whole: Supervised, java: JavaClient
) -> None:
    names = whole.namesrv_address
    listed = java.mqadmin(names, "clusterList")
    for number in range(2):
        assert f"b-{number}" in listed
        assert f"127.0.0.1:{whole.ports.listen + 10 * number}" in listed
    java.mqadmin(names, "updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
    route = java.mqadmin(names, "topicRoute", "-t", TOPIC)
    # Once with its address, once with its queues.
    assert [route.count(f'"brokerName":"b-{number}"') for number in range(2)] == [2, 2]
    address = f"127.0.0.1:{whole.ports.listen + 10}"
    assert "bootTimestamp" in java.mqadmin(names, "brokerStatus", "-b", address)


def test_a_java_producer_and_consumer_use_both(whole: Supervised, java: JavaClient) -> None:
    names = whole.namesrv_address
    java.mqadmin(names, "updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
    java.consumer("many-c", names, TOPIC)
    java.producer("many-p", names)
    bodies = [f"{n}" for n in range(40)]
    sent = java.send("many-p", TOPIC, bodies)
    assert {one.broker for one in sent} == {"b-0", "b-1"}
    got = java.received("many-c", 40, within_s=40)
    assert {one.body for one in got} == set(bodies)
    ordered = java.send("many-p", TOPIC, bodies[:10], how="ordered", key=7)
    assert len({(one.broker, one.queue_id) for one in ordered}) == 1
    java.stop(producer="many-p", consumer="many-c")


def test_nothing_acknowledged_to_java_is_lost_when_a_broker_is_killed(
    whole: Supervised, java: JavaClient
) -> None:
    names = whole.namesrv_address
    java.mqadmin(names, "updateTopic", "-c", "DefaultCluster", "-t", "Kills", "-r", "4", "-w", "4")
    java.producer("killed-p", names)
    acknowledged: set[str] = set()
    for n in range(60):
        body = f"kill {n}"
        if n == 20:
            os.kill(whole.pids()["b-0"], signal.SIGKILL)
        try:
            java.send("killed-p", "Kills", [body])
        except JavaError:
            continue
        acknowledged.add(body)
    assert len(acknowledged) > 40
    whole.await_ready()
    java.consumer("killed-c", names, "Kills")
    got = {one.body for one in java.received("killed-c", len(acknowledged), within_s=60)}
    java.stop(producer="killed-p", consumer="killed-c")
    assert got >= acknowledged
