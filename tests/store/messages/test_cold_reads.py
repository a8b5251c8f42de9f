"""What lies on disk is read in threads, the rest at once; the loop itself never waits."""

import errno
import threading
from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.store.errors import NotInMemory, NotRepeatable, Unreadable
from aerobee.store.files.disk import Disk, Handle
from aerobee.store.files.open_files import OpenFiles
from aerobee.store.format.record import read
from aerobee.store.format.tags import TagFilter, java_hash
from aerobee.store.message_store import MessageStore
from aerobee.store.messages import cold_reads
from aerobee.store.messages.cold_reads import COLD_READ_THREADS, GAP_BYTES, ColdReads
from aerobee.store.results import GetResult, GetStatus
from aerobee.store.stats import StoreStats
from tests.kit.cold_disk import ColdDisk
from tests.kit.quick_disk import WornDisk
from tests.kit.records import bodies_of
from tests.kit.store_model import ManualClock, draft, open_store

COUNT = 55
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log_bytes": 1 << 14,
    "mapped_file_size_consume_queue_bytes": 400,
}


def body(number: int) -> bytes:
    return b"%d:" % number + b"x" * (number % 7 * 100)


def fill(root: Path) -> None:
    """Two queues whose records alternate, over several segments; closed."""
    clock = ManualClock()
    store, _ = open_store(root, Disk(), clock, **SIZES)
    for number in range(COUNT):
        clock.ms += 10
        tag = b"TAGS\x01a\x02" if number % 3 == 0 else b"TAGS\x01b\x02"
        store.put(draft(queue_id=0, body=body(number), properties=tag))
        store.put(draft(queue_id=1, body=b"other"))
    store.dispatch()
    assert trio.run(store.close)


def serving(root: Path, disk: Disk) -> MessageStore:
    """The store as it is while the loop serves, of an earlier run's messages."""
    store, _ = open_store(root, disk, **SIZES)
    store.reader.cold.waits = False
    return store


@pytest.fixture
def disk() -> ColdDisk:
    return ColdDisk()


@pytest.fixture
def store(tmp_path: Path, disk: ColdDisk) -> Iterator[MessageStore]:
    fill(tmp_path)
    store = serving(tmp_path, disk)
    disk.waited.clear()
    yield store
    disk.cold = False
    assert trio.run(store.close)


def pull(store: MessageStore, at: int, count: int, matches: TagFilter | None = None) -> GetResult:
    async def wait() -> GetResult:
        return await store.complete(lambda: store.get("T", 0, at, count, matches))

    return trio.run(wait)


def test_messages_on_disk_are_read_by_a_thread_and_not_by_the_loop(
    store: MessageStore, disk: ColdDisk
) -> None:
    with pytest.raises(NotInMemory, match="from disk"):
        store.get("T", 0, 3, 5)
    assert not disk.waited, "the loop went to the disk"
    result = pull(store, 3, 5)
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 8)
    assert bodies_of(result.views) == [body(number) for number in range(3, 8)]
    assert len(disk.waited) == 2, "one read of the units, one of the records and the gaps between"
    assert store.stats.cold_reads == 2


def test_messages_in_the_page_cache_are_answered_at_once(
    store: MessageStore, disk: ColdDisk
) -> None:
    pull(store, 3, 5)
    disk.cold = False
    disk.waited.clear()
    assert bodies_of(store.get("T", 0, 3, 5).views) == [body(number) for number in range(3, 8)]
    assert not disk.waited
    assert store.stats.cold_reads == 2


def test_a_file_system_that_cannot_say_what_is_cached_is_always_read_by_a_thread(
    store: MessageStore, disk: ColdDisk
) -> None:
    disk.reason = errno.EOPNOTSUPP
    assert bodies_of(pull(store, 0, 4).views) == [body(number) for number in range(4)]
    with pytest.raises(NotInMemory):
        store.get("T", 0, 0, 4)


def test_an_answer_holds_its_records_and_not_what_lay_between_them(store: MessageStore) -> None:
    result = pull(store, 0, 8)
    assert len(result.views) == 1
    assert isinstance(result.views[0].obj, bytes)
    assert len(result.views[0].obj) == result.size


def test_records_far_apart_are_read_in_pieces(tmp_path: Path, disk: ColdDisk) -> None:
    store, _ = open_store(tmp_path, Disk(), mapped_file_size_commit_log_bytes=1 << 20)
    for number in range(2):
        store.put(draft(body=body(number)))
        store.put(draft(queue_id=1, body=bytes(2 * GAP_BYTES)))
    store.dispatch()
    trio.run(store.close)
    again, _ = open_store(tmp_path, disk)
    again.reader.cold.waits = False
    disk.waited.clear()
    result = pull(again, 0, 2)
    assert bodies_of(result.views) == [body(0), body(1)]
    assert all(size < GAP_BYTES for _, _, size in disk.waited)
    trio.run(again.close)


