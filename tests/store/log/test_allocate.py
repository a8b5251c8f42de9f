"""The next segment ahead of its need; the needed one that cannot be had."""

import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.store.flags import Flag
from aerobee.store.format.names import is_spare, segment_name, spare_path
from aerobee.store.log.allocate import LOOK_S, Allocator
from aerobee.store.log.commit_log import CommitLog
from aerobee.store.results import PutStatus
from aerobee.store.stats import StoreStats
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.running_store import running_store
from tests.kit.store_model import LOG_BYTES, draft, read_queue

if TYPE_CHECKING:
    from aerobee.store.files.disk import Handle

BIG = bytes(3_000)
NO_ROOM = {"name": "posix_fallocate", "error": errno.ENOSPC}


def spares(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if is_spare(path.name))


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


async def until_spare(root: Path, start: int) -> None:
    for _ in range(2_000):
        if any(segment_name(start) in name for name in spares(root)):
            return
        await trio.to_thread.run_sync(threading.Event().wait, 0.005)
    raise AssertionError(spares(root))


@pytest.mark.trio
async def test_the_segment_behind_the_current_one_is_prepared_elsewhere(tmp_path: Path) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        await until_spare(tmp_path, 0)
        assert segments(tmp_path) == []
        store.put(draft())
        assert segments(tmp_path) == [segment_name(0)]
        await until_spare(tmp_path, LOG_BYTES)
        assert segments(tmp_path) == [segment_name(0)]
        store.dispatch()
    assert spares(tmp_path) == [], "a clean close removes it"


