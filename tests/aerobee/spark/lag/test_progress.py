"""Answers about consumer groups, as our broker and Java's write them, and what lag they make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.bodies.statistics import OffsetWrapper, by_queue, consume_stats
from aerobee.spark.lag.progress import (
    Lag,
    Progress,
    groups_in,
    is_system_group,
    lags,
    progress_in,
)

NOW = 1_700_000_000_000
offsets = st.integers(0, 1 << 62)


@given(
    st.dictionaries(st.tuples(st.text(max_size=9), st.integers(0, 99)), st.tuples(*[offsets] * 3))
)
def test_what_a_broker_says_is_read_as_it_was_meant(
    table: dict[tuple[str, int], tuple[int, int, int]],
) -> None:
    body = consume_stats(
        [
            by_queue(
                MessageQueue(broker_name="b", queue_id=queue_id, topic=topic),
                OffsetWrapper(end, at, at, last_ms),
            )
            for (topic, queue_id), (end, at, last_ms) in table.items()
        ],
        0.5,
    )
    assert progress_in(body) == sorted(
        Progress(topic, "b", queue_id, *values) for (topic, queue_id), values in table.items()
    )


def test_java_writes_its_keys_as_objects_and_the_fields_in_any_order() -> None:
    body = (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"brokerOffset'
        b'":9,"consumerOffset":4,"lastTimestamp":-1},{"topic":"T","queueId":0,"brokerName":"b"}:'
        b'{"lastTimestamp":7,"brokerOffset":9,"consumerOffset":9,"pullOffset":9}}}'
    )
    assert progress_in(body) == [Progress("T", "b", 0, 9, 9, 7), Progress("T", "b", 1, 9, 4, 0)]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"offsetTable":{"q":{}}}', b'{"offsetTable":{"{}":{"brokerOffset":1}}}']
)
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        progress_in(body)


def test_groups_are_named_in_order() -> None:
    assert groups_in(b'{"dataVersion":{},"subscriptionGroupTable":{"b":{},"a":{"x":1}}}') == [
        "a",
        "b",
    ]
    assert groups_in(b"{}") == []
    with pytest.raises(BodyError):
        groups_in(b'{"subscriptionGroupTable":5}')
    assert is_system_group("CID_RMQ_SYS_x")
    assert not is_system_group("lake")


def test_lag_is_the_distance_and_its_time_the_age_of_the_last_message_consumed() -> None:
    behind = Progress("T", "b", 0, 100, 40, NOW - 5_000)
    done = Progress("T", "b", 1, 7, 7, NOW - 9_000)
    fresh = Progress("T", "b", 2, 3, 0, 0)
    rows = lags("g", [behind, done, fresh], (), NOW)
    assert rows[0] == Lag("g", "T", "b", 0, 100, 40, 60, NOW - 5_000, 5_000, NOW)
    assert (rows[1].lag, rows[1].time_lag_ms, rows[1].last_timestamp_ms) == (0, 0, NOW - 9_000)
    assert (rows[2].lag, rows[2].time_lag_ms, rows[2].last_timestamp_ms) == (3, None, None)


def test_topics_are_chosen_and_a_lost_end_shows_as_a_negative_lag() -> None:
    found = [Progress("T", "b", 0, 1, 5, NOW), Progress("U", "b", 0, 1, 0, NOW + 50)]
    assert [(row.topic, row.lag, row.time_lag_ms) for row in lags("g", found, {"T"}, NOW)] == [
        ("T", -4, 0)
    ]
    [row] = lags("g", found, ("U",), NOW)
    assert row.time_lag_ms == 0, "clocks of two machines differ"
