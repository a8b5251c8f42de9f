"""Brokers of both kinds in one cluster, on name servers of both kinds, with clients of both.

One JVM of each kind for the whole module: Java's name server, Java's broker and a Java client.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aerobee import ConsumeFrom
from aerobee.blocking import AdminClient, Message, Producer, PushConsumer
from tests.kit.broker_process import BrokerProcess
from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import AnyBroker
    from tests.interop.conftest import GetClient
    from tests.kit.java_driver import JavaClient

pytestmark = [pytest.mark.interop, pytest.mark.ours]

ROUTE, CLUSTER_INFO = 105, 106
QUEUES = 2
OURS, THEIRS = "ours", "theirs"
REGISTER_AGAIN_WITHIN_S = 30.0
IN_ITS_OWN_WAY: dict[str, dict[str, object]] = {
    "5.5.0": {
        "enableSingleTopicRegister": "true",
        "enableSlaveActingMaster": "true",
        "compatibleWithOldNameSrv": "false",
    },
    "4.9.7": {"compressedRegister": "true"},
}
"""How Java's broker registers: single topics (217), heartbeats (904, 901); a compressed body."""


@dataclass(slots=True)
class Cluster:
    """A broker of each kind, registered with a name server of each kind."""

    names: dict[str, str]
    """Kind of name server → its address; `both` is the two of them."""
    our_names: NamesrvProcess
    ours: BrokerProcess
    theirs: JavaBroker
    client: JavaClient


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(
    request: pytest.FixtureRequest,
    java_client: GetClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    version, root = request.param, tmp_path_factory.mktemp("mixed")
    with ExitStack() as running:
        java_names = JavaNamesrv(toolkit(version), root / "java-names")
        running.callback(java_names.stop)
        our_names = running.enter_context(NamesrvProcess(data=root / "names"))
        both = f"{our_names.address};{java_names.address}"
        settings = {"brokerName": OURS, "embeddedNamesrv": "false"}
        ours = running.enter_context(
            BrokerProcess(data=root / "ours", namesrv=both, settings=settings)
        )
        theirs = JavaBroker(
            toolkit=toolkit(version),
            data=root / "theirs",
            home=root / "theirs-home",
            namesrv_address=our_names.address,
            settings={
                "brokerName": THEIRS,
                "namesrvAddr": both,
                "registerNameServerPeriod": 10_000,
                **IN_ITS_OWN_WAY[version],
            },
        )
        running.enter_context(theirs)
        yield Cluster(
            {"ours": our_names.address, "java": java_names.address, "both": both},
            our_names,
            ours,
            theirs,
            java_client(version, "JSON"),
        )


@pytest.fixture(scope="module")
def shared(cluster: Cluster) -> str:
    """A topic over both brokers, made at each as an administrator does."""
    topic = "Shared"
    for broker in (cluster.ours, cluster.theirs):
        cluster.client.topic(cluster.names["ours"], broker.address, topic, queues=QUEUES)
    names = (cluster.names["ours"], cluster.names["java"])
    eventually(
        lambda: all(brokers_of(at, topic) == {OURS, THEIRS} for at in names),
        within_s=20,
        what="a route over both brokers at both name servers",
    )
    return topic


@pytest.fixture(autouse=True)
def _clear(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.client.call("clear")


def answer(names: str, code: int, **fields: object) -> bytes:
    with RawConnection(names) as connection:
        return connection.call(code, fields).body


def brokers_of(names: str, topic: str) -> set[str]:
    """The broker names in a route; a topic without one has none."""
    body = answer(names, ROUTE, topic=topic)
    return {name for name in (OURS, THEIRS) if f'"brokerName":"{name}"'.encode() in body}


def knows(names: str, broker: AnyBroker) -> bool:
    return broker.address.encode() in answer(names, CLUSTER_INFO)


@pytest.mark.parametrize("kind", ["ours", "java"])
def test_clients_of_both_kinds_use_a_topic_over_both_brokers(
    cluster: Cluster, shared: str, kind: str
) -> None:
    names, client = cluster.names[kind], cluster.client
    queues = 2 * QUEUES
    got: list[str] = []
    client.consumer(f"java-{kind}", names, shared)
    with (
        PushConsumer(f"python-{kind}", names, start_from=ConsumeFrom.FIRST) as consumer,
        Producer(names) as producer,
    ):
        consumer.subscribe(
            shared, handler=lambda some: got.extend(one.body.decode() for one in some)
        )
        client.producer(f"p-{kind}", names)
        assert client.send(f"p-{kind}", f"Made-{kind}", ["by use"])[0].status == "SEND_OK"
        sent = client.send(f"p-{kind}", shared, [f"{kind}-java-{n}" for n in range(2 * queues)])
        assert {one.broker for one in sent} == {OURS, THEIRS}
        places = [producer.send(Message(shared, b"%s-python-%d" % (kind.encode(), n)))
                  for n in range(2 * queues)]  # fmt: skip
        assert {one.queue.broker_name for one in places} == {OURS, THEIRS}
        bodies = {f"{kind}-{by}-{n}" for by in ("java", "python") for n in range(2 * queues)}
        eventually(lambda: bodies <= set(got), within_s=30, what="Python has all of them")
        eventually(
            lambda: bodies <= {one.body for one in client.received(f"java-{kind}", 0)},
            within_s=30,
            what="Java has all of them",
        )


@pytest.mark.parametrize("kind", ["ours", "java"])
def test_tools_see_one_cluster(cluster: Cluster, kind: str) -> None:
    with AdminClient(cluster.names[kind]) as admin:
        seen = {one.name: one.address for one in admin.cluster_info().brokers}
    assert seen == {OURS: cluster.ours.address, THEIRS: cluster.theirs.address}
    if cluster.client.version == "5.5.0":
        printed = cluster.client.mqadmin(cluster.names[kind], "clusterList")
        assert all(address in printed for address in seen.values())


def test_a_broker_that_stops_is_left_out_and_comes_back(cluster: Cluster, shared: str) -> None:
    names = (cluster.names["ours"], cluster.names["java"])
    with Producer(cluster.names["both"]) as producer:
        cluster.client.producer("p", cluster.names["both"])
        producer.send(Message(shared, b"before"))
        assert cluster.ours.stop() == 0
        for at in names:
            assert brokers_of(at, shared) == {THEIRS}, "it left with a word"
        alone = [producer.send(Message(shared, b"%d" % n)).queue.broker_name for n in range(4)]
        assert set(alone) == {THEIRS}
        sent = cluster.client.send("p", shared, ["a", "b", "c", "d"])
        assert {(one.status, one.broker) for one in sent} == {("SEND_OK", THEIRS)}
        cluster.ours.start()
        eventually(
            lambda: all(brokers_of(at, shared) == {OURS, THEIRS} for at in names),
            within_s=15,
            what="it is back",
        )


def test_brokers_register_again_after_a_restart_and_clients_go_on_meanwhile(
    cluster: Cluster, shared: str
) -> None:
    names, client = cluster.names["ours"], cluster.client
    with Producer(names) as producer:
        client.producer("cached", names)
        producer.send(Message(shared, b"before"))
        client.send("cached", shared, ["before"])
        cluster.our_names.kill()
        assert producer.send(Message(shared, b"meanwhile")).queue.broker_name in (OURS, THEIRS)
        assert client.send("cached", shared, ["meanwhile"])[0].status == "SEND_OK"
        cluster.our_names.start()
        eventually(
            lambda: knows(names, cluster.ours) and knows(names, cluster.theirs),
            within_s=REGISTER_AGAIN_WITHIN_S,
            what="both are back",
        )
        assert brokers_of(names, shared) == {OURS, THEIRS}
