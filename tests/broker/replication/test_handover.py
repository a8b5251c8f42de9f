"""A master hands its role over, or goes on; there are never two, whatever fails."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.core.role import OnShift
from aerobee.broker.errors import Refusal
from aerobee.broker.replication import handover
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.master_tables import Copies, MasterTables
from aerobee.broker.replication.saved_role import in_saved_role, read_role
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.command import Command
from aerobee.remoting.wire.headers.admin import GetTimerCheckPoint, Switch
from aerobee.store.files.disk import Disk
from aerobee.store.format.timer import TIMER_CHECK
from tests.broker.desk import body_of, said
from tests.broker.replication.pairs import Link, open_pair, until_true
from tests.kit.faulty_disk import CHANGES, FaultyDisk, RoleSteps
from tests.kit.ports import HOST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.remoting.wire.answer import Answer
    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk
    from tests.broker.replication.pairs import Pair
    from tests.kit.faulty_disk import Call

pytestmark = pytest.mark.trio

TO = "127.0.0.1:10911"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is as long as a busy machine needs, but where it is what is tested."""
    monkeypatch.setattr(handover, "PAUSE_S", 30.0)


class Torn(Link):
    """A connection on which one kind of request, or its answer, is lost."""

    torn = 0
    arrives = True
    mends = False
    """Whether the next connection works again."""
    slave_turns = False
    """Whether it is a master by the time it is asked to be one."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        if code == RequestCode.AEROBEE_PROMOTE and self.slave_turns:
            self.desk.broker.core.role.is_slave = False
        if code != self.torn or self.arrives:
            try:
                answer = await super().call(code, header, body, timeout_s)
            except Refusal as refusal:
                answer = Command(code=int(refusal.code), remark=str(refusal))
            if code != self.torn:
                return answer
        self.down = not self.mends
        raise RemotingError("the connection has broken")


class Switched:
    """A pair whose slave has three messages, and the exchange of their roles."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.names: list[int] = []
        self.link = Torn(pair.slave)
        core = pair.master.broker.core
        following = pair.master.broker.replication.following or pair.following
        self.handover = Handover(core, following, self.link.connect, self)
        replication = pair.slave.broker.replication
        replication.status.following = pair.following
        slave = pair.slave
        tables = slave.broker.consumers.tables
        copies = Copies(slave.topics, tables, slave.delays, slave.request_modes)
        copied = MasterTables(
            slave.broker.core, copies, lambda: pair.following.address, pair.link.connect
        )
        replication.promotion.copy_tables = copied.copy_now

    def become_master(self) -> None:
        self.names.append(0)

    def become_slave(self, broker_id: int) -> None:
        self.names.append(broker_id)

    async def switch(self, *, check_only: bool | None = None) -> Answer:
        header = Switch(to=TO, check_only=check_only)
        return await self.handover.switch(header, cast("Any", None), cast("Any", None))

    async def check_master(self) -> None:
        """The old master is the master as before, and the slave follows it."""
        master, slave = self.pair.master, self.pair.slave
        assert not master.broker.core.role.is_slave
        assert slave.broker.core.role.is_slave
        assert (await master.send()).code == 0
        await until_true(lambda: self.pair.equal)
        saved = read_role(Disk(), master.store.root)
        assert saved is None, saved


@asynccontextmanager
async def copied(root: Path, **changes: Any) -> AsyncIterator[Switched]:
    async with open_pair(root, **changes) as pair, trio.open_nursery() as nursery:
        pair.master.topic()
        for _ in range(3):
            await pair.master.send()
        pair.slave.topic()
        await nursery.start(OnShift(pair.slave.broker.core.role.follows, [pair.following]).run)
        await nursery.start(OnShift(pair.master.broker.core.role.works, []).run)
        await until_true(lambda: pair.equal)
        yield Switched(pair)
        nursery.cancel_scope.cancel()


async def refused_by(desk: Desk) -> bool:
    return (await desk.send()).code != 0


