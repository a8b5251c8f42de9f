from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from aerobee.store.config import FlushDiskType
from aerobee.store.files.disk import Disk
from aerobee.store.format.ha import Frame, FrameReader, encode_report
from aerobee.store.replication.log_out import Pace
from aerobee.store.replication.transfer import Standing
from tests.kit.running_store import durable, running_store
from tests.kit.store_model import LOG_BYTES, draft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.store.message_store import MessageStore


class FakeSlave:
    """The other end of a connection: it reports what the test says and keeps what it gets."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.got: list[Frame] = []
        self.more = trio.Event()
        self.left = False

    async def report(self, *max_offsets: int) -> None:
        await self.stream.send_all(b"".join(map(encode_report, max_offsets)))

    async def receive(self) -> None:
        reader = FrameReader()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self.stream.receive_some():
                self.got += reader.feed(data)
                self.more.set()
        self.left = True
        self.more.set()

    async def frames(self) -> list[Frame]:
        """The frames that come before time would have to pass."""
        await wait_all_tasks_blocked()
        found, self.got = self.got, []
        return found

    async def next_frame(self) -> Frame | None:
        """The next frame, however long it takes; None at the end of the connection."""
        while not self.got and not self.left:
            self.more = trio.Event()
            await self.more.wait()
        return self.got.pop(0) if self.got else None


@asynccontextmanager
async def slave_of(
    store: MessageStore, host: str = "10.0.0.2", *, reads: bool = True
) -> AsyncIterator[FakeSlave]:
    async with trio.open_nursery() as nursery:
        ours, theirs = memory_stream_pair() if reads else lockstep_stream_pair()
        nursery.start_soon(store.log_out.serve, ours, host, f"{host}:40000")
        slave = FakeSlave(theirs)
        if reads:
            nursery.start_soon(slave.receive)
        yield slave
        await theirs.aclose()


def put(store: MessageStore, count: int, size: int = 100) -> int:
    """Messages, and the end of the log behind them."""
    for _ in range(count):
        store.put(draft(body=bytes(size)))
    store.dispatch()
    return store.commit_log.max_offset


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


@pytest.mark.trio
async def test_a_slave_gets_the_log_as_it_lies_over_rolls_and_blanks(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        put(store, 1)
        await slave.report(0)
        got = await slave.frames()
        for _ in range(60):
            put(store, 2)
            got += await slave.frames()
        end = store.commit_log.max_offset
        assert end > 3 * LOG_BYTES
        assert b"".join(frame.data for frame in got) == log_bytes(tmp_path)[:end]
        at = 0
        for frame in got:
            assert frame.physical_offset == at
            at += len(frame.data)


@pytest.mark.trio
async def test_an_append_is_sent_before_any_time_passes(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        await slave.report(0)
        await wait_all_tasks_blocked()
        began = trio.current_time()
        end = put(store, 1)
        frame = await slave.next_frame()
        assert frame is not None
        assert len(frame.data) == end
        assert trio.current_time() == began


@pytest.mark.trio
async def test_heartbeats_name_the_next_offset_every_five_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        end = put(store, 1)
        await slave.report(end)
        for _ in range(3):
            await wait_all_tasks_blocked()
            mock_clock.jump(4.9)
            assert await slave.frames() == []
            mock_clock.jump(0.2)
            assert await slave.frames() == [Frame(end, b"")]


@pytest.mark.trio
async def test_rounds_that_store_nothing_hold_back_no_heartbeat(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        await slave.report(0)
        await wait_all_tasks_blocked()
        end = put(store, 1)
        assert await slave.frames()
        await slave.report(end)
        got = []
        for _ in range(11):
            # As the answer to a pull does.
            store.dispatch()
            await wait_all_tasks_blocked()
            mock_clock.jump(1.0)
            got += await slave.frames()
        assert got == [Frame(end, b"")] * 2


@pytest.mark.trio
async def test_a_slave_that_has_not_reported_is_sent_nothing_and_left_after_twenty_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        put(store, 3)
        await wait_all_tasks_blocked()
        mock_clock.jump(19.9)
        assert await slave.frames() == []
        assert not slave.left
        mock_clock.jump(0.2)
        assert await slave.frames() == []
        assert slave.left
        assert not store.log_out.followers


@pytest.mark.trio
async def test_a_slave_that_dribbles_no_whole_report_counts_for_nothing(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        put(store, 3)
        await slave.stream.send_all(bytes(7))
        await wait_all_tasks_blocked()
        [follower] = store.log_out.followers
        assert follower.transfer.standing is Standing.SILENT
        assert store.log_out.held_by(1) == -1


@pytest.mark.trio
async def test_reports_that_cannot_be_true_count_for_nothing_and_are_said_once(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        end = put(store, 3)
        with capture_logs() as logs:
            async with slave_of(store) as slave:
                await slave.report(1 << 40)
                assert await slave.frames() == []
                mock_clock.jump(5.1)
                assert await slave.frames() == [Frame(1 << 40, b"")]
                await slave.report(1 << 40, 0, end)
                put(store, 100)
                assert await slave.frames() == []
                assert store.log_out.held_by(1) == -1
        events = [entry["event"] for entry in logs]
        assert events.count("replication.slave_ahead") == 1


@pytest.mark.trio
async def test_a_slave_that_was_ahead_is_sent_nothing_when_it_comes_again(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        ahead = put(store, 3) + 50
        async with slave_of(store) as slave:
            await slave.report(ahead)
            await wait_all_tasks_blocked()
        assert put(store, 5) > ahead
        async with slave_of(store) as slave:
            await slave.report(ahead)
            assert await slave.frames() == []
            assert store.log_out.held_by(1) == -1


@pytest.mark.trio
async def test_two_connections_of_one_machine_are_one_slave(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with (
        running_store(tmp_path, Disk()) as store,
        slave_of(store, "10.0.0.2") as one,
        slave_of(store, "10.0.0.2") as same,
        slave_of(store, "10.0.0.3") as other,
    ):
        end = put(store, 3)
        store.log_out.opened()
        await one.report(end)
        await same.report(end)
        await wait_all_tasks_blocked()
        assert [store.log_out.held_by(count) for count in (1, 2)] == [end, -1]
        await other.report(100)
        await wait_all_tasks_blocked()
        assert [store.log_out.held_by(count) for count in (1, 2)] == [end, 100]


@pytest.mark.trio
async def test_a_slave_that_does_not_read_holds_up_nobody(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with (
        running_store(tmp_path, Disk()) as store,
        slave_of(store, "10.0.0.2", reads=False) as deaf,
        slave_of(store, "10.0.0.3") as slave,
    ):
        end = put(store, 3)
        await deaf.report(0)
        await slave.report(0)
        assert sum(len(frame.data) for frame in await slave.frames()) == end
        more = put(store, 3)
        assert sum(len(frame.data) for frame in await slave.frames()) == more - end


@pytest.mark.trio
async def test_segments_of_an_earlier_run_are_read_without_the_mapping(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        end = put(store, 60)
        assert await durable(store, end)
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        assert store.commit_log.mapped_from == end
        await slave.report(1)
        got = b""
        while len(got) < end - 1:
            frame = await slave.next_frame()
            assert frame is not None
            got += frame.data
        assert got == log_bytes(tmp_path)[1:end]


@pytest.mark.trio
async def test_under_sync_flush_nothing_is_sent_that_is_not_on_disk(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    sync: dict[str, Any] = {
        "flush_disk_type": FlushDiskType.SYNC_FLUSH,
        "sync_flush_inline": False,
    }
    async with running_store(tmp_path, Disk(), **sync) as store, slave_of(store) as slave:
        await slave.report(0)
        await wait_all_tasks_blocked()
        end = store.put(draft()).end_offset
        store.log_out.appended()
        assert store.commit_log.flushed < end
        assert await slave.frames() == []
        assert await durable(store, end)
        assert sum(len(frame.data) for frame in await slave.frames()) == end


@pytest.mark.trio
async def test_what_was_put_after_the_start_and_sent_to_nobody_is_no_slaves(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        put(store, 3)
    async with running_store(tmp_path, Disk()) as store:
        known = store.commit_log.max_offset
        end = put(store, 5)
        async with slave_of(store, "10.0.0.3") as other:
            await other.report(end)
            assert await other.frames() == []
            assert store.log_out.held_by(1) == -1
        async with slave_of(store) as slave:
            await slave.report(known)
            assert b"".join(frame.data for frame in await slave.frames())
        async with slave_of(store, "10.0.0.4") as again:
            await again.report(end)
            await wait_all_tasks_blocked()
            assert store.log_out.held_by(1) == end


@pytest.mark.trio
async def test_a_log_that_cannot_be_read_is_tried_again_with_each_heartbeat(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        put(store, 3)

        tries = 0
        reads = store.reader.reading_piece

        def fails(*_: object) -> None:
            nonlocal tries
            tries += 1
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(type(store.reader), "reading_piece", fails)
        with capture_logs() as logs:
            async with slave_of(store) as slave:
                await slave.report(0)
                assert await slave.frames() == []
                (follower,) = store.log_out.followers
                for beats in (1, 2):
                    # What is written meanwhile is no reason to try again.
                    put(store, 1)
                    assert await slave.frames() == []
                    assert tries == beats
                    mock_clock.jump(5.0)
                    assert await slave.frames() == [Frame(0, b"")]
                assert "Input/output" in follower.unreadable
                monkeypatch.setattr(type(store.reader), "reading_piece", lambda _, *at: reads(*at))
                mock_clock.jump(5.0)
                got = await slave.frames()
                assert sum(len(frame.data) for frame in got) == store.commit_log.max_offset
                assert not follower.unreadable
        failed = [entry for entry in logs if entry["event"] == "replication.read_failed"]
        assert len(failed) == 1


@pytest.mark.trio
async def test_what_nobody_waits_for_is_sent_at_once_and_then_together(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        store.log_out.pace = Pace(gather_s=0.002)
        ends = [0]
        await slave.report(0)
        for _ in range(3):
            ends.append(put(store, 1))
            got = await slave.frames()
            if len(ends) == 2:
                assert [frame.physical_offset for frame in got] == [0]
            else:
                assert got == []
        mock_clock.jump(0.0021)
        (frame,) = await slave.frames()
        assert (frame.physical_offset, len(frame.data)) == (ends[1], ends[3] - ends[1])


@pytest.mark.trio
async def test_a_slave_that_may_not_follow_lives_by_heartbeats_while_others_write(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        put(store, 1)
        await slave.report(1 << 40)
        await slave.frames()
        got = []
        for _ in range(12):
            put(store, 1)
            mock_clock.jump(1.0)
            got += await slave.frames()
        assert got == [Frame(1 << 40, b"")] * 2


@pytest.mark.trio
async def test_a_byte_now_and_then_is_no_sign_of_life(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store, slave_of(store) as slave:
        put(store, 1)
        for _ in range(3):
            await slave.stream.send_all(b"\0")
            await wait_all_tasks_blocked()
            mock_clock.jump(7.0)
            await wait_all_tasks_blocked()
        assert slave.left


@pytest.mark.trio
async def test_a_slave_whose_store_was_emptied_begins_anew(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with running_store(tmp_path, Disk()) as store:
        ahead = put(store, 3) + 50
        async with slave_of(store) as slave:
            await slave.report(ahead)
            await wait_all_tasks_blocked()
        async with slave_of(store) as slave:
            await slave.report(0)
            put(store, 10)
            assert await slave.frames()
        async with slave_of(store) as slave:
            await slave.report(ahead)
            await wait_all_tasks_blocked()
            assert store.log_out.held_by(1) == ahead
