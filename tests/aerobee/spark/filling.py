"""Topics with messages, for tests that read: sent by plain frames, many at a time."""

from collections.abc import Sequence

from tests.conftest import AnyBroker
from tests.kit.raw_client import (
    RawConnection,
    batch_body,
    properties_text,
    send_fields,
    topic_fields,
)

CREATE_TOPIC = 17
SEND = 310
SEND_BATCH = 320
PER_REQUEST = 100


def make_topic(broker: AnyBroker, topic: str, queues: int = 1) -> None:
    """A topic with so many queues; making it again changes their number."""
    with RawConnection(broker.address) as connection:
        answer = connection.call(CREATE_TOPIC, topic_fields(topic, queues))
    assert answer.code == 0, answer.remark


def bodies(count: int, size: int = 12) -> list[bytes]:
    """Bodies that differ: their number, filled up to `size` bytes."""
    return [b"%08d" % number + b"." * (size - 8) for number in range(count)]


def fill(
    broker: AnyBroker,
    topic: str,
    messages: Sequence[bytes],
    *,
    queue_id: int = 0,
    **properties: str,
) -> None:
    """Store different bodies in one queue, in their order, each with these properties."""
    text = properties_text(**properties)
    with RawConnection(broker.address) as connection:
        for at in range(0, len(messages), PER_REQUEST):
            body = batch_body(dict.fromkeys(messages[at : at + PER_REQUEST], text))
            answer = connection.call(SEND_BATCH, send_fields(topic, queue_id, m=True), body)
            assert answer.code == 0, answer.remark


def say_compressed(broker: AnyBroker, topic: str, body: bytes, **properties: str) -> None:
    """Store a body in queue 0 whose client says that it is compressed."""
    fields = send_fields(topic, 0, f=1, i=properties_text(**properties))
    with RawConnection(broker.address) as connection:
        answer = connection.call(SEND, fields, body)
    assert answer.code == 0, answer.remark


def expire(broker: AnyBroker, segments: int) -> None:
    """Take the oldest segments of the log away, as the clean-up does, while the broker is down."""
    assert broker.stop() == 0
    log = broker.data / "commitlog"
    for segment in sorted(log.iterdir())[:segments]:
        segment.unlink()
    broker.start()
