"""Real Java producers begin transactions and are asked what became of them; Java brokers go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient
from tests.interop.test_directory_exchange import java_broker, our_broker
from tests.kit.java import VERSIONS
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaNamesrv
from tests.kit.raw_client import RawConnection
from tests.kit.reading import max_offset, read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

UNKNOWN, ROLLBACK = "UNKNOW", "ROLLBACK_MESSAGE"
OFTEN = {"transactionCheckInterval": 1_000, "transactionTimeOut": 4_000}
"""Longer than the 3 s for which Java's broker keeps the end of a transaction to itself."""
NEVER = {"transactionCheckInterval": 600_000}


def states(kind: str, **bodies: str) -> dict[str, str]:
    return {f"{kind}.{body}": state for body, state in bodies.items()}


def test_a_transaction_ends_as_its_producer_says_at_once_or_when_asked(
    client: JavaClient, shared_broker: StartBroker, topic: str
) -> None:
    broker = shared_broker(**OFTEN)
    names = broker.namesrv_address
    client.producer("p", names)
    client.send("p", topic, ["plain"])
    said = states("local", b=ROLLBACK, c=UNKNOWN, d=UNKNOWN) | states("checked", d=ROLLBACK)
    client.producer("tx", names, transaction=1, **said)
    sent = client.send("tx", topic, ["a", "b", "c", "d"], how="transaction")
    assert {one.status for one in sent} == {"SEND_OK"}
    client.consumer("c", names, topic)
    received = client.received("c", 4, within_s=30)
    assert sorted(message.body for message in received) == ["a", "c", "plain"]
    committed = {message.body: message for message in received}
    assert committed["a"].msg_id == sent[0].msg_id


@pytest.fixture
def new_client(java_client: GetClient) -> Iterator[JavaClient]:
    client = java_client("5.5.0", "JSON")
    yield client
    client.call("clear")


def begin(broker: AnyBroker, client: JavaClient, topic: str, bodies: list[str]) -> None:
    """Transactions of which the producer does not know yet, in front of the broker's next owner."""
    names = broker.namesrv_address
    client.producer("p", names)
    client.topic(names, broker.address, topic, queues=1)
    eventually(
        lambda: client.call("queues", producer="p", topic=topic), within_s=10, what="a route"
    )
    client.stop(producer="p")
    client.producer("tx", names, transaction=1, **states("local", **dict.fromkeys(bodies, UNKNOWN)))
    client.send("tx", topic, [*bodies, f"done at {broker.address}"], how="transaction")
    eventually(lambda: delivered(broker, topic), within_s=10, what="the commit")
    client.stop(producer="tx")
    # Java's broker writes it some seconds later, and forgets it in a stop that comes before that.
    eventually(lambda: ends(broker), within_s=10, what="that the broker keeps the end")


def ends(broker: AnyBroker) -> int:
    """How many ends of transactions the broker has in its log."""
    with RawConnection(broker.address) as connection:
        return max_offset(connection, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)


def ended_transactions(broker: AnyBroker) -> int:
    """How many halves have ended: an end names the offsets of one or more of them."""
    with RawConnection(broker.address) as connection:
        found = read_topic(connection, "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
    return len({offset for end in found for offset in end.body.split(b",") if offset})


def delivered(broker: AnyBroker, topic: str) -> list[str]:
    with RawConnection(broker.address) as connection:
        return [record.body.decode() for record in read_topic(connection, topic, 0)]


def go_on(
    broker: AnyBroker,
    client: JavaClient,
    topic: str,
    said: dict[str, str],
    count: int,
    ended: int = 0,
) -> list[str]:
    """The producers come back and are asked; what the topic holds when so many messages are in it,
    and so many transactions have ended.
    """
    client.producer("tx", broker.namesrv_address, transaction=1, **said)
    eventually(lambda: client.call("queues", producer="tx", topic=topic), within_s=10, what="route")
    eventually(lambda: len(delivered(broker, topic)) >= count, within_s=30, what="the commits")
    eventually(lambda: ended_transactions(broker) >= ended, within_s=30, what="the rollbacks")
    client.stop(producer="tx")
    return delivered(broker, topic)


@pytest.mark.parametrize("version", VERSIONS)
def test_open_transactions_of_java_end_here_and_those_left_open_end_at_java_again(
    version: str, new_client: JavaClient, java_namesrv: JavaNamesrv, tmp_path: Path, topic: str
) -> None:
    data = tmp_path / "store"
    with java_broker(version, data, java_namesrv, **NEVER) as java:
        begin(java, new_client, topic, ["here", "later", "not"])
        [first] = delivered(java, topic)
        java.stop()
    with our_broker(data, **OFTEN) as ours:
        said = states("checked", later=UNKNOWN) | {"checked.not": ROLLBACK}
        assert go_on(ours, new_client, topic, said, 2, ended=3) == [first, "here"]
        begin_here = f"done at {ours.address}"
        new_client.producer("tx", ours.namesrv_address, transaction=1)
        new_client.send("tx", topic, [begin_here], how="transaction")
        eventually(lambda: len(delivered(ours, topic)) == 3, within_s=10, what="the commit")
        assert ours.stop() == 0
        new_client.stop(producer="tx")
    with java_broker(version, data, java_namesrv, **OFTEN) as java:
        again = go_on(java, new_client, topic, {}, 4)
        assert again == [first, "here", begin_here, "later"]
