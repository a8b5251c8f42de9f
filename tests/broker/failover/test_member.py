"""One member with a decider in memory: it leads, is fenced, steps down, and is named by people."""

from __future__ import annotations

import errno
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pytest
import trio

from aerobee.broker.config.settings.failover import FailoverConfig
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.core.role import OnShift
from aerobee.broker.errors import Refusal
from aerobee.broker.failover import commands, reign
from aerobee.broker.failover.decider import ChangeRefused, DeciderSilent, Sight
from aerobee.broker.failover.election import YIELDS
from aerobee.broker.failover.record import Record, given_back, with_set
from aerobee.broker.pull.pull import COMMIT_OFFSET, SUSPEND
from aerobee.broker.replication.master_calls import MasterAddress, MasterRefused
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.bodies.controller import EpochEntryCache
from aerobee.remoting.wire.bodies.queue import MessageQueue
from aerobee.remoting.wire.bodies.statistics import GroupRecord, HARuntimeInfo
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import (
    GetBrokerHaStatus,
    GetTimerCheckPoint,
    Promote,
    Switch,
)
from aerobee.remoting.wire.headers.controller import GetBrokerEpochCache, NotifyBrokerRoleChanged
from aerobee.store.config import FlushDiskType
from aerobee.store.errors import NotInMemory
from aerobee.store.files.disk import Disk
from aerobee.store.flags import Flag
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME
from aerobee.store.format.epochs import Epoch
from aerobee.store.format.ha_epochs import Greeting
from aerobee.store.format.names import ABORT, CUT_MARK, EMPTIED
from aerobee.store.format.timer import TIMER_CHECK
from aerobee.store.log.read_through import LogDamage
from aerobee.store.replication.membership import Lack
from tests.broker.desk import body_of, open_desk, pull_header, said
from tests.broker.replication.pairs import SLAVE, until_true
from tests.kit.faulty_disk import Fault, FaultyDisk, Gate
from tests.kit.patient_clock import run_patiently

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from aerobee.broker.core.feature import Service
    from aerobee.remoting.wire.header import Header
    from aerobee.store.replication.membership import Membership
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio(run=run_patiently)
"""A lease does not end because other processes have the cores."""

LEASE_S = 2
SUBSCRIPTION = 4
NOBODY: Any = None
BUSY, NOT_AVAILABLE = int(ResponseCode.SYSTEM_BUSY), int(ResponseCode.SERVICE_NOT_AVAILABLE)


