"""Failover: this broker is a member of a group, whose master changes by itself."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from aerobee.broker.config.settings.failover import endpoint, member_ids
from aerobee.broker.core.feature import Feature
from aerobee.broker.failover.commands import GroupCommands, MakesWay
from aerobee.broker.failover.deciders.controller import Controller, LogFigures
from aerobee.broker.failover.deciders.controller_identity import Member as ControlledMember
from aerobee.broker.failover.deciders.controller_identity import refuse_other_decider
from aerobee.broker.failover.deciders.controller_links import ControllerLinks
from aerobee.broker.failover.deciders.etcd import PART, Etcd
from aerobee.broker.failover.deciders.etcd_calls import Keys
from aerobee.broker.failover.member import MEND, Member
from aerobee.broker.failover.member_number import refuse_other_number, save_number
from aerobee.broker.process.host import other_name_servers
from aerobee.broker.replication.master_calls import MasterAddress
from aerobee.broker.replication.other_masters import members_of
from aerobee.broker.replication.status import ha_address
from aerobee.remoting.server.routes import Route
from aerobee.remoting.wire.bodies.statistics import GroupRecord
from aerobee.remoting.wire.headers import admin as headers
from aerobee.store.errors import StoreUnusable
from aerobee.store.format.names import UNSYNCED
from aerobee.store.log.read_through import LogReadThrough

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.core import Core
    from aerobee.broker.failover.decider import Decider
    from aerobee.broker.failover.reign import Names
    from aerobee.broker.replication.feature import ReplicationFeature
    from aerobee.broker.replication.master_calls import Connect
    from aerobee.remoting.wire.headers.controller import NotifyBrokerRoleChanged
    from aerobee.store.results import Recovery


class FailoverFeature(Feature):
    """The member. It is there in a group only."""

    @staticmethod
    def wanted(core: Core) -> bool:
        """Whether this broker is a member of a group."""
        return core.config.failover.is_on

    def __init__(
        self, core: Core, replication: ReplicationFeature, names: Names, connect: Connect
    ) -> None:
        """`replication` has what follows a master, and is to follow the one of the record."""
        config = core.config
        following, tables = replication.following, replication.tables
        assert following is not None
        assert tables is not None
        self._core, self._following, self._connect = core, following, connect
        self._controlled: Controller | None = None
        decider: Decider
        if config.failover.enable_controller_mode:
            links = ControllerLinks(*controllers_of(config), connect)
            decider = self._controlled = self._controller(links, connect)
            self.services = (links, self._controlled)
        else:
            decider = decider_of(config)
        self.member = Member(
            core,
            decider,
            following,
            tables,
            connect,
            names,
            addresses=MasterAddress(core.address, ha_address(config)),
        )
        replication.known_master = self.member.master
        core.role.fenced = self.member.fenced
        commands = self.commands = GroupCommands(core, self.member, connect)
        self.routes = (
            Route(headers.Follow, commands.follow, "admin"),
            Route(headers.Promote, commands.promote, "admin"),
            Route(headers.Switch, commands.switch, "admin"),
        )
        replication.status.record = self._record
        if self._controlled is not None:
            replication.status.role_changed = self._role_changed
        self.reading = LogReadThrough(
            core.disk, core.store.commit_log, when_damaged=self.member.log_damaged
        )
        self._makes_way = MakesWay(core, self.member, connect, self._members)
        self.services = (*self.services, self.member, self.reading, self._makes_way)

    def _controller(self, links: ControllerLinks, connect: Connect) -> Controller:
        """RocketMQ's controller, by whose number this broker goes."""
        core, config = self._core, self._core.config
        return Controller(
            links,
            connect,
            ControlledMember(
                config.broker.broker_cluster_name, config.broker.broker_name, core.address
            ),
            config.broker.broker_id,
            config.failover.failover_lease_s,
            self._figures,
        )

    async def _members(self) -> Mapping[int, str]:
        """The others and their addresses: as name servers know them, or the controllers. Raises:
        DeciderSilent, RecordIllegal.
        """
        if self._controlled is not None:
            return await self._controlled.members()
        members: dict[int, str] = {}
        for name_server in other_name_servers(self._core.config):
            members |= await members_of(self._core, name_server, self._connect)
        return members

    def _role_changed(self, header: NotifyBrokerRoleChanged) -> None:
        """A controller says that it has elected a master: ask it."""
        assert self._controlled is not None
        if self._controlled.told(header.master_epoch or 0):
            self.member.told()

    def _figures(self) -> LogFigures | None:
        """The figures of the log for the controller; None: this member may be no master."""
        membership, store = self.member.membership, self._core.store
        if membership is None or self.member.unfit or self.member.leaves_to_others():
            return None
        group = membership.group
        return LogFigures(group.last_epoch, store.commit_log.max_offset, group.confirmed)

    def load(self) -> None:
        """Look whose epochs the directory has, and whose it is. Raises: StoreRefused, OSError."""
        by_controller = self._controlled is not None
        disk, root = self._core.disk, self._core.store.root
        refuse_other_decider(disk, root, by_controller=by_controller)
        if not by_controller:
            refuse_other_number(disk, root, self.member.id)

    def recovered(self, recovery: Recovery) -> None:
        """Join the group with the log as it is. Raises: StoreDamaged, OSError."""
        store, config = self._core.store, self._core.config
        if self._controlled is None:
            save_number(self._core.disk, store.root, self.member.id)
        # A controller numbers the members: nobody else knows all of them.
        members = member_ids(config.failover.failover_members) or None
        if recovery.may_lack and not config.store.sync_flush:
            # The next start may be a clean one.
            self._core.disk.write_atomically(store.root / UNSYNCED, b"", backup=False)
        membership = store.join_group(self.member.id, members)
        self.member.joined(membership)
        timeout_s = config.replication.slave_timeout_ms / 1000
        store.wait_for_group(membership.group, self.member.held, timeout_s)

    def _record(self) -> GroupRecord:
        """The record, as this member last heard of it; epoch 0: it knows none."""
        record = self.member.record
        return GroupRecord(
            epoch=0 if record is None else record.epoch,
            master=0 if record is None else record.master,
            sync_set=[] if record is None else list(record.sync_set),
            set_epoch=0 if record is None else record.set_epoch,
            unclean_epoch=0 if record is None else record.unclean_epoch,
            held=self.member.known.sight is not None and self.member.known.sight.held,
            member=self.member.id,
            served=self.member.served,
            # The decider may be silent while a master still acknowledges.
            problem=self._stalled() if self.member.leadership else self._no_master(),
            damage=self.member.damage,
            unfit=self.member.unfit or self.member.leaves_to_others(),
            read_to=self.reading.position,
            passes=self.reading.passes,
        )

    def _no_master(self) -> str:
        """The reason why nobody can become the master, or is it, in words; empty: none is known."""
        known = self.member.known
        if known.problem:
            decider = self._core.config.failover.decider
            return f"{decider} does not answer, so nobody can become the master: {known.problem}"
        if known.sight is not None and not known.sight.held:
            return f"nobody is the master of the group: {self.member.waits_because}"
        return ""

    def _stalled(self) -> str:
        """The reason why this master acknowledges nothing for a while, in words; empty: it does."""
        leadership, config = self.member.leadership, self._core.config.failover
        if leadership is None:
            return ""
        sync, least = leadership.sync, config.min_in_sync_replicas
        if len(sync.members) < least:
            missing = (
                f"the sync set {sorted(sync.members)} has fewer than minInSyncReplicas {least}"
            )
        else:
            late_s = config.ha_max_time_slave_not_catchup_ms / 1000
            late = sync.late(self._core.clock.monotonic(), late_s)
            missing = f"members {sorted(late)} of the sync set do not follow" if late else ""
        return f"no send is acknowledged: {missing}" if missing else ""

    def apart(self) -> str | None:
        """Why this member does not count for the others yet, or no more; None: it is in the sync
        set, and has led or followed since its start: the record of before names it still.
        """
        member, record = self.member, self.member.record
        if record is None:
            return self._no_master() or "the group has no record yet"
        if member.id not in record.sync_set:
            return f"member {member.id} is not in the sync set {sorted(record.sync_set)}"
        if member.leads or self._following.has_followed:
            return None
        return "it has followed no master since its start"

    def trouble(self) -> str | None:
        """The trouble of the group, as far as this member knows; None: nothing is wrong."""
        member, record = self.member, self.member.record
        if member.damage:
            return f"its log is damaged: {member.damage}; {MEND}"
        if reason := self._no_master() or self._stalled():
            return reason
        if record is not None and record.unclean_epoch:
            return (
                f"epoch {record.unclean_epoch} began without the sync set: acknowledged messages"
                " may be lost"
            )
        return None

    @property
    def weakened_outside(self) -> str:
        """The safety that a setting of the decider gives up, in words; empty: none known."""
        if self._controlled is None or not self._controlled.elects_unclean:
            return ""
        return (
            "enableElectUncleanMaster of the controllers: a member without all acknowledged"
            " messages can become the master"
        )

    def begin_anew_by(self, begin_anew: Callable[[], None]) -> None:
        """Set the function that restarts this broker, once its log has to be cut."""
        self._following.when_cut = begin_anew

    async def leave(self) -> None:
        """Give the lease back: the next master need not wait for its end."""
        await self.member.leave()


