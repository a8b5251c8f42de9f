"""Real clients ask and answer, trace what they do, and are moved by an admin while they run."""

import pytest

from tests.conftest import AnyBroker
from tests.interop.conftest import GetClient
from tests.kit.java import VERSIONS
from tests.kit.java_driver import JavaClient, JavaError
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TOPIC_NOT_EXIST = 17


def test_a_request_gets_its_answer_through_the_broker(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["makes the topic"])
    client.answerer("a", broker.namesrv_address, topic, suffix="?!")
    asked = [f"question {number}" for number in range(5)]
    answers = client.request(broker.namesrv_address, topic, asked)
    assert answers == [f"{text}?!" for text in asked]


def test_a_request_that_nobody_answers_ends_with_the_clients_own_timeout(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["makes the topic"])
    with pytest.raises(JavaError) as error:
        client.request(broker.namesrv_address, topic, ["anybody?"], within_s=1)
    assert error.value.type == "RequestTimeoutException"


def test_traces_of_producer_and_consumer_arrive(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address, trace=1)
    [sent] = client.send("p", topic, ["traced"], keys="k1")
    client.consumer("c", broker.namesrv_address, topic, trace=1)
    client.received("c", 1)

    def records() -> set[str]:
        try:
            traces = client.pull(
                broker.namesrv_address, TRACE_TOPIC, f"{topic}-t", 10_000, within_s=1
            )
        except JavaError as error:
            if error.code != TOPIC_NOT_EXIST:
                raise
            # The first trace makes the topic.
            return set()
        found: set[str] = set()
        for trace in traces:
            for record in trace.body.split("\x02"):
                if sent.msg_id in record or f"\x01{topic}" in record:
                    found.add(record.partition("\x01")[0])
        return found

    eventually(
        lambda: {"Pub", "SubBefore"} <= records(),
        within_s=20,
        what="what producer and consumer say about the message",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_admin_moves_a_running_consumer_back_to_the_beginning(
    java_client: GetClient, version: str, broker: AnyBroker, topic: str
) -> None:
    client = java_client(version, "JSON")
    client.producer("p", broker.namesrv_address)
    bodies = [f"m{number}" for number in range(40)]
    client.send("p", topic, bodies, how="async")
    client.consumer("c", broker.namesrv_address, topic, group=topic)
    client.received("c", 40)
    client.commit("c")
    assert client.reset(broker.namesrv_address, topic, topic, 0) == dict.fromkeys(range(4), 0)
    # What moves a held pull is the next message of its queue; 4.9 waits 10 s before it goes on.
    client.send("p", topic, ["n0", "n1", "n2", "n3"])
    eventually(
        lambda: (
            sorted(message.body for message in client.received("c", 0)).count("m0") == 2
            and len(client.received("c", 0)) >= 84
        ),
        within_s=45,
        what="everything once more",
    )
    received = [message.body for message in client.received("c", 0)]
    client.call("clear")
    assert all(received.count(body) == 2 for body in bodies)
