"""Replication: slaves copy the log of this broker, or it is a slave that copies its master's.

Without `haPeers` no port is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from aerobee.broker.core.feature import Feature
from aerobee.broker.process.host import other_name_servers
from aerobee.broker.replication.another_master import AnotherMaster
from aerobee.broker.replication.empty_master import EmptyMasterCheck
from aerobee.broker.replication.following import Following, State
from aerobee.broker.replication.handover import Handover
from aerobee.broker.replication.master_calls import MasterAddress, address_of
from aerobee.broker.replication.master_tables import MasterTables
from aerobee.broker.replication.other_masters import OtherMasterCheck
from aerobee.broker.replication.promotion import Promotion
from aerobee.broker.replication.saved_role import read_role
from aerobee.broker.replication.slave_guard import SlaveGuard
from aerobee.broker.replication.slaves import Slaves
from aerobee.broker.replication.slaves_view import SlavesView
from aerobee.broker.replication.status import StatusProcessor
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.headers import admin as headers
from aerobee.remoting.wire.headers.controller import GetBrokerEpochCache, NotifyBrokerRoleChanged

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from aerobee.broker.core.core import Core
    from aerobee.broker.core.feature import Service
    from aerobee.broker.replication.master_calls import MasterLink
    from aerobee.broker.replication.master_tables import Copies
    from aerobee.broker.replication.slaves_view import SlaveFigures
    from aerobee.remoting.wire.bodies.statistics import GroupRecord
    from aerobee.store.results import Recovery


class KnownMaster(Protocol):
    """The addresses of the master as name servers know it; None: they know none."""

    @property
    def ha_address(self) -> str | None: ...
    @property
    def master_address(self) -> str | None: ...


class Masters(Protocol):
    """The part of the registration at name servers that knows the master."""

    @property
    def master(self) -> KnownMaster: ...
    def become_master(self) -> None: ...
    def become_slave(self, broker_id: int) -> None: ...


class Names(Protocol):
    """The ways to other brokers."""

    @property
    def registration(self) -> Masters: ...
    def connect(self, address: str) -> AbstractAsyncContextManager[MasterLink]: ...
    def tls(self) -> ssl.SSLContext | None: ...


class ReplicationFeature(Feature):
    """The port for slaves and the answer how far they are; of a slave, what follows its master."""

    def __init__(self, core: Core, tables: Copies, names: Names) -> None:
        """`tables` are to be those of the master, and `names` leads to it."""
        masters, connect = names.registration, names.connect
        self._core, self._masters = core, masters
        self._store = core.store
        self.slaves = SlavesView(core, trio.current_time)
        self.status = status = StatusProcessor(core, self.slaves)
        self.routes = (
            Route(headers.GetBrokerHaStatus, status.ha_status, "admin"),
            Route(headers.ExchangeBrokerHaInfo, status.exchange, "admin"),
            Route(headers.ResetMasterFlushOffset, status.reset_flush_offset, "admin"),
            Route(GetBrokerEpochCache, status.epochs, "admin"),
            Route(NotifyBrokerRoleChanged, status.notified, "admin"),
        )
        config = core.config
        self.following: Following | None = None
        self.tables: MasterTables | None = None
        """These two are of a broker that may be a slave."""
        self.known_master: Callable[[], MasterAddress | None] = self._named_master
        """Where the master of this slave is; None: nobody knows. A group has a way of its own."""
        self.role_changes = config.is_slave or config.replication.is_on
        """Whether this broker may get the other role while it runs."""
        if self.role_changes:
            self.following = Following(core, self.master, connect)
            if config.replication.ha_tls:
                self.following.tls = names.tls
            self.tables = MasterTables(core, tables, self._followed, connect)
            self.slave_services = (self.following, self.tables)
            status.following, status.tables_trouble = self.following, self.tables.trouble
        self.promotion = Promotion(
            core, self.following, connect, masters.become_master, self._copied_tables
        )
        self.handover = Handover(core, self.following, connect, masters)
        other = AnotherMaster(core, self.following, connect)
        if not config.failover.is_on:
            self.routes = (
                *self.routes,
                Route(headers.Follow, other.follow, "admin"),
                Route(headers.Promote, self.promotion.promote, "admin"),
                Route(headers.Switch, self.handover.switch, "admin"),
            )
        self.checks: Sequence[Service] = ()
        """Services that end before anybody is served, or refuse the start."""
        others = other_name_servers(config)
        if others and not config.is_slave:
            self.checks = (
                OtherMasterCheck(core, others, connect),
                EmptyMasterCheck(core, others, connect),
            )
        if config.needed_slaves:
            timeout_s = config.replication.slave_timeout_ms / 1000
            core.store.wait_for_slaves(config.needed_slaves, timeout_s)
        self.port: Slaves | None = None
        """The port of slaves, where some may copy the log."""
        if config.replication.is_on:
            self.port = Slaves(core)
            self.services = (self.port,)

    def load(self) -> None:
        """Read the epoch; in a group the log has it. Raises: StoreRefused, OSError."""
        if self._core.config.failover.is_on:
            return
        saved = read_role(self._core.disk, self._store.root)
        if saved is not None:
            self._core.role.epoch = saved.epoch
            if self.following is not None and saved.master_address and saved.ha_address:
                self.following.told = MasterAddress(saved.master_address, saved.ha_address)

    def recovered(self, recovery: Recovery) -> None:
        """Keep where the log ended at the start, as slaves ask for it."""
        self.status.start_offset = self._store.commit_log.max_offset

    def master(self) -> MasterAddress | None:
        """Where the master of this slave is; None: nobody knows."""
        return self.known_master()

    def _named_master(self) -> MasterAddress | None:
        """The one that a command, a setting or a name server names."""
        known = self._masters.master
        master = None if self.following is None else self.following.told
        configured = "" if master else self._core.config.replication.ha_master_address
        return address_of(configured, known.ha_address, known.master_address) or master

    def _followed(self) -> MasterAddress | None:
        """The one that is followed, or was last: its tables are copied while it answers."""
        followed = None if self.following is None else self.following.address
        return followed or self.master()

    async def _copied_tables(self) -> str:
        """Copy the master's tables now; why not, empty when that is done."""
        return "" if self.tables is None else await self.tables.copy_now()

    def guarded(self, routes: Iterable[Route]) -> Iterator[Route]:
        """The routes of this broker; of a slave, with what only its master serves refused."""
        core = self._core
        if not self.role_changes:
            return iter(routes)
        settings, store = core.config.replication, core.store

        def reads() -> bool:
            return settings.slave_read_enable and store.shows_confirmed

        in_group = core.config.failover.is_on
        return SlaveGuard(core.role, reads=reads, in_group=in_group).routes(routes)

    def slave_figures(self) -> dict[str, SlaveFigures]:
        """The slaves of this broker by their addresses."""
        return self.slaves.of_hosts()

    def slave_state(self) -> str:
        """How this slave stands to its master; empty of a master."""
        if self.following is None or not self._core.role.is_slave:
            return ""
        return str(self.following.state)

    def group_record(self) -> GroupRecord | None:
        """The group's record, as far as a member knows it; None of any other broker."""
        return self.status.record()

    def told(self) -> str:
        """How this broker stands, in a few words; empty of one that has nothing to do with slaves.

        A slave's state, or how many slaves of a master have what they should.
        """
        config = self._core.config
        if state := self.slave_state():
            return state
        if not config.replication.is_on:
            return ""
        slaves = self.slave_figures().values()
        in_sync = sum(slave.in_sync for slave in slaves)
        if config.needed_slaves:
            return f"{in_sync} of {config.needed_slaves} slaves in sync"
        return f"{in_sync} of {len(slaves)} slaves in sync" if slaves else "no slave"

    def lacking(self) -> str | None:
        """The reason why sends of a SYNC_MASTER are not answered with success; None: they are."""
        needed = self._core.config.needed_slaves
        if not needed or self._core.role.is_slave:
            return None
        in_sync = sum(slave.in_sync for slave in self.slave_figures().values())
        if in_sync >= needed:
            return None
        return (
            f"{in_sync} of {needed} slaves are in sync: messages are stored, and their producers"
            " are told SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT"
        )

    def apart(self) -> str | None:
        """Why this slave has not what its master has, in words; None: it follows, or is none."""
        state = self.slave_state()
        return f"the slave is {state}" if state not in ("", State.FOLLOWING) else None

    def trouble(self) -> str | None:
        """The trouble that keeps this slave from its master until a person mends it."""
        if self.following is None or self.tables is None or not self._core.role.is_slave:
            return None
        return self.following.trouble() or self.tables.trouble()
