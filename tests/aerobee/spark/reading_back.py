"""What a topic holds, as the pull consumer of the SDK sees it: the other side of a write."""

from collections.abc import Sequence
from itertools import count
from operator import attrgetter
from time import monotonic

from aerobee import ConsumeFrom, ReceivedMessage
from aerobee.blocking import PullConsumer
from tests.conftest import AnyBroker

WITHIN_S = 120
QUIET_S = 0.3
"""Nothing for so long after the last expected message: there are no more."""
_groups = count()


def read_back(broker: AnyBroker, topic: str, expected: int) -> Sequence[ReceivedMessage]:
    """All messages of a topic, by queue and offset: the expected number, or more if there are."""
    taken: list[ReceivedMessage] = []
    group = f"reading-back-{next(_groups)}"
    deadline = monotonic() + WITHIN_S
    with PullConsumer(
        group, broker.namesrv_address, start_from=ConsumeFrom.FIRST, pull_batch=500
    ) as consumer:
        consumer.assign(consumer.queues(topic))
        while monotonic() < deadline:
            wait_s = QUIET_S if len(taken) >= expected else 2.0
            messages = consumer.poll(max_messages=2_000, timeout=wait_s)
            if not messages and len(taken) >= expected:
                break
            consumer.done(*messages)
            taken += messages
    assert len(taken) >= expected, f"{len(taken)} of {expected} messages within {WITHIN_S} s"
    return sorted(taken, key=attrgetter("queue", "queue_offset"))
