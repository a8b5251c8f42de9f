"""The files of consume queues as they are listed and read, whoever opens them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import segment_name
from aerobee.store.format.queue_reader import Queue, QueueReader, queues_below, usual_size
from aerobee.store.format.unit import UNIT, UNIT_SIZE
from aerobee.store.tools.directory import Directory
from aerobee.store.tools.findings import Findings

if TYPE_CHECKING:
    import pytest

PER_FILE = 4
FILE_BYTES = PER_FILE * UNIT_SIZE


def made(folder: Path, places: list[int | None], *, without: frozenset[int] = frozenset()) -> Queue:
    """Files of four units; None is no unit. Those numbered `without` are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    units = [bytes(UNIT_SIZE) if at is None else UNIT.pack(at, 10, 7) for at in places]
    starts = range(0, len(units) * UNIT_SIZE, FILE_BYTES)
    for number, start in enumerate(starts):
        if number not in without:
            data = b"".join(units[start // UNIT_SIZE :][:PER_FILE])
            (folder / segment_name(start)).write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return Queue("orders", 0, str(folder), FILE_BYTES, tuple(starts))


def reader_of(queue: Queue) -> QueueReader:
    disk = Disk()
    return QueueReader(queue, lambda path: disk.open(Path(path), writable=False))


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 1 << 40)), max_size=14),
    st.frozensets(st.integers(0, 3), max_size=2),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_any_units_are_read_and_the_end_is_behind_the_last(
    tmp_path_factory: pytest.TempPathFactory,
    places: list[int | None],
    without: frozenset[int],
    begin: int,
    count: int,
) -> None:
    queue = made(tmp_path_factory.mktemp("queue"), places, without=without)
    there = [None if n // PER_FILE in without else at for n, at in enumerate(places)]
    with reader_of(queue) as reader:
        found = [
            at if size else None for at, size, _ in UNIT.iter_unpack(reader.read(begin, count))
        ]
        assert found == [*there, *[None] * 40][begin : begin + count]
        last = max((n for n, at in enumerate(there) if at is not None), default=-1)
        assert reader.end() == last + 1
    assert [
        one for low, high in queue.pieces(begin, begin + count) for one in range(low, high)
    ] == [one for one in range(begin, begin + count) if one < queue.end]


def test_one_file_is_open_at_a_time_and_none_afterwards(tmp_path: Path) -> None:
    queue = made(tmp_path / "0", list(range(1, 13)))
    opened: list[str] = []

    class Counted:
        def __init__(self, path: str) -> None:
            opened.append(path)
            self._handle = Disk().open(Path(path), writable=False)
            self.pread, self.data_ranges = self._handle.pread, self._handle.data_ranges

        def close(self) -> None:
            opened.pop(0)
            self._handle.close()

    with QueueReader(queue, Counted) as reader:
        for _ in range(2):
            reader.read(0, 12)
            assert len(opened) == 1
        assert reader.first_at(7, 0, 12) == 6
    assert not opened


def test_queues_are_found_whatever_lies_beside_them(tmp_path: Path) -> None:
    top = tmp_path / "consumequeue"
    for topic, queue_id in [("a", 0), ("a", 2), ("a", 10), ("b", 0)]:
        made(top / topic / str(queue_id), [5] * 6)
    (top / "a" / "2" / segment_name(FILE_BYTES + 1)).write_bytes(b"x")
    (top / "a" / "2" / "stranger").write_bytes(b"x")
    (top / "a" / "٣").mkdir()
    (top / "a" / "x").mkdir()
    (top / "a" / "7").touch()
    (top / "c").touch()
    directory = Directory(tmp_path, Disk(), Findings(), live=False)
    found = queues_below(str(top), directory)
    assert [(one.topic, one.queue_id) for one, _ in found] == [
        ("a", 0),
        ("a", 2),
        ("a", 10),
        ("b", 0),
    ]
    assert {(one.file_bytes, one.starts) for one, _ in found} == {(FILE_BYTES, (0, FILE_BYTES))}
    assert len(found[1][1]) == len(found[0][1]) + 2
    assert [one.topic for one, _ in queues_below(str(top), directory, "b".__eq__)] == ["b"]
    assert queues_below(str(tmp_path / "nowhere"), directory) == []


def test_the_usual_size_is_the_most_frequent_one() -> None:
    sizes = [80] * 3 + [100] * 3 + [0] * 9 + [500]
    random.Random(1).shuffle(sizes)
    assert usual_size(sizes, 7) == 100
    assert usual_size([0], 7) == 7