async def test_the_roles_are_exchanged_and_saved(tmp_path: Path) -> None:
    async with copied(tmp_path) as switched:
        master, slave = switched.pair.master, switched.pair.slave
        end = master.store.commit_log.max_offset
        looked = said(await switched.switch(check_only=True))
        assert (looked["maxOffset"], looked["epoch"]) == (str(end), "0")
        await switched.check_master()
        end = master.store.commit_log.max_offset
        answer = said(await switched.switch())
        assert (answer["maxOffset"], answer["epoch"]) == (str(end), "1")
        assert int(answer["pausedMs"]) >= 0
        assert switched.names == [1]
        role = master.broker.core.role
        assert (role.is_slave, role.number, role.follows.is_on) == (True, 1, True)
        assert not slave.broker.core.role.is_slave
        sent = await slave.send()
        assert (sent.code, said(sent)["queueOffset"]) == (0, "4")
        assert master.store.commit_log.max_offset == end
        # Its settings say ASYNC_MASTER.
        again = in_saved_role(master.config, Disk())
        assert (again.is_slave, again.broker.broker_id) == (True, 1)
        with pytest.raises(Refusal, match="this broker is a slave: ask its master"):
            await switched.switch()


async def test_what_the_master_knows_at_the_last_moment_goes_with_the_role(
    tmp_path: Path,
) -> None:
    async with copied(tmp_path) as switched:
        master, slave = switched.pair.master, switched.pair.slave
        master.topic("young")
        master.offsets.commit("g", "t", 0, 2, 1)
        assert slave.topics.get("young") is None
        await switched.switch()
        assert slave.topics.get("young") == master.topics.get("young")
        assert slave.offsets.query("g", "t", 0) == 2


async def test_the_slave_is_told_of_all_timers_that_the_master_has_delivered(
    tmp_path: Path,
) -> None:
    async with copied(tmp_path) as switched:
        master, promotion = switched.pair.master, switched.pair.slave.broker.replication.promotion
        assert master.timers is not None
        # No save of the wheel has had that yet.
        master.timers.timers.queue_offset = 3
        told: list[int] = []

        async def copy_tables() -> str:
            answer = await master.ask(GetTimerCheckPoint())
            told.append(TIMER_CHECK.read(body_of(answer)).queue_offset)
            return ""

        promotion.copy_tables = copy_tables
        switched.handover.features = list(master.broker.features)
        await switched.switch()
        assert told == [3]


async def test_a_master_that_a_person_has_made_meanwhile_stays_the_only_one(
    tmp_path: Path,
) -> None:
    async with copied(tmp_path) as switched:
        switched.link.slave_turns = True
        switched.pair.slave.broker.core.role.epoch = 1
        answer = said(await switched.switch())
        assert answer["epoch"] == "1"
        assert switched.pair.master.broker.core.role.is_slave


async def test_a_slave_that_refuses_leaves_the_master(tmp_path: Path) -> None:
    async with copied(tmp_path) as switched:
        slave = switched.pair.slave
        slave.broker.core.role.is_slave = False
        with pytest.raises(Refusal, match="it is a master"):
            await switched.switch()
        slave.broker.core.role.is_slave = True
        switched.link.slave_turns = True
        with pytest.raises(Refusal, match=r"nothing was changed.*refuses: .*a master already"):
            await switched.switch()
        slave.broker.core.role.is_slave = True
        assert switched.names == [1, 0]
        await switched.check_master()


async def test_a_slave_whose_log_begins_later_does_not_take_over(tmp_path: Path) -> None:
    async with copied(tmp_path) as switched:
        log = switched.pair.slave.store.commit_log
        own = log.queue.files[0].start
        # As of a slave that began with the last segment.
        log.queue.files[0].start = log.segment_bytes
        with pytest.raises(Refusal, match=rf"begins at {log.segment_bytes}, and the master's at 0"):
            await switched.switch()
        log.queue.files[0].start = own
        await switched.check_master()


@pytest.mark.parametrize(
    "torn", [RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_BROKER_RUNTIME_INFO]
)
async def test_a_slave_that_does_not_say_how_it_is_does_not_take_over(
    tmp_path: Path, torn: RequestCode
) -> None:
    async with copied(tmp_path) as switched:
        switched.link.torn = torn
        with pytest.raises(Refusal, match=f"changed; {TO}: it does not answer: the connection"):
            await switched.switch()
        switched.link.down = False
        await switched.check_master()


