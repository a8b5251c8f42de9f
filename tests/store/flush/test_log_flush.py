"""Group commit, flush by interval, queue flush and checkpoint: with a real disk, virtual time."""

import errno
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.store.config import FlushDiskType
from aerobee.store.files.disk import Disk
from aerobee.store.flags import Flag
from aerobee.store.flush.checkpoint_file import CheckpointFile
from aerobee.store.flush.log_flush import ANSWER_S, STRIDE
from aerobee.store.flush.recovery_point import RecoveryPointFile
from aerobee.store.format.names import ABORT, CHECKPOINT, RECOVERY_POINT
from aerobee.store.message_store import MessageStore
from aerobee.store.queues.consume_queues import SLICE
from aerobee.store.results import PutOutcome, PutStatus
from tests.kit.faulty_disk import Call, Fault, FaultyDisk, Gate
from tests.kit.logged import Logged, events
from tests.kit.running_store import TrioClock, durable, put_in_time, running_store, whole_steps
from tests.kit.store_model import draft, open_store, read_queue, small_config

SYNC = FlushDiskType.SYNC_FLUSH
ASYNC = FlushDiskType.ASYNC_FLUSH
THREAD: Mapping[str, Any] = {"flush_disk_type": SYNC, "sync_flush_inline": False}
"""The thread makes all syncs, as on a slow disk: the loop goes on while a test holds one."""


def syncs(disk: FaultyDisk, part: str = "commitlog") -> int:
    return sum(call.name == "fdatasync" and part in str(call.path) for call in disk.calls)


async def settle(store: MessageStore) -> None:
    """The first segment is there and on disk, so that what follows counts only its own."""
    assert await durable(store, store.put(draft()).end_offset)


# ── SYNC_FLUSH ──


@pytest.mark.trio
async def test_an_answer_comes_when_the_message_is_on_disk(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, flush_disk_type=SYNC) as store:
        result = store.put(draft())
        assert store.commit_log.flushed == 0
        assert await durable(store, result.end_offset)
        assert store.commit_log.flushed == result.end_offset
        assert store.stats.log_syncs == 1


@pytest.mark.trio
async def test_everything_put_while_one_sync_runs_shares_the_next_one(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, **THREAD) as store:
        await settle(store)
        gate = Gate(disk, "fdatasync", "commitlog")
        before = store.stats.log_syncs
        answers: list[int] = []
        for number in range(20):
            end = store.put(draft()).end_offset
            store.when_durable(end, lambda ok, number=number: answers.append(number if ok else -1))  # type: ignore[misc]  # a default binds the number
            store.dispatch()
            if number == 0:
                await gate.wait_for_a_call()
        groups: list[list[int]] = []
        store.after_flush.add(lambda: groups.append(list(answers)))
        gate.let_go()
        assert await durable(store, store.commit_log.max_offset)
        assert store.stats.log_syncs == before + 2
        assert answers == list(range(20))
        assert groups[0] == [0]


@pytest.mark.trio
async def test_a_message_already_on_disk_is_answered_at_once(tmp_path: Path) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        await settle(store)
        answers: list[PutOutcome] = []
        store.when_durable(store.commit_log.flushed, answers.append)
        assert answers == [PutOutcome.DURABLE]


@pytest.mark.trio
async def test_a_disk_that_takes_too_long_gets_the_producer_a_no(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, **THREAD) as store:
        await settle(store)
        gate = Gate(disk, "fdatasync", "commitlog")
        answers: list[PutOutcome] = []
        store.when_durable(store.put(draft()).end_offset, answers.append)
        store.dispatch()
        await gate.wait_for_a_call()
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked()
        assert answers == []
        mock_clock.jump(0.2)
        await wait_all_tasks_blocked()
        assert answers == [PutOutcome.DISK_LATE]
        assert store.stats.sync_timeouts == 1
        gate.let_go()
        assert await durable(store, store.commit_log.max_offset)
        assert answers == [PutOutcome.DISK_LATE], "told once"
        assert store.max_offset("T", 0) == 2


