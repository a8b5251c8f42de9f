"""Stores of a group in failover mode, over sockets: where their logs part, and how they meet."""

from __future__ import annotations

import errno
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.store.errors import (
    FrameIllegal,
    FrameMisplaced,
    LogsUnrelated,
    ReplicaBytesWrong,
    ReplicationRefused,
    StoreDamaged,
)
from aerobee.store.files.disk import Disk
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha import encode_report as encode_classic_report
from aerobee.store.format.ha_epochs import (
    EPOCHS_MAX,
    EpochFrame,
    Greeting,
    Hello,
    MasterReader,
    SlaveReader,
    encode_data,
    encode_greeting,
    encode_hello,
    encode_report,
)
from aerobee.store.format.names import CUT_MARK
from aerobee.store.format.record import BLANK_BYTES, encode
from aerobee.store.replication import membership
from aerobee.store.replication.log_out import REPLACED_MAX, Pace
from aerobee.store.replication.membership import Lack
from aerobee.store.replication.saved_epochs import read_epochs, write_epochs
from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.findings import Findings
from tests.kit.faulty_disk import Call, Fault, FaultyDisk
from tests.kit.running_store import durable, running_store
from tests.kit.store_model import LOG_BYTES, draft, log_records, queue_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from aerobee.store.message_store import MessageStore
    from aerobee.store.replication.membership import Membership

MEMBERS = (1, 2, 3)
HOST = "127.0.0.1"
WAIT_S = 30
"""For what takes milliseconds on a machine that has nothing else to do."""


class Node(NamedTuple):
    """A member that runs."""

    store: MessageStore
    membership: Membership

    @property
    def end(self) -> int:
        return self.store.commit_log.max_offset

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        return self.membership.group.epochs

    async def lead(self, epoch: int) -> None:
        assert await self.store.end_copy()
        await self.store.lead_group(epoch)
        self.store.be_master()

    def put(self, count: int, text: str = "one") -> int:
        for number in range(count):
            self.store.put(draft(queue_id=number % 3, body=f"{text} {number}".encode()))
            self.store.dispatch()
        return self.end


@asynccontextmanager
async def node(root: Path, member: int, disk: Disk | None = None) -> AsyncIterator[Node]:
    async with running_store(root, disk or Disk(), in_group=True) as store:
        yield Node(store, store.join_group(member, MEMBERS))


