"""The way of a query through the index, in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.format.index import IndexShape
from aerobee.store.index import index_walk
from aerobee.store.index.index_file import IndexBuilder, IndexFile, Key
from aerobee.store.index.index_walk import IndexWalk
from tests.kit.index_candidates import candidates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = 1_700_000_000_000
FOR_EVER = 1 << 62


def file_of(path: Path, keys: Sequence[Key], slots: int = 8) -> IndexFile:
    """A file with these keys."""
    file = IndexFile(Disk(), path, IndexShape(slots, len(keys) + 1))
    builder = IndexBuilder.create(file)
    builder.add(keys)
    builder.write()
    builder.close()
    return file


def by_definition(keys: Sequence[Key], key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
    """What a walk finds: entries of that time, to the second, newest first."""
    begins = keys[0].store_timestamp
    if keys[-1].store_timestamp < begin_ms:
        return []
    whole = [begins + (key.store_timestamp - begins) // 1_000 * 1_000 for key in keys]
    return [
        key.physical_offset
        for key, time_ms in zip(reversed(keys), reversed(whole), strict=True)
        if key.key_hash == key_hash and begin_ms <= time_ms + 999 and time_ms <= end_ms
    ]


@settings(max_examples=150)
@given(
    hashes=st.lists(st.sampled_from((0, 1, 9, 17, 1 << 30)), min_size=1, max_size=60),
    gaps=st.lists(st.sampled_from((0, 1, 900, 5_000)), min_size=60, max_size=60),
    begin=st.integers(-2_000, 100_000),
    length=st.integers(0, 100_000),
    later=st.integers(1, 5),
    scanned=st.integers(1, 9),
    step=st.integers(1, 7),
)
def test_a_walk_in_steps_finds_what_is_there_wherever_it_jumps(
    tmp_path_factory: pytest.TempPathFactory,
    hashes: list[int],
    gaps: list[int],
    begin: int,
    length: int,
    later: int,
    scanned: int,
    step: int,
) -> None:
    stored, keys = START, []
    for number, (key_hash, gap) in enumerate(zip(hashes, gaps, strict=False)):
        stored += gap
        keys.append(Key(key_hash, 100 * number, stored))
    file = file_of(tmp_path_factory.mktemp("index") / "file", keys)
    begin_ms, end_ms = START + begin, START + begin + length
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_walk, "LATER_MAX", later)
        patch.setattr(index_walk, "SCANNED", scanned)
        for key_hash in {*hashes, 8}:
            walk = IndexWalk([file], key_hash, begin_ms, end_ms)
            assert candidates(walk, step) == by_definition(keys, key_hash, begin_ms, end_ms)


def test_a_frequent_key_of_an_older_time_is_found_after_a_few_thousand_entries(
    tmp_path: Path,
) -> None:
    keys = [Key(7, number, START + 10 * number) for number in range(40_000)]
    file = file_of(tmp_path / "file", keys)
    walk = IndexWalk([file], 7, START, START + 999)
    assert candidates(walk, 1_000) == list(range(99, -1, -1))
    assert walk.looked < 2_500, "not the 40,000 of its chain"


def test_a_step_looks_at_so_many_entries_and_no_more(tmp_path: Path) -> None:
    keys = [Key(7 if number % 2 else 15, number, START) for number in range(5_000)]
    walk = IndexWalk([file_of(tmp_path / "file", keys)], 23, 0, FOR_EVER)
    for number in range(1, 6):
        walk.step(500)
        assert walk.looked == 500 * number, "the file itself among them"
        assert not walk.ended
        assert not walk.found, "another hash in the same slot"