class MemoryDecider:
    """One record and one holder; a lease ends when the test says so."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.version = 0
        self.holder = ""
        self.leases = self.renewals = 0
        self.silent = False
        self.loses_answers = 0
        """So many changes are made, and their answers are lost."""
        self.slow: trio.Event | None = None
        """Until then nobody is given the lease."""
        self.taking = False
        self.asked: list[Record] = []
        self._news = trio.Event()

    def end_lease(self) -> None:
        self.holder = ""
        self.tell()

    def let_take(self) -> None:
        """Leases are given again."""
        assert self.slow is not None
        self.slow.set()

    def tell(self) -> None:
        self.version += 1
        news, self._news = self._news, trio.Event()
        news.set()

    def sight(self) -> Sight:
        return Sight(self.record, self.version, bool(self.holder), self.version)

    async def heard(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.silent:
            raise DeciderSilent("it is away")

    async def look(self, known: Sight | None, wait_s: float) -> Sight:
        await self.heard()
        if known is not None and known.moment == self.version:
            with trio.move_on_after(wait_s):
                await self._news.wait()
        await self.heard()
        return self.sight()

    async def take(self, sight: Sight, record_for: Callable[[str], Record]) -> Sight:
        await self.heard()
        self.taking = True
        if self.slow is not None:
            await self.slow.wait()
        if self.holder or sight.version != self.version:
            raise ChangeRefused("another one has it")
        self.leases += 1
        self.holder = f"lease {self.leases}"
        self.record = record_for(self.holder)
        self.tell()
        return self.sight()

    async def renew(self, lease: str) -> bool:
        self.renewals += 1
        await self.heard()
        return lease == self.holder

    async def change(self, sight: Sight, record: Record, lease: str) -> Sight:
        self.asked.append(record)
        await self.heard()
        if lease != self.holder or sight.version != self.version:
            raise ChangeRefused("it is another one")
        self.record = record
        if not record.lease:
            self.holder = ""
        self.tell()
        if self.loses_answers:
            self.loses_answers -= 1
            raise DeciderSilent("the answer is lost")
        return self.sight()


class Names:
    """What the name servers are told."""

    def __init__(self) -> None:
        self.fenced: Callable[[], bool] = lambda: False
        self.epoch: Callable[[], int] = lambda: 0
        self.told: list[int] = []

    def become_master(self) -> None:
        self.told.append(0)

    def become_slave(self, broker_id: int) -> None:
        self.told.append(broker_id)


class Alone:
    """A member that runs; its group may have others, which do not."""

    def __init__(self, desk: Desk) -> None:
        failover = desk.broker.failover
        assert failover is not None
        self.desk = desk
        self.decider = MemoryDecider()
        self.names = Names()
        self.member, self.commands = failover.member, failover.commands
        self.member.known.decider = self.decider
        self.member.names = self.names
        desk.topic()

    async def until_leads(self) -> None:
        await until_true(lambda: not self.desk.broker.core.role.is_slave)

    async def until_follows(self) -> None:
        await until_true(
            lambda: (
                self.desk.broker.core.role.is_slave and not self.desk.broker.core.role.works.is_on
            )
        )


@asynccontextmanager
async def alone(
    root: Path,
    *,
    least: int = 1,
    record: Record | None = None,
    disk: Disk | None = None,
    follows: Service | None = None,
    lease_s: int = LEASE_S,
    late_ms: int = 15_000,
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH,
    silent: bool = False,
) -> AsyncIterator[Alone]:
    group = FailoverConfig(
        ha_max_time_slave_not_catchup_ms=late_ms,
        etcd_endpoints="http://127.0.0.1:1",
        failover_members="1;2",
        failover_lease_s=lease_s,
        min_in_sync_replicas=least,
    )
    peers = ReplicationConfig(ha_peers="127.0.0.1", ha_listen_port=1)
    how = {"failover": group, "replication": peers, **SLAVE}
    async with open_desk(root, disk, flush_disk_type=flush, sync_flush_inline=False, **how) as desk:
        one = Alone(desk)
        one.decider.record, one.decider.silent = record, silent
        if record is not None:
            one.decider.holder = record.lease
        services = [] if follows is None else [follows]
        role = desk.broker.core.role
        async with trio.open_nursery() as nursery:
            await nursery.start(OnShift(role.follows, services).run)
            await nursery.start(OnShift(role.works, []).run)
            await nursery.start(one.member.run)
            yield one
            nursery.cancel_scope.cancel()


async def test_the_founder_leads_and_is_the_master_at_the_name_servers(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert (await one.desk.send()).code == 0
        assert one.names.told == [0]
        record = one.decider.record
        assert record is not None
        assert (record.epoch, record.master, record.sync_set) == (1, 1, (1,))
        assert record.address == one.desk.address


async def test_too_few_members_serve_nobody(tmp_path: Path) -> None:
    async with alone(tmp_path, least=2) as one:
        await until_true(lambda: one.member.leads)
        assert one.desk.broker.core.role.is_slave
        assert (await one.desk.send()).code == BUSY


@pytest.mark.parametrize("least", [1, 2])
async def test_a_member_that_gave_its_lease_back_says_whether_it_served(
    tmp_path: Path, least: int
) -> None:
    async with alone(tmp_path, least=least) as one:
        await (one.until_leads() if least == 1 else until_true(lambda: one.member.leads))
        assert one.decider.record is not None
        one.decider.record = with_set(one.decider.record, (1, 2))
        one.decider.tell()
        one.member.known.note(one.decider.sight())
        await one.member.give_back(heir=2)
        await until_true(lambda: "member 2 is to be the master" in one.member.waits_because)
        status = HARuntimeInfo.from_bytes(body_of(await one.desk.ask(GetBrokerHaStatus())))
        assert status.record is not None
        assert (status.record.master, status.record.held) == (1, False)
        assert status.record.served is (least == 1)


async def test_without_renewals_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        one.decider.silent = True
        await one.until_follows()
        assert (await one.desk.send()).code == BUSY
        assert one.names.told == [0, 1]
        assert one.member.fenced()
        # etcd is back, and its lease has ended meanwhile.
        one.decider.silent = False
        one.decider.end_lease()
        await one.until_leads()
        assert (await one.desk.send()).code == 0
        assert one.decider.record is not None
        assert one.decider.record.epoch == 2


async def test_a_send_that_waits_is_told_that_the_lease_is_over(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        leadership = one.member.leadership
        assert leadership is not None
        leadership.sync.reported(2, 0, one.desk.clock.monotonic())
        leadership.sync.propose(frozenset({1, 2}))
        answers: list[Any] = []

        async def send() -> None:
            answers.append(await one.desk.send())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await until_true(lambda: bool(one.desk.store.replicas.senders))
            one.decider.end_lease()
        (answer,) = answers
        assert answer.code == NOT_AVAILABLE
        assert "may be the master of its group no more" in str(answer.remark)


async def test_a_stop_gives_a_long_lease_back_though_a_member_of_the_set_is_gone(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path, lease_s=30) as one, trio.open_nursery() as nursery:
        await one.until_leads()
        leadership = one.member.leadership
        assert leadership is not None
        leadership.sync.reported(2, 0, one.desk.clock.monotonic())
        leadership.sync.propose(frozenset({1, 2}))
        nursery.start_soon(one.desk.send)
        await until_true(lambda: bool(one.desk.store.replicas.senders))
        await one.member.leave()
        assert not one.decider.holder


async def test_a_change_whose_answer_is_lost_is_asked_for_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        one.decider.loses_answers = 1
        await one.member.give_back(heir=2)
        assert len(one.decider.asked) == 2
        assert one.decider.asked[0] == one.decider.asked[1]
        assert one.decider.record is not None
        assert (one.decider.record.lease, one.decider.record.heir) == ("", 2)
        await one.until_follows()
        await until_true(lambda: "member 2 is to be the master" in one.member.waits_because)
        # The heir does not come: after a lease's time any other may.
        await one.until_leads()
        assert one.decider.record.epoch == 2


async def test_a_master_whose_disk_has_failed_gives_its_lease_back(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        one.desk.store.flags.set(Flag.NOT_WRITEABLE, "a sync failed")
        await one.until_follows()
        assert not one.decider.holder
        await until_true(lambda: "a sync failed" in one.member.waits_because)
        one.desk.store.flags.clear(Flag.NOT_WRITEABLE)


async def test_a_master_whose_disk_hangs_gives_its_lease_back(tmp_path: Path) -> None:
    """Nothing that it is sent could be acknowledged, and its loop does not wait for the disk."""
    disk = FaultyDisk(tmp_path)
    async with (
        alone(tmp_path, disk=disk, late_ms=1_000, flush=FlushDiskType.SYNC_FLUSH) as one,
        trio.open_nursery() as nursery,
    ):
        await one.until_leads()
        assert (await one.desk.send()).code == 0
        sync = Gate(disk, "fdatasync", "commitlog")
        nursery.start_soon(one.desk.send)
        await sync.wait_for_a_call()
        await one.until_follows()
        assert one.decider.record is not None
        assert not one.decider.record.lease
        await until_true(lambda: "its disk does not answer" in one.member.waits_because)
        sync.let_go()
        await one.until_leads()
        assert (await one.desk.send()).code == 0


async def test_a_member_whose_disk_hangs_before_it_leads_keeps_no_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reign, "BEGIN_S", 0.2)
    disk = FaultyDisk(tmp_path)
    epochs = Gate(disk, "fsync", EPOCH_FILE_NAME)
    async with alone(tmp_path, disk=disk) as one:
        await epochs.wait_for_a_call()
        assert one.decider.holder
        await until_true(one.member.fenced)
        assert not one.decider.renewals
        epochs.let_go()
        one.decider.end_lease()
        await one.until_leads()


async def test_a_member_outside_of_the_sync_set_is_elected_by_name_only(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        with pytest.raises(Refusal, match="etcd says who is the master"):
            await promote(one, None)
        with pytest.raises(Refusal, match="this broker is the master"):
            await promote(one, "unclean")
        assert one.decider.record is not None
        taken = Record(epoch=5, master=2, sync_set=(2,), set_epoch=9)
        one.decider.record, one.decider.holder = taken, "another"
        one.decider.tell()
        await one.until_follows()
        await until_true(lambda: one.member.known_epoch == 5)
        with pytest.raises(Refusal, match="member 2 is the master"):
            await promote(one, "unclean")
        one.decider.end_lease()
        await until_true(lambda: "not in the sync set" in one.member.waits_because)
        assert said(await promote(one, "unclean"))["epoch"] == "6"
        await one.until_leads()
        record = one.decider.record
        assert (record.epoch, record.sync_set, record.unclean_epoch) == (6, (1,), 6)


async def test_an_election_by_name_that_another_member_forestalls_is_no_wish_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "TAKEN_S", 0.5)
    outside = Record(epoch=5, master=2, sync_set=(2, 3), set_epoch=9)
    async with alone(tmp_path, least=2, record=outside) as one:
        await until_true(lambda: "not in the sync set" in one.member.waits_because)
        one.decider.slow = trio.Event()

        async def forestall() -> None:
            await until_true(lambda: one.decider.taking)
            one.decider.record = Record(
                epoch=6, master=3, sync_set=(2, 3), set_epoch=10, lease="another"
            )
            one.decider.holder = "another"
            one.decider.tell()
            one.decider.let_take()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(forestall)
            with pytest.raises(Refusal, match="it has not become the master"):
                await promote(one, "unclean")
        # Later that master dies.
        one.decider.end_lease()
        await until_true(lambda: "not in the sync set" in one.member.waits_because)
        assert one.decider.leases == 0
        assert said(await promote(one, "unclean"))["epoch"] == "7"


async def test_an_election_by_name_that_nobody_waits_for_any_more_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "TAKEN_S", 0.1)
    outside = Record(epoch=5, master=2, sync_set=(2, 3), set_epoch=9)
    async with alone(tmp_path, least=2, record=outside) as one:
        await until_true(lambda: "not in the sync set" in one.member.waits_because)
        one.decider.slow = trio.Event()
        with pytest.raises(Refusal, match="it has not become the master"):
            await promote(one, "unclean")
        # The lease is held for a moment, so what was asked for is refused; the record stays.
        one.decider.holder = "another"
        one.decider.let_take()
        await until_true(lambda: one.member.waits_because == "the lease is held")
        one.decider.holder = ""
        await until_true(lambda: "not in the sync set" in one.member.waits_because)
        assert one.decider.leases == 0


class Tables:
    """Copies of the tables of masters, as far as the test says."""

    def __init__(self, decider: MemoryDecider, all_of: int = 0) -> None:
        self.all_of = all_of
        self.saves = True
        self.late_s = 0.0
        self.copies: list[tuple[str, int]] = []
        """From where, and how many leases there had been."""
        self._decider = decider

    async def copied(self, master: MasterAddress, *, whole: bool = True) -> bool:
        await trio.lowlevel.checkpoint()
        self.copies.append((master.address, self._decider.leases))
        return True

    async def save(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.saves


def with_tables(one: Alone, all_of: int = 0) -> Tables:
    tables = one.member.tables = Tables(one.decider, all_of)
    one.member.save_tables = tables.save
    return tables


EMPTIED_IN = Record(epoch=3, master=2, sync_set=(1, 2), set_epoch=5)


def greeting(end: int) -> Greeting:
    """That of the master of epoch 3."""
    return Greeting(end, (Epoch(1, 0), Epoch(3, end // 2)))


async def test_a_member_that_was_emptied_is_no_candidate_after_a_connection_and_a_restart(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path, record=EMPTIED_IN) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
        membership = one.member.membership
        assert membership is not None
        # The first connection saves epochs, before a byte is copied.
        assert await membership.settle(greeting(1_000_000)) == ""
        assert membership.group.last_epoch == 1
    async with alone(tmp_path, record=EMPTIED_IN) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
        one.decider.tell()
        await trio.sleep(LEASE_S)
        assert one.decider.record == EMPTIED_IN


async def test_a_member_that_was_emptied_is_a_candidate_once_it_has_copied_everything(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path, record=EMPTIED_IN) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
        membership = one.member.membership
        assert membership is not None
        tables = with_tables(one)
        assert await membership.settle(greeting(0)) == ""
        assert membership.has_all
        for all_of, saves in ((2, True), (3, False)):
            # The tables are of the master before, or not on disk.
            tables.all_of, tables.saves = all_of, saves
            one.decider.tell()
            await until_true(lambda: one.member.known.sight == one.decider.sight())
            assert "it was emptied" in one.member.waits_because
        tables.saves = True
        one.decider.tell()
        await one.until_leads()
        record = one.decider.record
        assert record is not None
    async with alone(tmp_path, record=given_back(record)) as one:
        await one.until_leads()


async def test_nobody_is_followed_before_it_is_saved_that_the_log_was_emptied(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(tmp_path)
    fault = Fault(name="replace", error=errno.ENOSPC, path=EMPTIED, times=3)
    disk.faults.append(fault)
    record = msgspec.structs.replace(EMPTIED_IN, address="a:1", ha_address="a:2")
    async with alone(tmp_path, record=record, disk=disk) as one:
        while fault.times:
            assert one.member.master() is None
            await trio.sleep(0.01)
        await until_true(lambda: one.member.master() is not None)
        assert "it was emptied" in one.member.waits_because


class Rebooted(Disk):
    """The disk of a system that was started under this id."""

    def __init__(self, boot: str) -> None:
        super().__init__()
        self.id = boot

    def boot(self) -> str:
        return self.id


class Parted:
    """A service of a slave: its master's log parts from this one in the middle."""

    def __init__(self) -> None:
        self.begins = trio.Event()
        self.membership: Membership | None = None
        self.common = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self.begins.wait()
        assert self.membership is not None
        if self.membership.cut_at is None:
            epochs = (Epoch(1, 0), Epoch(2, self.common))
            await self.membership.settle(Greeting(self.common + 1, epochs))


