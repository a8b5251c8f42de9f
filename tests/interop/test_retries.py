"""Real clients hand messages back, have them again later, and give them up; and send for later.

The delay levels are short: each try comes a second after the one before.
"""

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.java_driver import JavaClient
from tests.kit.raw_client import RawConnection
from tests.kit.reading import max_offset, read_topic
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

TRY_WITHIN_S = 45.0
"""A client that missed the route of its new retry topic shares its queues out again every 20 s."""


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> AnyBroker:
    return start_broker(messageDelayLevel="2s 1s 1s 1s")


def dead_letters(broker: AnyBroker, group: str) -> list[bytes]:
    topic = f"%DLQ%{group}"
    with RawConnection(broker.address) as connection:
        if not max_offset(connection, topic, 0):
            return []  # nothing was given up yet
        return [bytes(record.body) for record in read_topic(connection, topic, 0)]


def test_a_message_comes_again_until_it_is_handled(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    [sent] = client.send("p", topic, ["hard"], tags="A", keys="k")
    client.consumer("c", broker.namesrv_address, topic, group=topic, failing=2)
    got = client.received("c", 3, within_s=TRY_WITHIN_S)
    assert [(one.body, one.topic, one.reconsume_times) for one in got] == [
        ("hard", topic, tries) for tries in range(3)
    ]
    assert {(one.tags, one.keys, one.msg_id) for one in got} == {("A", "k", sent.msg_id)}


def test_a_message_that_failed_often_enough_is_a_dead_letter(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["hopeless"])
    client.consumer("c", broker.namesrv_address, topic, group=topic, failing=99, tries=1)
    assert [one.reconsume_times for one in client.received("c", 2, within_s=TRY_WITHIN_S)] == [0, 1]
    eventually(
        lambda: dead_letters(broker, topic) == [b"hopeless"], within_s=10, what="a dead letter"
    )


def test_what_an_orderly_consumer_gives_up_is_a_dead_letter_at_once(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["hopeless"])
    client.consumer("c", broker.namesrv_address, topic, group=topic, orderly=1, failing=99, tries=1)
    eventually(
        lambda: dead_letters(broker, topic) == [b"hopeless"], within_s=20, what="a dead letter"
    )


def test_a_message_with_a_delay_level_comes_when_it_is_due(
    client: JavaClient, broker: AnyBroker, topic: str
) -> None:
    client.producer("p", broker.namesrv_address)
    client.send("p", topic, ["now"])
    client.consumer("c", broker.namesrv_address, topic)
    assert [one.body for one in client.received("c", 1)] == ["now"]
    [late] = client.send("p", topic, ["late"], delay=1, tags="A")
    got = client.received("c", 2)
    assert [one.body for one in got] == ["now", "late"]
    assert (got[1].tags, got[1].msg_id) == ("A", late.msg_id)
    with RawConnection(broker.address) as connection:
        [parked] = [
            record
            for record in read_topic(connection, "SCHEDULE_TOPIC_XXXX", 0)
            if f"REAL_TOPIC\x01{topic}\x02" in record.properties
        ]
        arrived = [
            record
            for queue in range(4)
            for record in read_topic(connection, topic, queue)
            if record.body == b"late"
        ]
    assert 2_000 <= arrived[0].store_timestamp - parked.store_timestamp < 3_000
