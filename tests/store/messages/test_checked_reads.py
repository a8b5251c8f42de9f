"""What the disk gives back altered is given to nobody; what lies around it is."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any, TypeVar

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

import aerobee.store.messages.checked_reads
from aerobee.store.files.disk import Disk
from aerobee.store.format.record import read
from aerobee.store.format.tags import TagFilter, java_hash
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetResult, GetStatus
from aerobee.store.selection import SelectiveReader
from tests.kit.cold_disk import ColdDisk
from tests.kit.records import bodies_of
from tests.kit.store_model import ManualClock, draft, log_records, open_store

T = TypeVar("T")

COUNT = 12
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log_bytes": 1 << 14,
    "mapped_file_size_consume_queue_bytes": 20 * 1_000,
}
LOG = Path("commitlog") / f"{0:020d}"
UNITS = Path("consumequeue") / "T" / "0" / f"{0:020d}"
SIZE, MAGIC, PLACE, QUEUE_OFFSET, BODY = 0, 4, 28, 20, 88
"""Where these are within a record."""
SIGNS = (7, 71)
"""Of the bits of a unit, those that make it look like the end of its queue to a start."""


def body(number: int) -> bytes:
    return b"%d:" % number + b"x" * 100


def fill(root: Path) -> None:
    clock = ManualClock()
    opened, _ = open_store(root, Disk(), clock, **SIZES)
    for number in range(COUNT):
        clock.ms += 10
        tag = b"TAGS\x01a\x02KEYS\x01k%d\x02" % number
        opened.put(draft(queue_id=0, body=body(number), properties=tag))
        opened.put(draft(queue_id=1, body=b"other"))
    opened.dispatch()
    assert trio.run(opened.close)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path)
    return tmp_path


def places(root: Path) -> list[int]:
    """Where the records of queue 0 begin in the log."""
    found = [(place, read(data)) for place, data in log_records(root)]
    return [place for place, record in found if record.queue_id == 0]


def flip(path: Path, position: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


class Opened:
    """A store that serves what an earlier run wrote."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.disk = disk or ColdDisk()
        self.clock = ManualClock()
        self.store, _ = open_store(root, self.disk, self.clock, **SIZES)
        self.store.reader.cold.waits = False

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.store.reader.cold.waits = True
        trio.run(self.store.close)

    def pull(self, at: int, count: int = 32, matches: TagFilter | None = None) -> GetResult:
        return self.wait(lambda: self.store.get("T", 0, at, count, matches))

    def wait(self, call: Callable[[], T]) -> T:
        async def wait() -> T:
            return await self.store.complete(call)

        return trio.run(wait)

    def drain(self, most: int = 5) -> list[bytes]:
        """All bodies that a consumer gets, who must get on with every pull."""
        found, at = [], 0
        while True:
            result = self.pull(at, most)
            found += bodies(result)
            if result.status not in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE):
                assert result.status is GetStatus.OFFSET_OVERFLOW_ONE
                return found
            assert result.next_begin_offset > at, "nobody is held up"
            at = result.next_begin_offset


def bodies(result: GetResult) -> list[bytes]:
    found = bodies_of(result.views)
    assert result.count == len(found)
    assert result.size == sum(len(view) for view in result.views)
    return found


ALL = [body(number) for number in range(COUNT)]


@pytest.mark.parametrize("field", [SIZE + 3, SIZE, MAGIC, PLACE + 7, QUEUE_OFFSET + 1, BODY + 50])
@pytest.mark.parametrize("number", [0, 5, COUNT - 2])
@pytest.mark.parametrize("cold", [True, False])
def test_a_damaged_record_is_left_out_and_the_reader_goes_on_behind_it(
    root: Path, field: int, number: int, cold: bool
) -> None:
    place = places(root)[number]
    flip(root / LOG, place + field)
    with Opened(root, ColdDisk(cold=cold)) as opened, capture_logs() as logged:
        result = opened.pull(0)
        assert bodies(result) == ALL[:number] + ALL[number + 1 :]
        assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, COUNT)
        assert opened.store.stats.records_damaged == 1
        [event] = [one for one in logged if one["event"] == "record.damaged"]
    assert event["path"] == str(root / LOG)
    assert (event["physical_offset"], event["topic"], event["queue_id"]) == (place, "T", 0)
    assert (event["queue_offset"], event["log_level"]) == (number, "error")
    assert event["reason"]