@asynccontextmanager
async def parted(root: Path) -> AsyncIterator[tuple[Alone, Parted, Gate]]:
    """A member that has messages which its master, member 2, has not."""
    master = Record(epoch=2, master=2, sync_set=(1, 2), set_epoch=5, lease="another")
    ends: list[int] = []
    async with alone(root) as one:
        await one.until_leads()
        for _ in range(2):
            assert (await one.desk.send()).code == 0
            ends.append(one.desk.store.commit_log.max_offset)
    disk, slave = FaultyDisk(root), Parted()
    gate = Gate(disk, "replace", CUT_MARK)
    async with alone(root, record=master, disk=disk, follows=slave) as one:
        slave.membership, slave.common = one.member.membership, ends[0]
        try:
            yield one, slave, gate
        finally:
            gate.let_go()


async def test_a_member_whose_log_is_being_cut_takes_no_lease(tmp_path: Path) -> None:
    async with parted(tmp_path) as (one, slave, gate):
        slave.begins.set()
        await gate.wait_for_a_call()
        one.decider.end_lease()
        await until_true(lambda: "a cut of it begins" in one.member.waits_because)
        with pytest.raises(Refusal, match="a cut of it begins"):
            await promote(one, "unclean")
        gate.let_go()
        membership = one.member.membership
        assert membership is not None
        await until_true(lambda: membership.cut_at == slave.common)
        one.decider.tell()
        await until_true(lambda: "the next start ends it at" in one.member.waits_because)
        assert one.decider.leases == 0


