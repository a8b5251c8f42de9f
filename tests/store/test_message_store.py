"""The life of a store: load, run, close, and what the next start finds."""

import errno
from pathlib import Path

import pytest
import trio

from aerobee.store.config import FlushDiskType
from aerobee.store.errors import StoreDamaged, StoreLocked, StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.flags import Flag
from aerobee.store.format.names import ABORT, CHECKPOINT
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutStatus
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.logged import Logged
from tests.kit.running_store import durable, running_store
from tests.kit.store_checker import check_closed, check_running
from tests.kit.store_model import ManualClock, draft, open_store, read_queue, small_config


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    store, recovery = open_store(tmp_path / "deep" / "data", Disk())
    assert (recovery.clean, recovery.cut_bytes, recovery.end_offset) == (True, 0, 0)
    assert not store.flags.refusing
    assert (store.root / ABORT).exists()
    assert trio.run(store.close)
    check_closed(store.root)


def test_before_it_is_loaded_a_store_takes_nothing(tmp_path: Path) -> None:
    store = MessageStore(small_config(tmp_path), disk=Disk(), clock=ManualClock())
    assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "not loaded" in store.flags.cause
    assert trio.run(store.close), "nothing to close"


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    with pytest.raises(StoreLocked):
        open_store(tmp_path, Disk())
    assert trio.run(store.close)
    assert open_store(tmp_path, Disk())[1].clean


def test_a_refused_start_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    store.put(draft())
    store.dispatch()
    assert trio.run(store.close)
    stranger = tmp_path / "commitlog" / "README"
    stranger.write_text("what is this")
    with pytest.raises(StoreDamaged, match="README"):
        open_store(tmp_path, Disk())
    assert not (tmp_path / ABORT).exists()
    stranger.unlink()
    assert open_store(tmp_path, Disk())[1].clean


def test_a_refused_start_lets_go_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "x").write_text("y")
    for _ in range(2):
        with pytest.raises(StoreRefused, match="no segment file"):
            open_store(tmp_path, Disk())


def test_after_a_clean_stop_nothing_is_recovered(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    for _ in range(100):
        store.put(draft())
    assert trio.run(store.close), "a close dispatches what is left"
    check_closed(tmp_path)
    store, recovery = open_store(tmp_path, Disk())
    assert (recovery.clean, recovery.cut_bytes) == (True, 0)
    assert len(read_queue(store, "T", 0)) == 100
    assert store.put(draft()).queue_offset == 100
    check_running(store)


def test_after_a_crash_everything_put_is_there(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    store, _ = open_store(tmp_path, disk)
    for number in range(100):
        store.put(draft(queue_id=number % 3))
    store.dispatch()
    disk.kill()
    store, recovery = open_store(tmp_path, disk)
    assert not recovery.clean
    assert [store.max_offset("T", queue_id) for queue_id in range(3)] == [34, 33, 33]
    check_running(store)


@pytest.mark.trio
@pytest.mark.parametrize("mode", list(FlushDiskType))
async def test_a_store_runs_stops_and_runs_again(tmp_path: Path, mode: FlushDiskType) -> None:
    for cycle in range(3):
        async with running_store(tmp_path, Disk(), flush_disk_type=mode) as store:
            for number in range(50):
                result = store.put(draft(queue_id=number % 2, body=bytes(200)))
                assert result.queue_offset == cycle * 25 + number // 2
                if number % 10 == 9:
                    assert await durable(store, result.end_offset)
            assert store.max_offset("T", 0) == (cycle + 1) * 25


@pytest.mark.trio
async def test_the_abort_file_stays_when_the_checkpoint_cannot_be_written(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False) as store:
        store.put(draft())
        store.dispatch()
        disk.faults.append(Fault(name="pwrite", path=CHECKPOINT, error=errno.EIO))
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    assert store.max_offset("T", 0) == 1


@pytest.mark.trio
async def test_the_abort_file_stays_when_it_cannot_be_removed(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False) as store:
        store.put(draft())
        store.dispatch()
        disk.faults.append(Fault(name="unlink", path=ABORT))


@pytest.mark.trio
async def test_a_failed_last_sync_is_told_and_the_directory_let_go(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False) as store:
        store.put(draft())
        store.dispatch()
        disk.faults.append(Fault(name="fdatasync", path="commitlog"))
    store, recovery = open_store(tmp_path, Disk())
    assert not recovery.clean
    assert len(read_queue(store, "T", 0)) == 1


@pytest.mark.trio
async def test_a_closed_store_answers_and_its_views_live_on(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk()) as store:
        store.put(draft(body=b"still here"))
        store.dispatch()
        result = store.get("T", 0, 0, 1)
    assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.flags.has(Flag.SHUT_DOWN)
    assert b"still here" in bytes(result.views[0])


def test_settings_that_may_change_take_effect_at_once(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    for _ in range(5):
        store.put(draft())
    store.dispatch()
    store.reconfigure(
        small_config(
            tmp_path,
            max_transfer_count_on_message_in_memory=2,
            max_message_size_bytes=1_024,
            access_message_in_memory_max_ratio_percent=50,
        )
    )
    assert store.get("T", 0, 0, 32).count == 2
    assert store.put(draft(body=bytes(1_025))).status is PutStatus.MESSAGE_ILLEGAL
    assert store.config.max_message_size_bytes == 1_024
    assert store.reader.memory_bytes == Disk().total_memory() // 2


def test_a_start_says_that_the_clock_is_behind_the_newest_message(
    tmp_path: Path, logged: Logged
) -> None:
    clock = ManualClock()
    store, _ = open_store(tmp_path, Disk(), clock)
    store.put(draft())
    assert trio.run(store.close)
    for step_ms, said in ((5_000, []), (85_000, [90])):
        clock.ms -= step_ms
        store, _ = open_store(tmp_path, Disk(), clock)
        warned = [line for line in logged if line["event"] == "store.clock_behind"]
        assert [line["behind_s"] for line in warned] == said
        assert trio.run(store.close)


def test_what_is_behind_can_be_seen(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Disk())
    size = store.put(draft()).size
    assert (store.flush_behind_bytes, store.dispatch_behind_bytes) == (size, size)
    store.dispatch()
    assert store.dispatch_behind_bytes == 0
    store.commit_log.sync_all()
    assert store.flush_behind_bytes == 0
