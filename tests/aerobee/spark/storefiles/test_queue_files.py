"""Consume queues read by descriptor: any unit, the end, and where a place of the log begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from aerobee.spark.storefiles.queue_files import (
    QueueReader,
    has_queues,
    places_of,
    queues_of,
)
from aerobee.store.format.unit import UNIT, UNIT_SIZE
from tests.aerobee.spark.store_maker import StoreMaker

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.format.queue_reader import Queue


@pytest.fixture
def store(tmp_path: Path) -> StoreMaker:
    maker = StoreMaker(tmp_path / "store")
    for number in range(90):
        maker.put(b"x" * number, ("a", "b")[number % 2], number % 10 // 2)
    maker.write()
    return maker


def all_topics(_topic: str) -> bool:
    return True


def queue_of(store: StoreMaker, topic: str = "a", queue_id: int = 0) -> Queue:
    (found,) = [
        one
        for one in queues_of(str(store.root), all_topics)
        if (one.topic, one.queue_id) == (topic, queue_id)
    ]
    return found


def test_queues_are_listed_in_order(store: StoreMaker) -> None:
    (store.root / "consumequeue" / "a" / "10").mkdir()
    (store.root / "consumequeue" / "a" / "not-a-queue").mkdir()
    (store.root / "consumequeue" / "a" / "0" / "stranger").touch()
    found = [(one.topic, one.queue_id) for one in queues_of(str(store.root), all_topics)]
    assert found == [("a", n) for n in (0, 1, 2, 3, 4, 10)] + [("b", n) for n in range(5)]
    assert {one.topic for one in queues_of(str(store.root), "b".__eq__)} == {"b"}
    assert has_queues(str(store.root))
    assert not has_queues(str(store.root / "commitlog"))


def test_units_are_read_across_files_and_zeros_where_there_are_none(store: StoreMaker) -> None:
    maker = StoreMaker(store.root.with_name("more"))
    for _ in range(50):
        maker.put()
    maker.write()
    with QueueReader(queue_of(maker, "orders")) as reader:
        units = reader.units(0, 70)
        assert places_of(units)[:50].tolist() == [put.place for put in maker.puts]
        assert not units[50:]["size"].any()
        assert reader.units(15, 10).tobytes() == units[15:25].tobytes()
        assert len(reader.units(7, 0)) == 0
        assert not reader.units(1 << 60, 3)["size"].any()
        assert reader.end() == 50


def test_the_end_is_behind_the_last_unit_even_over_a_hole(store: StoreMaker) -> None:
    queue = queue_of(store)
    with QueueReader(queue) as reader:
        assert reader.end() == 9
    store.change_unit("a", 0, 4, bytes(UNIT_SIZE))
    store.change_unit("a", 0, 15, UNIT.pack(5, 91, 0))
    with QueueReader(queue) as reader:
        assert reader.end() == 16


def test_a_queue_without_units_ends_where_it_begins(store: StoreMaker) -> None:
    (store.root / "consumequeue" / "a" / "10").mkdir()
    with QueueReader(queue_of(store, "a", 10)) as reader:
        assert (reader.end(), len(reader.units(0, 5))) == (0, 5)


def test_a_place_of_the_log_is_found_by_halving(store: StoreMaker) -> None:
    puts = [put for put in store.puts if (put.topic, put.queue_id) == ("a", 0)]
    with QueueReader(queue_of(store)) as reader:
        for number, put in enumerate(puts):
            assert reader.first_at(put.place, 0, 20) == number
            assert reader.first_at(put.place + 1, 0, 20) == number + 1
        assert reader.first_at(0, 3, 20) == 3


def test_a_file_deleted_meanwhile_reads_as_zeros(store: StoreMaker) -> None:
    queue = queue_of(store)
    os.unlink(f"{queue.path}/{0:020d}")
    with QueueReader(queue) as reader:
        assert not reader.units(0, 5)["size"].any()
        assert reader.end() == 0
