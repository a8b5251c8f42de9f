"""Batches that the Java broker takes: of many short messages, and with properties in them.

Run with `--against java-5.5.0`, these tests say what that broker does.
"""

import pytest

from tests.conftest import AnyBroker, StartBroker
from tests.kit.raw_client import (
    RawConnection,
    batch_body,
    properties_text,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)
from tests.kit.waiting import eventually

pytestmark = pytest.mark.interop

PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
SEND_BATCH_MESSAGE = 320

SHORT_MESSAGES = 37_500
SEGMENT_BYTES = 16 << 20


def send_batch(connection: RawConnection, topic: str, body: bytes, count: int) -> None:
    """Make a topic of one queue and send one batch to it; both are answered with success."""
    assert connection.call(UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
    answer = connection.call(SEND_BATCH_MESSAGE, send_fields(topic, 0, m=True), body)
    assert answer.code == 0, answer.remark
    assert len(answer.ext["msgId"].split(",")) == count

    def queued() -> bool:
        asked = {"topic": topic, "queueId": 0}
        return connection.call(GET_MAX_OFFSET, asked).ext["offset"] == str(count)

    eventually(queued, within_s=20, what=f"{count} messages in the queue")


def test_a_batch_whose_records_are_longer_than_the_largest_body_is_stored(
    shared_broker: StartBroker, topic: str
) -> None:
    """1.2 MB of messages of 10 bytes: their records take 4.2 MB, and `maxMessageSize` is 4 MiB."""
    broker = shared_broker(mappedFileSizeCommitLog=SEGMENT_BYTES)
    body = batch_body({b"%010d" % number: "" for number in range(SHORT_MESSAGES)})
    assert len(body) == 1_200_000
    with RawConnection(broker.address) as connection:
        send_batch(connection, topic, body, SHORT_MESSAGES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAN_MSG", "true"),
        ("DELAY", "3"),
        ("TIMER_DELAY_SEC", "60"),
        ("TIMER_DELAY_MS", "60000"),
        ("TIMER_DELIVER_MS", "4102444800000"),
    ],
)
def test_a_property_that_asks_for_delay_or_transaction_has_no_effect_in_a_batch(
    broker: AnyBroker, topic: str, name: str, value: str
) -> None:
    asked = properties_text(**{name: value})
    body = batch_body({b"plain": properties_text(TAGS="a"), b"special": asked})
    with RawConnection(broker.address) as connection:
        send_batch(connection, topic, body, 2)
        pulled = connection.call(PULL_MESSAGE, pull_fields("g", topic, 0, 0))
        stored = [(record.body, record.properties) for record in records(pulled.body)]
        assert stored == [(b"plain", properties_text(TAGS="a")), (b"special", asked)]
