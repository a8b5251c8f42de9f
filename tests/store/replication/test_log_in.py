from __future__ import annotations

import errno
import threading
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from aerobee.store.config import FlushDiskType
from aerobee.store.errors import FrameIllegal, FrameMisplaced, ReplicaBytesWrong
from aerobee.store.files.disk import Disk
from aerobee.store.format.ha import NEVER_COUNTS, ReportReader, encode_frame, encode_frames
from aerobee.store.format.names import segment_name
from aerobee.store.format.record import blank, encode
from aerobee.store.message_store import MessageStore
from aerobee.store.replication import log_in
from aerobee.store.replication.arriving import STEP_RECORDS
from aerobee.store.replication.log_in import RECEIVE_LEAST_BYTES
from aerobee.store.results import PutStatus
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate
from tests.kit.running_store import TrioClock, durable, roll_at_once, running_store
from tests.kit.store_model import LOG_BYTES, draft, queue_files, read_queue, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aerobee.store.errors import ReplicationRefused

RECORD = encode(draft(body=b"one"), 0, 0, 1_700_000_000_000)
BIG: dict[str, Any] = {"mapped_file_size_commit_log_bytes": 1 << 20}


def of_java_4(number: int, physical_offset: int) -> bytes:
    """A message of a Java broker of 4.9, which leaves out the last 0x02 of its properties."""
    properties = b"KEYS\x01k\x02UNIQ_KEY\x01%d" % number
    closed = encode(draft(properties=properties), number, physical_offset, 1_700_000_000_000)
    front, length = closed[4 : -len(properties) - 3], len(properties).to_bytes(2, "big")
    return (len(closed) - 1).to_bytes(4, "big") + front + length + properties


def records(count: int) -> bytes:
    """A log of so many messages of a queue that has lost its first one."""
    log = b""
    for number in range(1, count + 1):
        log += encode(draft(), number, len(log), 1_700_000_000_000)
    return log


@asynccontextmanager
async def joined(master: MessageStore, slave: MessageStore) -> AsyncIterator[None]:
    """The slave follows the master."""
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(master.log_out.serve, ours, "10.0.0.2", "10.0.0.2:4711")
        nursery.start_soon(slave.log_in.follow, theirs, slave.dispatch)
        yield
        nursery.cancel_scope.cancel()


class FakeMaster:
    """The other end of a slave's connection: it sends what the test says, and reads reports."""

    def __init__(self, store: MessageStore) -> None:
        self.stream, self.theirs = memory_stream_pair()
        self.store = store
        self.reports: list[int] = []
        self.ended: str | ReplicationRefused | None = None

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read)
            try:
                self.ended = await self.store.log_in.follow(self.theirs, self.store.dispatch)
            except (FrameIllegal, FrameMisplaced, ReplicaBytesWrong) as refused:
                self.ended = refused
            nursery.cancel_scope.cancel()

    async def _read(self) -> None:
        reader = ReportReader()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self.stream.receive_some():
                if (report := reader.feed(bytes(data))) is not None:
                    self.reports.append(report)

    async def send(self, *frames: bytes) -> None:
        await self.stream.send_all(b"".join(frames))
        await wait_all_tasks_blocked()


@asynccontextmanager
async def master_of(store: MessageStore) -> AsyncIterator[FakeMaster]:
    async with trio.open_nursery() as nursery:
        master = FakeMaster(store)
        nursery.start_soon(master.run)
        await wait_all_tasks_blocked()
        yield master
        nursery.cancel_scope.cancel()


async def until(look: Callable[[], bool]) -> None:
    """Wait for the threads of both stores; no time passes."""
    for _ in range(20_000):
        if look():
            return
        await wait_all_tasks_blocked()
        # Turns of the loop alone are over before a slow disk has answered once.
        await trio.to_thread.run_sync(threading.Event().wait, 0.001)
    raise AssertionError("never true")


