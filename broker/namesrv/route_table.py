"""The routes of a name server: which broker serves which topic, at which address. Memory only.

Brokers elsewhere register and send heartbeats; the broker of this process is entered directly and
never expires. A broker name stands for one broker, whatever cluster it reports. Work on all topics
runs in steps: the route of a topic is complete at any time, the topics of a broker are updated one
after the other. A broker that left appears in no route from then on; `settle` removes its entries
from the topics later. `now_ms` is a monotonic clock. The module is long because its four tables
belong together.
Source: nameserver §1, §3 (RouteInfoManager).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from aerobee.broker.errors import LimitReached, Refusal
from aerobee.broker.namesrv.registrations import (
    MASTER_ID,
    Broker,
    LiveAddress,
    LiveKey,
    LostBrokers,
    MinIdChange,
    OwnBroker,
    RegistrationAnswer,
    SystemNames,
    check_queues,
    check_shape,
)
from aerobee.broker.namesrv.topic_queues import TOPICS_STEP, TopicQueues, unwritable
from aerobee.broker.topics.topics import PERM_READ, PERM_WRITE
from aerobee.remoting.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
    from typing import TypeAlias

    from aerobee.broker.namesrv.registrations import BrokerConnection, Registration
    from aerobee.remoting.wire.bodies.data_version import DataVersion
    from aerobee.remoting.wire.bodies.topic import TopicConfig

    AddressFor: TypeAlias = Callable[[str], str | None]
    """Broker name → the address of its master in an answer; None: the registered one."""

ADDRESSES_MAX: Final = 100
"""Addresses under one broker name, and those registered over one connection."""
UNFINISHED: Final = -1
"""The counter of a data version whose topics are not all stored yet; no broker sends it."""


def as_registered(broker: str) -> str | None:
    """Show every broker at its registered address."""
    return None


class RouteTable:
    """topic → broker name → queues; broker name → addresses; (cluster, address) → liveness.

    Invariant: every broker has an address; every queue entry names a broker of the table, or one in
    `queues.gone`.
    """

    def __init__(
        self,
        *,
        max_topics: int = 100_000,
        max_brokers: int = 1_000,
        max_pairs: int = 1_000_000,
        min_id_changed: Callable[[MinIdChange], None] = lambda _: None,
        deletes_missing: Callable[[], bool] = lambda: False,
    ) -> None:
        """`deletes_missing`: whether a registration has all topics of its broker."""
        self.queues = TopicQueues(max_topics=max_topics, max_pairs=max_pairs)
        self.brokers: dict[str, Broker] = {}
        self.live: dict[LiveKey, LiveAddress] = {}
        self.lost = LostBrokers()
        self.max_brokers = max_brokers
        self.min_id_changed = min_id_changed
        self.deletes_missing = deletes_missing
        self.own: OwnBroker | None = None
        self.own_ha_address = ""
        self.own_deleted: set[str] = set()
        """Topics whose routes were deleted since our own broker registered such topics again."""
        self.arriving: list[tuple[str, set[str]]] = []
        """The clusters of registrations that are being taken, and the topics deleted meanwhile."""
        self.settle = self.queues.settle

    # ── Our own broker ──

    def register_own(
        self,
        *,
        cluster: str,
        broker: str,
        broker_id: int,
        address: str,
        ha_address: str,
        topics: Iterable[TopicConfig],
    ) -> None:
        """Enter the broker of this process: nothing replaces, unregisters or expires it.

        `topics`, here and in later updates, have the permissions that clients are to see. A slave
        that becomes the master leaves and is entered again, under the name that has just left.
        """
        for _ in self.settle():
            pass  # The topics that are entered here would be cleared away afterwards.
        self.own = OwnBroker(broker, broker_id)
        self.own_ha_address = ha_address
        entry = self.brokers.setdefault(broker, Broker(cluster, broker))
        entry.addresses[broker_id] = address
        self.update_own(topics)

    def update_own(self, topics: Iterable[TopicConfig]) -> None:
        """Store new or changed topics of our own broker; a slave's while its master is unknown."""
        assert self.own is not None, "our own broker has not been entered"
        if not self._own_gives_topics:
            return
        for config in topics:
            self.queues.put(self.own.name, config, config.perm)

    def delete_own(self, topic: str) -> None:
        """Remove a topic that our own broker no longer has."""
        if self.own is not None and self._own_gives_topics:
            self.queues.drop(topic, {self.own.name})

    @property
    def _own_gives_topics(self) -> bool:
        """Whether the topics of our own broker count: of a slave only where there is no master."""
        own = self.own
        return own is not None and (
            own.broker_id == MASTER_ID or MASTER_ID not in self.brokers[own.name].addresses
        )

    def leave_own(self) -> None:
        """Remove our own broker from every route, because it stops."""
        if self.own is not None:
            own, self.own = self.own, None
            self.drop_address(own.name, self.brokers[own.name].addresses[own.broker_id])

    # ── Registration ──

    def register(
        self, request: Registration, now_ms: int
    ) -> Generator[None, None, RegistrationAnswer]:
        """Register a broker and its topics. Raises: Refusal when it may not register.

        Topics are stored again only when the data version differs from the stored one; topics
        missing from the request are kept, unless `deletes_missing` says otherwise. Other requests
        may run at each yield: the data version is stored after the last topic, and if the broker
        leaves before, the remaining topics are dropped.
        Source: nameserver §3.1.
        """
        check_shape(request)
        yield from self.settle()
        yield from self.queues.check(request.topics)
        # No yield from here until the broker is in the table: `settle` may only remove entries of
        # an earlier broker with this name.
        yield from self.settle()
        self.check(request)
        key = LiveKey(request.cluster, request.address)
        broker = self.brokers.get(request.broker)
        if broker is not None and self.is_outdated(broker, request):
            self.leave({key} & self.live.keys())
            return RegistrationAnswer()
        if broker is None:
            broker = Broker(request.cluster, request.broker)
            self.brokers[request.broker] = broker
        broker.enable_acting_master = bool(request.enable_acting_master)
        broker.zone_name = request.zone_name
        known = self.live.get(key)
        if known is not None and known.broker != request.broker:
            # The broker changed its name; its entry under the old name would never be removed.
            self.drop_address(known.broker, request.address)
        first = self.place(broker, request)
        all_of_them = first or known is None or known.version != request.version
        unfinished = msgspec.structs.replace(request.version, counter=UNFINISHED)
        live = self.live[key] = LiveAddress(
            request.broker,
            unfinished if all_of_them else request.version,
            request.ha_address,
            now_ms,
            request.timeout_ms,
            request.connection,
            tuple(request.filter_servers),
        )
        if self.gives_topics(broker, request):
            if self.deletes_missing() and not request.mapped:
                yield from self.delete_missing(broker, request, live)
            if self.still_registered(broker, request, live):
                yield from self.take_topics(broker, request, live, all_of_them=all_of_them)
        if self.still_registered(broker, request, live):
            live.version = request.version
            self.lost.found(key, request.broker, request.broker_id)
        return self.master_of(broker, request)

    def check(self, request: Registration) -> None:
        """Check a registration before anything is changed. Raises: Refusal, LimitReached."""
        broker = self.brokers.get(request.broker)
        if (request.broker, request.broker_id) == self.own:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"broker {request.broker} with id {request.broker_id} runs in this process already:"
                " give the other one another brokerName or brokerId",
            )
        # A first registration with a single topic is an incremental one that came too early.
        known = broker is not None and request.broker_id in broker.addresses
        if not known and len(request.topics) == 1:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if broker is None and len(self.brokers) >= self.max_brokers:
            raise LimitReached("broker", self.max_brokers)
        self.check_addresses(broker, request)

    def check_addresses(self, broker: Broker | None, request: Registration) -> None:
        """Check the limits on addresses. Raises: LimitReached."""
        new = LiveKey(request.cluster, request.address) not in self.live
        if new and len(self.live) >= self.max_brokers:
            raise LimitReached("broker address", self.max_brokers)
        if new and (peer := request.connection) is not None:
            held = (live.connection for live in self.live.values())
            if (
                sum(address is not None and address.id == peer.id for address in held)
                >= ADDRESSES_MAX
            ):
                raise LimitReached("broker address of one connection", ADDRESSES_MAX)
        addresses = {} if broker is None else broker.addresses
        if request.broker_id not in addresses and len(addresses) >= ADDRESSES_MAX:
            raise LimitReached(f"address of broker {request.broker}", ADDRESSES_MAX)

    def is_outdated(self, broker: Broker, request: Registration) -> bool:
        """Whether another live address holds the broker id and has a later state version."""
        holder = broker.addresses.get(request.broker_id)
        if holder is None or holder == request.address:
            return False
        live = self.live.get(LiveKey(request.cluster, holder))
        return live is not None and live.version.state_version > request.version.state_version

    def place(self, broker: Broker, request: Registration) -> bool:
        """Store the address under its id and remove it from other ids; True if the id was free."""
        for broker_id, address in list(broker.addresses.items()):
            # A slave that became master keeps its address, and so does the reverse.
            moved = address == request.address and broker_id != request.broker_id
            if moved and (broker.name, broker_id) != self.own:
                del broker.addresses[broker_id]
        first = request.broker_id not in broker.addresses
        smallest = min(broker.addresses, default=request.broker_id)
        broker.addresses[request.broker_id] = request.address
        if request.broker_id < smallest:
            others = (other for id_, other in broker.addresses.items() if id_ > request.broker_id)
            self.min_id_changed(
                MinIdChange(dict(broker.addresses), tuple(others), ha_address=request.ha_address)
            )
        return first

    def gives_topics(self, broker: Broker, request: Registration) -> bool:
        """Whether its topics are stored: it is the master, or may act as master (smallest id)."""
        if request.broker_id == MASTER_ID:
            return True
        knows_acting_master = request.enable_acting_master is not None
        return knows_acting_master and request.broker_id == min(broker.addresses)

    def take_topics(
        self, broker: Broker, request: Registration, live: LiveAddress, *, all_of_them: bool
    ) -> Iterator[None]:
        """Store the queues of its topics that may have changed. Raises: LimitReached.

        Stops early when the broker has left, or has registered again.
        """
        acting = request.broker_id != MASTER_ID and broker.enable_acting_master
        for number, (topic, config) in enumerate(request.topics.items(), 1):
            queues = self.queues.of(topic)
            wanted = all_of_them or broker.name not in queues
            if wanted and topic not in request.deleted:
                # Other registrations may have run since the check.
                self.queues.check_room(not queues)
                self.queues.put(
                    broker.name, config, config.perm & ~PERM_WRITE if acting else config.perm
                )
            if number % TOPICS_STEP == 0:
                yield
                if not self.still_registered(broker, request, live):
                    return

    def delete_missing(
        self, broker: Broker, request: Registration, live: LiveAddress
    ) -> Iterator[None]:
        """Remove the topics of the broker that it no longer has.

        Stops early when the broker has left, or has registered again.
        """
        for number, topic in enumerate(list(self.queues.table), 1):
            if topic not in request.topics:
                self.queues.drop(topic, (broker.name,))
            if number % TOPICS_STEP == 0:
                yield
                if not self.still_registered(broker, request, live):
                    return

    def still_registered(self, broker: Broker, request: Registration, live: LiveAddress) -> bool:
        """Whether this is the broker's last registration, and it has not left."""
        same = self.live.get(LiveKey(request.cluster, request.address)) is live
        return same and self.brokers.get(broker.name) is broker

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Store a topic of registered brokers; nothing if one of them is not registered.

        Entries for our own broker are ignored: it reports its topics itself, unless it is a slave.
        Raises: Refusal, LimitReached.
        """
        for queue in queues:
            check_queues(topic, queue.read_queue_nums, queue.write_queue_nums)
        if any(queue.broker_name not in self.brokers for queue in queues):
            return
        self.queues.check_room(not self.queues.of(topic))
        for queue in queues:
            if self.own is None or self.own != (queue.broker_name, MASTER_ID):
                self.queues.put_data(topic, queue)

    def holder(self, broker: str, broker_id: int) -> str | None:
        """The address of this broker name and id, if that broker is alive."""
        group = self.brokers.get(broker)
        address = None if group is None else group.addresses.get(broker_id)
        alive = any(key.address == address for key in self.live)
        return address if alive else None

    def master_of(self, broker: Broker, request: Registration) -> RegistrationAnswer:
        """The master's addresses, for the answer to a slave."""
        address = broker.addresses.get(MASTER_ID)
        if request.broker_id == MASTER_ID or address is None:
            return RegistrationAnswer()
        if self.own == (broker.name, MASTER_ID):
            return RegistrationAnswer(self.own_ha_address, address)
        live = self.live.get(LiveKey(request.cluster, address))
        return RegistrationAnswer(live.ha_address, address) if live else RegistrationAnswer()

    def master_of_own(self, cluster: str) -> RegistrationAnswer:
        """The master's addresses, where our own broker is a slave of one that registers here."""
        broker = None if self.own is None else self.brokers.get(self.own.name)
        address = None if broker is None else broker.addresses.get(MASTER_ID)
        live = None if address is None else self.live.get(LiveKey(cluster, address))
        return RegistrationAnswer(live.ha_address, address) if live else RegistrationAnswer()

    def stored_version(self, cluster: str, address: str, now_ms: int) -> DataVersion | None:
        """The data version of a broker's last registration; the query counts as a heartbeat.

        None also where another address has its place since: the broker is to take it again.
        """
        live = self.seen(cluster, address, now_ms)
        broker = None if live is None else self.brokers.get(live.broker)
        if live is None or broker is None or address not in broker.addresses.values():
            return None
        return live.version

    def seen(self, cluster: str, address: str, now_ms: int) -> LiveAddress | None:
        """Record a heartbeat; returns the broker's entry, None if it is not registered."""
        live = self.live.get(LiveKey(cluster, address))
        if live is not None:
            live.last_update_ms = now_ms
        return live

    # ── Leaving ──

    def unregister(self, cluster: str, address: str) -> bool:
        """Unregister a broker; returns whether it was registered. Our own broker stays."""
        key = LiveKey(cluster, address)
        left = self.leave({key} & self.live.keys())
        self.lost.forget(key)
        return bool(left)

    def connection_closed(self, connection_id: int) -> list[str]:
        """Remove the brokers that last registered over this connection; returns their addresses."""
        return self.leave(
            key
            for key, live in self.live.items()
            if live.connection is not None and live.connection.id == connection_id
        )

    def expire(self, now_ms: int) -> list[BrokerConnection]:
        """Remove brokers without a heartbeat in time; returns the connections to be closed."""
        silent = {
            key: live
            for key, live in self.live.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        }
        self.leave(silent)
        self.lost.forget_old(now_ms)
        return [live.connection for live in silent.values() if live.connection is not None]

    def leave(self, keys: Iterable[LiveKey]) -> list[str]:
        """Remove live entries with their addresses, which counts as lost; returns the addresses."""
        gone = {key: self.live.pop(key) for key in list(keys)}
        for key, live in gone.items():
            broker = self.brokers.get(live.broker)
            if broker is not None:
                for broker_id, address in broker.addresses.items():
                    if address == key.address:
                        self.lost.add(key, live.broker, broker_id, live.last_update_ms)
            self.drop_address(live.broker, key.address)
        return [key.address for key in gone]

    def drop_address(self, name: str, address: str) -> None:
        """Remove an address of a broker; with the last one also the broker and its queues."""
        broker = self.brokers.get(name)
        if broker is None:
            return
        kept = {key: value for key, value in broker.addresses.items() if value != address}
        if self.own is not None and self.own.name == name:
            kept[self.own.broker_id] = broker.addresses[self.own.broker_id]
        first_gone = bool(kept) and min(kept) > min(broker.addresses)
        broker.addresses = kept
        if first_gone and broker.enable_acting_master:
            self.min_id_changed(MinIdChange(dict(kept), tuple(kept.values()), offline=address))
        if not kept:
            del self.brokers[name]
            self.queues.gone.add(name)
        elif MASTER_ID not in kept and broker.enable_acting_master:
            self.queues.masterless.add(name)

    # ── Administration ──

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, or only its queues on the brokers of `cluster`. Topics of our own are
        noted: that broker registers them again, as others do.
        """
        brokers = self.brokers if cluster is None else self.brokers_of(cluster)
        own = self.own
        if own is not None and own.name in brokers and own.name in self.queues.of(topic):
            self.own_deleted.add(topic)
        self.queues.drop(topic, list(brokers))
        for of, deleted in self.arriving:
            if cluster in (None, of):
                deleted.add(topic)

    @contextmanager
    def deletions(self, cluster: str) -> Iterator[Set[str]]:
        """The topics that are deleted while a registration of this cluster is taken."""
        arriving = cluster, set[str]()
        self.arriving.append(arriving)
        try:
            yield arriving[1]
        finally:
            self.arriving = [other for other in self.arriving if other is not arriving]

    def wipe_write_perm(self, broker: str) -> Generator[None, None, int]:
        """Clear the write bit of every topic of a broker; returns the number of topics."""
        return self.queues.change_permissions(broker, unwritable)

    def add_write_perm(self, broker: str) -> Generator[None, None, int]:
        """Make every topic of a broker readable and writable; returns the number of topics."""
        # RocketMQ sets 6 whatever was there before, so a template loses its inherit bit.
        return self.queues.change_permissions(broker, lambda _: PERM_READ | PERM_WRITE)

    # ── Queries ──

    def route(self, topic: str, shown: AddressFor = as_registered) -> TopicRouteData | None:
        """Brokers and queues of a topic in a stable order, None if no broker has it.

        `shown`: the addresses in this answer of brokers of this process, or of its supervisor.
        """
        queues = self.queues.of(topic)
        names = sorted(name for name in queues if name in self.brokers)
        if not names:
            return None
        return TopicRouteData(
            broker_datas=[self.broker_data(name, shown) for name in names],
            queue_datas=[self.queues.shown(queues[name]) for name in names],
            filter_server_table=self.filter_servers(names),
        )

    def broker_data(self, name: str, shown: AddressFor = as_registered) -> BrokerData:
        """The entry of one broker in an answer."""
        broker = self.brokers[name]
        addresses = dict(sorted(broker.addresses.items()))
        own = self.own
        number = own.broker_id if own is not None and own.name == name else MASTER_ID
        if number in addresses and (address := shown(name)) is not None:
            addresses[number] = address
        return BrokerData(
            broker_addrs=addresses,
            broker_name=name,
            cluster=broker.cluster,
            enable_acting_master=broker.enable_acting_master,
            zone_name=broker.zone_name,
        )

    def filter_servers(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Address → filter servers, of the brokers that have any."""
        return {
            key.address: list(live.filter_servers)
            for key, live in self.live.items()
            if live.filter_servers and live.broker in names
        }

    def cluster_info(self, shown: AddressFor = as_registered, now_ms: int = 0) -> ClusterInfo:
        """All brokers, the broker names of every cluster, and which brokers were lost."""
        clusters: dict[str, list[str]] = {}
        for name in sorted(self.brokers):
            clusters.setdefault(self.brokers[name].cluster, []).append(name)
        return ClusterInfo(
            broker_addr_table={
                name: self.broker_data(name, shown) for name in sorted(self.brokers)
            },
            cluster_addr_table=clusters,
            lost_brokers=self.lost.listed(now_ms) or None,
        )

    def brokers_of(self, cluster: str) -> list[str]:
        """The names of the brokers of a cluster."""
        return [name for name, broker in self.brokers.items() if broker.cluster == cluster]

    def topics(self, cluster: str | None = None) -> Generator[None, None, list[str]]:
        """Every topic, or those on a broker of `cluster`; a very long list is not sorted."""
        if cluster is None:
            return self.queues.names(lambda queues: True)
        brokers = set(self.brokers_of(cluster))
        return self.queues.names(lambda queues: not brokers.isdisjoint(queues))

    def system_names(self, shown: AddressFor = as_registered) -> SystemNames:
        """Cluster and broker names, which are topics too, and the address of one broker."""
        info = self.cluster_info(shown)
        names = [name for cluster, of in info.cluster_addr_table.items() for name in (cluster, *of)]
        addresses = (data.broker_addrs for data in info.broker_addr_table.values())
        first = next(addresses, None)
        return SystemNames(names, None if first is None else next(iter(first.values())))