def test_what_this_run_wrote_last_is_read_through_the_mapping(
    store: MessageStore, disk: ColdDisk
) -> None:
    for number in range(COUNT, COUNT + 3):
        store.put(draft(body=body(number)))
    store.dispatch()
    result = store.get("T", 0, COUNT, 3)
    assert bodies_of(result.views) == [body(number) for number in range(COUNT, COUNT + 3)]
    assert not disk.waited
    store.reader.mapped_bytes = 0
    with pytest.raises(NotInMemory):
        store.get("T", 0, COUNT, 3)


def test_a_pull_may_begin_on_disk_and_end_in_memory(store: MessageStore) -> None:
    store.put(draft(body=body(COUNT)))
    store.dispatch()
    result = pull(store, COUNT - 2, 3)
    assert bodies_of(result.views) == [body(number) for number in range(COUNT - 2, COUNT + 1)]


@settings(deadline=None)
@given(at=st.integers(0, COUNT), count=st.integers(1, 40), tagged=st.booleans())
def test_from_disk_comes_what_would_come_from_memory(
    tmp_path_factory: pytest.TempPathFactory, at: int, count: int, tagged: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / "same"
    if not root.exists():
        fill(root)
    matches = TagFilter([java_hash("a")]) if tagged else None
    answers = []
    for disk in (Disk(), ColdDisk()):
        store = serving(root, disk)
        answers.append(pull(store, at, count, matches))
        store.reader.cold.waits = True
        trio.run(store.close)
    warm, cold = answers
    assert bodies_of(cold.views) == bodies_of(warm.views)
    assert cold.next_begin_offset == warm.next_begin_offset
    assert (cold.status, cold.size, cold.count) == (warm.status, warm.size, warm.count)


def test_searches_and_single_messages_take_the_same_way(
    store: MessageStore, disk: ColdDisk
) -> None:
    start = ManualClock().ms

    async def ask() -> None:
        search = store.complete
        assert await search(lambda: store.offset_by_time("T", 0, start + 255)) == 25
        assert await search(lambda: store.earliest_time("T", 0)) == start + 10
        assert await search(lambda: store.is_hot("T", 0, 0))
        record = await search(lambda: store.read(0))
        assert record is not None
        assert bytes(read(record).body) == body(0)
        assert await search(lambda: store.read(5)) is None

    for call in (
        lambda: store.offset_by_time("T", 0, start),
        lambda: store.earliest_time("T", 0),
        lambda: store.is_hot("T", 0, 0),
        lambda: store.read(0),
    ):
        with pytest.raises(NotInMemory):
            call()
    assert not disk.waited
    trio.run(ask)


def test_records_on_disk_are_read_together(store: MessageStore) -> None:
    async def unit_of(number: int) -> tuple[int, int]:
        queue, read_units = store.queues.table["T", 0], store.reader.cold.units
        unit = await store.complete(lambda: queue.unit(number, read_units))
        assert unit is not None
        return unit.physical_offset, unit.size

    async def read_all() -> None:
        places = [await unit_of(number) for number in range(0, COUNT, 5)]
        with pytest.raises(NotInMemory) as miss:
            store.reader.records(places)
        assert len(miss.value.pieces) == len(places)
        views = await store.complete(lambda: store.reader.records(places))
        found = [bytes(read(view).body) for view in views if view is not None]
        assert found == [body(number) for number in range(0, COUNT, 5)]

    trio.run(read_all)


def test_a_file_deleted_under_a_read_is_asked_for_again(
    store: MessageStore, disk: ColdDisk
) -> None:
    with pytest.raises(NotInMemory) as miss:
        store.read(0)
    first = miss.value.pieces[0].path
    calls = 0

    def call() -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            store.commit_log.queue.files.pop(0)
        return store.read(0)

    first.unlink()
    assert trio.run(store.complete, call) is None
    assert calls == 2


def test_a_file_that_is_gone_for_good_is_an_error(store: MessageStore) -> None:
    store.commit_log.queue.files[0].path.unlink()
    with pytest.raises(FileNotFoundError):
        pull(store, 0, 1)


def test_a_file_shorter_than_its_name_promises_is_an_error(
    store: MessageStore, disk: ColdDisk
) -> None:
    path = store.commit_log.queue.files[0].path
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(10)
    with pytest.raises(OSError, match="ends before byte"):
        pull(store, 0, 1)
    with path.open("r+b") as file:
        file.truncate(size)


def test_reads_from_disk_share_a_few_threads(store: MessageStore) -> None:
    async def many() -> None:
        async with trio.open_nursery() as nursery:
            for at in range(3 * COLD_READ_THREADS):
                nursery.start_soon(store.complete, lambda at=at: store.get("T", 0, at, 1))
            await trio.testing.wait_all_tasks_blocked()
            limiter = store.reader.cold.limiter
            assert limiter.total_tokens == COLD_READ_THREADS
            assert limiter.borrowed_tokens <= COLD_READ_THREADS

    trio.run(many)


@pytest.mark.trio
async def test_a_file_that_was_never_open_is_opened_by_a_thread_first(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    path.write_bytes(bytes(range(200)))
    loop = threading.get_ident()
    opened_by: list[int] = []

    class WatchedDisk(Disk):
        def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Handle:
            opened_by.append(threading.get_ident())
            return super().open(path, create=create, writable=writable)

    disk = WatchedDisk()
    cold, files = ColdReads(disk, StoreStats(), ManualClock()), OpenFiles(disk)
    cold.waits = False
    read = await cold.complete(lambda: cold.units(files, path, 20, 40))
    assert read == bytes(range(20, 60))
    assert opened_by[0] != loop, "the first look at a file may wait for the disk"
    assert cold.units(files, path, 60, 20) == bytes(range(60, 80)), "from the page cache, at once"
    files.close()


def test_a_call_that_has_put_something_is_not_made_again(store: MessageStore) -> None:
    puts = 0

    def call() -> None:
        nonlocal puts
        puts += 1
        store.put(draft(queue_id=0, body=b"new"))
        store.get("T", 1, 0, 1)

    with pytest.raises(NotRepeatable):
        store.reading(call)
    with pytest.raises(NotRepeatable):
        trio.run(store.complete, call)
    assert puts == 2


def test_a_call_that_never_has_enough_comes_to_an_end(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_reads, "REPEATS_MAX", 5)
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise NotInMemory(())

    with pytest.raises(NotRepeatable, match="5 times"):
        trio.run(store.complete, call)
    assert calls == 5


@pytest.mark.trio
async def test_calls_that_get_their_data_at_the_same_moment_take_turns_with_others() -> None:
    clock = ManualClock()
    cold = ColdReads(Disk(), StoreStats(), clock)
    calls: list[int] = []
    seen: list[int] = []

    def call(number: int, cost_ms: int) -> int:
        clock.ms += cost_ms
        calls.append(number)
        return number

    async def others() -> None:
        while len(calls) < 40:
            await trio.lowlevel.checkpoint()
            seen.append(len(calls))

    for cost_ms, most in ((9, 2), (0, 40)):
        calls.clear()
        seen[:] = [0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            for number in range(40):
                nursery.start_soon(cold.complete, partial(call, number, cost_ms))
        steps = [after - before for before, after in pairwise(seen)]
        assert sorted(calls) == list(range(40))
        assert max(steps) <= most, "calls between two turns of another task"
        assert most == 2 or len(steps) < 10, "what is short needs no turns"


@pytest.mark.trio
async def test_messages_in_front_of_one_that_the_disk_cannot_read_are_read_by_halves(
    tmp_path: Path,
) -> None:
    disk = WornDisk()
    store, _ = open_store(tmp_path, disk)
    for number in range(8):
        store.put(draft(body=b"worn" if number == 5 else b"%d" % number))
    store.dispatch()
    assert await store.close()
    store = serving(tmp_path, disk)
    disk.bad = b"worn"
    asked: list[int] = []

    def read_some(at: int, most: int) -> GetResult:
        asked.append(most)
        return store.get("T", 0, at, most, max_count=most)

    first = await store.complete_some(partial(read_some, 0), 8)
    assert bodies_of(first.views) == [b"0", b"1", b"2", b"3"]
    asked.clear()
    with pytest.raises(Unreadable, match=f"commitlog/{0:020}"):
        await store.complete_some(partial(read_some, 5), 3, alone=2)
    assert [most for most, _ in groupby(asked)] == [3, 1]
    behind = await store.complete_some(partial(read_some, 6), 8)
    assert bodies_of(behind.views) == [b"6", b"7"]
    assert await store.close()


@pytest.mark.trio
async def test_a_search_by_time_goes_beside_what_the_disk_cannot_read(tmp_path: Path) -> None:
    disk, clock, count, worn = WornDisk(), ManualClock(), 64, {30, 31, 32, 33, 34, 48, 63}
    start = clock.ms
    store, _ = open_store(tmp_path, disk, clock)
    for number in range(count):
        clock.ms = start + 10 * number
        message = draft()
        message.flag = 0x776F726E if number in worn else 0
        store.put(message)
    store.dispatch()
    assert await store.close()
    store = serving(tmp_path, disk)
    disk.bad = b"worn"
    for number in range(count + 1):
        search = partial(store.offset_by_time, "T", 0, start + 10 * number)
        found, last = await store.complete(search), await store.complete(partial(search, True))
        following = min(n for n in range(number, count + 2) if n not in worn)
        first = max(n for n in range(-1, number) if n not in worn) + 1
        assert first <= found <= min(following, count), "no message of that time is passed over"
        readable = [n for n in range(min(number + 1, count)) if n not in worn]
        assert readable[-1] <= last <= min(number, count - 1)
    assert await store.close()