@pytest.mark.trio
async def test_consumers_see_nothing_that_is_not_on_disk(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, **THREAD) as store:
        await settle(store)
        gate = Gate(disk, "fdatasync", "commitlog")
        end = store.put(draft()).end_offset
        store.dispatch()
        await gate.wait_for_a_call()
        store.dispatch()
        assert store.max_offset("T", 0) == 1
        gate.let_go()
        assert await durable(store, end)
        assert store.max_offset("T", 0) == 2


@pytest.mark.trio
async def test_messages_nobody_waits_for_get_to_the_disk_too(tmp_path: Path) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC) as store:
        store.put(draft())
        store.dispatch()
        with trio.fail_after(60):
            while store.flush_behind_bytes:
                await trio.lowlevel.checkpoint()


@pytest.mark.trio
async def test_after_a_roll_both_segments_are_on_disk_before_the_answer(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, prepares=True, flush_disk_type=SYNC) as store:
        await settle(store)
        await put_in_time(store, draft(body=bytes(3_000)))
        disk.calls.clear()
        with trio.fail_after(60):
            second = await put_in_time(store, draft(body=bytes(3_000)))
        assert await durable(store, second.end_offset)
        synced = [str(call.path) for call in disk.calls if call.name == "fdatasync"]
        # The first of the second segment is that of the thread that made it.
        first = next(i for i, path in enumerate(synced) if f"{0:020d}" in path)
        assert [i > first for i, path in enumerate(synced) if f"{4096:020d}" in path][-1:] == [True]


@pytest.mark.trio
async def test_the_first_failed_sync_is_final(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False, flush_disk_type=SYNC) as store:
        await settle(store)
        disk.faults.append(Fault(name="fdatasync", path="commitlog"))
        sent = store.put(draft(body=b"lost"))
        assert not await durable(store, sent.end_offset)
        before = syncs(disk)
        assert store.flags.has(Flag.NOT_WRITEABLE)
        assert "sync" in store.flags.cause
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not await durable(store, sent.end_offset)
        assert syncs(disk) == before, "never tried again"
        assert len(read_queue(store, "T", 0)) == 1, "reads go on"
    assert (tmp_path / ABORT).exists()


ROOMY: Mapping[str, Any] = {"mapped_file_size_commit_log_bytes": 1 << 20}
"""All of a test is in one segment."""


class Senders:
    """Thousands that wait for one sync; each answer takes time, and others count their turns."""

    def __init__(self, store: MessageStore, clock: MockClock, count: int) -> None:
        self.store = store
        self.answers: list[tuple[int, PutOutcome]] = []
        self.at_once: list[int] = [0]
        for number in range(count):
            end = store.put(draft()).end_offset

            def answered(outcome: PutOutcome, number: int = number) -> None:
                clock.jump(ANSWER_S / STRIDE)
                self.answers.append((number, outcome))
                self.at_once[-1] += 1

            store.when_durable(end, answered)

    async def watch(self) -> None:
        """For a task: how many were answered between two of its turns."""
        while True:
            await trio.lowlevel.checkpoint()
            self.at_once.append(0)


