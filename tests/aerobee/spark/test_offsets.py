import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import ConfigurationError
from aerobee.spark.offsets import Queue, TimePosition, from_json, from_nested, to_json, to_nested

QUEUES = st.builds(
    Queue,
    st.sampled_from(["orders", "a", "%DLQ%g"]),
    st.sampled_from(["broker-a", "b"]),
    st.integers(0, 12),
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=20)


@given(OFFSETS)
def test_offsets_survive_json(offsets: dict[Queue, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


@given(OFFSETS, st.randoms())
def test_the_same_offsets_are_the_same_text_in_whatever_order(
    offsets: dict[Queue, int], chance: random.Random
) -> None:
    shuffled = list(offsets.items())
    chance.shuffle(shuffled)
    assert to_json(dict(shuffled)) == to_json(offsets)
    # Spark hands them back parsed, and prints what it is given in the order it has.
    again = from_nested(json.loads(to_json(dict(shuffled))))
    assert json.dumps(to_nested(again)) == json.dumps(to_nested(offsets))


def test_queue_numbers_are_sorted_as_numbers() -> None:
    offsets = {Queue("t", "b", number): 1 for number in (10, 9, 2)}
    assert to_json(offsets) == '{"t":{"b":{"2":1,"9":1,"10":1}}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "an object of topics"),
        ('{"t":1}', "topic t: an object of broker names"),
        ('{"t":{"b":[1]}}', "topic t, broker b: an object of queue numbers"),
        ('{"t":{"b":{"x":1}}}', "'x' is no queue number"),
        ('{"t":{"b":{"-1":1}}}', "'-1' is no queue number"),
        ('{"t":{"b":{"00":1}}}', "'00' is no queue number"),
        ('{"t":{"b":{"2147483648":1}}}', "'2147483648' is no queue number"),
        ('{"t":' * 100_000, "not JSON"),
        ('{"t":{"b":{"0":1.5}}}', "queue 0: 1.5 is no integer"),
        ('{"t":{"b":{"0":true}}}', "queue 0: True is no integer"),
        ('{"t":{"b":{"0":"7"}}}', "queue 0: '7' is no integer"),
        ('{"t":{"b":{"0":-1}}}', "queue 0: -1 is not 0 or more"),
        ('{"t":{"b":{"0":9223372036854775808}}}', "queue 0: 9223372036854775808 is not"),
    ],
)
def test_what_is_wrong_with_offsets_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets") as caught:
        from_json(text, "startingOffsets")
    assert said in str(caught.value)


def test_marks_for_earliest_and_latest_are_let_through_on_demand() -> None:
    text = '{"t":{"b":{"0":-1,"1":-2}}}'
    assert list(from_json(text, lowest=-2).values()) == [-1, -2]
    with pytest.raises(ConfigurationError, match=r"-3 is not .*-1 \(latest\) or -2 \(earliest\)"):
        from_json('{"t":{"b":{"0":-3}}}', lowest=-2)


def test_the_most_specific_time_counts() -> None:
    queue = Queue("t", "b", 0)
    since = TimePosition(1, {"t": 2}, {queue: 3})
    assert since.time_of(queue) == 3
    assert since.time_of(Queue("t", "b", 1)) == 2
    assert since.time_of(Queue("u", "b", 0)) == 1
    assert TimePosition().time_of(queue) is None
