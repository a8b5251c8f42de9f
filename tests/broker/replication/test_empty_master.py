"""An empty master beside a slave that has messages does not start."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.config.settings.replication import ReplicationConfig
from aerobee.broker.namesrv.registrations import Broker
from aerobee.broker.replication.empty_master import EmptyMasterCheck
from aerobee.remoting.errors import ConnectFailed
from aerobee.store.errors import StoreRefused
from tests.broker.desk import open_desk
from tests.broker.replication.pairs import SLAVE, Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.broker.desk import Desk

pytestmark = pytest.mark.trio

NAMES, AT = "10.0.0.3:9876", "10.0.0.2:10911"


class Network:
    """Who answers at which address."""

    def __init__(self, **links: Link) -> None:
        self.links = {NAMES: links.get("names"), AT: links.get("slave")}

    @asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[Link]:
        link = self.links[address]
        if link is None:
            raise ConnectFailed(f"{address}: refused")
        yield link


async def check(master: Desk, network: Network) -> None:
    await EmptyMasterCheck(master.broker.core, [NAMES], network.connect).run()


@asynccontextmanager
async def slave_and_names(root: Path, bodies: int) -> AsyncIterator[Network]:
    """A slave with so many messages, and a name server that knows it."""
    async with open_desk(root / "names") as names, open_desk(root / "slave", **SLAVE) as slave:
        slave.topic()
        slave.store.be_master()
        slave.broker.core.role.is_slave = False
        for _ in range(bodies):
            assert (await slave.send()).code == 0
        routes = names.broker.namesrv.route_table
        routes.brokers["desk"] = Broker("DefaultCluster", "desk", {1: AT})
        yield Network(names=Link(names), slave=Link(slave))


@pytest.mark.parametrize(
    ("bodies", "settings", "refused"),
    [(1, {}, True), (0, {}, False), (1, {"force_empty_master": True}, False)],
)
async def test_an_empty_master_starts_only_where_no_slave_has_messages(
    tmp_path: Path, bodies: int, settings: dict[str, Any], refused: bool
) -> None:
    replication = ReplicationConfig(**settings)
    async with (
        slave_and_names(tmp_path, bodies) as network,
        open_desk(tmp_path / "master", replication=replication) as master,
    ):
        if refused:
            with pytest.raises(StoreRefused, match=r"broker 1 of this name, at 10.0.0.2:10911"):
                await check(master, network)
        else:
            await check(master, network)


async def test_a_master_with_messages_asks_nobody(tmp_path: Path) -> None:
    async with slave_and_names(tmp_path, 3) as network, open_desk(tmp_path / "master") as master:
        master.topic()
        await master.send()
        await check(master, network)
        names = network.links[NAMES]
        assert names is not None
        assert names.asked == []


@pytest.mark.parametrize(
    ("role", "bodies", "forced", "refused"),
    [
        (BrokerRole.SYNC_MASTER, 3, False, True),
        (BrokerRole.SYNC_MASTER, 3, True, False),
        (BrokerRole.SYNC_MASTER, 2, False, False),
        (BrokerRole.ASYNC_MASTER, 3, False, False),
    ],
)
async def test_a_master_that_waits_for_slaves_and_lost_its_end_does_not_start(
    tmp_path: Path, role: BrokerRole, bodies: int, forced: bool, refused: bool
) -> None:
    async with slave_and_names(tmp_path, 2) as network:
        slave = network.links[AT]
        assert slave is not None
        for path in (tmp_path / "slave").rglob("*"):
            at = tmp_path / "master" / path.relative_to(tmp_path / "slave")
            if path.is_dir():
                at.mkdir(parents=True, exist_ok=True)
            elif path.parent.name in ("commitlog", "config"):
                at.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, at)
        for _ in range(bodies - 2):
            assert (await slave.desk.send()).code == 0
        replication = ReplicationConfig(
            force_empty_master=forced, in_sync_replicas=2, ha_peers="127.0.0.1"
        )
        of_master: dict[str, Any] = {"broker_role": role, "replication": replication}
        async with open_desk(tmp_path / "master", **of_master) as master:
            end = master.store.commit_log.max_offset
            assert 0 < end <= slave.desk.store.commit_log.max_offset
            if refused:
                told = rf"ends at {end}, and that of broker 1 of this name, at {AT}, has the same"
                with pytest.raises(StoreRefused, match=told):
                    await check(master, network)
            else:
                await check(master, network)


async def test_another_history_is_nothing_that_was_lost(tmp_path: Path) -> None:
    replication = ReplicationConfig(in_sync_replicas=2, ha_peers="127.0.0.1")
    of_master: dict[str, Any] = {
        "broker_role": BrokerRole.SYNC_MASTER,
        "replication": replication,
    }
    async with (
        slave_and_names(tmp_path, 3) as network,
        open_desk(tmp_path / "master", **of_master) as master,
    ):
        master.topic()
        await master.send()
        await check(master, network)
        slave = network.links[AT]
        assert slave is not None
        assert slave.asked, "the slave was not asked"


async def test_who_cannot_be_asked_holds_up_no_start(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as master:
        with capture_logs() as logs:
            await check(master, Network())
        assert [line["address"] for line in logs] == [NAMES]
