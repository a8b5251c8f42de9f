"""Segments on disk: any split gives the same records, damage is told once, the end is the end."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.errors import ConfigurationError
from aerobee.spark.storefiles import end as store_end
from aerobee.spark.storefiles import files as store_files
from aerobee.spark.storefiles.end import end_of_data
from aerobee.spark.storefiles.files import (
    LogFiles,
    OpenFile,
    Passage,
    SegmentFile,
    all_segments,
    first_store_time,
    segments_of,
)
from aerobee.spark.storefiles.segments import Segment, splits_of
from aerobee.store.files.disk import Disk
from aerobee.store.files.mapped_file import MappedFile
from aerobee.store.format.faults import BAD_LENGTHS, BAD_MAGIC, BAD_SIZE, WRONG_OFFSET, Fault
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import blank
from tests.aerobee.spark.store_maker import NOON, StoreMaker

KiB = 1_024


def filled(root: Path, count: int = 100) -> StoreMaker:
    """A log of several segments with bodies of many lengths."""
    maker = StoreMaker(root)
    for number in range(count):
        maker.put(b"%d" % number * (number % 40), queue_id=number % 3)
    maker.write()
    return maker


def passed(
    segment: Segment, begin: int, end: int, limit: int, split_bytes: int
) -> tuple[list[int], list[tuple[Fault, int | None]]]:
    """Places and faults that all splits together find."""
    places: list[int] = []
    faults: list[tuple[Fault, int | None]] = []
    for split in splits_of(segment, begin, end, limit, split_bytes):
        with SegmentFile(segment) as file:
            for fragment in Passage(file, split, lambda *told: faults.append(told)):
                places += fragment.places.tolist()
    return places, faults


def places_in(maker: StoreMaker, segment: Segment) -> list[int]:
    return [put.place for put in maker.puts if segment.start <= put.place < segment.end]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> StoreMaker:
    return filled(tmp_path_factory.mktemp("small"))


@pytest.fixture(params=["in front of a blank", "as in large segments"])
def anywhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits near the end of a segment begin in another way than the others."""
    if request.param != "in front of a blank":
        monkeypatch.setattr(store_files, "BLANK_WITHIN", 0)


@pytest.mark.usefixtures("anywhere")
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(split_bytes=st.integers(100, 5_000), window=st.integers(1, 5_000))
def test_any_split_size_and_any_window_give_the_same_records(
    small: StoreMaker, split_bytes: int, window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_files, "WINDOW_BYTES", window)
        for segment in segments_of(small.root):
            end = end_of_data(segment)
            limit = segment.end if end.closed else end.position
            places, faults = passed(segment, segment.start, limit, limit, split_bytes)
            assert places == places_in(small, segment)
            assert faults == []


@pytest.mark.usefixtures("anywhere")
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(
    split_bytes=st.integers(60, 5_000),
    hits=st.lists(st.tuples(st.integers(1, 25), st.integers(0, 90)), min_size=1, max_size=3),
)
def test_each_damage_is_told_once_whatever_the_splits(
    tmp_path_factory: pytest.TempPathFactory, split_bytes: int, hits: list[tuple[int, int]]
) -> None:
    maker = filled(tmp_path_factory.mktemp("hit"), 60)
    segment = segments_of(maker.root)[0]
    puts = [put for put in maker.puts if put.place < segment.end]
    for number, at in hits:
        put = puts[number % len(puts)]
        maker.change(put.place + at, b"\xee")
    with SegmentFile(segment) as file:
        good = [put.place for put in puts if file.header_at(put.place) is not None]
    places, faults = passed(segment, segment.start, segment.end, segment.end, 1 << 20)
    assert places == good
    assert passed(segment, segment.start, segment.end, segment.end, split_bytes) == (places, faults)
    for fault, following in faults:
        assert fault.physical_offset in {put.place for put in puts}
        assert following is None or following in good


