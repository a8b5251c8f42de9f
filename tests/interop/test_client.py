"""Unmodified RocketMQ clients, 5.5.0 and 4.9.7, with JSON and ROCKETMQ headers, do their work."""

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.interop.conftest import GetClient, wait_for_commits
from tests.kit.java_driver import JavaClient, JavaError, Received
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

SYSTEM_ERROR = 1


def numbered(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def bodies(received: list[Received]) -> list[str]:
    return [message.body for message in received]


def test_the_first_send_makes_the_topic_with_four_queues(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    sent = client.send("p", topic, numbered(8))
    assert {one.status for one in sent} == {"SEND_OK"}
    # What a slow machine answers late is sent again to another queue: a place more, none twice.
    places = {(one.queue_id, one.queue_offset) for one in sent}
    assert len(places) == 8
    assert {queue for queue, _ in places} == set(range(4))
    assert {0, 1} <= {offset for _, offset in places} <= {0, 1, 2}
    assert {one.region for one in sent} == {"DefaultRegion"}
    host = bytes([127, 0, 0, 1]) + broker.ports.listen.to_bytes(4, "big")
    assert all(one.offset_msg_id.startswith(host.hex().upper()) for one in sent)


def test_asynchronous_sends_all_call_back_and_all_arrive(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    sent = client.send("p", topic, numbered(500), how="async")
    assert len({(one.queue_id, one.queue_offset) for one in sent}) == 500
    client.consumer("c", broker.namesrv_address, topic)
    assert sorted(bodies(client.received("c", 500))) == sorted(numbered(500))


def test_one_way_sends_arrive(client: JavaClient, broker: AnyBroker, topic: str) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(20), how="oneway")
    client.consumer("c", broker.namesrv_address, topic)
    assert sorted(bodies(client.received("c", 20))) == sorted(numbered(20))


def test_a_batch_lies_in_one_queue_without_gaps(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    [sent] = client.send("p", topic, numbered(30), how="batch", tags="A")
    assert len(sent.msg_id.split(",")) == 30
    client.consumer("c", broker.namesrv_address, topic)
    received = sorted(client.received("c", 30), key=lambda message: message.queue_offset)
    assert bodies(received) == numbered(30)
    assert {message.queue_id for message in received} == {sent.queue_id}
    offsets = [message.queue_offset for message in received]
    assert offsets == list(range(sent.queue_offset, sent.queue_offset + 30))


def test_messages_of_one_key_are_consumed_in_the_order_of_their_sending(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    for start in range(0, 40, 10):
        for key in range(4):
            some = [f"{key}:{number}" for number in range(start, start + 10)]
            client.send("p", topic, some, how="ordered", key=key)
    client.consumer("c", broker.namesrv_address, topic, orderly=1)
    received = bodies(client.received("c", 160))
    assert len(received) == 160
    for key in range(4):
        mine = [body for body in received if body.startswith(f"{key}:")]
        assert mine == [f"{key}:{number}" for number in range(40)]


def test_a_consumer_gets_only_the_tags_it_asked_for(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    for tag in ("A", "B", "C", None):
        client.send("p", topic, numbered(5, prefix=str(tag)), tags=tag)
    client.consumer("c", broker.namesrv_address, topic, tags="A || C")
    received = client.received("c", 10)
    assert sorted(bodies(received)) == sorted(numbered(5, "A") + numbered(5, "C"))
    client.send("p", topic, ["last"], tags="C")
    assert bodies(client.received("c", 11))[10:] == ["last"]


def test_a_message_arrives_with_all_that_was_given_to_it(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    [sent] = client.send("p", topic, ["zoë ✓ " * 1_000], tags="T", keys="k1 k2")
    client.consumer("c", broker.namesrv_address, topic)
    [received] = client.received("c", 1)
    assert received.body == "zoë ✓ " * 1_000, "a body that the client compressed"
    assert (received.tags, received.keys) == ("T", "k1 k2")
    assert (received.queue_id, received.queue_offset) == (sent.queue_id, sent.queue_offset)
    assert received.msg_id == sent.msg_id
    assert received.born_host == "127.0.0.1"
    assert received.cluster == "DefaultCluster"


def test_a_waiting_consumer_gets_a_new_message_at_once(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["first"])
    client.consumer("c", broker.namesrv_address, topic)
    client.received("c", 1)
    client.send("p", topic, numbered(4))
    assert len(client.received("c", 5, within_s=3)) == 5, "held pulls were not woken"


def test_a_group_of_two_shares_the_queues_and_the_one_that_stays_takes_all(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(4, "warm"))
    client.consumer("a", broker.namesrv_address, topic, group=topic)
    client.consumer("b", broker.namesrv_address, topic, group=topic)
    shared_by_two(client, client, topic)
    got_before = len(client.received("a", 4, within_s=0)) + len(client.received("b", 4, within_s=0))
    client.send("p", topic, numbered(100), how="async")
    eventually(
        lambda: len(client.received("a", 0)) + len(client.received("b", 0)) >= 100 + got_before,
        within_s=10,
        what="both together have everything",
    )
    of_a, of_b = (set(bodies(client.received(name, 0))) for name in "ab")
    assert of_a | of_b >= set(numbered(100))
    assert of_a & set(numbered(100)), "a got nothing of its queues"
    assert of_b & set(numbered(100)), "b got nothing of its queues"

    client.stop(consumer="b")
    eventually(
        lambda: client.assigned("a", topic) == [0, 1, 2, 3], within_s=10, what="a takes all queues"
    )
    client.send("p", topic, numbered(20, "later"))
    eventually(
        lambda: set(numbered(20, "later")) <= set(bodies(client.received("a", 0))),
        within_s=10,
        what="a gets what is sent after b left",
    )


def shared_by_two(first: JavaClient, second: JavaClient, topic: str) -> None:
    def shares() -> bool:
        of_a, of_b = first.assigned("a", topic), second.assigned("b", topic)
        return len(of_a) == len(of_b) == 2 and sorted(of_a + of_b) == [0, 1, 2, 3]

    eventually(shares, within_s=25, what="each of the two has two of the four queues")


def test_clients_of_both_versions_share_a_group(
    java_client: GetClient, broker: AnyBroker, topic: str
) -> None:
    new, old = java_client("5.5.0", "JSON"), java_client("4.9.7", "JSON")
    try:
        new.producer("p", broker.namesrv_address)
        new.send("p", topic, numbered(4))
        new.consumer("a", broker.namesrv_address, topic, group=topic)
        old.consumer("b", broker.namesrv_address, topic, group=topic)
        shared_by_two(new, old, topic)
    finally:
        new.call("clear")
        old.call("clear")


def test_broadcasting_gives_every_message_to_every_consumer(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(20))
    for name in ("a", "b"):
        client.consumer(name, broker.namesrv_address, topic, group=topic, broadcast=1)
    for name in ("a", "b"):
        assert sorted(bodies(client.received(name, 20))) == sorted(numbered(20))


def test_a_pull_consumer_reads_a_topic_from_its_beginning(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(50), how="async")
    received = client.pull(broker.namesrv_address, topic, f"{topic}-g", 50)
    # A slow machine may make the producer send one again: at least once is the promise.
    assert set(bodies(received)) == set(numbered(50))


def test_a_producer_may_use_the_vip_port(client: JavaClient, broker: AnyBroker, topic: str) -> None:
    client.producer("p", broker.namesrv_address, vip=1)
    assert [one.status for one in client.send("p", topic, ["by VIP"])] == ["SEND_OK"]


def test_an_admin_makes_a_topic_and_asks_for_its_offsets(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.topic(broker.namesrv_address, broker.address, topic, queues=3)
    client.producer("p", broker.namesrv_address)
    sent = eventually(
        lambda: client.send("p", topic, numbered(6)), within_s=30, what="the topic has a route"
    )
    assert {one.queue_id for one in sent} == {0, 1, 2}
    queues = client.call("queues", producer="p", topic=topic, time=4_000_000_000_000)
    assert [(queue["min"], queue["max"]) for queue in queues] == [("0", "2")] * 3
    assert all(int(queue["earliest"]) > 1_700_000_000_000 for queue in queues)
    assert [queue["search"] for queue in queues] == ["2"] * 3, "after the last message: max"


def test_a_group_goes_on_at_its_offset_after_the_broker_was_restarted(
    client: JavaClient, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(40), how="async")
    client.consumer("c", broker.namesrv_address, topic, group=topic)
    client.received("c", 40)
    wait_for_commits(client, "c", broker.address, topic, topic, total=40)
    client.stop(consumer="c")
    client.send("p", topic, numbered(10, "later"))
    broker.restart()

    client.consumer("c2", broker.namesrv_address, topic, group=topic)
    received = bodies(client.received("c2", 10))
    client.send("p", topic, ["new"])
    received = bodies(client.received("c2", 11))
    assert sorted(received) == sorted([*numbered(10, "later"), "new"])
    client.call("clear")
    broker.kill()


@pytest.mark.ours
def test_a_filter_that_is_switched_off_is_refused_and_nothing_is_misdelivered(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["plain"])
    with pytest.raises(JavaError) as refused:
        client.consumer("sql", broker.namesrv_address, topic, sql="a > 5")
    assert refused.value.code == SYSTEM_ERROR

    client.send("p", topic, ["after"])
    client.consumer("c", broker.namesrv_address, topic)
    assert sorted(bodies(client.received("c", 2))) == ["after", "plain"]


def test_clients_at_work_go_on_after_the_broker_was_killed_and_started_again(
    client: JavaClient, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker()
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, numbered(8))
    client.consumer("c", broker.namesrv_address, topic)
    client.received("c", 8)
    broker.kill()
    broker.start()
    client.send("p", topic, numbered(8, "later"))
    expected = set(numbered(8) + numbered(8, "later"))
    # 4.9 does not give up the pulls of a connection that the other side closed until they time out,
    # after 30 s, unless it meanwhile tried to write on it; our broker is back before that.
    eventually(
        lambda: set(bodies(client.received("c", 0))) == expected,
        within_s=45,
        what="the same consumer gets what is sent after the kill",
    )
    client.call("clear")
    broker.kill()
