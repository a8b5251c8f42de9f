"""Reading through a filter on properties: what is found, where it goes on, and when it stops."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.errors import NotInMemory
from aerobee.store.files.disk import Disk
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetResult, GetStatus
from aerobee.store.selection import SCAN_BYTES, SCAN_S, STRIDE, SelectiveReader
from tests.kit.cold_disk import ColdDisk
from tests.kit.records import bodies_of
from tests.kit.store_model import ManualClock, draft, open_store

EVEN = b"even\x01yes\x02"
ODD = b"even\x01no\x02"
COUNT = 900


def is_even(properties: bytes) -> bool:
    return properties == EVEN


def nothing(properties: bytes) -> bool:
    return False


def everything(properties: bytes) -> bool:
    return True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def opened(root: Path, disk: Disk, clock: ManualClock) -> MessageStore:
    sizes = {"mapped_file_size_commit_log_bytes": 1 << 20}
    return open_store(root, disk, clock, **sizes, mapped_file_size_consume_queue_bytes=20 * 1_000)[
        0
    ]


def fill(store: MessageStore, count: int = COUNT, size: int = 3) -> None:
    for number in range(count):
        store.put(
            draft(body=(b"%03d" % number).ljust(size), properties=ODD if number % 2 else EVEN)
        )
    store.dispatch()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    store = opened(tmp_path, Disk(), clock)
    yield store
    assert trio.run(store.close)


def numbers(result: GetResult) -> list[int]:
    found = [int(body) for body in bodies_of(result.views)]
    assert len(found) == result.count
    assert sum(map(len, result.views)) == result.size
    return found


def test_what_is_wanted_comes_and_the_rest_is_passed(
    store: MessageStore, clock: ManualClock
) -> None:
    fill(store)
    result = SelectiveReader(store, clock).get("T", 0, 3, 5, is_even)
    assert numbers(result) == [4, 6, 8, 10, 12]
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 13)
    assert (result.min_offset, result.max_offset) == (0, COUNT)
    assert (store.stats.messages_got, store.stats.bytes_got) == (5, result.size)


def test_wanted_records_side_by_side_are_one_view(store: MessageStore, clock: ManualClock) -> None:
    fill(store, 40)
    result = SelectiveReader(store, clock).get("T", 0, 0, 32, everything)
    assert (len(result.views), result.count, result.next_begin_offset) == (1, 32, 32)
    assert result.views[0] == store.get("T", 0, 0, 32).views[0]


def test_at_the_end_of_the_queue_the_rejected_ones_count_as_passed(
    store: MessageStore, clock: ManualClock
) -> None:
    fill(store, 10)
    result = SelectiveReader(store, clock).get("T", 0, 8, 5, is_even)
    assert (numbers(result), result.next_begin_offset) == ([8], 10)


def test_when_nothing_is_wanted_the_reader_goes_on_behind_what_was_looked_at(
    store: MessageStore, clock: ManualClock
) -> None:
    fill(store)
    reader = SelectiveReader(store, clock)
    result = reader.get("T", 0, 50, 32, nothing)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 850)
    assert (result.views, store.stats.messages_got) == ([], 0)
    assert reader.get("T", 0, 850, 32, nothing).next_begin_offset == COUNT
    assert reader.get("T", 0, COUNT, 32, nothing).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert reader.get("U", 0, 0, 32, nothing).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_limits_hold_for_what_is_wanted_and_the_first_always_comes(
    store: MessageStore, clock: ManualClock
) -> None:
    fill(store, 64)
    reader = SelectiveReader(store, clock)
    assert numbers(reader.get("T", 0, 0, 0, is_even)) == [0]
    assert numbers(reader.get("T", 0, 0, 32, is_even, max_bytes=1)) == [0]
    assert len(numbers(reader.get("T", 0, 0, 64, everything))) == 32, "32 in memory"
    assert len(numbers(reader.get("T", 0, 0, 64, everything, max_count=50))) == 50
    one = reader.get("T", 0, 0, 1, is_even).size
    assert numbers(reader.get("T", 0, 0, 32, is_even, max_bytes=2 * one)) == [0, 2]
    store.reader.memory_bytes = 0
    assert len(numbers(reader.get("T", 0, 0, 32, is_even))) == 8, "8 on disk"


def test_a_slow_filter_ends_the_read_and_the_next_one_goes_on(
    store: MessageStore, clock: ManualClock
) -> None:
    fill(store, 100)

    def slow(properties: bytes) -> bool:
        clock.ms += int(SCAN_S * 1_000)
        return False

    result = SelectiveReader(store, clock).get("T", 0, 0, 32, slow)
    assert (result.status, result.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, STRIDE - 1)
    assert result.next_begin_offset > 0, "every read gets on"


def test_big_records_end_the_read_by_their_bytes(tmp_path: Path, clock: ManualClock) -> None:
    store = opened(tmp_path, Disk(), clock)
    size = 500_000
    fill(store, 20, size=size)
    result = SelectiveReader(store, clock).get("T", 0, 0, 32, nothing)
    assert result.next_begin_offset == SCAN_BYTES // (size + 120)
    assert trio.run(store.close)


@settings(deadline=None)
@given(at=st.integers(0, 300), count=st.integers(1, 40))
def test_from_disk_comes_what_would_come_from_memory(
    tmp_path_factory: pytest.TempPathFactory, at: int, count: int
) -> None:
    root, clock = tmp_path_factory.getbasetemp() / "selection", ManualClock()
    if not root.exists():
        first = opened(root, Disk(), clock)
        fill(first, 300)
        assert trio.run(first.close)
    results = []
    for disk in (Disk(), ColdDisk()):
        store = opened(root, disk, clock)
        store.reader.cold.waits = False
        reader = SelectiveReader(store, clock)

        async def wait(store: MessageStore = store, reader: SelectiveReader = reader) -> GetResult:
            return await store.complete(lambda: reader.get("T", 0, at, count, is_even))

        if isinstance(disk, ColdDisk):
            disk.waited.clear()
            if at < 300:
                with pytest.raises(NotInMemory):
                    reader.get("T", 0, at, count, is_even)
            result = trio.run(wait)
            assert len(disk.waited) <= 3, "two blocks of units at most, all records at once"
        else:
            result = trio.run(wait)
        results.append((numbers(result), result.next_begin_offset, result.status))
        store.reader.cold.waits = True
        trio.run(store.close)
    warm, cold = results
    assert cold == warm