async def test_a_member_whose_log_was_cut_leads_once_it_has_the_tables_of_the_next_master(
    tmp_path: Path,
) -> None:
    async with parted(tmp_path) as (one, slave, gate):
        gate.let_go()
        slave.begins.set()
        membership = one.member.membership
        assert membership is not None
        await until_true(lambda: membership.cut_at == slave.common)
        record = one.decider.record
        assert record is not None
    # That master dies before the member is there again.
    async with alone(tmp_path, record=given_back(record)) as one:
        await until_true(lambda: "the tables of the next master" in one.member.waits_because)
        anew = one.member.membership
        assert anew is not None
        assert one.desk.store.commit_log.max_offset == slave.common
        one.decider.tell()
        await trio.sleep(LEASE_S)
        assert one.decider.leases == 0
        # It comes back, or another one: all of its log is here, and later its tables.
        tables = with_tables(one)
        epochs = (Epoch(1, 0), Epoch(2, slave.common))
        assert await anew.settle(Greeting(slave.common, epochs)) == ""
        anew.group.confirmed = slave.common
        one.decider.tell()
        await until_true(lambda: one.member.known.sight == one.decider.sight())
        assert one.decider.leases == 0
        tables.all_of = record.epoch
        one.decider.tell()
        await one.until_leads()


def lose_all_but(root: Path, *names: str) -> None:
    for path in root.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


