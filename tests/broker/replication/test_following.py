"""A slave and its master: copied, found again, and left for good where the logs differ."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from aerobee.broker.replication import following
from aerobee.broker.replication.following import (
    AGAIN_FIRST_S,
    AGAIN_S,
    SEARCH_S,
    STUCK_S,
    UNKNOWN_LOOKS,
    Following,
    State,
    standing_at,
)
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.broker.replication.saved_role import in_saved_role, path_of, read_role
from aerobee.remoting.wire.bodies.statistics import HAConnectionInfo, HARuntimeInfo
from aerobee.store.files.disk import Disk
from aerobee.store.results import PutStatus
from tests.broker.desk import body_of, pull_header
from tests.broker.replication.pairs import open_pair, until_true
from tests.kit.faulty_disk import Fault, FaultyDisk
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.desk import Desk
    from tests.broker.replication.pairs import Pair

pytestmark = pytest.mark.trio

MASTER = MasterAddress("10.0.0.1:10911", "10.0.0.1:10912")


async def until(pair: Pair, state: State) -> None:
    await until_true(lambda: pair.following.state is state)


async def fill(desk: Desk, *bodies: bytes) -> None:
    desk.topic()
    for body in bodies:
        assert (await desk.send(body=body)).code == 0


def had(desk: Desk, *bodies: bytes) -> None:
    """A slave has these messages from nowhere."""
    desk.store.be_master()
    for body in bodies:
        assert desk.store.put(draft(body=body)).status is PutStatus.PUT_OK
    desk.after_round()
    desk.store.be_slave()


async def test_a_host_that_is_no_name_is_a_master_that_does_not_answer(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        master = MasterAddress("10.0.0.1:1", "a..b:2")
        slave = Following(pair.slave.broker.core, lambda: master, pair.link.connect)
        await nursery.start(slave.run)
        await until_true(lambda: slave.state is State.UNREACHABLE)
        assert "idna" in slave.problem
        nursery.cancel_scope.cancel()


async def test_a_slave_has_what_its_master_has_and_wakes_those_who_wait(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        await fill(pair.master, b"one", b"two")
        await nursery.start(pair.following.run)
        await until_true(lambda: pair.equal)
        pair.slave.topic()
        assert pair.following.state is State.FOLLOWING
        assert pair.slave.store.max_offset("t", 0) == 2
        assert pair.slave.begin(pull_header("t", 2, sys_flag=6)) is None
        await fill(pair.master, b"three")
        with trio.fail_after(20):
            answer = await pair.slave.peer.next_answer()
        assert answer.code == 0
        assert b"three" in body_of(answer)
        nursery.cancel_scope.cancel()


async def test_a_slave_whose_last_record_is_another_one_is_refused(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        await fill(pair.master, b"ours", b"more")
        had(pair.slave, b"them")
        end = pair.slave.store.commit_log.max_offset
        with capture_logs() as logs:
            await nursery.start(pair.following.run)
            await until(pair, State.DIVERGED)
        assert "another record at offset 0" in str(pair.following.trouble())
        assert [line["event"] for line in logs].count("replication.diverged") == 1
        assert pair.slave.store.commit_log.max_offset == end
        assert not pair.master.store.log_out.followers
        nursery.cancel_scope.cancel()


async def test_a_slave_ahead_of_its_master_is_refused(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        had(pair.slave, b"one", b"two")
        await nursery.start(pair.following.run)
        await until(pair, State.DIVERGED)
        assert "bytes behind the end of the master's, 0" in pair.following.problem
        nursery.cancel_scope.cancel()


async def test_a_slave_that_has_stopped_goes_on_with_another_master(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        had(pair.slave, b"one")
        known = [MASTER]
        slave = Following(pair.slave.broker.core, lambda: known[0], pair.link.connect)
        await nursery.start(slave.run)
        await until_true(lambda: slave.state is State.DIVERGED)
        pair.link.asked.clear()
        slave.follow_anew()
        await wait_all_tasks_blocked()
        assert (slave.state, pair.link.asked) == (State.DIVERGED, [])
        known[0] = MasterAddress("10.0.0.2:10911", "10.0.0.2:10912")
        pair.link.down = True
        slave.follow_anew()
        await until_true(lambda: slave.state is State.UNREACHABLE)
        nursery.cancel_scope.cancel()


async def test_a_slave_of_another_cluster_or_name_copies_nothing(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    other = {"broker_name": "other", "broker_cluster_name": "Elsewhere"}
    async with open_pair(tmp_path, of_master=other) as pair:
        await fill(pair.master, b"one")
        await nursery.start(pair.following.run)
        await until(pair, State.STUCK)
        assert "brokerClusterName is Elsewhere there" in str(pair.following.trouble())
        assert "brokerName is other there" in pair.following.problem
        assert pair.slave.store.commit_log.max_offset == 0
        assert not pair.master.store.log_out.followers
        nursery.cancel_scope.cancel()


async def test_a_shadow_has_a_name_of_its_own(tmp_path: Path, nursery: trio.Nursery) -> None:
    async with open_pair(tmp_path, of_master={"broker_name": "other"}) as pair:
        pair.slave.store.log_in.shadow = True
        await fill(pair.master, b"one")
        await nursery.start(pair.following.run)
        await until_true(lambda: pair.equal)
        nursery.cancel_scope.cancel()


async def test_a_master_that_cannot_be_asked_is_said_and_tried_again(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with open_pair(tmp_path) as pair:
        pair.link.down = True
        with capture_logs() as logs:
            await nursery.start(pair.following.run)
            for attempts in (1, 2, 3):
                await wait_all_tasks_blocked()
                assert pair.link.refused == attempts
                mock_clock.jump(AGAIN_S)
        assert pair.following.state is State.UNREACHABLE
        assert pair.following.trouble() is None
        assert [line["event"] for line in logs].count("replication.master_unreachable") == 1
        nursery.cancel_scope.cancel()


async def test_the_pauses_between_attempts_grow_until_the_master_is_heard(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with open_pair(tmp_path) as pair:
        pair.link.down = True
        await nursery.start(pair.following.run)
        await wait_all_tasks_blocked()
        pauses, pause_s = 0, AGAIN_FIRST_S
        while pause_s < AGAIN_S:
            mock_clock.jump(pause_s)
            await wait_all_tasks_blocked()
            pauses, pause_s = pauses + 1, 2 * pause_s
            assert pair.link.refused == 1 + pauses
        mock_clock.jump(AGAIN_S - 0.1)
        await wait_all_tasks_blocked()
        assert pair.link.refused == 1 + pauses
        mock_clock.jump(0.1)
        await wait_all_tasks_blocked()
        assert pair.link.refused == 2 + pauses
        nursery.cancel_scope.cancel()


async def test_a_slave_that_gets_nothing_for_a_minute_though_there_is_more_says_so(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with open_pair(tmp_path) as pair:
        address = MasterAddress("10.0.0.1:10911", "10.0.0.1:10912")
        nursery.start_soon(pair.following.watch, address)
        states = []
        for sends in (0, 1, 0):
            if sends:
                await fill(pair.master, b"more")
            await wait_all_tasks_blocked()
            mock_clock.jump(STUCK_S)
            await wait_all_tasks_blocked()
            states.append(pair.following.state)
        assert states == [State.SEARCHING, State.STUCK, State.STUCK]
        assert "nothing has come for 60 s behind offset 0" in str(pair.following.trouble())
        pair.link.down = True
        mock_clock.jump(STUCK_S)
        await wait_all_tasks_blocked()
        assert pair.link.refused == 1
        assert pair.following.state is State.STUCK
        pair.link.down = False
        had(pair.slave, b"it comes")
        mock_clock.jump(STUCK_S)
        await wait_all_tasks_blocked()
        assert pair.following.trouble() is None
        nursery.cancel_scope.cancel()


async def test_a_slave_keeps_the_epoch_of_its_master_and_follows_no_earlier_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        role, disk = pair.master.broker.core.role, Disk()
        role.epoch = 3
        await fill(pair.master, b"one")
        await nursery.start(pair.following.run)
        await until_true(lambda: pair.equal)
        saved = read_role(disk, pair.slave.store.root)
        assert saved is not None
        assert (saved.broker_role, saved.epoch) == ("SLAVE", 3)
        assert in_saved_role(pair.slave.config, disk).is_slave
        role.epoch = 2
        await fill(pair.master, b"two")
        await until_true(lambda: pair.equal)
        assert not await pair.following.may_follow(MASTER)
        assert "an earlier one: its epoch is 2, and this slave has followed 3" in (
            pair.following.problem
        )
        assert pair.following.trouble() is None
        nursery.cancel_scope.cancel()


async def test_a_slave_that_cannot_save_an_epoch_says_so_and_goes_on_once_it_can(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with open_pair(tmp_path) as pair:
        await fill(pair.master, b"one")
        await nursery.start(pair.following.run)
        await until_true(lambda: pair.equal)
        path = path_of(pair.slave.store.root)
        path.parent.mkdir(exist_ok=True)
        path.write_text("{damaged")
        pair.master.broker.core.role.epoch = 3
        pair.following.follow_anew()
        await until(pair, State.STUCK)
        trouble = str(pair.following.trouble())
        assert "cannot save the epoch of its master, 3: " in trouble
        assert str(path) in trouble
        path.unlink()
        await fill(pair.master, b"two")
        await until_true(lambda: pair.equal)
        assert pair.slave.broker.core.role.epoch == 3
        nursery.cancel_scope.cancel()


async def test_a_slave_that_its_master_refuses_says_so(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the store of a running master: the master never sent it what it has."""
    monkeypatch.setattr(following, "FIRST_LOOK_S", 0.05)

    async def copy(master: Desk) -> None:
        await fill(master, b"one", b"two")
        shutil.copytree(tmp_path / "master", tmp_path / "slave")

    async with open_pair(tmp_path, before_slave=copy) as pair:
        end = pair.slave.store.commit_log.max_offset
        assert end == pair.master.store.commit_log.max_offset
        await nursery.start(pair.following.run)
        await until(pair, State.STUCK)
        assert f"{end}, where this log ends" in str(pair.following.trouble())
        nursery.cancel_scope.cancel()


