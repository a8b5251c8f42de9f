"""A slave becomes the master by a command, and refuses what would lose messages."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from aerobee.broker.core.role import OnShift
from aerobee.broker.errors import Refusal
from aerobee.broker.replication.following import State
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.broker.replication.master_tables import Copies, MasterTables
from aerobee.broker.replication.promotion import Promotion
from aerobee.broker.replication.saved_role import read_role
from aerobee.remoting.wire.headers.admin import Promote
from aerobee.remoting.wire.headers.topic import DeleteTopicInBroker
from aerobee.store.config import FlushDiskType
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import SAVED_TOPICS
from tests.broker.desk import said
from tests.broker.replication.pairs import open_pair, until_true
from tests.kit.faulty_disk import FaultyDisk, Gate, RoleSteps
from tests.kit.store_model import draft

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from aerobee.remoting.server.peer import Peer
    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.command import Command
    from tests.broker.desk import Desk
    from tests.broker.replication.pairs import Pair

pytestmark = pytest.mark.trio


class Orders:
    """The promotion of a slave, and what the name servers were told."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.told: list[bool] = []
        self.promotion = Promotion(
            pair.slave.broker.core,
            pair.following,
            pair.link.connect,
            lambda: self.told.append(pair.slave.broker.core.role.is_slave),
            self.copy_tables,
        )
        self.promotion.features = pair.slave.broker.replication.promotion.features

        self.tables_fail = ""

    async def copy_tables(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.tables_fail

    async def promote(self, accepted: str | None = None, offset: int | None = None) -> Answer:
        header = Promote(accepted=accepted, offset=offset)
        return await self.promotion.promote(header, cast("Command", None), cast("Peer", None))


def tables_of(pair: Pair) -> MasterTables:
    """What copies the tables of the master."""
    slave = pair.slave
    copies = Copies(slave.topics, slave.broker.consumers.tables, slave.delays, slave.request_modes)
    address = MasterAddress("10.0.0.1:10911", "10.0.0.1:10912")
    return MasterTables(slave.broker.core, copies, lambda: address, pair.link.connect)


@asynccontextmanager
async def copied(root: Path, disk: Disk | None = None, **changes: Any) -> AsyncIterator[Orders]:
    """A slave that has three messages of its master, which is gone."""
    async with (
        open_pair(root, slave_disk=disk, **changes) as pair,
        trio.open_nursery() as nursery,
    ):
        pair.master.topic()
        for _ in range(3):
            await pair.master.send()
        role = pair.slave.broker.core.role
        await nursery.start(OnShift(role.follows, [pair.following]).run)
        await until_true(lambda: pair.equal)
        yield Orders(pair)
        nursery.cancel_scope.cancel()


async def test_it_is_refused_while_the_master_answers(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        slave = orders.pair.slave
        with pytest.raises(Refusal, match=r"master-alive: .* stop it first"):
            await orders.promote()
        # Also when only its other port answers.
        orders.pair.following.state = State.UNREACHABLE
        with pytest.raises(Refusal, match="master-alive"):
            await orders.promote("behind;diverged")
        assert slave.broker.core.role.is_slave
        assert read_role(Disk(), slave.store.root) is None
        assert not orders.told
        await orders.pair.master.send()
        await until_true(lambda: orders.pair.equal)


async def test_the_new_master_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        slave, end = orders.pair.slave, orders.pair.master.store.commit_log.max_offset
        slave.offsets.commit("g", "t", 0, 7, 1)
        slave.delays.move(3, 9)
        assert not slave.offsets.first_pulls.awaited
        answer = said(await orders.promote("master-alive"))
        assert answer == {"maxOffset": str(end), "epoch": "1"}
        assert orders.told == [False]
        saved = read_role(Disk(), slave.store.root)
        assert saved is not None
        assert (saved.broker_role, saved.epoch, saved.offset) == ("ASYNC_MASTER", 1, end)
        # Offsets of messages that are not here would skip those that come next.
        assert slave.offsets.query("g", "t", 0) == 3
        assert slave.offsets.first_pulls.awaited, "consumers may have got more from the old master"
        assert slave.delays.offset(3) == 0
        slave.topic()
        sent = await slave.send()
        assert (sent.code, said(sent)["queueOffset"]) == (0, "3")
        # What the old master puts does not come any more.
        await orders.pair.master.send()
        assert slave.store.commit_log.max_offset > end
        with pytest.raises(Refusal, match="a master already"):
            await orders.promote("master-alive")


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_topic_whose_table_never_came_is_made_of_its_queues(
    tmp_path: Path, *, deleted: bool
) -> None:
    async with copied(tmp_path) as orders:
        slave = orders.pair.slave
        [(name, _)] = slave.store.queues.table
        assert not slave.topics.is_known(name)
        if deleted:
            slave.topics.deleted.add(name, slave.store.commit_log.max_offset)
        await orders.promote("master-alive")
        assert slave.topics.is_known(name) is not deleted


async def test_a_topic_that_was_deleted_before_the_slave_began_does_not_come_back(
    tmp_path: Path,
) -> None:
    async def with_a_deleted_topic(master: Desk) -> None:
        for name in ("gone", "kept"):
            master.topic(name)
            await master.send(topic=name)
        await master.ask(DeleteTopicInBroker(topic="gone"))

    async with (
        open_pair(tmp_path, before_slave=with_a_deleted_topic) as pair,
        trio.open_nursery() as nursery,
    ):
        slave = pair.slave
        role = slave.broker.core.role
        await nursery.start(OnShift(role.follows, [pair.following]).run)
        await until_true(lambda: pair.equal)
        assert slave.store.max_offset("gone", 0) == 1
        tables = tables_of(pair)
        await tables.copy(pair.link)
        changes: list[Iterable[str]] = []
        slave.topics.listeners.append(changes.append)
        await tables.copy(pair.link)
        assert not changes
        await Orders(pair).promote("master-alive")
        assert slave.topics.is_known("kept")
        assert not slave.topics.is_known("gone")
        nursery.cancel_scope.cancel()


async def test_what_the_master_had_announced_and_is_not_here_is_a_reason(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        orders.pair.link.down = True
        following, store = orders.pair.following, orders.pair.slave.store
        following.state = State.UNREACHABLE
        store.log_in.master_offset += 10
        with pytest.raises(Refusal, match="behind: 10 bytes"):
            await orders.promote()
        following.state, following.problem = State.DIVERGED, "at offset 7"
        with pytest.raises(Refusal, match="diverged: the logs differ: at offset 7"):
            await orders.promote("behind")
        assert (await orders.promote("behind;diverged")).code == 0


async def test_what_the_master_had_when_it_was_last_asked_is_a_reason(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        pair, store = orders.pair, orders.pair.slave.store
        # The port of the replication is closed, and the master answers for a while.
        pair.port_closed = True
        pair.following.follow_anew()
        await until_true(lambda: pair.following.state is State.UNREACHABLE)
        for _ in range(2):
            await pair.master.send()
        lacks = pair.master.store.commit_log.max_offset - store.commit_log.max_offset
        await until_true(lambda: store.log_in.master_ends[1] > store.commit_log.max_offset)
        pair.link.down = True
        pair.following.follow_anew()
        await until_true(lambda: "refused" in pair.following.problem)
        with pytest.raises(Refusal, match=f"behind: {lacks} bytes that the master had"):
            await orders.promote()
        assert pair.slave.broker.core.role.is_slave
        assert (await orders.promote("behind")).code == 0


async def test_a_slave_whose_log_begins_later_is_no_master_by_itself(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        pair = orders.pair
        pair.link.down = True
        pair.following.follow_anew()
        await until_true(lambda: pair.following.state is State.UNREACHABLE)
        pair.slave.store.log_in.master_ends = (-7, 1)
        with pytest.raises(
            Refusal, match="incomplete: its log begins at 0, and the master's at -7"
        ):
            await orders.promote("behind")
        assert (await orders.promote("incomplete")).code == 0


async def test_a_slave_without_the_topics_that_it_had_is_no_master_by_itself(
    tmp_path: Path,
) -> None:
    async with copied(tmp_path) as orders:
        orders.pair.link.down = True
        orders.pair.following.state = State.UNREACHABLE
        (orders.pair.slave.store.root / SAVED_TOPICS).touch()
        with pytest.raises(Refusal, match=r"incomplete: .*topics\.json was gone"):
            await orders.promote("behind")
        assert (await orders.promote("incomplete")).code == 0


async def test_without_a_master_there_is_no_reason_against_it(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        orders.pair.link.down = True
        orders.pair.following.state = State.UNREACHABLE
        assert (await orders.promote()).code == 0


async def test_a_handover_without_the_tables_of_the_master_is_refused(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        orders.tables_fail = "it does not answer"
        end = orders.pair.master.store.commit_log.max_offset
        with pytest.raises(Refusal, match="offsets are not here: it does not answer"):
            await orders.promote(offset=end)
        assert orders.pair.slave.broker.core.role.is_slave
        orders.tables_fail = ""
        assert said(await orders.promote(offset=end))["epoch"] == "1"


async def test_a_master_is_not_promoted(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        with pytest.raises(Refusal, match="this broker is a master already"):
            await pair.master.ask(Promote())


async def test_wherever_saving_the_role_fails_the_slave_follows_again(tmp_path: Path) -> None:
    failing, steps = 0, 1
    while failing < steps:
        failing += 1
        root = tmp_path / str(failing)
        disk = FaultyDisk(root)
        async with copied(root, disk) as orders:
            slave = orders.pair.slave
            counted = RoleSteps(root / "slave" / "config")
            disk.before = at = RoleSteps(root / "slave" / "config", failing)
            with pytest.raises(Refusal, match=r"cannot be saved.* still a slave: .*disk fails"):
                await orders.promote("master-alive")
            disk.before = counted
            assert slave.broker.core.role.is_slave
            assert not orders.told
            assert read_role(Disk(), slave.store.root) is None
            await orders.pair.master.send()
            await until_true(lambda: orders.pair.equal)
            assert (await orders.promote("master-alive")).code == 0
            steps = counted.steps
            assert at.steps >= failing
    assert steps > 3


async def test_a_slave_that_syncs_has_its_last_bytes_on_disk_before_it_is_the_master(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    sync_flush = FlushDiskType.SYNC_FLUSH
    async with open_pair(tmp_path, slave_disk=disk, flush_disk_type=sync_flush) as pair:
        pair.slave.topic()
        pair.slave.store.be_master()
        pair.slave.store.put(draft(body=b"copied"))
        pair.slave.store.be_slave()
        assert pair.slave.store.dispatch_behind_bytes
        orders = Orders(pair)
        sync = Gate(disk, "fdatasync", "commitlog")
        async with trio.open_nursery() as nursery:
            await nursery.start(OnShift(pair.slave.broker.core.role.follows, []).run)
            nursery.start_soon(orders.promote, "master-alive")
            await sync.wait_for_a_call()
            await wait_all_tasks_blocked()
            assert pair.slave.broker.core.role.is_slave
            assert read_role(Disk(), pair.slave.store.root) is None
            sync.let_go()
            await until_true(lambda: not pair.slave.broker.core.role.is_slave)
            nursery.cancel_scope.cancel()
        assert not pair.slave.store.dispatch_behind_bytes


async def test_a_promotion_that_is_cancelled_leaves_a_slave_that_follows(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        role = orders.pair.slave.broker.core.role
        with trio.CancelScope() as scope:

            async def cancel() -> str:
                scope.cancel()
                return ""

            orders.promotion.copy_tables = cancel
            await orders.promote(offset=orders.pair.slave.store.commit_log.max_offset)
        assert scope.cancelled_caught
        assert role.is_slave
        await orders.pair.master.send()
        await until_true(lambda: orders.pair.equal)


async def test_a_former_master_that_is_a_slave_now_is_no_reason_against_it(tmp_path: Path) -> None:
    """After a kill in a switch there may be two slaves, which follow each other's ports."""
    async with copied(tmp_path) as orders:
        orders.pair.following.state = State.UNREACHABLE
        orders.pair.master.broker.core.role.is_slave = True
        assert (await orders.promote()).code == 0
