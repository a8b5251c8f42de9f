"""Reading queues: every status, the limits of a batch, views, searches."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.files.disk import Disk
from aerobee.store.format.record import records
from aerobee.store.format.tags import TagFilter, java_hash
from aerobee.store.message_store import MessageStore
from aerobee.store.messages import reader
from aerobee.store.results import GetStatus
from tests.kit.records import bodies_of
from tests.kit.store_model import (
    LOG_BYTES,
    QUEUE_BYTES,
    ManualClock,
    Sent,
    draft,
    open_store,
    read_queue,
)

FIXED = 92
BIG_QUEUE = 20 * 1_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> MessageStore:
    return open_store(
        tmp_path,
        Disk(),
        clock,
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=BIG_QUEUE,
    )[0]


def fill(
    store: MessageStore, count: int, *, tag: bytes = b"", queue_id: int = 0, size: int = 5
) -> None:
    properties = b"TAGS\x01" + tag + b"\x02" if tag else b""
    for number in range(count):
        store.put(
            draft(queue_id=queue_id, body=bytes([number % 256]) * size, properties=properties)
        )
    store.dispatch()


# ── Statuses ──


@pytest.mark.parametrize("offset", [0, 5])
def test_a_queue_never_written_is_empty(store: MessageStore, offset: int) -> None:
    result = store.get("T", 0, offset, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, 0)
    assert not store.queues.table
    store.put(draft())
    assert store.get("T", 0, offset, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (3, GetStatus.OFFSET_TOO_SMALL, 4),
        (4, GetStatus.FOUND, 10),
        (9, GetStatus.FOUND, 10),
        (10, GetStatus.OFFSET_OVERFLOW_ONE, 10),
        (11, GetStatus.OFFSET_OVERFLOW_BADLY, 10),
        (-1, GetStatus.OFFSET_TOO_SMALL, 4),
    ],
)
def test_the_offset_decides(
    store: MessageStore, offset: int, status: GetStatus, following: int
) -> None:
    fill(store, 10)
    store.queues.table["T", 0].correct_min_offset(4 * (FIXED + 5))
    result = store.get("T", 0, offset, 32)
    assert (result.status, result.next_begin_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (4, 10)


def test_a_missing_queue_file_sends_the_reader_to_the_next_one(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    per_file = QUEUE_BYTES // 20
    for _ in range(250):
        store.put(draft(body=b""))
    store.dispatch()
    store.queues.write_all(sync=False)
    queue = store.queues.table["T", 0]
    queue.remove_files_from(0)
    result = store.get("T", 0, 3, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_FOUND_NULL, per_file)


def test_a_part_of_the_log_that_is_gone_is_skipped_without_a_word(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk(), mapped_file_size_consume_queue_bytes=BIG_QUEUE)
    fill(store, 100, size=100)
    store.commit_log.queue.take_first().path.unlink()
    gone = next(
        n for n in range(100) if (store.queues.table["T", 0].unit(n) or (0,))[0] >= LOG_BYTES
    )
    result = store.get("T", 0, 0, 5)
    assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 5)
    result = store.get("T", 0, gone - 2, 5)
    assert (result.status, result.count) == (GetStatus.FOUND, 3)
    assert result.next_begin_offset == gone + 3
    assert bodies_of(result.views)[0] == bytes([gone]) * 100


def test_when_nothing_matches_the_reader_goes_on_behind_what_was_looked_at(
    store: MessageStore,
) -> None:
    fill(store, 900, tag=b"A")
    only_b = TagFilter.parse("B")
    result = store.get("T", 0, 50, 32, only_b)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 850)
    result = store.get("T", 0, 850, 32, only_b)
    assert result.next_begin_offset == 900


def test_one_read_looks_at_so_many_units_whatever_was_asked_for(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SCAN_UNITS", 100)
    fill(store, 350, tag=b"A")
    only_b = TagFilter.parse("B")
    most = (1 << 31) - 1
    seen, at = [], 0
    while (result := store.get("T", 0, at, most, only_b)).next_begin_offset > at:
        at = result.next_begin_offset
        seen.append(at)
    assert seen == [100, 200, 300, 350]
    assert store.get("T", 0, 0, most, max_bytes=most, max_count=most).count == 100


# ── Limits ──


def test_a_batch_ends_at_the_number_asked_for(store: MessageStore) -> None:
    fill(store, 40)
    assert store.get("T", 0, 0, 7).count == 7
    assert store.get("T", 0, 0, 0).count == 1
    assert store.get("T", 0, 0, 100).count == 32, "the limit for what is in memory"
    assert store.get("T", 0, 0, 100, max_count=40).count == 40


def test_a_batch_ends_before_the_message_that_exceeds_its_bytes(store: MessageStore) -> None:
    fill(store, 10, size=1_000)
    size = FIXED + 1_000
    assert store.get("T", 0, 0, 32, max_bytes=3 * size).count == 3
    assert store.get("T", 0, 0, 32, max_bytes=3 * size - 1).count == 2
    assert store.get("T", 0, 0, 32, max_bytes=1).count == 1, "the first one always"
    assert store.get("T", 0, 0, 32, TagFilter([0]), max_bytes=3 * size).count == 3


def test_far_behind_the_end_smaller_limits_hold(store: MessageStore) -> None:
    fill(store, 40)
    store.reader.memory_bytes = 10 * (FIXED + 5)
    result = store.get("T", 0, 0, 32)
    assert (result.count, result.suggest_slave) == (8, True)
    result = store.get("T", 0, 0, 32, TagFilter([0]))
    assert (result.count, result.next_begin_offset) == (8, 8)
    result = store.get("T", 0, 30, 32)
    assert (result.count, result.suggest_slave) == (10, False)
    assert store.is_hot("T", 0, 35)
    assert not store.is_hot("T", 0, 3)
    assert store.is_hot("T", 0, 99), "where there is none"


def test_records_side_by_side_share_a_view(store: MessageStore) -> None:
    fill(store, 5)
    fill(store, 1, queue_id=1)
    fill(store, 3)
    result = store.get("T", 0, 0, 32)
    assert [len(view) // (FIXED + 5) for view in result.views] == [5, 3]
    assert result.size == sum(len(view) for view in result.views) == 8 * (FIXED + 5)
    assert all(view.readonly for view in result.views)


def test_a_view_ends_with_its_segment(store: MessageStore) -> None:
    while len(store.commit_log.queue.files) < 2:
        fill(store, 1, size=1_000)
    fill(store, 3, size=1_000)
    at = store.max_offset("T", 0) - 8
    result = store.get("T", 0, at, 8)
    assert [len(view) // (FIXED + 1_000) for view in result.views] == [4, 4]
    assert [record.queue_offset for record in records(result.views)] == [*range(at, at + 8)]
    assert store.get("T", 0, at + 4, 4).count == 4


def test_many_records_are_found_as_single_ones_are(store: MessageStore) -> None:
    while len(store.commit_log.queue.files) < 2:
        fill(store, 1, size=100_000)
    fill(store, 3)
    queue = store.queues.table["T", 0]
    units = [queue.unit(at) for at in range(queue.end_offset)]
    sound = [(unit.physical_offset, unit.size) for unit in units if unit is not None]
    (at, size), end = sound[-2], store.commit_log.max_offset
    wrong = [(at + 1, size), (at, size - 1), (at, size + 1), (at, 0), (at, 1 << 30)]
    wrong += [(end, size), (end - 4, 92), (-1, size), (1 << 40, size)]
    places = [place for pair in zip(wrong, sound, strict=False) for place in pair]
    for mapped_bytes in (store.reader.mapped_bytes, size, 0):
        store.reader.mapped_bytes = mapped_bytes
        found = store.reader.records([*places, *wrong])
        assert found == [store.read(*place) for place in [*places, *wrong]]
        assert None not in found[1 : len(places) : 2]
        # Of a damaged unit: no such number of bytes can be read.
        assert store.reader.records([(at, -1)]) == [None]


def test_views_stay_readable_when_the_segment_is_gone(store: MessageStore) -> None:
    fill(store, 3)
    result = store.get("T", 0, 0, 32)
    store.commit_log.close()
    for path in (store.root / "commitlog").iterdir():
        path.unlink()
    assert bodies_of(result.views) == [bytes([n]) * 5 for n in range(3)]


@given(
    tags=st.lists(st.sampled_from([b"A", b"B", b"C", b""]), max_size=60),
    wanted=st.sets(st.sampled_from(["A", "B"])),
    page=st.integers(1, 40),
)
def test_paging_returns_each_matching_message_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, tags: list[bytes], wanted: set[str], page: int
) -> None:
    store, _ = open_store(tmp_path_factory.mktemp("store"), Disk())
    for number, tag in enumerate(tags):
        fill(store, 1, tag=tag, queue_id=0, size=number)
        fill(store, number % 2, queue_id=1, size=number)
    matches = TagFilter(map(java_hash, wanted)) if wanted else None
    found = []
    at = 0
    while at < len(tags):
        result = store.get("T", 0, at, page, matches)
        found += [len(body) for body in bodies_of(result.views)]
        assert result.next_begin_offset > at
        at = result.next_begin_offset
    expected = [n for n, tag in enumerate(tags) if not wanted or tag.decode() in wanted]
    assert found == expected


def test_what_is_read_live_is_read_after_a_restart(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    fill(store, 35)
    before = read_queue(store, "T", 0)
    store.let_go()
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    assert read_queue(store, "T", 0) == before
    assert before[3] == Sent(bytes([3]) * 5, b"")


# ── Searches ──


def test_an_unknown_queue_has_no_offsets_and_no_times(store: MessageStore) -> None:
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 0)
    assert store.offset_by_time("T", 0, 5) == 0
    assert store.store_time("T", 0, 0) == -1
    assert store.earliest_time("T", 0) == -1
    assert store.read(0) is None


def test_the_example_of_equal_times(store: MessageStore, clock: ManualClock) -> None:
    start = clock.ms
    for at, count in ((0, 1), (10, 3), (30, 2)):
        clock.ms = start + at
        fill(store, count)
    between = start + 20
    assert store.offset_by_time("T", 0, between) == 4
    assert store.offset_by_time("T", 0, between, upper=True) == 3
    assert store.offset_by_time("T", 0, start + 10) == 1
    assert store.offset_by_time("T", 0, start + 10, upper=True) == 3
    assert store.offset_by_time("T", 0, 0) == store.offset_by_time("T", 0, 0, upper=True) == 0
    assert store.offset_by_time("T", 0, start + 99) == 6
    assert store.offset_by_time("T", 0, start + 99, upper=True) == 5
    assert store.earliest_time("T", 0) == start
    assert store.store_time("T", 0, 5) == start + 30
    assert store.store_time("T", 0, 6) == -1


@given(
    steps=st.lists(st.integers(0, 3), max_size=40),
    asked=st.integers(-2, 80),
    gone=st.integers(0, 3),
)
def test_searches_by_time_equal_a_linear_scan(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], asked: int, gone: int
) -> None:
    clock = ManualClock()
    start = clock.ms
    store, _ = open_store(tmp_path_factory.mktemp("store"), Disk(), clock)
    times = []
    for step in steps:
        clock.ms += step
        times.append(clock.ms - start)
        fill(store, 1, size=300)
    while gone and len(store.commit_log.queue.files) > 1:
        store.commit_log.queue.take_first().path.unlink()
        gone -= 1
    store.queues.correct_min_offsets(store.commit_log.min_offset)
    low, high = store.min_offset("T", 0), store.max_offset("T", 0)
    later = [n for n in range(low, high) if times[n] >= asked]
    earlier = [n for n in range(low, high) if times[n] <= asked]
    assert store.offset_by_time("T", 0, start + asked) == min(later, default=high)
    assert store.offset_by_time("T", 0, start + asked, upper=True) == max(earlier, default=low)
