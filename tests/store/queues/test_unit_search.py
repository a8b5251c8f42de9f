"""Searching the files of a queue, compared with looking at every unit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import segment_name
from aerobee.store.format.queue_reader import Queue
from aerobee.store.format.unit import BLANK, UNIT
from aerobee.store.queues.unit_search import UnitSearch

PER_FILE = 5
FILE_BYTES = PER_FILE * UNIT.size


def write(root: Path, places: list[int | None]) -> Queue:
    """Queue files of five units; None is a blank."""
    units = [BLANK if at is None else UNIT.pack(at, 10, 0) for at in places]
    starts = range(0, len(units) * UNIT.size, FILE_BYTES)
    for start in starts:
        some = units[start // UNIT.size :][:PER_FILE]
        (root / segment_name(start)).write_bytes(b"".join(some).ljust(FILE_BYTES, b"\0"))
    return Queue("orders", 0, str(root), FILE_BYTES, tuple(starts))


@given(
    st.integers(0, 7),
    st.lists(st.integers(1, 50), max_size=20),
    st.integers(0, 900),
    st.integers(0, 27),
)
def test_the_search_finds_what_looking_at_each_unit_finds(
    blanks: int, steps: list[int], physical_offset: int, low: int
) -> None:
    places: list[int | None] = [None] * blanks
    at = 0
    for step in steps:
        at += step
        places.append(at)
    low = min(low, len(places))
    expected = next(
        (
            number
            for number, place in enumerate(places)
            if number >= low and place is not None and place >= physical_offset
        ),
        len(places),
    )
    with TemporaryDirectory() as directory:
        search = UnitSearch(write(Path(directory), places), low, len(places))
        assert search.first_at_or_after(physical_offset, Disk()) == expected


def test_a_file_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    search = UnitSearch(write(tmp_path, list(range(10, 22))), 0, 12)
    (tmp_path / segment_name(FILE_BYTES)).unlink()
    with pytest.raises(FileNotFoundError):
        search.first_at_or_after(20, Disk())
