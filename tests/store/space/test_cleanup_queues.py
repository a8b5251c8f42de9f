"""Queues follow the log: minimums rise, files go, and whole queues only when told."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.store.config import FlushDiskType
from aerobee.store.results import GetStatus, PutStatus
from aerobee.store.shared import Contents, Runtime
from aerobee.store.space.cleanup_queues import DeletedRange, QueueCleanup
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.running_store import TrioClock, durable, running_store
from tests.kit.store_model import QUEUE_BYTES, draft, read_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from trio.testing import MockClock

    from aerobee.store.message_store import MessageStore

PER_FILE = QUEUE_BYTES // 20
BODY = bytes(900)
"""Four messages per segment."""


def put(store: MessageStore, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        assert store.put(draft(topic, queue_id, BODY)).status is PutStatus.PUT_OK
    store.dispatch()


def queue_files(root: Path, topic: str, queue_id: int = 0) -> list[int]:
    """First queue offset of each file."""
    directory = root / "consumequeue" / topic / str(queue_id)
    return sorted(int(path.name) // 20 for path in directory.iterdir())


async def lose(store: MessageStore, segments: int) -> None:
    """The oldest segments go, and the queues follow."""
    store.commit_log.sync_all()
    for _ in range(segments):
        store.commit_log.queue.take_first().path.unlink()
    await store.space.queues.follow(store.commit_log.min_offset)


@asynccontextmanager
async def quiet_store(
    root: Path, disk: FaultyDisk | None = None, **changes: Any
) -> AsyncIterator[tuple[MessageStore, list[DeletedRange]]]:
    """A store, and what it tells of deleted messages."""
    told: list[DeletedRange] = []

    async def deleted(ranges: Sequence[DeletedRange]) -> None:
        told.extend(ranges)

    async with running_store(root, disk or FaultyDisk(root), **changes) as store:
        store.space.queues.on_deleted.append(deleted)
        yield store, told


@pytest.mark.trio
async def test_minimums_rise_and_files_in_front_of_them_go(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, told):
        put(store, "T", 45)
        put(store, "U", 4)
        assert await store.flush_queues()
        await lose(store, 6)
        assert store.min_offset("T", 0) == 24
        assert queue_files(tmp_path, "T") == [20, 30, 40]
        assert told == [DeletedRange("T", 0, 0, 24)]
        assert len(read_queue(store, "T", 0)) == 45 - 24
        assert len(read_queue(store, "U", 0)) == 4
        assert store.stats.queue_files_deleted == 2
        told.clear()
        await store.space.queues.follow(store.commit_log.min_offset)
        assert told == [], "nothing to do twice"


@pytest.mark.trio
async def test_a_queue_without_a_message_left_is_empty_and_keeps_its_last_file_and_its_number(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, told):
        put(store, "T", 12)
        put(store, "U", 5)
        assert await store.flush_queues()
        await lose(store, 3)
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (12, 12)
        assert queue_files(tmp_path, "T") == [10]
        assert store.get("T", 0, 12, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
        put(store, "T", 1)
        assert len(read_queue(store, "T", 0)) == 1
        assert told == [DeletedRange("T", 0, 0, 12)]


@pytest.mark.trio
async def test_units_that_are_only_in_memory_are_looked_at_too(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, told):
        put(store, "T", 9)
        assert store.queues.table["T", 0].written == 0
        await lose(store, 1)
        assert store.min_offset("T", 0) == 4
        assert told == [DeletedRange("T", 0, 0, 4)]


@pytest.mark.trio
async def test_a_file_that_a_sync_still_needs_stays(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, _):
        put(store, "T", 30)
        store.queues.write_all(sync=False)
        await lose(store, 6)
        assert queue_files(tmp_path, "T") == [0, 10, 20]
        assert await store.flush_queues()
        put(store, "T", 4)
        store.queues.write_all(sync=False)
        await lose(store, 1)
        assert queue_files(tmp_path, "T") == [20, 30]


@pytest.mark.trio
async def test_a_file_that_cannot_be_removed_leaves_no_hole_and_is_tried_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with quiet_store(tmp_path, disk) as (store, _):
        put(store, "T", 45)
        assert await store.flush_queues()
        stuck = Fault(name="unlink", path="consumequeue", error=errno.EPERM, times=1)
        disk.faults.append(stuck)
        await lose(store, 9)
        assert queue_files(tmp_path, "T") == [0, 10, 20, 30, 40]
        assert store.min_offset("T", 0) == 36
        await store.space.queues.follow(store.commit_log.min_offset)
        assert queue_files(tmp_path, "T") == [30, 40]


@pytest.mark.trio
async def test_queues_that_cannot_be_read_are_tried_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with quiet_store(tmp_path, disk) as (store, told):
        put(store, "T", 20)
        assert await store.flush_queues()
        disk.faults.append(Fault(name="pread", path="consumequeue", times=1))
        await lose(store, 2)
        assert told == []
        assert store.get("T", 0, 0, 1).status is GetStatus.MESSAGE_WAS_REMOVING
        await store.space.queues.follow(store.commit_log.min_offset)
        assert told == [DeletedRange("T", 0, 0, 8)]


@pytest.mark.trio
async def test_a_queue_that_cannot_be_read_keeps_no_other_from_following(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with quiet_store(tmp_path, disk) as (store, told):
        for topic in ("T", "U", "V"):
            put(store, topic, 20)
        assert await store.flush_queues()
        worn = Fault(name="pread", path="consumequeue/U", times=1_000)
        disk.faults.append(worn)
        await lose(store, 13)
        follow = partial(store.space.queues.follow, store.commit_log.min_offset)
        await follow()
        assert told == [DeletedRange("T", 0, 0, 20), DeletedRange("V", 0, 0, 12)]
        assert queue_files(tmp_path, "T") == queue_files(tmp_path, "V") == [10]
        assert queue_files(tmp_path, "U") == [0, 10]
        worn.times = 0
        await follow()
        assert told[2:] == [DeletedRange("U", 0, 0, 20)]


@pytest.mark.trio
async def test_followers_hear_where_the_log_begins(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    heard: list[int] = []

    async def follow(min_offset: int) -> None:
        heard.append(min_offset)

    # One disk: another would take in files that come and go while the store runs.
    disk = FaultyDisk(tmp_path)
    async with quiet_store(tmp_path, disk) as (store, _):
        put(store, "T", 9)
        await lose(store, 1)
        contents = Contents(store.commit_log, store.queues, store.dispatcher, trio.Lock())
        runtime = Runtime(disk, TrioClock(), store.stats)
        queues = QueueCleanup(store.config, contents, runtime, [follow])
        for _ in range(2):
            await queues.follow(store.commit_log.min_offset)
        assert heard == [4_096]


# ── Whole queues ──


@pytest.mark.trio
async def test_only_queues_without_any_message_go_and_begin_again_at_zero(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, _):
        put(store, "OLD", 3)
        put(store, "KEPT", 1)
        put(store, "NEW", 5)
        assert await store.flush_queues()
        await lose(store, 1)
        begin = store.commit_log.min_offset
        gone = await store.space.queues.destroy_expired(begin, lambda topic: topic == "KEPT")
        assert gone == [("OLD", 0)]
        assert not (tmp_path / "consumequeue" / "OLD").exists()
        assert (store.min_offset("OLD", 0), store.max_offset("OLD", 0)) == (0, 0)
        assert store.max_offset("KEPT", 0) == 1
        assert store.put(draft("OLD")).queue_offset == 0
        store.dispatch()
        assert await store.flush_queues()
        assert len(read_queue(store, "OLD", 0)) == 1


@pytest.mark.trio
async def test_queues_of_forgotten_topics_go_with_the_directory_if_nothing_else_is_in_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with quiet_store(tmp_path) as (store, _):
        put(store, "GONE", 25)
        put(store, "GONE", 2, queue_id=3)
        put(store, "STAYS", 2)
        assert await store.flush_queues()
        (tmp_path / "consumequeue" / "GONE" / "note").write_text("mine")
        gone = await store.space.queues.destroy(lambda queue: queue.topic != "STAYS")
        assert gone == [("GONE", 0), ("GONE", 3)]
        left = [path.name for path in (tmp_path / "consumequeue" / "GONE").iterdir()]
        assert left == ["note"]
        (tmp_path / "consumequeue" / "GONE" / "note").unlink()
        assert store.stats.queues_deleted == 2
        put(store, "GONE", 1)
        put(store, "GONE", 1, queue_id=3)


@pytest.mark.trio
async def test_a_queue_that_dispatch_is_not_done_with_stays(tmp_path: Path) -> None:
    async with quiet_store(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as (store, _):
        end = store.put(draft("T")).end_offset
        assert await store.space.queues.destroy(lambda queue: True) == []
        assert await durable(store, end)
        assert await store.space.queues.destroy(lambda queue: True) == [("T", 0)]
        end = store.put(draft("T")).end_offset
        assert await durable(store, end)


@pytest.mark.trio
async def test_a_failing_removal_takes_the_queue_away_all_the_same(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with quiet_store(tmp_path, disk) as (store, _):
        put(store, "T", 2)
        put(store, "U", 1)
        assert await store.flush_queues()
        disk.faults.append(Fault(name="unlink", path="consumequeue", times=1))
        assert await store.space.queues.destroy(lambda queue: queue.topic != "U") == [("T", 0)]
        assert queue_files(tmp_path, "T") == [0], "loaded again by the next start"
        assert await store.space.queues.destroy(lambda queue: queue.topic != "U") == []
        put(store, "T", 1)


@pytest.mark.trio
async def test_others_have_their_turn_while_queues_are_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.queues.consume_queues.SLICE", 2)
    looked: list[int] = []

    def is_doomed(_: object) -> bool:
        looked[-1] += 1
        return False

    async def others() -> None:
        while True:
            looked.append(0)
            await trio.lowlevel.checkpoint()

    async with quiet_store(tmp_path) as (store, _), trio.open_nursery() as nursery:
        for queue_id in range(7):
            put(store, "T", 1, queue_id)
        nursery.start_soon(others)
        while not looked:
            await trio.lowlevel.checkpoint()
        assert await store.space.queues.destroy(is_doomed) == []
        nursery.cancel_scope.cancel()
    assert sum(looked) == 7
    assert max(looked) <= 4, "two slices: trio shuffles whose turn is first"
