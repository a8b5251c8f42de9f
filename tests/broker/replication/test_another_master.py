"""A slave follows another master by a command, and gives up only what it is told to."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.core.role import OnShift
from aerobee.broker.errors import Refusal
from aerobee.broker.replication.another_master import UNKNOWN, AnotherMaster, how_many_same
from aerobee.broker.replication.following import State
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.broker.replication.saved_role import SavedRole, read_role, write_role
from aerobee.remoting.wire.headers.admin import Follow, FollowResponse, Promote
from aerobee.store.files.disk import Disk
from aerobee.store.format.names import CUT_MARK
from aerobee.store.recovery.cut import unfinished
from tests.broker.desk import open_desk
from tests.broker.replication.pairs import SLAVE, open_pair, until_true
from tests.broker.replication.test_following import fill, had
from tests.kit.faulty_disk import CHANGES, FaultyDisk
from tests.kit.store_model import LOG_BYTES, log_records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer
    from tests.broker.replication.pairs import Pair
    from tests.kit.faulty_disk import Call

pytestmark = pytest.mark.trio

MASTER = "10.0.0.7:10911"
BODY = b"b" * 400
SMALL: dict[str, Any] = {"mapped_file_size_commit_log_bytes": LOG_BYTES}
"""Eight of these messages fill a segment."""


class Orders:
    """The slave of a pair, and commands to follow the master of it."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.core = pair.slave.broker.core
        self.other = AnotherMaster(self.core, pair.following, pair.link.connect)

    async def follow(
        self, *, cut: bool = False, check_only: bool = False, master: str = MASTER
    ) -> FollowResponse:
        header = Follow(master=master, check_only=check_only or None, cut=cut or None)
        answer: Answer = await self.other.follow(header, cast("Any", None), cast("Any", None))
        return cast("FollowResponse", answer.header)

    def saved(self) -> SavedRole | None:
        return read_role(Disk(), self.pair.slave.store.root)


@asynccontextmanager
async def copied(root: Path, messages: int = 3, disk: Disk | None = None) -> AsyncIterator[Orders]:
    """A slave that follows, and has so many messages of its master."""
    async with open_pair(root, slave_disk=disk, **SMALL) as pair, trio.open_nursery() as nursery:
        await fill(pair.master, *[BODY] * messages)
        pair.slave.topic()
        await nursery.start(OnShift(pair.slave.broker.core.role.follows, [pair.following]).run)
        await until_true(lambda: pair.equal)
        yield Orders(pair)
        nursery.cancel_scope.cancel()


async def diverged(pair: Pair) -> None:
    await until_true(lambda: pair.following.state is State.DIVERGED)


async def rests(orders: Orders) -> None:
    """The slave copies nothing, and becomes no master, until its restart."""
    slave = orders.pair.slave
    assert not orders.core.role.follows.is_on
    assert "restart it" in str(orders.pair.following.trouble())
    for again in (orders.follow(), slave.ask(Promote(accepted="diverged;master-alive"))):
        with pytest.raises(Refusal, match="restart it"):
            await again


async def part(orders: Orders, own: int, theirs: int) -> int:
    """The two logs go on in two ways, and the slave has noticed; the end of what both have."""
    pair, role = orders.pair, orders.core.role
    await role.stop_following()
    common = pair.slave.store.commit_log.max_offset
    had(pair.slave, *[b"o" * 400] * own)
    await fill(pair.master, *[b"t" * 400] * theirs)
    role.follow_again()
    await diverged(pair)
    return common


