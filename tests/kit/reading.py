"""Everything that is in a topic, by raw pulls: how tests see what a broker really kept."""

from collections.abc import Sequence

from tests.kit.raw_client import RawConnection, RawRecord, pull_fields, records

PULL_MESSAGE, QUERY_MESSAGE, QUERY_CONSUMER_OFFSET, GET_MAX_OFFSET = 11, 12, 14, 30
FOR_EVER = 1 << 62
FOUND, NOTHING, NONE_MATCHED, MOVED = 0, 19, 20, 21
NOT_FOUND = 22
READER = "raw-reader"


def read_topic(
    connection: RawConnection, topic: str, queue_id: int, *, start: int = 0
) -> list[RawRecord]:
    """All records of a queue from `start` to its end, in the order of their offsets."""
    found: list[RawRecord] = []
    queue_offset, end = start, max_offset(connection, topic, queue_id)
    while batch := _pull(connection, topic, queue_id, queue_offset):
        found += batch
        queue_offset = batch[-1].queue_offset + 1
    assert queue_offset >= end, "a pull ended before the end"
    return found


def _pull(
    connection: RawConnection, topic: str, queue_id: int, queue_offset: int
) -> Sequence[RawRecord]:
    answer = connection.call(PULL_MESSAGE, pull_fields(READER, topic, queue_id, queue_offset))
    assert answer.code in (FOUND, NOTHING), f"{topic}-{queue_id} at {queue_offset}: {answer}"
    return list(records(answer.body))


def read_tagged(connection: RawConnection, topic: str, queue_id: int, tag: str) -> list[RawRecord]:
    """The records of a queue that a consumer of this tag is given."""
    found: list[RawRecord] = []
    queue_offset, end = 0, max_offset(connection, topic, queue_id)
    while queue_offset < end:
        fields = pull_fields(READER, topic, queue_id, queue_offset, subscription=tag)
        answer = connection.call(PULL_MESSAGE, fields)
        assert answer.code in (FOUND, NONE_MATCHED), f"{tag} of {topic}-{queue_id}: {answer}"
        assert int(answer.ext["nextBeginOffset"]) > queue_offset, f"no way on: {answer}"
        found += records(answer.body)
        queue_offset = int(answer.ext["nextBeginOffset"])
    return found


def find_by_key(connection: RawConnection, topic: str, key: str) -> list[RawRecord]:
    """The newest 64 messages, at most, that the broker's index finds, in the order of its log."""
    fields = {"topic": topic, "key": key, "maxNum": 64}
    times = {"beginTimestamp": 0, "endTimestamp": FOR_EVER}
    answer = connection.call(QUERY_MESSAGE, fields | times)
    assert answer.code in (FOUND, NOT_FOUND), answer
    return list(records(answer.body))


def max_offset(connection: RawConnection, topic: str, queue_id: int) -> int:
    """The next offset that the queue will give out."""
    answer = connection.call(GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
    assert answer.code == 0, answer
    return int(answer.ext["offset"])


def committed_offsets(
    connection: RawConnection, group: str, topic: str, queues: int
) -> dict[int, int]:
    """Queue id → what the group has committed; queues without an offset are left out."""
    offsets: dict[int, int] = {}
    for queue_id in range(queues):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = connection.call(QUERY_CONSUMER_OFFSET, {**fields, "setZeroIfNotFound": False})
        assert answer.code in (0, NOT_FOUND), answer
        if answer.code == 0:
            offsets[queue_id] = int(answer.ext["offset"])
    return offsets