@pytest.mark.trio
async def test_large_segments_get_their_successor_when_they_are_half_full(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.allocate.AHEAD_BYTES", 0)

    async def looked() -> None:
        for _ in range(3):
            mock_clock.jump(LOOK_S)
            await wait_all_tasks_blocked(0.01)

    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        await until_spare(tmp_path, 0)
        while store.commit_log.max_offset < LOG_BYTES // 2 - 200:
            assert store.put(draft()).status is PutStatus.PUT_OK
        await looked()
        assert spares(tmp_path) == [], "a few messages do not take the room of two segments"
        while store.commit_log.max_offset < LOG_BYTES // 2:
            assert store.put(draft()).status is PutStatus.PUT_OK
        await looked()
        await until_spare(tmp_path, LOG_BYTES)
        store.dispatch()
    async with running_store(tmp_path, FaultyDisk(tmp_path)):
        await until_spare(tmp_path, LOG_BYTES)


@pytest.mark.trio
async def test_a_roll_before_half_of_the_segment_is_full_makes_the_next_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.allocate.AHEAD_BYTES", 0)
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        assert store.put(draft()).status is PutStatus.PUT_OK
        for number in range(1, 4):
            assert store.put(draft(body=bytes(3_900))).physical_offset == number * LOG_BYTES
        store.dispatch()


@pytest.mark.trio
async def test_a_roll_onto_a_prepared_segment_allocates_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        store.put(draft(body=BIG))
        await until_spare(tmp_path, LOG_BYTES)
        await wait_all_tasks_blocked(0.01)
        disk.calls.clear()
        assert store.put(draft(body=BIG)).physical_offset == LOG_BYTES
        assert [call.name for call in disk.calls] == ["replace", "mmap"]
        store.dispatch()


@pytest.mark.trio
async def test_a_roll_before_the_segment_is_prepared_waits_for_it(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        for _ in range(8):
            assert store.put(draft(body=BIG)).status is PutStatus.PUT_OK
        store.dispatch()
        assert len(segments(tmp_path)) == 8


@pytest.mark.trio
async def test_a_segment_half_prepared_by_the_thread_is_taken_when_it_is_done(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    making = threading.Event()

    def slow(call: Call) -> None:
        if call.name == "posix_fallocate" and threading.current_thread() is not MAIN:
            making.set()
            threading.Event().wait(0.05)

    disk.before = slow
    async with running_store(tmp_path, disk) as store:
        await trio.to_thread.run_sync(making.wait)
        assert store.put(draft()).physical_offset == 0
        made = [call for call in disk.calls if call.name == "posix_fallocate"]
        assert len(made) == 1
        store.dispatch()


@pytest.mark.trio
async def test_a_roll_does_not_wait_for_long_for_a_thread_that_the_disk_holds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.log.allocate.ROLL_WAIT_S", 0.01)
    disk = FaultyDisk(tmp_path)
    making, go_on = threading.Event(), threading.Event()

    def held_up(call: Call) -> None:
        if call.name == "posix_fallocate" and threading.current_thread() is not MAIN:
            making.set()
            assert go_on.wait(10)

    disk.before = held_up
    async with running_store(tmp_path, disk) as store:
        await trio.to_thread.run_sync(making.wait)
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "too slow" in store.flags.cause
        go_on.set()
        for _ in range(2_000):
            if not store.flags.refusing:
                break
            await trio.to_thread.run_sync(threading.Event().wait, 0.005)
        assert store.put(draft()).physical_offset == 0
        store.dispatch()


MAIN = threading.main_thread()


@pytest.mark.trio
async def test_no_room_for_a_segment_that_is_not_needed_yet_refuses_nothing(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        await until_spare(tmp_path, 0)
        disk.faults.append(Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        assert store.put(draft()).status is PutStatus.PUT_OK
        await trio.to_thread.run_sync(threading.Event().wait, 0.05)
        assert store.put(draft()).status is PutStatus.PUT_OK
        assert not store.flags.refusing
        assert spares(tmp_path) == []
        store.dispatch()


@pytest.mark.trio
async def test_without_a_needed_segment_writes_are_refused_and_go_on_by_themselves(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        await until_spare(tmp_path, 0)
        disk.faults.append(full := Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        assert store.put(draft(body=BIG)).status is PutStatus.PUT_OK
        assert store.put(draft(body=BIG)).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.flags.has(Flag.DISK_FULL)
        assert "space" in store.flags.cause
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE, "also a small one"
        store.dispatch()
        assert len(read_queue(store, "T", 0)) == 1, "reads go on"
        full.times = 0
        for _ in range(11):
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(1)
        await until_spare(tmp_path, LOG_BYTES)
        await wait_all_tasks_blocked(0.01)
        assert not store.flags.refusing
        assert store.put(draft(body=BIG)).physical_offset == LOG_BYTES
        store.dispatch()


@pytest.mark.trio
async def test_a_stop_with_a_full_disk_keeps_the_abort_file_away_when_all_is_on_disk(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        await until_spare(tmp_path, 0)
        disk.faults.append(Fault(**NO_ROOM, times=1_000))  # type: ignore[arg-type]  # as declared above
        store.put(draft(body=BIG))
        assert store.put(draft(body=BIG)).status is PutStatus.SERVICE_NOT_AVAILABLE
        store.dispatch()


def test_a_segment_that_the_loop_makes_is_not_made_by_the_thread_as_well(tmp_path: Path) -> None:
    """The same name for both: the second would empty the file that the first has given away."""
    disk = FaultyDisk(tmp_path)
    renaming, go_on = threading.Event(), threading.Event()

    def wait_at_the_rename(call: Call) -> None:
        if call.name == "replace":
            renaming.set()
            assert go_on.wait(10)

    (tmp_path / "commitlog").mkdir()
    commit_log = CommitLog(disk, tmp_path / "commitlog", LOG_BYTES)
    allocator = Allocator(
        commit_log, disk, StoreStats(), on_missing=lambda _: None, on_recovered=lambda: None
    )
    path = commit_log.queue.path_of(0)
    made: list[Handle] = []
    disk.before = wait_at_the_rename
    loop = threading.Thread(
        target=lambda: made.append(allocator.new_segment(path, LOG_BYTES)), daemon=True
    )
    loop.start()
    assert renaming.wait(10)
    thread = threading.Thread(target=lambda: allocator._prepare(path, LOG_BYTES), daemon=True)
    thread.start()
    thread.join(0.1)
    go_on.set()
    loop.join(10)
    thread.join(10)
    opened = [call for call in disk.calls if call.name == "open" and call.path != tmp_path]
    assert sum(str(call.path).endswith(spare_path(path).name) for call in opened) == 1
    assert path.stat().st_size == LOG_BYTES
    assert allocator._ready is None
    made[0].close()
