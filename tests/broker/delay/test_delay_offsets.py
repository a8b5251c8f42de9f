"""How far the levels are, in memory and in delayOffset.json."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delay.delay_offsets import LEFT_KEY, LEFT_MAX, DelayOffsetTable, MovedOffset
from aerobee.remoting.wire import relaxed_json


def table(**offsets: int) -> DelayOffsetTable:
    made = DelayOffsetTable()
    made.load({"offsetTable": offsets})
    return made


def test_the_file_of_either_version_is_read() -> None:
    made = DelayOffsetTable()
    made.load(relaxed_json.decode(b'{\n\t"offsetTable":{3:7,4:1\n\t}\n}'))
    assert made.offsets == {3: 7, 4: 1}
    version = {"counter": 2, "stateVersion": 0, "timestamp": 5}
    made.load({"dataVersion": version, "offsetTable": {"1": 2}, "newer": "kept"})
    assert made.document() == {"newer": "kept", "dataVersion": version, "offsetTable": {1: 2}}


@pytest.mark.parametrize(
    "document", [{"offsetTable": []}, {"offsetTable": {"x": 1}}, {LEFT_KEY: {"1": 5}}], ids=str
)
def test_what_is_no_such_file_changes_nothing(document: dict[str, Any]) -> None:
    made = table(**{"3": 7})
    with pytest.raises(ValueError):
        made.load(document)
    assert made.offsets == {3: 7}


def test_the_version_moves_with_every_200th_message_and_the_changes_with_each_slice() -> None:
    made = DelayOffsetTable()
    made.delivered(1, 0, 128, 128, 9)
    assert (made.version.counter, made.changes) == (0, 1)
    made.delivered(1, 128, 256, 128, 9)
    assert (made.version.counter, made.version.timestamp, made.changes) == (1, 9, 2)
    assert made.offset(1) == 256
    assert made.offset(2) == 0


def test_what_lies_outside_its_queue_is_pulled_to_the_nearer_end() -> None:
    made = table(**{"1": 5, "2": 50, "3": 500, "19": 1})
    moved = made.clamp(lambda level: 10 if level < 19 else 0, lambda level: 100 * (level < 19))
    assert moved == [MovedOffset(1, 5, 10), MovedOffset(3, 500, 100), MovedOffset(19, 1, 0)]
    assert made.offsets == {1: 10, 2: 50, 3: 100, 19: 0}


def test_what_the_disk_cannot_read_is_left_until_it_was_delivered() -> None:
    made = table(**{"1": 5})
    assert made.leave(1, 5)
    assert made.leave(1, 6)
    made.delivered(1, 7, 9, 2, 0)
    document = made.document()
    assert (document["offsetTable"], document[LEFT_KEY]) == ({1: 9}, {1: [5, 6]})
    again = DelayOffsetTable()
    again.load(relaxed_json.decode(b'{"offsetTable":{1:9},"aerobeeUnreadable":{"1":[5,6]}}'))
    changes = again.changes
    again.delivered(1, 5, 6, 1, 0)
    assert (again.offset(1), again.left, again.changes) == (9, {1: {6}}, changes + 1)
    again.go_on(1, 6, 7)
    assert LEFT_KEY not in again.document()


def test_a_slave_takes_what_its_master_has_left() -> None:
    slave = DelayOffsetTable()
    slave.merge({"offsetTable": {"1": 9}, LEFT_KEY: {"1": [5, 12]}})
    assert slave.left == {1: {5}}, "it comes to the other one by itself"
    slave.replace({"offsetTable": {"1": 9}})
    assert slave.left == {1: {5}}, "a master that knows of none says nothing"
    slave.replace({"offsetTable": {"1": 9}, LEFT_KEY: {"1": [6]}})
    assert slave.left == {1: {6}}
    slave.clamp(lambda _: 0, lambda _: 6)
    assert (slave.offset(1), slave.left) == (6, {})


def test_no_more_is_left_than_one_can_remember() -> None:
    made = DelayOffsetTable()
    assert all(made.leave(1, at) for at in range(LEFT_MAX))
    assert not made.leave(1, LEFT_MAX)
    assert made.offset(1) == LEFT_MAX
    assert made.leave(2, 0)


def test_a_slave_of_a_group_goes_back_with_its_master() -> None:
    table = DelayOffsetTable()
    table.move(1, 9)
    table.move(2, 4)
    changes = table.changes
    table.replace({"offsetTable": {"1": 7}})
    assert (table.offset(1), table.offset(2)) == (7, 0)
    assert table.changes > changes
