"""The next segment ahead of its need; the needed one that cannot be had."""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.store.flags import Flag
from aerobee.store.format.names import is_spare, segment_name, spare_path
from aerobee.store.log.allocate import LATE_S, LOOK_S, RETRY_S
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutStatus
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.running_store import put_in_time, running_store
from tests.kit.store_model import LOG_BYTES, draft, read_queue
from tests.kit.virtual_time import Opening

BIG = bytes(3_000)
NO_ROOM = {"name": "posix_fallocate", "error": errno.ENOSPC}


def spares(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if is_spare(path.name))


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


async def until_ready(store: MessageStore, start: int) -> None:
    """Wait until the segment is made that begins there."""
    path = store.commit_log.queue.path_of(start)
    for _ in range(2_000):
        if (ready := store.space.allocator.ready) is not None and ready.path == path:
            assert [*spares(store.root)] == [spare_path(path).name]
            return
        await trio.to_thread.run_sync(threading.Event().wait, 0.005)
    raise AssertionError(spares(store.root))


@pytest.mark.trio
async def test_the_segment_behind_the_current_one_is_prepared_elsewhere(tmp_path: Path) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), prepares=True) as store:
        await until_ready(store, 0)
        assert segments(tmp_path) == []
        store.put(draft())
        assert segments(tmp_path) == [segment_name(0)]
        await until_ready(store, LOG_BYTES)
        assert segments(tmp_path) == [segment_name(0)]
        store.dispatch()
    assert spares(tmp_path) == [], "a clean close removes it"


@pytest.mark.trio
async def test_a_stop_has_the_room_of_the_segment_that_was_made_ahead(tmp_path: Path) -> None:
    """Else the disk may be too full for the tables, and the stop is not clean."""
    async with running_store(tmp_path, FaultyDisk(tmp_path), prepares=True) as store:
        assert (await put_in_time(store, draft())).status is PutStatus.PUT_OK
        await until_ready(store, LOG_BYTES)
        await store.space.make_room()
        assert spares(tmp_path) == []
        store.space.allocator.retry()
        await wait_all_tasks_blocked()
        assert spares(tmp_path) == []


