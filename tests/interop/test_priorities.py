"""Messages with a priority, beside RocketMQ 5.5.0: the same queues, and kept alike.

For each message the queue that the answer names, and what a pull finds of the property.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.java import toolkit
from tests.kit.java_server import JavaBroker, JavaNamesrv
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartBroker

pytestmark = pytest.mark.interop

VERSION = "5.5.0"
PULL, CREATE_TOPIC, SEND, SEND_BATCH = 11, 17, 310, 320
QUEUES, ASKED_QUEUE = 4, 1
NAME = "_SYS_MSG_PRIORITY_"

PRIORITIES = ["0", "1", "3", "4", "99", "2147483647", "007", "+2", "-1", "2147483648", "", "high"]
PRIORITIES += [" 2", "2 ", "1.0", "0x1", "٢"]
OTHER_TYPES: list[dict[str, str]] = [
    {NAME: "3", "__SHARDINGKEY": "order"},
    {NAME: "3", "TAGS": "a", "KEYS": "k"},
]
MESSAGES = [{NAME: priority} for priority in PRIORITIES] + OTHER_TYPES
BATCH = [{NAME: "3"}, {NAME: "0"}, {}]


def queues_of(address: str, topic: str, attributes: str) -> list[tuple[object, ...]]:
    """What became of each message: code and queue of the answer, then queue and priority kept."""
    with RawConnection(address, timeout_s=20) as connection:
        fields = topic_fields(topic, QUEUES) | {"attributes": attributes}
        created = connection.call(CREATE_TOPIC, fields)
        assert created.code == 0, created.remark
        answered = []
        for number, properties in enumerate(MESSAGES):
            answer = connection.call(
                SEND,
                send_fields(topic, ASKED_QUEUE, i=properties_text(**properties)),
                b"%d" % number,
            )
            answered.append((answer.code, int((answer.ext or {}).get("queueId", -1))))
        items = {b"batch %d" % n: properties_text(**each) for n, each in enumerate(BATCH)}
        answer = connection.call(
            SEND_BATCH, send_fields(topic, ASKED_QUEUE, m=True), batch_body(items)
        )
        answered.append((answer.code, int((answer.ext or {}).get("queueId", -1))))
        kept = {}

        def all_found() -> bool:
            for queue_id in range(QUEUES):
                pulled = connection.call(PULL, pull_fields("g", topic, queue_id, 0))
                for record in records(pulled.body) if pulled.code == 0 else ():
                    text = dict(
                        pair.split("\x01", 1) for pair in record.properties.split("\x02") if pair
                    )
                    # An empty value is none to every reader; Java leaves it out of the record.
                    kept[record.body] = (record.queue_id, text.get(NAME) or None)
            stored = sum(code == 0 for code, _ in answered[:-1])
            return len(kept) == stored + len(BATCH) * (answered[-1][0] == 0)

        eventually(all_found, within_s=60, what="all that was stored is pulled")
    return [*answered, *sorted(kept.items())]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaBroker]:
    """RocketMQ's broker, with its name server."""
    home = tmp_path_factory.mktemp("java")
    java_kit = toolkit(VERSION)
    names = JavaNamesrv(java_kit, home / "names")
    broker = JavaBroker(
        toolkit=java_kit, data=home / "data", home=home, namesrv_address=names.address
    )
    broker.start()
    yield broker
    broker.kill()
    names.stop()


@pytest.mark.parametrize("attributes", ["+message.type=PRIORITY", ""])
def test_a_priority_leads_to_the_queue_that_java_takes(
    attributes: str, shared_broker: StartBroker, java: JavaBroker, topic: str
) -> None:
    expected = queues_of(java.address, topic, attributes)
    assert queues_of(shared_broker().address, topic, attributes) == expected