async def test_a_slave_whose_disk_is_full_says_so_and_goes_on_with_room(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "FIRST_LOOK_S", 0.05)
    disk = FaultyDisk(tmp_path / "slave")
    async with open_pair(tmp_path, slave_disk=disk) as pair:
        await nursery.start(pair.following.run)
        await fill(pair.master, b"one")
        await until_true(lambda: pair.equal)
        disk.faults.append(Fault(name="posix_fallocate", error=errno.ENOSPC, times=1_000))
        while pair.slave.store.commit_log.max_offset == pair.master.store.commit_log.max_offset:
            # The segment that was made ahead is filled as well.
            await fill(pair.master, *[bytes(60_000)] * 8)
            with trio.move_on_after(0.3):
                await until_true(lambda: pair.equal)
        await until(pair, State.STUCK)
        end = pair.slave.store.commit_log.max_offset
        assert f"cannot take what comes behind offset {end}: the broker's disk is full" in str(
            pair.following.trouble()
        )
        disk.faults.clear()
        await until(pair, State.FOLLOWING)
        await until_true(lambda: pair.equal)
        assert pair.following.problem == ""
        nursery.cancel_scope.cancel()


async def test_a_slave_finds_itself_among_others_and_where_it_cannot_all_count() -> None:
    def told(*standings: str) -> HARuntimeInfo:
        slaves = [
            HAConnectionInfo(addr=f"10.0.0.{number}:5", standing=standing)
            for number, standing in enumerate(standings)
        ]
        return HARuntimeInfo(master_commit_log_max_offset=0, ha_connection_info=slaves)

    assert standing_at(None, "10.0.0.1:5") == ""
    assert standing_at(told("follows", "ahead"), "10.0.0.1:5") == "ahead"
    assert standing_at(told("ahead", "follows"), "10.0.0.1:5") == "follows"
    assert standing_at(told("ahead", "ahead"), "10.9.9.9:5") == "ahead"
    assert standing_at(told("ahead", "follows"), "10.9.9.9:5") == ""


async def test_that_nobody_knows_the_master_is_told_once_it_has_lasted(
    tmp_path: Path, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    async with open_pair(tmp_path) as pair:
        lost = Following(pair.slave.broker.core, lambda: None, pair.link.connect)
        with capture_logs() as logs:
            await nursery.start(lost.run)
            for look in range(1, UNKNOWN_LOOKS + 3):
                await wait_all_tasks_blocked()
                assert lost.state is State.SEARCHING
                told = [line["event"] for line in logs].count("replication.master_unknown")
                assert told == (look >= UNKNOWN_LOOKS)
                mock_clock.jump(SEARCH_S)
        nursery.cancel_scope.cancel()


async def test_a_master_that_closes_at_once_may_not_list_this_slave(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    async def close(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with open_pair(tmp_path) as pair:
        listeners = await nursery.start(trio.serve_tcp, close, 0)
        port = listeners[0].socket.getsockname()[1]
        master = MasterAddress("m:1", f"127.0.0.1:{port}")
        slave = Following(pair.slave.broker.core, lambda: master, pair.link.connect)
        await nursery.start(slave.run)
        await until_true(lambda: "haPeers" in slave.problem)
        assert "may not list 127.0.0.1:" in slave.problem
        nursery.cancel_scope.cancel()