@pytest.mark.trio
async def test_large_segments_get_their_successor_when_they_are_half_full(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.allocate.AHEAD_BYTES", 0)

    async def looked() -> None:
        for _ in range(3):
            mock_clock.jump(LOOK_S)
            await wait_all_tasks_blocked(0.01)

    async with running_store(tmp_path, FaultyDisk(tmp_path), prepares=True) as store:
        await until_ready(store, 0)
        while store.commit_log.max_offset < LOG_BYTES // 2 - 200:
            assert store.put(draft()).status is PutStatus.PUT_OK
        await looked()
        assert spares(tmp_path) == [], "a few messages do not take the room of two segments"
        while store.commit_log.max_offset < LOG_BYTES // 2:
            assert store.put(draft()).status is PutStatus.PUT_OK
        await looked()
        await until_ready(store, LOG_BYTES)
        store.dispatch()
    async with running_store(tmp_path, FaultyDisk(tmp_path), prepares=True) as store:
        await until_ready(store, LOG_BYTES)


@pytest.mark.trio
async def test_a_roll_before_half_of_the_segment_is_full_makes_the_next_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.allocate.AHEAD_BYTES", 0)
    async with running_store(tmp_path, FaultyDisk(tmp_path), prepares=True) as store:
        assert (await put_in_time(store, draft())).status is PutStatus.PUT_OK
        for number in range(1, 4):
            placed = await put_in_time(store, draft(body=bytes(3_900)))
            assert placed.physical_offset == number * LOG_BYTES
        store.dispatch()


@pytest.mark.trio
async def test_a_roll_onto_a_prepared_segment_allocates_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await put_in_time(store, draft(body=BIG))
        await until_ready(store, LOG_BYTES)
        names: list[str] = []

        def note(call: Call) -> None:
            # The index may read what came before, in its thread.
            if threading.current_thread() is MAIN:
                names.append(call.name)

        disk.before = note
        assert store.put(draft(body=BIG)).physical_offset == LOG_BYTES
        disk.before = None
        assert names == ["replace", "mmap"]
        store.dispatch()


@pytest.mark.trio
async def test_rolls_that_come_before_their_segments_are_put_off_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        for number in range(8):
            result = await put_in_time(store, draft(body=BIG))
            assert (result.physical_offset, result.queue_offset) == (number * LOG_BYTES, number)
        assert store.put(draft(body=BIG)).status is PutStatus.SEGMENT_LATE
        assert store.stats.puts_refused == 0
        store.dispatch()
        assert len(read_queue(store, "T", 0)) == len(segments(tmp_path)) == 8


@contextmanager
def held_up(disk: FaultyDisk) -> Iterator[threading.Event]:
    """The disk makes no segment in a thread before the event is set, or the block ends."""
    go_on = Opening()

    def wait(call: Call) -> None:
        if call.name == "posix_fallocate" and threading.current_thread() is not MAIN:
            assert go_on.wait(10)

    disk.before = wait
    try:
        yield go_on
    finally:
        go_on.set()


@pytest.mark.trio
async def test_a_segment_half_made_by_the_thread_is_taken_when_it_is_done(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with held_up(disk) as go_on:
        async with running_store(tmp_path, disk, prepares=True) as store:
            assert store.put(draft()).status is PutStatus.SEGMENT_LATE
            go_on.set()
            assert (await put_in_time(store, draft())).physical_offset == 0
            made = [call for call in disk.calls if call.name == "posix_fallocate"]
            assert len(made) == 1
            store.dispatch()


@pytest.mark.trio
async def test_what_is_put_off_for_too_long_is_refused_until_the_segment_is_there(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    with held_up(disk) as go_on:
        async with running_store(tmp_path, disk, prepares=True) as store:
            statuses: list[PutStatus] = []

            async def put() -> None:
                statuses.append((await put_in_time(store, draft())).status)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(put)
                nursery.start_soon(put)
                await wait_all_tasks_blocked(0.01)
                mock_clock.jump(LATE_S - 0.1)
                await wait_all_tasks_blocked(0.01)
                assert statuses == []
                mock_clock.jump(0.1)
            assert statuses == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
            assert "too slow" in store.flags.cause
            go_on.set()
            with trio.fail_after(60):
                while store.flags.refusing:
                    await trio.to_thread.run_sync(threading.Event().wait, 0.005)
            assert store.put(draft()).physical_offset == 0
            store.dispatch()


@pytest.mark.trio
async def test_a_stop_while_a_segment_is_made_keeps_nothing_of_it(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with held_up(disk) as go_on:
        async with running_store(tmp_path, disk, prepares=True) as store:
            assert store.put(draft()).status is PutStatus.SEGMENT_LATE
            threading.Timer(0.05, go_on.set).start()
    assert spares(tmp_path) == segments(tmp_path) == []


MAIN = threading.main_thread()


@pytest.mark.trio
async def test_no_room_for_a_segment_that_is_not_needed_yet_refuses_nothing(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await until_ready(store, 0)
        disk.faults.append(Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        assert store.put(draft()).status is PutStatus.PUT_OK
        await trio.to_thread.run_sync(threading.Event().wait, 0.05)
        assert store.put(draft()).status is PutStatus.PUT_OK
        assert not store.flags.refusing
        assert spares(tmp_path) == []
        store.dispatch()


@pytest.mark.trio
async def test_a_segment_that_is_needed_right_behind_a_failed_try_is_made_at_once(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ten seconds later: the clock stands."""
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await until_ready(store, 0)
        token, statuses = trio.lowlevel.current_trio_token(), list[PutStatus]()

        def need() -> None:
            statuses.append(store.put(draft(body=BIG)).status)

        def warned(*_: object, **__: object) -> None:
            # Others have their turn before the allocator waits.
            token.run_sync_soon(need)

        monkeypatch.setattr("aerobee.store.log.allocate.log.warning", warned)
        disk.faults.append(Fault(**NO_ROOM))  # type: ignore[arg-type]  # as declared above
        assert store.put(draft(body=BIG)).status is PutStatus.PUT_OK
        await until_ready(store, LOG_BYTES)
        assert statuses == [PutStatus.SEGMENT_LATE]
        assert store.put(draft(body=BIG)).physical_offset == LOG_BYTES
        store.dispatch()


@pytest.mark.trio
async def test_without_a_needed_segment_writes_are_refused_and_go_on_by_themselves(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await until_ready(store, 0)
        disk.faults.append(full := Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        assert store.put(draft(body=BIG)).status is PutStatus.PUT_OK
        refused = await put_in_time(store, draft(body=BIG))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.flags.has(Flag.DISK_FULL)
        assert "space" in store.flags.cause
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE, "also a small one"
        store.dispatch()
        assert len(read_queue(store, "T", 0)) == 1, "reads go on"
        full.times = 0
        for _ in range(11):
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(1)
        await until_ready(store, LOG_BYTES)
        await wait_all_tasks_blocked(0.01)
        assert not store.flags.refusing
        assert store.put(draft(body=BIG)).physical_offset == LOG_BYTES
        store.dispatch()


@pytest.mark.trio
async def test_a_stop_with_a_full_disk_keeps_the_abort_file_away_when_all_is_on_disk(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await until_ready(store, 0)
        disk.faults.append(Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        store.put(draft(body=BIG))
        refused = await put_in_time(store, draft(body=BIG))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        store.dispatch()


@pytest.mark.parametrize("removable", [True, False])
@pytest.mark.trio
async def test_the_segment_made_ahead_is_given_back_where_a_record_finds_no_block(
    tmp_path: Path, mock_clock: MockClock, *, removable: bool
) -> None:
    disk = FaultyDisk(tmp_path)
    disk.copying = True
    async with running_store(tmp_path, disk, prepares=True) as store:
        await until_ready(store, 0)
        assert store.put(draft()).status is PutStatus.PUT_OK
        await until_ready(store, LOG_BYTES)
        if not removable:
            disk.faults.append(Fault(name="unlink"))
        removed = len(removals(disk))
        disk.faults.append(Fault(name="pwrite", path="commitlog", error=errno.ENOSPC))
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        while store.flags.refusing:
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(RETRY_S / 4)
        assert len(removals(disk)) == removed + 1
        await until_ready(store, LOG_BYTES)
        assert store.put(draft()).status is PutStatus.PUT_OK
        store.dispatch()
        assert len(read_queue(store, "T", 0)) == 2


@pytest.mark.parametrize("allowed", [1, 2])
@pytest.mark.trio
async def test_messages_that_were_refused_halfway_do_not_come_back_with_the_next_start(
    tmp_path: Path, autojump_clock: MockClock, allowed: int
) -> None:
    """They have been sent again by then."""
    disk = FaultyDisk(tmp_path)
    disk.copying = True
    written = 0

    def count(call: Call) -> None:
        nonlocal written
        written += call.name == "pwrite"
        if written > allowed:
            disk.before = None
            disk.faults.append(Fault(name="pwrite", path="commitlog", error=errno.ENOSPC))

    async with running_store(tmp_path, disk) as store:
        assert store.put(draft(body=b"first")).status is PutStatus.PUT_OK
        store.dispatch()
        disk.before = count
        drafts = [draft(body=body) for body in (b"a", b"b", b"c")]
        assert store.writer.put_run(drafts) == ([], PutStatus.SERVICE_NOT_AVAILABLE)
    async with running_store(tmp_path, disk) as store:
        store.dispatch()
        assert [message.body for message in read_queue(store, "T", 0)] == [b"first"]


@pytest.mark.trio
async def test_a_stop_that_leaves_refused_messages_in_the_log_is_not_a_clean_one(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    disk.copying = True
    async with running_store(tmp_path, disk, clean=False) as store:
        assert store.put(draft(body=b"first")).status is PutStatus.PUT_OK
        store.dispatch()
        full = Fault(name="pwrite", path="commitlog", error=errno.ENOSPC, times=9)
        disk.faults.append(full)
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE


def removals(disk: FaultyDisk) -> list[Path]:
    """The spares that were removed."""
    paths = [call.path for call in disk.calls if call.name == "unlink"]
    return [path for path in paths if path is not None and is_spare(path.name)]