def test_damage_at_the_border_of_what_is_wanted_is_told_from_the_first_byte_on(
    tmp_path: Path,
) -> None:
    maker = filled(tmp_path)
    segment = segments_of(tmp_path)[0]
    bad, after = maker.puts[10], maker.puts[11]
    maker.change(bad.place + 4, b"\0\0\0\0")
    for begin in (bad.place, bad.place + 1):
        places, faults = passed(segment, begin, segment.end, segment.end, 1 << 20)
        assert places == [place for place in places_in(maker, segment) if place > bad.place]
        assert [fault.physical_offset for fault, _ in faults] == [bad.place]
    assert passed(segment, after.place, segment.end, segment.end, 1 << 20)[1] == []
    places, faults = passed(segment, segment.start, bad.place, segment.end, 1 << 20)
    assert (places, faults) == ([put.place for put in maker.puts[:10]], [])


def test_whole_records_behind_the_blank_are_none(tmp_path: Path) -> None:
    """What a cut leaves is not erased, and names its own place."""
    maker = filled(tmp_path)
    segment = segments_of(tmp_path)[0]
    cut = maker.puts[12]
    maker.change(cut.place, blank(segment.end - cut.place))
    for split_bytes in (100, 500, 1 << 20):
        places, faults = passed(segment, 0, segment.end, segment.end, split_bytes)
        assert (places, faults) == ([put.place for put in maker.puts[:12]], [])


# ── The end ──


