"""Segments leave the disk: in order, slowly, never under a reader, and never too many."""

from __future__ import annotations

import errno
import json
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.store.flags import Flag
from aerobee.store.format.names import mark_name, segment_name
from aerobee.store.results import GetStatus, PutStatus
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.passing_time import HOUR_S, SmallDisk, pass_s
from tests.kit.running_store import put_in_time, running_store
from tests.kit.store_model import LOG_BYTES, draft, read_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.store.files.machine import Space
    from aerobee.store.message_store import MessageStore
    from tests.kit.logged import Logged

R = TypeVar("R")
BIG = bytes(3_000)
"""One message per segment."""
ALL_DAY = ";".join(f"{hour:02}" for hour in range(24))


def segments(root: Path) -> list[int]:
    return sorted(int(path.name) // LOG_BYTES for path in (root / "commitlog").iterdir())


def fill(store: MessageStore, count: int, topic: str = "T") -> None:
    """So many segments, one message in each."""
    for _ in range(count):
        assert store.put(draft(topic, body=BIG)).status is PutStatus.PUT_OK
    store.dispatch()


async def pass_h(clock: MockClock, hours: float) -> None:
    """Much virtual time, at the end of it some passes."""
    await pass_s(clock, hours * HOUR_S, step=HOUR_S)
    await pass_s(clock, 15, step=0.5)


@asynccontextmanager
async def filled(
    root: Path, disk: FaultyDisk, count: int, **changes: Any
) -> AsyncIterator[MessageStore]:
    """A store of so many segments, all of them on disk."""
    async with running_store(root, disk, **changes) as store:
        fill(store, count)
        assert await store.flush_queues()
        yield store


# ── By age ──


@pytest.mark.trio
async def test_expired_segments_go_at_the_hour_and_the_rest_is_served(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with filled(tmp_path, SmallDisk(tmp_path), 4, delete_when=ALL_DAY) as store:
        await pass_s(mock_clock, 70)
        assert segments(tmp_path) == [0, 1, 2, 3]
        await pass_h(mock_clock, 73)
        assert segments(tmp_path) == [3]
        assert store.commit_log.min_offset == 3 * LOG_BYTES
        assert store.min_offset("T", 0) == 3
        assert len(read_queue(store, "T", 0)) == 1
        assert store.get("T", 0, 0, 32).status is GetStatus.OFFSET_TOO_SMALL
        assert store.stats.segments_deleted == 3
        assert store.stats.segments_forced == 0


@pytest.mark.trio
@pytest.mark.parametrize("used_percent", [10, 88, 99])
async def test_a_broker_that_has_no_message_yet_cleans_up_nothing(
    tmp_path: Path, mock_clock: MockClock, used_percent: int
) -> None:
    disk = SmallDisk(tmp_path)
    disk.used_percent = used_percent
    async with filled(tmp_path, disk, 0, delete_when=ALL_DAY) as store:
        await pass_s(mock_clock, 100)
        assert not store.commit_log.queue.files


@pytest.mark.trio
async def test_a_segment_whose_first_record_the_disk_cannot_read_keeps_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The log would grow until the disk is full."""
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 4, delete_when=ALL_DAY):
        path = f"commitlog/{LOG_BYTES:020}"
        disk.faults.append(Fault(name="pread", path=path, times=1_000_000))
        await pass_h(mock_clock, 73)
        assert segments(tmp_path) == [3]


@pytest.mark.trio
async def test_at_other_hours_nothing_goes_unless_someone_asks(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.space.store_space.local_hour", lambda now_ms: 5)
    async with filled(tmp_path, SmallDisk(tmp_path), 4, delete_when="04") as store:
        await pass_h(mock_clock, 80)
        assert segments(tmp_path) == [0, 1, 2, 3]
        store.space.cleanup.request()
        await pass_s(mock_clock, 12, step=0.5)
        assert segments(tmp_path) == [3]
        await pass_s(mock_clock, 200)
        assert store.space.cleanup.manual_passes == 0


@pytest.mark.trio
async def test_asking_deletes_nothing_that_is_not_expired(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with filled(tmp_path, SmallDisk(tmp_path), 3, delete_when="04") as store:
        store.space.cleanup.request()
        await pass_s(mock_clock, 100)
        assert segments(tmp_path) == [0, 1, 2]


@pytest.mark.trio
async def test_a_file_touched_since_stays_and_so_do_those_behind_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 4, delete_when=ALL_DAY):
        disk.mtimes[segment_name(LOG_BYTES)] = 1_700_000_000_000 + 70 * HOUR_S * 1_000
        await pass_h(mock_clock, 74)
        assert segments(tmp_path) == [1, 2, 3]


@pytest.mark.trio
async def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path, mock_clock: MockClock) -> None:
    async with filled(tmp_path, SmallDisk(tmp_path), 4, delete_when=ALL_DAY) as store:
        await pass_s(mock_clock, 70)
        clock: Any = store.clock
        for hours in (24 * 5, -24 * 10, 24 * 5, 1, -1):
            clock.start_ms += hours * HOUR_S * 1_000
            await pass_s(mock_clock, 60)
            assert segments(tmp_path) == [0, 1, 2, 3]


@pytest.mark.trio
async def test_nothing_goes_in_the_first_minute(tmp_path: Path, mock_clock: MockClock) -> None:
    disk = SmallDisk(tmp_path)
    disk.used_percent = 99
    async with running_store(tmp_path, disk) as store:
        fill(store, 4)
        assert await store.flush_queues()
        await pass_s(mock_clock, 55)
        assert segments(tmp_path) == [0, 1, 2, 3]


# ── For space ──


@pytest.mark.trio
async def test_above_the_forcible_limit_no_more_goes_than_is_needed(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 8) as store:
        await pass_s(mock_clock, 61)
        disk.used_percent = 85.15
        await pass_s(mock_clock, 19)
        disk.used_percent = 85
        await pass_s(mock_clock, 60)
        assert 2 <= store.stats.segments_forced <= 4
        assert segments(tmp_path) == list(range(store.stats.segments_forced, 8))
        assert not store.flags.refusing


@pytest.mark.trio
async def test_forcing_can_be_turned_off_while_running(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 4) as store:
        store.reconfigure(replace(store.config, clean_file_forcibly_enable=False))
        disk.used_percent = 99
        await pass_s(mock_clock, 100)
        assert segments(tmp_path) == [0, 1, 2, 3]
        store.reconfigure(replace(store.config, clean_file_forcibly_enable=True))
        await pass_s(mock_clock, 20)
        assert segments(tmp_path) == [3], "never the last one"


@pytest.mark.trio
async def test_a_full_disk_refuses_sends_serves_pulls_and_recovers_by_itself(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    disk.used_percent = 91
    async with running_store(tmp_path, disk, clean_file_forcibly_enable=False) as store:
        await wait_all_tasks_blocked(0.01)
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE, "right after the start"
        assert store.flags.has(Flag.DISK_FULL)
        assert "disk is full [CL:  0.91 CQ:  0.91 INDEX:  0.91]" in store.flags.cause
        disk.used_percent = 90
        await pass_s(mock_clock, 2)
        fill(store, 1)
        disk.used_percent = 95
        await pass_s(mock_clock, 10)
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert len(read_queue(store, "T", 0)) == 1, "pulls go on"
        disk.used_percent = 90
        await pass_s(mock_clock, 2)
        assert store.put(draft()).status is PutStatus.PUT_OK, "well within ten seconds"
        store.dispatch()


@pytest.mark.trio
async def test_a_missing_segment_is_tried_again_as_soon_as_there_is_room(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True) as store:
        await put_in_time(store, draft(body=BIG))
        await pass_s(mock_clock, 11)
        full = Fault(name="posix_fallocate", error=errno.ENOSPC, times=1_000)
        disk.faults.append(full)
        disk.used_percent = 90
        while (await put_in_time(store, draft(body=BIG))).status is PutStatus.PUT_OK:
            store.dispatch()
        assert "No space left" in store.flags.cause
        await pass_s(mock_clock, 11)
        assert store.flags.refusing
        full.times = 0
        await pass_s(mock_clock, 2)
        assert store.put(draft(body=BIG)).status is PutStatus.PUT_OK
        store.dispatch()


# ── Readers, and files that do not go ──


@pytest.mark.trio
async def test_a_reader_keeps_what_it_reads_and_gives_back_its_space_at_the_end(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 3, delete_when=ALL_DAY) as store:
        view = store.commit_log.view(0, 100)
        assert view is not None
        before = bytes(view)
        await pass_h(mock_clock, 74)
        assert segments(tmp_path) == [2]
        assert bytes(view) == before
        assert store.space.cleanup.held_bytes == LOG_BYTES
        assert store.commit_log.view(0, 100) is None, "nobody else gets it"
        del view
        await pass_s(mock_clock, 11)
        assert store.space.cleanup.held_bytes == 0


@pytest.mark.trio
async def test_what_readers_hold_is_not_made_up_for_by_deleting_more(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 8) as store:
        views = [store.commit_log.view(at * LOG_BYTES, 100) for at in range(8)]
        disk.used_percent = 85.15
        await pass_s(mock_clock, 200)
        assert segments(tmp_path) == [2, 3, 4, 5, 6, 7]
        del views
        disk.used_percent = 85
        await pass_s(mock_clock, 20)
        assert segments(tmp_path) == [2, 3, 4, 5, 6, 7]


@pytest.mark.trio
async def test_a_file_that_cannot_be_removed_is_tried_again_and_nothing_behind_it_goes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    stuck = Fault(name="unlink", path="commitlog", error=errno.EPERM, times=1)
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 4, delete_when=ALL_DAY) as store:
        disk.faults.append(stuck)
        await pass_s(mock_clock, 72 * HOUR_S, step=1_800)
        disk.used_percent = 99
        await pass_s(mock_clock, 50)
        assert segments(tmp_path) == [0, 1, 2, 3]
        assert store.min_offset("T", 0) == 1, "it is out of the log all the same"
        await pass_s(mock_clock, 120)
        assert segments(tmp_path) == [3]


@pytest.mark.trio
async def test_a_directory_that_cannot_be_synced_ends_deletions_and_writes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False, delete_when=ALL_DAY) as store:
        fill(store, 4)
        assert await store.flush_queues()
        await pass_s(mock_clock, 70 * HOUR_S, step=1_800)
        disk.faults.append(Fault(name="fsync", path="commitlog", times=1))
        await pass_s(mock_clock, 3 * HOUR_S, step=1_800)
        assert segments(tmp_path) == [1, 2, 3]
        assert store.flags.has(Flag.NOT_WRITEABLE)


# ── Archives ──


def mark(root: Path, number: int, size: int = LOG_BYTES) -> Path:
    path = root / "archive" / mark_name(number * LOG_BYTES)
    path.parent.mkdir(exist_ok=True)
    line = {"segment": segment_name(number * LOG_BYTES), "bytes": size, "records": 1}
    path.write_text(json.dumps(line) + "\n")
    return path


@pytest.mark.trio
async def test_expired_segments_wait_for_their_archive_and_go_with_their_marks(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 5, delete_when=ALL_DAY, wait_for_archive=True) as store:
        await pass_h(mock_clock, 80)
        assert segments(tmp_path) == [0, 1, 2, 3, 4]
        assert store.stats.segments_waiting == 4, "the last one is not full yet"
        for number in (0, 1, 3):
            mark(tmp_path, number)
        await pass_s(mock_clock, 15, step=0.5)
        assert segments(tmp_path) == [2, 3, 4]
        assert store.stats.segments_waiting == 1
        assert [path.name for path in (tmp_path / "archive").iterdir()] == [
            mark_name(3 * LOG_BYTES)
        ]
        assert store.stats.segments_unarchived == 0


@pytest.mark.trio
async def test_asking_by_hand_deletes_nothing_that_waits(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.space.store_space.local_hour", lambda now_ms: 5)
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 3, delete_when="04", wait_for_archive=True) as store:
        await pass_h(mock_clock, 80)
        store.space.cleanup.request()
        await pass_s(mock_clock, 30)
        assert segments(tmp_path) == [0, 1, 2]
        mark(tmp_path, 0)
        mark(tmp_path, 1, size=LOG_BYTES - 1)
        await pass_s(mock_clock, 30)
        assert segments(tmp_path) == [1, 2]


@pytest.mark.trio
async def test_above_the_limit_of_the_disk_what_is_expired_goes_without_its_archive(
    tmp_path: Path, mock_clock: MockClock, logged: Logged
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 3, wait_for_archive=True) as store:
        await pass_h(mock_clock, 80)
        disk.used_percent = 76
        await pass_s(mock_clock, 30)
        assert segments(tmp_path) == [2]
        assert store.stats.segments_unarchived == 2
        told = [line for line in logged if line["event"] == "cleanup.unarchived_deleted"]
        assert [line["used_percent"] for line in told] == [76, 76]


@pytest.mark.trio
async def test_without_an_answer_about_the_disk_segments_wait(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(tmp_path)
    asked: set[Path] = set()

    def silent(path: Path) -> Space:
        asked.add(path)
        raise OSError(errno.EIO, "no answer", str(path))

    async with filled(tmp_path, disk, 3, wait_for_archive=True):
        monkeypatch.setattr(disk, "free_space", silent)
        await pass_h(mock_clock, 80)
        assert segments(tmp_path) == [0, 1, 2]
        assert {tmp_path, tmp_path / "commitlog"} <= asked


@pytest.mark.trio
async def test_waiting_can_be_turned_on_and_off_while_running(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 3, delete_when=ALL_DAY, wait_for_archive=True) as store:
        await pass_h(mock_clock, 80)
        assert store.stats.segments_waiting == 2
        store.reconfigure(replace(store.config, wait_for_archive=False))
        await pass_s(mock_clock, 15, step=0.5)
        assert segments(tmp_path) == [2]
        assert store.stats.segments_waiting == 0


@pytest.mark.trio
async def test_waiting_that_is_turned_on_in_the_middle_of_a_pass_counts_at_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with filled(tmp_path, SmallDisk(tmp_path), 5, delete_when=ALL_DAY) as store:
        mark(tmp_path, 1)
        await pass_s(mock_clock, 72 * HOUR_S, step=HOUR_S)
        for _ in range(2_000):
            if segments(tmp_path)[0]:
                break
            await pass_s(mock_clock, 0.05, step=0.05)
        assert segments(tmp_path) == [1, 2, 3, 4]
        store.reconfigure(replace(store.config, wait_for_archive=True))
        await pass_s(mock_clock, 30, step=0.5)
        assert segments(tmp_path) == [2, 3, 4]
        assert store.stats.segments_unarchived == 0


@pytest.mark.trio
async def test_a_mark_of_what_a_crash_took_back_is_gone_before_the_log_grows_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with filled(tmp_path, SmallDisk(tmp_path), 2, delete_when=ALL_DAY):
        pass
    path = mark(tmp_path, 1)
    async with running_store(tmp_path, SmallDisk(tmp_path), wait_for_archive=True) as store:
        await wait_all_tasks_blocked()
        assert not path.exists()
        fill(store, 1)


# ── Pace ──


@pytest.mark.trio
async def test_one_file_per_interval_and_no_more_than_a_batch_per_pass(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = SmallDisk(tmp_path)
    times: list[float] = []

    def seen(call: Call) -> None:
        if call.name == "unlink" and "commitlog" in str(call.path) and ".new" not in str(call.path):
            times.append(mock_clock.current_time())

    async with filled(tmp_path, disk, 8, delete_file_batch_max=3, delete_when=ALL_DAY):
        disk.before = seen
        await pass_s(mock_clock, 72 * HOUR_S, step=HOUR_S)
        await pass_s(mock_clock, 40, step=0.05)
        assert len(times) == 7
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert min(gaps) >= 0.1
        assert sum(gap > 1 for gap in gaps) == 2, "three passes"


@pytest.mark.trio
async def test_a_slow_unlink_does_not_stop_the_loop(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path)
    working, go_on = threading.Event(), threading.Event()

    def slow(call: Call) -> None:
        if call.name == "unlink":
            working.set()
            go_on.wait(5)

    async with filled(tmp_path, disk, 4) as store:
        disk.used_percent = 99
        disk.before = slow
        async with trio.open_nursery() as nursery:
            await store.space.watch.look()
            nursery.start_soon(store.space.cleanup.clean)
            await trio.to_thread.run_sync(working.wait)
            assert store.commit_log.min_offset == LOG_BYTES
            assert store.get("T", 0, 0, 1).status is GetStatus.MESSAGE_WAS_REMOVING
            assert store.get("T", 0, 1, 32).status is GetStatus.FOUND
            go_on.set()
        disk.used_percent = 10


@pytest.mark.trio
async def test_blocks_that_do_not_come_back_piece_by_piece_come_back_at_once(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.files.mapped_file.PIECE_BYTES", 1_000)
    disk = SmallDisk(tmp_path)
    async with filled(tmp_path, disk, 3, delete_when=ALL_DAY) as store:
        disk.faults.append(Fault(name="ftruncate", error=errno.EIO, times=1))
        await pass_h(mock_clock, 74)
        assert segments(tmp_path) == [2]
        assert store.space.cleanup.held_bytes == 0
