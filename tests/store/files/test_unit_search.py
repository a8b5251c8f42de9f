"""Searching the files of a queue, compared with looking at every unit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.files.unit_search import UnitSearch
from aerobee.store.format.unit import BLANK, UNIT

PER_FILE = 5
FILE_BYTES = PER_FILE * UNIT.size


def write(root: Path, places: list[int | None]) -> dict[int, Path]:
    """Queue files of five units; None is a blank."""
    units = [BLANK if at is None else UNIT.pack(at, 10, 0) for at in places]
    paths = {}
    for number in range(0, len(units), PER_FILE):
        path = root / f"{number * UNIT.size:020d}"
        path.write_bytes(b"".join(units[number : number + PER_FILE]).ljust(FILE_BYTES, b"\0"))
        paths[number * UNIT.size] = path
    return paths


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
        paths = write(Path(directory), places)
        search = UnitSearch(paths, FILE_BYTES, low, len(places))
        assert search.first_at_or_after(physical_offset, Disk()) == expected