def test_zeros_end_the_data_and_so_does_a_blank(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    *sealed, last = segments_of(tmp_path)
    assert end_of_data(last) == (maker.at, 0, "", None, False)
    for segment in sealed:
        closed = end_of_data(segment)
        assert closed.closed
        assert closed.position >= places_in(maker, segment)[-1]


def test_a_half_written_record_is_the_tail(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    last = maker.puts[-1]
    for keep in (5, 30, 60, 90):
        maker.write()
        maker.change(last.place + keep, bytes(last.size - keep))
        end = end_of_data(segments_of(tmp_path)[-1])
        assert (end.position, end.fault) == (last.place, None)
        assert 0 < end.used <= keep
        assert "half written" in end.why


def test_a_record_that_is_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a broker that the system has stopped in the middle of one; not where none can be."""
    maker = filled(tmp_path)
    last, whole = maker.puts[-1], maker.at
    [*_, segment] = segments_of(tmp_path)
    waited: list[float] = []

    def goes_on(pause_s: float) -> None:
        waited.append(pause_s)
        if len(waited) == 3:
            maker.write()

    monkeypatch.setattr(store_end, "sleep", goes_on)
    for in_use in (False, True):
        maker.change(last.place + 30, bytes(last.size - 30))
        if in_use:
            (tmp_path / "abort").touch()
        end = end_of_data(segment)
        assert (end.position, bool(end.used)) == ((whole, False) if in_use else (last.place, True))
        assert len(waited) == (3 if in_use else 0)


def test_a_segment_that_is_closed_while_it_is_judged_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = filled(tmp_path)
    last = segments_of(tmp_path)[-1]
    used_behind = SegmentFile.used_behind

    def closed_meanwhile(file: SegmentFile, at: int) -> int:
        with Path(last.path).open("r+b") as other:
            other.seek(at - last.start)
            other.write(blank(last.end - at))
        return used_behind(file, at)

    monkeypatch.setattr(SegmentFile, "used_behind", closed_meanwhile)
    assert end_of_data(last) == (maker.at, 0, "", None, True)


def test_a_large_half_written_record_is_the_tail_too(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path, segment_bytes=512 * KiB)
    maker.put()
    large = maker.put(b"x" * 200 * KiB)
    maker.write()
    maker.change(large.place + 100 * KiB, bytes(large.size - 100 * KiB))
    end = end_of_data(segments_of(tmp_path)[-1])
    assert (end.position, end.used, end.fault) == (large.place, 100 * KiB, None)


def test_much_that_no_broker_leaves_is_damage(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path, segment_bytes=512 * KiB)
    maker.put()
    maker.write()
    maker.change(maker.at, b"\x55" * 100 * KiB)
    end = end_of_data(segments_of(tmp_path)[-1])
    assert end.position == maker.at
    assert end.fault is not None
    assert end.fault.kind == BAD_MAGIC


def test_damage_in_the_middle_does_not_end_the_data(tmp_path: Path) -> None:
    maker = filled(tmp_path, 110)
    middle = maker.puts[-3]
    for data in (bytes(middle.size), b"\xff" * 20):
        maker.write()
        maker.change(middle.place, data)
        assert end_of_data(segments_of(tmp_path)[-1]).position == maker.at


def test_older_records_behind_the_end_are_what_a_cut_left(tmp_path: Path) -> None:
    maker = StoreMaker(tmp_path)
    for _ in range(20):
        maker.put()
    maker.write()
    end, maker.at, maker.next_time = maker.at, maker.puts[10].place, NOON + 1_000
    del maker.puts[10:]
    new = maker.put(b"longer than hello")
    maker.write()
    found = end_of_data(segments_of(tmp_path)[-1])
    assert found.position == new.place + new.size
    assert found.fault is None
    assert end - found.position - found.used < 4, "the last record ends with zeros"
    assert "earlier end" in found.why


@pytest.mark.parametrize("aligned", [True, False])
def test_a_file_that_is_used_again_ends_where_its_new_records_end(
    tmp_path: Path, *, aligned: bool
) -> None:
    """The old ones are whole and their CRC is right, but they name the places they once had."""
    size = 256 * KiB
    old = StoreMaker(tmp_path / "old", segment_bytes=size)
    while old.at < size - 300:
        old.put(b"old" * 20)
    new = StoreMaker(tmp_path / "new", segment_bytes=size, start=size * 7)
    for _ in range(10):
        new.put((b"new" if aligned else b"newer") * 20)
    position = new.at - size * 7
    new.segments[size * 7][position:] = old.segments[0][position:]
    new.write()
    (segment,) = segments_of(new.root)
    end = end_of_data(segment)
    assert (end.position, end.fault) == (new.at, None)
    with SegmentFile(segment) as file:
        assert file.fault(new.at).kind == (WRONG_OFFSET if aligned else BAD_MAGIC)
    assert "used again" in end.why


def test_nothing_is_read_in_front_of_its_being_written(tmp_path: Path) -> None:
    """The end moves on for the next look, never for this one."""
    maker = filled(tmp_path, 5)
    segment = segments_of(tmp_path)[-1]
    before = end_of_data(segment).position
    maker.put()
    maker.write()
    assert end_of_data(segment).position > before
    assert passed(segment, 0, before, before, 100)[0] == [put.place for put in maker.puts[:5]]


def test_what_is_written_while_the_end_is_judged_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stores 64 KiB between two looks."""
    maker = StoreMaker(tmp_path, segment_bytes=1_024 * KiB)
    maker.put()
    maker.write()
    (segment,) = segments_of(tmp_path)
    used_behind = SegmentFile.used_behind

    def written_first(file: SegmentFile, begin: int) -> int:
        if len(maker.puts) < 500:
            for _ in range(500):
                maker.put(b"x" * 100)
            maker.write()
        return used_behind(file, begin)

    monkeypatch.setattr(SegmentFile, "used_behind", written_first)
    end = end_of_data(segment)
    assert (end.position, end.used, end.fault) == (maker.at, 0, None)


# ── Segments ──


def test_files_made_ahead_are_no_segments_yet(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    known = segments_of(tmp_path)
    (tmp_path / "commitlog" / segment_name(known[-1].end)).write_bytes(bytes(4 * KiB))
    (tmp_path / "commitlog" / "README").write_text("no segment")
    assert segments_of(tmp_path) == known
    assert [one.start for one in known] == sorted(maker.segments)
    assert len(all_segments(tmp_path)) == len(known) + 1
    assert first_store_time(known[0]) == NOON


def test_what_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no directory commitlog"):
        segments_of(tmp_path)
    (tmp_path / "commitlog").mkdir()
    assert segments_of(tmp_path) == []


def test_a_log_elsewhere_is_told_with_the_link_that_leads_there(tmp_path: Path) -> None:
    root = tmp_path / "root"
    filled(root)
    known = segments_of(root)
    (root / "commitlog").rename(tmp_path / "log")
    (root / "checkpoint").touch()
    with pytest.raises(ConfigurationError, match="storePathCommitLog") as refused:
        segments_of(root)
    command = re.search(r"ln -s \S+ \S+(?=,)", str(refused.value))
    assert command
    subprocess.run(command[0].replace("LOGDIR", str(tmp_path / "log")).split(), check=True)
    assert [one.start for one in segments_of(root)] == [one.start for one in known]


def test_the_stores_of_several_brokers_are_named(tmp_path: Path) -> None:
    for number in (0, 1):
        filled(tmp_path / f"broker-{number}")
    with pytest.raises(ConfigurationError, match=r"name one: .*broker-0, .*broker-1"):
        segments_of(tmp_path)


def test_a_short_file_is_damage_where_it_ends(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    first = segments_of(tmp_path)[0]
    cut = maker.puts[10]
    os.truncate(first.path, cut.place + 50)
    segment = segments_of(tmp_path)[0]
    places, faults = passed(segment, 0, segment.end, segment.end, 1 << 20)
    assert places == [put.place for put in maker.puts[:10]]
    assert [(fault.kind, fault.physical_offset) for fault, _ in faults] == [(BAD_SIZE, cut.place)]
    # The same when it shrank after it was listed.
    places, faults = passed(first, 0, first.end, first.end, 1 << 20)
    assert places == [put.place for put in maker.puts[:10]]
    assert [fault.physical_offset for fault, _ in faults] == [cut.place]


def test_a_deleted_segment_can_be_read_to_its_end(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    segment = segments_of(tmp_path)[0]
    with SegmentFile(segment) as file:
        os.unlink(segment.path)
        put = maker.puts[3]
        found = file.header_at(put.place)
        assert found is not None
        assert (found.topic, found.queue_id, found.queue_offset) == (
            put.topic,
            put.queue_id,
            put.queue_offset,
        )
    with pytest.raises(FileNotFoundError):
        SegmentFile(segment)


def test_a_broker_frees_a_deleted_segment_behind_its_last_reader(tmp_path: Path) -> None:
    """It does so piece by piece: to this reader that would be damage, or the end of the log."""
    filled(tmp_path)
    segment = segments_of(tmp_path)[0]
    broker = MappedFile(Disk(), Path(segment.path), 0, segment.size, used=segment.size)
    broker.open()
    with SegmentFile(segment) as file:
        os.unlink(segment.path)
        assert not broker.release()
        assert len(file.read(0, segment.end)) == segment.size
    assert broker.release()


def test_a_segment_that_is_being_freed_counts_as_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    segment = segments_of(tmp_path)[0]
    opened = OpenFile.__init__

    def late(file: OpenFile, path: str) -> None:
        opened(file, path)
        os.truncate(path, 100)
        os.unlink(path)

    monkeypatch.setattr(OpenFile, "__init__", late)
    with pytest.raises(FileNotFoundError, match="deleted meanwhile"):
        SegmentFile(segment)


def test_any_place_of_the_log_is_found_in_its_segment(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    with LogFiles(str(tmp_path)) as files:
        for put in reversed(maker.puts):
            found = files.header_at(put.place)
            assert found is not None
            assert found.size == put.size
            assert files.header_at(put.place + 1) is None
        assert files.segment_of(1 << 40) is None
        assert files.header_at(1 << 40) is None


def test_holes_of_sparse_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(1 << 20)
        file.write(b"x")
    with closing(OpenFile(str(path))) as opened:
        found = list(opened.data_ranges(0, 1 << 30))
        assert any(low <= 1 << 20 < high for low, high in found)
        assert not list(opened.data_ranges(0, 0))


def test_lengths_that_do_not_add_up_are_told_as_such(tmp_path: Path) -> None:
    maker = filled(tmp_path)
    put = maker.puts[5]
    maker.change(put.place + put.size - 1 - 1, b"\x00\x09")
    segment = segments_of(tmp_path)[0]
    with SegmentFile(segment) as file:
        assert file.fault(put.place).kind == BAD_LENGTHS