@pytest.mark.parametrize(("before", "own", "theirs"), [(3, 1, 1), (3, 12, 5), (25, 30, 1)])
async def test_what_only_the_slave_has_is_found_kept_and_given_up(
    tmp_path: Path, before: int, own: int, theirs: int
) -> None:
    async with copied(tmp_path, before) as orders:
        pair = orders.pair
        common = await part(orders, own, theirs)
        looked = await orders.follow(check_only=True)
        assert (looked.common_offset, looked.messages) == (common, own)
        assert f"same up to {common}" in str(looked.refused)
        assert "--cut" in str(looked.refused)
        with pytest.raises(Refusal, match=rf"nothing was changed; .* up to {common}.*--cut"):
            await orders.follow()
        saved = orders.saved()
        assert saved is None or not saved.master_address
        # It follows as before, so it says again that it has diverged.
        await diverged(pair)
        assert (await orders.follow(cut=True, check_only=True)).refused is None
        made = await orders.follow(cut=True)
        kept = str(pair.slave.store.root / "cut" / f"{common}-epoch-0")
        assert (made.kept_in, made.messages) == (kept, own)
        begun = unfinished(Disk(), pair.slave.store.root)
        assert begun is not None
        assert begun.offset == common
        # Until the next start nothing may come behind what goes.
        await rests(orders)
    async with open_desk(tmp_path / "slave", **SLAVE, **SMALL) as slave:
        assert slave.store.commit_log.max_offset == common
        saved = read_role(Disk(), slave.store.root)
        assert saved is not None
        assert (saved.master_address, saved.offset) == (MASTER, common)
        following = slave.broker.replication.following
        assert following is not None
        assert following.told is not None
        assert following.told.address == MASTER