def put(store: MessageStore, count: int, first: int = 0) -> int:
    for number in range(first, first + count):
        store.put(draft(queue_id=number % 3, body=b"%d" % number * (number % 90)))
    store.dispatch()
    return store.commit_log.max_offset


def log_bytes(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


@pytest.mark.trio
async def test_log_and_queues_of_a_slave_are_those_of_its_master(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_store(one, Disk()) as master, running_store(two, Disk()) as slave:
        async with joined(master, slave):
            for round_ in range(40):
                end = put(master, 7, 7 * round_)
                await wait_all_tasks_blocked()
                assert slave.commit_log.max_offset == end
                assert master.log_out.held_by(1) == end
        assert end > 4 * LOG_BYTES
        assert log_bytes(one) == log_bytes(two)
        for queue in range(3):
            assert read_queue(slave, "T", queue) == read_queue(master, "T", queue)
    assert log_bytes(one) == log_bytes(two)
    assert queue_files(one) == queue_files(two)


@pytest.mark.trio
async def test_a_slave_goes_on_where_it_ended_after_a_break_and_after_a_restart(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_store(one, Disk()) as master:
        for round_ in range(6):
            async with running_store(two, Disk()) as slave:
                for half in range(2):
                    async with joined(master, slave):
                        put(master, 9, 18 * round_ + 9 * half)
                        await wait_all_tasks_blocked()
                    put(master, 3)
        async with running_store(two, Disk()) as slave, joined(master, slave):
            await wait_all_tasks_blocked()
            assert slave.commit_log.max_offset == master.commit_log.max_offset
            assert log_bytes(one) == log_bytes(two)


@pytest.mark.trio
async def test_an_empty_slave_of_an_old_master_begins_with_its_last_segment(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_store(one, Disk()) as master:
        end = put(master, 150)
        start = end - end % LOG_BYTES
        assert start >= 2 * LOG_BYTES
        async with running_store(two, Disk()) as slave, joined(master, slave):
            await wait_all_tasks_blocked()
            assert slave.commit_log.min_offset == start
            assert slave.commit_log.max_offset == end
            for queue in range(3):
                first = slave.min_offset("T", queue)
                assert first > 0
                assert slave.max_offset("T", queue) == master.max_offset("T", queue)
                kept = read_queue(master, "T", queue)[first:]
                assert read_queue(slave, "T", queue) == kept
        async with running_store(two, Disk()) as slave:
            assert slave.commit_log.min_offset == start
            assert slave.commit_log.max_offset == end


@pytest.mark.trio
async def test_a_topic_that_was_deleted_and_made_again_begins_anew_on_a_slave(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with (
        running_store(one, Disk()) as master,
        running_store(two, Disk()) as slave,
        joined(master, slave),
    ):
        put(master, 30)
        await until(lambda: slave.dispatcher.dispatched == master.commit_log.max_offset)
        renewed: list[str] = []
        slave.log_in.after_renewal.add(renewed.append)
        await master.space.queues.destroy_topics({"T"})
        put(master, 4, 100)
        await until(lambda: slave.dispatcher.dispatched == master.commit_log.max_offset)
        for queue in range(3):
            assert slave.max_offset("T", queue) == master.max_offset("T", queue) < 3
            assert read_queue(slave, "T", queue) == read_queue(master, "T", queue)
        assert renewed == ["T"]
    assert queue_files(one) == queue_files(two)


async def put_each(master: MessageStore, slave: MessageStore, *queue_ids: int) -> None:
    """Long messages for these queues, until the slave has them."""
    for queue_id in queue_ids:
        message = draft(queue_id=queue_id, body=b"x" * 500)
        assert master.put(message).status is PutStatus.PUT_OK
        master.dispatch()
    await until(lambda: slave.dispatcher.dispatched == master.commit_log.max_offset)


async def lose_first(*stores: MessageStore) -> None:
    for store in stores:
        assert await store.flush_queues()
        store.commit_log.queue.take_first().path.unlink()
        await store.space.queues.follow(store.commit_log.min_offset)


@pytest.mark.trio
@pytest.mark.parametrize("keeps_longer", [False, True])
async def test_a_queue_that_the_master_deleted_alone_leaves_the_others(
    tmp_path: Path, mock_clock: MockClock, keeps_longer: bool
) -> None:
    """As by CLEAN_EXPIRED_CONSUMEQUEUE: none of its messages was left in the log."""
    async with (
        running_store(tmp_path / "one", Disk()) as master,
        running_store(tmp_path / "two", Disk()) as slave,
        joined(master, slave),
    ):
        await wait_all_tasks_blocked()
        await put_each(master, slave, 1, *[0, 2] * 10)
        renewed: list[str] = []
        slave.log_in.after_renewal.add(renewed.append)
        await lose_first(*[master] if keeps_longer else [master, slave])
        begin = master.commit_log.min_offset
        slave.log_in.master_ends = begin, master.commit_log.max_offset
        assert await master.space.queues.destroy_expired(begin, lambda _: False) == [("T", 1)]
        await put_each(master, slave, 1, 0, 2)
        for queue_id in range(3):
            assert slave.max_offset("T", queue_id) == master.max_offset("T", queue_id)
            theirs = read_queue(master, "T", queue_id)[master.min_offset("T", queue_id) :]
            assert read_queue(slave, "T", queue_id)[-len(theirs) :] == theirs
        assert renewed == []


@pytest.mark.trio
async def test_queues_that_began_with_the_topic_made_again_stay(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """The first of them had no message in the log, by which nobody can tell that the topic was
    deleted; the other one tells it, and the first has messages again by then.
    """
    async with (
        running_store(tmp_path / "one", Disk()) as master,
        running_store(tmp_path / "two", Disk()) as slave,
        joined(master, slave),
    ):
        await wait_all_tasks_blocked()
        await put_each(master, slave, 1, *[0] * 20)
        await lose_first(master, slave)
        await master.space.queues.destroy_topics({"T"})
        await put_each(master, slave, 1, 1, 0)
        for queue_id in range(2):
            assert slave.max_offset("T", queue_id) == master.max_offset("T", queue_id)
            assert read_queue(slave, "T", queue_id) == read_queue(master, "T", queue_id)


@pytest.mark.trio
async def test_the_first_message_of_a_queue_is_told_of_and_no_other(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    told: list[tuple[str, int]] = []
    async with running_store(tmp_path, Disk()) as store, master_of(store) as master:
        store.log_in.after_begin.add(lambda *queue: told.append(queue))
        log = b""
        for queue_id, queue_offset in ((0, 0), (0, 1), (7, 0), (7, 1), (0, 2)):
            log += encode(draft(queue_id=queue_id), queue_offset, len(log), 1_700_000_000_000)
        await master.send(encode_frame(0, log))
        assert store.commit_log.max_offset == len(log)
        assert told == [("T", 0), ("T", 7)]


@pytest.mark.trio
async def test_a_first_segment_without_a_record_is_no_log(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_in, "SEGMENT_AGAIN_S", 0)
    # As a crash leaves it; the master goes on with a later segment by now.
    directory = tmp_path / "commitlog"
    directory.mkdir()
    first = directory / f"{0:020d}"
    first.write_bytes(bytes(LOG_BYTES))
    begin = 3 * LOG_BYTES
    record = encode(draft(body=b"one"), 0, begin, 1_700_000_000_000)
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk) as store, master_of(store) as master:
        disk.faults.append(Fault(name="unlink", path=first.name, times=1))
        await master.send(encode_frame(begin, record))
        await until(lambda: store.commit_log.max_offset == begin + len(record))
        assert master.ended is None
        assert disk.faults[0].times == 0, "it was not removed"
        assert store.commit_log.min_offset == begin
    assert [path.name for path in directory.iterdir()] == [f"{begin:020d}"]


@pytest.mark.trio
async def test_part_of_a_record_is_neither_reported_nor_in_the_log(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, master_of(store) as master:
        await master.send(encode_frame(0, RECORD[:40]))
        assert (store.commit_log.max_offset, master.reports) == (0, [0])
        await master.send(encode_frame(40, RECORD[40:]))
        assert (store.commit_log.max_offset, master.reports) == (len(RECORD), [0, len(RECORD)])
        assert store.max_offset("T", 0) == 1


@pytest.mark.trio
async def test_a_stop_in_the_midst_of_the_end_of_a_segment_leaves_nothing_of_it(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    end = len(RECORD)
    end_mark = blank(LOG_BYTES - end)
    first = tmp_path / "commitlog" / segment_name(0)
    async with running_store(tmp_path, Disk()) as store:
        async with master_of(store) as master:
            await master.send(encode_frame(0, RECORD))
            await master.send(encode_frame(end, end_mark + bytes(100)))
            assert first.read_bytes()[end:][:8] == end_mark
        assert store.commit_log.max_offset == end
        assert not any(first.read_bytes()[end:])
        async with master_of(store) as master:
            await master.send(encode_frame(end, end_mark + bytes(LOG_BYTES - end - 8)))
            await until(lambda: store.commit_log.max_offset == LOG_BYTES)


@pytest.mark.trio
async def test_others_have_their_turn_between_the_steps_of_one_receive(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    steps = 6
    log = records(steps * STEP_RECORDS)
    ends: set[int] = set()

    async def look() -> None:
        while True:
            ends.add(store.commit_log.max_offset)
            await trio.lowlevel.checkpoint()

    async with running_store(tmp_path, Disk(), **BIG) as store, master_of(store) as master:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await master.stream.send_all(encode_frames(0, memoryview(log), 4_096))
            while store.commit_log.max_offset < len(log):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        # Tasks run in any order, so one may have its turn first and then last.
        assert max(b - a for a, b in pairwise(sorted(ends))) <= 2 * len(log) // steps
        assert store.stats.dispatch_parsed == 0
        assert store.max_offset("T", 0) == steps * STEP_RECORDS + 1


@pytest.mark.trio
async def test_all_that_came_together_is_reported_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    log = records(2 * STEP_RECORDS)
    assert len(log) < RECEIVE_LEAST_BYTES
    async with running_store(tmp_path, Disk(), **BIG) as store, master_of(store) as master:
        first = len(log) // (2 * STEP_RECORDS)
        await master.send(encode_frame(0, log[:first]))
        await master.send(encode_frame(first, log[first:]))
        assert (store.commit_log.max_offset, master.reports) == (len(log), [0, first, len(log)])


@pytest.mark.trio
async def test_messages_of_a_batch_are_dispatched_as_one(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    log, runs = records(20), []
    async with running_store(tmp_path, Disk(), **BIG) as store, master_of(store) as master:
        store.dispatcher.run_followers.append(lambda run: runs.append(len(list(run.each()))))
        await master.send(encode_frame(0, log))
        assert (runs, store.max_offset("T", 0)) == ([20], 21)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (encode_frame(len(RECORD), RECORD), ReplicaBytesWrong),
        (encode_frame(len(RECORD), b"\xff" * 200), ReplicaBytesWrong),
        (encode_frame(len(RECORD), bytes(200)), ReplicaBytesWrong),
        (encode_frame(len(RECORD) + 1, RECORD), FrameMisplaced),
        (encode_frame(0), FrameMisplaced),
        (encode_frame(len(RECORD), bytes(LOG_BYTES)), FrameMisplaced),
        (bytes.fromhex("0000000000000000 ffffffff"), FrameIllegal),
        (bytes.fromhex("0000000000000000 7fffffff"), FrameIllegal),
    ],
)
async def test_the_log_ends_in_front_of_the_first_wrong_byte(
    tmp_path: Path, mock_clock: MockClock, wrong: bytes, error: type[ReplicationRefused]
) -> None:
    async with running_store(tmp_path, Disk()) as store, master_of(store) as master:
        await master.send(encode_frame(0, RECORD), wrong, encode_frame(len(RECORD), RECORD))
        assert isinstance(master.ended, error)
        assert store.commit_log.max_offset == len(RECORD)
        assert store.max_offset("T", 0) == 1
    async with running_store(tmp_path, Disk()) as store:
        assert store.commit_log.max_offset == len(RECORD)


@pytest.mark.trio
async def test_under_sync_flush_only_what_is_on_disk_is_reported(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    sync: dict[str, Any] = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    disk = FaultyDisk(tmp_path)
    async with running_store(tmp_path, disk, **sync) as store, master_of(store) as master:
        gate = Gate(disk, "fdatasync", "commitlog")
        await master.send(encode_frame(0, RECORD))
        assert store.commit_log.max_offset == len(RECORD)
        assert master.reports == [0]
        gate.let_go()
        assert await durable(store, len(RECORD))
        await wait_all_tasks_blocked()
        assert master.reports == [0, len(RECORD)]


@pytest.mark.trio
async def test_a_slave_reports_every_five_seconds_and_leaves_a_silent_master_after_twenty(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, master_of(store) as master:
        await trio.sleep(19.9)
        assert master.ended is None
        await trio.sleep(0.2)
        assert master.ended == "silent"
        assert master.reports == [0] * 4


@pytest.mark.trio
async def test_a_slave_without_room_waits_for_it_and_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    full = FaultyDisk(two)
    async with (
        running_store(one, Disk()) as master,
        running_store(two, full, clean=True) as slave,
        joined(master, slave),
    ):
        put(master, 5)
        await trio.sleep(0.1)
        fault = Fault(name="posix_fallocate", error=errno.ENOSPC, times=3)
        full.faults.append(fault)
        end = put(master, 80)
        await trio.sleep(30)
        assert fault.times == 0
        assert slave.commit_log.max_offset == end
        assert log_bytes(one) == log_bytes(two)


@pytest.mark.trio
async def test_a_slave_whose_disk_has_no_block_for_a_record_waits_and_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    full = FaultyDisk(two)
    full.copying = True
    async with (
        running_store(one, Disk()) as master,
        running_store(two, full, clean=True) as slave,
        joined(master, slave),
    ):
        put(master, 5)
        await trio.sleep(0.1)
        full.faults.append(Fault(name="pwrite", path="commitlog", error=errno.ENOSPC, times=3))
        end = put(master, 80)
        await trio.sleep(60)
        assert slave.commit_log.max_offset == end
        assert log_bytes(one) == log_bytes(two)


@pytest.mark.parametrize("lost", ["the end of a segment", "its end again"])
@pytest.mark.trio
async def test_a_slave_without_a_block_for_the_end_of_a_segment_goes_on_without_it(
    tmp_path: Path, autojump_clock: MockClock, lost: str
) -> None:
    """The connection breaks off inside of it: none of it may stay behind the log for ever."""
    disk = FaultyDisk(tmp_path)
    disk.copying = True
    async with running_store(tmp_path, disk, clean=True) as store:
        data = records(3)
        filler = encode_frame(len(data), blank(LOG_BYTES - len(data)) + b"\1" * 2_000)
        full = Fault(name="pwrite", path="commitlog", error=errno.ENOSPC, times=1_000)
        async with master_of(store) as master:
            await master.send(encode_frame(0, data))
            await until(lambda: store.commit_log.max_offset == len(data))
            if lost == "the end of a segment":
                disk.faults += [Fault(name="pwrite", path="commitlog", short=True, error=0), full]
                await master.send(filler)
            else:
                await master.send(filler)
                disk.faults.append(full)
            await master.stream.aclose()
            # It is seen with the next report.
            await trio.sleep(60)
            assert not isinstance(master.ended, Exception)
        full.times = 0
        tail = store.commit_log.tail
        assert tail is not None
        assert any(tail.path.read_bytes()[len(data) :])
        store.space.watch.segment_again()
        assert store.put(draft()).status is PutStatus.PUT_OK
        assert not any(tail.path.read_bytes()[tail.wrote :])


@pytest.mark.trio
async def test_a_slave_that_becomes_the_master_has_what_other_slaves_got_from_theirs(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with (
        running_store(tmp_path / "m", Disk()) as old,
        running_store(tmp_path / "s", Disk()) as store,
    ):
        store.be_slave()
        async with joined(old, store):
            for _ in range(3):
                old.put(draft(body=b"one"))
                old.dispatch()
                await wait_all_tasks_blocked()
        end = old.commit_log.max_offset
        assert store.commit_log.max_offset == end
        store.dispatch()
        store.be_master()
        assert store.log_out.span().known == end


@pytest.mark.trio
async def test_a_shadow_says_where_to_begin_and_never_what_it_has(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        store.log_in.shadow = True
        async with master_of(store) as master:
            await wait_all_tasks_blocked()
            assert master.reports == [0]
            # As long as the master has not answered, it may not have read that.
            mock_clock.jump(5.1)
            await wait_all_tasks_blocked()
            assert master.reports == [0, 0]
            await master.send(encode_frame(0, RECORD))
            await until(lambda: store.commit_log.max_offset == len(RECORD))
            assert master.reports == [0, 0, NEVER_COUNTS]
            mock_clock.jump(5.1)
            await wait_all_tasks_blocked()
            assert master.reports[3:] == [NEVER_COUNTS]


@pytest.mark.trio
async def test_a_master_counts_no_shadow(tmp_path: Path, mock_clock: MockClock) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_store(one, Disk()) as master, running_store(two, Disk()) as slave:
        slave.log_in.shadow = True
        async with joined(master, slave):
            end = put(master, 5)
            await until(lambda: slave.commit_log.max_offset == end)
            await until(lambda: master.log_out.held_by(1) < 0)
            end = put(master, 5, 5)
            await until(lambda: slave.commit_log.max_offset == end)
            assert master.log_out.held_by(1) == -1
            assert log_bytes(two) == log_bytes(one)


@pytest.mark.trio
@pytest.mark.parametrize("torn", [0, 3])
@pytest.mark.parametrize("ended", ["killed", "without power"])
async def test_a_slave_of_java_4_keeps_what_it_has_reported(
    tmp_path: Path, ended: str, torn: int
) -> None:
    root = tmp_path / "store"
    root.mkdir()
    disk, ends = FaultyDisk(root), [0]
    store = MessageStore(
        small_config(root, flush_disk_type=FlushDiskType.SYNC_FLUSH), disk=disk, clock=TrioClock()
    )
    roll_at_once(store)
    store.load()
    store.be_slave()

    async def take(master: FakeMaster, count: int) -> None:
        for _ in range(count):
            record = of_java_4(len(ends) - 1, ends[-1])
            await master.send(encode_frame(ends[-1], record))
            ends.append(ends[-1] + len(record))
        await until(lambda: master.reports[-1] == ends[-1])

    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        async with master_of(store) as master:
            await take(master, 3)
            assert await store.flush_queues()
            await take(master, 4)
        nursery.cancel_scope.cancel()
    store.sync_thread.stop()
    if ended == "killed":
        disk.kill()
    else:
        root = disk.power_cut(tmp_path / "after", Random(1), keep=0)
        disk = FaultyDisk(root)
    with (root / "commitlog" / segment_name(0)).open("r+b") as segment:
        segment.seek(ends[-1] - torn)
        segment.write(bytes(torn))
    after = MessageStore(small_config(root), disk=disk, clock=TrioClock())
    recovery = after.load()
    after.let_go()
    assert recovery.end_offset == ends[-2 if torn else -1]
    assert after.max_offset("T", 0) == (6 if torn else 7)