@pytest.mark.trio
async def test_thousands_that_waited_for_one_sync_are_answered_in_turns_with_others(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(
        tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC, **ROOMY
    ) as store:
        await settle(store)
        senders = Senders(store, mock_clock, 20 * STRIDE)
        before = store.stats.log_syncs
        async with trio.open_nursery() as nursery:
            nursery.start_soon(senders.watch)
            assert await durable(store, store.commit_log.max_offset)
            nursery.cancel_scope.cancel()
        assert senders.answers == [(number, PutOutcome.DURABLE) for number in range(20 * STRIDE)]
        assert max(senders.at_once) <= 4 * STRIDE, "two turns, as tasks run in any order"
        assert store.stats.log_syncs == before + 1


@pytest.mark.trio
async def test_a_stop_amid_the_answers_gives_the_others_theirs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(
        tmp_path, FaultyDisk(tmp_path), flush_disk_type=SYNC, **ROOMY
    ) as store:
        await settle(store)
        senders = Senders(store, mock_clock, 20 * STRIDE)
        store.dispatch()
        while not senders.answers:
            await trio.lowlevel.checkpoint()
        assert len(senders.answers) < 20 * STRIDE
    assert senders.answers == [(number, PutOutcome.DURABLE) for number in range(20 * STRIDE)]


@pytest.mark.trio
async def test_a_sync_that_fails_amid_the_answers_takes_back_none(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, flush_disk_type=SYNC, clean=False, **ROOMY) as store:
        await settle(store)
        senders = Senders(store, mock_clock, 20 * STRIDE)
        store.dispatch()
        while not senders.answers:
            await trio.lowlevel.checkpoint()
        disk.faults.append(Fault(name="fdatasync", path="commitlog"))
        late = Senders(store, mock_clock, 20 * STRIDE)
        store.dispatch()
        await until(lambda: len(late.answers) == 20 * STRIDE)
        assert senders.answers == [(number, PutOutcome.DURABLE) for number in range(20 * STRIDE)]
        assert late.answers == [(number, PutOutcome.DISK_LATE) for number in range(20 * STRIDE)]


@pytest.mark.trio
async def test_a_recovery_point_counts_no_message_that_came_during_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    monkeypatch.setattr("aerobee.store.queues.consume_queues.SLICE", 2)
    disk = FaultyDisk(tmp_path)
    config = small_config(
        tmp_path,
        flush_interval_consume_queue_ms=60_000,
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=20_000,
    )
    store = MessageStore(config, disk=disk, clock=TrioClock())
    store.load()

    def put(queues: int) -> None:
        for queue_id in range(queues):
            store.put(draft(queue_id=queue_id))
        store.dispatch()

    with whole_steps():
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            put(10)
            first = store.commit_log.max_offset
            token = trio.lowlevel.current_trio_token()

            def put_more(call: Call) -> None:
                # Not the look at the room on the disk, which comes whenever it likes.
                if call.name == "pwrite" and "consumequeue" in str(call.path):
                    token.run_sync_soon(put, 14, idempotent=True)

            disk.before = put_more
            assert await store.flush_queues()
            disk.before = None
            all_put = trio.Event()
            token.run_sync_soon(all_put.set)
            await all_put.wait()
            end = store.commit_log.max_offset
            nursery.cancel_scope.cancel()
    disk.kill()
    point = RecoveryPointFile(disk, tmp_path / RECOVERY_POINT).load()
    assert point is not None
    assert point.log_end == first < end
    reopened, recovery = open_store(tmp_path, disk)
    assert "store.recovery_point_wrong" not in events(logged)
    assert recovery.end_offset == end
    assert await reopened.close()


@pytest.mark.trio
async def test_behind_a_deletion_no_recovery_point_counts_the_deleted_queue(
    tmp_path: Path, logged: Logged
) -> None:
    """While others send, and the log is synced later than the queues are written."""
    disk = FaultyDisk(tmp_path)
    config = small_config(
        tmp_path,
        flush_interval_consume_queue_ms=10,
        flush_interval_commit_log_ms=60_000,
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=20_000,
    )
    store = MessageStore(config, disk=disk, clock=TrioClock())
    store.load()

    def put(topic: str) -> None:
        for queue_id in range(4):
            store.put(draft(topic, queue_id))
        store.dispatch()

    def written() -> int:
        """The bytes of units in the files of the topic that is deleted."""
        return sum(queue.written for queue in store.queues.all() if queue.topic == "Gone")

    with whole_steps():
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            put("Gone")
            while not written():  # noqa: ASYNC110  (nobody is told when units are written)
                await trio.sleep(0.005)
            token = trio.lowlevel.current_trio_token()

            def put_more(call: Call) -> None:
                if "commitlog" in str(call.path):
                    token.run_sync_soon(put, "Stays", idempotent=True)

            await store.space.queues.destroy_topics({"Gone"})
            put("Stays")
            disk.before = put_more
            deleted_at = store.commit_log.max_offset
            assert await store.flush_queues()
            disk.before = None
            point = RecoveryPointFile(disk, tmp_path / RECOVERY_POINT).load()
            nursery.cancel_scope.cancel()
    disk.kill()
    assert point is not None
    assert point.log_end >= deleted_at
    reopened, _ = open_store(tmp_path, disk)
    assert "store.recovery_point_wrong" not in events(logged)
    assert reopened.queues.find("Gone", 0) is None
    assert await reopened.close()


# ── ASYNC_FLUSH ──


@pytest.mark.trio
async def test_four_dirty_pages_are_flushed_by_the_interval_and_less_is_not(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    size = 1 << 20
    async with running_store(tmp_path, disk, mapped_file_size_commit_log_bytes=size) as store:
        store.put(draft(body=bytes(3 * 4_096)))
        await step(mock_clock, 0.6)
        assert store.commit_log.flushed == 0
        store.put(draft(body=bytes(4_096)))
        await step(mock_clock, 0.6)
        await until_flushed(store)


@pytest.mark.trio
async def test_whatever_there_is_gets_flushed_by_the_thorough_interval(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        store.put(draft())
        await step(mock_clock, 9)
        assert store.commit_log.flushed == 0
        await step(mock_clock, 2)
        await until_flushed(store)


@pytest.mark.trio
async def test_a_segment_that_is_full_is_flushed_by_the_interval(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        for _ in range(2):
            store.put(draft(body=bytes(3_000)))
        await step(mock_clock, 0.6)
        await until_flushed(store)


@pytest.mark.trio
async def test_who_asks_for_the_disk_under_async_flush_gets_an_answer(tmp_path: Path) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        assert await durable(store, store.put(draft()).end_offset)


# ── Queues and checkpoint ──


@pytest.mark.trio
async def test_units_get_to_their_file_within_a_second(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        store.put(draft())
        store.dispatch()
        await step(mock_clock, 1.1)
        await until(lambda: not store.queues.unwritten())
        assert (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").exists()


@pytest.mark.trio
async def test_the_checkpoint_is_written_behind_log_and_queues(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        store.put(draft())
        store.dispatch()
        disk.calls.clear()
        assert await store.flush_queues()
        synced = [str(call.path) for call in disk.calls if call.name == "fdatasync"]
        log = next(i for i, path in enumerate(synced) if "commitlog" in path)
        queue = next(i for i, path in enumerate(synced) if "consumequeue" in path)
        assert log < queue < synced.index(str(tmp_path / CHECKPOINT))


@pytest.mark.trio
async def test_the_checkpoint_never_names_a_time_that_may_still_be_given(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        stored = store.put(draft()).store_timestamp
        store.dispatch()
        assert await store.flush_queues()
        value = CheckpointFile(FaultyDisk(tmp_path), tmp_path / CHECKPOINT).load()
        assert value.physic_msg_timestamp == value.logics_msg_timestamp == stored - 1
        mock_clock.jump(0.01)
        store.put(draft())
        store.dispatch()
        mock_clock.jump(0.01)
        assert await store.flush_queues()
        value = CheckpointFile(FaultyDisk(tmp_path), tmp_path / CHECKPOINT).load()
        assert value.physic_msg_timestamp == value.logics_msg_timestamp == stored + 10


@pytest.mark.trio
async def test_what_is_not_dispatched_is_not_covered_by_the_checkpoint(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, FaultyDisk(tmp_path)) as store:
        first = store.put(draft()).store_timestamp
        store.dispatch()
        mock_clock.jump(1)
        store.put(draft())
        mock_clock.jump(1)
        with monkeypatch.context() as patch:
            patch.setattr("aerobee.store.queues.dispatch.Dispatcher.advance", lambda *_: None)
            assert await store.flush_queues()
        value = CheckpointFile(FaultyDisk(tmp_path), tmp_path / CHECKPOINT).load()
        assert value.logics_msg_timestamp == first - 1
        assert value.physic_msg_timestamp == first + 1_000


@pytest.mark.trio
async def test_a_full_disk_under_the_queues_refuses_writes_until_there_is_room(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        store.put(draft())
        store.dispatch()
        disk.faults.append(Fault(name="pwrite", path="consumequeue", error=errno.ENOSPC, times=2))
        assert not await store.flush_queues()
        assert store.put(draft()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert store.max_offset("T", 0) == 1
        assert not await store.flush_queues()
        assert await store.flush_queues()
        assert store.put(draft()).status is PutStatus.PUT_OK
        store.dispatch()


@pytest.mark.trio
async def test_writes_go_on_when_the_queue_that_could_not_be_written_is_deleted(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store:
        for topic in ("Kept", "T"):
            store.put(draft(topic))
            store.dispatch()
        full = Fault(name="pwrite", path="consumequeue/T", error=errno.ENOSPC, times=9)
        disk.faults.append(full)
        for _ in range(2):
            assert not await store.flush_queues()
            assert store.flags.has(Flag.LOGIC_DISK_FULL)
        assert await store.space.queues.destroy_topics(["T"]) == [("T", 0)]
        assert await store.flush_queues()
        assert full.times == 7
        full.times = 0
        for topic in ("Kept", "T"):
            assert store.put(draft(topic)).status is PutStatus.PUT_OK
        store.dispatch()


@pytest.mark.trio
async def test_a_failed_sync_of_a_queue_is_final_as_well(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, clean=False) as store:
        store.put(draft())
        store.dispatch()
        assert await store.flush_queues()
        store.put(draft())
        store.dispatch()
        disk.faults.append(Fault(name="fdatasync", path="consumequeue"))
        assert not await store.flush_queues()
        assert store.flags.has(Flag.NOT_WRITEABLE)
        assert not await store.flush_queues()
        assert len(read_queue(store, "T", 0)) == 2


@pytest.mark.trio
async def test_very_many_units_in_memory_start_a_round_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.flush.queue_flush.UNWRITTEN_UNITS_MAX", 20)
    interval = 60_000
    async with running_store(
        tmp_path, FaultyDisk(tmp_path), flush_interval_consume_queue_ms=interval
    ) as store:
        for _ in range(30):
            store.put(draft())
        store.dispatch()
        await until(lambda: not store.queues.unwritten())


@pytest.mark.trio
@pytest.mark.parametrize(("queues", "least_s", "most_s"), [(1, 0.0, 0.25), (30, 0.3, 2.0)])
async def test_after_a_round_of_very_many_writes_the_next_comes_later(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    queues: int,
    least_s: float,
    most_s: float,
) -> None:
    monkeypatch.setattr("aerobee.store.flush.queue_flush.WRITES_PER_SECOND", 10)
    monkeypatch.setattr("aerobee.store.flush.queue_flush.PAUSE_MAX_S", 0.3)
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, flush_interval_consume_queue_ms=10) as store:

        async def written() -> float:
            """When all queues have a message more, and it is in their files."""
            for queue_id in range(queues):
                await put_in_time(store, draft(queue_id=queue_id))
            store.dispatch()
            await until(lambda: not store.queues.unwritten())
            return trio.current_time()

        await written()
        gaps = [-await written() + await written() for _ in range(3)]
        assert least_s <= max(gaps)
        assert min(gaps) < most_s


async def step(clock: MockClock, seconds: float) -> None:
    """Let time pass in pieces, so that every service gets its turns."""
    left = seconds
    while left > 0:
        await wait_all_tasks_blocked()
        clock.jump(min(0.1, left))
        left -= 0.1
    await wait_all_tasks_blocked()


async def until_flushed(store: MessageStore) -> None:
    await until(lambda: not store.flush_behind_bytes)


async def until(reached: object) -> None:
    """Give threads their time: real time, since the loop's own does not move."""
    assert callable(reached)
    for _ in range(2_000):
        if reached():
            return
        await trio.to_thread.run_sync(threading.Event().wait, 0.005)
    raise AssertionError("never")


@pytest.mark.trio
async def test_a_round_over_many_queues_lets_others_have_their_turn(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk()) as store:
        for number in range(2 * SLICE + 1):
            store.put(draft(queue_id=number, body=b"x"))
        store.dispatch()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert await store.flush_queues()
            nursery.cancel_scope.cancel()
        assert turns > 2
        assert max(len(queues) for queues in store.queues.slices()) == SLICE
        assert not any(queue.unsynced_bytes for queue in store.queues.all())
        assert not store.queues.unsynced, "the next round has nothing to look at"
