"""A broker that was the master does not come back as one beside the next master.

Each change of the master by a command has a number, the epoch, and slaves keep that of the master
they follow. So before a master serves anybody, it asks the members of its group for theirs. This
needs a name server that answers: where none does, nothing is known, and nothing is refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.config.settings.broker import BrokerRole
from aerobee.broker.replication.master_calls import (
    MasterRefused,
    NoAnswer,
    answered,
    asked,
    table_of,
)
from aerobee.broker.replication.saved_role import SavedRole, path_of, read_role, write_role
from aerobee.broker.saved.documents import mapping
from aerobee.remoting.wire.bodies.statistics import HARuntimeInfo
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import GetBrokerHaStatus
from aerobee.remoting.wire.headers.namesrv import GetBrokerMemberGroup
from aerobee.store.errors import StoreRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.broker.core.core import Core
    from aerobee.broker.replication.master_calls import Connect, MasterLink

ASK_S: Final = 5.0
"""How long the start waits for each name server or member, which may be down."""

log = structlog.stdlib.get_logger(__name__)


async def members_of(core: Core, name_server: str, connect: Connect) -> Mapping[int, str]:
    """The brokers of this name that a name server knows, by number, but for this one."""
    broker = core.config.broker
    request = GetBrokerMemberGroup(
        cluster_name=broker.broker_cluster_name, broker_name=broker.broker_name
    )

    async def others(link: MasterLink) -> Mapping[int, str]:
        group = mapping(table_of((await answered(link, request)).body), "brokerMemberGroup")
        known = mapping(group, "brokerAddrs")
        return {int(number): str(at) for number, at in known.items() if at != core.address}

    try:
        return await asked(connect, name_server, others, ASK_S)
    except NoAnswer as silent:
        log.warning("replication.slaves_unknown", address=name_server, reason=str(silent))
        return {}


async def status_of(link: MasterLink) -> HARuntimeInfo | None:
    """The replication status of a broker; None from RocketMQ 4.9, which has no such request.

    Raises: MasterRefused, RemotingError.
    """
    try:
        body = (await answered(link, GetBrokerHaStatus())).body
    except MasterRefused as refused:
        if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return None
    return HARuntimeInfo.from_bytes(body)


class OtherMasterCheck:
    """A service that ends before the broker serves: a check of the start of a master."""

    def __init__(self, core: Core, name_servers: Sequence[str], connect: Connect) -> None:
        self._core = core
        self._name_servers = name_servers
        self._connect = connect

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check, and end. Raises: StoreRefused beside a later master, OSError."""
        heard: set[str] = set()
        for name_server in self._name_servers:
            members = await members_of(self._core, name_server, self._connect)
            for number, address in members.items():
                if address not in heard:
                    heard.add(address)
                    status = await self._status(address)
                    if status is not None:
                        await self._compare(number, address, status)
        task_status.started()

    async def _status(self, address: str) -> HARuntimeInfo | None:
        try:
            return await asked(self._connect, address, status_of, ASK_S)
        except NoAnswer as silent:
            log.warning("replication.slaves_unknown", address=address, reason=str(silent))
            return None

    async def _compare(self, number: int, address: str, other: HARuntimeInfo) -> None:
        """Refuse the start beside a later master. Raises: StoreRefused, OSError."""
        own = self._core.role.epoch
        tie = other.master and other.epoch == own > 0
        if other.epoch > own or tie:
            if self._core.config.replication.force_old_master:
                await self._be_later(other.epoch + 1)
                return
            does = "is the master" if other.master else "follows a master"
            raise StoreRefused(
                f"broker {number} of this name, at {address}, {does} by a later command"
                f" (epoch {other.epoch}, here {own}): two masters would write two histories. Set"
                " brokerRole: SLAVE, with a brokerId of its own from 1 on"
                f"{self._and_no_saved_role()}; where this one is to be the master all the same,"
                " stop that one and set forceOldMaster: true for one start"
            )
        if other.master:
            log.error("replication.two_masters", address=address, epoch=other.epoch)

    def _and_no_saved_role(self) -> str:
        path = path_of(self._core.store.root)
        return f", and remove {path}" if self._core.disk.exists(path) else ""

    async def _be_later(self, epoch: int) -> None:
        """Be the latest master, as a person has said. Raises: StoreRefused, OSError."""
        disk, root = self._core.disk, self._core.store.root
        end = self._core.store.commit_log.max_offset
        role = await disk.in_thread(partial(read_role, disk, root))
        kept = str(BrokerRole.SLAVE) if role is None else role.broker_role
        role = SavedRole(broker_role=kept, epoch=epoch, offset=end)
        await disk.in_thread(partial(write_role, disk, root, role))
        self._core.role.epoch = epoch
        log.warning("replication.master_forced", epoch=epoch, max_offset=end)