async def test_sends_that_wait_for_slaves_wait_at_the_next_master_too(tmp_path: Path) -> None:
    def waits_for(copies: int) -> ReplicationConfig:
        return ReplicationConfig(in_sync_replicas=copies, ha_peers=HOST)

    of_master = {"broker_role": BrokerRole.SYNC_MASTER, "replication": waits_for(2)}
    async with copied(tmp_path / "one", of_master=of_master) as switched:
        told = "would not there: set inSyncReplicas: 2 there"
        with pytest.raises(Refusal, match=told):
            await switched.switch()
        await switched.check_master()
    # With the same number there, what that one takes is on two machines or not acknowledged.
    alike: dict[str, Any] = {"replication": waits_for(2)}
    of_master = {"broker_role": BrokerRole.SYNC_MASTER}
    async with copied(tmp_path / "two", of_master=of_master, **alike) as switched:
        slave = switched.pair.slave
        assert (await switched.switch()).code == 0
        assert (await slave.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_slave_that_is_late_leaves_the_master_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with copied(tmp_path) as switched:
        monkeypatch.setattr(handover, "PAUSE_S", 0.05)
        log_out = switched.pair.master.store.log_out
        monkeypatch.setattr(type(log_out), "has", lambda *_: False)
        with pytest.raises(Refusal, match="the slave has not had everything in time"):
            await switched.switch()
        assert not switched.names
        await switched.check_master()


async def test_an_answer_that_is_lost_is_asked_for_again(tmp_path: Path) -> None:
    async with copied(tmp_path) as switched:
        switched.link.torn, switched.link.mends = RequestCode.AEROBEE_PROMOTE, True
        assert said(await switched.switch())["epoch"] == "1"
        assert not switched.pair.slave.broker.core.role.is_slave


@pytest.mark.parametrize("arrives", [True, False])
async def test_where_nobody_knows_the_old_master_takes_no_writes(
    tmp_path: Path, arrives: bool
) -> None:
    async with copied(tmp_path) as switched:
        master, slave = switched.pair.master, switched.pair.slave
        switched.link.torn, switched.link.arrives = RequestCode.AEROBEE_PROMOTE, arrives
        with pytest.raises(Refusal, match=r"nobody knows.*`aerobee ha promote` makes one"):
            await switched.switch()
        assert await refused_by(master)
        assert slave.broker.core.role.is_slave is not arrives
        assert in_saved_role(master.config, Disk()).is_slave


class LateFailure:
    """The role has its name, and its directory is not synced before the pause is over."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "master" / "config"
        self.token = trio.lowlevel.current_trio_token()
        self.failed = False

    def __call__(self, call: Call) -> None:
        named = call.path == self.directory and (self.directory / "role.json").exists()
        if named and call.name in CHANGES and not self.failed:
            self.failed = True
            # In a task of its own: that of the switch is cancelled meanwhile.
            trio.from_thread.run(trio.sleep, handover.PAUSE_S, trio_token=self.token)
            raise OSError(errno.EIO, "the disk fails", str(call.path))


async def test_a_disk_that_fails_too_late_leaves_the_master_after_a_restart_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with copied(tmp_path) as switched:
        monkeypatch.setattr(handover, "PAUSE_S", 3.0)
        core = switched.pair.master.broker.core
        core.disk = disk = FaultyDisk(tmp_path / "master" / "config")
        disk.before = late = LateFailure(tmp_path)
        with pytest.raises(Refusal, match="nothing was changed"):
            await switched.switch()
        assert late.failed
        await switched.check_master()


async def test_wherever_saving_the_role_fails_the_master_goes_on(tmp_path: Path) -> None:
    failing, steps = 0, 1
    while failing < steps:
        failing += 1
        root = tmp_path / str(failing)
        async with copied(root) as switched:
            core = switched.pair.master.broker.core
            disk = FaultyDisk(root / "master" / "config")
            core.disk = disk
            disk.before = RoleSteps(root / "master" / "config", failing)
            with pytest.raises(Refusal, match=r"nothing was changed.*cannot be saved.*disk fails"):
                await switched.switch()
            await switched.check_master()
            disk.before = counted = RoleSteps(root / "master" / "config")
            await switched.switch()
            assert core.role.is_slave
            steps = counted.steps
    assert steps > 3
