"""The map that is no JSON, as Java and C++ clients read it."""

from itertools import starmap

from aerobee.remoting.wire.bodies.queue import (
    MessageQueue,
    offset_row,
    offset_row_for_cpp,
    offset_table,
    offset_table_for_cpp,
)

TWO = {
    MessageQueue(broker_name="broker-a", queue_id=0, topic="T"): 5,
    MessageQueue(broker_name="broker-a", queue_id=1, topic="T"): 6,
}


def test_keys_are_objects_and_nothing_is_spaced() -> None:
    assert offset_table(starmap(offset_row, TWO.items())) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,'
        b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:6}}'
    )


def test_no_queue_is_an_empty_map() -> None:
    assert offset_table([]) == b'{"offsetTable":{}}'


def test_cpp_reads_a_list() -> None:
    assert offset_table_for_cpp(starmap(offset_row_for_cpp, TWO.items())) == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":5,"queueId":0,"topic":"T"},'
        b'{"brokerName":"broker-a","offset":6,"queueId":1,"topic":"T"}]}'
    )
