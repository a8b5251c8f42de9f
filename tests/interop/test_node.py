"""The Node client with ours over one broker: messages both ways, and a retry."""

from collections import Counter
from collections.abc import Iterator

import pytest

from aerobee import ConsumeFrom
from aerobee.blocking import AdminClient, Message, Producer, PullConsumer
from tests.conftest import AnyBroker, StartBroker
from tests.kit.node import NodeMember
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

WITHIN_S = 30.0
LONG = "x" * 8_192


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(messageDelayLevel="1s 1s 1s")


@pytest.fixture(scope="module")
def member(broker: AnyBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeMember]:
    where = broker.namesrv_address
    with AdminClient(where) as admin:
        for topic in ("ToNode", "FromNode"):
            admin.create_topic(topic, queues=2)
    home = tmp_path_factory.mktemp("node")
    member = NodeMember(home, where, "node-group", "ToNode", instance="member")
    yield member
    member.stop()


def test_node_gets_what_we_send_and_again_what_it_refused(
    broker: AnyBroker, member: NodeMember
) -> None:
    bodies = ["plain", LONG, "no-not-yet"]
    with Producer(broker.namesrv_address) as producer:
        for body in bodies:
            producer.send(Message("ToNode", body.encode(), tag="a", keys=["k"]))
    expected = Counter([*(f"{body} a k 0" for body in bodies), "no-not-yet a k 1"])

    def received() -> bool:
        return Counter(member.received) == expected

    eventually(received, within_s=WITHIN_S, what="all messages, and the refused one again")
    with AdminClient(broker.namesrv_address) as admin:
        eventually(
            lambda: admin.consumer_lag("node-group", "ToNode").total == 0,
            within_s=WITHIN_S,
            what="offsets that Node committed",
        )


def test_we_get_what_node_sends(broker: AnyBroker, member: NodeMember) -> None:
    sent = {(f"body-{n}", f"tag{n % 2}", f"key-{n}") for n in range(6)}
    for body, tag, key in sorted(sent):
        member.send("FromNode", body, tag=tag, key=key)
    where = broker.namesrv_address
    with PullConsumer("ours", where, start_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("FromNode")
        found: set[tuple[object, ...]] = set()
        while found != sent:
            messages = consumer.poll(timeout=WITHIN_S)
            assert messages, f"only {found}"
            found |= {(one.body.decode(), one.tag, *one.keys) for one in messages}