def test_sound_records_cost_no_more_reads_and_share_a_view(root: Path) -> None:
    with Opened(root) as opened:
        result = opened.pull(0)
        assert (bodies(result), len(result.views)) == (ALL, 1)
        assert opened.store.stats.cold_reads == 2
        assert opened.store.stats.records_damaged == 0


def test_when_all_of_a_batch_is_damaged_the_client_is_sent_on_at_once(root: Path) -> None:
    for place in places(root)[2:5]:
        flip(root / LOG, place + BODY)
    with Opened(root) as opened:
        result = opened.pull(2, 3)
        assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)
        assert (result.views, result.size, result.count) == ([], 0, 0)
        assert opened.drain(3) == ALL[:2] + ALL[5:]


def test_a_message_under_the_number_of_another_is_not_given_out(root: Path) -> None:
    """A unit that leads to a sound record of some other place."""
    units = (root / UNITS).read_bytes()
    other = units[7 * UNIT_SIZE : 8 * UNIT_SIZE]
    (root / UNITS).write_bytes(units[: 3 * UNIT_SIZE] + other + units[4 * UNIT_SIZE :])
    with Opened(root) as opened:
        assert bodies(opened.pull(0)) == ALL[:3] + ALL[4:]


@pytest.mark.parametrize("bit", range(12 * 8))
def test_one_bit_of_a_unit_costs_no_more_than_its_message(root: Path, bit: int) -> None:
    flip(root / UNITS, 4 * UNIT_SIZE + bit // 8, 1 << bit % 8)
    with Opened(root) as opened:
        found = opened.drain()
        if bit in SIGNS:
            assert found == ALL, "the queue is short, and is built again"
        else:
            assert found == ALL[:4] + ALL[5:]
            assert opened.store.stats.records_damaged >= 1


def test_a_unit_that_says_much_has_its_head_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aerobee.store.messages.checked_reads, "SMALL_BYTES", 400)
    fill(tmp_path)
    flip(tmp_path / UNITS, 4 * UNIT_SIZE + 8 + 2, 4)  # 1 KiB more than it is
    disk = ColdDisk()
    with Opened(tmp_path, disk) as opened:
        disk.waited.clear()
        assert opened.drain(1) == ALL[:4] + ALL[5:]
        assert all(size < 400 for path, _, size in disk.waited if path == tmp_path / LOG)


def test_the_tags_code_is_a_filter_there_too(root: Path) -> None:
    flip(root / LOG, places(root)[3] + BODY)
    with Opened(root) as opened:
        assert bodies(opened.pull(0, 32, TagFilter([java_hash("a")]))) == ALL[:3] + ALL[4:]
        nothing = opened.pull(0, 32, TagFilter([java_hash("b")]))
        assert (nothing.count, nothing.next_begin_offset) == (0, COUNT)
        assert opened.store.stats.records_damaged == 1, "what nobody asked for is not looked at"


def test_a_read_through_a_filter_on_properties_passes_it(root: Path) -> None:
    flip(root / LOG, places(root)[3] + BODY)
    with Opened(root) as opened:
        reader = SelectiveReader(opened.store, opened.clock)
        result = opened.wait(lambda: reader.get("T", 0, 0, 32, lambda properties: True))
        assert bodies(result) == ALL[:3] + ALL[4:]
        assert result.next_begin_offset == COUNT


