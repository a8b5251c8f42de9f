"""A former master does not come back beside the next one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.replication.other_masters import OtherMasterCheck, status_of
from aerobee.broker.replication.saved_role import SavedRole, path_of, read_role, write_role
from aerobee.remoting.config import RemotingConfig
from aerobee.remoting.errors import BodyError, ConnectFailed
from aerobee.remoting.wire.command import Command
from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from tests.broker.desk import open_desk
from tests.broker.replication.pairs import SLAVE, Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.remoting.wire.header import Header
    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

NAMES, AT = "10.0.0.3:9876", "127.0.0.1:20911"


@dataclass
class Says:
    """Answers every request with the same."""

    answer: Command
    asked: list[int] = field(default_factory=list)

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        await trio.lowlevel.checkpoint()
        self.asked.append(code)
        return self.answer


class Network:
    """A name server and a member of the group."""

    def __init__(self, names: Link | None, member: Link | Says | None) -> None:
        self.links = {NAMES: names, AT: member}

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[Any]:
        link = self.links[address]
        if link is None:
            raise ConnectFailed(f"{address}: refused")
        yield link

    @classmethod
    def of(cls, other: Desk) -> Self:
        """The other one, registered at its own name server."""
        return cls(Link(other), Link(other))


async def check(master: Desk, network: Network) -> None:
    core = master.broker.core
    await OtherMasterCheck(core, [NAMES, NAMES], network.connect).run()


@asynccontextmanager
async def two(
    root: Path, own: int, theirs: int, *, slave: bool = False, **settings: Any
) -> AsyncIterator[tuple[Desk, Desk]]:
    """A master that starts, and another member; both with their epochs."""
    for name, epoch in (("master", own), ("other", theirs)):
        (root / name / "config").mkdir(parents=True)
        if epoch:
            saved = SavedRole(broker_role="ASYNC_MASTER", epoch=epoch, offset=7)
            write_role(Disk(), root / name, saved)
    replication = ReplicationConfig(**settings)
    async with (
        open_desk(
            root / "other", remoting=RemotingConfig(listen_port=20_911), **(SLAVE if slave else {})
        ) as other,
        open_desk(root / "master", replication=replication) as master,
    ):
        yield master, other


@pytest.mark.parametrize(
    ("own", "theirs", "slave", "who"),
    [
        (0, 1, False, "is the master"),
        (1, 2, False, "is the master"),
        (2, 2, False, "is the master"),
        (0, 1, True, "follows a master"),
    ],
)
async def test_a_former_master_does_not_start_beside_a_later_one(
    tmp_path: Path, own: int, theirs: int, slave: bool, who: str
) -> None:
    async with two(tmp_path, own, theirs, slave=slave) as (master, other):
        told = rf"at {AT}, {who} by a later command \(epoch {theirs}, here {own}\)"
        with pytest.raises(StoreRefused, match=told) as refused:
            await check(master, Network.of(other))
        # A role of its own would make it the master again, whatever the settings say.
        assert (f"remove {path_of(master.store.root)}" in str(refused.value)) is bool(own)


@pytest.mark.parametrize(
    ("own", "theirs", "slave"), [(2, 1, False), (0, 0, False), (1, 1, True), (2, 1, True)]
)
async def test_the_latest_master_starts_and_names_another_one(
    tmp_path: Path, own: int, theirs: int, slave: bool
) -> None:
    async with two(tmp_path, own, theirs, slave=slave) as (master, other):
        with capture_logs() as logs:
            await check(master, Network.of(other))
        told = [line["address"] for line in logs if line["event"] == "replication.two_masters"]
        assert told == ([] if slave else [AT])


async def test_a_master_that_a_person_forces_is_the_latest_from_then_on(tmp_path: Path) -> None:
    async with two(tmp_path, 0, 4, force_old_master=True) as (master, other):
        await check(master, Network.of(other))
        assert master.broker.core.role.epoch == 5
        root = master.store.root
    saved = read_role(Disk(), root)
    assert saved is not None
    # It is the master by its settings, which may say otherwise next time.
    assert (saved.broker_role, saved.epoch) == ("SLAVE", 5)


@pytest.mark.parametrize("names", [True, False])
async def test_who_cannot_be_asked_holds_up_no_start(tmp_path: Path, names: bool) -> None:
    async with two(tmp_path, 0, 4) as (master, other):
        network = Network.of(other)
        network.links[AT if names else NAMES] = None
        with capture_logs() as logs:
            await check(master, network)
        assert {line["event"] for line in logs} == {"replication.slaves_unknown"}


async def test_a_member_without_epochs_refuses_nothing(tmp_path: Path) -> None:
    """RocketMQ of 5.x answers without one, and 4.9 has no such request."""
    java = b'{"inSyncSlaveNums":0,"master":true,"masterCommitLogMaxOffset":5}'
    async with two(tmp_path, 3, 0) as (master, other):
        network = Network.of(other)
        for answer in (Command(code=0, body=java), Command(code=3, remark="not supported")):
            network.links[AT] = member = Says(answer)
            await check(master, network)
            assert len(member.asked) == 1


async def test_an_answer_that_is_none_is_an_error_of_the_member() -> None:
    link = Says(Command(code=0, body=b"no"))
    with pytest.raises(BodyError):
        await status_of(link)