async def test_a_slave_without_messages_of_its_own_follows_at_once(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        pair = orders.pair
        end = pair.slave.store.commit_log.max_offset
        with capture_logs() as logs:
            made = await orders.follow(cut=True)
        assert (made.common_offset, made.messages, made.kept_in) == (end, 0, None)
        assert [line["event"] for line in logs].count("replication.other_master") == 1
        saved = orders.saved()
        assert saved is not None
        assert (saved.broker_role, saved.broker_id, saved.master_address) == ("SLAVE", 0, MASTER)
        assert pair.following.told is not None
        assert pair.following.told.address == MASTER
        assert not (pair.slave.store.root / "cut").exists()


async def test_it_is_refused_where_the_other_one_is_no_master_for_it(tmp_path: Path) -> None:
    async with copied(tmp_path) as orders:
        core, master = orders.core, orders.pair.master.broker
        for address, change, reason in (
            (core.address, {}, "is this broker itself"),
            (MASTER, {"role": True}, "it is no master"),
            (MASTER, {"epoch": 2}, "its epoch is 0, and this slave knows of 2"),
            (MASTER, {"down": True}, "it does not answer"),
        ):
            master.core.role.is_slave = "role" in change
            core.role.epoch = 2 * ("epoch" in change)
            orders.pair.link.down = "down" in change
            with pytest.raises(Refusal, match=f"nothing was changed; .*{reason}"):
                await orders.follow(master=address, cut=True)
        assert orders.pair.following.told is None
    async with open_pair(tmp_path / "others", of_master={"broker_name": "other"}) as pair:
        with pytest.raises(Refusal, match="of another group: brokerName is other there"):
            await Orders(pair).follow()
        with pytest.raises(Refusal, match="is a master: `aerobee ha switch`"):
            await pair.master.ask(Follow(master=MASTER))


async def test_logs_with_nothing_in_common_are_not_cut(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await fill(pair.master, b"theirs")
        had(pair.slave, b"ours")
        orders = Orders(pair)
        looked = await orders.follow(check_only=True, cut=True)
        assert looked.common_offset == UNKNOWN
        assert "start it with an empty one" in str(looked.refused)


class RoleAndCut:
    """Counts the changes of the disk by the command, and fails one of them."""

    def __init__(self, root: Path, failing: int = 0) -> None:
        self.root = root
        self.failing = failing
        self.steps = 0

    def __call__(self, call: Call) -> None:
        name = str(call.path)
        ours = "role.json" in name or "/cut" in name
        if call.name in CHANGES and ours:
            self.steps += 1
            if self.steps == self.failing:
                raise OSError(errno.EIO, "the disk fails", name)


async def test_wherever_the_disk_fails_nothing_has_changed_or_the_cut_has_begun(
    tmp_path: Path,
) -> None:
    failing, steps = 0, 1
    while failing < steps:
        failing += 1
        root = tmp_path / str(failing)
        disk = FaultyDisk(root)
        async with copied(root, disk=disk) as orders:
            before = orders.saved()
            common = await part(orders, 2, 1)
            end = orders.pair.slave.store.commit_log.max_offset
            disk.before = RoleAndCut(root, failing)
            with pytest.raises(Refusal, match=r"nothing was changed.*disk fails"):
                await orders.follow(cut=True)
            disk.before = counted = RoleAndCut(root)
            assert orders.saved() == before
            assert orders.pair.slave.store.commit_log.max_offset == end
            assert orders.core.role.follows.is_on
            await diverged(orders.pair)
            made = await orders.follow(cut=True)
            assert (made.messages, made.common_offset) == (2, common)
            steps = counted.steps
    assert steps > 6
    assert len(log_records(tmp_path / "1" / "slave")) == 5


class MarkThatStays:
    """A disk whose directory cannot be synced once the mark of a cut is there; it keeps the mark,
    or loses it only until a power cut.
    """

    def __init__(self, root: Path, *, keeps: bool) -> None:
        self.failing = {("fsync", root)} | ({("unlink", root / CUT_MARK)} if keeps else set())
        self.there = False

    def __call__(self, call: Call) -> None:
        self.there |= call.name == "replace" and CUT_MARK in str(call.path)
        if self.there and (call.name, call.path) in self.failing:
            raise OSError(errno.EIO, "the disk fails", str(call.path))


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_slave_whose_cut_may_have_begun_takes_nothing_until_its_restart(
    tmp_path: Path, *, keeps: bool
) -> None:
    """Else it acknowledges as a master, and its next start cuts that off."""
    disk = FaultyDisk(tmp_path)
    async with copied(tmp_path, disk=disk) as orders:
        pair = orders.pair
        common = await part(orders, 2, 1)
        end = pair.slave.store.commit_log.max_offset
        disk.before = MarkThatStays(pair.slave.store.root, keeps=keeps)
        with pytest.raises(Refusal, match=r"cut failed, and may have begun.*restart it"):
            await orders.follow(cut=True)
        disk.before = None
        await rests(orders)
    async with open_desk(tmp_path / "slave", **SLAVE, **SMALL) as slave:
        assert slave.store.commit_log.max_offset == (common if keeps else end)
        following = slave.broker.replication.following
        assert following is not None
        assert following.told is not None
        assert following.told.address == MASTER


async def test_name_servers_are_believed_while_the_master_of_a_command_is_away(
    tmp_path: Path,
) -> None:
    async with open_pair(tmp_path) as pair:
        following = pair.following
        told = MasterAddress(MASTER, "10.0.0.7:10912")
        following.follow_other(told)
        pair.link.down = True
        async with trio.open_nursery() as nursery:
            await nursery.start(following.run)
            await until_true(lambda: following.address is not None)
            assert following.address == told
            await until_true(lambda: following.address != told)
            await until_true(lambda: following.address == told)
            nursery.cancel_scope.cancel()


async def test_a_saved_master_is_known_at_the_next_start(tmp_path: Path) -> None:
    role = SavedRole(
        broker_role="SLAVE", epoch=4, offset=7, master_address=MASTER, ha_address="10.0.0.7:10912"
    )
    write_role(Disk(), tmp_path, role)
    async with open_desk(tmp_path, **SLAVE) as slave:
        following = slave.broker.replication.following
        assert following is not None
        assert following.told == MasterAddress(MASTER, "10.0.0.7:10912")
        assert slave.broker.core.role.epoch == 4


@pytest.mark.parametrize("same", range(9))
async def test_the_first_places_that_are_the_same_are_counted(same: int) -> None:
    asked = []

    async def is_same(place: int) -> bool:
        await trio.lowlevel.checkpoint()
        asked.append(place)
        return place < same

    assert await how_many_same(range(8), is_same) == same
    assert len(asked) <= 4
