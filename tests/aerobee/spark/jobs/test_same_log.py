"""An archive is of one log: nothing of another one, and nothing shorter, gets in or over it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from aerobee.errors import AerobeeError, ConfigurationError
from aerobee.spark.jobs.archive import Archive, archive
from aerobee.spark.jobs.manifest import Entry
from aerobee.spark.jobs.same_log import (
    SegmentMatch,
    compared,
    ends_of,
    id_of_log,
    id_of_store,
    keep_id,
    kept_id,
)
from aerobee.spark.storefiles.files import SegmentFile, segments_of
from aerobee.store.format.names import segment_name
from tests.aerobee.spark.jobs.lakes import archived
from tests.aerobee.spark.store_maker import NOON, StoreMaker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

SIZE = 4_096
SAME, OTHER_END, FOREIGN = SegmentMatch.SAME, SegmentMatch.OTHER_END, SegmentMatch.FOREIGN
MODES = [
    {},
    {"tail": True},
    {"marks": False},
    {"replace": True},
    {"marks": False, "tail": True, "replace": True},
]


def maker(root: Path, count: int, *, start: int = 0, born: int = NOON) -> StoreMaker:
    """A store with so many records, about 20 to a segment; `born` tells one log from another."""
    made = StoreMaker(root, segment_bytes=SIZE, start=start, next_time=born)
    for number in range(count):
        made.put(b"%04d " % number + bytes(90))
    made.write()
    return made


def entries(made: StoreMaker, log: str = "") -> dict[int, Entry]:
    """What an archive with --tail knows of a store."""
    segments = segments_of(made.root)
    found = {}
    for one in segments:
        puts = [put for put in made.puts if one.start <= put.place < one.end]
        sealed = one != segments[-1]
        with SegmentFile(one) as file:
            first, last = ends_of(file, puts[-1].place)
        found[one.start] = Entry(
            segment_name(one.start),
            SIZE if sealed else puts[-1].place + puts[-1].size - one.start,
            len(puts),
            crc32(Path(one.path).read_bytes()) if sealed else 0,
            "job-1",
            sealed=sealed,
            min_store_timestamp=puts[0].stored,
            max_store_timestamp=puts[-1].stored,
            log=log,
            first_crc32=first,
            last_offset=puts[-1].place,
            last_crc32=last,
        )
    return found


def look(root: Path, known: Mapping[int, Entry], log_id: str = "") -> list[SegmentMatch]:
    return list(compared(segments_of(root), known, log_id, "lake").values())


def test_a_log_that_grew_is_the_same(tmp_path: Path) -> None:
    known = entries(maker(tmp_path / "early", 50))
    assert len(known) == 3
    assert look(maker(tmp_path / "late", 90).root, known) == [SAME, SAME, SAME]
    assert look(tmp_path / "early", known) == [SAME, SAME, SAME]


def test_a_segment_that_the_broker_deletes_meanwhile_is_left_out(tmp_path: Path) -> None:
    made = maker(tmp_path, 90)
    known = entries(made)
    segments = segments_of(made.root)
    Path(segments[0].path).unlink()
    assert list(compared(segments, known, "", "lake")) == [one.start for one in segments[1:]]
    early = {segments[0].start: known[segments[0].start]}
    with pytest.raises(AerobeeError, match="nothing shows that both are of the same log"):
        compared(segments[:1] + segments[2:], early, "", "lake")


def test_another_log_is_refused_however_long_it_is(tmp_path: Path) -> None:
    known = entries(maker(tmp_path / "archived", 50))
    for count in (3, 50, 90):
        other = maker(tmp_path / f"new-{count}", count, born=NOON + 1)
        with pytest.raises(AerobeeError, match=r"lake is of another log: segment 0{20} there"):
            look(other.root, known)


def test_less_of_a_segment_than_is_archived_is_refused(tmp_path: Path) -> None:
    known = entries(maker(tmp_path / "archived", 50))
    for count in (49, 30, 1):
        shorter = maker(tmp_path / f"cut-{count}", count)
        with pytest.raises(AerobeeError, match="lake has more of segment"):
            look(shorter.root, known)
    # An earlier copy that ends with a segment: it could be a log that has not begun the next one.
    with pytest.raises(AerobeeError, match=r"has more of segment 0{20} "):
        look(maker(tmp_path / "copy", 2).root, known)


def test_what_lies_behind_a_cut_is_not_taken_for_the_log(tmp_path: Path) -> None:
    """A broker that cuts the end of its log off leaves the old bytes where they are."""
    made = maker(tmp_path / "archived", 50)
    known = entries(made)
    cut = made.puts[-6]
    made.change(cut.place, bytes(cut.size))
    assert look(tmp_path / "archived", known) == [SAME] * 3, "damage, but the end is there"
    behind = maker(tmp_path / "cut", 45)
    tail = made.puts[-4:]
    path = tmp_path / "archived" / "commitlog" / segment_name(2 * SIZE)
    data = path.read_bytes()
    behind.next_time += 1_000
    young = behind.put(b"written after the crash", stored=NOON + 9_000)
    behind.write()
    assert young.place + young.size <= tail[0].place
    for put in tail:
        behind.change(put.place, data[put.place - 2 * SIZE :][: put.size])
    with pytest.raises(AerobeeError, match="lake has more of segment"):
        look(tmp_path / "cut", known)


def test_an_end_that_was_written_anew_is_another_one(tmp_path: Path) -> None:
    known = entries(maker(tmp_path / "archived", 50))
    made = StoreMaker(tmp_path / "cut", segment_bytes=SIZE)
    for number in range(90):
        late = 1_000 if number >= 30 else 0
        made.put(b"%04d " % number + bytes(90), stored=NOON + number + late)
    assert look(made.write(), known) == [SAME, OTHER_END, FOREIGN]


def test_a_store_without_an_archived_segment_must_continue_the_archive(tmp_path: Path) -> None:
    known = entries(maker(tmp_path / "archived", 20), "log-1")
    end = max(known) + known[max(known)].bytes
    assert len(known) == 1
    gap = maker(tmp_path / "gap", 30, start=4 * SIZE, born=NOON + 5_000).root
    assert look(gap, known, "log-1") == []
    for log_id in ("log-2", ""):
        with pytest.raises(AerobeeError, match="nothing shows that both are of the same log"):
            look(gap, known, log_id)
    with pytest.raises(AerobeeError, match=r"nothing shows that .* its own --output$"):
        look(gap, entries(maker(tmp_path / "nameless", 30)))
    full = {0: entries(maker(tmp_path / "two", 30))[0]}
    assert end < SIZE == full[0].bytes
    assert look(maker(tmp_path / "next", 30, start=SIZE, born=NOON + 5_000).root, full) == []
    older = maker(tmp_path / "older", 30, start=SIZE, born=NOON - 5_000).root
    front = entries(maker(tmp_path / "front", 30, start=4 * SIZE), "log-1")
    for root, there in ((older, full), (tmp_path / "next", front)):
        with pytest.raises(AerobeeError, match="has no segment in common with this store"):
            look(root, there, "log-1")


def test_a_store_without_an_id_does_not_pass_for_the_log_because_it_begins_where_that_ends(
    tmp_path: Path,
) -> None:
    """All segments have the same size, so any other log begins just there, too."""
    known = {0: entries(maker(tmp_path / "archived", 30), "log-1")[0]}
    foreign = maker(tmp_path / "foreign", 30, start=SIZE, born=NOON + 5_000).root
    with pytest.raises(AerobeeError, match=r"begins at 4096 while .*; or, .* say --log-id log-1$"):
        look(foreign, known)
    assert look(foreign, known, id_of_store(foreign, "log-1", known, "lake")) == []
    with pytest.raises(ConfigurationError, match="--log-id log-2: lake is of log log-1"):
        id_of_store(foreign, "log-2", known, "lake")
    keep_id(foreign, "log-3")
    with pytest.raises(ConfigurationError, match=r"foreign is of log log-3 \(archive/\.log\)"):
        id_of_store(foreign, "log-1", known, "lake")
    with pytest.raises(AerobeeError, match=r"Give each store its own --output$"):
        look(foreign, known, id_of_store(foreign, "", known, "lake"))


def test_a_log_keeps_the_id_that_its_archive_knows(tmp_path: Path) -> None:
    assert kept_id(tmp_path) == ""
    known = entries(maker(tmp_path, 30), "log-1")
    assert id_of_log("", known) == "log-1"
    keep_id(tmp_path, "log-1")
    keep_id(tmp_path, "log-2")
    assert id_of_store(tmp_path, "", known, "lake") == "log-1" == kept_id(tmp_path)
    assert id_of_log("log-2", known) == "log-2"
    assert id_of_log("", {}) != id_of_log("", {})


# ── Runs of the job ──


def run(spark: SparkSession, store: Path, lake: Path, **more: bool) -> list[int]:
    """The segments that a run archived."""
    task = Archive(store=store, output=str(lake), job="job-2", **more)  # type: ignore[arg-type]  # as the test names them
    outcome = archive(spark, task)
    assert outcome.failed == {}
    return [entry.start for entry in outcome.entries]


@pytest.mark.spark
def test_no_mode_replaces_what_is_archived_by_another_log_or_by_less(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A broker began anew with an empty directory, and the archive was all that was left."""
    lake = tmp_path / "lake"
    store = maker(tmp_path / "store", 50).root
    assert run(spark, store, lake, marks=False) == [0, SIZE]
    foreign = maker(tmp_path / "foreign", 30, start=2 * SIZE, born=NOON + 50_000).root
    with pytest.raises(AerobeeError, match="say --log-id"):
        run(spark, foreign, lake)
    assert kept_id(foreign) == ""
    assert list((foreign / "archive").glob("*.done")) == []
    assert run(spark, store, lake, tail=True) == [2 * SIZE]
    before = sorted(row["storeTimestamp"] for row in archived(spark, lake).collect())
    assert len(before) == 50
    new = maker(tmp_path / "new", 3, born=NOON + 50_000).root
    shorter = maker(tmp_path / "shorter", 45).root
    for mode in MODES:
        with pytest.raises(AerobeeError, match="is of another log"):
            run(spark, new, lake, **mode)
        with pytest.raises(AerobeeError, match="has more of segment"):
            run(spark, shorter, lake, **mode)
    assert sorted(row["storeTimestamp"] for row in archived(spark, lake).collect()) == before


