"""The broker is the sum of its features: the list of them, and what each one is given.

Reading this file top to bottom shows which feature knows which. Nothing is started here:
`controller` owns the life of a broker.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from aerobee.broker.access.audit import Audit
from aerobee.broker.access.gate import Gate
from aerobee.broker.admin.feature import AdminFeature
from aerobee.broker.assignment.feature import AssignmentFeature
from aerobee.broker.config.weakened import told_of
from aerobee.broker.console.feature import ConsoleFeature
from aerobee.broker.consumers.feature import ConsumersFeature
from aerobee.broker.core.background import Housekeeping
from aerobee.broker.core.core import Core
from aerobee.broker.core.feature import Feature
from aerobee.broker.core.role import OnShift
from aerobee.broker.dedupe.feature import DedupeFeature
from aerobee.broker.delay.feature import DelayFeature
from aerobee.broker.failover.feature import FailoverFeature
from aerobee.broker.grpc.feature import GrpcFeature
from aerobee.broker.live_settings.feature import LiveSettingsFeature
from aerobee.broker.metrics.feature import MetricsFeature
from aerobee.broker.metrics.limits import LimitUses
from aerobee.broker.metrics.sources import known_names
from aerobee.broker.namesrv.feature import NamesrvFeature
from aerobee.broker.pools.pool_watch import PoolWatch
from aerobee.broker.pop.feature import PopFeature
from aerobee.broker.pop.pop_orders import PopOrderTable
from aerobee.broker.pull.feature import PullFeature
from aerobee.broker.query.feature import QueryFeature
from aerobee.broker.replication.feature import ReplicationFeature
from aerobee.broker.replication.master_tables import Copies
from aerobee.broker.saved.save import Saver
from aerobee.broker.send.feature import SendFeature
from aerobee.broker.timers.feature import TimersFeature
from aerobee.broker.topics.feature import TopicsFeature
from aerobee.broker.topics.topics import TopicTable
from aerobee.broker.transactions.feature import TransactionsFeature
from aerobee.broker.users.feature import UsersFeature
from aerobee.store.recovery.start_check import refusing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from aerobee.broker.config.model import BrokerConfig
    from aerobee.broker.core.feature import Service
    from aerobee.remoting.server.routes import Route
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk
    from aerobee.store.results import Recovery

    Extra: TypeAlias = Literal["dedupe", "timers", "pop"]
    """A feature that a broker can do without: its requests are answered as unknown codes, and the
    properties of messages that it reads have no meaning."""

F = TypeVar("F", bound=Feature)


class Broker:
    """Core and features, built and not started."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        without: Collection[Extra] = (),
    ) -> None:
        """Build the core, then the features in the order in which they load, start and stop.

        Raises: OSError when brokerIP1 is not an address.
        """
        topics = TopicTable(config.broker, now_ms=clock.now_ms())
        core = self.core = Core(config, topics, disk=disk, clock=clock)
        self.features: list[Feature] = []
        add = self._add
        self.settings = add(LiveSettingsFeature(core))
        self.users = add(UsersFeature(core))
        self.topics = add(TopicsFeature(core, topics))
        self.namesrv = add(NamesrvFeature(core, topics, more=self.settings.namesrv_routes))
        self.consumers = add(ConsumersFeature(core, topics))
        consumers = self.consumers.tables
        core.stats.known = known_names(topics, consumers)
        self.transactions = add(TransactionsFeature(core, topics, consumers))
        halves = self.transactions.table
        self.dedupe = None if "dedupe" in without else add(DedupeFeature(core))
        self.timers = None if "timers" in without else add(TimersFeature(core, topics))
        wheel = None if self.timers is None else self.timers.wheel
        self.delay = add(DelayFeature(core))
        self.send = add(SendFeature(core, self.topics, consumers, halves, dedupe=self.dedupe))
        self.pull = add(PullFeature(core, topics, consumers))
        self.pop: PopFeature | None = None
        if "pop" not in without:
            access = self.pull.access
            self.pop = add(PopFeature(core, topics, consumers, access=access, timers=wheel))
        registration = self.namesrv.registration
        self.assignment = add(AssignmentFeature(core, topics, consumers, registration=registration))
        self.query = add(QueryFeature(core))
        done = None if self.timers is None else self.timers.done
        copies = Copies(topics, consumers, self.delay.offsets, self.assignment.modes, done)
        self.replication = add(ReplicationFeature(core, copies, self.namesrv))
        self.failover = self._made_failover()
        pulls, pops = self.pull.hold.quota, self.pop.hold.quota if self.pop is not None else None
        limits = LimitUses(core, topics, consumers, self.users.directory, pulls=pulls, pops=pops)
        figures, text, delays = self.replication, self.replication.told, self.delay.offsets
        self.metrics = add(
            MetricsFeature(core, topics, consumers, halves, limits, timers=wheel, copies=figures)
        )
        self.admin = add(
            AdminFeature(
                core, self.topics, consumers, self.metrics, delays=delays, timers=wheel, copies=text
            )
        )
        self.console = add(ConsoleFeature(core, topics, consumers, self.metrics))
        self.grpc: GrpcFeature | None = None
        if GrpcFeature.wanted(core):
            orders = PopOrderTable() if self.pop is None else self.pop.orders
            self.grpc = add(GrpcFeature(core, topics, consumers, orders))
        self._tell_of_deletions()
        self._tell_of_changes()
        self.audit = self._guarded()
        self.saver = self._made_saver()

    def _made_failover(self) -> FailoverFeature | None:
        """The member of a group; None where the master is named by people."""
        core, names = self.core, self.namesrv
        if not FailoverFeature.wanted(core):
            return None
        return self._add(FailoverFeature(core, self.replication, names.registration, names.connect))

    def _made_saver(self) -> Saver:
        """The saver of the tables of all features, of each as it asks for it."""
        saver = Saver(
            [saved for feature in self.features for saved in feature.saved],
            periodic=[periodic for feature in self.features for periodic in feature.periodic],
        )
        if self.failover is not None:
            self.failover.member.save_tables = saver.save_all
        return saver

    def _tell_of_deletions(self) -> None:
        """Have every feature forget topics and groups that are deleted, here or by the master."""
        topic_deleted = [feature.topic_deleted for feature in self.features]
        group_deleted = [feature.group_deleted for feature in self.features]
        self.admin.deletion.when_deleted += topic_deleted
        self.consumers.group_requests.when_deleted += group_deleted
        tables = self.replication.tables
        if tables is not None:
            tables.when_topic_gone += topic_deleted
            tables.when_group_gone += group_deleted

    def _tell_of_changes(self) -> None:
        """Tell every feature of changed settings, and that this slave becomes the master."""
        changed = [feature.settings_changed for feature in self.features]
        self.settings.live.when_changed += [self.core.settings_changed, *changed]
        self.replication.promotion.features += self.features
        self.replication.handover.features += self.features
        if self.failover is not None:
            self.failover.member.features += self.features

    def _guarded(self) -> Audit:
        """Set the gate in front of all handlers, if requests need accounts; returns the audit
        log.
        """
        core, directory = self.core, self.users.directory
        authority, files = directory.authority, directory.files
        auth, cluster = core.config.auth, core.config.broker.broker_cluster_name
        audit = Audit(every=lambda: auth.admin_access_log, now_ms=core.clock.now_ms)
        if authority is not None:
            gate = Gate(authority, cluster, core.stats.access)
            core.rounds.reactor.guard(audit.behind(gate.check), gate.lets_pass)
            self.transactions.half_messages.may_publish = gate.may_publish
            self.transactions.requests.may_end = gate.may_end
            if self.grpc is not None:
                self.grpc.guard(gate.may_hide)
        if files is not None:
            self.settings.live.when_asked.append(files.reload)
        return audit

    def _add(self, feature: F) -> F:
        core = self.core
        self.features.append(feature)
        core.puts.hooks.extend(feature.put_hooks)
        core.rounds.when_closed.append(feature.connection_closed)
        if feature.held is not None:
            core.rounds.held.append(feature.held)
        return feature

    @property
    def routes(self) -> list[Route]:
        """Header, handler and pool of every request that the broker's ports answer."""
        routes = (route for feature in self.features for route in feature.routes)
        return list(self.audit.routes(self.replication.guarded(routes)))

    @property
    def namesrv_routes(self) -> list[Route]:
        """Header, handler and pool of every request to its name server; none without one."""
        return list(self.audit.routes(self.namesrv.routes))

    @property
    def services(self) -> list[Service]:
        """The background tasks, in the order in which they start."""
        core = self.core
        return [
            core.store,
            self.saver,
            *self.replication.checks,
            *self._services_of_features(),
            PoolWatch(core.rounds.reactor.pools.values(), core.clock),
            Housekeeping(self.scan),
        ]

    def _services_of_features(self) -> Iterator[Service]:
        """The services of each feature, for the role of this broker."""
        role, changes = self.core.role, self.replication.role_changes
        for feature in self.features:
            yield from feature.services
            if not changes:
                yield from feature.master_services
        if changes:
            features = self.features
            yield OnShift(role.works, list(chain(*(part.master_services for part in features))))
            yield OnShift(role.follows, list(chain(*(part.slave_services for part in features))))

    def load(self) -> Recovery:
        """Lock the directory, read the tables, recover the store, make the tables agree with it.

        The tables come first: recovery asks them which topics still exist.
        Raises: StoreRefused, TableDamaged, OSError; the directory is unlocked again then.
        """
        store = self.core.store
        store.lock()
        try:
            with refusing(store.root):
                for feature in self.features:
                    feature.load()
        except BaseException:
            store.unlock()
            raise
        recovery = store.load()
        with refusing(store.root):
            for feature in self.features:
                feature.recovered(recovery)
        return recovery

    def lacking(self) -> str | None:
        """The reason why sends are not answered with success, for the probes; None: they are."""
        lacking = None if self.failover is None else self.failover.trouble()
        return lacking or self.replication.lacking()

    def apart(self) -> str | None:
        """Why this broker is not in sync with its master, for the probes; None: it is, or leads."""
        return self.replication.apart() if self.failover is None else self.failover.apart()

    def weakened(self) -> str | None:
        """Settings under which acknowledged messages can be lost, for the probes; None: none."""
        decided = "" if self.failover is None else self.failover.weakened_outside
        return "; ".join(filter(None, [told_of(self.core.config), decided])) or None

    def scan(self) -> Iterator[None]:
        """Expire old entries in all features."""
        for feature in self.features:
            yield from feature.scan()

    async def leave(self) -> None:
        """Unregister from name servers, take no new work, and answer every held request."""
        for feature in self.features:
            await feature.leave()
        self.core.rounds.leave()
        for held in self.core.rounds.held:
            held.release_all()
        self.core.rounds.flush()

    async def close(self) -> bool:
        """Refuse puts from now on, and save every table; whether all of them are on disk."""
        master = not self.core.role.is_slave
        if master:
            for feature in self.features:
                feature.settle()
        self.core.puts.close()
        await self.core.store.space.make_room()
        if master:
            for feature in self.features:
                await feature.close()
        return await self.saver.save_all()
