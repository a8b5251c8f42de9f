"""Short syncs are made in the loop; a slow disk has them in the thread, and the loop goes on.

Time stands still but for what a test adds: the real disk may be as slow as it likes.
"""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aerobee.store.config import FlushDiskType
from aerobee.store.errors import SyncFailed
from aerobee.store.files.sync_thread import SyncThread
from aerobee.store.flags import Flag
from aerobee.store.flush.inline_syncs import (
    INLINE_BYTES,
    LONG_PAUSE_S,
    MEAN_MAX_S,
    PAUSE_S,
    SINGLE_MAX_S,
    InlineSyncs,
)
from aerobee.store.log.commit_log import CommitLog, SyncPlan
from aerobee.store.message_store import MessageStore
from aerobee.store.results import PutOutcome, PutStatus
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.logged import Logged
from tests.kit.running_store import durable, put_in_time, running_store
from tests.kit.store_model import draft, small_config
from tests.kit.virtual_time import Opening

SYNC = FlushDiskType.SYNC_FLUSH
FAST_S = MEAN_MAX_S / 10
DURABLE = PutOutcome.DURABLE


def send(store: MessageStore, answers: list[PutOutcome], size: int = 10) -> None:
    """One message of a round of its own, by a sender that waits for the disk."""
    result = store.put(draft(body=b"x" * size))
    assert result.status is PutStatus.PUT_OK
    store.when_durable(result.end_offset, answers.append)
    store.dispatch()


async def settle(store: MessageStore) -> None:
    """The first segment and its name are on disk."""
    assert await durable(store, store.put(draft()).end_offset)


# ── What decides ──


def test_syncs_are_inline_as_long_as_they_are_short() -> None:
    syncs = InlineSyncs()
    for number in range(1_000):
        assert syncs.allows(1_000, number)
        assert syncs.took(FAST_S, number)


def test_one_long_sync_ends_them_for_a_while() -> None:
    syncs = InlineSyncs()
    assert not syncs.took(SINGLE_MAX_S * 1.01, 100.0)
    assert not syncs.allows(1_000, 100.0 + LONG_PAUSE_S - 0.1)
    assert syncs.allows(1_000, 100.0 + LONG_PAUSE_S)


def test_syncs_that_are_long_on_average_end_them() -> None:
    syncs = InlineSyncs()
    took = 0
    while syncs.took(MEAN_MAX_S * 2, 100.0):
        took += 1
    assert 10 < took < 100
    assert not syncs.allows(1_000, 100.0)
    assert syncs.allows(1_000, 100.0 + PAUSE_S)
    assert syncs.took(MEAN_MAX_S * 2, 100.0 + PAUSE_S), "their mean begins anew"


def test_a_few_that_are_longer_do_not() -> None:
    syncs = InlineSyncs()
    for number in range(1_000):
        assert syncs.took(SINGLE_MAX_S / 2 if number % 100 == 0 else FAST_S, number)


def test_a_long_sync_of_the_thread_keeps_the_loop_from_trying() -> None:
    syncs = InlineSyncs()
    syncs.thread_took(SINGLE_MAX_S, 1_000, 100.0)
    syncs.thread_took(SINGLE_MAX_S * 2, INLINE_BYTES + 1, 100.0)
    assert syncs.allows(1_000, 100.0), "neither was long for what it had to write"
    assert not syncs.took(SINGLE_MAX_S * 2, 100.0)
    syncs.thread_took(SINGLE_MAX_S * 2, 1_000, 105.0)
    assert not syncs.allows(1_000, 105.0 + LONG_PAUSE_S - 0.1)
    assert syncs.allows(1_000, 105.0 + LONG_PAUSE_S)


def test_much_to_write_is_left_to_the_thread() -> None:
    assert not InlineSyncs().allows(INLINE_BYTES + 1, 0)


# ── In the store ──


@pytest.mark.trio
async def test_a_sender_has_its_answer_when_its_round_ends(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, flush_disk_type=SYNC) as store:
        await settle(store)
        before = store.stats.log_syncs
        answers: list[PutOutcome] = []
        send(store, answers)
        assert answers == [DURABLE], "without a turn of the loop"
        assert store.commit_log.flushed == store.commit_log.max_offset
        assert store.max_offset("T", 0) == 2, "consumers see it as soon"
        assert (store.stats.inline_syncs, store.stats.log_syncs) == (1, before + 1)


