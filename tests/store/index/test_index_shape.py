"""Slots and entries of an index file, told from the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.format.index import IndexHead, IndexShape
from aerobee.store.index.index_file import IndexBuilder, IndexFile, Key
from aerobee.store.index.index_walk import IndexWalk
from tests.kit.index_candidates import candidates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STORED = 1_700_000_000_000
SHAPES = st.builds(IndexShape, st.integers(1, 60), st.integers(2, 60))
HASHES = st.lists(st.integers(0, 0x7FFF_FFFF), max_size=70)


def made(path: Path, shape: IndexShape, hashes: Sequence[int], first: int = 0) -> None:
    """A file of that shape that holds these keys, as many of them as fit."""
    path.unlink(missing_ok=True)
    builder = IndexBuilder.create(IndexFile(Disk(), path, shape, IndexHead()))
    builder.add([Key(value, first + 100 * at, STORED + at) for at, value in enumerate(hashes)])
    builder.write()
    builder.close()


def told(path: Path, wanted: IndexShape) -> IndexShape | None:
    file = IndexFile(Disk(), path, wanted)
    file.read_head()
    return file.shape if file.fits else None


@settings(max_examples=300, deadline=None)
@given(shape=SHAPES, wanted=SHAPES, hashes=HASHES, first=st.sampled_from((0, 1 << 40)))
def test_a_file_says_its_own_shape_whatever_is_wanted_of_new_ones(
    tmp_path_factory: pytest.TempPathFactory,
    shape: IndexShape,
    wanted: IndexShape,
    hashes: list[int],
    first: int,
) -> None:
    path = tmp_path_factory.mktemp("shape") / "20231114221320001"
    made(path, shape, hashes, first)
    kept = hashes[: shape.entries - 1]  # Entry 0 stays empty.
    if kept and (kept[-1] or first):
        assert told(path, wanted) == shape
        assert told(path, shape) == shape
    elif not hashes:
        assert told(path, shape) == shape


@pytest.mark.parametrize("keys", [10, 29])
def test_a_file_that_another_broker_stretched_is_read_as_it_was_written(
    tmp_path: Path, keys: int
) -> None:
    path = tmp_path / "20231114221320001"
    made(path, IndexShape(20, 30), range(1_000, 1_000 + keys))
    with path.open("r+b") as file:
        file.truncate(IndexShape(50, 90).size)
    shape = told(path, IndexShape(50, 90))
    assert shape is not None
    assert shape.slots == 20
    found = IndexFile(Disk(), path, shape, IndexHead(index_count=keys + 1))
    assert candidates(IndexWalk([found], 1_000 + keys - 1, 0, 1 << 62)) == [100 * (keys - 1)]


def test_a_file_written_on_with_another_shape_fits_none(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320001"
    made(path, IndexShape(20, 30), range(1_000, 1_010))
    file = IndexFile(Disk(), path, IndexShape(50, 90))
    file.read_head()
    file.shape = IndexShape(50, 90)
    builder = IndexBuilder.resume(file)
    builder.add([Key(5, 7_000, STORED + 9_000)])
    builder.write()
    builder.close()
    assert told(path, IndexShape(50, 90)) is None


def test_a_file_of_the_default_size_is_told_without_reading_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "20231114221320001"
    made(path, IndexShape(5_000_000, 20_000_000), range(7_000, 7_050))

    class CountingDisk(Disk):
        read_bytes = 0

        def _call(self, function, *args, **kwargs):  # type: ignore[no-untyped-def]  # as Disk has it
            found = super()._call(function, *args, **kwargs)
            if isinstance(found, bytes):
                self.read_bytes += len(found)
            return found

    disk = CountingDisk()
    file = IndexFile(disk, path, IndexShape(1_000, 4_000))
    file.read_head()
    assert file.shape == IndexShape(5_000_000, 20_000_000)
    assert disk.read_bytes < 8 << 20