async def test_a_member_whose_log_is_gone_is_one_that_was_emptied(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert (await one.desk.send()).code == 0
    lose_all_but(tmp_path, "config", EPOCH_FILE_NAME)
    record = Record(epoch=1, master=1, sync_set=(1, 2), set_epoch=2)
    async with alone(tmp_path, record=record) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
    async with alone(tmp_path, record=record) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
        assert one.decider.leases == 0


async def test_a_member_whose_tables_were_gone_leads_if_a_person_wants_it(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert (await one.desk.send("Orders")).code == 0
    shutil.rmtree(tmp_path / "config")
    # It would be the next master, and the others would copy its new tables.
    record = Record(epoch=1, master=1, sync_set=(1, 2), set_epoch=2)
    async with alone(tmp_path, record=record) as one:
        await until_true(lambda: "its tables were gone" in one.member.waits_because)
        assert one.decider.leases == 0
    async with alone(tmp_path, record=record) as one:
        await until_true(lambda: "its tables were gone" in one.member.waits_because)
        await promote(one, "unclean")
        await one.until_leads()
        assert "Orders" in one.desk.topics.configs


async def test_an_election_while_a_cut_begins_is_given_back(tmp_path: Path) -> None:
    async with parted(tmp_path) as (one, slave, gate):
        restarts: list[str] = []
        failover, following = one.desk.broker.failover, one.desk.broker.replication.following
        assert failover is not None
        assert following is not None
        failover.begin_anew_by(lambda: restarts.append("cut"))
        one.decider.slow = trio.Event()
        one.decider.end_lease()
        # It is asked for the lease; then the cut begins, and the lease is taken.
        await until_true(lambda: one.decider.taking)
        slave.begins.set()
        await gate.wait_for_a_call()
        one.decider.let_take()
        await until_true(lambda: one.decider.leases == 1)
        gate.let_go()
        await until_true(lambda: not one.decider.holder)
        await until_true(lambda: "the next start ends it at" in one.member.waits_because)
        assert not one.member.leads
        await until_true(lambda: one.desk.broker.core.role.follows.is_on)
        async with trio.open_nursery() as nursery:
            await nursery.start(following.run)
            assert restarts == ["cut"]
            nursery.cancel_scope.cancel()


async def test_only_a_master_takes_the_commit_of_a_pull(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert (await one.desk.send()).code == 0
        flags = COMMIT_OFFSET | SUBSCRIPTION
        await one.desk.pull(sys_flag=flags, commit_offset=1)
        assert one.desk.offsets.query("g", "t", 0) == 1
        # Its lease is over, and it has not noticed.
        one.desk.broker.core.role.fenced = lambda: True
        assert (await one.desk.pull(sys_flag=flags, commit_offset=2)).code == 0
        assert one.desk.offsets.query("g", "t", 0) == 1


def on_disk(*place: object, **limits: object) -> NoReturn:
    raise NotInMemory(())


async def test_a_pull_that_waited_gets_nothing_that_the_sync_set_may_still_lose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone(tmp_path) as one, trio.open_nursery() as nursery:
        await one.until_leads()
        assert (await one.desk.send()).code == 0
        leadership = one.member.leadership
        assert leadership is not None
        leadership.sync.reported(2, 0, one.desk.clock.monotonic())
        leadership.sync.propose(frozenset({1, 2}))
        # Member 2 does not have this one.
        nursery.start_soon(one.desk.send)
        await until_true(lambda: bool(one.desk.store.replicas.senders))
        assert one.decider.record is not None
        one.decider.record = msgspec.structs.replace(
            one.decider.record, sync_set=(1, 2), set_epoch=2
        )
        one.decider.slow = trio.Event()
        one.decider.end_lease()
        await one.until_follows()
        assert one.desk.store.shows_confirmed
        pull = pull_header(queue_offset=1, sys_flag=SUSPEND | SUBSCRIPTION)
        assert one.desk.begin(pull) is None
        assert one.desk.hold.parked
        with monkeypatch.context() as cold:
            cold.setattr(one.desk.store, "get", on_disk)
            from_disk = one.desk.begin(pull_header())
        one.decider.let_take()
        await until_true(lambda: one.member.leads)
        assert one.desk.store.max_offset("t", 0) == 2
        assert one.desk.broker.core.role.is_slave
        for answer, at in ((await one.desk.peer.next_answer(), "1"), (await from_disk, "0")):
            assert (answer.code, answer.body) == (int(ResponseCode.PULL_RETRY_IMMEDIATELY), b"")
            assert said(answer)["nextBeginOffset"] == at


async def test_a_member_without_room_leaves_the_lease_to_others_and_takes_it_then(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        one.desk.store.flags.set(Flag.DISK_FULL, "the disk is full")
        # Nobody else is there, so it stays the master.
        await until_true(one.member.is_to_make_way)
        await trio.sleep(LEASE_S / 2)
        assert one.member.leads
        began = trio.current_time()
        one.decider.end_lease()
        await until_true(lambda: "it has no room for messages" in one.member.waits_because)
        status = HARuntimeInfo.from_bytes(body_of(await one.desk.ask(GetBrokerHaStatus())))
        assert status.record is not None
        assert "the disk is full" in status.record.unfit
        await one.until_leads()
        assert trio.current_time() >= began + YIELDS * LEASE_S
        one.desk.store.flags.clear(Flag.DISK_FULL)


async def led(root: Path) -> Record:
    """The record of a member that was the master, and has stopped."""
    async with alone(root) as one:
        await one.until_leads()
        record = one.decider.record
        assert record is not None
    return record


@pytest.mark.parametrize("why", ["not come for 16 s", "its system has crashed"])
async def test_a_copy_that_may_be_worse_leaves_the_lease_to_others_and_takes_it_then(
    tmp_path: Path, why: str
) -> None:
    record = await led(tmp_path)
    async with alone(tmp_path, record=record) as one:
        tables = with_tables(one)
        if "crashed" in why:
            await membership_of(one).note(Lack.UNSYNCED)
        else:
            tables.late_s = 16.0
        began = trio.current_time()
        one.decider.end_lease()
        await until_true(lambda: why in one.member.waits_because)
        status = HARuntimeInfo.from_bytes(body_of(await one.desk.ask(GetBrokerHaStatus())))
        assert status.record is not None
        assert why in status.record.unfit
        await one.until_leads()
        assert trio.current_time() >= began + YIELDS * LEASE_S
        await until_true(lambda: not membership_of(one).lacks)


@pytest.mark.parametrize("at_first", [True, False])
async def test_a_copy_that_may_be_worse_waits_from_when_the_decider_is_heard(
    tmp_path: Path, at_first: bool
) -> None:
    record = await led(tmp_path)
    async with alone(tmp_path, record=record, silent=at_first) as one:
        with_tables(one)
        await membership_of(one).note(Lack.UNSYNCED)
        one.decider.end_lease()
        if not at_first:
            await until_true(lambda: "has crashed" in one.member.waits_because)
            one.decider.silent = True
        for _ in range(4):
            # As probes and the look for room do.
            await one.desk.ask(GetBrokerHaStatus())
            await trio.sleep(LEASE_S)
        one.decider.silent = False
        began = trio.current_time()
        await one.until_leads()
        assert trio.current_time() >= began + YIELDS * LEASE_S


def membership_of(one: Alone) -> Membership:
    membership = one.member.membership
    assert membership is not None
    return membership


async def test_a_copy_that_has_all_of_a_master_since_is_as_good_as_any(tmp_path: Path) -> None:
    record = await led(tmp_path)
    async with alone(tmp_path, record=record) as one:
        await membership_of(one).note(Lack.UNSYNCED)
        membership = one.member.membership
        assert membership is not None
        assert await membership.settle(Greeting(0, (Epoch(1, 0),))) == ""
        one.decider.end_lease()
        began = trio.current_time()
        await one.until_leads()
        assert trio.current_time() < began + LEASE_S


async def test_what_a_power_cut_may_have_taken_is_known_at_the_start(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert (await one.desk.send()).code == 0
    for boot, lacks in ((Disk().boot(), False), ("another", True)):
        # As a kill, or a power cut, leaves it.
        (tmp_path / ABORT).touch()
        disk = Rebooted(boot)
        async with alone(tmp_path, record=one.decider.record, disk=disk) as again:
            assert (Lack.UNSYNCED in membership_of(again).lacks) is lacks
    # Neither a clean stop nor a kill brings back what is gone.
    for killed in (False, True):
        if killed:
            (tmp_path / ABORT).touch()
        async with alone(tmp_path, record=one.decider.record, disk=Rebooted("another")) as again:
            assert Lack.UNSYNCED in membership_of(again).lacks
            assert not membership_of(again).lost
    # It has all of the next master's, tables and all.
    record = one.decider.record
    assert record is not None
    async with alone(tmp_path, record=record, disk=Rebooted("another")) as again:
        tables, membership = with_tables(again), membership_of(again)
        end = again.desk.store.commit_log.max_offset
        assert await membership.settle(Greeting(end, (Epoch(1, 0),))) == ""
        membership.group.confirm(end, end)
        tables.all_of = record.epoch
        again.decider.tell()
        await until_true(lambda: not membership.lacks)


async def test_a_master_has_its_set_in_a_decider_that_was_restored(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        old = one.decider.record
        assert old is not None
        leadership = one.member.leadership
        assert leadership is not None
        # Somebody has changed the record, and then it is as it was, but for the sync set.
        one.decider.record = msgspec.structs.replace(old, set_epoch=5)
        one.decider.tell()
        await until_true(lambda: one.member.record == one.decider.record)
        one.decider.record = msgspec.structs.replace(old, sync_set=(1, 2))
        one.decider.tell()
        restored = one.decider.record
        await until_true(lambda: one.decider.record is not restored)
        assert one.decider.record is not None
        assert (one.decider.record.sync_set, one.decider.record.set_epoch) == ((1,), 6)
        assert leadership.sync.members == {1}
        assert one.member.leads


async def test_nobody_is_elected_by_a_record_that_is_older_than_one_that_was_known(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        await one.member.give_back(2)
        record = one.decider.record
        assert record is not None
        await until_true(lambda: one.member.record == record)
        one.decider.record = msgspec.structs.replace(record, set_epoch=1)
        one.decider.taking = False
        one.decider.end_lease()
        await until_true(lambda: "the decider has lost changes" in one.member.waits_because)
        assert not one.decider.taking
        # A person makes it the master all the same, and the group goes on from there.
        await promote(one, "unclean")
        await one.until_leads()
        assert not one.member.waits_because


async def test_a_lease_is_renewed_while_tables_are_made_to_agree_with_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        offsets = one.desk.broker.consumers.tables.offsets
        offsets.commit("g", "t", 0, 9, 0)
        clamp, renewed = offsets.clamp, []

        def slow(max_offset: Callable[[str, int], int]) -> Iterator[Any]:
            before = one.decider.renewals
            while one.decider.renewals < before + 2:
                yield []
            renewed.append(one.member.known_epoch)
            yield from clamp(max_offset)

        monkeypatch.setattr(offsets, "clamp", slow)
        one.decider.end_lease()
        await until_true(lambda: bool(renewed))
        await one.until_leads()
        assert renewed == [2]
        assert one.decider.record is not None
        assert one.decider.record.epoch == 2
        assert offsets.query("g", "t", 0) == 0


async def test_only_a_master_switches(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        one.decider.silent = True
        await one.until_follows()
        header = Switch(to="127.0.0.1:1")
        with pytest.raises(Refusal, match="ask that one"):
            await one.commands.switch(header, NOBODY, NOBODY)


class SaysItsNumber:
    """The link to a slave with this number."""

    def __init__(self, number: int, unfit: str = "") -> None:
        record = GroupRecord(epoch=1, master=1, sync_set=[1, 2], set_epoch=1, unfit=unfit)
        self.body = HARuntimeInfo(
            master=False, broker_id=number, master_commit_log_max_offset=0, record=record
        ).to_bytes()

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[SaysItsNumber]:
        yield self

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        await trio.lowlevel.checkpoint()
        return Command(code=0, body=self.body)


async def test_a_member_that_would_not_take_the_lease_is_given_none(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert one.decider.record is not None
        one.decider.record = with_set(one.decider.record, (1, 2))
        one.decider.tell()
        one.member.known.note(one.decider.sight())
        damaged = SaysItsNumber(2, "its log is damaged").connect
        orders = commands.GroupCommands(one.desk.broker.core, one.member, damaged)
        with pytest.raises(Refusal, match="would not take the lease: its log is damaged"):
            await orders.switch(Switch(to="127.0.0.1:1"), NOBODY, NOBODY)
        assert one.member.leads


@pytest.mark.parametrize("taken_by", [2, 3])
async def test_a_switch_says_who_has_taken_the_lease(tmp_path: Path, taken_by: int) -> None:
    members = (1, 2, 3)
    async with alone(tmp_path) as one, trio.open_nursery() as nursery:
        await one.until_leads()
        assert one.decider.record is not None
        one.decider.record = with_set(one.decider.record, members)
        one.decider.tell()
        one.member.known.note(one.decider.sight())
        core = one.desk.broker.core
        orders = commands.GroupCommands(core, one.member, SaysItsNumber(2).connect)
        said_by: list[str] = []

        async def switch() -> None:
            header = Switch(to="127.0.0.1:1")
            try:
                said_by.append(said(await orders.switch(header, NOBODY, NOBODY))["epoch"])
            except Refusal as refusal:
                said_by.append(str(refusal))

        nursery.start_soon(switch)
        await until_true(lambda: not one.decider.holder)
        one.decider.record = Record(
            epoch=3, master=taken_by, sync_set=members, set_epoch=9, lease="theirs"
        )
        one.decider.holder = "theirs"
        one.decider.tell()
        await until_true(lambda: bool(said_by))
        if taken_by == 2:
            assert said_by == ["3"]
        else:
            assert "member 3 has taken the lease in the place of member 2" in said_by[0]


async def test_a_switch_says_that_this_member_had_to_take_the_lease_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert one.decider.record is not None
        one.decider.record = with_set(one.decider.record, (1, 2))
        one.decider.tell()
        one.member.known.note(one.decider.sight())
        core = one.desk.broker.core
        orders = commands.GroupCommands(core, one.member, SaysItsNumber(2).connect)
        with pytest.raises(Refusal, match="member 2 has not taken the lease, and this broker has"):
            await orders.switch(Switch(to="127.0.0.1:1"), NOBODY, NOBODY)
        assert one.decider.record.master == 1


async def promote(one: Alone, accepted: str | None) -> Any:
    return await one.commands.promote(Promote(accepted=accepted), NOBODY, NOBODY)


async def test_who_hands_over_ends_the_work_of_a_master(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        locks = one.desk.broker.consumers.tables.locks
        assert locks.lock("g", "c", [MessageQueue(topic="t", broker_name="b", queue_id=0)], 0)
        await one.member.give_back(heir=2)
        await one.until_follows()
        # As the master again it must not hold against others what it granted in its first time.
        await until_true(lambda: not locks.count)


async def test_the_next_master_is_told_of_all_timers_that_this_one_has_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of those that no save of the wheel has had yet: else they would come twice."""
    async with alone(tmp_path) as one:
        await one.until_leads()
        assert one.desk.timers is not None
        one.desk.timers.timers.queue_offset = 3
        told: list[int] = []
        change = one.decider.change

        async def changed(sight: Sight, record: Record, lease: str) -> Sight:
            answer = await one.desk.ask(GetTimerCheckPoint())
            told.append(TIMER_CHECK.read(body_of(answer)).queue_offset)
            return await change(sight, record, lease)

        monkeypatch.setattr(one.decider, "change", changed)
        await one.member.give_back(heir=2)
        assert told == [3]


async def test_a_stop_during_a_switch_is_as_clean_as_any(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        async with trio.open_nursery() as both:
            both.start_soon(one.member.give_back, 2)
            for _ in range(2):  # it has begun then
                await trio.lowlevel.checkpoint()
            await one.member.leave()
        assert one.decider.record is not None
        assert one.decider.record.heir == 2


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_broker_that_stops_follows_no_new_master(tmp_path: Path, leaves: bool) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        await (one.member.leave() if leaves else one.member.give_back(2))
        one.decider.record = Record(
            epoch=9,
            master=2,
            sync_set=(2,),
            set_epoch=9,
            lease="of another",
            address="10.0.0.2:10911",
            ha_address="10.0.0.2:10912",
        )
        one.decider.tell()
        await until_true(lambda: one.member.known_epoch == 9)
        assert (one.member.master() is None) == leaves


async def test_who_is_cancelled_while_it_hands_over_leads_no_more(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        with trio.CancelScope() as scope:
            scope.cancel()
            await one.member.give_back(heir=2)
        # It would hold the lease for good, and serve nobody.
        await until_true(lambda: not one.member.leads)
        assert one.decider.holder == "lease 1"
        one.decider.end_lease()
        await until_true(lambda: one.decider.leases == 2)
        await one.until_leads()


async def test_a_member_copies_the_tables_of_a_master_that_has_given_its_lease_back(
    tmp_path: Path,
) -> None:
    record = Record(epoch=3, master=2, sync_set=(1, 2), set_epoch=5)
    async with alone(tmp_path, record=record) as one:
        await until_true(lambda: "it was emptied" in one.member.waits_because)
        tables = with_tables(one, all_of=3)
        assert one.member.membership is not None
        assert await one.member.membership.settle(greeting(0)) == ""
        for lease in ("run out", ""):
            given_back = Record(
                epoch=3,
                master=2,
                sync_set=(2,),
                set_epoch=6,
                lease=lease,
                address="10.0.0.2:10911",
                ha_address="10.0.0.2:10912",
            )
            one.decider.record = given_back
            one.decider.tell()
            await until_true(lambda: "not in the sync set" in one.member.waits_because)
        assert tables.copies == []
        one.decider.record = msgspec.structs.replace(given_back, sync_set=(1, 2), set_epoch=7)
        one.decider.tell()
        await one.until_leads()
        # Before it asked for the lease.
        assert tables.copies == [("10.0.0.2:10911", 0)]


async def test_a_member_says_which_epochs_its_log_has(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        cache = EpochEntryCache.from_bytes(body_of(await one.desk.ask(GetBrokerEpochCache())))
        assert (cache.broker_id, cache.epoch_list) == (1, [])
        await one.until_leads()
        await one.desk.send()
        one.decider.end_lease()
        # It follows for as long as an epoch is saved: too short a time to be seen.
        await until_true(lambda: one.member.known_epoch == 2)
        await one.until_leads()
        cache = EpochEntryCache.from_bytes(body_of(await one.desk.ask(GetBrokerEpochCache())))
        end = one.desk.store.commit_log.max_offset
        places = [(row.epoch, row.start_offset, row.end_offset) for row in cache.epoch_list]
        assert places == [(1, 0, end), (2, end, (1 << 63) - 1)]
        assert (cache.broker_id, cache.max_offset) == (0, end)
        # With etcd nobody notifies, and nothing follows from it.
        told = NotifyBrokerRoleChanged(master_epoch=9, master_broker_id=2)
        assert (await one.desk.ask(told)).code == 0
        assert not one.desk.broker.core.role.is_slave


async def test_a_master_that_is_told_of_another_asks_at_once(tmp_path: Path) -> None:
    # Without being told it would renew after half a minute, which is longer than this waits.
    async with alone(tmp_path, lease_s=60) as one:
        await one.until_leads()
        assert not one.decider.renewals
        one.member.told()
        await until_true(lambda: bool(one.decider.renewals))
        assert not one.member.fenced()
        one.decider.end_lease()
        one.member.told()
        await until_true(lambda: one.decider.leases == 2)


DAMAGE = LogDamage(4_096, "crc", "/d/commitlog/0")


async def test_a_member_whose_log_is_damaged_does_not_become_the_master(tmp_path: Path) -> None:
    async with alone(tmp_path) as one:
        await one.until_leads()
        # A master goes on: whether another one has a whole log is for a person to see.
        one.member.log_damaged(DAMAGE)
        assert (await one.desk.send()).code == 0
        failover = one.desk.broker.failover
        assert failover is not None
        assert "/d/commitlog/0: crc at 4096" in str(failover.trouble())
        one.decider.end_lease()
        await until_true(lambda: "its log is damaged" in one.member.waits_because)
        assert one.decider.leases == 1
        status = HARuntimeInfo.from_bytes(body_of(await one.desk.ask(GetBrokerHaStatus())))
        assert status.record is not None
        assert status.record.damage == one.member.damage
        # A person may say otherwise, by name.
        one.member.elect_unclean()
        await one.until_leads()


@pytest.mark.parametrize(
    ("members", "least", "away"),
    [((2, 3), 1, True), ((1, 2, 3), 2, True), ((1, 2), 2, False), ((1, 2), 1, True)],
)
async def test_a_damaged_copy_counts_only_where_the_sync_set_would_be_too_small(
    tmp_path: Path, members: tuple[int, ...], least: int, away: bool
) -> None:
    record = Record(epoch=4, master=2, sync_set=members, set_epoch=9, lease="theirs")
    async with alone(tmp_path, record=record, least=least) as one:
        one.decider.holder = "theirs"
        one.decider.tell()
        await until_true(lambda: one.member.record is not None)
        master = MasterAddress("127.0.0.1:1", "127.0.0.1:1")
        one.member.log_damaged(DAMAGE)
        # The other way to fail: there is no master at that address.
        error, text = (MasterRefused, "its own log is damaged") if away else (RemotingError, None)
        with pytest.raises(error, match=text):
            await one.member.may_follow(master)