@pytest.mark.spark
def test_a_segment_that_differs_is_replaced_only_when_that_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where no marks are made, and where a name alone used to count as archived."""
    lake = tmp_path / "lake"
    assert run(spark, maker(tmp_path / "store", 50).root, lake, marks=False) == [0, SIZE]
    made = StoreMaker(tmp_path / "cut", segment_bytes=SIZE)
    for number in range(70):
        made.put(b"%04d " % number + bytes(90), stored=NOON + number + 1_000 * (number >= 30))
    store = made.write()
    for mode in MODES[:3]:
        with pytest.raises(AerobeeError, match=r"0004096 .* is not the one that is archived"):
            run(spark, store, lake, **mode)
    assert run(spark, store, lake, marks=False, replace=True) == [SIZE, 2 * SIZE]
    stored = {row["storeTimestamp"].timestamp() * 1_000 for row in archived(spark, lake).collect()}
    assert stored == {put.stored for put in made.puts if put.place < 3 * SIZE}


@pytest.mark.spark
def test_rows_that_no_entry_knows_are_replaced_only_by_their_own_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    store = maker(tmp_path / "store", 50).root
    run(spark, store, lake)
    shutil.rmtree(lake / "_manifest")
    task = Archive(store=maker(tmp_path / "new", 50, born=NOON + 1).root, output=str(lake))
    outcome = archive(spark, task)
    assert outcome.entries == []
    assert set(outcome.failed) == {segment_name(0), segment_name(SIZE)}
    assert "has rows of segment" in outcome.failed[segment_name(0)]
    assert run(spark, store, lake, tail=True) == [0, SIZE, 2 * SIZE]
    assert archived(spark, lake).count() == 50