def controllers_of(config: BrokerConfig) -> tuple[list[str], float]:
    """The addresses of the controllers, and how long one of them may take for an answer."""
    addresses = config.failover.controller_addr.split(";")
    return addresses, config.failover.failover_lease_s * PART


def decider_of(config: BrokerConfig) -> Decider:
    """The decider of this group. Raises: StoreUnusable."""
    settings, broker = config.failover, config.broker
    targets = [endpoint(text) for text in settings.etcd_endpoints.split(";")]
    return Etcd(
        targets,
        Keys(settings.etcd_prefix, broker.broker_cluster_name, broker.broker_name),
        settings.failover_lease_s,
        tls=_tls(config) if any(target.tls for target in targets) else None,
        user=settings.etcd_user,
        password=settings.etcd_password,
    )


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    """The TLS of the connections to etcd. Raises: StoreUnusable naming the setting."""
    settings = config.failover
    try:
        context = ssl.create_default_context(cafile=settings.etcd_trust_cert_path or None)
        if settings.etcd_client_cert_path:
            context.load_cert_chain(
                settings.etcd_client_cert_path, settings.etcd_client_key_path or None
            )
    except OSError as error:
        raise StoreUnusable(
            f"etcdTrustCertPath, etcdClientCertPath or etcdClientKeyPath: {error}"
        ) from error
    return context
