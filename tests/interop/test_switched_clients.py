"""Clients in Go, and of gRPC, go on when another broker becomes the master as planned.

They are the unmodified ones. Each message is sent as often as it takes until it is acknowledged,
before the next one: so the first delivery of each is in order where the consumer promises that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from aerobee.admin import MessageType
from aerobee.blocking import AdminClient
from tests.kit.broker_process import BrokerProcess
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import NAME, record_in
from tests.kit.golang import GoMember
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST, free_port
from tests.kit.python5_driver import Python5, SdkError
from tests.kit.replicas import SUCCESS, probe
from tests.kit.rounds import Round
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

pytestmark = pytest.mark.interop

WITHIN_S = 120.0
"""Go's client of remoting asks for its route each 30 s."""
BEFORE, AROUND, AFTER = ([f"{when}-{i}" for i in range(5)] for when in ("a", "b", "c"))
ALL = [*BEFORE, *AROUND, *AFTER]
ROUND, PLAIN, ORDERED, FIFO = "round", "plain", "ordered", "fifo"


class Brokers:
    """Brokers of one name, each with a gRPC port, and their name server."""

    def __init__(
        self, root: Path, each: Mapping[str, Mapping[str, object]], stack: ExitStack
    ) -> None:
        """`each`: the settings that only one of them has."""
        self.names = stack.enter_context(NamesrvProcess(data=root / "names"))
        ports = {name: free_port() for name in each}
        self.endpoints = ";".join(f"{HOST}:{port}" for port in ports.values())
        self.each = {
            name: BrokerProcess(
                data=root / name,
                namesrv=self.names.address,
                settings={
                    "brokerName": NAME,
                    "brokerIP1": HOST,
                    "haPeers": HOST,
                    "embeddedNamesrv": "false",
                    "grpcPort": ports[name],
                    **settings,
                },
            )
            for name, settings in each.items()
        }
        for broker in self.each.values():
            stack.enter_context(broker)

    def make_topics(self) -> None:
        types = {ROUND: MessageType.NORMAL, FIFO: MessageType.FIFO}
        with AdminClient(self.names.address) as admin:
            for topic in (ROUND, PLAIN, ORDERED, FIFO):
                admin.create_topic(topic, queues=1, message_type=types.get(topic))


class Fifo:
    """A FIFO producer and a push consumer of the official Python client."""

    def __init__(self, home: Path, endpoints: str) -> None:
        self.sdk = Python5(home, endpoints)
        self.sdk.start("producer", "producer", topics=[FIFO])
        self.sdk.start("push", "push", group="fifo-push", topics=[FIFO])

    def send(self, bodies: Iterable[str]) -> None:
        for body in bodies:
            eventually(lambda: self._sent(body), within_s=WITHIN_S, what=body)  # noqa: B023  (called at once)

    def _sent(self, body: str) -> bool:
        try:
            self.sdk.call("send", name="producer", topic=FIFO, body=body, group="one")
        except SdkError:
            return False
        return True

    def expect(self, bodies: list[str]) -> None:
        expect_in_order(lambda: [got["body"] for got in self.sdk.call("got", name="push")], bodies)


def expect_in_order(received: Callable[[], Iterable[str]], bodies: list[str]) -> None:
    """Wait for all of them: each came first in its turn, and nothing else."""
    eventually(lambda: set(received()) >= set(bodies), within_s=WITHIN_S, what="all messages")
    assert list(dict.fromkeys(received())) == bodies


def test_a_switch_of_a_pair(tmp_path: Path) -> None:
    each = {
        "first": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
        "second": {"brokerRole": "SLAVE", "brokerId": 1, "inSyncReplicas": 2},
    }
    with ExitStack() as stack:
        pair = Brokers(tmp_path, each, stack)
        first, second = pair.each["first"].address, pair.each["second"].address
        pair.make_topics()
        eventually(lambda: probe(first) == SUCCESS, within_s=WITHIN_S, what="a slave that follows")
        fifo = Fifo(tmp_path, pair.endpoints)
        stack.enter_context(fifo.sdk.child)
        of_grpc = Round("go", tmp_path, pair.endpoints, ROUND, 1)
        stack.enter_context(of_grpc.child)
        of_grpc.until_ready()
        members = {
            (topic, strategy): GoMember(
                tmp_path,
                pair.names.address,
                f"{topic}-{strategy}",
                topic,
                strategy=strategy,
                instance=f"{topic}-{strategy}",
                given="",
            )
            for topic, consumers in ((PLAIN, "AVG"), (ORDERED, "ORDERLY"))
            for strategy in ("PRODUCER", consumers)
        }
        for member in members.values():
            stack.callback(member.child.kill)

        producers = [members[topic, "PRODUCER"] for topic in (PLAIN, ORDERED)]

        def send(bodies: list[str]) -> None:
            for body in bodies:
                for child in (of_grpc.child, *(producer.child for producer in producers)):
                    child.write_line(body)

        send(BEFORE)
        fifo.send(BEFORE)
        send(AROUND)
        with AdminClient(pair.names.address) as admin:
            admin.switch(first, second)
        fifo.send(AROUND)
        send(AFTER)
        fifo.send(AFTER)

        fifo.expect(ALL)
        of_grpc.until_all(ALL, "sent")
        of_grpc.until_all(ALL, "received")
        of_grpc.until_all(ALL, "pushed")
        for producer in producers:
            eventually(
                lambda: producer.sent == ALL,  # noqa: B023  (called at once)
                within_s=WITHIN_S,
                what="all acknowledgements",
            )
        plain, ordered = members[PLAIN, "AVG"], members[ORDERED, "ORDERLY"]
        eventually(
            lambda: set(plain.received) == set(ALL), within_s=WITHIN_S, what="the plain messages"
        )
        expect_in_order(lambda: ordered.received, ALL)


def test_a_stop_of_the_master_of_a_group_with_etcd(tmp_path: Path) -> None:
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdNode(data=tmp_path / "etcd"))
        settings = {"etcdEndpoints": etcd.url, "failoverMembers": "1;2"}
        each = {f"m{number}": {"brokerId": number, **settings} for number in (1, 2)}
        group = Brokers(tmp_path, each, stack)

        def until_complete() -> None:
            eventually(
                lambda: record_in([etcd]).get("syncSet") == [1, 2],
                within_s=WITHIN_S,
                what="the sync set",
            )

        until_complete()
        group.make_topics()
        fifo = Fifo(tmp_path, group.endpoints)
        stack.enter_context(fifo.sdk.child)
        of_grpc = Round("go", tmp_path, group.endpoints, ROUND, 1)
        stack.enter_context(of_grpc.child)
        of_grpc.until_ready()
        fifo.send(BEFORE)
        for body in AROUND:
            of_grpc.send(body)
        master = record_in([etcd])["master"]
        group.each[f"m{master}"].restart()
        fifo.send(AROUND)
        until_complete()
        assert record_in([etcd])["master"] != master
        for body in AFTER:
            of_grpc.send(body)
        fifo.send(AFTER)

        fifo.expect(ALL)
        sent = [*AROUND, *AFTER]
        of_grpc.until_all(sent, "sent")
        of_grpc.until_all(sent, "received")
        of_grpc.until_all(sent, "pushed")