@pytest.mark.trio
async def test_nobody_waits_in_the_loop_for_messages_that_nobody_waits_for(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        result = store.put(draft())
        store.dispatch()
        assert store.commit_log.flushed < result.end_offset
        assert await durable(store, result.end_offset)
        assert store.stats.inline_syncs == 0


@pytest.mark.trio
async def test_nobody_waits_in_the_loop_for_background_work(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        answers: list[PutOutcome] = []
        end = store.put(draft()).end_offset
        store.when_on_disk(end, answers.append, background=True)
        store.dispatch()
        assert answers == []
        assert await durable(store, end)
        assert (answers, store.stats.inline_syncs) == ([DURABLE], 0)


@pytest.mark.trio
async def test_under_async_flush_the_loop_makes_no_sync(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        await settle(store)
        answers: list[PutOutcome] = []
        send(store, answers)
        assert answers == []
        assert await durable(store, store.commit_log.max_offset)
        assert (answers, store.stats.inline_syncs) == ([DURABLE], 0)


@pytest.mark.trio
async def test_no_sync_is_made_in_the_loop_while_a_thread_waits_for_the_disk(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, flush_disk_type=SYNC) as store:
        await settle(store)
        began, goes_on = threading.Event(), Opening()

        def hang(call: Call) -> None:
            if call.name == "fsync":
                began.set()
                assert goes_on.wait(10)

        disk.before = hang
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.in_thread, disk.sync_directory, tmp_path)
            assert await trio.to_thread.run_sync(began.wait, 10)
            answers: list[PutOutcome] = []
            send(store, answers)
            assert answers == []
            assert await durable(store, store.commit_log.max_offset)
            assert (answers, store.stats.inline_syncs) == ([DURABLE], 0)
            goes_on.set()
        send(store, answers)
        assert (answers, store.stats.inline_syncs) == ([DURABLE, DURABLE], 1)


@pytest.mark.trio
async def test_a_new_segment_is_the_threads_since_its_name_has_to_be_synced_too(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        answers: list[PutOutcome] = []
        send(store, answers)
        assert answers == []
        assert await durable(store, store.commit_log.max_offset)
        assert (answers, store.stats.inline_syncs) == ([DURABLE], 0)


@pytest.mark.trio
async def test_long_messages_are_the_threads(tmp_path: Path, mock_clock: MockClock) -> None:
    size = 4 * INLINE_BYTES
    async with running_store(
        tmp_path,
        FaultyDisk(tmp_path),
        flush_disk_type=SYNC,
        mapped_file_size_commit_log_bytes=size,
    ) as store:
        await settle(store)
        answers: list[PutOutcome] = []
        send(store, answers, size=INLINE_BYTES)
        assert answers == []
        assert await durable(store, store.commit_log.max_offset)
        assert (answers, store.stats.inline_syncs) == ([DURABLE], 0)


@pytest.mark.trio
async def test_a_disk_that_becomes_slow_delays_the_loop_once(
    tmp_path: Path, mock_clock: MockClock, logged: Logged
) -> None:
    disk = FaultyDisk(tmp_path)
    took_s = SINGLE_MAX_S * 2
    loop = trio.lowlevel.current_root_task()

    def sync(call: Call) -> None:
        if call.name == "fdatasync" and in_the_loop():
            mock_clock.jump(took_s)

    def in_the_loop() -> bool:
        try:
            return trio.lowlevel.current_root_task() is loop
        except RuntimeError:
            return False

    async with running_store(tmp_path, disk, flush_disk_type=SYNC) as store:
        await settle(store)
        disk.before = sync
        answers: list[PutOutcome] = []
        stalls: list[tuple[int, int]] = []
        store.after_stall.add(
            lambda began, ended: stalls.append((round(1000 * (ended - began)), len(answers)))
        )
        send(store, answers)
        assert answers == [DURABLE]
        assert stalls == [(40, 0)], "told before any answer"
        for number in range(2, 6):
            send(store, answers)
            assert len(answers) == number - 1, "this one is with the thread"
            assert await durable(store, store.commit_log.max_offset)
            assert answers == [DURABLE] * number
        assert store.stats.inline_syncs == 1
        assert [
            line["elapsed_ms"] for line in logged if line["event"] == "flush.inline_paused"
        ] == [40.0]
        took_s = FAST_S
        mock_clock.jump(LONG_PAUSE_S)
        send(store, answers)
        assert store.stats.inline_syncs == 2, "and tries again"


@pytest.mark.trio
async def test_the_setting_can_be_changed_while_the_store_runs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        answers: list[PutOutcome] = []
        store.reconfigure(small_config(tmp_path, flush_disk_type=SYNC, sync_flush_inline=False))
        send(store, answers)
        assert answers == []
        assert await durable(store, store.commit_log.max_offset)
        store.reconfigure(small_config(tmp_path, flush_disk_type=SYNC))
        send(store, answers)
        assert answers == [DURABLE, DURABLE]


@pytest.mark.trio
async def test_a_failed_inline_sync_is_final_as_well(tmp_path: Path, mock_clock: MockClock) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False, flush_disk_type=SYNC) as store:
        await settle(store)
        disk.faults.append(Fault(name="fdatasync", path="commitlog"))
        answers: list[PutOutcome] = []
        send(store, answers)
        assert store.stats.inline_syncs == 1
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [PutOutcome.DISK_LATE]
        assert store.flags.has(Flag.NOT_WRITEABLE)
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.max_offset("T", 0) == 1, "what a power cut could take is not shown"


@pytest.mark.trio
async def test_one_that_cannot_begin_is_retried_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        sync, loop, in_loop = CommitLog.sync, threading.get_ident(), list[bool]()

        def without_descriptors(log: CommitLog, plan: SyncPlan) -> None:
            in_loop.append(threading.get_ident() == loop)
            if len(in_loop) <= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            sync(log, plan)

        monkeypatch.setattr(CommitLog, "sync", without_descriptors)
        answers: list[PutOutcome] = []
        send(store, answers)
        assert answers == []
        assert await durable(store, store.commit_log.max_offset)
        assert (answers, in_loop) == ([DURABLE], [True, False, False])


@pytest.mark.trio
async def test_while_the_thread_syncs_no_sync_is_made_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        jobs: list[tuple[Any, Any]] = []
        with monkeypatch.context() as patch:
            patch.setattr(SyncThread, "submit", lambda _, *job: jobs.append(job))
            store.put(draft())
            store.dispatch()
            answers: list[PutOutcome] = []
            send(store, answers)
            assert (len(jobs), answers, store.stats.inline_syncs) == (1, [], 0)
        store.sync_thread.submit(*jobs[0])
        assert await durable(store, store.commit_log.max_offset)
        assert answers == [DURABLE]


@pytest.mark.trio
async def test_an_error_that_is_no_system_calls_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
            await settle(store)
            monkeypatch.setattr(CommitLog, "sync", broken)
            send(store, [])
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as raised:
        await run()
    assert raised.group_contains(ZeroDivisionError)
    assert not raised.group_contains(SyncFailed)


@pytest.mark.trio
async def test_every_message_is_answered_once_and_in_order_whoever_syncs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    size = 16 * INLINE_BYTES
    async with running_store(
        tmp_path,
        FaultyDisk(tmp_path),
        flush_disk_type=SYNC,
        mapped_file_size_commit_log_bytes=size,
    ) as store:
        order: list[int] = []
        for number in range(40):
            size = INLINE_BYTES if number % 7 == 0 else 100
            result = await put_in_time(store, draft(body=b"x" * size))
            store.when_durable(
                result.end_offset,
                lambda _, number=number: order.append(number),  # type: ignore[misc]  # a default binds the number
            )
            store.dispatch()
            if number % 5 == 0:
                assert await durable(store, result.end_offset)
        assert await durable(store, store.commit_log.max_offset)
        assert order == list(range(40))
        assert store.stats.inline_syncs