@asynccontextmanager
async def port_of(master: Node) -> AsyncIterator[int]:
    """The port on which a member serves slaves."""

    async def serve(stream: trio.SocketStream) -> None:
        host, port = stream.socket.getpeername()[:2]
        await master.store.log_out.serve(stream, host, f"{host}:{port}")

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=HOST)
        await nursery.start(trio.serve_listeners, serve, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def following(slave: Node, master: Node) -> AsyncIterator[None]:
    """The slave follows; it goes on for as long as the block."""
    async with port_of(master) as port, trio.open_nursery() as nursery:
        stream = await trio.open_tcp_stream(HOST, port)
        nursery.start_soon(slave.store.log_in.follow, stream, slave.store.dispatch)
        yield
        nursery.cancel_scope.cancel()


async def followed(slave: Node, master: Node) -> str:
    """Why a slave does not follow. Raises: ReplicationRefused."""
    ended: str | ReplicationRefused = ""
    with trio.fail_after(WAIT_S):
        async with port_of(master) as port:
            stream = await trio.open_tcp_stream(HOST, port)
            try:
                ended = await slave.store.log_in.follow(stream, slave.store.dispatch)
            except ReplicationRefused as refused:
                # Out of a nursery it would come in a group.
                ended = refused
    if isinstance(ended, ReplicationRefused):
        raise ended
    return ended


async def until(look: Callable[[], bool]) -> None:
    """Wait for what sockets and threads bring."""
    with trio.fail_after(WAIT_S):
        while not look():  # noqa: ASYNC110  (nothing of ours signals it)
            await trio.sleep(0.002)


async def caught_up(slave: Node, master: Node) -> None:
    """Until the slave has all of the log, and the master knows."""
    async with following(slave, master):
        await until(lambda: slave.end == master.end == master.store.log_out.held_by(1))


def same(one: Path, two: Path) -> bool:
    """Whether two directories have the same records and the same queues."""
    return log_records(one) == log_records(two) and queue_files(one) == queue_files(two)


# ── Pairs ──


@pytest.mark.trio
async def test_a_log_of_several_masters_arrives_with_its_epochs(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    async with node(one, 1) as a, node(two, 2) as b:
        await a.lead(1)
        first = a.put(40)
        await caught_up(b, a)
        a.store.leave_lead()
        await b.lead(4)
        second = b.put(50, "two")
        await caught_up(a, b)
        b.store.leave_lead()
        await a.lead(5)
        a.put(30, "three")
        expected = (Epoch(1, 0), Epoch(4, first), Epoch(5, second))
        async with node(three, 3) as c:
            await caught_up(c, a)
            assert c.store.commit_log.min_offset == 0
            assert a.end > 2 * LOG_BYTES
            assert a.epochs == c.epochs == expected
            assert read_epochs(Disk(), three) == expected
        await caught_up(b, a)
        assert b.epochs == expected
    assert same(one, two)
    assert same(one, three)


@pytest.mark.trio
async def test_a_log_that_cannot_be_read_for_a_while_arrives_behind_its_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node(tmp_path / "one", 1) as a, node(tmp_path / "two", 2) as b:
        await a.lead(1)
        a.put(4)
        a.store.leave_lead()
        await a.lead(3)
        a.put(4, "three")
        a.store.log_out.pace = Pace(heartbeat_s=0.01)
        tries, reads = 0, a.store.reader.reading_piece

        def fails(_: object, physical_offset: int, size: int) -> object:
            nonlocal tries
            tries += 1
            if tries <= 3:
                raise OSError(errno.EIO, "Input/output error")
            return reads(physical_offset, size)

        monkeypatch.setattr(type(a.store.reader), "reading_piece", fails)
        await caught_up(b, a)
        assert tries > 3
        assert b.epochs == a.epochs


@pytest.mark.trio
async def test_who_returns_with_a_longer_tail_is_cut_and_keeps_the_tail(tmp_path: Path) -> None:
    one, two, killed = tmp_path / "one", tmp_path / "two", tmp_path / "killed"
    async with node(one, 1) as a, node(two, 2) as b:
        await a.lead(1)
        common = a.put(20)
        await caught_up(b, a)
        longer = a.put(60, "lost")
        await durable(a.store, longer)
        # The image of a kill; a file that gets its name just now may be gone again.
        shutil.copytree(one, killed, ignore=shutil.ignore_patterns("*.new"))
        a.store.leave_lead()
        await b.lead(2)
        b.put(10, "kept")
        async with node(killed, 1) as returned:
            assert returned.end == longer
            assert await followed(returned, b) == "cut"
            # Nothing was reported, and nothing can be before the next start.
            assert b.store.log_out.held_by(1) == -1
            assert await followed(returned, b) == "cut"
            assert returned.end == longer
        kept = killed / "cut" / f"{common}-1"
        lost = list(dump(kept, DumpFilter(behind=common), Findings()))
        assert len(lost) == 60
        async with node(killed, 1) as returned:
            assert returned.end == common
            assert returned.epochs == (Epoch(1, 0),)
            await caught_up(returned, b)
            assert returned.epochs == b.epochs == (Epoch(1, 0), Epoch(2, common))
            b.put(10, "later")
            await caught_up(returned, b)
    assert same(two, killed)


@pytest.mark.trio
async def test_a_log_that_is_ahead_by_the_end_of_a_segment_only_is_cut(tmp_path: Path) -> None:
    """The master was lost between the end of a segment and the first message behind it."""
    one, two = tmp_path / "one", tmp_path / "two"
    async with node(one, 1) as a, node(two, 2) as b:
        await a.lead(1)
        common = a.put(20)
        await caught_up(b, a)
        a.store.commit_log.roll(LOG_BYTES - BLANK_BYTES)
        assert a.end == LOG_BYTES > common
        a.store.leave_lead()
        await b.lead(2)
        assert await followed(a, b) == "cut"
    async with node(one, 1) as a, node(two, 2) as b:
        assert a.end == common
        await b.lead(3)
        b.put(60)
        await caught_up(a, b)
    assert same(one, two)


@pytest.mark.trio
async def test_a_cut_that_could_not_begin_ends_no_log_later(tmp_path: Path) -> None:
    """The mark is there, and its directory was not synced: the caller heard of an error."""
    one, two = tmp_path / "one", tmp_path / "two"
    disk = FaultyDisk(tmp_path)
    async with node(one, 1, disk) as a, node(two, 2) as b:
        await a.lead(1)
        a.put(20)
        await caught_up(b, a)
        a.put(5, "acknowledged by others")
        a.store.leave_lead()
        await b.lead(2)

        def fail(call: Call) -> None:
            if call.path == one and (one / CUT_MARK).exists():
                raise OSError(errno.EIO, "Input/output error", str(one))

        disk.before = fail
        assert await followed(a, b) == "disk"
        disk.before = None
        assert a.membership.cut_at is None
        b.store.leave_lead()
        await a.lead(3)
        assert not (one / CUT_MARK).exists()
        end = a.put(7, "later")
    async with node(one, 1) as a:
        assert a.end == end


@pytest.mark.trio
async def test_a_topic_made_anew_before_its_last_message_is_confirmed_stops_no_slave(
    tmp_path: Path,
) -> None:
    async with node(tmp_path / "one", 1) as a, node(tmp_path / "two", 2) as b:
        for one in (a, b):
            group = one.membership.group
            one.store.wait_for_group(group, partial(getattr, group, "confirmed"), WAIT_S)
        await a.lead(1)
        async with following(b, a):
            a.put(1, "first life")
            await until(lambda: b.end == a.end)
            a.membership.group.confirmed = a.end
            a.store.dispatch()
            assert b.membership.group.confirmed < b.end
            await a.store.space.queues.destroy_topics({"T"})
            end = a.put(1, "second life")
            await until(lambda: b.end == end)
            assert b.store.max_offset("T", 0) == 0, "it is not confirmed yet"
            a.membership.group.confirmed = a.end
            a.store.dispatch()
            a.put(1, "brings the news")
            await until(lambda: b.membership.group.confirmed == end)
            await until(lambda: b.store.max_offset("T", 0) == 1)
            assert b.store.shows_confirmed


@pytest.mark.trio
async def test_a_new_master_that_has_written_nothing_is_known_by_its_slave(tmp_path: Path) -> None:
    async with node(tmp_path / "one", 1) as a, node(tmp_path / "two", 2) as b:
        await a.lead(1)
        end = a.put(5)
        await caught_up(b, a)
        a.store.leave_lead()
        await b.lead(2)
        await caught_up(a, b)
        assert a.epochs == (Epoch(1, 0), Epoch(2, end))
        assert read_epochs(Disk(), tmp_path / "one") == a.epochs


@pytest.mark.trio
async def test_an_empty_slave_of_an_empty_master_waits_for_the_first_message(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with node(one, 1) as a, node(two, 2) as b:
        await a.lead(7)
        async with following(b, a):
            await until(lambda: a.store.log_out.held_by(1) == 0)
            end = a.put(3)
            await until(lambda: b.end == end == a.store.log_out.held_by(1))
        assert b.epochs == (Epoch(7, 0),)
    assert same(one, two)


@pytest.mark.trio
async def test_a_master_with_a_lower_epoch_is_refused(tmp_path: Path) -> None:
    async with node(tmp_path / "one", 1) as a, node(tmp_path / "two", 2) as b:
        await a.lead(3)
        a.put(5)
        b.membership.group.know(4)
        assert await followed(b, a) == "outdated"
        assert (b.end, b.epochs) == (0, ())
        a.store.leave_lead()
        await a.lead(4)
        await caught_up(b, a)
    async with node(tmp_path / "two", 2) as b, node(tmp_path / "three", 3) as c:
        # It is still known after a restart.
        await c.lead(3)
        assert await followed(b, c) == "outdated"


@pytest.mark.trio
async def test_a_log_that_no_epoch_joins_is_refused_and_stays(tmp_path: Path) -> None:
    async with node(tmp_path / "one", 1) as a, node(tmp_path / "two", 2) as b:
        await b.lead(1)
        end = b.put(5)
        b.store.leave_lead()
        await a.lead(2)
        a.put(5)
        with pytest.raises(LogsUnrelated, match="epochs 1 from 0, the master's has 2 from 0"):
            await followed(b, a)
        assert (b.end, b.epochs) == (end, (Epoch(1, 0),))


@pytest.mark.trio
async def test_a_log_that_would_be_cut_whole_is_refused_and_stays(tmp_path: Path) -> None:
    async with (
        node(tmp_path / "one", 1) as a,
        node(tmp_path / "two", 2) as b,
        node(tmp_path / "three", 3) as c,
    ):
        await c.lead(1)
        await caught_up(a, c)
        await caught_up(b, c)
        await b.lead(2)
        end = b.put(5)
        b.store.leave_lead()
        await a.lead(3)
        a.put(5)
        with pytest.raises(LogsUnrelated, match="up to 0, and cannot end there"):
            await followed(b, a)
        assert b.end == end


@pytest.mark.trio
async def test_bytes_of_a_new_epoch_wait_until_it_is_on_disk(tmp_path: Path) -> None:
    two = tmp_path / "two"
    disk = FaultyDisk(two)
    async with node(tmp_path / "one", 1) as a, node(two, 2, disk) as b:
        await a.lead(1)
        a.put(5)
        async with following(b, a):
            await until(lambda: b.end == a.end)
            appended = b.end
            ends: list[int] = []

            def note(call: Call) -> None:
                if call.name == "replace" and EPOCH_FILE_NAME in str(call.path):
                    ends.append(b.end)

            disk.before = note
            disk.faults.append(Fault(name="replace", error=errno.ENOSPC, path=EPOCH_FILE_NAME))
            # A master that goes on with a later epoch, over the same connection.
            await a.membership.lead(2)
            a.put(1, "of epoch 2")
            await until(lambda: b.end == a.end)
            assert not disk.faults[-1].times
            assert len(ends) >= 2
            assert set(ends) == {appended}
            assert read_epochs(Disk(), two) == a.epochs == b.epochs


@pytest.mark.trio
async def test_epochs_whose_bytes_a_crash_has_taken_are_gone(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a:
        await a.lead(1)
        end = a.put(2)
        write_epochs(Disk(), tmp_path, (Epoch(1, 0), Epoch(2, end), Epoch(3, end + 1)))
    async with node(tmp_path, 1) as a:
        assert a.epochs == (Epoch(1, 0), Epoch(2, end))


@pytest.mark.trio
async def test_a_row_of_epochs_that_is_full_takes_another_one(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a:
        await a.lead(1)
        end = a.put(3)
    others = (Epoch(number, end) for number in range(2, EPOCHS_MAX + 2))
    write_epochs(Disk(), tmp_path, (Epoch(1, 0), *others))
    async with node(tmp_path, 1) as a:
        assert (a.epochs[0].start, a.epochs[-1]) == (0, Epoch(EPOCHS_MAX + 1, end))
    async with node(tmp_path, 1) as a, port_of(a) as port:
        await a.lead(EPOCHS_MAX + 2)
        assert a.epochs[0].start == 0
        async with fake_slave(port, encode_hello(Hello(2)), encode_report(0)) as slave:
            await until(lambda: slave.reader.greeting == Greeting(end, a.epochs))


@pytest.mark.trio
async def test_a_log_that_ends_in_epochs_that_count_as_one_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "EPOCHS_MAX", 4)
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    async with node(one, 1) as a, node(two, 2) as b, node(three, 3) as c:
        ends = [0]
        for epoch in range(1, 6):
            await a.lead(epoch)
            ends.append(a.put(2))
            if epoch < 5:
                await caught_up(b, a)
            if epoch < 2:
                await caught_up(c, a)
            a.store.leave_lead()
        await a.lead(6)
        assert a.epochs == (Epoch(3, 0), Epoch(4, ends[3]), Epoch(5, ends[4]), Epoch(6, ends[5]))
        assert b.epochs == tuple(Epoch(number, ends[number - 1]) for number in range(1, 5))
        await caught_up(b, a)
        assert b.epochs == a.epochs
        with pytest.raises(LogsUnrelated, match="none in common"):
            await followed(c, a)
        async with node(tmp_path / "four", 3) as d:
            await caught_up(d, a)
            assert d.epochs == a.epochs
    assert same(one, two)
    assert same(one, tmp_path / "four")


@pytest.mark.trio
async def test_a_log_that_was_emptied_is_marked_until_all_of_the_masters_is_here_and_confirmed(
    tmp_path: Path,
) -> None:
    two = tmp_path / "two"
    async with node(tmp_path / "one", 1) as a:
        await a.lead(1)
        a.put(5)
        async with node(two, 2) as b:
            assert not b.membership.lacks
            await b.membership.note(Lack.EMPTIED)
            async with following(b, a):
                await until(lambda: b.end == a.end)
        async with node(two, 2) as b:
            assert b.membership.lacks == {Lack.EMPTIED}
            assert b.epochs
            a.membership.group.confirmed = a.end - 1
            async with following(b, a):
                await until(lambda: b.membership.group.confirmed == a.end - 1)
                assert not b.membership.has_all
                a.membership.group.confirmed = a.end
                await until(lambda: b.membership.has_all)
            await b.membership.forget_lacks()
        async with node(two, 2) as b:
            assert not b.membership.lacks


@pytest.mark.trio
async def test_the_log_of_a_master_counts_as_it_is(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a:
        await a.membership.note(Lack.EMPTIED)
        await a.lead(1)
    async with node(tmp_path, 1) as a:
        assert not a.membership.lacks


def kept_only(root: Path, *names: str) -> None:
    """Lose all else of a directory."""
    for path in root.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.trio
async def test_epochs_without_any_of_their_log_say_that_it_is_gone(tmp_path: Path) -> None:
    # A group that never had a message has an epoch, and has lost nothing.
    for _ in range(2):
        async with node(tmp_path, 1) as a:
            assert not a.membership.log_is_gone
            if not a.epochs:
                await a.lead(1)
    async with node(tmp_path, 1) as a:
        await a.lead(2)
        a.put(3)
    async with node(tmp_path, 1) as a:
        assert not a.membership.log_is_gone
    kept_only(tmp_path, EPOCH_FILE_NAME, "config")
    async with node(tmp_path, 1) as a:
        assert a.membership.log_is_gone
        assert a.epochs[0].epoch == 1
    # That start has made files of its own; what began behind the end is no less gone.
    write_epochs(Disk(), tmp_path, (Epoch(1, 0), Epoch(2, 500)))
    async with node(tmp_path, 1) as a:
        assert a.membership.log_is_gone


@pytest.mark.trio
async def test_a_damaged_row_of_epochs_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / EPOCH_FILE_NAME).write_bytes(b"1\n7\n1-0\n")
    async with running_store(tmp_path, Disk(), in_group=True) as store:
        with pytest.raises(StoreDamaged, match="keep the data directory aside"):
            store.join_group(1, MEMBERS)


# ── What a master takes from who says that he is a slave ──


class FakeSlave:
    """The other end of a connection of a master."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.reader = MasterReader()
        self.frames: list[EpochFrame] = []
        self.left = False

    async def receive(self) -> None:
        while data := await self.stream.receive_some():
            self.frames += self.reader.feed(data)
        self.left = True


@asynccontextmanager
async def fake_slave(port: int, *says: bytes) -> AsyncIterator[FakeSlave]:
    async with trio.open_nursery() as nursery:
        slave = FakeSlave(await trio.open_tcp_stream(HOST, port))
        nursery.start_soon(slave.receive)
        await slave.stream.send_all(b"".join(says))
        yield slave
        nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(slave.stream)


@pytest.mark.trio
@pytest.mark.parametrize(
    "said",
    [
        encode_hello(Hello(1)),
        encode_hello(Hello(4)),
        encode_hello(Hello(1 << 62)),
        encode_classic_report(0) * 2,
        bytes(16),
        b"GET / HTTP/1.1\r\n\r\n",
        encode_hello(Hello(2)) + encode_hello(Hello(2)),
        encode_hello(Hello(2)) + bytes(12),
    ],
)
async def test_who_is_no_member_is_left_and_counts_for_nothing(tmp_path: Path, said: bytes) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port:
        await a.lead(1)
        a.put(3)
        async with fake_slave(port, said, encode_report(0)) as slave:
            await until(lambda: slave.left)
            assert slave.frames == []
            await until(lambda: not a.store.log_out.followers)
            assert a.store.log_out.held_by(1) == -1


@pytest.mark.trio
async def test_a_member_that_is_not_the_master_serves_nobody(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port:
        await a.lead(1)
        a.put(3)
        async with fake_slave(port, encode_hello(Hello(2)), encode_report(0)) as before:
            await until(lambda: len(before.frames) > 0)
            a.store.leave_lead()
            await until(lambda: before.left)
        async with fake_slave(port, encode_hello(Hello(2)), encode_report(0)) as slave:
            await until(lambda: slave.left)
            assert slave.frames == []


@pytest.mark.trio
async def test_members_count_by_their_ids_and_a_new_connection_ends_the_old(
    tmp_path: Path,
) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port:
        await a.lead(1)
        half, end = a.put(3), a.put(3)
        log_out = a.store.log_out
        a.store.log_out.opened()
        two, three = encode_hello(Hello(2)), encode_hello(Hello(3))
        async with (
            fake_slave(port, two, encode_report(end)) as old,
            fake_slave(port, three, encode_report(half)),
        ):
            await until(lambda: (log_out.held_by(1), log_out.held_by(2)) == (end, half))
            # It was killed, and has less now.
            async with fake_slave(port, two, encode_report(half)):
                await until(lambda: old.left)
                await until(lambda: (log_out.held_by(1), log_out.held_by(2)) == (half, half))
                assert log_out.held_by(3) == -1


@pytest.mark.trio
async def test_two_processes_with_one_number_are_told_of(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port, AsyncExitStack() as stack:
        await a.lead(1)
        a.put(3)
        says = encode_hello(Hello(2)), encode_report(0)
        with capture_logs() as logs:
            before = await stack.enter_async_context(fake_slave(port, *says))
            for _ in range(REPLACED_MAX):
                assert not [one for one in logs if one["event"] == "replication.same_member"]
                await until(lambda: bool(before.frames))  # noqa: B023  (called at once)
                after = await stack.enter_async_context(fake_slave(port, *says))
                await until(lambda: before.left)  # noqa: B023  (called at once)
                before = after
        (told,) = [one for one in logs if one["event"] == "replication.same_member"]
        assert told["member"] == "member 2"


@pytest.mark.trio
async def test_a_learner_gets_the_log_and_never_counts(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port:
        await a.lead(1)
        end = a.put(90)
        start = end - end % LOG_BYTES
        assert start
        says = encode_hello(Hello(2, from_last_segment=True, learner=True)), encode_report(0)
        async with fake_slave(port, *says) as slave:
            await until(lambda: sum(len(frame.data) for frame in slave.frames) == end - start)
            assert slave.frames[0].physical_offset == start
            await slave.stream.send_all(encode_report(end))
            more = a.put(1)
            await until(lambda: slave.frames[-1].physical_offset == end)
            assert more > end
            assert a.store.log_out.held_by(1) == -1


@pytest.mark.trio
async def test_no_frame_crosses_an_epoch_and_each_says_what_is_confirmed(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as a, port_of(a) as port:
        ends = [0]
        for epoch in (1, 2, 5):
            await a.lead(epoch)
            ends.append(a.put(4))
            a.store.leave_lead()
        await a.lead(6)
        a.membership.group.confirm(ends[2], a.end)
        async with fake_slave(port, encode_hello(Hello(2)), encode_report(0)) as slave:
            await until(lambda: sum(len(frame.data) for frame in slave.frames) == ends[-1])
        assert slave.reader.greeting == Greeting(ends[-1], a.epochs)
        spans = [
            (frame.epoch, frame.physical_offset, frame.physical_offset + len(frame.data))
            for frame in slave.frames
        ]
        assert spans == [
            (Epoch(1, 0), 0, ends[1]),
            (Epoch(2, ends[1]), ends[1], ends[2]),
            (Epoch(5, ends[2]), ends[2], ends[3]),
        ]
        assert {frame.confirmed for frame in slave.frames} == {ends[2]}


# ── What a slave takes from who says that he is the master ──

RECORD = encode(draft(body=b"one"), 0, 0, 1_700_000_000_000)
SIZE = len(RECORD)
FIRST, SECOND = Epoch(1, 0), Epoch(2, SIZE)
GREETING = encode_greeting(Greeting(9_000, (FIRST, SECOND)))
BEGIN = encode_data(0, FIRST, 0, RECORD)


def after(body: bytes = b"two") -> bytes:
    return encode(draft(body=body), 1, SIZE, 1_700_000_000_000)


class FakeMaster:
    """The other end of a slave's connection: it waits for the handshake and the first report."""

    def __init__(self, slave: Node) -> None:
        self.slave = slave
        self.reader = SlaveReader()
        self.reports: list[int] = []

    async def says(self, greeting: bytes, *frames: bytes) -> str:
        """Why the slave leaves. Raises: ReplicationRefused."""
        outcome: list[str | ReplicationRefused] = []

        async def serve(stream: trio.SocketStream) -> None:
            async with stream:
                await self._report_of(stream, lambda: self.reader.hello is not None)
                await stream.send_all(greeting)
                if await self._report_of(stream, lambda: bool(self.reports)):
                    await stream.send_all(b"".join(frames))
                    await self._report_of(stream, lambda: False)

        with trio.fail_after(WAIT_S):
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(0, host=HOST)
                await nursery.start(trio.serve_listeners, serve, listeners)
                port = listeners[0].socket.getsockname()[1]
                stream = await trio.open_tcp_stream(HOST, port)
                store = self.slave.store
                try:
                    outcome.append(await store.log_in.follow(stream, store.dispatch))
                except ReplicationRefused as refused:
                    outcome.append(refused)
                nursery.cancel_scope.cancel()
        if isinstance(outcome[0], ReplicationRefused):
            raise outcome[0]
        return outcome[0]

    async def _report_of(self, stream: trio.SocketStream, enough: Callable[[], bool]) -> bool:
        while not enough():
            try:
                data = await stream.receive_some()
            except trio.BrokenResourceError:
                return False
            if not data:
                return False
            if (report := self.reader.feed(bytes(data))) is not None:
                self.reports.append(report)
        return True


@pytest.mark.trio
@pytest.mark.parametrize(
    ("frame", "error", "said"),
    [
        (encode_data(SIZE, FIRST, 0, after()), FrameIllegal, "next one begins at"),
        (encode_data(SIZE, Epoch(2, 5), 0, after()), FrameIllegal, "has not named"),
        (encode_data(SIZE, Epoch(3, 5), 0, after()), FrameIllegal, "has not named"),
        (encode_data(SIZE, Epoch(2, SIZE + 1), 0, after()), FrameIllegal, "begins at"),
        (encode_data(SIZE, Epoch(0, 0), 0, after()), FrameIllegal, "epoch 0 behind epoch 1"),
        (encode_data(SIZE + 1, SECOND, 0, after()), FrameMisplaced, "goes on at"),
        (encode_data(0, FIRST, 0, RECORD), FrameMisplaced, "goes on at"),
        (encode_data(SIZE, SECOND, 0, bytes(LOG_BYTES)), FrameMisplaced, "end of a segment"),
        (encode_data(SIZE, SECOND, 0, after().replace(b"two", b"twO")), ReplicaBytesWrong, "CRC"),
        (encode_data(SIZE, SECOND, 0, b"\xff" * 200), ReplicaBytesWrong, "no record at"),
        (encode_data(SIZE, SECOND, 0, RECORD), ReplicaBytesWrong, "no record at"),
        (
            encode_data(SIZE, SECOND, 0, after()[:40])
            + encode_data(SIZE + 40, Epoch(3, SIZE + 40), 0, after()[40:]),
            FrameMisplaced,
            "has not ended",
        ),
        (encode_data(SIZE, SECOND, 0)[:4] + b"\xff" * 32, FrameIllegal, "a frame of"),
        (bytes(40), FrameIllegal, "state 0"),
        (GREETING * 3, FrameIllegal, "state 1"),
    ],
)
async def test_the_log_ends_in_front_of_the_first_wrong_byte(
    tmp_path: Path, frame: bytes, error: type[ReplicationRefused], said: str
) -> None:
    async with node(tmp_path, 2) as slave:
        master = FakeMaster(slave)
        with pytest.raises(error, match=said):
            await master.says(GREETING, BEGIN, frame, encode_data(SIZE, SECOND, 0, after()))
        assert master.reader.hello == Hello(2)
        assert master.reports[0] == 0
        assert slave.end == SIZE
        assert slave.epochs == (FIRST, SECOND)
    async with node(tmp_path, 2) as slave:
        assert slave.end == SIZE


@pytest.mark.trio
async def test_an_epoch_whose_bytes_a_crash_has_taken_gets_none_of_another_master(
    tmp_path: Path,
) -> None:
    async with node(tmp_path, 2) as slave:
        await FakeMaster(slave).says(encode_greeting(Greeting(9_000, (FIRST,))), BEGIN)
        assert slave.end == SIZE
    write_epochs(Disk(), tmp_path, (FIRST, Epoch(3, SIZE + 1)))
    async with node(tmp_path, 2) as slave:
        greeting = encode_greeting(Greeting(9_000, (FIRST, Epoch(4, 8_000))))
        await FakeMaster(slave).says(greeting, encode_data(SIZE, FIRST, 0, after()))
        assert slave.end > SIZE + 1
    async with node(tmp_path, 2) as slave:
        assert slave.epochs == (FIRST,)


@pytest.mark.trio
@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (bytes(20), "state 0"),
        (encode_data(0, FIRST, 0, RECORD), "state 2"),
        (encode_greeting(Greeting(9, (SECOND, FIRST))), "not in order"),
        (GREETING + BEGIN, "ahead of the first report"),
    ],
)
async def test_a_wrong_handshake_is_refused_before_anything_is_reported(
    tmp_path: Path, greeting: bytes, said: str
) -> None:
    async with node(tmp_path, 2) as slave:
        master = FakeMaster(slave)
        with pytest.raises(FrameIllegal, match=said):
            await master.says(greeting)
        assert (master.reports, slave.end, slave.epochs) == ([], 0, ())


@pytest.mark.trio
async def test_confirmed_is_what_the_master_says_as_far_as_it_is_here(tmp_path: Path) -> None:
    async with node(tmp_path, 2) as slave, trio.open_nursery() as nursery:
        master = FakeMaster(slave)
        data = encode_data(0, FIRST, 9_000, RECORD)
        nursery.start_soon(master.says, GREETING, data, encode_data(SIZE, FIRST, 9_000))
        await until(lambda: slave.end == SIZE)
        await until(lambda: slave.membership.group.confirmed > 0)
        assert slave.membership.group.confirmed == SIZE
        nursery.cancel_scope.cancel()
    group = slave.membership.group
    group.confirm(5, SIZE)
    assert group.confirmed == SIZE