def test_neither_its_id_nor_its_key_finds_it(root: Path) -> None:
    damaged, sound = places(root)[3:5]
    flip(root / LOG, damaged + BODY)
    with Opened(root) as opened, capture_logs() as logged:
        assert opened.wait(lambda: opened.store.read(damaged)) is None
        assert opened.wait(lambda: opened.store.read(sound)) is not None
        [event] = [one for one in logged if one["event"] == "record.damaged"]
        assert (event["topic"], event["queue_offset"], event["reason"]) == ("T", 3, "body CRC")

        async def query(key: str) -> int:
            found = await opened.store.index.query("T", key, 32, 0, 1 << 50)
            return len(found.records)

        opened.store.reader.cold.waits = True
        assert trio.run(query, "k3") == 0
        assert trio.run(query, "k4") == 1
        assert opened.store.stats.records_damaged == 2


def test_a_place_where_no_record_begins_is_not_called_damaged(root: Path) -> None:
    with Opened(root) as opened:
        assert opened.wait(lambda: opened.store.read(places(root)[3] + 1)) is None
        assert opened.store.stats.records_damaged == 0


def test_a_reader_that_comes_again_and_again_fills_no_log(root: Path) -> None:
    flip(root / LOG, places(root)[3] + BODY)
    with Opened(root) as opened, capture_logs() as logged:
        for _ in range(10):
            opened.pull(3, 1)
        opened.clock.ms += 1_000
        opened.pull(3, 1)
    left_out = [one["left_out"] for one in logged if one["event"] == "record.damaged"]
    assert left_out == [0, 9]
    assert opened.store.stats.records_damaged == 11


@pytest.fixture
def hot(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """A store with messages of this run behind those of the last; a check is an error."""
    with Opened(root, Disk()) as opened:
        for number in range(COUNT, COUNT + 3):
            opened.store.put(draft(body=body(number)))
        opened.store.dispatch()
        row = opened.store.commit_log.queue
        row.open_files.get(row.files[-1].path)
        monkeypatch.setattr(aerobee.store.messages.checked_reads, "parse", None)
        yield opened.store
        monkeypatch.undo()


def test_what_this_run_wrote_and_maps_is_not_checked(hot: MessageStore) -> None:
    found = hot.get("T", 0, COUNT, 3)
    assert bodies(found) == [body(number) for number in range(COUNT, COUNT + 3)]
    assert hot.read(hot.commit_log.max_offset - found.size) is not None
    with pytest.raises(TypeError):
        hot.get("T", 0, COUNT - 1, 3)
    hot.reader.mapped_bytes = 0
    with pytest.raises(TypeError):
        hot.get("T", 0, COUNT, 3)


def test_a_unit_of_an_earlier_run_is_doubted_though_it_leads_to_this_one(root: Path) -> None:
    (end,) = {sum(map(len, (data for _, data in log_records(root))))}
    unit = end.to_bytes(8) + (1_000).to_bytes(4) + bytes(8)
    units = (root / UNITS).read_bytes()
    (root / UNITS).write_bytes(units[: 3 * UNIT_SIZE] + unit + units[4 * UNIT_SIZE :])
    with Opened(root) as opened:
        for number in range(COUNT, COUNT + 10):
            opened.store.put(draft(body=body(number)))
        opened.store.dispatch()
        result = opened.pull(3, 2)
        assert bodies(result) == [ALL[4]]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_whatever_bits_turn_over_only_what_was_sent_comes_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    base = tmp_path_factory.getbasetemp() / "flipped"
    if not base.exists():
        fill(base)
    scratch = base.with_name("flipped-copy")
    copytree(base, scratch)
    starts = places(base)
    try:
        # The last message tells a start whether the directory is whole.
        bounds = list(pairwise(starts))
        turned = data.draw(st.lists(st.integers(0, COUNT - 3), min_size=1, max_size=3))
        for number in turned:
            begin, end = bounds[number]
            position = data.draw(st.integers(begin, end - 1))
            flip(scratch / LOG, position, 1 << data.draw(st.integers(0, 7)))
        with Opened(scratch, ColdDisk(cold=data.draw(st.booleans()))) as opened:
            found = opened.drain(data.draw(st.integers(1, 32)))
        assert set(found) <= set(ALL)
        assert found == sorted(found, key=ALL.index)
        assert set(ALL) - set(found) <= {ALL[number] for number in turned}
    finally:
        rmtree(scratch)
